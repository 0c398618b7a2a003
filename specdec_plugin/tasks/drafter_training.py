"""What the tasks that train drafters and proposal heads have in common."""

from typing import Any, ClassVar, Dict

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from torch import Tensor

from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastMixin
from ..fairseq_compat.dictionaries import DictionaryMixin
from ..fairseq_compat.interrupts import end_in_a_line
from ..fairseq_compat.options import add_legacy_options, task_options
from ..fairseq_compat.pairing import check_resumed, explain_loading, load_model
from ..fairseq_compat.resumed_order import ResumedOrderMixin
from ..fairseq_compat.splits import SplitMixin
from ..fairseq_compat.training_options import check_training, check_training_when_parsed
from ..models.roles import check_whole_model
from .validation import check_bleu

#: What Ctrl-C means for a training.
_RESUMES = "the same command resumes from the last checkpoint, if there is one."


class DrafterTrainingMixin(
    ResumedOrderMixin, AutocastMixin, DictionaryMixin, SplitMixin, FairseqTask
):
    """A fairseq task, legacy or not, which gives the criterion the number of updates.

    Sources and targets are those of the task. So a drafter learns them with the symbols of
    languages at the positions where the task's decoding has them.

    Attributes:
        Options: a dataclass: the options that the training adds to those of fairseq's task.
        criterion: that trains the models, by its name.
        updates: number of updates so far.
        trains: whether the model is built to be trained, not to be validated.
        fingerprints: those of the model when it was built.
    """

    Options: ClassVar[FairseqDataclass]
    criterion: ClassVar[str]
    updates: int = 0
    trains: bool = False
    fingerprints: Dict[str, Tensor]

    @property
    def name(self) -> str:
        """The value of ``--task``."""
        return next(name for name, task in TASK_REGISTRY.items() if task is type(self))

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the task's options to the parser."""
        super().add_args(parser)
        add_legacy_options(cls, parser, cls.Options)
        check_training_when_parsed(parser, check_bleu)

    def load(self, path: str) -> Any:
        """The trained model of a checkpoint with the dictionaries of the task.

        Raises:
            PluginError: it cannot be read, or belongs to other dictionaries.
        """
        return load_model(path, self.source_dictionary, self.target_dictionary)

    def load_whole_model(self, flag: str, path: str) -> Any:
        """:meth:`load` for a file that has to be a whole model.

        Raises:
            PluginError: as for :meth:`load`, or it is a drafter, or heads alone.
        """
        model = self.load(path)
        check_whole_model(model, f"{flag} {path}")
        return model

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model.

        Raises:
            PluginError: targets are padded on the left, or BLEU of validations cannot be found.
        """
        if str(getattr(task_options(self), "left_pad_target", False)) == "True":
            raise PluginError(
                "--left-pad-target cannot be kept: blocks are counted from the first token of a "
                "row. Leave it out."
            )
        if not from_checkpoint:
            check_bleu(task_options(self))
        model = super().build_model(cfg, from_checkpoint)
        self.trains = not from_checkpoint
        if self.trains:
            explain_loading(model)
        return model

    def build_criterion(self, *args: Any, **kwargs: Any) -> Any:
        """Build the criterion.

        Raises:
            PluginError: it would not train what the task is for.
        """
        criterion = super().build_criterion(*args, **kwargs)
        if not isinstance(criterion, CRITERION_REGISTRY[self.criterion]):
            raise PluginError(
                f"--task {self.name} trains by --criterion {self.criterion}: give it, or leave "
                "--task out."
            )
        if self.trains:
            check_training(criterion.cfg)
            end_in_a_line(_RESUMES, at_once=False)
        return criterion

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
