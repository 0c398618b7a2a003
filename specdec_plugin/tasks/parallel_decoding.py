"""``--task specdec_translation``: fairseq's translation task with the decoding flags."""

from dataclasses import dataclass

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from .autocast import AutocastConfig, AutocastMixin


@dataclass
class SpecdecTranslationConfig(AutocastConfig, TranslationConfig):
    """fairseq's translation options and the decoding flags."""


@register_task("specdec_translation", dataclass=SpecdecTranslationConfig)
class SpecdecTranslationTask(AutocastMixin, TranslationTask):
    """Without ``--decoding``, exactly fairseq's ``translation``."""
