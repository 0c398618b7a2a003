"""Reading drafts off a decoder's states with trained proposal heads."""

import copy
from typing import Any, Optional

import torch
from torch import Tensor

from ...engine import native as kernels
from ...engine.cached_decoder import CachedDecoder
from ...engine.decoder_state import DecoderState
from ...engine.linear import NativeLinear
from ...engine.output_projection import Scores
from ...engine.weights import NativeObject, Packed
from ...models.proposal_heads import ProposalHeads
from ...vocab.clustered_projection import projection_by
from ...vocab.clusters import Clusters


class Proposals(Packed):
    """Runs heads 2 to k of a :class:`ProposalHeads`, and the projection behind them.

    Head 1 is not run: it predicts the verifier's own next token.

    Args:
        heads: the trained heads.
        engine: of the model whose states they read and whose projection they share.
        block_size: k, at most what the heads were trained with.
        dtype: the type of weights, of heads and projection; ``None`` is the heads' own.
        clusters: of what enters the projection, or None.
    """

    def __init__(
        self,
        heads: ProposalHeads,
        engine: CachedDecoder,
        block_size: int,
        dtype: Optional[torch.dtype] = None,
        clusters: Optional[Clusters] = None,
    ) -> None:
        super().__init__(heads)
        self.heads, self._engine = heads, engine
        #: Heads from 2 on, one for each token of a draft.
        self.numbers = range(2, block_size + 1)
        #: The type that the weights are kept in: PyTorch has no products of integer types.
        self.weight_type = dtype or heads.inner.weight.dtype
        rounded = not self.weight_type.is_floating_point
        if rounded and self._unsupported(self.weight_type) is not None:
            self.weight_type = heads.inner.weight.dtype
        project = projection_by(clusters)
        self._projection = project(engine.decoder, self.weight_type, backend=engine.backend)
        self.repack()

    def _unsupported(self, dtype: torch.dtype) -> Optional[str]:
        """Why the kernels cannot run the heads with weights of this type; None if they can."""
        # The kernels read the source where the kernels have put it.
        source = self._engine.on_torch if self.heads.readers else None
        return source or self._engine.backend.unsupported(self.heads.inner.weight, dtype)

    @property
    def native(self) -> Optional[int]:
        """The kernels' handle, where they run it; None where PyTorch does."""
        return None if self._native is None else self._native.handle

    @property
    def projection(self) -> int:
        """The kernels' handle of the projection, where :attr:`native`."""
        linear = self._projection.native
        assert linear is not None and linear.handle is not None
        return linear.handle

    def repack(self) -> None:
        self._projection.repack()
        super().repack()

    def release(self) -> None:
        """Free the heads' weights where the kernels have packed them; ends :meth:`scores`."""
        if self._native is not None:
            self.weights.release(self.heads)

    def _pack(self) -> None:
        self._modules = self.heads
        self._native: Optional[NativeObject] = None
        if self._unsupported(self.weight_type) is None and self._projection.native is not None:
            self._native = self._packed_heads()
        elif self.weight_type != self.heads.inner.weight.dtype:
            self._modules = copy.deepcopy(self.heads).to(self.weight_type)

    def _packed_heads(self) -> NativeObject:
        heads, library = self.heads, kernels.library()
        packed = NativeObject("heads", heads.dim, int(heads.joint), heads.readers)
        inner = [heads.inner_of(head) for head in self.numbers]
        outer = [heads.outer_of(head) for head in self.numbers]
        queries = [heads.query_of(head) for head in self.numbers] if heads.readers else []
        for add, products in (
            (library.heads_query, queries),
            (library.heads_inner, inner[:1] if heads.joint else inner),
            (library.heads_outer, outer),
        ):
            for weight, bias in products:
                add(packed.handle, NativeLinear([weight], [bias], self.weight_type).give_away())
        return packed

    def describe_source(self, state: DecoderState, call: Any) -> None:
        """Point ``call``, a :class:`.HeadsCall`, to the source, if heads read it."""
        if not self.heads.readers:
            return
        last = state.source_kv[-2:]
        call.source_kv, call.source_length = last.data_ptr(), last.size(3)
        call.source_mask = kernels.pointer(state.source_mask)
        call.total_rows = last.size(1)
        call.row_index = kernels.pointer(state.cache.row_index)

    def scores(
        self, states: Tensor, suppressed_id: int, state: DecoderState, temperature: float = 1.0
    ) -> Scores:
        """What each head predicts, on PyTorch's operators.

        Args:
            states: (rows, dim) of the verifier.
            suppressed_id: a symbol that is ruled out.
            state: the verifier's, for heads that read the source.
            temperature: divides the scores.

        Returns:
            (rows, k - 1, vocabulary), and normalisers (rows, k - 1).
        """
        weight = self._modules.inner.weight
        with torch.no_grad():
            source = state.read_by_heads(weight.dtype) if self.heads.readers else None
            found = self._modules(states.to(weight.dtype).unsqueeze(1), self.numbers, source)
            return self._projection.scores(torch.cat(found, dim=1), temperature, suppressed_id)
