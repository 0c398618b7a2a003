"""A hypothesis for every line: what fairseq would drop or refuse is kept."""

import copy
import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

logger = logging.getLogger(__name__)


def keep_every_line(dataset: Any, max_source: int, max_tokens: Any) -> Any:
    """A view of a translation data set that fairseq's batching cannot drop sentences from.

    Sources over the limit are cut, with a warning that names the line, counted from
    the first that was read where the data set comes in parts (fairseq-interactive). References
    are only printed and scored in decoding, so their length never counts. A
    sentence longer than ``--max-tokens`` gets a batch of its own.

    Args:
        dataset: fairseq's ``LanguagePairDataset``; ``lines_before``, if it has that,
            is how many lines were read before it.
        max_source: source tokens that the models take, the end of sentence included.
        max_tokens: fairseq's ``--max-tokens``, or None.

    Returns:
        ``dataset`` itself if it needs no change.
    """
    sizes = np.asarray(dataset.src_sizes)
    too_long = np.flatnonzero(sizes > max_source)
    before = getattr(dataset, "lines_before", 0)
    for line in too_long:
        logger.warning(
            f"line {before + line + 1}: the source has {sizes[line]:,} tokens and the model "
            f"takes {max_source:,}; the rest is cut off. Split the line to translate all of it."
        )
    room = max_source if max_tokens is None else min(max_source, max_tokens)
    target_sizes = None if dataset.tgt_sizes is None else np.asarray(dataset.tgt_sizes)
    long_targets = target_sizes is not None and bool((target_sizes > room).any())
    if too_long.size == 0 and not long_targets and not bool((sizes > room).any()):
        return dataset
    view = copy.copy(dataset)
    if too_long.size > 0:
        view.src = CutSentences(dataset.src, max_source)
    # Sizes only decide order and batching; what is longer counts as what fits a batch.
    view.src_sizes = np.minimum(sizes, room)
    if target_sizes is not None:
        view.tgt_sizes = np.minimum(target_sizes, room)
    return view


class CutSentences:
    """Sentences of at most ``limit`` tokens; the last token, the end of sentence, stays.

    Unlike fairseq's ``TruncateDataset`` it takes a plain list too, which is what
    fairseq-interactive gives.
    """

    def __init__(self, sentences: Any, limit: int) -> None:
        self.sentences = sentences
        self.limit = limit

    def __getitem__(self, index: int) -> Tensor:
        tokens = self.sentences[index]
        if len(tokens) <= self.limit:
            return tokens
        return torch.cat([tokens[: self.limit - 1], tokens[-1:]])

    def __len__(self) -> int:
        return len(self.sentences)
