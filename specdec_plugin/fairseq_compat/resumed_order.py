"""Batches of a resumed training are those of one that nobody interrupted.

fairseq orders sentences of equal length at random, by the seed and the epoch in which a process
first asks for batches. All later epochs take the same batches. So a process that resumes in epoch
5 would train on other batches than one that began in epoch 1.
"""

from typing import Any

from fairseq.tasks import FairseqTask


class ResumedOrderMixin(FairseqTask):
    """A task whose batches are always made as in the first epoch, where all epochs share them."""

    def get_batch_iterator(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Like fairseq's."""
        renewed = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        if "epoch" in kwargs and not renewed and self.can_reuse_epoch_itr(dataset):
            kwargs["epoch"] = 1  # fairseq tells the iterator the present one afterwards
        return super().get_batch_iterator(dataset, *args, **kwargs)
