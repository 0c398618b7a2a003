"""From the decoder's hidden states to scores over the vocabulary."""

import math
from typing import Any, Callable, NamedTuple, Optional, Tuple, Union

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from ..fairseq_compat.held_in_half import in_half
from ..fairseq_compat.mapping import forget_pages, views_file
from . import native
from .backend import Backend, choose_backend
from .barred import Barred
from .fused.projection import FusedProjection, fused_projection
from .linear import Linear, NativeLinear, parameters_of
from .weights import Packed


class Scores(NamedTuple):
    """Log-probabilities before they are normalised.

    Attributes:
        values: (…, vocabulary) float32.
        normalisers: (…) to be subtracted; the log of the sum of exponentials of ``values``
            when they were made, before anything was masked.
    """

    values: Tensor
    normalisers: Tensor

    def of(self, tokens: Tensor) -> Tensor:
        """The log-probabilities of one token at each position, (…)."""
        return self.values.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - self.normalisers


class OutputProjection(Packed):
    """The output projection of a fairseq decoder, shared with the embedding or not.

    Args:
        decoder: the decoder whose ``output_projection`` is used.
        dtype: type to run in; ``None`` is the decoder's own.
        first_head: what states go through before, on PyTorch's operators and in the
            decoder's own type.
        backend: who computes; ``None`` chooses.
    """

    def __init__(
        self,
        decoder: TransformerDecoderBase,
        dtype: Optional[torch.dtype] = None,
        first_head: Optional[Callable[[Tensor], Tensor]] = None,
        backend: Optional[Backend] = None,
    ) -> None:
        super().__init__(decoder)
        self._source = decoder.output_projection
        self._dtype = dtype
        self._first_head = first_head
        self._backend = backend or choose_backend(self._source.weight.device)
        self.repack()

    def _pack(self) -> None:
        # A Linear, or anything with the methods of NativeLinear.
        self._linear: Any = self.packed(self._dtype or self._source.weight.dtype)
        self._fused: Optional[FusedProjection] = None
        if self._backend.static and isinstance(self._linear, Linear):
            self._fused = fused_projection(self._linear.weight, self._linear.bias)

    def packed(self, dtype: torch.dtype) -> Union[Linear, NativeLinear]:
        """The weights of this version, packed in a type.

        All projections of the same weights share them. They are rounded from packed weights where
        there are any, because those are in memory.
        """
        weights, biases = parameters_of(self._source)
        kind = type(self._backend)
        linear: Union[Linear, NativeLinear] = self._shared(
            (kind, dtype),
            lambda: self._backend.linear(
                weights, biases, dtype, self.weights.shared((kind, torch.float32))
            ),
        )
        if isinstance(linear, NativeLinear):
            self.forget_pages()
        return linear

    def forget_pages(self) -> None:
        """Take the model's weights out of memory if they are in a file, until they are read."""
        forget_pages(self._source)

    @property
    def native(self) -> Optional[NativeLinear]:
        """The packed weights, where the kernels run this projection, and all of it."""
        linear = self._linear
        return linear if isinstance(linear, NativeLinear) and self._first_head is None else None

    @property
    def symbols(self) -> int:
        """How many are scored."""
        return int(self._source.weight.size(0))

    @property
    def by_kernels(self) -> bool:
        """Whether the kernels run this projection, of all symbols or of a part."""
        return self.native is not None or self.gather is not None

    @property
    def gather(self) -> Optional[int]:
        """The kernels' handle, where they score a part of the symbols; here they score all."""
        return None

    @property
    def shortlist(self) -> Optional[int]:
        """The kernels' handle of a part of the symbols in 8 bits, to draft from; None for none."""
        return None

    def float_weights(self) -> Tuple[Tensor, Optional[Tensor]]:
        """(vocabulary, dim) weights and (vocabulary,) bias or None, in float32."""
        weight, bias = self._source.weight, self._source.bias
        return native.float_weight(weight), None if bias is None else native.float_weight(bias)

    def rows(self) -> Optional[Tensor]:
        """(vocabulary, dim) the model's own float32 weights.

        None if the projection computes with others, or if they are in a file more than in memory,
        or held in half.
        """
        weight = self._source.weight
        float32 = weight.dtype == torch.float32 and self._dtype in (None, torch.float32)
        if not float32 or not weight.is_contiguous() or weight.device.type != "cpu":
            return None
        # Reading a symbol of a mapped file brings its neighbours into memory, too.
        return None if views_file(weight) or in_half(weight) is not None else weight.detach()

    def entering(self, hidden: Tensor) -> Tensor:
        """What is multiplied with the weights: (rows, dim) behind the first head, if there is."""
        if self._first_head is None:
            return hidden
        with torch.no_grad():
            return self._first_head(hidden.to(self._source.weight.dtype)).to(hidden.dtype)

    def best(self, hidden: Tensor, suppressed_id: int) -> Tensor:
        """The most probable symbols, on whose scores nobody looks: (rows,).

        Args:
            hidden: (rows, dim).
            suppressed_id: a symbol that is ruled out.
        """
        if not isinstance(self._linear, Linear):
            return self.scores(hidden, 1.0, suppressed_id).values.argmax(1)
        if self._fused is not None and hidden.size(0) <= self._fused.most:
            return self._fused.best(self.entering(hidden), 1.0, suppressed_id)[0]
        values = self._linear(self.entering(hidden))
        values[:, suppressed_id] = -math.inf
        return values.argmax(1)

    def best_of(
        self,
        hidden: Tensor,
        temperature: float = 1.0,
        suppressed_id: int = -1,
        barred: Optional[Barred] = None,
    ) -> Tuple[Tensor, Tensor]:
        """The most probable symbols and their log-probabilities, (…) each.

        They are those of :meth:`scores`, and nobody looks at other symbols. Of equal ones it is
        the first.

        Args:
            hidden: (…, dim).
            temperature: divides the scores.
            suppressed_id: a symbol that is ruled out after normalisers are computed, or -1.
            barred: another one, at some steps of (…).
        """
        if not isinstance(self._linear, Linear):
            scores = self.scores(hidden, temperature, suppressed_id)
            if barred is not None:
                barred.bar(scores.values)
            tokens = scores.values.argmax(-1)
            return tokens, scores.of(tokens)
        flat = self.entering(hidden.flatten(0, -2))
        barred = None if barred is None else barred.flat()
        if self._fused is not None and flat.size(0) <= self._fused.most:
            tokens, best = self._fused.best(flat, temperature, suppressed_id, barred)
            return tokens.view(hidden.shape[:-1]), best.view(hidden.shape[:-1])
        # Two operators after the product, where :meth:`scores` and what follows need ten.
        values = self._linear(flat).float()
        values = (values if temperature == 1.0 else values / temperature).log_softmax(-1)
        if suppressed_id >= 0:
            values[:, suppressed_id] = -math.inf
        if barred is not None:
            barred.bar(values)
        best, tokens = values.max(-1)
        return tokens.view(hidden.shape[:-1]), best.view(hidden.shape[:-1])

    def scores(self, hidden: Tensor, temperature: float = 1.0, suppressed_id: int = -1) -> Scores:
        """Scores and their normalisers.

        Args:
            hidden: (…, dim).
            temperature: divides the scores.
            suppressed_id: a symbol that is ruled out (-inf) after normalisers are computed, or -1.
        """
        flat = self.entering(hidden.flatten(0, -2))
        if not isinstance(self._linear, Linear) and temperature == 1.0:
            values, normalisers = self._linear.scores(flat, suppressed_id)
        else:
            values = self._linear(flat).float()
            if temperature != 1.0:
                values = values / temperature
            normalisers = torch.logsumexp(values, dim=-1)
            if suppressed_id >= 0:
                values[..., suppressed_id] = -math.inf
        shape = hidden.shape[:-1]
        return Scores(values.view(*shape, -1), normalisers.view(shape))
