"""Beam search on a GPU: a step is one CUDA graph, and nobody waits for it.

The device chooses the beams by itself, and moves the rows of the caches. While it does a step, the
host reads what the step before found: it keeps the tokens, and knows which hypotheses ended. A
sentence that is done stays, until half of them are.
"""

import math
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from ...engine.graphs.cache import StaticCache
from ...engine.graphs.capture import Replayed
from ...engine.graphs.steps import feed
from ...engine.graphs.tables import Tables
from ...engine.graphs.tensors import Calls, StaticTensors, rounded
from .beams import Beams, Candidates, Hypotheses, first_unended

#: Steps that are enqueued before the host reads the oldest one.
_AHEAD = 1


class SearchKey(NamedTuple):
    """What is the same in all searches that share captured steps.

    Attributes:
        beams: B.
        vocabulary: symbols that are scored, more than 2B.
        temperature: divides the logits.
        pad, unk, eos, unk_penalty, min_len: see :class:`.Constraints`.
    """

    beams: int
    vocabulary: int
    temperature: float
    pad: int
    unk: int
    eos: int
    unk_penalty: float
    min_len: int

    @classmethod
    def of(cls, verifier: Verifier, batch: Batch, beams: int) -> "SearchKey":
        """Those of a batch."""
        rules = batch.constraints
        vocabulary = verifier.decoder.decoder.output_projection.weight.size(0)
        symbols = rules.pad, rules.unk, rules.eos
        return cls(
            beams, vocabulary, verifier.temperature, *symbols, rules.unk_penalty, rules.min_len
        )

    def offsets(self, device: torch.device) -> Tensor:
        """(3, vocabulary) what is added to log-probabilities: early, else, and at the limit."""
        found = torch.zeros(3, self.vocabulary, dtype=torch.float32, device=device)
        found[:2, self.unk] = -self.unk_penalty
        found[0, self.eos] = -math.inf
        found[2] = -math.inf
        found[2, self.eos] = 0
        return found


class DeviceBeams:
    """The beams of a batch, in tensors that stay where they are.

    It holds neither the decoder nor the batch, which hold it. Rows of a sentence follow each other.
    In the first step all beams are the same, and all but one of each sentence are worth nothing.

    Args:
        tensors: the batch.
        rules: of the search.

    Attributes:
        lengths: (sentences * B,) long, tokens that each row has in the cache: steps so far.
        table: (2, sentences, 2B) float64, what the last step found: totals, and their indices in
            (beams, vocabulary).
    """

    def __init__(self, tensors: StaticTensors, rules: SearchKey) -> None:
        sentences, long = tensors.sizes.sentences, tensors.lengths
        self._rules, self._offsets = rules, rules.offsets(long.device)
        self._tokens = long.new_zeros(sentences * rules.beams, 1)
        self._totals = torch.zeros(sentences, rules.beams, dtype=torch.float32, device=long.device)
        self._limit = long.new_zeros(1)
        self.lengths = long.new_zeros(sentences * rules.beams)
        self.table = torch.zeros(
            2, sentences, 2 * rules.beams, dtype=torch.float64, device=long.device
        )
        self._steps = Calls()

    def begin(self, bos: int, max_len: int) -> None:
        """Begin a batch whose hypotheses have ``max_len`` tokens before their end, at most."""
        self._tokens.fill_(bos)
        self._totals.fill_(-math.inf)
        self._totals[:, 0].zero_()
        self._limit.fill_(max_len)
        self.lengths.zero_()

    def copy_from(self, other: "DeviceBeams") -> None:
        """Continue with the beams of another batch's tensors."""
        for name in ("_tokens", "_totals", "_limit", "lengths"):
            getattr(self, name).copy_(getattr(other, name))

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Let the first sentences be these, (any,) long, which have these rows."""
        self._tokens[: rows.size(0)].copy_(self._tokens.index_select(0, rows))
        self._totals[: sentences.size(0)].copy_(self._totals.index_select(0, sentences))

    def step(
        self, decoder: Any, tensors: StaticTensors, sentences: int, visible: int, positions: int
    ) -> None:
        """Take a step.

        Args:
            decoder: a :class:`.CachedDecoder`.
            tensors: as above.
            sentences: how many, rounded up.
            visible: slots that a query may see, rounded up.
            positions: what :meth:`.TargetEmbedding.reach` gave. A captured graph reads the table of
                positions that there was.
        """
        key = sentences, visible, positions
        replayed = self._steps.get(key, lambda: Replayed(tensors.graphs))
        replayed(lambda: self._work(decoder, tensors, sentences, visible))

    def _work(self, decoder: Any, tensors: StaticTensors, sentences: int, visible: int) -> None:
        rules, rows = self._rules, sentences * self._rules.beams
        hidden = feed(
            decoder, tensors, self._tokens[:rows], self.lengths[:rows], visible, rules.beams
        )
        totals = self._scored(decoder, hidden).view(sentences, rules.beams, -1)
        totals += self._totals[:sentences].unsqueeze(2)
        best, index = totals.flatten(1).topk(2 * rules.beams)
        self.table[0, :sentences].copy_(best)
        self.table[1, :sentences].copy_(index)
        found = Candidates.of(best, index, rules.vocabulary)
        ranks, _ = first_unended(found.ends(rules.eos), rules.beams)
        chosen = found.take(ranks)
        self._tokens[:rows].copy_(chosen.tokens.view(-1, 1))
        self._totals[:sentences].copy_(chosen.totals)
        first = torch.arange(0, rows, rules.beams, device=ranks.device)
        cache = StaticCache(tensors, rows)
        cache.written = visible
        cache.move((first.unsqueeze(1) + chosen.parents).view(-1))
        self.lengths[:rows].add_(1)

    def _scored(self, decoder: Any, hidden: Tensor) -> Tensor:
        """(rows, output dim) to (rows, vocabulary), log-probabilities with the rules applied."""
        rules, steps = self._rules, self.lengths[:1]
        scores = decoder.projection.scores(hidden, rules.temperature, rules.pad)
        lprobs: Tensor = scores.values - scores.normalisers.unsqueeze(1)
        lprobs.nan_to_num_(-math.inf, math.inf, -math.inf)
        phase = (steps >= rules.min_len).long() + (steps >= self._limit)
        return lprobs.add_(self._offsets.index_select(0, phase))


class CapturedBeamSearch:
    """What :class:`.torch_search.TorchBeamSearch` does, for one model on tensors that stay.

    Args:
        verifier: started with the batch.
        lengths: fairseq's length options.
        beams: B.
        batch: the batch, which :meth:`supports` allows.
    """

    def __init__(self, verifier: Verifier, lengths: Lengths, beams: int, batch: Batch) -> None:
        self._statistics, self._decoder = verifier.statistics, verifier.decoder
        self._batch, self._state = batch, verifier.states[0]
        self._rules = SearchKey.of(verifier, batch, beams)
        self._max_len = batch.constraints.max_len
        self._order = list(range(batch.size))
        self._tensors, _ = self._state.with_room(1)
        self._device = self._beams_on(self._tensors)
        self._device.begin(batch.bos, self._max_len)
        # The host's view is a step behind, and so are the sentences that it looks at.
        host = torch.device("cpu")
        self._beams = Beams(batch.size, beams, batch.bos, self._rules.eos, lengths, host)
        self._tables = Tables(self._device.table, _AHEAD + 1)
        self._kept: Deque[Optional[List[int]]] = deque()

    @staticmethod
    def supports(verifier: Verifier, batch: Batch, beams: int) -> bool:
        """Whether one model searches, by no rules but lengths and a penalty of unknown symbols."""
        rules = batch.constraints
        if not verifier.static or len(verifier.engines) > 1 or rules.no_repeat_ngram_size > 1:
            return False
        if verifier.language_model is not None:
            return False
        if rules.prefix is not None or rules.source_lengths is not None:
            return False
        # Of 2B candidates in each step B end at most, so that B others are always left.
        return SearchKey.of(verifier, batch, beams).vocabulary > 2 * beams

    def run(self) -> Hypotheses:
        """The finished hypotheses of each sentence, in the order in which they ended."""
        for step in range(self._max_len + 1):
            with self._statistics.timed("verifier"):
                self._enqueue(step)
            if len(self._tables) > _AHEAD:
                self._read()
            if not self._open():
                break
        while len(self._tables) > 0 and self._open():
            self._read()
        return _placed(self._beams.finished, self._batch.device)

    def _open(self) -> List[int]:
        """The device's sentences that need more hypotheses, as far as the host knows."""
        return [row for row, each in enumerate(self._order) if self._beams.open(each)]

    def _enqueue(self, step: int) -> None:
        """A step, and the copy of what it finds."""
        left, state = self._open(), self._state
        self._kept.append(left if 2 * len(left) <= len(self._order) else None)
        if self._kept[-1] is not None:
            self._leave(left)
        rows = len(self._order) * self._rules.beams
        state.keep(self._device.lengths[:rows], step)
        tensors, visible = state.with_room(1)
        if tensors is not self._tensors:
            before, self._tensors = self._device, tensors
            self._device = self._beams_on(tensors)
            self._device.copy_from(before)
        positions = self._decoder.embedding.reach(step, 1)
        self._device.step(self._decoder, tensors, rounded(len(self._order)), visible, positions)
        self._tables.push(self._device.table)

    def _beams_on(self, tensors: StaticTensors) -> DeviceBeams:
        """The beams that work on these tensors."""
        rules = self._rules
        found: DeviceBeams = tensors.calls.get(rules, lambda: DeviceBeams(tensors, rules))
        return found

    def _leave(self, left: List[int]) -> None:
        """Let the device continue with some of its sentences. The host waits for a step here."""
        beams = self._rules.beams
        sentences = torch.tensor(left, device=self._batch.device)
        first = (sentences * beams).unsqueeze(1)
        rows = (first + torch.arange(beams, device=first.device)).view(-1)
        self._device.keep(sentences, rows)
        self._state.fork(rows, sentences, sentences)
        self._order = [self._order[row] for row in left]

    def _read(self) -> None:
        """Do on the host what the device did in its oldest step that was not read."""
        table, kept = self._tables.pop(), self._kept.popleft()
        if kept is not None:
            self._beams.keep(kept)
        totals, index = table[:, : len(self._beams.order)]
        found = Candidates.of(totals.float(), index.long(), self._rules.vocabulary)
        ranks = self._beams.choose(self._beams.finish(found))
        self._beams.advance(found.take(ranks))


def _placed(found: Hypotheses, device: torch.device) -> Hypotheses:
    """Put tokens on the device of the batch, which may be fed with them; others stay for reading.

    All go there at once, and the host does not wait.
    """
    every: List[Dict[str, Any]] = [each for row in found for each in row]
    if device.type == "cuda" and every:
        lines = [each["tokens"] for each in every]
        moved = torch.cat(lines).pin_memory().to(device, non_blocking=True)
        for each, line in zip(every, moved.split([len(line) for line in lines])):
            each["tokens"] = line
    return found
