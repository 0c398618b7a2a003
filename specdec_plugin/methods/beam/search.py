"""fairseq's beam search.

A step scores what may follow each of a sentence's B beams, draws the 2B best candidates, and sorts
them: an end of sentence among the first B finishes a hypothesis; the first B others are the next
beams. A sentence is done with B finished hypotheses, or at the length limit. The score is divided
by a power of the length only when a hypothesis is finished.
"""

import math
from typing import List, Optional, Type, Union

import torch
from torch import Tensor

from ...decoding.constraints import FORCED_SCORE, Constraints
from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.statistics import Statistics
from ...decoding.verifier import Verifier
from ...engine.weights import check_deferred
from ...errors import PluginError
from .beams import Beams, Candidates, Hypotheses
from .captured import CapturedBeamSearch
from .native import NativeBeamSearch, StepDrafter


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
        """Forget whether drafts paid."""
        if self._native is not None:
            self._native.guard.forget()

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
            check_deferred()
            captured = CapturedBeamSearch.supports(self.verifier, batch, self.beam_size)
            search: Type[Union[CapturedBeamSearch, TorchBeamSearch]]
            search = CapturedBeamSearch if captured else TorchBeamSearch
            found = search(*args, batch).run()
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
        beams: their beams.
    """

    def __init__(self, verifier: Verifier, lengths: Lengths, beams: int, batch: Batch) -> None:
        self.verifier, self._width = verifier, beams
        self.constraints: Constraints = batch.constraints
        size, device, eos = batch.size, batch.device, batch.constraints.eos
        self.sentences = torch.arange(size, device=device)
        self.beams = Beams(size, beams, batch.bos, eos, lengths, device)
        self.prefix = batch.constraints.prefix
        self.source_lengths = batch.constraints.source_lengths

    def run(self) -> Hypotheses:
        """The finished hypotheses of each sentence, in the order in which they ended."""
        beams = self.beams
        for step in range(self.constraints.max_len + 1):
            with self.verifier.on_one_thread(len(self.sentences) * self._width):
                found = self._candidates(self._log_probabilities(step), step)
                ended = beams.finish(found, self.source_lengths)
                rows = [row for row, each in enumerate(beams.order) if beams.open(each)]
                if step == self.constraints.max_len or not rows:
                    break
                self._continue(found, ended, rows, step)
        return beams.finished

    def _log_probabilities(self, step: int) -> Tensor:
        """(n, B, vocabulary), in the first step (n, 1, vocabulary), with fairseq's rules applied.

        Their order: unknown, limit, prefix or minimum, n-grams, length of the source.
        """
        rules = self.constraints
        fed = self.beams.tokens[:, : 1 if step == 0 else self._width, -1:]
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
            _block_ngrams(lprobs, self.beams.tokens, rules.no_repeat_ngram_size)
        if self.source_lengths is not None:
            lprobs[step < self.source_lengths, :, rules.eos] = -math.inf
            lprobs[step >= self.source_lengths, :, rules.eos] = 0
        return lprobs

    def _force_prefix(self, lprobs: Tensor, step: int) -> None:
        assert self.prefix is not None
        wanted = self.prefix[:, step]
        forced = wanted.ne(self.constraints.pad)
        index = wanted.view(-1, 1, 1).expand(-1, lprobs.size(1), 1)
        kept = lprobs.gather(2, index)
        kept.masked_fill_(kept.isneginf(), FORCED_SCORE)
        only = torch.full_like(lprobs, -math.inf).scatter(2, index, kept)
        lprobs[forced] = only[forced]
        # A prefix that ends the sentence makes all beams the first one.
        over = wanted.eq(self.constraints.eos)
        for each in (lprobs, self.beams.tokens, self.beams.totals):
            each[over] = each[over][:, :1]

    def _candidates(self, lprobs: Tensor, step: int) -> Candidates:
        """The best continuations of each sentence."""
        totals = lprobs + self.beams.totals[..., -1:] if step > 0 else lprobs
        flat = totals.flatten(1)
        best, index = flat.topk(min(2 * self._width, flat.size(1) - 1))
        return Candidates.of(best, index, lprobs.size(2))

    def _continue(self, found: Candidates, ended: Tensor, rows: List[int], step: int) -> None:
        """Continue the sentences of these rows, and let their caches follow."""
        count, old_width = len(self.sentences), 1 if step == 0 else self._width
        kept, left = torch.arange(count, device=ended.device), None
        if len(rows) < count:
            kept = left = self.beams.keep(rows)
            found, ended = found.select(left), ended[left]
            self.prefix = None if self.prefix is None else self.prefix[left]
            if self.source_lengths is not None:
                self.source_lengths = self.source_lengths[left]
        chosen = self.beams.advance(found, ended)
        # Rows of the decoder: one a sentence in the first step, then B.
        parents = (kept.unsqueeze(1) * old_width + chosen.parents).flatten()
        lengths = torch.full((count * old_width,), step + 1, device=parents.device)
        self.sentences = self.sentences[kept]
        for state in self.verifier.states:
            state.keep(lengths, step + 1)
            state.fork(parents, self.sentences, left)


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
