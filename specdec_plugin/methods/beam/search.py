"""fairseq's beam search.

A step scores what may follow each of a sentence's B beams, draws the 2B best candidates, and sorts
them: an end of sentence among the first B finishes a hypothesis; the first B others are the next
beams. A sentence is done with B finished hypotheses, or at the length limit. The score is divided
by a power of the length only when a hypothesis is finished.
"""

import math
from typing import Any, Dict, List, Optional

import torch
from torch import Tensor

from ...decoding.constraints import FORCED_SCORE, Constraints
from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.statistics import Statistics
from ...decoding.verifier import Verifier
from ...errors import PluginError
from .native import NativeBeamSearch, StepDrafter

Hypotheses = List[List[Dict[str, Any]]]


class BeamSearch:
    """Finds what fairseq's ``SequenceGenerator`` finds.

    Args:
        verifier: scores the candidates.
        statistics: where steps and time are counted.
        lengths: fairseq's length options.
        beams: B ≥ 1.
        ahead: searches ahead of the verifier, where the kernels search; None: nobody does.
        workers: that the kernels search with; 0: as many as threads.
    """

    drafter = None
    measured = None

    def __init__(
        self,
        verifier: Verifier,
        statistics: Statistics,
        lengths: Lengths,
        beams: int,
        ahead: Optional[StepDrafter] = None,
        workers: int = 0,
    ) -> None:
        self.verifier, self.statistics, self._workers = verifier, statistics, workers
        self.lengths, self.beam_size, self._ahead = lengths, beams, ahead
        self._native: Optional[NativeBeamSearch] = None

    def forget(self) -> None:
        """Nothing is learned that depends on the text."""

    def decode(self, batch: Batch) -> Hypotheses:
        """Decode a batch.

        Returns:
            for each sentence up to B hypotheses, the best first: ``tokens`` and
            ``positional_scores`` (length,), ``score``, ``steps`` and an empty ``history``.

        Raises:
            PluginError: no hypothesis of a sentence can end.
        """
        args = self.verifier, self.lengths, self.beam_size
        self.verifier.refresh()
        if NativeBeamSearch.supports(self.verifier, batch, self.beam_size) is None:
            self._native = self._native or NativeBeamSearch(*args, self._ahead, self._workers)
            found = self._native.run(batch)
        else:
            self.verifier.start(batch, self.beam_size)
            found = TorchBeamSearch(*args, batch).run()
            self.verifier.end()
        if not all(found):
            raise PluginError(
                f"No hypothesis of {sum(not each for each in found)} sentences of a batch can end "
                "within the length limit. Raise --max-len-b, or leave out --prefix-size."
            )
        # All scores at once: on a GPU, the host waits for what it reads.
        scores = iter(torch.stack([each["score"] for row in found for each in row]).tolist())
        for number, unordered in enumerate(found):
            own = [-score for _, score in zip(unordered, scores)]
            order = sorted(range(len(own)), key=own.__getitem__)
            hypotheses = found[number] = [unordered[index] for index in order]
            steps = max(len(each["tokens"]) for each in hypotheses)
            for each in hypotheses:
                each.update(steps=steps, history=[])
            self.statistics.tokens += len(hypotheses[0]["tokens"])
            self.statistics.iterations += steps
        self.statistics.sentences += batch.size
        self.statistics.batches += 1
        return found


class TorchBeamSearch:
    """A batch on PyTorch's operators, for any engine and ensembles.

    Args:
        verifier: started with the batch.
        lengths: fairseq's length options.
        beams: B.
        batch: the batch.

    Attributes:
        sentences: (n,) indices in the batch of those that are not done.
        order: the same on the host.
        tokens: (n, B, steps + 1) what the decoder was fed.
        totals: (n, B, steps) log-probabilities, cumulated.
        ignored: (n, B) beams that continue nothing, where too few candidates were left.
    """

    def __init__(self, verifier: Verifier, lengths: Lengths, beams: int, batch: Batch) -> None:
        self.verifier, self.lengths, self.beams = verifier, lengths, beams
        self.constraints: Constraints = batch.constraints
        size, device = batch.size, batch.device
        self.sentences = torch.arange(size, device=device)
        self.order = list(range(size))
        self.tokens = torch.full((size, beams, 1), batch.bos, device=device)
        self.totals = torch.zeros(size, beams, 0, device=device)
        self.ignored = torch.zeros(size, beams, dtype=torch.bool, device=device)
        self.prefix = batch.constraints.prefix
        self.source_lengths = batch.constraints.source_lengths
        self.finished: Hypotheses = [[] for _ in range(size)]

    def run(self) -> Hypotheses:
        """The finished hypotheses of each sentence, in the order in which they ended."""
        for step in range(self.constraints.max_len + 1):
            lprobs = self._log_probabilities(step)
            totals, tokens, parents = self._candidates(lprobs, step)
            ended = self._finish(totals, tokens, parents, step)
            rows = [row for row, each in enumerate(self.order) if self._open(each)]
            if step == self.constraints.max_len or not rows:
                break
            left = None
            if len(rows) < len(self.order):
                self.order = [self.order[row] for row in rows]
                left = torch.tensor(rows, device=self.sentences.device)
                ended, totals, tokens, parents = (
                    each[left] for each in (ended, totals, tokens, parents)
                )
            self._continue(ended, totals, tokens, parents, left)
        return self.finished

    def _open(self, sentence: int) -> bool:
        """Whether a sentence of the batch needs more hypotheses."""
        return len(self.finished[sentence]) < self.beams

    def _log_probabilities(self, step: int) -> Tensor:
        """(n, B, vocabulary), in the first step (n, 1, vocabulary), with fairseq's rules applied.

        Their order: unknown, limit, prefix or minimum, n-grams, length of the source.
        """
        rules = self.constraints
        fed = self.tokens[:, : 1 if step == 0 else self.beams, -1:]
        scores = self.verifier.scores(fed.reshape(-1, 1), rules.pad)
        lprobs = (scores.values - scores.normalisers.unsqueeze(-1)).view(*fed.shape[:2], -1)
        lprobs.masked_fill_(lprobs.isnan(), -math.inf)
        lprobs[..., rules.unk] -= rules.unk_penalty
        if step >= rules.max_len:
            end = lprobs[..., rules.eos].clone()
            lprobs.fill_(-math.inf)
            lprobs[..., rules.eos] = end
        if self.prefix is not None and step < self.prefix.size(1) and step < rules.max_len:
            self._force_prefix(lprobs, step)
        elif step < rules.min_len:
            lprobs[..., rules.eos] = -math.inf
        if rules.no_repeat_ngram_size > 1:
            _block_ngrams(lprobs, self.tokens, rules.no_repeat_ngram_size)
        if self.source_lengths is not None:
            lprobs[step < self.source_lengths, :, rules.eos] = -math.inf
            lprobs[step >= self.source_lengths, :, rules.eos] = 0
        return lprobs

    def _force_prefix(self, lprobs: Tensor, step: int) -> None:
        assert self.prefix is not None
        wanted = self.prefix[:, step]
        forced = wanted.ne(self.constraints.pad)
        index = wanted.view(-1, 1, 1).expand(-1, lprobs.size(1), 1)
        kept = lprobs.gather(2, index).clamp(min=FORCED_SCORE)
        only = torch.full_like(lprobs, -math.inf).scatter(2, index, kept)
        lprobs[forced] = only[forced]
        # A prefix that ends the sentence makes all beams the first one.
        over = wanted.eq(self.constraints.eos)
        for each in (lprobs, self.tokens, self.totals):
            each[over] = each[over][:, :1]

    def _candidates(self, lprobs: Tensor, step: int) -> Any:
        """(n, up to 2B) the best cumulated log-probabilities, their tokens and beams."""
        vocabulary = lprobs.size(2)
        totals = lprobs + self.totals[..., -1:] if step > 0 else lprobs
        flat = totals.flatten(1)
        best, index = flat.topk(min(2 * self.beams, flat.size(1) - 1))
        return best, index % vocabulary, index // vocabulary

    def _finish(self, totals: Tensor, tokens: Tensor, parents: Tensor, step: int) -> Tensor:
        """Note the hypotheses that end; (n, up to 2B) which candidates end a sentence."""
        ends = tokens.eq(self.constraints.eos) & totals.ne(-math.inf)
        ends[:, : self.beams] &= ~self.ignored
        sentence, rank = ends[:, : self.beams].nonzero(as_tuple=True)
        if len(sentence) == 0:
            return ends
        beam = parents[sentence, rank]
        total = totals[sentence, rank]
        lines = torch.cat([self.tokens[sentence, beam, 1:], tokens[sentence, rank, None]], dim=1)
        sums = torch.cat([self.totals[sentence, beam], total[:, None]], dim=1)
        each = sums.diff(dim=1, prepend=torch.zeros_like(sums[:, :1]))
        scores = self.lengths.score(total, step + 1)
        if self.source_lengths is not None:
            scores = scores.masked_fill(step > self.source_lengths[sentence], -math.inf)
        owners = [self.order[row] for row in sentence.tolist()]
        for owner, line, positional, score in zip(owners, lines, each, scores):
            if self._open(owner):
                self.finished[owner].append(
                    {"tokens": line, "positional_scores": positional, "score": score}
                )
        return ends

    def _continue(
        self,
        ended: Tensor,
        totals: Tensor,
        tokens: Tensor,
        parents: Tensor,
        left: Optional[Tensor],
    ) -> None:
        """Make the first B candidates that end nothing the beams of the sentences in ``left``."""
        step, old_beams = self.tokens.size(2) - 1, 1 if self.tokens.size(2) == 1 else self.beams
        kept = torch.arange(len(self.tokens), device=parents.device) if left is None else left
        ended = ended.clone()
        ended[:, : self.beams] |= self.ignored[kept]
        width = 2 * self.beams
        ranks = torch.arange(tokens.size(1), device=tokens.device) + width * ended
        rank, chosen = ranks.topk(self.beams, largest=False)
        self.ignored = rank >= width
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)
        # Rows of the decoder: one a sentence in the first step, then B.
        rows = (kept.unsqueeze(1) * old_beams + parents).flatten()
        lengths = torch.full((len(self.tokens) * old_beams,), step + 1, device=rows.device)
        self.sentences = self.sentences[kept]
        for state in self.verifier.states:
            state.keep(lengths, step + 1)
            state.fork(rows, self.sentences, left)
        own = kept.unsqueeze(1)
        self.tokens = torch.cat([self.tokens[own, parents], tokens.unsqueeze(2)], dim=2)
        chosen_totals = totals.gather(1, chosen).unsqueeze(2)
        self.totals = torch.cat([self.totals[own, parents], chosen_totals], dim=2)
        if left is not None:
            self.prefix = None if self.prefix is None else self.prefix[left]
            if self.source_lengths is not None:
                self.source_lengths = self.source_lengths[left]


def _block_ngrams(lprobs: Tensor, tokens: Tensor, size: int) -> None:
    """Rule out what would repeat an n-gram of the hypothesis.

    fairseq's own block has no effect without its CUDA extension: it reads padding.

    Args:
        lprobs: (n, B or 1, vocabulary), changed in place.
        tokens: (n, B, fed) what the decoder was fed, its first symbol included.
        size: n ≥ 2.
    """
    if tokens.size(2) < size:
        return
    ngrams = tokens[:, : lprobs.size(1)].unfold(2, size, 1)  # (n, B, fed - n + 1, n)
    recent = tokens[:, : lprobs.size(1), None, tokens.size(2) - size + 1 :]
    repeats = (ngrams[..., :-1] == recent).all(3)
    sentence, beam, position = repeats.nonzero(as_tuple=True)
    lprobs[sentence, beam, ngrams[sentence, beam, position, -1]] = -math.inf
