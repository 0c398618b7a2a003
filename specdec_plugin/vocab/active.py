"""The active tokens of each cluster: what is likely after the states in it."""

from typing import Sequence

import numpy as np
import torch
from torch import Tensor

from ..progress import Progress
from .clusters import Clusters, distances, joined
from .store import States


def build_clusters(
    states: States,
    centroids: Tensor,
    top_k: int,
    vocabulary: int,
    always: Sequence[int],
    suppressed_id: int,
    neighbours: int = 1,
    hidden: bool = False,
) -> Clusters:
    """The union of the K likeliest tokens of each cluster's states (Amer et al., 2022, Figure 1).

    States are assigned as in decoding, to centroids in half precision. What is likely after a
    state becomes active in the ``neighbours`` clusters nearest to it (the paper: in its own),
    because states like it may lie across the border. A cluster that no state is nearest to is left
    out. Similar clusters follow each other. Takes a byte of memory for each cluster and symbol,
    and 64 KiB for each cluster: the distances of :data:`.store.CHUNK` states.

    Args:
        states: those that were recorded.
        centroids: (clusters, dim).
        top_k: K.
        vocabulary: how many symbols there are.
        always: symbols that every cluster has.
        suppressed_id: a symbol that no cluster has.
        neighbours: clusters in which a state makes its tokens active; all, if there are fewer.
        hidden: show no progress.
    """
    rounded = centroids[chained(centroids)].half()
    norms = rounded.float().square().sum(1)
    neighbours = min(neighbours, len(centroids))
    active = np.zeros((len(centroids), vocabulary), bool)
    used = np.zeros(len(centroids), bool)
    with Progress(desc="tokens", unit="state", total=len(states), disable=hidden) as bar:
        for batch, tokens in states.chunks():
            far = distances(torch.from_numpy(batch), rounded.float(), norms)
            around = far.topk(neighbours, largest=False).indices.numpy()
            used[around[:, 0]] = True
            active[around[:, :, None], tokens[:, None, :top_k]] = True
            bar.update(len(batch))
    active[:, list(always)] = True
    active[:, suppressed_id] = False
    kept = torch.from_numpy(np.flatnonzero(used))
    sets = [np.flatnonzero(row).astype(np.int32) for row in active[used]]
    return Clusters(rounded[kept], norms[kept], *joined(sets), vocabulary)


def chained(centroids: Tensor) -> Tensor:
    """An order in which each is followed by the nearest of those that are left, (clusters,) long.

    The token sets of such neighbours are alike, so that a file of them compresses better.

    Args:
        centroids: (clusters, dim).
    """
    left = torch.zeros(len(centroids), dtype=torch.float32)
    order, own = [], 0
    for _ in range(len(centroids)):
        order.append(own)
        left[own] = torch.inf
        own = int((torch.cdist(centroids[own : own + 1], centroids)[0] + left).argmin())
    return torch.tensor(order)
