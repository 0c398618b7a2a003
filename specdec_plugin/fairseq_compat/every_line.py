"""A hypothesis for every line: what fairseq would drop or refuse is kept."""

import copy
import logging
from typing import Any

import numpy as np
import torch
from fairseq.data import SampledMultiDataset
from torch import Tensor

logger = logging.getLogger(__name__)


def keep_every_line(
    dataset: Any, max_source: int, max_tokens: Any, ending: int = 1, lines_before: int = 0
) -> Any:
    """A view of a translation data set that fairseq's batching cannot drop sentences from.

    Sources over the limit are cut, with a warning that names the line, counted from
    the first that was read where the data set comes in parts (fairseq-interactive). References
    are only printed and scored in decoding, so their length never counts. A
    sentence longer than ``--max-tokens`` gets a batch of its own.

    Args:
        dataset: fairseq's ``LanguagePairDataset``, or what multilingual tasks wrap it in.
        max_source: source tokens that the models take, those that end a sentence included.
        max_tokens: fairseq's ``--max-tokens``, or None.
        ending: how many tokens end every source, such as the end of sentence.
        lines_before: how many lines were read before the data set; its own attribute of this
            name, if it has that, goes first.

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
    # Of one data set it would give the same batches, but it cannot order sentences
    # without references. Sizes that it remembers are those before.
    return kept[0] if len(kept) == 1 else _changed(dataset, datasets=kept, _sizes=None)


def _keep_every_pair(
    dataset: Any, max_source: int, max_tokens: Any, ending: int, lines_before: int
) -> Any:
    """The same for a ``LanguagePairDataset``."""
    sizes = np.asarray(dataset.src_sizes)
    too_long = np.flatnonzero(sizes > max_source)
    for line in too_long:
        logger.warning(
            f"line {lines_before + line + 1}: the source has {sizes[line]:,} tokens and the model "
            f"takes {max_source:,}; the rest is cut off. Split the line to translate all of it."
        )
    room = max_source if max_tokens is None else min(max_source, max_tokens)
    references = dataset.tgt_sizes is not None
    target_sizes = np.asarray(dataset.tgt_sizes) if references else np.zeros_like(sizes)
    if not bool((np.maximum(sizes, target_sizes) > room).any()):
        return dataset
    # Sizes only decide order and batching; what is longer counts as what fits a batch.
    source_sizes, target_sizes = np.minimum(sizes, room), np.minimum(target_sizes, room)
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

    Unlike fairseq's ``TruncateDataset`` it takes a plain list too, which is what
    fairseq-interactive gives.
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
