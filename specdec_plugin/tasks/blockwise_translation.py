"""``--task blockwise_translation``: training of proposal heads, with or without their base."""

from dataclasses import dataclass, field
from typing import Any, Dict, Optional

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from ..errors import PluginError
from ..models.blockwise_transformer import BlockwiseTransformerModel
from ..models.shape import arguments_of, take_shape
from ..pairing import check_resumed, load_model
from .autocast import AutocastConfig, AutocastMixin


@dataclass
class BlockwiseTranslationConfig(AutocastConfig, TranslationConfig):
    """fairseq's translation options and the model to start from."""

    verifier_path: Optional[str] = field(
        default=None,
        metadata={
            "help": "a trained Transformer to start from: its shape and its weights are taken "
            "over, the latter for good with --frozen-base"
        },
    )


@register_task("blockwise_translation", dataclass=BlockwiseTranslationConfig)
class BlockwiseTranslationTask(AutocastMixin, TranslationTask):
    """fairseq's translation task, telling the criterion where training stands."""

    def __init__(self, cfg: BlockwiseTranslationConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.updates = 0
        self._fingerprints: Dict[str, Tensor] = {}

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build heads and base; with ``--verifier-path`` the base is that model, or begins as it.

        Raises:
            PluginError: the options contradict each other, or the model cannot be a base.
        """
        path, base = self.cfg.verifier_path, None
        if path is not None:
            base = load_model(path, self.src_dict, self.tgt_dict)
            take_shape(cfg, arguments_of(path, base, _NO_BASE))
        elif getattr(cfg, "frozen_base", False):
            raise PluginError(
                "--frozen-base trains heads for a model that is there: add --verifier-path "
                "MODEL.pt, or leave --frozen-base out."
            )
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, BlockwiseTransformerModel):
            raise PluginError(
                f"--task blockwise_translation trains blockwise Transformers, and this is a "
                f"{type(model).__name__}: add --arch blockwise_transformer, or leave --task out."
            )
        if base is not None:
            model.start_from(path, base)
        self._fingerprints = model.fingerprints()
        return model

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Check what was loaded.

        Raises:
            PluginError: the checkpoint belongs to another base or other dictionaries.
                (Raised while fairseq loads it, the sentence would be lost in a traceback.)
        """
        check_resumed(self._fingerprints, model.fingerprints())
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
        """Remember the update, which decides the head; see :class:`fairseq.tasks.FairseqTask`."""
        self.updates = update_num
        return super().train_step(sample, model, criterion, optimizer, update_num, **kwargs)


_NO_BASE = (
    "proposal heads read the states of a Transformer: give one that was trained with --arch "
    "transformer"
)
