"""What a translation of one sentence is."""

from typing import Any, Dict, NamedTuple, Optional, Tuple

from torch import Tensor


class Hypothesis(NamedTuple):
    """A translation of one sentence.

    Attributes:
        tokens: (length,) indices in the target dictionary, the end of the sentence included.
        score: as fairseq gives it: the mean of ``positional_scores``, unless ``lenpen`` or
            ``unnormalized`` change that.
        positional_scores: (length,) log-probability of each token.
        iterations: passes of the model that verified drafts; None for fairseq's own search, and
            for given tokens.
        pieces: subword pieces with spaces between them.
        text: ``pieces`` joined by the session's subword model; without one, the same as ``pieces``.
        nbest: with ``nbest`` above 1, the best hypotheses, this one first; else none.
        seconds: in which its batch was decoded; 0 where that is unknown.
        alignment: with ``print_alignment="hard"``, pairs of a source piece and an output piece,
            which count from 0, with symbols of languages among them; with ``"soft"``, for each
            token what it attended to in the source; else None.
    """

    tokens: Tensor
    score: float
    positional_scores: Tensor
    iterations: Optional[int]
    pieces: str
    text: str
    nbest: Tuple["Hypothesis", ...] = ()
    seconds: float = 0.0
    alignment: Optional[Tuple[Tuple[float, ...], ...]] = None

    @property
    def accepted_tokens(self) -> Optional[float]:
        """Tokens an iteration, the end of the sentence included; None for fairseq's own search."""
        return None if self.iterations is None else len(self.tokens) / max(1, self.iterations)

    def plain(self) -> Dict[str, Any]:
        """The same in types that JSON has.

        Returns:
            ``text``, ``score``, ``pieces`` (a list), ``token_scores`` (a list that has the end of
            the sentence too), ``iterations``, ``accepted_tokens``, ``seconds``, ``nbest``, and
            ``alignment`` where there is one.
        """
        aligned = {} if self.alignment is None else {"alignment": [*map(list, self.alignment)]}
        return {
            "text": self.text,
            "score": self.score,
            "pieces": self.pieces.split(),
            "token_scores": self.positional_scores.tolist(),
            "iterations": self.iterations,
            "accepted_tokens": self.accepted_tokens,
            "seconds": self.seconds,
            "nbest": [each.plain() for each in self.nbest],
            **aligned,
        }
