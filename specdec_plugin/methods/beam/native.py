"""Beam search as one native call: whatever sentence is done, a waiting one takes its place."""

import ctypes
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq.search import Search
from torch import Tensor

from ...decoding.constraints import Constraints
from ...decoding.lengths import Lengths
from ...decoding.native_constraints import describe
from ...decoding.native_verification import unsupported
from ...decoding.queue import Workers, longest_first, rows_at_once
from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from ...decoding.watch import Watch
from ...engine import CachedDecoder, native
from ...engine.free_memory import LARGE_BATCH
from ...engine.native.interface import Header, field, structure
from ...fairseq_compat.phrase_search import PhraseSearch
from ...fairseq_compat.strategies import are_packed, penalties_of
from .beams import Hypotheses
from .guard import BatchGuard
from .strategy_search import prefix_width

Header(__file__, "beam.h", "BeamSearch beam_search()")


@structure
class BeamCall(ctypes.Structure):
    """A beam search of a batch; rows are numbered ``sentence * beams + beam``."""

    stack = field("StackCall", "of the verifier's decoder: positions")
    source = field("SourceKvCall", "the sentences' sources, without a result")
    watch = field("WatchCall", "who is told what is done")
    others = field("const ModelCall*", "(other_models) of an ensemble, behind the first one")
    other_models = field("int")
    gather = field("Gather*", "scores a part of the symbols, instead of the projection; or null")
    sentences = field("int", "of the batch")
    beams = field("int", "B")
    temperature = field("float", "divides scores")
    rules = field("ConstraintsCall", "of the batch")
    ngram = field("int", "no n-gram of this size, 2 or more, may repeat; 0: any may")
    sibling_rate = field("float", "what a continuation pays for its rank in its beam, from 1")
    groups = field("int", "of beams, which choose in turn; 0: all beams choose at once")
    group_strength = field("float", "what a group pays for a symbol that an earlier one chose")
    phrases = field("const int64_t*", "(sentences, phrase_width) in each output, packed; or null")
    phrase_width = field("int")
    ordered = field("int", "whether phrases come in their order")
    doubtful = field("int64_t*", "(sentences) result: whether phrases leave a choice open; or null")
    order = field("const int64_t*", "(sentences) in which they are begun")
    workers = field("int")
    active = field("int", "sentences that a worker searches at once")
    tokens = field("int64_t*", "(max_len + 2, rows) what is fed in each step")
    parents = field("int64_t*", "(max_len + 2, rows) the row of the step before that it continues")
    totals = field("float*", "(max_len + 2, rows) log-probabilities before each step, cumulated")
    counts = field("int64_t*", "(sentences) finished hypotheses")
    found_tokens = field("int64_t*", "(sentences, B, max_len + 1) their tokens")
    found_scores = field("float*", "(sentences, B, max_len + 1) and log-probabilities")
    found_lengths = field("int64_t*", "(sentences, B)")
    found_totals = field("float*", "(sentences, B) sums of the log-probabilities")
    block = field("int", "the most steps that are drafted at once")
    drafts = field("int", "the most drafts; 0: none")
    passes = field("int64_t", "result: passes that verified drafted steps")
    drafted_steps = field("int64_t", "result: steps that they took")
    plain_steps = field("int64_t", "result: other steps of sentences that were left alone")
    drafted_seconds = field("double", "result: time of drafted steps, with their drafts")
    plain_seconds = field("double", "result: time of the others")
    scoring_seconds = field("double", "result: time from hidden states to candidates")


class StepDrafter(NamedTuple):
    """Who drafts steps of a search.

    Attributes:
        engine: the verifier's decoder with rounded weights.
        block_size: the most steps of a draft.
    """

    engine: CachedDecoder
    block_size: int


class NativeBeamSearch:
    """What :class:`.torch_search.TorchBeamSearch` does, for models that the kernels run.

    Args:
        verifier: scores the candidates; see :meth:`unsupported`.
        lengths: fairseq's length options.
        beams: B.
        drafter: searches ahead where one sentence is left and it pays; None: nobody does.
        workers: see :class:`.search.BeamSearch`.
    """

    def __init__(
        self,
        verifier: Verifier,
        lengths: Lengths,
        beams: int,
        drafter: Optional[StepDrafter],
        workers: int = 0,
    ) -> None:
        self._verifier, self._lengths, self._workers = verifier, lengths, workers
        self._beams, self._drafter = beams, drafter
        self._library = native.library()
        self._scratch: Optional[_Scratch] = None
        self.guard = BatchGuard()

    @staticmethod
    def unsupported(
        verifier: Verifier, batch: Batch, beams: int, strategy: Optional[Search] = None
    ) -> Optional[str]:
        """Why the kernels cannot search, in a few words; None if they can."""
        reason, beside = unsupported(verifier), verifier.language_model
        if reason is not None:
            return reason
        if beside is not None and not beside.by_kernels:
            return "a language model that the kernels do not run adds its scores"
        if batch.constraints.source_lengths is not None:
            return "--match-source-len is given"
        if penalties_of(strategy) is None and not (
            isinstance(strategy, PhraseSearch) and are_packed(batch.constraints.phrases)
        ):
            return "fairseq's strategy chooses the candidates"
        symbols = verifier.decoder.projection.symbols
        for engine in [verifier.decoder, *verifier.others().engines]:
            if not engine.by_kernels:
                return engine.on_torch or "the projection is not a plain one"
            if engine.projection.symbols != symbols:
                return "the language model has another number of symbols"
        return "the vocabulary is too small" if symbols <= 2 * beams else None

    def run(self, batch: Batch, strategy: Optional[Search]) -> Tuple[Hypotheses, List[int]]:
        """Search a batch.

        Args:
            batch: one that :meth:`unsupported` has nothing against.
            strategy: likewise.

        Returns:
            the finished hypotheses of each sentence, in the order in which they ended; and the
            sentences that have to be searched on PyTorch's operators, because it depends on how
            PyTorch sorts equal numbers which candidates of phrases continue. See
            ``PhraseBeams::choose`` in ``phrases.h``.

        Raises:
            PluginError: prefixes beside phrases have different lengths.
        """
        engine = self._verifier.decoder
        threads = torch.get_num_threads()
        most, rows = self._workers or threads, rows_at_once(engine, self._beams)
        workers = Workers.of(batch.size, most, rows, self._beams)
        tables = SearchTables(batch, self._beams, workers)
        call = tables.call
        call.temperature = self._verifier.temperature
        penalties = penalties_of(strategy)
        if penalties is not None:
            call.groups, call.group_strength, call.sibling_rate = penalties
        elif isinstance(strategy, PhraseSearch):
            tables.add_phrases(batch.constraints, strategy.representation == "ordered")
        models = [*engine.handles, None, None]
        call.gather = engine.projection.gather
        # Drafts do not restore what groups and phrases note of each step.
        drafted = self._drafter is not None and strategy is None and call.workers == 1
        call.drafts = self.guard.drafts() if drafted else 0
        if self._drafter is not None and call.drafts > 0:
            self._drafter.engine.repack()
            call.block = self._drafter.block_size
            models[2:] = self._drafter.engine.handles
        source_in, kept = self._verifier.describe_queue(batch, call.stack, call.source)
        others = self._verifier.describe_others(batch, call)
        self._scratch = self._scratch or _Scratch()
        begin = time.perf_counter()
        with Watch(batch.size, batch.shown) as watch:
            call.watch = watch.call
            self._library.beam_search_run(
                self._scratch.handle, *models, source_in, ctypes.byref(call), threads
            )
        del kept, others
        if batch.size >= LARGE_BATCH:
            self._scratch = None
        self._verifier.spent(time.perf_counter() - begin, call.scoring_seconds)
        if drafted:  # or else the time is that of one of several workers, with fewer threads
            self.guard.record(
                [call.plain_seconds, call.drafted_seconds], [call.plain_steps, call.drafted_steps]
            )
        self._verifier.statistics.count_passes(call.passes, call.drafted_steps)
        return tables.hypotheses(self._lengths), tables.doubtful()


class _Scratch:
    """What the kernels search in. It keeps the pages of each row's longest sentence."""

    def __init__(self) -> None:
        self.handle = native.own(self, "beam_search")


class SearchTables:
    """What a search of a batch writes: :class:`BeamCall` and its tensors.

    Args:
        batch: the batch.
        beams: B.
        workers: who searches.
    """

    def __init__(self, batch: Batch, beams: int, workers: Workers) -> None:
        rules, rows, steps = batch.constraints, batch.size * beams, batch.constraints.max_len + 2
        found = batch.size, beams, rules.max_len + 1
        self._tensors: Dict[str, Tensor] = {
            "order": longest_first(batch),
            "tokens": torch.empty(steps, rows, dtype=torch.long),
            "parents": torch.empty(steps, rows, dtype=torch.long),
            "totals": torch.empty(steps, rows, dtype=torch.float32),
            "counts": torch.zeros(batch.size, dtype=torch.long),
            "found_tokens": torch.empty(found, dtype=torch.long),
            "found_scores": torch.empty(found, dtype=torch.float32),
            "found_lengths": torch.empty(found[:2], dtype=torch.long),
            "found_totals": torch.empty(found[:2], dtype=torch.float32),
        }
        self._tensors["tokens"][0] = batch.bos
        self._tensors["totals"][0] = 0
        self.call = BeamCall(
            sentences=batch.size,
            beams=beams,
            ngram=rules.no_repeat_ngram_size,
            workers=workers.number,
            active=workers.rows,
            **{name: each.data_ptr() for name, each in self._tensors.items()},
        )
        self._prefix = describe(rules, self.call.rules)

    def add_phrases(self, rules: Constraints, ordered: bool) -> None:
        """Let outputs contain phrases.

        Args:
            rules: with the phrases.
            ordered: whether they come in their order.
        """
        assert rules.phrases is not None
        prefix_width(rules)
        phrases = self._tensors["phrases"] = rules.phrases.contiguous()
        doubtful = self._tensors["doubtful"] = torch.zeros(len(phrases), dtype=torch.long)
        self.call.phrases, self.call.phrase_width = phrases.data_ptr(), phrases.size(1)
        self.call.ordered, self.call.doubtful = ordered, doubtful.data_ptr()

    def doubtful(self) -> List[int]:
        """Sentences for which :meth:`NativeBeamSearch.run` cannot answer: none without phrases."""
        marks = self._tensors.get("doubtful")
        return [] if marks is None else marks.nonzero().flatten().tolist()

    def hypotheses(self, lengths: Lengths) -> List[List[Dict[str, Any]]]:
        """The finished hypotheses of each sentence, scored: copies, not views of the batch."""
        names = "found_tokens", "found_scores", "found_totals", "found_lengths"
        tokens, scores, totals, sizes = (self._tensors[name] for name in names)
        return [
            [
                {
                    "tokens": tokens[sentence, i, :size].clone(),
                    "positional_scores": scores[sentence, i, :size].clone(),
                    "score": lengths.score(totals[sentence, i], size),
                }
                for i, size in enumerate(sizes[sentence, :count].tolist())
            ]
            for sentence, count in enumerate(self._tensors["counts"].tolist())
        ]
