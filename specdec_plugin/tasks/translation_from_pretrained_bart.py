"""``--task specdec_translation_from_pretrained_bart``: the decoding flags for mBART."""

from typing import Any, List, Tuple

from fairseq.tasks import register_task
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from ..errors import PluginError
from .parallel_decoding import ParallelDecodingMixin


class PretrainedBARTTask(TranslationFromPretrainedBARTTask):
    """fairseq's ``translation_from_pretrained_bart``, repaired.

    Target sentences begin and end with the symbol of their language, ``[es]``; the
    ``</s>`` before it is a symbol like others.
    """

    def __init__(self, args: Any, src_dict: Any, tgt_dict: Any) -> None:
        if args.langs is None:
            raise PluginError(
                "--langs is missing: give all languages of the pretrained model, in its order, "
                "such as --langs ar_AR,cs_CZ,de_DE."
            )
        super().__init__(args, src_dict, tgt_dict)
        for lang, dictionary in ((args.source_lang, src_dict), (args.target_lang, tgt_dict)):
            if f"[{lang}]" not in dictionary:
                raise PluginError(
                    f"--langs {args.langs} lacks {lang}, so its sentences could not be marked: "
                    "give all languages of the pretrained model, in its order."
                )

    @property
    def args(self) -> Any:
        """What fairseq's methods read and its constructor, which calls it ``cfg``, never sets."""
        return self.cfg


@register_task("specdec_translation_from_pretrained_bart")
class SpecdecTranslationFromPretrainedBARTTask(ParallelDecodingMixin, PretrainedBARTTask):
    """The same with ``--decoding``."""

    _source_ending = 2  # </s> and the language

    def end_of_sentence(self, args: Any) -> int:
        """The language's symbol."""
        return int(self.target_dictionary.index(f"[{self.cfg.target_lang}]"))

    def around_target(self) -> Tuple[List[int], List[int]]:
        """``</s>`` and the language come behind the words, with ``--prepend-bos`` ``<s>`` first."""
        prepends = getattr(self.args, "prepend_bos", False)
        before = [int(self.target_dictionary.bos())] if prepends else []
        return before, [int(self.target_dictionary.eos()), self.end_of_sentence(self.args)]
