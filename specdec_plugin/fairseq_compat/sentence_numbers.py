"""The number of each sentence in its corpus, which samples depend on.

fairseq-generate tells a generator the numbers, as ``sample["id"]``. fairseq-interactive keeps them
to itself, and counts from 0 in each buffer. So the task notes the numbers of the batch that was
last handed out. That one is decoded before the next one is asked for.
"""

from typing import Any, Iterator, Optional

from fairseq.search import DiverseBeamSearch
from fairseq.tasks import FairseqTask
from torch import Tensor


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
        """Like fairseq's; a batch without numbers gets those that were noted.

        fairseq's search with diverse beams takes them for rows of the batch, and fails.
        """
        if isinstance(getattr(generator, "search", None), DiverseBeamSearch):
            sample = {name: each for name, each in sample.items() if name != "id"}
        elif "id" not in sample and self._handed_out is not None:
            sample = {**sample, "id": self._handed_out}
        return super().inference_step(generator, models, sample, *args, **kwargs)
