"""The sentences that are drawn, from a text or from a binarised split."""

import argparse
from typing import Any, Iterator, List, NamedTuple, Sequence

from fairseq import utils

from ...api import Session
from ...errors import PluginError
from ...textfiles import read_lines


class Sentence(NamedTuple):
    """One sentence.

    Attributes:
        number: as after ``S-`` in fairseq's output.
        batch: fairseq's batch of it alone.
    """

    number: int
    batch: Any

    @property
    def source(self) -> List[Any]:
        """The indices of its source; of speech, the features of each frame."""
        tokens: List[Any] = self.batch["net_input"]["src_tokens"][0].tolist()
        return tokens


def read_sentences(session: Session, options: argparse.Namespace) -> List[Sentence]:
    """All sentences that the command line names, in its order.

    Raises:
        PluginError: a file, a split or a sentence is missing, or a sentence is too long.
    """
    if options.input is not None:
        lines = list(read_lines(options.input))
        if not lines:
            raise PluginError("There is nothing to translate. Give a sentence a line.")
        pieces = lines if options.sentencepiece is None else session.pieces(lines)
        dataset = session.dataset(pieces)
        numbers: Sequence[int] = range(len(lines))
    else:
        dataset = session.split(options.gen_subset)
        numbers = options.ids
        _check_numbers(numbers, len(dataset), options.gen_subset)
    return list(_batches(session, dataset, numbers))


def _check_numbers(numbers: Sequence[int], size: int, subset: str) -> None:
    for number in numbers:
        if not 0 <= number < size:
            raise PluginError(
                f"--ids {number}: the split {subset} has the sentences 0 to {size - 1:,}. "
                "Give numbers of those."
            )


def _batches(session: Session, dataset: Any, numbers: Sequence[int]) -> Iterator[Sentence]:
    limits = [session.task.max_positions(), *(model.max_positions() for model in session.models)]
    room, _ = utils.resolve_max_positions(*limits)
    for number in numbers:
        batch = dataset.collater([dataset[number]])
        length = int(batch["net_input"]["src_lengths"][0])
        if length > room:
            raise PluginError(
                f"Sentence {number} has {length:,} tokens, its end included, and the model takes "
                f"{room:,}. Split it, or leave it out."
            )
        yield Sentence(number, batch)
