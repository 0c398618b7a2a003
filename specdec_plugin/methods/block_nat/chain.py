"""Choosing the tokens of drafted blocks one after another, with a trained chain head."""

import ctypes
import functools
from typing import Any, Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ...decoding.drafter import confident
from ...decoding.native_rows import describe_sampling
from ...decoding.state import Rows
from ...engine import CachedDecoder
from ...engine import native as kernels
from ...engine.graphs.rows_function import RowsFunction
from ...engine.linear import NativeLinear
from ...engine.native.interface import Header, constants, field, structure
from ...engine.output_projection import Scores
from ...engine.threads import kernel_threads
from ...engine.weights import NativeObject, Packed
from ...models.chain_head import ChainHead
from .chain_cuda import ROWS, CudaChain, kernels_of

#: Applied to the scores of a position, (rows, 1, vocabulary), before its tokens are chosen.
Mask = Callable[[Scores, int], Any]

#: Positions whose candidates the kernels find at once: few drafts are longer.
CHAIN_POSITIONS = 8
#: Numbers that a table of what each token brings into the layer may have.
_TABLE = 1 << 25
constants(CHAIN_POSITIONS=CHAIN_POSITIONS)
Header(
    __file__,
    "chain.h",
    "Chain chain(Linear* from_state, Linear* from_before, Linear* out, "
    "const Linear* projection, const float* weight, const float* bias, "
    "const float* embedding, int token_dim, float scale)",
)


@structure
class ChainCall(ctypes.Structure):
    """The tokens of drafted blocks, chosen one after another."""

    rows = field("int")
    block = field("int", "tokens of a draft")
    hidden = field("const float*", "(rows, block, dim) h")
    last = field("const int64_t*", "(rows) the token before the block")
    suppressed_id = field("int", "a symbol that is not drafted, or -1")
    confidence = field("float", "a row stops before its tokens are all right with less probability")
    sampling = field("Sampling", "what tokens are drawn with")
    tokens = field("int64_t*", "(rows, block) result, undefined beyond the lengths")
    lengths = field("int64_t*", "(rows) result: tokens before the stop")


class Chain(Packed):
    """Runs a :class:`ChainHead` and the projection behind it.

    Args:
        head: the trained layer, a part of the engine's decoder.
        engine: runs the decoder; the head reads its token vectors and uses its projection.

    Attributes:
        on_cuda: the kernels of Triton, where they choose for few rows; else None.
    """

    def __init__(self, head: ChainHead, engine: CachedDecoder) -> None:
        super().__init__(engine.decoder)
        self._head, self._engine = head, engine
        self.repack()

    @property
    def native(self) -> Optional[int]:
        """The kernels' handle, where they run it; None where PyTorch does."""
        return None if self._chain is None else self._chain.handle

    def _pack(self) -> None:
        head, engine, dtype = self._head, self._engine, self._engine.weight_type
        self._chain: Optional[NativeObject] = None
        self._captured = RowsFunction(engine.device) if engine.backend.static else None
        self._by_token: Optional[Tensor] = None
        scale, embedding = engine.embedding.scale, engine.embedding.table
        if engine.backend.static and embedding.size(0) * head.out.in_features <= _TABLE:
            vectors = (scale * embedding).to(head.from_token.weight.dtype)
            self._by_token = head.from_token(vectors).detach()
        self.on_cuda: Optional[CudaChain] = kernels_of(head, engine, self._by_token)
        projection = engine.projection.native
        if projection is None or embedding.dtype != torch.float32:
            return
        before = torch.cat([head.from_token.weight, head.from_chain.weight], dim=1)
        weight, bias = engine.projection.float_weights()
        embedding = kernels.float_weight(embedding)
        maps = [
            NativeLinear([head.from_state.weight], [head.from_state.bias], dtype),
            NativeLinear([before], None, dtype),
            NativeLinear([head.out.weight], [head.out.bias], dtype),
        ]
        self._chain = NativeObject(
            "chain",
            *(each.give_away() for each in maps),
            projection.handle,
            weight.data_ptr(),
            kernels.pointer(bias),
            embedding.data_ptr(),
            embedding.size(1),
            scale,
            reads=(projection, weight, bias, embedding),
        )

    def release(self) -> None:
        """Free the head's weights where the kernels have packed them; ends :meth:`choose`."""
        if self._chain is not None:
            self.weights.release(self._head)

    def draft(
        self,
        states: Tensor,
        last: Tensor,
        floor: float,
        suppressed_id: int = -1,
        rows: Optional[Rows] = None,
    ) -> Tuple[Tensor, Tensor]:
        """The tokens of a block and how many of them to propose.

        Args:
            states: (rows, k, dim) of the block's positions.
            last: (rows,) the token before the block.
            floor: a row stops where the probability that all its tokens are right
                would fall below this; 0: no row stops.
            suppressed_id: a symbol that is not drafted, or -1.
            rows: what draws the tokens; None: the most probable ones are chosen.

        Returns:
            (rows, k) tokens, undefined beyond the lengths, and (rows,) lengths.
        """
        if self.native is None:
            tokens, scores = self._chosen(states, last, suppressed_id, rows)
            return tokens, confident(scores, floor)
        states, last = states.contiguous(), last.contiguous()
        count, block, _ = states.shape
        tokens = torch.zeros(count, block, dtype=torch.long)
        lengths = torch.empty(count, dtype=torch.long)
        links = ChainCall(
            rows=count,
            block=block,
            hidden=states.data_ptr(),
            last=last.data_ptr(),
            suppressed_id=suppressed_id,
            confidence=floor,
            tokens=tokens.data_ptr(),
            lengths=lengths.data_ptr(),
        )
        if rows is not None:
            describe_sampling(rows, links.sampling)
        kernels.library().chain_run(self.native, ctypes.byref(links), kernel_threads())
        return tokens, lengths

    def _chosen(
        self, states: Tensor, last: Tensor, suppressed_id: int, rows: Optional[Rows]
    ) -> Sequence[Tensor]:
        """:meth:`choose`, without the host between the positions where nothing is drawn."""
        drawn = rows is not None and rows.sampler is not None
        if self._captured is None or drawn:
            return self.choose(states, last, suppressed_id, rows=rows)
        choose = functools.partial(self.choose, suppressed_id=suppressed_id)
        return self._captured(suppressed_id, choose, states, last)

    def best(self, states: Tensor, last: Tensor) -> Tensor:
        """:meth:`choose` without scores or rules, by as few operators as possible.

        Padding is not chosen.

        Args:
            states: (rows, k, dim).
            last: (rows,).

        Returns:
            (rows, k) tokens.
        """
        if self.on_cuda is not None and states.size(0) <= ROWS:
            return self.on_cuda.best(states, last)
        head, engine = self._head, self._engine
        states = states.to(head.out.weight.dtype)
        inputs, ends = head.from_state(states), states + head.out.bias
        tokens, chain = [last], None
        for position in range(states.size(1)):
            inner = inputs[:, position] + self._entering(tokens[-1])
            if chain is not None:
                inner = torch.addmm(inner, chain, head.from_chain.weight.t())
            chain = inner.relu_()
            hidden = torch.addmm(ends[:, position], chain, head.out.weight.t())
            hidden = hidden.to(engine.dtype)
            tokens.append(engine.projection.best(hidden, engine.decoder.padding_idx))
        return torch.stack(tokens[1:], dim=1)

    def _entering(self, tokens: Tensor) -> Tensor:
        """(rows,) tokens, as the head's layer takes them: (rows, units)."""
        if self._by_token is not None:
            return torch.embedding(self._by_token, tokens)
        vectors = self._engine.embedding.scaled(tokens)
        return self._head.from_token(vectors.to(self._head.from_token.weight.dtype))

    def choose(
        self,
        states: Tensor,
        last: Tensor,
        suppressed_id: int = -1,
        rules: Optional[Mask] = None,
        rows: Optional[Rows] = None,
    ) -> Tuple[Tensor, Tensor]:
        """The whole block on PyTorch's operators, with log-probabilities.

        Args:
            states: (rows, k, dim).
            last: (rows,).
            suppressed_id: a symbol that is not chosen, or -1.
            rules: called with the scores of each position in the block, and the position.
            rows: as for :meth:`draft`.

        Returns:
            (rows, k) tokens and (rows, k) their log-probabilities.
        """
        head, engine, tokens, scores = self._head, self._engine, [], []
        weight_type = head.out.weight.dtype
        states = states.to(weight_type)
        inputs = head.from_state(states)
        chain: Optional[Tensor] = None
        for position in range(states.size(1)):
            before = engine.embedding.scaled(last).to(weight_type)
            inner = inputs[:, position] + head.from_token(before)
            if chain is not None:
                inner = inner + head.from_chain(chain)
            chain = torch.relu(inner)
            hidden = (states[:, position] + head.out(chain)).to(engine.dtype)
            temperature = 1.0 if rows is None else rows.temperature
            scored = engine.projection.scores(hidden.unsqueeze(1), temperature, suppressed_id)
            if rules is not None:
                rules(scored, position)
            chosen = scored.values.argmax(2) if rows is None else rows.best(scored, position)
            last = chosen.squeeze(1)
            tokens.append(last)
            scores.append(scored.of(chosen).squeeze(1))
        return torch.stack(tokens, dim=1), torch.stack(scores, dim=1)
