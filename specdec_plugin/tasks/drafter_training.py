"""The common base of the tasks that train drafters and proposal heads."""

from typing import Any, Dict

from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ..fairseq_compat.autocast import AutocastMixin
from ..fairseq_compat.pairing import check_resumed


class DrafterTrainingTask(AutocastMixin, TranslationTask):
    """fairseq's translation task, which gives the criterion the number of updates.

    Attributes:
        updates: number of updates so far.
        fingerprints: those of the model when it was built.
    """

    def __init__(self, cfg: Any, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.updates = 0
        self.fingerprints: Dict[str, Tensor] = {}

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Check that a loaded checkpoint matches the model.

        Raises:
            PluginError: the checkpoint belongs to another model or other dictionaries.
                (While fairseq loads it, the message would be lost in a traceback.)
        """
        check_resumed(self.fingerprints, model.fingerprints())
        super().begin_epoch(epoch, model)

    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        **kwargs: Any,
    ) -> Any:
        """Record the update; see :meth:`fairseq.tasks.FairseqTask.train_step`."""
        self.updates = update_num
        return super().train_step(sample, model, criterion, optimizer, update_num, **kwargs)
