"""An iteration's work in one call of the kernels each: drafting a block, and verifying it.

Between two calls nothing of PyTorch runs: at the sizes of translation models its
operators would take as long as the arithmetic. What the kernels do is what
:class:`.loop.VerifiedStep` and :class:`.drafters.nat.NATDrafter` do otherwise.
"""

import ctypes
import time
import weakref
from ctypes import c_int64
from typing import Any, List, Optional

import torch
from torch import Tensor

from ..engine import CachedDecoder, DecoderState, native
from ..engine.chain import Chain
from ..engine.native import pointer
from ..engine.proposals import Proposals
from .acceptance import Rule
from .copies import NEAR, start_matches
from .guesses import Record, Window
from .state import Draft, Outcome, Rows
from .verifier import Verifier


class OneCallVerification:
    """Feed, score, judge and append, for a single verifier without forced prefixes.

    With β above 1 not all of the vocabulary is scored exactly: 8-bit scores say which
    symbols are in question, about sixty a place, and those are scored in float32, as is what
    was drafted. The rest only counts in the normaliser of the log-probabilities. With β of 1 this
    is done for a certified verifier, with all symbols that might be the best in question.

    Args:
        verifier: one for which :meth:`supports` is true.
        rule: the acceptance rule.
    """

    def __init__(self, verifier: Verifier, rule: Rule) -> None:
        engine = verifier.engines[0]
        assert isinstance(engine, CachedDecoder)
        self._verifier, self._engine = verifier, engine
        self._library = native.library()
        self._scratch: int = self._library.verification_new()
        weakref.finalize(self, self._library.verification_free, self._scratch)
        self._rule = rule  # its tensors are read by the kernels
        self._round = native.Round()
        rule.describe(self._round)
        self._facts: List[Any] = []

    @staticmethod
    def supports(verifier: Verifier) -> bool:
        """Whether the kernels give what this verifier gives, wherever its weights are by then."""
        if len(verifier.engines) != 1 or verifier.temperature != 1.0:
            return False
        return isinstance(verifier.engines[0], CachedDecoder) and native.library() is not None

    @classmethod
    def certifies(cls, verifier: Verifier) -> bool:
        """Whether the kernels can be certain of what float32 says, where the weights are now."""
        if not cls.supports(verifier):
            return False
        engine = verifier.engines[0]
        assert isinstance(engine, CachedDecoder)
        kernels = engine.takes_tokens and engine.projection.native is not None
        return kernels and engine.weight_type == torch.float32

    def fits(self, rows: Rows) -> bool:
        """Whether no rule is left that the kernels do not know."""
        limits = rows.limits
        prefix = 0 if limits.prefix is None else limits.prefix.size(1)
        if limits.unk_penalty != 0 or rows.shortest < prefix:
            return False
        projection = self._engine.projection
        kernels = projection.native is not None or projection.gather is not None
        return self._engine.takes_tokens and kernels

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append to each row what stands of its draft, and the verifier's next token."""
        begin = time.perf_counter()
        call, projection = self._round, self._engine.projection
        tokens, lengths = draft.tokens.contiguous(), draft.lengths.contiguous()
        width = tokens.size(1)
        rows.make_room(width + 1)
        self._engine.describe(self._verifier.states[0], width + 1, call.call)
        describe(rows, call.rows)
        self._describe_limits(rows)
        call.gather = projection.gather
        if projection.native is not None and (call.beta > 1 or self._verifier.certified):
            screen = projection.screen
            call.screen, call.symbols = screen.rounded.handle, pointer(screen.weight)
            call.bias, call.certainty = pointer(screen.bias), screen.certainty
        call.block = width
        call.draft, call.draft_lengths = tokens.data_ptr(), lengths.data_ptr()
        self._library.verification_run(
            self._scratch,
            self._engine.stack,
            None if projection.native is None else projection.native.handle,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        now, *outcome = [fact[: rows.size] for fact in self._facts]
        rows.know(now)
        self._verifier.spent(time.perf_counter() - begin, call.scoring)
        if self._verifier.certified:
            places = rows.size * (1 + max(outcome[0]))
            self._verifier.trace.certify(places, call.sure, call.asked)
        return Outcome(*outcome)

    def _describe_limits(self, rows: Rows) -> None:
        call, limits = self._round, rows.limits
        call.never, call.eos = limits.pad, limits.eos
        call.min_len, call.max_len = limits.min_len, limits.max_len
        if not self._facts or len(self._facts[0]) < rows.size:
            self._facts = [(c_int64 * rows.size)() for _ in range(5)]
            call.lengths, call.drafted, call.kept, call.added, call.ended = map(
                ctypes.addressof, self._facts
            )


class _Buffer:
    """A draft that the kernels write, again and again."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.draft = Draft(torch.empty(0, block_size, dtype=torch.long), torch.empty(0))

    def fit(self, rows: int, target: Any) -> None:
        """Make it hold ``rows`` rows, and point ``target``, a kernels' structure, to it."""
        if self.draft.tokens.size(0) != rows:
            tokens = torch.zeros(rows, self._block_size, dtype=torch.long)
            self.draft = Draft(tokens, torch.zeros(rows, dtype=torch.long))
        target.draft = self.draft.tokens.data_ptr()
        target.draft_lengths = self.draft.lengths.data_ptr()


class OneCallProposal:
    """Draft a block with a causal prefix and a chain head.

    Args:
        engine: the drafter's decoder, which takes tokens.
        chain: run by the kernels.
        block_size: k.
        confidence: see :class:`.drafters.nat.NATDrafter`.
    """

    def __init__(
        self, engine: CachedDecoder, chain: Chain, block_size: int, confidence: float
    ) -> None:
        self._engine, self._chain = engine, chain
        self._library = native.library()
        self._scratch: int = self._library.proposer_new()
        weakref.finalize(self, self._library.proposer_free, self._scratch)
        self._proposal = native.Proposal(block=block_size, floor=confidence)
        self._buffer = _Buffer(block_size)

    def propose(self, rows: Rows, state: DecoderState, new: int) -> Draft:
        """The draft, which the next one overwrites; all tokens of ``rows`` are fed afterwards.

        Args:
            rows: the rows.
            state: the drafter's; its lengths are changed in place.
            new: the greatest number of tokens that a row has not been fed yet.
        """
        call = self._proposal
        self._buffer.fit(rows.size, call)
        self._engine.describe(state, new + call.block, call.call)
        describe(rows, call.rows)
        call.never = rows.limits.pad
        call.fed = state.lengths.data_ptr()
        self._library.proposer_run(
            self._scratch,
            self._engine.stack,
            self._chain.native,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft


class OneCallForesight:
    """Read a draft off the verifier's last states with proposal heads.

    Args:
        proposals: run by the kernels.
        eos: ends a draft.
        confidence: see :class:`.drafters.blockwise.BlockwiseDrafter`.
        least: likewise.
    """

    def __init__(self, proposals: Proposals, eos: int, confidence: float, least: int) -> None:
        self._proposals = proposals
        self._library = native.library()
        block = len(proposals.numbers)
        self._foresight = native.Foresight(block=block, floor=confidence, least=least, eos=eos)
        self._buffer = _Buffer(block)

    def propose(self, rows: Rows, state: DecoderState) -> Draft:
        """Up to k - 1 tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows, with the verifier's last states.
            state: the verifier's.
        """
        call = self._foresight
        assert rows.states is not None
        self._buffer.fit(rows.size, call)
        call.rows, call.never = rows.size, rows.limits.pad
        call.states = rows.states.data_ptr()
        self._proposals.describe_source(state, call)
        self._library.heads_run(
            self._proposals.native,
            self._proposals.projection,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft


class OneCallMonologue:
    """Draft token by token with a copy of the verifier, in the verifier's own cache.

    Args:
        copy: the verifier's decoder with other weights, which takes tokens; its projection is
            the kernels', in full or by clusters.
        block_size: k, the most tokens of a draft.
    """

    def __init__(self, copy: CachedDecoder, block_size: int) -> None:
        self._copy = copy
        self._library = native.library()
        self._scratch: int = self._library.speaker_new()
        weakref.finalize(self, self._library.speaker_free, self._scratch)
        self._monologue = native.Monologue(block=block_size)
        self._buffer = _Buffer(block_size)

    def propose(self, rows: Rows, state: DecoderState) -> Draft:
        """Up to k tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows.
            state: the verifier's, where all tokens of ``rows`` but the newest are cached.
        """
        call, limits, projection = self._monologue, rows.limits, self._copy.projection
        call.shortlist = projection.shortlist
        self._buffer.fit(rows.size, call)
        self._copy.describe(state, call.block, call.call)
        describe(rows, call.rows)
        call.never, call.eos = limits.pad, limits.eos
        call.min_len, call.max_len = limits.min_len, limits.max_len
        self._library.speaker_run(
            self._scratch,
            self._copy.stack,
            None if projection.native is None else projection.native.handle,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft


class OneCallGuesses:
    """What :class:`.guesses.Guesses` does, a call of the kernels each; its arguments."""

    def __init__(
        self, window: Window, record: Record, eos: int, source: Optional[Tensor], rows: int
    ) -> None:
        self._library = native.library()
        self._scratch: int = self._library.guesser_new()
        weakref.finalize(self, self._library.guesser_free, self._scratch)
        self._record, self._source = record, source
        self._known = torch.zeros(rows, dtype=torch.long)
        self._before = torch.zeros(rows, dtype=torch.long)
        self._origins = torch.empty(0, dtype=torch.long)
        self._buffer = _Buffer(window.block)
        call = native.Guessing(block=window.block, size=window.size, floor=window.floor, eos=eos)
        call.tries, call.hits = record.tries.data_ptr(), record.hits.data_ptr()
        call.pool = pointer(record.pool)
        call.entries = 0 if record.pool is None else record.pool.size(1)
        self._call = call
        self._fit(rows)

    def _fit(self, rows: int) -> None:
        """Room for what is noted of so many rows."""
        call, block = self._call, self._call.block
        self._buffer.fit(rows, call)
        if self._origins.size(0) != rows:
            self._origins = torch.empty(rows, block, dtype=torch.long)
        call.before, call.origins = self._before.data_ptr(), self._origins.data_ptr()
        call.known, call.source = self._known.data_ptr(), pointer(self._source)
        call.source_length = 0 if self._source is None else self._source.size(1)

    def guess(self, rows: Rows, until: int) -> Draft:
        """A draft, which the next one overwrites; see :meth:`.guesses.Guesses.guess`."""
        describe(rows, self._call.rows)
        self._call.until = until
        self._library.guesser_guess(self._scratch, ctypes.byref(self._call))
        return self._buffer.draft

    def learn(self, rows: Rows) -> None:
        """See :meth:`.guesses.Guesses.learn`."""
        describe(rows, self._call.rows)
        self._library.guesser_learn(self._scratch, ctypes.byref(self._call))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._known, self._before = self._known[rows], self._before[rows]
        if self._source is not None:
            self._source = self._source[rows]
        self._fit(len(rows))


class OneCallCopies:
    """What :class:`.copies.Copies` does, in one call of the kernels; its arguments."""

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        self._library = native.library()
        self._source, self._matches = source.contiguous(), start_matches(source, starts)
        self._seen, self._places = torch.zeros_like(starts), starts.clone()
        block = min(block_size, source.size(1))
        self._buffer = _Buffer(block)
        self._call = native.Copying(block=block, longest=longest, near=NEAR, eos=eos)
        self._describe()

    def _describe(self) -> None:
        call = self._call
        self._buffer.fit(self._source.size(0), call)
        call.source, call.source_length = self._source.data_ptr(), self._source.size(1)
        call.matches, call.seen = self._matches.data_ptr(), self._seen.data_ptr()
        call.places = self._places.data_ptr()

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end; the next draft overwrites it."""
        describe(rows, self._call.rows)
        self._library.copies_run(ctypes.byref(self._call))
        return self._buffer.draft

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._seen, self._places = self._seen[rows], self._places[rows]
        self._describe()


def describe(rows: Rows, target: Any) -> None:
    """Point ``target``, a :class:`native.Rows`, to the tensors of ``rows``."""
    inputs: Tensor = rows.inputs
    target.count, target.room = inputs.shape
    target.tokens = inputs.data_ptr()
    target.scores = rows.scores.data_ptr()
    target.lengths = rows.lengths.data_ptr()
    target.states = pointer(rows.states)
    target.iterate = pointer(rows.iterate)
    target.iterate_room = 0 if rows.iterate is None else rows.iterate.size(1)
