"""From the decoder's hidden states to scores over the vocabulary."""

import math
from typing import Callable, NamedTuple, Optional, Tuple, Union

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from ..vocab.clustered_linear import ClusteredLinear, NativeGather, Shortlist
from ..vocab.clusters import Clusters
from . import native
from .linear import Linear
from .native_layers import WEIGHT_TYPES, NativeLinear


class Scores(NamedTuple):
    """Log-probabilities before they are normalised.

    Attributes:
        values: (…, vocabulary) float32.
        normalisers: (…) to be subtracted; the log of the sum of exponentials of ``values``
            when they were made, before anything was masked.
    """

    values: Tensor
    normalisers: Tensor


class Screen(NamedTuple):
    """What finds the symbols with great scores, and what scores them exactly.

    Attributes:
        rounded: the projection with 8-bit weights and inputs.
        weight: (vocabulary, dim) float32.
        bias: (vocabulary,) or None.
        certainty: what bounds the difference between the two, with a state.
    """

    rounded: NativeLinear
    weight: Tensor
    bias: Optional[Tensor]
    certainty: native.ErrorBound


class OutputProjection:
    """The output projection of a fairseq decoder, shared with the embedding or not.

    Args:
        decoder: the decoder whose ``output_projection`` is used.
        dtype: type to run in; ``None`` is the decoder's own.
        first_head: what states go through before, on PyTorch's operators and in the
            decoder's own type.
        clusters: of these states (those behind the first head): each has scores for the active
            tokens of its cluster only, -inf elsewhere; None for a full projection.
    """

    def __init__(
        self,
        decoder: TransformerDecoderBase,
        dtype: Optional[torch.dtype] = None,
        first_head: Optional[Callable[[Tensor], Tensor]] = None,
        clusters: Optional[Clusters] = None,
    ) -> None:
        self._source = decoder.output_projection
        self._dtype = dtype
        self._first_head = first_head
        self._clusters = clusters
        self.refresh()

    def refresh(self) -> None:
        """Read the weights again; whoever owns the decoder knows when they changed."""
        weight, bias = self._source.weight, self._source.bias
        dtype = self._dtype or weight.dtype
        self._screen: Optional[Screen] = None
        self._shortlist: Optional[Shortlist] = None
        with torch.inference_mode(False), torch.no_grad():
            self._linear: Union[Linear, NativeLinear, ClusteredLinear]
            if self._clusters is None and _native(weight, dtype):
                self._linear = NativeLinear([weight], None if bias is None else [bias], dtype)
                return
            dtype = dtype if dtype.is_floating_point else weight.dtype
            weight = weight.detach().to(dtype)
            bias = None if bias is None else bias.detach().to(dtype)
            if self._clusters is not None:
                self._linear = ClusteredLinear(weight, bias, self._clusters)
            else:
                self._linear = Linear(weight, bias)

    @property
    def native(self) -> Optional[NativeLinear]:
        """The packed weights, where the kernels run this projection, and all of it."""
        linear = self._linear
        return linear if isinstance(linear, NativeLinear) and self._first_head is None else None

    @property
    def gather(self) -> Optional[int]:
        """The kernels' handle, where they run this projection, and a part of it by clusters."""
        linear = self._linear
        if self._first_head is not None or not isinstance(linear, ClusteredLinear):
            return None
        return linear.native

    @property
    def shortlist(self) -> Optional[int]:
        """The kernels' handle of a rounded copy of the clusters' symbols, made when first wanted.

        None without clusters, and where the kernels do not run this projection.
        """
        fits = self._clusters is not None and self._first_head is None
        if self._shortlist is None and fits and NativeGather.supports(self._source.weight):
            assert self._clusters is not None
            with torch.inference_mode(False), torch.no_grad():
                self._shortlist = Shortlist(*self.rows(), self._clusters)
        return None if self._shortlist is None else self._shortlist.handle

    @property
    def screen(self) -> "Screen":
        """A rounded copy, made when it is first wanted. Only where :attr:`native`."""
        if self._screen is None:
            with torch.inference_mode(False), torch.no_grad():
                weight, bias = self.rows()
                rounded = NativeLinear([weight], None if bias is None else [bias], torch.int8)
                self._screen = Screen(rounded, weight, bias, _certainty(weight))
        return self._screen

    def rows(self) -> Tuple[Tensor, Optional[Tensor]]:
        """(vocabulary, dim) weights and (vocabulary,) bias or None, in float32."""
        weight, bias = self._source.weight, self._source.bias
        return native.float_weight(weight), None if bias is None else native.float_weight(bias)

    def entering(self, hidden: Tensor) -> Tensor:
        """What is multiplied with the weights: (rows, dim) behind the first head, if there is."""
        if self._first_head is None:
            return hidden
        with torch.no_grad():
            return self._first_head(hidden.to(self._source.weight.dtype)).to(hidden.dtype)

    def scores(self, hidden: Tensor, temperature: float = 1.0, never: int = -1) -> Scores:
        """Scores and their normalisers.

        Args:
            hidden: (…, dim).
            temperature: divides the scores.
            never: a symbol that is ruled out (-inf) after normalisers are computed, or -1.
        """
        flat = self.entering(hidden.flatten(0, -2))
        if not isinstance(self._linear, Linear) and temperature == 1.0:
            values, normalisers = self._linear.scores(flat, never)
        else:
            values = self._linear(flat).float()
            if temperature != 1.0:
                values = values / temperature
            normalisers = torch.logsumexp(values, dim=-1)
            if never >= 0:
                values[..., never] = -math.inf
        shape = hidden.shape[:-1]
        return Scores(values.view(*shape, -1), normalisers.view(shape))


def _certainty(weight: Tensor) -> native.ErrorBound:
    """What 8-bit rounding and float32's own do to (vocabulary, dim) weights, at most."""
    step = weight.abs().amax(1, keepdim=True) / 127
    levels = torch.where(step > 0, 1 / step, 0)
    rounded = (weight * levels).round_().mul_(step)
    # A sum of n products is off by n roundings at most, each of half this; half is reserve.
    unit = torch.finfo(torch.float32).eps
    sums = (weight.size(1) + 8) * unit * weight.norm(dim=1).max()
    apart = (weight - rounded).norm(dim=1).max() + sums
    return native.ErrorBound(float(apart), float(rounded.norm(dim=1).max()))


def _native(weight: Tensor, dtype: torch.dtype) -> bool:
    fits = weight.device.type == "cpu" and dtype in WEIGHT_TYPES and weight.dtype != torch.float64
    return fits and native.library() is not None
