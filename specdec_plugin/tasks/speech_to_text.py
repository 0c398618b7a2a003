"""``--task specdec_speech_to_text``: the decoding flags for fairseq's models of speech."""

import contextlib
from argparse import ArgumentError
from typing import Any

from fairseq.data.audio.speech_to_text_dataset import SpeechToTextDataset
from fairseq.tasks import register_task
from fairseq.tasks.speech_to_text import SpeechToTextTask

from ..errors import PluginError
from ..fairseq_compat.speech import SpeechDataTask
from .parallel_decoding import ParallelDecodingMixin


@register_task("specdec_speech_to_text")
class SpecdecSpeechToTextTask(ParallelDecodingMixin, SpeechDataTask):
    """fairseq's ``speech_to_text`` with ``--decoding``: features of sound in, text out."""

    read_options = frozenset(["eos_token"])

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """See :meth:`ParallelDecodingMixin.build_generator`; fairseq aligns words alone."""
        if getattr(args, "print_alignment", None):
            raise PluginError(
                "--print-alignment aligns words of the source, and sound has none: leave it out."
            )
        if self.data_cfg.prepend_tgt_lang_tag and getattr(args, "prefix_size", 0) != 1:
            raise PluginError(
                "The targets of these data begin with a language tag (prepend_tgt_lang_tag): give "
                "--prefix-size 1."
            )
        return super().build_generator(models, args, *rest, **kwargs)

    def _build_parallel_generator(self, models: Any, args: Any) -> Any:
        if getattr(models[0], "mt_task_name", None) is not None:
            raise PluginError(
                "A model with two decoders in a row is not supported: leave out --decoding."
            )
        generator = super()._build_parallel_generator(models, args)
        words = self.target_dictionary.indices.items()
        generator.symbols_to_strip_from_output.update(each for word, each in words if is_tag(word))
        return generator

    def end_of_sentence(self, args: Any) -> int:
        """The tag of a language, where targets end with it.

        Raises:
            PluginError: nothing names it, or the dictionary lacks it.
        """
        words = self.target_dictionary
        named = getattr(args, "eos_token", None) or self.data_cfg.config.get("eos_token")
        if self.data_cfg.prepend_bos_and_append_tgt_lang_tag and not named:
            raise PluginError(
                "The targets of these data end with a language tag "
                "(prepend_bos_and_append_tgt_lang_tag): give it by --eos-token."
            )
        if named and named not in words:
            raise PluginError(
                f"--eos-token {named} is no symbol of the target dictionary: give one that is, "
                "such as <lang:es>."
            )
        return int(words.index(named) if named else words.eos())


class SpeechTrainingTask(SpeechDataTask):
    """fairseq's ``speech_to_text`` for models and criterions of ours."""

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add fairseq's options, the last two of which the model may have added already."""
        with contextlib.suppress(ArgumentError):
            super().add_args(parser)
        parser.set_defaults(max_source_positions=6000, max_target_positions=1024)

    def build_criterion(self, args: Any) -> Any:
        """Build ours, which learn tags of languages as well.

        fairseq's method asks for ``--ignore-prefix-size``, which only its own criterions have.
        """
        return super(SpeechToTextTask, self).build_criterion(args)


def is_tag(word: str) -> bool:
    """Whether a symbol is the tag of a language."""
    found: bool = SpeechToTextDataset.is_lang_tag(word)
    return found
