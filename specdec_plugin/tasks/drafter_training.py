"""What the tasks that train drafters and proposal heads have in common."""

from typing import Any, Dict

from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ..fairseq_compat.autocast import AutocastMixin
from ..fairseq_compat.pairing import check_resumed


class DrafterTrainingTask(AutocastMixin, TranslationTask):
    """fairseq's translation task, telling the criterion where training stands.

    Attributes:
        updates: how many there were.
        fingerprints: of what the model that was built belongs to.
    """

    def __init__(self, cfg: Any, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.updates = 0
        self.fingerprints: Dict[str, Tensor] = {}

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Check what was loaded.

        Raises:
            PluginError: the checkpoint belongs to another model or other dictionaries.
                (Raised while fairseq loads it, the sentence would be lost in a traceback.)
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
        """Remember the update; see :meth:`fairseq.tasks.FairseqTask.train_step`."""
        self.updates = update_num
        return super().train_step(sample, model, criterion, optimizer, update_num, **kwargs)
