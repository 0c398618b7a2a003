"""An iteration's verification as one native step.

None of PyTorch's operators runs in it: at the sizes of translation models they would take as
long as the arithmetic. The kernels compute what :class:`.steps.VerifiedStep` computes.
"""

import ctypes
import time
from ctypes import c_int64
from typing import Any, Callable, FrozenSet, List, NamedTuple, Optional, Union

import torch
from torch import Tensor

from ..engine import Backend, CachedDecoder, native
from ..engine.native.interface import Header, field, structure
from ..engine.threads import kernel_threads
from ..errors import PluginError
from ..vocab.prefilter import Prefilter, PrefilterCall
from .acceptance import Rule
from .constraints import Constraints
from .native_constraints import describe
from .native_rows import describe_rows
from .preference import Preference
from .state import Draft, Outcome, Rows
from .verifier import Verifier
from .watch import PAUSE

Header(__file__, "verify.h", "Verification verification()")
Header(__file__, "iterations.h")

#: Weights of a projection that stay in a processor's cache, and the same where they take 16 bits.
_CACHED, _CACHED_HALF = 4_000_000, 20_000_000
#: Those of a projection for which a prefilter is too much work: it took 1.09 of the time of greedy
#: decoding with 64,000, 0.98 with 128,000 and 0.92 with 256,000 (2 cores of an Intel Xeon;
#: docs/results/2026-11-25-certified-by-size.json).
_SMALL = 100_000
#: The same where scores are read, of a projection whose weights take 16 bits (2 cores of an AMD
#: EPYC; docs/results/2026-11-30-certified-16-bits.json).
_SMALL_HALF = 7_000_000
#: Any number of positions.
_ANY = (1 << 31) - 1


@structure
class VerifyCall(ctypes.Structure):
    """Verification of a draft."""

    rows = field("RowsCall")
    stack = field("StackCall", "of the verifier's decoder: positions, cache and source")
    block = field("int", "the most tokens that a row may have drafted")
    draft = field("const int64_t*", "(count, block)")
    draft_lengths = field("const int64_t*", "(count)")
    temperature = field("float", "divides scores")
    rules = field("ConstraintsCall", "of the batch; no penalty with a prefilter")
    prefilter = field("PrefilterCall", "tells which symbols are scored exactly; or none")
    prefiltered = field("int", "positions at once up to which it is used")
    scored = field("int", "with a prefilter: 0 where nobody reads scores: none is normalised")
    exact_scores = field("int", "with a prefilter: 1 to normalise by all float32 scores")
    gather = field("Gather*", "scores a part of the symbols, exactly, instead of both; or null")
    preferred = field(
        "const int64_t*", "(count, block + 1) symbols that are preferred, -1: none; or null"
    )
    preference = field("float", "is added to their scores before the choice")
    beta = field("int", "a drafted token may stand if it is among the verifier's beta best")
    tolerance = field("float", "and its log-probability at most so far from the best")
    numbers = field("const float*", "(vocabulary) what symbols stand for, NaN if nothing; or null")
    epsilon = field("float", "with numbers, a token may stand at most so far from the best")
    min_block = field("int", "the first min_block - 1 drafted tokens stand")
    drafted = field("int64_t*", "(count) result: tokens that were drafted")
    kept = field("int64_t*", "(count) result: how many of them stand")
    added = field("int64_t*", "(count) result: tokens that are appended")
    lengths = field("int64_t*", "(count) result: tokens that are chosen now")
    ended = field("int64_t*", "(count) result: 1 where the last one ends the sentence")
    certified = field("int64_t", "result: positions that the prefilter scored")
    rescored = field("int64_t", "result: symbols scored exactly because they might be the best")
    certain = field("int64_t", "result: positions where only one symbol might be the best")
    others = field("const ModelCall*", "(other_models) of an ensemble, behind the first one")
    other_models = field("int")
    argmax = field("int64_t*", "(count, block + 1) result, -1 beyond a row's draft; or null")
    hidden = field(
        "float*", "(count, dim) result: states that predicted the newest tokens; or null"
    )
    sample = field("StateSampleCall*", "where states before the projection are recorded; or null")
    scoring_seconds = field("double", "result: time from hidden states to scores")
    foreign = field("int", "result: 1 where nothing was done, as a draft has unknown symbols")


@structure
class Iterations(ctypes.Structure):
    """Drafts that are verified one after another, until a row ends."""

    most = field("int", "how many, at least one")
    seconds = field("double", "after which none begins, so that Python sees signals such as Ctrl-C")
    done = field("int", "result")
    counts = field("int64_t*", "(3, most, rows) result: tokens drafted, kept and added")
    draft_seconds = field("double", "result: time that drafting took")
    scoring_seconds = field("double", "result: see VerifyCall; so are the next ones")
    certified = field("int64_t", "result")
    certain = field("int64_t", "result")
    rescored = field("int64_t", "result")


class Repeated(NamedTuple):
    """What became of several iterations.

    Attributes:
        iterations: how many.
        drafted: tokens that were drafted, of each iteration and each row that it found unfinished.
        kept: how many of them stand, likewise.
        added: tokens that were appended, likewise.
        outcome: of the last iteration.
    """

    iterations: int
    drafted: List[int]
    kept: List[int]
    added: List[int]
    outcome: Outcome


def prefiltered(weights: int, bits: int) -> int:
    """Positions at once up to which a prefilter pays, where float32 scores all symbols later.

    With more of them float32 uses a weight often enough once it is read from memory. Measured
    on 2 cores of an AMD EPYC (Zen 4) with 2, 8, 16 and 262 million weights.

    Args:
        weights: of the projection.
        bits: of each of them. With 16, it was measured on an EPYC with 15 and 30 million.
    """
    if bits == 16:
        return 4 if weights > _CACHED_HALF else 2
    return 6 if weights > _CACHED else 2


def unsupported(verifier: Verifier, backend: Optional[Backend] = None) -> Optional[str]:
    """Why the kernels cannot run all of a verifier's models, in a few words; None if they can.

    Args:
        verifier: the verifier.
        backend: who computes; None: whoever runs each model.
    """
    symbols = set()
    for engine in verifier.engines:
        if not isinstance(engine, CachedDecoder):
            return "the model's decoder is not a plain Transformer's"
        reason = (backend or engine.backend).unsupported()
        if reason is not None:
            return reason
        symbols.add(engine.projection.symbols)
    return "the models have different numbers of symbols" if len(symbols) > 1 else None


class NativeVerification:
    """Feed, score, judge and append.

    With β above 1 an 8-bit prefilter scores the vocabulary. float32 scores the drafted symbol and
    the best ones again, about sixty at each position. The others only count in the normaliser of
    the log-probabilities. With β of 1 a certified verifier does this, too. Then float32 scores all
    symbols again that might be the best. The normalisers follow from float32 scores of all symbols,
    for many positions at once (late_normalisers.h), unless approximate ones are asked for. Those
    take the likely symbols from float32, and correct the others by the mean of all (rescoring.h,
    mean_score.h).

    Args:
        verifier: one that :meth:`unsupported` has nothing against.
        rule: the acceptance rule.
        preference: which tokens are preferred, or None.
    """

    def __init__(
        self, verifier: Verifier, rule: Rule, preference: Optional[Preference] = None
    ) -> None:
        self._verifier, self._engine = verifier, verifier.decoder
        self._others = verifier.others()
        self._other_calls: Any = None
        self._library = native.library()
        self._scratch = native.own(self, "verification")
        self._rule = rule  # its tensors are read by the kernels
        self._call = VerifyCall(temperature=verifier.temperature)
        rule.describe(self._call)
        self._preference = preference
        self._preferred: Optional[Tensor] = None
        self._counts: List[Any] = []
        self._needs: FrozenSet[str] = frozenset()
        self._argmax: Optional[Tensor] = None
        self._hidden: Optional[Tensor] = None
        self._prefix: Optional[Tensor] = None
        self._prefilter: Optional[Prefilter] = None

    def start(self) -> None:
        """Begin a batch."""
        self._other_calls = None  # whose weights may have been packed again
        self._library.verification_begin(self._scratch)

    def free_memory(self) -> None:
        """Free the room for scores, between batches."""
        self._library.verification_free_memory(self._scratch)

    def inform(self, needs: FrozenSet[str]) -> None:
        """Tell this in each outcome from now on; see :class:`.drafter.Drafter`."""
        self._needs, self._argmax, self._hidden = needs, None, None
        self._call.argmax = self._call.hidden = None

    @staticmethod
    def unsupported(verifier: Verifier, backend: Optional[Backend] = None) -> Optional[str]:
        """Why the kernels cannot verify for this verifier, in a few words; None if they can.

        Its weights may still move to where they cannot; see :attr:`ready`.

        Args:
            verifier: the verifier.
            backend: who computes; None: whoever runs the verifier.
        """
        if verifier.language_model is not None:
            return "a language model adds its scores"
        return unsupported(verifier, backend)

    @classmethod
    def certifies(cls, verifier: Verifier) -> Optional[str]:
        """Why the kernels cannot be certain of float32's choice, in a few words; None: they can.

        Asked where the weights are now.
        """
        reason, engine = cls.unsupported(verifier), verifier.engines[0]
        if len(verifier.engines) != 1:
            reason = f"--path names {len(verifier.engines)} models"
        if reason is not None or not isinstance(engine, CachedDecoder):
            return reason
        if engine.weight_type != torch.float32:
            kept = str(engine.weight_type).removeprefix("torch.")
            return f"the weights are {kept} and not float32 (--fp16, --bf16, --verifier-dtype)"
        whole = engine.projection.native is not None
        return engine.on_torch or (None if whole else "its projection is not a plain one")

    @classmethod
    def gains(cls, verifier: Verifier, scored: bool) -> bool:
        """Whether a prefilter is faster for a verifier that :meth:`certifies` allows.

        Args:
            verifier: the verifier.
            scored: whether somebody reads scores, which takes normalisers.
        """
        engine = verifier.engines[0]
        whole = engine.projection.native if isinstance(engine, CachedDecoder) else None
        if whole is None:
            return False
        least = _SMALL_HALF if scored and whole.bits == 16 else _SMALL
        return whole.outputs * whole.inputs >= least

    @property
    def ready(self) -> bool:
        """Whether the weights are where the kernels can read them."""
        return self._engine.by_kernels and all(each.by_kernels for each in self._others.engines)

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append to each row the accepted tokens of its draft and the verifier's next token."""
        begin = time.perf_counter()
        call = self._call
        tokens, lengths = draft.tokens.long().contiguous(), draft.lengths.long().contiguous()
        if not tokens.size(0) == lengths.size(0) == rows.size:
            raise PluginError(
                f"a drafter proposed {tokens.size(0)} drafts of {lengths.size(0)} lengths for "
                f"{rows.size} rows. Let it propose one for each row."
            )
        draft = draft._replace(tokens=tokens, lengths=lengths)
        handles = self._prepare(rows, draft)
        self._describe_preference(rows, draft)
        self._library.verification_run(*handles, kernel_threads())
        if call.foreign:
            raise PluginError(
                "a drafter proposed a symbol number that the model does not have. Let it propose "
                "symbols of the target dictionary alone."
            )
        outcome = self._outcome(rows)
        self.count(call, time.perf_counter() - begin)
        return outcome

    def _prepare(self, rows: Rows, draft: Draft) -> List[Any]:
        """Describe what is verified.

        Args:
            rows: the rows.
            draft: of contiguous tensors, which are kept while they are verified.

        Returns:
            the arguments of the kernels: handles, and the address of a :class:`VerifyCall`.
        """
        call, tokens, lengths = self._call, draft.tokens, draft.lengths
        width = tokens.size(1)
        rows.make_room(width + 1)
        fed = rows.within_limit(width + 1)
        self._engine.describe(self._verifier.states[0], fed, call.stack)
        self._describe_others(fed)
        describe_rows(rows, call.rows)
        handles = self._describe_scores(rows.constraints, call)
        self._make_results(rows.size, width + 1)
        sample = self._verifier.sample
        call.sample = None if sample is None else ctypes.addressof(sample.call)
        call.block = width
        call.draft, call.draft_lengths = tokens.data_ptr(), lengths.data_ptr()
        return [self._scratch, *handles, ctypes.byref(call)]

    def _describe_others(self, fed: int) -> None:
        """Describe the models behind the first one, which are fed so many tokens a row."""
        if self._others.engines:
            calls = self._other_calls = self._other_calls or self._others.calls()
            self._others.describe(calls, self._verifier.states[1:], fed)
            self._call.others = ctypes.addressof(calls)
            self._call.other_models = len(calls)

    def _outcome(self, rows: Rows, iterations: int = 1) -> Outcome:
        """What the kernels did to the rows in their last iteration, of so many."""
        now, drafted, kept, added, ended = [count[: rows.size] for count in self._counts]
        rows.sync_lengths(now, iterations=iterations)
        return Outcome(drafted, kept, added, ended, self._argmax, self._hidden)

    def repeat(
        self, rows: Rows, draft: Draft, most: int, run: Callable[..., None]
    ) -> Optional[Repeated]:
        """Draft and verify several times, in one call of the kernels.

        Args:
            rows: the rows.
            draft: of contiguous tensors, into which the kernels draft.
            most: iterations.
            run: calls the kernels. It takes what verifies and an :class:`Iterations`, as arguments
                of the kernels. Only then do the rows have room for more tokens.

        Returns:
            what became of them; None where Python has to tell what is preferred.
        """
        if self._preference is not None:
            return None
        begin = time.perf_counter()
        arguments = self._prepare(rows, draft)
        room = rows.size * most
        counts = (c_int64 * (3 * room))()
        done = Iterations(most=most, seconds=PAUSE, counts=ctypes.addressof(counts))
        run(*arguments, ctypes.byref(done))
        outcome, filled = self._outcome(rows, done.done), rows.size * done.done
        drafted, kept, added = (counts[at : at + filled] for at in (0, room, 2 * room))
        self._verifier.statistics.seconds["drafter"] += done.draft_seconds
        self.count(done, time.perf_counter() - begin - done.draft_seconds)
        return Repeated(done.done, drafted, kept, added, outcome)

    def repeat_undrafted(self, rows: Rows, most: int) -> Optional[Repeated]:
        """:meth:`repeat` without drafts."""

        def run(*arguments: Any) -> None:
            self._library.verification_iterate(*arguments, kernel_threads())

        return self.repeat(rows, rows.empty_draft(), most, run)

    def describe(self, constraints: Constraints, call: VerifyCall) -> List[Any]:
        """Describe how rows without drafts are scored; see :mod:`.queue`.

        Args:
            constraints: of the batch.
            call: is described.

        Returns:
            the kernels' handles of the layers and of the projection, or None for the latter.
        """
        call.temperature, call.beta = self._verifier.temperature, 1
        return self._describe_scores(constraints, call)

    def count(self, call: Union[VerifyCall, Iterations], seconds: float) -> None:
        """Count the time of a call, and what it scored."""
        self._verifier.spent(seconds, call.scoring_seconds)
        if self._verifier.certified:
            self._verifier.statistics.certify(call.certified, call.certain, call.rescored)

    def _describe_preference(self, rows: Rows, draft: Draft) -> None:
        """Tell which symbols are preferred."""
        if self._preference is not None:
            self._preferred = self._preference.tokens(rows, draft)
            self._call.preferred = self._preferred.data_ptr()
            self._call.preference = self._preference.bias

    def _make_results(self, rows: int, width: int) -> None:
        """Make room for the counts, and for what the drafter needs besides them."""
        if "argmax" in self._needs:
            self._argmax = torch.empty(rows, width, dtype=torch.long)
            self._call.argmax = self._argmax.data_ptr()
        if not self._counts or len(self._counts[0]) < rows:
            self._counts = [(c_int64 * rows)() for _ in range(5)]
            call = self._call
            call.lengths, call.drafted, call.kept, call.added, call.ended = map(
                ctypes.addressof, self._counts
            )
        if "hidden" in self._needs and (self._hidden is None or self._hidden.size(0) != rows):
            self._hidden = torch.empty(
                rows, self._engine.embedding.table.size(1), dtype=torch.float32
            )
            self._call.hidden = self._hidden.data_ptr()

    def _describe_scores(self, constraints: Constraints, call: VerifyCall) -> List[Any]:
        """Describe what may be chosen and what scores it; the handles of layers and projection."""
        projection = self._engine.projection
        self._prefix = describe(constraints, call.rules)
        call.gather, call.prefilter, call.prefiltered = projection.gather, PrefilterCall(), 0
        call.scored = self._verifier.scored or call.beta > 1
        exact = self._verifier.scored and not self._verifier.approximate_scores
        call.exact_scores = call.beta == 1 and exact
        whole = projection.native
        roughly = (call.beta > 1 or self._verifier.certified) and not self._others.engines
        if whole is not None and roughly and constraints.unk_penalty == 0:
            few = call.beta == 1 and call.exact_scores
            weights = whole.outputs * whole.inputs
            call.prefiltered = prefiltered(weights, whole.bits) if few else _ANY
            prefilter = self._prefilter
            if prefilter is None or prefilter.version != projection.version:
                prefilter = self._prefilter = Prefilter(projection)
            call.prefilter = prefilter.describe()
        return self._engine.handles
