"""``--task specdec_translation``: fairseq's translation task with the decoding flags."""

import functools
from argparse import Namespace
from typing import Any, ClassVar, Dict, FrozenSet, List, Optional, Tuple

from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from ..decoding.generator import ParallelGenerator
from ..decoding.long_references import LongReferences
from ..engine.threads import take_all_processors
from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastConfig, AutocastMixin
from ..fairseq_compat.common_options import CommonConfig
from ..fairseq_compat.dictionaries import DictionaryMixin
from ..fairseq_compat.every_line import EveryLineMixin
from ..fairseq_compat.generation import STRIPPED, check_call, check_fairseqs_search
from ..fairseq_compat.language_models import EXTRA, LANGUAGE_MODEL, limited, with_language_model
from ..fairseq_compat.options import (
    add_legacy_options,
    set_task_dataclass,
    task_options,
    with_option,
)
from ..fairseq_compat.parsed_options import check_when_parsed
from ..fairseq_compat.resumed_order import ResumedOrderMixin
from ..fairseq_compat.search import told_if_unended
from ..fairseq_compat.sentence_numbers import SentenceNumbersMixin
from ..fairseq_compat.shards import ShardConfig, shard_of
from ..fairseq_compat.splits import SplitMixin
from ..fairseq_compat.strategies import ALLOWED
from ..fairseq_compat.training_options import check_training_when_parsed
from ..methods.build import build_generator, build_scorer, checked_method
from ..methods.checks import check_alignment, check_beside, check_method_flags, check_whole_models
from ..methods.registry import config_class, decoding_config, method_of, when_registered
from ..models.roles import check_one_model
from ..vocab.flags import cluster_search, verifier_clusters
from .validation import LateGenerator, check_bleu, check_files, of_validations, with_beam


class ParallelDecodingMixin(
    SentenceNumbersMixin,
    EveryLineMixin,
    ResumedOrderMixin,
    AutocastMixin,
    DictionaryMixin,
    SplitMixin,
    FairseqTask,
):
    """Adds ``--decoding`` and its flags to a fairseq translation task, legacy or not.

    Without ``--decoding`` the task stays fairseq's own, but loses no sentence.

    Attributes:
        read_options: fairseq's generation options that this task reads, and others refuse.
        constrained_by_fairseq: whether fairseq's own search keeps constraints with this task.
    """

    read_options: ClassVar[FrozenSet[str]] = frozenset()
    constrained_by_fairseq: ClassVar[bool] = False
    _builds_model: bool = False
    _trains: bool = False

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the task's flags to the parser; legacy tasks have no dataclass that brings ours."""
        super().add_args(parser)
        add_legacy_options(cls, parser, config_class("LegacyConfig", AutocastConfig)())
        own = cls.read_options
        check_when_parsed(parser, method_of, check_beside, take_all_processors, own)
        check_training_when_parsed(parser, check_bleu)

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Refuse flags that contradict each other before anything is loaded."""
        check_method_flags(config_class().from_namespace(cfg))
        shard_of(cfg)
        return super().setup_task(cfg, **kwargs)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model.

        Raises:
            PluginError: it consists of a model for each pair of languages, or BLEU of its
                validations cannot be found.
        """
        check_one_model(cfg)
        if not from_checkpoint:
            check_bleu(task_options(self))
        before = self._builds_model, self._trains  # a model may build another by the same task
        self._builds_model, self._trains = True, not from_checkpoint
        try:
            return super().build_model(cfg, from_checkpoint)
        finally:
            self._builds_model, self._trains = before

    def build_generator(
        self,
        models: Any,
        args: Any,
        seq_gen_cls: Any = None,
        extra_gen_cls_kwargs: Any = None,
        prefix_allowed_tokens_fn: Any = None,
    ) -> Any:
        """The generator that ``--decoding`` names; without it, fairseq's own.

        See :meth:`fairseq.tasks.FairseqTask.build_generator` for the arguments.
        """
        check_method_flags(decoding_config(self))
        given = {"seq_gen_cls": seq_gen_cls, EXTRA: extra_gen_cls_kwargs}
        given = {name: value for name, value in given.items() if value is not None}
        if prefix_allowed_tokens_fn is not None:  # where fairseq looks for it as well
            args = with_option(args, ALLOWED, prefix_allowed_tokens_fn)
        build = functools.partial(self._build_search, models, args, given)
        if not self._builds_model:
            return build()
        if self._trains:
            self._check_validation(models, args)
        return LateGenerator(build)

    def _check_validation(self, models: Any, args: Any) -> None:
        """Refuse the search of ``--eval-bleu`` before the training begins."""
        config = decoding_config(self)
        if config.decoding is None:
            return
        with of_validations():
            args = with_beam(args, method_of(config))
            checked_method(config, models, args, self.read_options)
            check_files(config)

    def _build_search(self, models: Any, args: Any, given: Dict[str, Any]) -> Any:
        """See :meth:`build_generator`; ``given``: other arguments that are not None."""
        config = decoding_config(self)
        check_alignment(models, args)
        if getattr(args, "score_reference", False):
            return self._build_scorer(models, args, given)
        ours = config.decoding is not None
        args, given = with_language_model(args, given, models, self.target_dictionary, ours)
        if config.decoding is None:
            return self._build_fairseqs(models, args, given)
        args = with_beam(args, method_of(config))
        check_call(args, given, config)
        generator = self._build_parallel_generator(models, args)
        generator.symbols_to_strip_from_output |= set(given.get(EXTRA, {}).get(STRIPPED) or ())
        return generator

    def _build_scorer(self, models: Any, args: Any, given: Dict[str, Any]) -> Any:
        """What scores references: fairseq's own without ``--decoding``, or for alignments."""
        check_whole_models(models)
        path = decoding_config(self).vocab_clusters
        if path is not None:
            raise PluginError(
                f"--vocab-clusters {path} leaves tokens without scores, so that references cannot "
                "be scored (--score-reference): leave one of them out."
            )
        scorer = super().build_generator(models, args, **given)
        aligns = getattr(args, "print_alignment", None)
        ours = decoding_config(self).decoding is not None and not aligns
        if ours and type(scorer) is SequenceScorer:
            scorer = build_scorer(self, models, scorer)
        return LongReferences.around(scorer, models, self.target_dictionary.pad())

    def _build_fairseqs(self, models: Any, args: Any, given: Dict[str, Any]) -> Any:
        """fairseq's own search; ``given``: other arguments of :meth:`build_generator`."""
        check_whole_models(models)
        check_fairseqs_search(args, typed=False)
        if isinstance(getattr(args, "lenpen", None), int):  # whose power may be too large for it
            args = with_option(args, "lenpen", float(args.lenpen))
        path = decoding_config(self).vocab_clusters
        clusters = verifier_clusters(path, models, self.target_dictionary)
        generator = super().build_generator(models, args, **limited(given, models, args))
        if hasattr(args, LANGUAGE_MODEL) and getattr(generator, "lm_model", None) is None:
            raise PluginError("--lm-path with this --task needs our search: add --decoding auto.")
        if clusters is None:
            return generator
        return cluster_search(generator, models[0].decoder, clusters)

    def inference_step(
        self,
        generator: Any,
        models: Any,
        sample: Any,
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
    ) -> Any:
        """Decode a batch. It keeps its constraints, which some of fairseq's tasks lose.

        Raises:
            PluginError: fairseq's own search would lose them, or they do not fit.
        """
        if constraints is not None:
            if not isinstance(generator, ParallelGenerator) and not self.constrained_by_fairseq:
                raise PluginError(
                    "--constraints with this --task need our search: add --decoding auto."
                )
            sample = {**sample, "constraints": constraints}
        with told_if_unended():
            return super().inference_step(generator, models, sample, prefix_tokens, constraints)

    def end_of_sentence(self, args: Any) -> int:
        """The symbol that ends targets, and that the decoder is fed first.

        Args:
            args: fairseq's generation options.
        """
        return int(self.target_dictionary.eos())

    def around_target(self) -> Tuple[List[int], List[int]]:
        """The symbols before the words of each target, and behind them."""
        return [], [self.end_of_sentence(Namespace())]

    def _build_parallel_generator(self, models: Any, args: Any) -> Any:
        return build_generator(self, models, args, eos=self.end_of_sentence(args))


@register_task("specdec_translation")
class SpecdecTranslationTask(ParallelDecodingMixin, TranslationTask):
    """Without ``--decoding``, fairseq's ``translation`` that loses no sentence."""

    constrained_by_fairseq = True


def translation_config() -> Any:
    """A dataclass: fairseq's translation options and the decoding flags known so far."""
    bases = (CommonConfig, ShardConfig, AutocastConfig, TranslationConfig)
    return config_class("SpecdecTranslationConfig", *bases)


when_registered(lambda: set_task_dataclass("specdec_translation", translation_config()))
