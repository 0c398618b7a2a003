"""``--task specdec_translation_multi_simple_epoch``: the decoding flags for many languages."""

import copy
from typing import Any, List, Set, Tuple

from fairseq.tasks import register_task
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from ..errors import PluginError
from ..fairseq_compat.options import flag_of
from .parallel_decoding import ParallelDecodingMixin


@register_task("specdec_translation_multi_simple_epoch")
class SpecdecTranslationMultiSimpleEpochTask(
    ParallelDecodingMixin, TranslationMultiSimpleEpochTask
):
    """fairseq's ``translation_multi_simple_epoch`` with ``--decoding``.

    The language of a target is its first token, which fairseq's ``inference_step``
    gives as a prefix, or with ``--lang-tok-replacing-bos-eos`` what the decoder is fed first.
    """

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Set up the task.

        Raises:
            PluginError: directions or languages are missing, or unknown.
        """
        try:
            return super().setup_task(cfg, **kwargs)
        except PluginError:
            raise
        except ValueError as error:
            reason = str(error).rstrip(".")
            raise PluginError(
                f"--task {cfg.task}: {reason}. Check --lang-pairs, --langs and --lang-dict, "
                "--source-lang and --target-lang."
            ) from error

    @property
    def languages(self) -> List[str]:
        """Those of the model, in the order of its training."""
        return list(self.langs)

    def check_direction(self, source_lang: str, target_lang: str) -> None:
        """Refuse a direction that the model cannot have.

        Raises:
            PluginError: it does not know a language, or one language has two dictionaries.
        """
        for language in (source_lang, target_lang):
            if language not in self.langs:
                raise PluginError(
                    f"The model has no language {language}. It has {', '.join(self.langs)}."
                )
        if source_lang == target_lang and self.source_dictionary != self.target_dictionary:
            raise PluginError(
                f"Sources and targets have dictionaries of their own, so that {source_lang} cannot "
                "be both. Name two languages."
            )

    def between(self, source_lang: str, target_lang: str) -> Any:
        """This task for a direction of :meth:`check_direction`, with the same dictionaries."""
        args = copy.copy(self.args)
        args.source_lang, args.target_lang = source_lang, target_lang
        sides = {source_lang: self.source_dictionary, target_lang: self.target_dictionary}
        return type(self)(args, self.langs, {**self.dicts, **sides}, training=False)

    def check_dicts(self, dicts: Any, source_langs: List[str], target_langs: List[str]) -> None:
        """As fairseq's; of one direction it would compare large dictionaries with themselves."""
        if len(source_langs) > 1 or len(target_langs) > 1:
            super().check_dicts(dicts, source_langs, target_langs)

    def left_out(self, generator: Any) -> Set[int]:
        """Symbols of a generator's hypotheses that are not printed; it may be of any direction."""
        if self.args.keep_inference_langtok:
            return {generator.eos}
        return {generator.eos, *self._symbol_of_target()}

    def _symbol_of_target(self) -> Set[int]:
        """The symbol that begins targets; none where the model has none."""
        _, spec = self.args.langtoks["main"]
        if not spec:
            return set()
        return {self.data_manager.get_decoder_langtok(self.args.target_lang, spec)}

    def around_target(self) -> Tuple[List[int], List[int]]:
        """The language comes first, unless the decoder is fed it."""
        before = [] if self.args.lang_tok_replacing_bos_eos else [*self._symbol_of_target()]
        return before, [int(self.target_dictionary.eos())]

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """See :meth:`ParallelDecodingMixin.build_generator`.

        fairseq looks for ``--keep-inference-langtok`` among the generation options,
        where its command lines never put it; here it is kept.

        Raises:
            PluginError: the language of a symbol is not given, as by programs that load the model.
        """
        of_source, of_target = self.args.langtoks["main"]
        needed = {"source_lang"} if of_source == "src" else set()
        needed |= {"target_lang"} if of_source == "tgt" or of_target else set()
        for name in sorted(needed):
            if getattr(self.args, name) is None:
                raise PluginError(
                    f"The symbol of a language is missing, which {flag_of(name)} tells: give it "
                    f"(from_pretrained takes {name})."
                )
        generator = super().build_generator(models, args, *rest, **kwargs)
        if self.args.keep_inference_langtok:
            generator.symbols_to_strip_from_output = {generator.eos}
        return generator

    def _build_parallel_generator(self, models: Any, args: Any) -> Any:
        generator = super()._build_parallel_generator(models, args)
        if not getattr(args, "keep_inference_langtok", False):
            generator.symbols_to_strip_from_output |= self._symbol_of_target()
        return generator
