"""Beam search on PyTorch's operators."""

import math
from typing import List, Optional

import torch
from torch import Tensor

from ...decoding.constraints import FORCED_SCORE, Constraints
from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from .beams import Beams, Candidates, Hypotheses


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
        ranks = self.beams.choose(ended)
        self._follow(left, ranks, step)
        chosen = found.take(ranks)
        self.beams.advance(chosen)
        # Rows of the decoder: one a sentence in the first step, then B.
        parents = (kept.unsqueeze(1) * old_width + chosen.parents).flatten()
        lengths = torch.full((count * old_width,), step + 1, device=parents.device)
        self.sentences = self.sentences[kept]
        for state in self.verifier.states:
            state.keep(lengths, step + 1)
            state.fork(parents, self.sentences, left)

    def _follow(self, left: Optional[Tensor], ranks: Tensor, step: int) -> None:
        """Learn what continues: :class:`.strategy_search.StrategySearch` does.

        Args:
            left: rows of the sentences that are not done; None: all.
            ranks: (n, B) of the candidates that were made the beams.
            step: of the search.
        """


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
