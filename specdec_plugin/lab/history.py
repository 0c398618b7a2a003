"""What ``--retain-iter-history`` keeps of a sentence: the draft and the added tokens, in turn."""

from typing import Any, List, NamedTuple, Sequence

from torch import Tensor


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The first index where two sequences differ; the shorter length if there is none."""
    pairs = enumerate(zip(one, other))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def count_kept(draft: Sequence[int], added: Sequence[int]) -> int:
    """How many drafted tokens stand: those that begin what was added.

    Where the verifier rejects a token, its own differs from it, so no other token can
    lengthen the common beginning.
    """
    return first_difference(draft, added)


class Step(NamedTuple):
    """One iteration of one sentence.

    Attributes:
        draft: the drafted tokens.
        added: what was added to the output: the drafted tokens that stand, then the
            verifier's own, unless a drafted end of sentence stands.
    """

    draft: List[int]
    added: List[int]

    @property
    def kept(self) -> int:
        """Drafted tokens that stand."""
        return count_kept(self.draft, self.added)


def steps_of(history: Sequence[Tensor]) -> List[Step]:
    """The iterations of a sentence.

    Args:
        history: (drafted,) and (added,) tokens of each iteration in turn, as
            :meth:`..decoding.loop.DecodingLoop.decode` gives them.
    """
    tokens = [each.tolist() for each in history]
    return [Step(draft, added) for draft, added in zip(tokens[::2], tokens[1::2])]
