"""``--task blockwise_translation`` and its kin: training of proposal heads."""

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
from ..models.blockwise_transformer import BlockwiseTransformerModel
from ..models.shape import arguments_of, take_shape
from .drafter_training import DrafterTrainingMixin
from .speech_to_text import SpeechTrainingTask
from .translation_from_pretrained_bart import PretrainedBARTTask


@dataclass
class HeadsOptions(AutocastConfig, FairseqDataclass):
    """The model and the heads to start from."""

    verifier_path: Optional[str] = option(
        None,
        "a trained Transformer, from which shape and initial weights of the base are "
        "taken; with --frozen-base its weights stay unchanged",
    )
    heads_path: Optional[str] = option(
        None,
        "proposal heads to start from, trained with or without --frozen-base; of "
        "separate heads, the first --block-size are used. A trained base loses quality if "
        "it is trained together with untrained heads",
    )


class HeadsTask(DrafterTrainingMixin):
    """Trains proposal heads, with their base or for an existing one."""

    Options, criterion = HeadsOptions(), "blockwise_cross_entropy"

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build heads and base; with ``--verifier-path`` the base is or starts as that model.

        Raises:
            PluginError: the options contradict each other, or the model cannot be a base.
        """
        if not from_checkpoint:
            settle_names(cfg, BlockwiseTransformerModel)
        options = task_options(self)
        path, base = options.verifier_path, None
        if path is not None:
            base = self.load_whole_model("--verifier-path", path)
            take_shape(cfg, arguments_of(path, base, _NO_BASE))
        elif getattr(cfg, "frozen_base", False):
            raise PluginError(
                "--frozen-base trains heads for an existing model: add --verifier-path "
                "MODEL.pt, or leave --frozen-base out."
            )
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, BlockwiseTransformerModel):
            raise PluginError(
                f"--task {self.name} trains blockwise Transformers, but this model is a "
                f"{type(model).__name__}: add --arch blockwise_transformer, or leave --task out."
            )
        if base is not None:
            model.start_from(path, base)
        if options.heads_path is not None:
            model.start_heads_from(options.heads_path, self.load(options.heads_path))
        self.fingerprints = model.fingerprints()
        return model


@dataclass
class BlockwiseTranslationConfig(HeadsOptions, TranslationConfig):
    """fairseq's translation options, and the model and the heads to start from."""


@register_task("blockwise_translation", dataclass=BlockwiseTranslationConfig)
class BlockwiseTranslationTask(HeadsTask, TranslationTask):
    """Proposal heads for two languages."""


@register_task("blockwise_translation_multi_simple_epoch")
class BlockwiseTranslationMultiSimpleEpochTask(HeadsTask, TranslationMultiSimpleEpochTask):
    """Proposal heads for all ``--lang-pairs`` of a multilingual model."""


@register_task("blockwise_translation_from_pretrained_bart")
class BlockwiseTranslationFromPretrainedBARTTask(HeadsTask, PretrainedBARTTask):
    """Proposal heads for an mBART model."""


@register_task("blockwise_speech_to_text")
class BlockwiseSpeechToTextTask(HeadsTask, SpeechTrainingTask):
    """Proposal heads for a model of speech, which stays as it is."""


_NO_BASE = (
    "proposal heads read the states of a Transformer: give a model that was trained with "
    "--arch transformer"
)
