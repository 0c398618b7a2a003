"""How close fairseq's beam search came to deciding otherwise.

Two searches with several beams part where two candidates are equal: each keeps another one. What
they keep later may differ by any score.
"""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from torch import Tensor

from ...api import Translator


class Step(NamedTuple):
    """A step of fairseq's search for a sentence.

    Attributes:
        lines: (B, step) tokens of each beam so far.
        totals: (2B) log-probabilities of the best candidates, cumulated, the greatest first.
        tokens: (2B) what they add.
        beams: (2B) what they continue.
    """

    lines: List[List[int]]
    totals: List[float]
    tokens: List[int]
    beams: List[int]


def closest_decision(
    search: Translator, batch: Any, hypotheses: Sequence[List[int]]
) -> Optional[Dict[str, Any]]:
    """Of all decisions whether to keep a hypothesis, that between the nearest candidates.

    Args:
        search: fairseq's own, with several beams.
        batch: fairseq's, of one sentence.
        hypotheses: tokens.

    Returns:
        ``step``, and the cumulated log-probabilities of the candidates that were ``kept`` and
        ``dropped``; None where no decision was made.
    """
    steps, eos = recorded(search, batch), search.generator.eos
    decisions = [each for tokens in hypotheses for each in _decisions(steps, tokens, eos)]
    return min(decisions, key=lambda each: each["kept"] - each["dropped"], default=None)


def recorded(search: Translator, batch: Any) -> List[Step]:
    """The steps of a search of one sentence."""
    strategy, steps = search.generator.search, []
    choose = strategy.step

    def step(number: int, lprobs: Tensor, scores: Any, fed: Tensor, *rest: Any) -> Any:
        chosen = choose(number, lprobs, scores, fed, *rest)
        steps.append(Step(fed[:, 1:].tolist(), *(each[0].tolist() for each in chosen)))
        return chosen

    strategy.step = step
    search.decode(batch)
    return steps


def _decisions(steps: Sequence[Step], tokens: List[int], eos: int) -> List[Dict[str, Any]]:
    """Those about the beginnings of a hypothesis, until it is dropped."""
    found = []
    for number, step in enumerate(steps[: len(tokens)]):
        count = len(step.lines)
        begun = [step.lines[beam] + [token] for beam, token in zip(step.beams, step.tokens)]
        wanted = tokens[: number + 1]
        if wanted not in begun:
            break
        own = begun.index(wanted)
        # An end competes with all candidates, another token with those that end nothing.
        ends = wanted[-1] == eos
        rivals = [i for i, token in enumerate(step.tokens) if ends or token != eos]
        if len(rivals) <= count or not math.isfinite(step.totals[rivals[count]]):
            continue
        kept = own in rivals[:count]
        last, next_ = (step.totals[i] for i in (rivals[count - 1], rivals[count]))
        total = step.totals[own]
        pair = (total, next_) if kept else (last, total)
        found.append({"step": number, "kept": pair[0], "dropped": pair[1]})
        if not kept:
            break
    return found
