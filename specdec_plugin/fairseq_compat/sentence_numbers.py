"""The number of each sentence in its corpus, and the seed: what samples are drawn from.

fairseq-generate tells a generator the numbers, as ``sample["id"]``. fairseq-interactive keeps them
to itself, and counts from 0 in each buffer. So the task notes the numbers of the batch that was
last handed out. That one is decoded before the next one is asked for.
"""

from dataclasses import dataclass
from typing import Any, Iterator, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor

from .options import task_options

#: fairseq's own, where ``--seed`` is not typed.
DEFAULT_SEED = 1


@dataclass
class SeedConfig(FairseqDataclass):
    """Lets a task read ``--seed``, which fairseq keeps among its common options."""

    seed: int = II("common.seed")


def seed_of(task: Any, options: Any) -> int:
    """The seed: ``seed`` of the search, which fairseq's hub passes on, else that of the task.

    Args:
        task: fairseq's task.
        options: fairseq's generation options.
    """
    seed = getattr(options, "seed", None)
    if seed is None:
        seed = getattr(task_options(task), "seed", None)
    # Where a program makes the configuration, fairseq's reference to the common options stays.
    return DEFAULT_SEED if seed is None or isinstance(seed, str) else int(seed)


class SentenceNumbersMixin(FairseqTask):
    """A translation task, legacy or not, that tells generators the numbers of sentences."""

    _handed_out: Optional[Tensor] = None

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Like fairseq's; of lines that are read in parts, the batches' numbers are noted."""
        iterator = super().get_batch_iterator(dataset, *args, **kwargs)
        before = getattr(dataset, "lines_before", None)
        if before is not None:
            make = iterator.next_epoch_itr

            def next_epoch_itr(*args: Any, **kwargs: Any) -> Iterator[Any]:
                return self._noted(make(*args, **kwargs), before)

            iterator.next_epoch_itr = next_epoch_itr
        return iterator

    def _noted(self, batches: Any, before: int) -> Iterator[Any]:
        for batch in batches:
            self._handed_out = batch["id"] + before
            yield batch

    def inference_step(
        self, generator: Any, models: Any, sample: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Like fairseq's; a batch without numbers gets those that were noted."""
        if "id" not in sample and self._handed_out is not None:
            sample = {**sample, "id": self._handed_out}
        return super().inference_step(generator, models, sample, *args, **kwargs)
