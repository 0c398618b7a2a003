"""``--task block_nat_translation`` and its kin: training of a drafter."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastConfig
from ..fairseq_compat.hydra_train import settle_names
from ..fairseq_compat.options import option, task_options
from ..models.block_nat import BlockNATModel
from ..models.frozen import FrozenEncoder, FrozenVerifier
from .drafter_training import DrafterTrainingMixin
from .speech_to_text import SpeechTrainingTask
from .translation_from_pretrained_bart import PretrainedBARTTask


@dataclass
class DrafterOptions(AutocastConfig, FairseqDataclass):
    """The drafter's verifier and teacher."""

    verifier_path: Optional[str] = option(
        None, "the verifier's checkpoint, whose encoder --share-encoder uses"
    )
    teacher_path: Optional[str] = option(
        None,
        "a model, usually the verifier, whose distributions the drafter learns besides "
        "the target; see --teacher-weight and --teacher-temperature",
    )


class DrafterTask(DrafterTrainingMixin):
    """Trains a drafter, and loads its verifier and teacher."""

    Options, criterion = DrafterOptions(), "glancing_block_loss"
    epoch: int = 1
    teacher: Optional[FrozenVerifier] = None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the drafter, attach a shared encoder, and load the teacher.

        Raises:
            PluginError: the options contradict each other, or the model is no drafter.
        """
        if not from_checkpoint:
            settle_names(cfg, BlockNATModel)
        options = task_options(self)
        if getattr(options, "eval_bleu", False):
            raise PluginError(
                "--eval-bleu would decode with a drafter alone, which translates badly: leave it "
                "out, and choose checkpoints by --best-checkpoint-metric accepted "
                "--maximize-best-checkpoint-metric."
            )
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, BlockNATModel):
            raise PluginError(
                f"--task {self.name} trains drafters, but this model is a "
                f"{type(model).__name__}: add --arch block_nat, or leave --task out."
            )
        verifier: Optional[FrozenVerifier] = None
        if isinstance(model.encoder, FrozenEncoder):
            if options.verifier_path is None:
                raise PluginError(
                    "--share-encoder needs the verifier: add --verifier-path VERIFIER.pt, "
                    "or leave --share-encoder out."
                )
            path = options.verifier_path
            verifier = FrozenVerifier(self.load_whole_model("--verifier-path", path))
            model.attach_encoder(verifier.model.encoder)
        self.fingerprints = model.fingerprints()
        if options.teacher_path is not None:
            path = options.teacher_path
            same = verifier is not None and path == options.verifier_path
            self.teacher = (
                verifier if same else FrozenVerifier(self.load_whole_model("--teacher-path", path))
            )
        return model

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Record the epoch, as each epoch hides other blocks. See :class:`DrafterTrainingMixin`."""
        super().begin_epoch(epoch, model)
        self.epoch = epoch


@dataclass
class BlockNATTranslationConfig(DrafterOptions, TranslationConfig):
    """fairseq's translation options and the drafter's verifier and teacher."""


@register_task("block_nat_translation", dataclass=BlockNATTranslationConfig)
class BlockNATTranslationTask(DrafterTask, TranslationTask):
    """A drafter for two languages."""


@register_task("block_nat_translation_multi_simple_epoch")
class BlockNATTranslationMultiSimpleEpochTask(DrafterTask, TranslationMultiSimpleEpochTask):
    """A drafter for all ``--lang-pairs`` of a multilingual model."""


@register_task("block_nat_translation_from_pretrained_bart")
class BlockNATTranslationFromPretrainedBARTTask(DrafterTask, PretrainedBARTTask):
    """A drafter for an mBART model."""


@register_task("block_nat_speech_to_text")
class BlockNATSpeechToTextTask(DrafterTask, SpeechTrainingTask):
    """A drafter that shares the encoder of a model of speech."""
