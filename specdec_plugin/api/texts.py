"""Lines of text as fairseq's batches, and its hypotheses as text."""

import functools
import logging
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch
from fairseq import utils
from fairseq.token_generation_constraints import pack_constraints
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..errors import PluginError
from ..fairseq_compat.quiet import without_notes
from ..subwords import Subwords, check_pieces, joined, of_target
from .arguments import check_lines, check_text, check_type
from .hypothesis import Hypothesis

logger = logging.getLogger(__name__)


class Texts:
    """What the models of a session read, and what they write.

    Args:
        task: fairseq's task, which has the dictionaries.
        models: those in ``--path``; they limit the lengths of sentences.
        subwords: splits raw text into pieces and joins them again; None where there is no raw text.
    """

    def __init__(
        self, task: Any, models: Sequence[Any], subwords: Optional[Subwords] = None
    ) -> None:
        self.task = task
        self.models = models
        self.subwords = subwords

    def dataset(
        self, lines: Sequence[str], first: int = 0, phrases: Optional[Tensor] = None
    ) -> Any:
        """fairseq's data set of lines of subword pieces, with spaces between the pieces.

        Args:
            lines: for a model of speech, paths of sounds.
            first: lines before them, which warnings count.
            phrases: (lines, width) of :meth:`phrases`; None: none.
        """
        check_lines(lines)
        lines = list(lines)
        for line in lines:
            check_type(line, str, os.PathLike)
        tokens, lengths = self.task.get_interactive_tokens_and_lengths(lines, str)
        dataset = self.task.build_dataset_for_inference(tokens, lengths, phrases)
        dataset.lines_before = first  # of this call, where the task counts those of all calls
        return dataset

    def split(self, subset: str) -> Any:
        """fairseq's data set of a binarised split.

        Raises:
            PluginError: the data folder has no such split.
        """
        self.task.load_dataset(subset)
        return self.task.dataset(subset)

    def iterator(
        self,
        dataset: Any,
        batch_size: Optional[int],
        max_tokens: Optional[int] = None,
        seed: int = 1,
    ) -> Any:
        """fairseq's iterator over batches: similar lengths together, each sentence once.

        Args:
            dataset: fairseq's.
            batch_size: the most sentences of a batch; None: any number.
            max_tokens: the most tokens of its sources, or targets, padding included; likewise.
            seed: of the order of batches, where they are shuffled.
        """
        with without_notes():
            return self.task.get_batch_iterator(
                dataset,
                max_tokens,
                batch_size,
                self._max_positions(),
                seed=seed,
                disable_iterator_cache=True,  # else the first batch size is kept
            )

    def batches(
        self,
        dataset: Any,
        batch_size: int,
        alike: Optional[Callable[[int], Any]] = None,
    ) -> List[Any]:
        """fairseq's batches of a data set, in memory.

        Args:
            dataset: fairseq's.
            batch_size: the most sentences of a batch.
            alike: sentences for whose numbers it gives different answers share no batch; None: all
                may share one.
        """
        # fairseq's loop over an iterator asks for pinned memory, and PyTorch warns without a GPU.
        batched = self.iterator(dataset, batch_size)
        lines = batched.dataset
        chosen = batched.frozen_batches
        if alike is not None:
            chosen = [part for numbers in chosen for part in _parts(numbers, alike)]
        return [batched.collate_fn([lines[number] for number in numbers]) for numbers in chosen]

    def batch(self, pieces: Sequence[str], phrases: Optional[Tensor] = None) -> Any:
        """One of fairseq's batches, of a few lines of subword pieces.

        It is made in a fraction of the time of :meth:`batches`.

        Args:
            pieces: none of the lines has more tokens than :attr:`room`.
            phrases: (lines, width) of :meth:`phrases`; None: none.
        """
        dataset = self.dataset(pieces, phrases=phrases)
        return dataset.collater([dataset[number] for number in range(len(pieces))])

    def length(self, pieces: str) -> int:
        """Tokens of a line of subword pieces, with the symbols that the task adds."""
        return len(self.dataset([pieces])[0]["source"])

    def pieces(self, lines: Sequence[str]) -> List[str]:
        """Raw lines of sources as subword pieces with spaces between them.

        Raises:
            PluginError: the session has no subword model, or a line is no text.
        """
        return _pieces(self.subwords, lines)

    def is_blank(self, line: str) -> bool:
        """Whether a raw line has no words: white space, or what the subword model leaves out."""
        if any(map(str.isalnum, line)):  # which most lines have; pieces take longer
            return False
        return not line.strip() or not any(self.pieces([line]))

    def target_pieces(self, lines: Sequence[str]) -> List[str]:
        """The same for raw lines of targets.

        Raises:
            PluginError: likewise; or the subword model is that of sources alone.
        """
        return _pieces(self._of_target, lines)

    @functools.cached_property
    def _of_target(self) -> Optional[Subwords]:
        """What splits targets, which has their pieces."""
        if self.subwords is None:
            return None
        found, symbols = of_target(self.subwords), self.task.target_dictionary
        if hasattr(found, "is_control"):  # SentencePiece's, which may be that of sources alone
            check_pieces(found, "The subword model", symbols.symbols[symbols.nspecial :], "target")
        return found

    def phrases(self, phrases: Sequence[Sequence[str]]) -> Tensor:
        """What the output of each line must contain, (lines, width), as fairseq packs it.

        Args:
            phrases: raw text, a list for each line.

        Raises:
            PluginError: the model has no symbols for a part of a phrase.
        """
        check_lines(phrases)
        return pack_constraints([self._phrases(each) for each in phrases])

    def _phrases(self, phrases: Sequence[str]) -> List[Tensor]:
        """The symbols of each of these phrases, (symbols,) long."""
        symbols = self.task.target_dictionary
        found = []
        barred = {symbols.bos(), symbols.eos(), symbols.pad(), symbols.unk()}
        for phrase, pieces in zip(phrases, self.target_pieces(phrases)):
            line = self._encoded(pieces)
            if len(line) == 0 or barred.intersection(line.tolist()):
                raise PluginError(
                    f"The phrase {phrase!r} is {pieces!r} in subword pieces, which the target "
                    "dictionary does not have. Leave it out, or write it otherwise."
                )
            found.append(line)
        return found

    def prefixes(self, prefixes: Sequence[str], first: int = 0) -> List[Tensor]:
        """The symbols with which the output of each line begins, (symbols,) long.

        Args:
            prefixes: subword pieces, with spaces between them. Unknown ones make unknown words,
                with a warning.
            first: lines before them, which messages count.

        Raises:
            PluginError: a prefix ends the sentence.
        """
        (before, after), words = self._around(), self.task.target_dictionary
        found = []
        for number, pieces in enumerate(prefixes, first + 1):
            line = self._symbols(pieces, after, f"The prefix of line {number:,}")
            if words.unk() in line:
                logger.warning(
                    f"line {number:,}: the prefix has symbols that are unknown to the target "
                    "dictionary, so that the output has unknown words."
                )
            found.append(torch.cat([before, line]))
        return found

    def targets(self, translations: Sequence[str], first: int = 0) -> List[Tensor]:
        """All symbols of given outputs, (symbols,) long, as in the data of the training.

        Args:
            translations: subword pieces, with spaces between them. One that is longer than the
                models take is cut, with a warning.
            first: lines before them, which messages count.

        Raises:
            PluginError: an end of sentence stands within a translation.
        """
        (before, after), most = self._around(), int(self._max_positions()[1])
        room = most - len(before) - len(after)
        found = []
        for number, pieces in enumerate(translations, first + 1):
            line = self._symbols(pieces, after, f"The translation of line {number:,}")
            if len(line) > room:
                logger.warning(
                    f"line {number:,}: the translation has {len(line):,} symbols and the model "
                    f"takes {room:,}; the score is that of its beginning."
                )
            found.append(torch.cat([before, line[:room], after]))
        return found

    def padded(self, rows: Sequence[Tensor]) -> Tensor:
        """(rows, width) of symbols, padded on the right."""
        pad = self.task.target_dictionary.pad()
        return pad_sequence(list(rows), batch_first=True, padding_value=pad)

    def _symbols(self, pieces: str, after: Tensor, name: str) -> Tensor:
        """(symbols,) of pieces of the target, without those that the task adds.

        Args:
            pieces: with spaces between them.
            after: the symbols behind the words of each output.
            name: of the pieces, in a message.
        """
        line = self._encoded(pieces)
        if after[-1] in line or self.task.target_dictionary.pad() in line:
            raise PluginError(
                f"{name} has a symbol that ends or fills sentences within it: {pieces[:60]!r}. "
                "Leave it out."
            )
        return line

    def _encoded(self, pieces: str) -> Tensor:
        check_text(pieces)
        words = self.task.target_dictionary
        line: Tensor = words.encode_line(pieces, add_if_not_exist=False, append_eos=False)
        return line.long()

    def _around(self) -> Tuple[Tensor, Tensor]:
        """The symbols that the task writes before and behind the words of each output."""
        of_task = getattr(self.task, "around_target", None)
        if of_task is None:
            return torch.empty(0).long(), torch.tensor([self.task.target_dictionary.eos()])
        before, after = of_task()
        return torch.tensor(before).long(), torch.tensor(after)

    @property
    def room(self) -> int:
        """The most tokens of a source, its end included; of more, the first ones are decoded."""
        return int(self._max_positions()[0])

    def _max_positions(self) -> Any:
        """The most tokens of a source and a target that the task and every model take."""
        limits = [self.task.max_positions(), *(model.max_positions() for model in self.models)]
        return utils.resolve_max_positions(*limits)

    def printed(self, generator: Any, tokens: Any, post_process: Optional[str] = None) -> str:
        """What fairseq's programs print: neither ends of sentences nor symbols of languages.

        Args:
            generator: whose hypothesis it is.
            tokens: (length,) of a hypothesis.
            post_process: of subwords, as ``--post-process``.
        """
        ignored, dictionary = self.left_out(generator), self.task.target_dictionary
        return str(dictionary.string(tokens, post_process, extra_symbols_to_ignore=ignored))

    def left_out(self, generator: Any) -> Set[int]:
        """Symbols of a generator's hypotheses that are not printed."""
        of_direction = getattr(self.task, "left_out", None)
        if generator is None or of_direction is None:
            return {*getattr(generator, "symbols_to_strip_from_output", ())}
        return {*of_direction(generator)}

    def hypothesis(self, found: Dict[str, Any], generator: Any = None) -> Hypothesis:
        """One of fairseq's hypotheses, with its text; see :meth:`printed`."""
        pieces = self.printed(generator, found["tokens"])
        text = pieces if self.subwords is None else joined(self.subwords, pieces.split())
        # Copies: they are views of tables of their whole batch, which they would keep.
        scores = found["positional_scores"].to("cpu", copy=True)
        tokens, score = found["tokens"].to("cpu", copy=True), float(found["score"])
        made = Hypothesis(tokens, score, scores, found.get("steps"), pieces, text)
        rows = found.get("alignment")  # fairseq's: pairs, or rows of printed numbers, or a tensor
        if rows is None or isinstance(rows, Tensor):
            return made
        return made._replace(alignment=tuple(tuple(map(_number, row)) for row in rows))


def _pieces(subwords: Optional[Subwords], lines: Sequence[str]) -> List[str]:
    """Raw lines as subword pieces with spaces between them."""
    check_lines(lines)
    lines = list(lines)
    for line in lines:
        check_text(line)
    if subwords is None:
        raise PluginError(
            "Raw text needs a subword model: give subwords='spm.model' when loading, or "
            "translate lines of subword pieces with translate_pieces."
        )
    return [" ".join(subwords.encode(line, out_type=str)) for line in lines]


def _parts(numbers: Iterable[int], alike: Callable[[int], Any]) -> List[List[int]]:
    """Numbers of the same answer together, in their order."""
    parts: Dict[Any, List[int]] = {}
    for number in numbers:
        parts.setdefault(alike(number), []).append(number)
    return list(parts.values())


def _number(each: Any) -> float:
    """A position, or a probability that fairseq has printed."""
    return float(each) if isinstance(each, str) else each
