"""fairseq's search for outputs that contain given phrases, with most of its work left out.

Post and Vilar (2018) share the beam among *banks*: hypotheses that contain the same number of the
phrases' tokens. Hu et al. (2019) track what a hypothesis contains in a trie, which fairseq's states
do. fairseq moves single numbers to and from tensors, and asks a state about each candidate. Here a
step reads all candidates at once. A state is asked once about all tokens that no phrase has.

``methods/beam/phrases.h`` does the same in the kernels.
"""

import functools
import itertools
import math
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.search import LexicallyConstrainedBeamSearch
from torch import Tensor

#: What fairseq adds to the score of a candidate for each token that is missing.
_MISSING = -100
#: Stands for all tokens that no phrase has.
_OTHER = -1


class Candidate(NamedTuple):
    """What may continue a beam.

    Attributes:
        score: log-probabilities, cumulated.
        beam: that it continues.
        token: that it adds.
    """

    score: float
    beam: int
    token: int


class PhraseState:
    """A state of fairseq's, and what it has told.

    Args:
        state: what a hypothesis contains.
        tokens: of the sentence's phrases.

    Attributes:
        most: a bank that fairseq counts from: its tokens in order, or different ones.
        bank: how many of the phrases' tokens it contains.
        finished: whether it contains all phrases.
    """

    def __init__(self, state: Any, tokens: FrozenSet[int]) -> None:
        self._state, self._tokens = state, tokens
        self.most = len(state.tokens)
        self.bank: int = state.bank
        self.finished: bool = state.finished
        self._next: Dict[int, PhraseState] = {}

    def next_tokens(self) -> List[int]:
        """Tokens that bring a hypothesis further."""
        return [int(token) for token in self._state.next_tokens()]

    def advance(self, token: int) -> "PhraseState":
        """What it contains with another token."""
        key = token if token in self._tokens else _OTHER
        if key not in self._next:
            self._next[key] = PhraseState(self._state.advance(token), self._tokens)
        return self._next[key]


class PhraseSearch(LexicallyConstrainedBeamSearch):
    """What :class:`fairseq.search.LexicallyConstrainedBeamSearch` chooses.

    ``constraint_states`` are lists of :class:`PhraseState`, those of a sentence's beams.
    """

    def init_constraints(self, batch_constraints: Optional[Tensor], beam_size: int) -> None:
        """Begin a batch: (sentences, width) long, packed."""
        super().init_constraints(batch_constraints, beam_size)
        begun: Any = [row[0] for row in self.constraint_states]
        self.constraint_states: List[List[PhraseState]] = [
            [PhraseState(each, frozenset(map(int, each.tokens)))] * beam_size for each in begun
        ]

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Optional[Tensor],
        prev_output_tokens: Optional[Tensor] = None,
        original_batch_idxs: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """The 2B candidates of each sentence; arguments and result are those of fairseq."""
        size, beams, symbols = lprobs.shape
        if step == 0:
            lprobs = lprobs[:, :1]
        else:
            assert scores is not None
            self.forbid_ends(lprobs)
            lprobs = lprobs + scores[:, :, step - 1].unsqueeze(-1)
        count = min(2 * beams, beams * symbols - 1)
        wanted = self._wanted(lprobs.size(1))
        further = torch.tensor(wanted, dtype=torch.long, device=lprobs.device).view(-1, 3).unbind(1)
        totals, index = lprobs.flatten(1).topk(count)
        # Each beam keeps its best candidate. The first step has one beam, of which all are known.
        own, token = lprobs[:, : beams if step > 0 else 0].topk(1)
        told = _on_host(totals, index, own, token, lprobs[further])
        found = _by_sentence(size, symbols, *told[:4])
        for (sentence, *rest), score in zip(wanted, told[4]):
            found[sentence].append(Candidate(score, *rest))
        chosen = [self._shared(number, row, count) for number, row in enumerate(found)]
        made = torch.tensor(chosen, dtype=torch.float64, device=lprobs.device)
        return made[..., 0].to(lprobs.dtype), made[..., 2].long(), made[..., 1].long()

    def update_constraints(self, active_hypos: Tensor) -> None:
        """Keep the states of these candidates, (sentences, B), which one transfer reads."""
        for sentence, ranks in enumerate(active_hypos.tolist()):
            states = self.constraint_states[sentence]
            self.constraint_states[sentence] = [states[rank] for rank in ranks]

    def follow(self, prefix: Tensor) -> None:
        """Note what a forced prefix contains already, (sentences, width)."""
        for sentence, tokens in enumerate(prefix.tolist()):
            states = self.constraint_states[sentence]
            begun = functools.reduce(PhraseState.advance, tokens, states[0])
            self.constraint_states[sentence] = [begun] * len(states)

    def forbid_ends(self, lprobs: Tensor) -> None:
        """Rule out ends of hypotheses that lack a phrase; ``lprobs`` changes in place."""
        lacks = [[not each.finished for each in row] for row in self.constraint_states]
        mask = torch.tensor(lacks, device=lprobs.device)
        lprobs[..., self.eos].masked_fill_(mask, -math.inf)

    def _wanted(self, beams: int) -> List[Tuple[int, int, int]]:
        """Sentence, beam and token of each candidate that brings a hypothesis further."""
        return [
            (sentence, beam, token)
            for sentence, row in enumerate(self.constraint_states)
            for beam, each in enumerate(row[:beams])
            for token in each.next_tokens()
        ]

    def _shared(self, sentence: int, found: List[Candidate], count: int) -> List[Candidate]:
        """So many candidates, of the banks in turn, those that contain most first."""
        states = self.constraint_states[sentence]
        most = states[0].most
        if most == 0:  # the first ones are the best ones
            self.constraint_states[sentence] = states[:1] * count
            return found[:count]
        after = [states[each.beam].advance(each.token) for each in found]
        order = _by_banks(found, [each.bank for each in after], most)
        # Those that were found twice follow each other.
        order = [
            rank
            for rank, before in zip(order, [order[-1], *order])
            if found[rank][1:] != found[before][1:]
        ]
        order = _in_turns(order, [each.bank for each in after], most)[:count]
        self.constraint_states[sentence] = [after[rank] for rank in order]
        return [found[rank] for rank in order]


def _on_host(*tensors: Tensor) -> List[List[float]]:
    """The numbers of each of these tensors; a GPU is waited for once."""
    joined = torch.cat([each.flatten().double() for each in tensors]).tolist()
    ends = list(itertools.accumulate(each.numel() for each in tensors))
    return [joined[first:end] for first, end in zip([0, *ends], ends)]


def _by_sentence(
    size: int,
    symbols: int,
    totals: Sequence[float],
    index: Sequence[float],
    own: Sequence[float],
    token: Sequence[float],
) -> List[List[Candidate]]:
    """The candidates of each sentence: the best of all, and the best of each beam.

    Args:
        size: sentences.
        symbols: of the dictionary.
        totals, index: the same number of each sentence, and where in its (beams, symbols).
        own, token: of each beam.
    """
    count, beams = len(totals) // size, len(own) // size
    best = [Candidate(total, *divmod(int(at), symbols)) for total, at in zip(totals, index)]
    firsts = [
        Candidate(total, row % beams, int(symbol))
        for row, (total, symbol) in enumerate(zip(own, token))
    ]
    return [
        best[count * row : count * (row + 1)] + firsts[beams * row : beams * (row + 1)]
        for row in range(size)
    ]


def _by_banks(found: Sequence[Candidate], banks: Sequence[int], most: int) -> List[int]:
    """The order of candidates by bank, and then by score.

    One number has both, in float32, as in fairseq, where scores of more than 100 mix banks.
    """
    missing = most - torch.tensor(banks)
    keys = missing * _MISSING + torch.tensor([each.score for each in found])
    order: List[int] = keys.sort(descending=True).indices.tolist()
    return order


def _in_turns(order: Sequence[int], banks: Sequence[int], most: int) -> List[int]:
    """The best of each bank, then the second of each, and so on.

    Args:
        order: of candidates, by bank and score.
        banks: of each candidate.
        most: see :class:`PhraseState`.
    """
    turns, turn, current = [], -1, banks[order[0]]
    for rank in order:
        turn = turn + 1 if banks[rank] == current else 0
        current = banks[rank]
        turns.append(most - current + turn * (len(order) + 1))
    return [order[place] for place in torch.tensor(turns).sort().indices.tolist()]
