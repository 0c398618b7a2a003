"""``--num-shards`` and ``--shard-id``: each of several runs decodes a part of the batches.

fairseq-generate and fairseq-interactive declare both flags and never read them, so that each run
would decode everything.
"""

import copy
import logging
from dataclasses import dataclass
from typing import Any, Tuple

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..errors import PluginError

logger = logging.getLogger(__name__)


@dataclass
class ShardConfig(FairseqDataclass):
    """Lets a task read both flags, which fairseq keeps among the options of the data."""

    num_shards: int = II("dataset.num_shards")
    shard_id: int = II("dataset.shard_id")


def shard_of(options: Any) -> Tuple[int, int]:
    """Which shard is decoded, from 0, and how many there are: the flags among a task's options.

    Raises:
        PluginError: there is no such shard.
    """
    shard, shards = getattr(options, "shard_id", 0), getattr(options, "num_shards", 1)
    if isinstance(shards, str):  # a program made the configuration: fairseq's reference stays
        shard, shards = 0, 1
    if shards < 1:
        raise PluginError(f"--num-shards {shards}: give 1 or more shards.")
    if not 0 <= shard < shards:
        which = "0 is the only one" if shards == 1 else f"give 0 to {shards - 1}"
        raise PluginError(f"--shard-id {shard} is none of --num-shards {shards}: {which}.")
    return shard, shards


def batches_of_shard(dataset: Any, shard: int, shards: int) -> Any:
    """A view of a data set with every ``shards``-th of its batches.

    The batches are those of a run without shards, so that fairseq's options that depend on the
    batch, such as ``--max-len-a``, keep their effect. Sentences keep their numbers. Where the data
    set comes in parts (fairseq-interactive), the parts begin with different shards.
    """
    if shards == 1:
        return dataset
    before = getattr(dataset, "lines_before", None)

    def batch_by_size(*args: Any, **kwargs: Any) -> Any:
        batches = dataset.batch_by_size(*args, **kwargs)
        part = batches[(shard - (before or 0)) % shards :: shards]
        if before is None and len(part) == 0:  # fairseq-generate would divide by no time
            logger.info(f"shard {shard} of {shards} is empty: all data make {len(batches)} batches")
            raise SystemExit(0)
        return part

    view = copy.copy(dataset)
    view.batch_by_size = batch_by_size
    return view
