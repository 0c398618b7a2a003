"""The sentences that are checked, in batches."""

import argparse
from typing import Any, List, NamedTuple, Optional, Sequence

from ...api import Session
from ...checksum import checksum
from ...errors import PluginError
from ...textfiles import read_lines
from ..bench.timing import groups_of


class Text(NamedTuple):
    """Sentences in fairseq's batches.

    Attributes:
        items: fairseq's data set.
        groups: the numbers of the sentences of each batch.
    """

    items: Any
    groups: Sequence[Sequence[int]]

    def batch(self, index: int) -> Any:
        """fairseq's batch of a group."""
        return self.items.collater([self.items[number] for number in self.groups[index]])

    def alone(self, number: int) -> Any:
        """fairseq's batch of one sentence."""
        return self.items.collater([self.items[number]])

    def size(self, indices: Sequence[int]) -> int:
        """Sentences of these groups."""
        return sum(len(self.groups[index]) for index in indices)

    def describe(self) -> str:
        """Tells texts and batches apart."""
        numbers = (number for group in self.groups for number in group)
        sources = (self.items[number]["source"].contiguous() for number in numbers)
        found = checksum(source.numpy().tobytes() for source in sources)
        return f"of {len(self.groups):,} batches, {found}"

    def taken(self, sentences: int, size: int) -> Optional[str]:
        """Tells that another number of sentences is checked than ``sentences``; else None.

        Args:
            sentences: that were asked for.
            size: of a batch.
        """
        found = self.size(range(len(self.groups)))
        if found == min(sentences, len(self.items)):
            return None
        return f"{found:,} sentences are checked: --sentences {sentences}, in batches of {size}."


def read_text(session: Session, options: argparse.Namespace) -> Text:
    """What the command line names.

    Raises:
        PluginError: a split, a file or the subword model is missing, or there is no sentence.
    """
    if options.input is None:
        dataset = session.split(options.gen_subset)
    else:
        lines: List[str] = list(read_lines(options.input))
        dataset = session.dataset(session.pieces(lines) if options.sentencepiece else lines)
    if len(dataset) == 0:
        raise PluginError("There is nothing to decode. Give a text with a sentence a line.")
    return Text(*groups_of(session, dataset, options.batch_size, options.sentences))
