"""k-means over more states than fit into memory."""

import functools
import importlib
from typing import Any, Callable, Optional

import numpy as np
import torch
from torch import Tensor

from ..errors import PluginError
from ..progress import Progress
from .store import CHUNK, States

#: Passes of mini-batch k-means over the states; at 1 M states more of them change little.
PASSES = 3
#: faiss holds what it trains with in memory: by its own advice so many states a centroid, and
#: no more than 1 GiB.
_STATES_A_CENTROID, _MOST_NUMBERS = 256, 1 << 28


def cluster(states: States, count: int, seed: int, hidden: bool = False) -> Tensor:
    """Centroids of ``count`` groups of similar states, (count, dim) float32.

    Args:
        states: those that were recorded.
        count: how many groups.
        seed: of the random choices.
        hidden: show no progress.

    Raises:
        PluginError: there are fewer states than groups, or neither faiss nor scikit-learn.
    """
    if not 1 <= count <= len(states):
        raise PluginError(
            f"--clusters {count:,} of {len(states):,} states cannot be made. Ask for 1 to "
            f"{len(states):,}, or record more states."
        )
    return clusterer()(states, count, seed, hidden)


def clusterer() -> Callable[[States, int, int, bool], Tensor]:
    """What clusters: faiss, or else scikit-learn.

    Raises:
        PluginError: there is neither.
    """
    for name, use in (("faiss", _with_faiss), ("sklearn.cluster", _with_mini_batches)):
        module = _module(name)
        if module is not None:
            return functools.partial(use, module)
    raise PluginError(
        "Clustering needs faiss or scikit-learn. Install one of them with pip install "
        "'specdec-plugin[cluster]'."
    )


def _module(name: str) -> Optional[Any]:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _with_faiss(faiss: Any, states: States, count: int, seed: int, hidden: bool) -> Tensor:
    sample = states.sample(min(count * _STATES_A_CENTROID, _MOST_NUMBERS // states.dim), seed)
    kmeans = faiss.Kmeans(
        states.dim,
        count,
        niter=20,
        seed=seed,
        verbose=not hidden,
        min_points_per_centroid=1,
        max_points_per_centroid=_STATES_A_CENTROID,
    )
    kmeans.train(sample)
    return torch.from_numpy(np.asarray(kmeans.centroids, np.float32))


def _with_mini_batches(
    sklearn_cluster: Any, states: States, count: int, seed: int, hidden: bool
) -> Tensor:
    size = max(CHUNK, 2 * count)
    kmeans = sklearn_cluster.MiniBatchKMeans(count, batch_size=size, n_init=1, random_state=seed)
    total = PASSES * len(states)
    with Progress(desc="k-means", unit="state", total=total, disable=hidden) as bar:
        for turn in range(PASSES):
            for batch, _ in states.chunks(seed + turn, size):
                # The short end of a folder cannot give the first centroids.
                first = not hasattr(kmeans, "cluster_centers_")
                kmeans.partial_fit(states.sample(size, seed) if first else batch)
                bar.update(len(batch))
    return torch.from_numpy(np.asarray(kmeans.cluster_centers_, np.float32))
