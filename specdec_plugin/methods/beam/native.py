"""Beam search as a native step: one call searches as far as the cache has room."""

import ctypes
import time
from typing import Any, Dict, List, Optional

import torch

from ...decoding.lengths import Lengths
from ...decoding.native_verification import NativeVerification
from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from ...engine import CachedDecoder, native
from ...engine.native.interface import Header, field, structure

#: Steps for which the cache gets room at once.
_ROOM = 64

Header(
    __file__,
    "beam.h",
    [
        "void beam_search_run(BeamSearch* search, Stack* stack, const Linear* projection, "
        "BeamCall* call, int threads)"
    ],
    ["BeamSearch beam_search()"],
)


@structure
class BeamCall(ctypes.Structure):
    """A beam search of a batch; rows are numbered ``sentence * beams + beam``."""

    stack = field("StackCall", "of the verifier's decoder: positions, cache and source")
    sentences = field("int", "of the batch")
    beams = field("int", "B")
    suppressed_id = field("int", "a symbol that is not chosen")
    unk = field("int", "a symbol whose log-probability is lowered")
    unk_penalty = field("float", "by so much")
    eos = field("int64_t", "ends a sentence")
    min_len = field("int64_t", "tokens before which no end may come, but in a prefix")
    max_len = field("int64_t", "tokens after which an end must come")
    prefix = field("const int64_t*", "(sentences, prefix_width) tokens to begin with; or null")
    prefix_width = field("int")
    ngram = field("int", "no n-gram of this size may repeat; less than 2: any may")
    step = field("int64_t", "the next step; afterwards that where the search stopped")
    until = field("int64_t", "the step before which it stops for more room")
    left = field("int", "sentences that are not done")
    order = field("int64_t*", "(sentences) which they are")
    ancestors = field("int64_t*", "(rows, capacity) the row that holds each slot of a row")
    tokens = field("int64_t*", "(max_len + 2, rows) what is fed in each step")
    parents = field("int64_t*", "(max_len + 2, rows) the row of the step before that it continues")
    totals = field("float*", "(max_len + 2, rows) log-probabilities before each step, cumulated")
    counts = field("int64_t*", "(sentences) finished hypotheses")
    found_tokens = field("int64_t*", "(sentences, B, max_len + 1) their tokens")
    found_scores = field("float*", "(sentences, B, max_len + 1) and log-probabilities")
    found_lengths = field("int64_t*", "(sentences, B)")
    found_totals = field("float*", "(sentences, B) sums of the log-probabilities")
    scoring_seconds = field("double", "result: time from hidden states to candidates")


class NativeBeamSearch:
    """What :class:`.search.TorchBeamSearch` does, for one model; its arguments."""

    def __init__(self, verifier: Verifier, lengths: Lengths, beams: int, batch: Batch) -> None:
        engine = verifier.engines[0]
        assert isinstance(engine, CachedDecoder)
        self._verifier, self._engine, self._lengths = verifier, engine, lengths
        self._limit = batch.constraints.max_len
        rows, steps = batch.size * beams, self._limit + 2
        self._order = torch.arange(batch.size)
        self._tokens = torch.empty(steps, rows, dtype=torch.long)
        self._tokens[0] = batch.bos
        self._parents = torch.empty(steps, rows, dtype=torch.long)
        self._totals = torch.empty(steps, rows)
        self._totals[0] = 0
        self._counts = torch.zeros(batch.size, dtype=torch.long)
        shape = batch.size, beams, self._limit + 1
        self._found_tokens = torch.empty(shape, dtype=torch.long)
        self._found_scores = torch.empty(shape)
        self._found_lengths = torch.empty(shape[:2], dtype=torch.long)
        self._found_totals = torch.empty(shape[:2])
        self._prefix = batch.constraints.prefix
        if self._prefix is not None:
            self._prefix = self._prefix.contiguous()
        self._call = self._describe(batch, beams)

    @staticmethod
    def supports(verifier: Verifier, batch: Batch, beams: int) -> Optional[str]:
        """Why the kernels cannot search, in a few words; None if they can."""
        reason = NativeVerification.supports(verifier)
        engine = verifier.engines[0]
        if reason is not None or not isinstance(engine, CachedDecoder):
            return reason
        if verifier.temperature != 1.0:
            return f"--temperature is {verifier.temperature}"
        if batch.constraints.source_lengths is not None:
            return "--match-source-len is given"
        projection = engine.projection.native
        if engine.on_torch is not None or projection is None:
            return engine.on_torch or "the projection is not a plain one"
        return "the vocabulary is too small" if projection.outputs <= 2 * beams else None

    def _describe(self, batch: Batch, beams: int) -> BeamCall:
        rules, prefix = batch.constraints, self._prefix
        return BeamCall(
            sentences=batch.size,
            beams=beams,
            suppressed_id=rules.pad,
            unk=rules.unk,
            unk_penalty=rules.unk_penalty,
            eos=rules.eos,
            min_len=rules.min_len,
            max_len=rules.max_len,
            prefix=native.pointer(prefix),
            prefix_width=0 if prefix is None else prefix.size(1),
            ngram=rules.no_repeat_ngram_size,
            left=batch.size,
            order=self._order.data_ptr(),
            tokens=self._tokens.data_ptr(),
            parents=self._parents.data_ptr(),
            totals=self._totals.data_ptr(),
            counts=self._counts.data_ptr(),
            found_tokens=self._found_tokens.data_ptr(),
            found_scores=self._found_scores.data_ptr(),
            found_lengths=self._found_lengths.data_ptr(),
            found_totals=self._found_totals.data_ptr(),
        )

    def run(self) -> List[List[Dict[str, Any]]]:
        """The finished hypotheses of each sentence, in the order in which they ended."""
        call, engine, state = self._call, self._engine, self._verifier.states[0]
        scratch, library = native.own(self, "beam_search"), native.library()
        projection = engine.projection.native
        assert projection is not None
        begin = time.perf_counter()
        while call.left > 0 and call.step <= self._limit:
            state.cache.longest = call.step
            engine.describe(state, min(_ROOM, self._limit + 1 - call.step), call.stack)
            call.ancestors = call.stack.ancestors = state.cache.share().data_ptr()
            call.until = min(state.cache.capacity, self._limit + 1)
            library.beam_search_run(
                scratch,
                engine.stack,
                projection.handle,
                ctypes.byref(call),
                torch.get_num_threads(),
            )
        self._verifier.spent(time.perf_counter() - begin, call.scoring_seconds)
        lengths = self._found_lengths.tolist()
        return [
            [self._hypothesis(sentence, i, lengths[sentence][i]) for i in range(count)]
            for sentence, count in enumerate(self._counts.tolist())
        ]

    def _hypothesis(self, sentence: int, number: int, length: int) -> Dict[str, Any]:
        return {
            "tokens": self._found_tokens[sentence, number, :length],
            "positional_scores": self._found_scores[sentence, number, :length],
            "score": self._lengths.score(self._found_totals[sentence, number], length),
        }
