"""Which symbols are likely after which states of a decoder (Amer et al., 2022, section 2.2)."""

from typing import NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor


class Clusters(NamedTuple):
    """Groups of decoder states, and the active tokens of each.

    Attributes:
        centroids: (clusters, dim) float16.
        norms: (clusters,) float32, the squared length of each centroid.
        offsets: (clusters + 1,) long: cluster ``c`` has ``tokens[offsets[c] : offsets[c + 1]]``.
        tokens: (…,) int32, rising within each cluster; no cluster is without.
        vocabulary: how many symbols there are.
    """

    centroids: Tensor
    norms: Tensor
    offsets: Tensor
    tokens: Tensor
    vocabulary: int

    @property
    def size(self) -> int:
        """How many clusters."""
        return self.centroids.size(0)

    @property
    def largest(self) -> int:
        """Tokens of the cluster that has the most."""
        return int(self.offsets.diff().max())

    @property
    def active_share(self) -> float:
        """The part of the vocabulary that a cluster has, on average over clusters."""
        return self.tokens.numel() / (self.size * self.vocabulary)


def joined(sets: Sequence[np.ndarray]) -> Tuple[Tensor, Tensor]:
    """``offsets`` and ``tokens`` of :class:`Clusters`.

    Args:
        sets: the tokens of each cluster, int32, rising.
    """
    offsets = torch.zeros(len(sets) + 1, dtype=torch.long)
    offsets[1:] = torch.tensor([len(each) for each in sets]).cumsum(0)
    return offsets, torch.from_numpy(np.concatenate(sets))


def distances(states: Tensor, centroids: Tensor, norms: Tensor) -> Tensor:
    """|C|² - 2 h·C, which rises with the distance from a state (Amer et al., 2022, equation 2).

    Args:
        states: (rows, dim).
        centroids: (clusters, dim) in the type and on the device of ``states``.
        norms: (clusters,) float32.

    Returns:
        (rows, clusters) float32.
    """
    return torch.mm(states, centroids.t()).float().mul_(-2).add_(norms)
