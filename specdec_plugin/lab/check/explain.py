"""Why two programs find different hypotheses: how each of them scores both."""

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

from ...api import Session, Translator
from ...decoding import noise
from ...fairseq_compat.common_options import DEFAULT_SEED
from ..history import first_difference
from .beams import closest_decision
from .programs import Program
from .text import Text

#: What competes: the tokens of one hypothesis, drawn ones, or whole hypotheses.
TOKEN, SAMPLE, SCORE = "log-probability", "log-probability with noise", "score"
#: Whose figures are given, in this order.
SCORERS = ("fairseq", "the plugin")
_OF_SAMPLES = ("sampling", "sampling_topk", "sampling_topp", "seed")
#: Given hypotheses end with their last token: they are scored without another limit.
_NO_LIMIT = {"max_len_a": 0, "max_len_b": 10_000}

#: Written to results: the position of a difference, and both sides of it.
Difference = Dict[str, Any]


class Explainer:
    """Lets fairseq and the plugin's greedy decoding score given hypotheses, token by token.

    Args:
        session: what is loaded.
        text: what is checked.
        program: what is checked on it.
    """

    def __init__(self, session: Session, text: Text, program: Program) -> None:
        self._session, self._text, self._program = session, text, program
        self._generation = {
            name: each for name, each in program.generation.items() if name not in _OF_SAMPLES
        }
        self._greedy: Optional[Translator] = None

    def explain(
        self, number: int, width: int, found: List[List[int]], expected: List[List[int]]
    ) -> Difference:
        """The first difference between two lists of hypotheses.

        Args:
            number: of the sentence in the text.
            width: of the batch's sources, with padding, on which a length limit may depend.
            found: by rank, the tokens of each hypothesis.
            expected: those of the reference.
        """
        rank = first_difference(found, expected)
        pair = [each[rank] if rank < len(each) else [] for each in (found, expected)]
        position = first_difference(*pair)
        scorers = self._scorers()
        sides = [self._side(scorers, number, each, position) for each in pair]
        difference = {
            "sentence": number,
            "rank": rank,
            "position": position,
            "competing": self._what,
            "found": sides[0],
            "expected": sides[1],
        }
        if self._what == SCORE:
            difference["decision"] = self._decision(number, width, pair)
        return difference

    @property
    def _what(self) -> str:
        if self._program.sampling:
            return SAMPLE
        return TOKEN if self._program.beam == 1 else SCORE

    def _scorers(self) -> List[Translator]:
        """In the order of :data:`SCORERS`."""
        options = {**self._generation, **_NO_LIMIT}
        if self._greedy is None:
            self._greedy = self._session.translator("greedy", **options)
        # fairseq's is built anew, because it notes its number of beams in some models.
        return [self._session.translator(None, beam=1, **options), self._greedy]

    def _side(
        self, scorers: Sequence[Translator], number: int, tokens: List[int], position: int
    ) -> Optional[Dict[str, Any]]:
        """How each scorer scores a hypothesis and its token; None for no hypothesis."""
        if not tokens:
            return None
        batch = self._text.alone(number)
        given = [scorer.decode(batch, torch.tensor([tokens]))[0][0] for scorer in scorers]
        # A hypothesis may end before the other without an end of sentence.
        last = min(position, len(tokens) - 1)
        scores = [float(each["positional_scores"][last]) for each in given]
        competing = scores
        if self._what == SCORE:
            competing = [float(each["score"]) for each in given]
        elif self._what == SAMPLE:
            more = self._noise(number, last, tokens[last])
            competing = [each + more for each in scores]
        symbol = self._session.task.target_dictionary[tokens[last]]
        return {"token": symbol, TOKEN: scores, "competing": competing}

    def _noise(self, number: int, position: int, token: int) -> float:
        """The noise with which a token of a sentence is drawn."""
        seed = self._program.generation.get("seed", DEFAULT_SEED)
        sentence = torch.tensor([number + self._program.flags.get("sentence_offset", 0)])
        keys = noise.row_keys(seed, sentence, torch.zeros_like(sentence))
        drawn = noise.gumbel(keys, torch.tensor([[position]]), token + 1)
        return float(drawn[0, 0, token])

    def _decision(
        self, number: int, width: int, pair: Sequence[List[int]]
    ) -> Optional[Dict[str, Any]]:
        """The closest decision of fairseq's search about either hypothesis."""
        options = self._generation
        limit = int(options["max_len_a"] * width + options["max_len_b"])
        search = self._session.translator(
            None, **{**options, "beam": self._program.beam, "max_len_a": 0, "max_len_b": limit}
        )
        return closest_decision(search, self._text.alone(number), pair)


def is_tie(difference: Mapping[str, Any], within: float) -> bool:
    """Whether what competes is equal in both programs, or was to a search with several beams.

    Args:
        difference: of :meth:`Explainer.explain`.
        within: how far equal figures may be apart.
    """
    decision = difference.get("decision")
    if decision is not None and abs(decision["kept"] - decision["dropped"]) <= within:
        return True
    found, expected = difference["found"], difference["expected"]
    if found is None or expected is None:
        return False
    pairs = zip(found["competing"], expected["competing"])
    return all(abs(one - other) <= within for one, other in pairs)


def told(difference: Mapping[str, Any], label: str, reference: str, verdict: str) -> str:
    """A difference in words.

    Args:
        difference: of :meth:`Explainer.explain`.
        label: the program that was checked.
        reference: the program that it was compared with.
        verdict: what kind of difference it is.
    """
    what = difference["competing"]
    rank = f", hypothesis {difference['rank'] + 1}" if what == SCORE else ""
    where = f"sentence {difference['sentence']}{rank}, token {difference['position'] + 1}"
    lines = [f"{label}: {where}: {verdict}"]
    for name, side in ((reference, difference["expected"]), (label, difference["found"])):
        lines.append(f"  {name} chose {_told_side(side, what)}")
    decision = difference.get("decision")
    if decision is not None:
        lines.append(
            f"  fairseq's closest decision about them, at token {decision['step'] + 1}: it kept a "
            f"beam of {decision['kept']:.7f}, and dropped one of {decision['dropped']:.7f}"
        )
    return "\n".join(lines)


def _told_side(side: Optional[Mapping[str, Any]], what: str) -> str:
    if side is None:
        return "no hypothesis"
    text = f"{side['token']!r}, {TOKEN} {_told_figures(side[TOKEN])}"
    return text if what == TOKEN else f"{text}; {what} {_told_figures(side['competing'])}"


def _told_figures(figures: Sequence[float]) -> str:
    return ", ".join(f"{figure:.7f} in {name}" for figure, name in zip(figures, SCORERS))
