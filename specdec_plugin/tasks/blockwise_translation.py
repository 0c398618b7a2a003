"""``--task blockwise_translation``: training of proposal heads, with or without their base."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig

from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastConfig
from ..fairseq_compat.options import option
from ..fairseq_compat.pairing import load_model
from ..models.blockwise_transformer import BlockwiseTransformerModel
from ..models.shape import arguments_of, take_shape
from .drafter_training import DrafterTrainingTask


@dataclass
class BlockwiseTranslationConfig(AutocastConfig, TranslationConfig):
    """fairseq's translation options and the model to start from."""

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


@register_task("blockwise_translation", dataclass=BlockwiseTranslationConfig)
class BlockwiseTranslationTask(DrafterTrainingTask):
    """Trains proposal heads, with their base or for an existing one."""

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build heads and base; with ``--verifier-path`` the base is or starts as that model.

        Raises:
            PluginError: the options contradict each other, or the model cannot be a base.
        """
        path, base = self.cfg.verifier_path, None
        if path is not None:
            base = load_model(path, self.src_dict, self.tgt_dict)
            take_shape(cfg, arguments_of(path, base, _NO_BASE))
        elif getattr(cfg, "frozen_base", False):
            raise PluginError(
                "--frozen-base trains heads for an existing model: add --verifier-path "
                "MODEL.pt, or leave --frozen-base out."
            )
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, BlockwiseTransformerModel):
            raise PluginError(
                f"--task blockwise_translation trains blockwise Transformers, but this model is a "
                f"{type(model).__name__}: add --arch blockwise_transformer, or leave --task out."
            )
        if base is not None:
            model.start_from(path, base)
        if self.cfg.heads_path is not None:
            heads = load_model(self.cfg.heads_path, self.src_dict, self.tgt_dict)
            model.start_heads_from(self.cfg.heads_path, heads)
        self.fingerprints = model.fingerprints()
        return model


_NO_BASE = (
    "proposal heads read the states of a Transformer: give a model that was trained with "
    "--arch transformer"
)
