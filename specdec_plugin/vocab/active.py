"""The active tokens of each cluster: what is likely after the states in it."""

from typing import Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ..engine.clusters import Clusters, nearest
from .store import States


def build_clusters(
    states: States,
    centroids: Tensor,
    top_k: int,
    vocabulary: int,
    always: Sequence[int],
    never: int,
    progress: bool = True,
) -> Clusters:
    """The union of the K likeliest tokens of each cluster's states (paper 004, figure 1).

    States are assigned as in decoding, to centroids in half precision. A cluster that no
    state is nearest to is left out.

    Args:
        states: those that were recorded.
        centroids: (clusters, dim).
        top_k: K.
        vocabulary: how many symbols there are.
        always: symbols that every cluster has.
        never: a symbol that no cluster has.
        progress: show a progress bar.
    """
    rounded = centroids.half()
    norms = rounded.float().square().sum(1)
    keys = np.empty(0, np.int64)  # cluster * vocabulary + token, each once
    with tqdm(desc="tokens", unit="state", total=len(states), disable=not progress) as bar:
        for batch, tokens in states.chunks():
            own = nearest(torch.from_numpy(batch), rounded.float(), norms).numpy()
            found = own[:, None] * vocabulary + tokens[:, :top_k]
            keys = np.union1d(keys, found.ravel())
            bar.update(len(batch))
    used = np.unique(keys // vocabulary)
    forced = (used[:, None] * vocabulary + np.asarray(always, np.int64)).ravel()
    keys = np.union1d(keys, forced)
    keys = keys[keys % vocabulary != never]
    offsets = torch.zeros(len(used) + 1, dtype=torch.long)
    sizes = np.bincount(np.searchsorted(used, keys // vocabulary), minlength=len(used))
    offsets[1:] = torch.from_numpy(sizes).cumsum(0)
    active = torch.from_numpy((keys % vocabulary).astype(np.int32))
    kept = torch.from_numpy(used)
    return Clusters(rounded[kept], norms[kept], offsets, active, vocabulary)
