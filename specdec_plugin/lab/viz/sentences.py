"""The sentences that are drawn, from a text or from a binarised split."""

import argparse
import os
from typing import Any, Iterator, List, NamedTuple, Sequence

import sentencepiece
from fairseq import utils

from ...cli.demo import sentences_of
from ...errors import PluginError
from ..bench.methods import Session


class Sentence(NamedTuple):
    """One sentence.

    Attributes:
        number: as after ``S-`` in fairseq's output.
        batch: fairseq's batch of it alone.
    """

    number: int
    batch: Any

    @property
    def source(self) -> List[int]:
        """The indices of its source."""
        tokens: List[int] = self.batch["net_input"]["src_tokens"][0].tolist()
        return tokens


def read_sentences(session: Session, options: argparse.Namespace) -> List[Sentence]:
    """All sentences that the command line names, in its order.

    Raises:
        PluginError: a file, a split or a sentence is missing, or a sentence is too long.
    """
    if options.input is not None:
        lines = sentences_of(options.input)
        dataset = _dataset_of(session, _pieces(lines, options.sentencepiece))
        numbers: Sequence[int] = range(len(lines))
    else:
        dataset = _split(session, options.subset)
        numbers = options.ids
        _check_numbers(numbers, len(dataset), options.subset)
    return list(_batches(session, dataset, numbers))


def _pieces(lines: Sequence[str], model: Any) -> List[str]:
    if model is None:
        return list(lines)
    if not os.path.isfile(model):
        raise PluginError(f"--sentencepiece {model} is not a file. Check the path.")
    try:
        splitter = sentencepiece.SentencePieceProcessor(model_file=model)
    except (OSError, RuntimeError) as error:
        raise PluginError(
            f"--sentencepiece {model} is not a SentencePiece model. Give the one that the data was "
            "split with."
        ) from error
    return [" ".join(splitter.encode(line, out_type=str)) for line in lines]


def _dataset_of(session: Session, lines: Sequence[str]) -> Any:
    dictionary = session.task.source_dictionary
    encoded = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in lines]
    return session.task.build_dataset_for_inference(encoded, [len(each) for each in encoded])


def _split(session: Session, subset: str) -> Any:
    try:
        session.task.load_dataset(subset)
    except FileNotFoundError as error:
        raise PluginError(
            f"{error}. Name a folder that fairseq-preprocess wrote, and a split of it, or give "
            "--input."
        ) from error
    return session.task.dataset(subset)


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
        length = int(dataset.src_sizes[number])
        if length > room:
            raise PluginError(
                f"Sentence {number} has {length:,} tokens, its end included, and the model takes "
                f"{room:,}. Split it, or leave it out."
            )
        yield Sentence(number, dataset.collater([dataset[number]]))
