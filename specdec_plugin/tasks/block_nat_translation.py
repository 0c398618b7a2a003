"""``--task block_nat_translation``: training of a drafter."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig

from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastConfig
from ..fairseq_compat.options import option
from ..fairseq_compat.pairing import load_model
from ..models.block_nat import BlockNATModel
from ..models.frozen import FrozenEncoder, FrozenVerifier
from .drafter_training import DrafterTrainingTask


@dataclass
class BlockNATTranslationConfig(AutocastConfig, TranslationConfig):
    """fairseq's translation options and the drafter's verifier and teacher."""

    verifier_path: Optional[str] = option(
        None, "the verifier's checkpoint, whose encoder --share-encoder uses"
    )
    teacher_path: Optional[str] = option(
        None,
        "a model, usually the verifier, whose distributions the drafter learns besides "
        "the target; see --teacher-weight and --teacher-temperature",
    )


@register_task("block_nat_translation", dataclass=BlockNATTranslationConfig)
class BlockNATTranslationTask(DrafterTrainingTask):
    """Trains a drafter, and loads its verifier and teacher."""

    def __init__(self, cfg: BlockNATTranslationConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.epoch = 1
        self.teacher: Optional[FrozenVerifier] = None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the drafter, attach a shared encoder, and load the teacher."""
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, BlockNATModel):
            raise PluginError(
                f"--task block_nat_translation trains drafters, but this model is a "
                f"{type(model).__name__}: add --arch block_nat, or leave --task out."
            )
        verifier: Optional[FrozenVerifier] = None
        if isinstance(model.encoder, FrozenEncoder):
            if self.cfg.verifier_path is None:
                raise PluginError(
                    "--share-encoder needs the verifier: add --verifier-path VERIFIER.pt, "
                    "or leave --share-encoder out."
                )
            verifier = self._load(self.cfg.verifier_path)
            model.attach_encoder(verifier.model.encoder)
        self.fingerprints = model.fingerprints()
        if self.cfg.teacher_path is not None:
            same = verifier is not None and self.cfg.teacher_path == self.cfg.verifier_path
            self.teacher = verifier if same else self._load(self.cfg.teacher_path)
        return model

    def _load(self, path: str) -> FrozenVerifier:
        return FrozenVerifier(load_model(path, self.src_dict, self.tgt_dict))

    def begin_epoch(self, epoch: int, model: Any) -> None:
        """Record the epoch, as each epoch hides other blocks. See :class:`DrafterTrainingTask`."""
        super().begin_epoch(epoch, model)
        self.epoch = epoch
