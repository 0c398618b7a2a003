"""Drafts of a block-NAT model on a GPU, without the host."""

from typing import Any, Hashable, Optional

from torch import Tensor

from ...decoding.drafter import confident
from ...decoding.state import Draft, Rows
from ...decoding.static_rows import StaticRows
from ...engine.graphs.layers import run_new
from ...engine.graphs.state import StaticState


class CapturedBlock:
    """Drafts a block for each row; a :class:`.CapturedDraft`.

    Each row is fed k + 1 new tokens, of which an iteration makes as many at most, and k masks.

    Args:
        drafter: a :class:`.drafter.NATDrafter`.
        state: its batch.
        pad: a symbol that is not drafted.

    Attributes:
        tokens: k.
        longest: see :class:`.CapturedDraft`.
    """

    def __init__(self, drafter: Any, state: StaticState, pad: int) -> None:
        self._drafter, self._state, self._pad = drafter, state, pad
        self._rows = 0
        self.tokens: int = drafter.length
        # A block begins one position behind the tokens before it.
        self.longest: Optional[int] = drafter.positions and drafter.positions - 2

    @staticmethod
    def supports(drafter: Any, rows: Rows) -> bool:
        """Whether new tokens are all that is fed, and nothing is drawn."""
        fits = drafter.positions is None or drafter.length < drafter.positions
        return fits and drafter.causal and not drafter.with_scores and rows.sampler is None

    def begin(self, rows: StaticRows) -> None:
        """See :class:`.CapturedDraft`."""
        held = self._state.lengths
        self._rows = rows.held.size(0)
        if not rows.fresh:
            rows.held[: held.size(0)].copy_(held)

    def prepare(self, longest: int) -> Hashable:
        """See :class:`.CapturedDraft`."""
        state, k = self._state, self.tokens
        tensors, visible = state.with_room(longest + 2 * k + 2 - state.longest)
        engine = self._drafter.engine
        visible = engine.slots_seen(self._rows * (2 * k + 1), tensors, visible)
        table = engine.embedding.reach(longest + 1, k + 1)
        self._room = tensors, visible
        return tensors.serial, visible, table, k, self._drafter.confidence

    def draft(self, rows: StaticRows) -> Draft:
        """See :class:`.CapturedDraft`."""
        drafter, (tensors, visible) = self._drafter, self._room
        block = drafter.arranged(rows.inputs, rows.lengths, rows.held, self.tokens + 1)
        states = run_new(
            drafter.engine, tensors, block.embedded, rows.held, visible, block.limits,
            wanted=block.where,
        )  # fmt: skip
        last = rows.newest().squeeze(1) if block.newest is None else block.newest
        return self._chosen(states, last, rows)

    def _chosen(self, states: Tensor, last: Tensor, rows: StaticRows) -> Draft:
        """The drafts of (rows, k, dim) states behind the (rows,) newest tokens."""
        drafter = self._drafter
        if drafter.chain is not None and drafter.confidence <= 0:
            tokens = drafter.chain.best(states, last)
            return Draft(tokens, rows.all(self.tokens))
        if drafter.chain is not None:
            tokens, scores = drafter.chain.choose(states, last, self._pad)
        else:
            tokens, scores = drafter.engine.projection.best_of(states, 1.0, self._pad)
        return Draft(tokens, confident(scores, drafter.confidence))
