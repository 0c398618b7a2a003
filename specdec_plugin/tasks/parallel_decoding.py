"""``--task specdec_translation``: fairseq's translation task with the decoding flags."""

from typing import Any, Optional

import numpy as np
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from ..errors import PluginError
from ..fairseq_compat.autocast import AutocastConfig, AutocastMixin
from ..fairseq_compat.every_line import keep_every_line
from ..fairseq_compat.generation import check_call, check_when_parsed
from ..fairseq_compat.task_options import set_task_dataclass
from ..methods.build import build_generator
from ..methods.registry import (
    check_method_flags,
    config_class,
    decoding_config,
    method_of,
    when_registered,
)
from ..vocab.flags import cluster_search, verifier_clusters


class ParallelDecodingMixin(AutocastMixin, FairseqTask):
    """Adds ``--decoding`` and its flags to a fairseq translation task, legacy or not.

    Without ``--decoding`` the task stays fairseq's own, but loses no sentence.
    """

    #: Whether losses are computed: by fairseq-train and its validation, and fairseq-validate.
    _measures_loss = False
    #: Lines that :meth:`build_dataset_for_inference` was given so far.
    _lines_given = 0
    #: Tokens at the end of every source, which stay when it is cut.
    _source_ending = 1

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add the task's flags to the parser; legacy tasks have no dataclass that brings ours."""
        super().add_args(parser)
        if getattr(cls, "__dataclass", None) is None:
            gen_parser_from_dataclass(parser, config_class("LegacyConfig", AutocastConfig)())
        check_when_parsed(parser, lambda options: method_of(options).default_beam)

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Refuse flags that contradict each other before anything is loaded."""
        check_method_flags(config_class().from_namespace(cfg))
        return super().setup_task(cfg, **kwargs)

    def build_criterion(self, *args: Any, **kwargs: Any) -> Any:
        """Remember it: only who trains or validates builds a criterion."""
        self._measures_loss = True
        return super().build_criterion(*args, **kwargs)

    def build_dataset_for_inference(
        self, src_tokens: Any, src_lengths: Any, *rest: Any, **kwargs: Any
    ) -> Any:
        """Count the lines, which fairseq-interactive gives a buffer at a time, and their tokens.

        fairseq's multilingual tasks add a language symbol to each source, but not to
        its length, so a source could be longer than the model takes.
        """
        dataset = super().build_dataset_for_inference(src_tokens, src_lengths, *rest, **kwargs)
        pairs = getattr(dataset, "dataset", dataset)
        sources = (pairs.src[line] for line in range(len(pairs.src)))
        pairs.src_sizes = pairs.sizes = np.array([len(source) for source in sources])
        dataset.lines_before = self._lines_given
        self._lines_given += len(src_tokens)
        return dataset

    def build_generator(self, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """The generator that ``--decoding`` names; without it, fairseq's own."""
        config: Any = decoding_config(self)
        check_method_flags(config)
        scores = getattr(args, "score_reference", False)
        if config.decoding is not None and not scores:
            check_call(args, kwargs, config)
            return self._build_parallel_generator(models, args)
        path = config.vocab_clusters
        if path is not None and scores:
            raise PluginError(
                f"--vocab-clusters {path} leaves tokens without scores, so that references cannot "
                "be scored (--score-reference): leave one of them out."
            )
        clusters = verifier_clusters(path, models, self.target_dictionary)
        generator = super().build_generator(models, args, *rest, **kwargs)
        if clusters is None:
            return generator
        return cluster_search(generator, models[0].decoder, clusters)

    def _build_parallel_generator(self, models: Any, args: Any) -> Any:
        return build_generator(self, models, args)

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
        required_batch_size_multiple: int = 1,
        **kwargs: Any,
    ) -> Any:
        """Like fairseq's, but in generation no sentence is dropped, of whatever subset.

        fairseq drops the last batch when its size is no multiple of
        ``--required-batch-size-multiple``, and raises for sentences over the limit.
        Where losses are computed that is left as it is: the model has to read whole
        references then.
        """
        if not self._measures_loss:
            source_limit = _source_limit(max_positions)
            dataset = keep_every_line(dataset, source_limit, max_tokens, self._source_ending)
            max_positions, required_batch_size_multiple = None, 1
        return super().get_batch_iterator(
            dataset,
            max_tokens,
            max_sentences,
            max_positions,
            ignore_invalid_inputs,
            required_batch_size_multiple,
            **kwargs,
        )


def _source_limit(max_positions: Any) -> int:
    """The source's part of fairseq's ``max_positions``: a number, a pair, or None."""
    first = max_positions[0] if isinstance(max_positions, (tuple, list)) else max_positions
    return int(1e9) if first is None else int(first)


@register_task("specdec_translation")
class SpecdecTranslationTask(ParallelDecodingMixin, TranslationTask):
    """Without ``--decoding``, fairseq's ``translation`` that loses no sentence."""


def translation_config() -> Any:
    """A dataclass: fairseq's translation options and the decoding flags known so far."""
    return config_class("SpecdecTranslationConfig", AutocastConfig, TranslationConfig)


when_registered(lambda: set_task_dataclass("specdec_translation", translation_config()))
