"""Drafts of the verifier itself on a GPU: greedy steps in half precision, in one CUDA graph."""

from typing import Any, Dict, Hashable, Optional, Sequence

import torch

from ...decoding.captured_iterations import CapturedIterations
from ...decoding.drafter import Drafter
from ...decoding.native_verification import Repeated
from ...decoding.operations import Work
from ...decoding.state import Batch, Draft, Outcome, Rows
from ...decoding.static_rows import StaticRows
from ...decoding.verifier import Verifier
from ...engine import CachedDecoder
from ...engine.graphs.state import StaticState
from ...engine.graphs.steps import greedy
from ...errors import PluginError
from ...vocab.clustered_projection import projection_by
from ...vocab.clusters import Clusters

#: k where none is given, and the shorter one that the loop may choose. One more is verified, and
#: sizes are rounded to powers of two.
BLOCK_SIZE, SHORT = 15, 7
#: Bytes of a decoder's weights from which reading half of them may pay. With fewer, a step takes
#: its launches' time in any type: an H200 reads 128 MiB in 30 us. There, self-drafts of the shipped
#: model (21 MB) were slower than greedy decoding.
_MANY_BYTES = 1 << 27


class CapturedSteps:
    """Greedy steps of a copy; a :class:`.CapturedDraft`.

    Its cache always holds all chosen tokens but the newest.

    Args:
        copy: the copy.
        state: its batch.
        tokens: k.
        pad: a symbol that is not drafted.

    Attributes:
        tokens: k.
        longest: see :class:`.CapturedDraft`.
    """

    def __init__(self, copy: CachedDecoder, state: StaticState, tokens: int, pad: int) -> None:
        self._copy, self._state, self._pad = copy, state, pad
        self.tokens = tokens
        self.longest: Optional[int] = None  # the verifier has no more positions

    def begin(self, rows: StaticRows) -> None:
        """The cache is that of the rows."""

    def prepare(self, longest: int) -> Hashable:
        """See :class:`.CapturedDraft`."""
        state, new = self._state, self.tokens + 1
        tensors, visible = self._room = state.with_room(longest + new - state.longest)
        table = self._copy.embedding.reach(longest, new)
        return tensors.serial, visible, table, self.tokens, self._pad

    def draft(self, rows: StaticRows) -> Draft:
        """See :class:`.CapturedDraft`."""
        (tensors, visible), lengths = self._room, rows.lengths
        tokens = greedy(
            self._copy, tensors, rows.newest(), lengths, self.tokens, visible, self._pad
        )
        return Draft(tokens, torch.full_like(lengths, self.tokens))


class CapturedDrafter(Drafter):
    """Greedy decoding by a copy of the verifier's decoder, for which the host does not wait.

    A draft of k tokens is one CUDA graph. In half precision the copy reads half as many bytes, and
    chooses nearly always what the verifier does.

    The copy has a cache of its own. It is fed the last token of a draft, too, so that the cache
    holds all accepted tokens whatever is accepted.

    Args:
        verifier: whose first model is copied.
        block_size: k, the most tokens of a draft.
        dtype: the type in which the copy computes.
        clusters: of the verifier's states, for the copy's projection; None for a full one.
        lengths: shorter drafts that the loop may choose, rising.

    Raises:
        PluginError: the type is not one that PyTorch computes in.
    """

    def __init__(
        self,
        verifier: Verifier,
        block_size: int = BLOCK_SIZE,
        dtype: torch.dtype = torch.float16,
        clusters: Optional[Clusters] = None,
        lengths: Sequence[int] = (),
    ) -> None:
        if not dtype.is_floating_point:
            raise PluginError(
                f"--drafter-dtype {str(dtype).removeprefix('torch.')}: on a GPU, give float16, "
                "bfloat16 or float32, or leave it out."
            )
        engine = verifier.decoder
        self.copy = CachedDecoder(
            engine.decoder, dtype, project=projection_by(clusters), backend=engine.backend
        )
        self.lengths, self.length = (*lengths, block_size), block_size
        weights = {id(each): each for each in engine.decoder.parameters()}.values()
        if sum(each.numel() * each.element_size() for each in weights) < _MANY_BYTES:
            self.promising = 0
        self._batch: Optional[Batch] = None
        self._state: Any = None
        self._cached: Dict[int, int] = {}  # tokens in the cache, by index in the batch
        self._proposed = False  # since the last outcome

    def start(self, batch: Batch) -> None:
        """Begin a batch; its source is projected when the first draft is wanted."""
        self._batch, self._state, self._cached = batch, None, {}

    def stop(self) -> None:
        """See :meth:`.Drafter.stop`."""
        self._batch = self._state = None

    def cost(self, work: Work, alone: bool = True) -> float:
        """What the verifier's decoder costs for them, and for the last token, which is fed too."""
        return work.decoding(work.drafted + sum(work.statistics.draft_lengths.values()))

    def propose(self, rows: Rows) -> Draft:
        """What the copy predicts, k tokens a row; the next draft overwrites it."""
        constraints = rows.constraints
        fed = rows.within_limit(self.length + 1)
        if fed == 1:
            return rows.empty_draft()
        read = [self._cached.get(index) for index in rows.order]
        if read != rows.host_lengths:
            self._catch_up(rows)
        state: StaticState = self._state
        state.keep(rows.lengths, rows.longest)
        self._proposed = True
        tokens = state.choose(self.copy, rows.last(), fed - 1, constraints.pad)
        return Draft(tokens, torch.full_like(rows.lengths, fed - 1))

    def iterate_captured(
        self, rows: Rows, iterations: CapturedIterations, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate_captured`."""
        if [self._cached.get(index) for index in rows.order] != rows.host_lengths:
            self._catch_up(rows)
        self._state.keep(rows.lengths, rows.longest)
        steps = CapturedSteps(self.copy, self._state, self.length, rows.constraints.pad)
        found = iterations.repeat(rows, most, steps)
        if found is not None:
            self._cached = dict(zip(rows.order, rows.host_lengths))
        return found

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """What was fed and accepted is in the cache."""
        if not self._proposed:
            return
        self._proposed = False
        # The newest token was not fed, and all that was accepted before it was.
        for index, length, drafted in zip(rows.order, rows.host_lengths, outcome.drafted):
            if drafted > 0:
                self._cached[index] = length

    def _catch_up(self, rows: Rows) -> None:
        """Feed all accepted tokens but the newest, which others may have chosen."""
        assert self._batch is not None
        if self._state is None:
            self.copy.refresh()
            capacity = min(rows.constraints.max_len + 1 + self.length, 256)
            self._state = self.copy.start(self._batch.encoder_outs[0], capacity)
        state = self._state
        if rows.longest > 0:
            state.keep(torch.zeros_like(rows.lengths), 0)
            self.copy.feed(state, rows.inputs[:, : rows.longest])
        self._cached = dict(zip(rows.order, rows.host_lengths))

    def select(self, rows: torch.Tensor) -> None:
        """See :meth:`.Drafter.select`."""
        if self._state is not None:
            self._state.select(rows)
        elif self._batch is not None:
            self._batch = self._batch.left(rows)
