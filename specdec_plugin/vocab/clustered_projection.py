"""Output projections that score what is likely after each state only."""

import functools
from typing import Any, Callable, Optional, Tuple

from torch import Tensor

from ..engine.barred import Barred
from ..engine.output_projection import OutputProjection
from ..engine.weights import NativeObject, packing
from .clustered_linear import ClusteredLinear, native_clusters
from .clusters import Clusters


def projection_by(clusters: Optional[Clusters]) -> Callable[..., OutputProjection]:
    """What makes the projection of a decoder: by clusters of its states, or in full for None."""
    if clusters is None:
        return OutputProjection
    return functools.partial(ClusteredProjection, clusters)


class ClusteredProjection(OutputProjection):
    """An output projection that scores the active tokens of each state; others have -inf.

    Args:
        clusters: of the states that are projected (those behind a first head).
        arguments: see :class:`OutputProjection`.
        named: the same.
    """

    def __init__(self, clusters: Clusters, *arguments: Any, **named: Any) -> None:
        self._clusters = clusters
        super().__init__(*arguments, **named)

    def _pack(self) -> None:
        self._shortlist: Optional[NativeObject] = None
        weight, bias = self._source.weight.detach(), self._source.bias
        dtype = self._dtype if self._dtype and self._dtype.is_floating_point else weight.dtype
        bias = None if bias is None else bias.detach().to(dtype)
        self._linear = ClusteredLinear(weight.to(dtype), bias, self._clusters, self._backend)

    def best(self, hidden: Tensor, suppressed_id: int) -> Tensor:
        """See :class:`OutputProjection`."""
        return self.best_of(hidden, 1.0, suppressed_id)[0]

    def best_of(
        self,
        hidden: Tensor,
        temperature: float = 1.0,
        suppressed_id: int = -1,
        barred: Optional[Barred] = None,
    ) -> Tuple[Tensor, Tensor]:
        """See :class:`OutputProjection`; on a GPU nothing has the vocabulary's size.

        The scores of all symbols serve at the few steps at which a symbol is barred, and with
        kernels for a CPU.
        """
        if barred is not None or self._linear.native is not None:
            return super().best_of(hidden, temperature, suppressed_id, barred)
        flat, shape = self.entering(hidden.flatten(0, -2)), hidden.shape[:-1]
        tokens, log_probabilities = self._linear.best(flat, temperature, suppressed_id)
        return tokens.view(shape), log_probabilities.view(shape)

    @property
    def gather(self) -> Optional[int]:
        """The kernels' handle, where they run it."""
        return self._linear.native if self._first_head is None else None

    @property
    def shortlist(self) -> Optional[int]:
        """The kernels' handle of the clusters' symbols in 8 bits, packed when first wanted."""
        fits = self._first_head is None and self._backend.unsupported(self._source.weight) is None
        if self._shortlist is None and fits:
            with packing():
                weight, bias = self.float_weights()
                self._shortlist = native_clusters("shortlist", weight, bias, self._clusters)
        return None if self._shortlist is None else self._shortlist.handle
