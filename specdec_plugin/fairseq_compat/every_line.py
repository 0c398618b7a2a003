"""A hypothesis for every line, of those too that fairseq would drop or refuse."""

import copy
import logging
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import SampledMultiDataset
from fairseq.tasks import FairseqTask
from fairseq.token_generation_constraints import unpack_constraints
from torch import Tensor

from ..errors import PluginError
from .options import task_options
from .shards import batches_of_shard, shard_of
from .strategies import without_empty
from .workers import fork_workers

logger = logging.getLogger(__name__)

#: Symbols of which most have to be unknown for a warning, as a name or two may be; and how many are
#: looked at.
_FEW, _ENOUGH = 4, 1000


class EveryLineMixin(FairseqTask):
    """A translation task, legacy or not, that decodes a hypothesis for every line."""

    #: Whether losses are computed: by fairseq-train and its validation, and fairseq-validate.
    _measures_loss = False
    #: Lines that :meth:`build_dataset_for_inference` was given so far.
    _lines_given = 0
    #: Symbols of these lines without their ends, and those that are unknown.
    _symbols_given = _unknown_given = 0
    #: Whether a warning has told that most are unknown.
    _told_unknown = False
    #: Whether a warning has told that no line is left out.
    _told_kept = False
    #: Tokens at the end of every source, which stay when it is cut.
    _source_ending = 1

    def build_criterion(self, *args: Any, **kwargs: Any) -> Any:
        """Remember it: only training and validation build a criterion. They fork their workers."""
        self._measures_loss = True
        fork_workers()
        return super().build_criterion(*args, **kwargs)

    def build_dataset_for_inference(
        self, src_tokens: Any, src_lengths: Any, constraints: Optional[Tensor] = None
    ) -> Any:
        """Count the lines, of which fairseq-interactive gives a buffer at a time, and their tokens.

        fairseq's multilingual tasks add a language symbol to each source, but do not count it. A
        source could then be longer than the model takes. They also refuse constraints.

        Args:
            src_tokens: lines, or sounds.
            src_lengths: of each.
            constraints: (lines, width) phrases that each output must contain, packed.

        Raises:
            PluginError: sounds have constraints, or a phrase cannot be in an output.
        """
        dataset = super().build_dataset_for_inference(src_tokens, src_lengths)
        pairs = getattr(dataset, "dataset", dataset)
        if constraints is not None:
            if not hasattr(pairs, "src"):
                raise PluginError(
                    "--constraints follow a line of text, and the source is speech: leave it out."
                )
            self._check_phrases(constraints)
            pairs.constraints = without_empty(constraints)
        if hasattr(pairs, "src"):  # or else it is speech, to which nothing is added
            self._warn_if_unknown(src_tokens)
            sources = (pairs.src[line] for line in range(len(pairs.src)))
            pairs.src_sizes = pairs.sizes = np.array([len(source) for source in sources])
        dataset.lines_before = self._lines_given
        self._lines_given += len(src_tokens)
        return dataset

    def _warn_if_unknown(self, lines: Any) -> None:
        """Tell once that raw text stands where pieces should."""
        words = self.source_dictionary
        for line in lines if self._symbols_given < _ENOUGH else ():
            self._symbols_given += int((line != words.eos()).sum())
            self._unknown_given += int((line == words.unk()).sum())
        most = 2 * self._unknown_given > self._symbols_given >= _FEW
        if most and not self._told_unknown:
            self._told_unknown = True
            logger.warning(
                f"{self._unknown_given:,} of {self._symbols_given:,} symbols of the source are "
                "unknown to its dictionary. If the lines are raw text, name the subword model that "
                "the data were split with (--bpe; in Python subwords=). Else give pieces of it."
            )

    def _check_phrases(self, constraints: Tensor) -> None:
        """Refuse symbols that no output contains, and tell which lines want unknown ones."""
        words, symbols = self.target_dictionary, constraints[:, 1:]
        barred = ((symbols == words.eos()) | (symbols == words.pad())).any(1)
        for line, row in enumerate(constraints):
            # The first symbol of a dictionary stands between phrases.
            kept = sum(len(phrase) for phrase in unpack_constraints(row))
            if barred[line] or kept < int((row[1:] != 0).sum()):
                raise PluginError(
                    f"line {self._lines_given + line + 1}: a phrase of --constraints has a symbol "
                    "that no output contains, such as </s>: leave it out."
                )
        unknown = (symbols == words.unk()).any(1)
        for line in unknown.nonzero().flatten().tolist():
            logger.warning(
                f"line {self._lines_given + line + 1}: a phrase of --constraints has symbols that "
                "are unknown to the target dictionary, so that the output has unknown words."
            )

    def can_reuse_epoch_itr(self, dataset: Any) -> bool:
        """Whether fairseq keeps the batches of a data set, and with them the data set, for ever.

        It would keep every line that fairseq-interactive is given.
        """
        given = hasattr(dataset, "lines_before")
        return not given and bool(super().can_reuse_epoch_itr(dataset))

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        **kwargs: Any,
    ) -> Any:
        """Like fairseq's, but in generation no sentence of any subset is dropped.

        fairseq drops the last batch when its size is no multiple of
        ``--required-batch-size-multiple``, and raises for sentences over the limit. Where losses
        are computed, both stay, because the model has to read whole references then.
        With ``--num-shards`` every sentence is in one shard.

        Raises:
            PluginError: ``--num-batch-buckets`` is given without ``--max-tokens``.
        """
        if max_tokens is None and dataset.get_batch_shapes() is not None:
            raise PluginError(
                "--num-batch-buckets makes batches of as many tokens as --max-tokens tells: give "
                "it too, or leave --num-batch-buckets out."
            )
        if not self._measures_loss:
            if ignore_invalid_inputs and not self._told_kept:
                self._told_kept = True
                logger.warning(
                    "--skip-invalid-size-inputs-valid-test leaves out no line here: each has a "
                    "hypothesis, and what is longer than the model takes is cut."
                )
            source_limit = _source_limit(max_positions)
            dataset = keep_every_line(dataset, source_limit, max_tokens, self._source_ending)
            dataset = batches_of_shard(dataset, *shard_of(task_options(self)))
            max_positions, required_batch_size_multiple = None, 1
        batches = super().get_batch_iterator(
            dataset,
            max_tokens,
            max_sentences,
            max_positions,
            ignore_invalid_inputs,
            required_batch_size_multiple,
            **kwargs,
        )
        if not self._measures_loss:
            # With --sampling-method RoundRobin, a multilingual task keeps it whatever it is told.
            self.dataset_to_epoch_iter.pop(dataset, None)
        return batches


def _source_limit(max_positions: Any) -> int:
    """The source's part of fairseq's ``max_positions``: a number, a pair, or None."""
    first = max_positions[0] if isinstance(max_positions, (tuple, list)) else max_positions
    return int(1e9) if first is None else int(first)


def keep_every_line(
    dataset: Any, max_source: int, max_tokens: Any, ending: int = 1, lines_before: int = 0
) -> Any:
    """A view of a translation data set that fairseq's batching cannot drop sentences from.

    Sources over the limit are cut, with a warning that names the line. Where the data set comes in
    parts (fairseq-interactive), lines are counted from the first that was read. References are only
    printed and scored in decoding, so their length never counts. A sentence longer than
    ``--max-tokens`` gets a batch of its own.

    Args:
        dataset: fairseq's ``LanguagePairDataset``, or what multilingual tasks wrap it in.
        max_source: source tokens that the models take, those that end a sentence included.
        max_tokens: fairseq's ``--max-tokens``, or None.
        ending: how many tokens end every source, such as the end of sentence.
        lines_before: how many lines were read before the data set, unless it has an attribute of
            this name.

    Returns:
        ``dataset`` itself if it needs no change.
    """
    rest = (max_source, max_tokens, ending, getattr(dataset, "lines_before", lines_before))
    if hasattr(dataset, "dataset"):  # TransformEosLangPairDataset
        return _changed(dataset, dataset=keep_every_line(dataset.dataset, *rest))
    if not hasattr(dataset, "datasets"):
        return _keep_every_pair(dataset, *rest)
    kept = [keep_every_line(each, *rest) for each in dataset.datasets]
    if not isinstance(dataset, SampledMultiDataset):  # ConcatDataset
        return _changed(dataset, datasets=kept)
    # For one data set its batches are the same, but it cannot order sentences without references.
    # It remembers the sizes from before.
    return kept[0] if len(kept) == 1 else _changed(dataset, datasets=kept, _sizes=None)


def _keep_every_pair(
    dataset: Any, max_source: int, max_tokens: Any, ending: int, lines_before: int
) -> Any:
    """The same for a ``LanguagePairDataset``; speech is never cut."""
    if not hasattr(dataset, "src_sizes"):
        return dataset
    sizes = np.asarray(dataset.src_sizes)
    too_long = np.flatnonzero(sizes > max_source)
    for line in too_long:
        logger.warning(
            f"line {lines_before + line + 1}: the source has {sizes[line]:,} tokens and the model "
            f"takes {max_source:,}; the rest is cut off. Split the line to translate all of it."
        )
    room = np.iinfo(np.int32).max if max_tokens is None else max_tokens
    references = dataset.tgt_sizes is not None
    target_sizes = np.asarray(dataset.tgt_sizes) if references else np.zeros_like(sizes)
    if too_long.size == 0 and not bool((np.maximum(sizes, target_sizes) > room).any()):
        return dataset
    # Sizes only decide order and batching; a longer sentence counts as one that fits a batch.
    source_sizes = np.minimum(sizes, min(max_source, room))
    target_sizes = np.minimum(target_sizes, room)
    return _changed(
        dataset,
        src=CutSentences(dataset.src, max_source, ending) if too_long.size > 0 else dataset.src,
        src_sizes=source_sizes,
        tgt_sizes=target_sizes if references else None,
        sizes=np.stack([source_sizes, target_sizes], 1) if references else source_sizes,
    )


def _changed(dataset: Any, /, **attributes: Any) -> Any:
    """A copy with other attributes."""
    view = copy.copy(dataset)
    for name, value in attributes.items():
        setattr(view, name, value)
    return view


class CutSentences:
    """Sentences of at most ``limit`` tokens; the last ``ending`` tokens of each stay.

    Unlike fairseq's ``TruncateDataset`` it takes a plain list too, as fairseq-interactive gives.
    """

    def __init__(self, sentences: Any, limit: int, ending: int = 1) -> None:
        self.sentences = sentences
        self.limit = limit
        self.ending = min(ending, limit)

    def __getitem__(self, index: int) -> Tensor:
        tokens = self.sentences[index]
        if len(tokens) <= self.limit:
            return tokens
        return torch.cat([tokens[: self.limit - self.ending], tokens[-self.ending :]])

    def __len__(self) -> int:
        return len(self.sentences)
