"""From flags to a generator: the verifier, the drafter and the acceptance rule of a method."""

import logging
import sys
from argparse import Namespace
from typing import Any, Container, Optional, Sequence, Type

from ..decoding.acceptance import TopBeta
from ..decoding.generator import ParallelGenerator
from ..decoding.language_model import LanguageModel
from ..decoding.lengths import Lengths
from ..decoding.native_verification import NativeVerification
from ..decoding.sampling import Settings
from ..decoding.scoring import ReferenceScorer, ScoringLoop, ScoringStatistics
from ..decoding.statistics import Statistics
from ..decoding.steps import VerifiedStep
from ..decoding.verifier import Verifier
from ..engine import Backend, build_engine, choose_backend
from ..engine.defaults import own_defaults
from ..engine.packed_files import keep
from ..errors import PluginError
from ..fairseq_compat.common_options import seed_of, shows_progress
from ..fairseq_compat.generation import check_generation
from ..fairseq_compat.language_models import LANGUAGE_MODEL, tell_positions
from ..vocab.clustered_projection import projection_by
from ..vocab.flags import verifier_clusters
from .checks import check_beside, check_method_flags, check_models, check_read
from .registry import Method, config_class, decoding_config, method_of
from .setup import Setup, dtype_of

logger = logging.getLogger(__name__)

#: Decoding options about the weights of the models in ``--path``.
OF_WEIGHTS = ("verifier_dtype", "keep_packed_weights")
_SAME = ("max_len_a", "max_len_b", "min_len", "no_repeat_ngram_size", "match_source_len")
#: Attributes of :class:`.Lengths`, and what fairseq calls them.
_OF_LENGTHS = {**{name: name for name in _SAME}, "unk_penalty": "unkpen", "len_penalty": "lenpen"}


@own_defaults()
def build_generator(
    task: Any,
    models: Sequence[Any],
    args: Any,
    eos: Optional[int] = None,
    backend: Optional[Backend] = None,
) -> ParallelGenerator:
    """Build what ``--decoding`` names.

    Args:
        task: has the decoding flags (see :func:`.registry.decoding_config`), and dictionaries.
        models: the verifiers.
        args: fairseq's generation options.
        eos: the symbol that starts and ends sentences, if not the dictionary's.
        backend: who computes; None chooses.

    Raises:
        PluginError: flags contradict each other, or the drafter does not fit.
    """
    cfg = decoding_config(task)
    method = checked_method(cfg, models, args, getattr(task, "read_options", ()))
    setup = _setup(cfg, task, models, args, Statistics(), eos, backend)
    setup.lengths = _lengths(setup)
    if method.verifies:
        setup.verifier = _verifier(setup, method.certifies)
        _limit_by_language_model(setup)
    loop = method.loop(setup)
    return ParallelGenerator(
        models,
        task.target_dictionary,
        loop,
        setup.statistics,
        setup.lengths,
        setup.eos,
        alignment=getattr(args, "print_alignment", None),
        backend=setup.backend,
        sampling=_sampling(setup),
        shows_progress=shows_progress(task),
        warns=not method.chooses,
        constrained=bool(getattr(args, "constraints", None)),
        verifier=setup.verifier if method.verifies else None,
    )


@own_defaults()
def build_scorer(
    task: Any,
    models: Sequence[Any],
    fairseqs: Any,
    backend: Optional[Backend] = None,
) -> ReferenceScorer:
    """Build what scores references.

    Whatever ``--decoding`` names, the models in ``--path`` score them. No option of a search has an
    effect, as in fairseq.

    Args:
        task: as for :func:`build_generator`.
        models: likewise.
        fairseqs: fairseq's own scorer.
        backend: who computes; None chooses.

    Raises:
        PluginError: a model does not fit.
    """
    flags = decoding_config(task)
    kept = {name: getattr(flags, name) for name in OF_WEIGHTS}
    cfg = config_class()(decoding="greedy", **kept)
    check_models(models, cfg.decoding)
    statistics = ScoringStatistics()
    setup = _setup(cfg, task, models, Namespace(), statistics, fairseqs.eos, backend)
    setup.verifier = _verifier(setup, certifies=False)
    symbols = task.target_dictionary
    step = VerifiedStep(setup.verifier, TopBeta())
    loop = ScoringLoop(models, step, statistics, len(symbols))
    given = (models, symbols, loop, statistics, _lengths(setup), setup.eos)
    generator = ParallelGenerator(*given, backend=setup.backend, warns=False)
    return ReferenceScorer(generator, fairseqs)


def _setup(
    cfg: Any,
    task: Any,
    models: Sequence[Any],
    args: Any,
    statistics: Statistics,
    eos: Optional[int],
    backend: Optional[Backend],
) -> Setup:
    """See :func:`build_generator`; the verifier and the lengths are not set yet."""
    backend = backend or choose_backend(next(models[0].parameters()).device)
    ends = task.target_dictionary.eos() if eos is None else eos
    return Setup(cfg, task, models, statistics, ends, backend, generation=args)


def checked_method(
    cfg: Any, models: Sequence[Any], args: Any, read: Container[str]
) -> Type[Method]:
    """The method that flags name, when it is clear that models, flags and options fit it.

    Args:
        cfg: the flags, with the fields of :func:`.registry.config_class`.
        models: the verifiers.
        args: fairseq's generation options.
        read: options that the task reads.

    Raises:
        PluginError: one of them does not fit.
    """
    check_method_flags(cfg)
    method = method_of(cfg)
    check_models(models, cfg.decoding)
    check_generation(args, method.name, method.default_beam, method.honours, read=read)
    method.check_search(args)
    check_read(cfg, method, args)
    check_beside(cfg, args)
    return method


def _sampling(setup: Setup) -> Optional[Settings]:
    """How samples are drawn; None where none are."""
    options = setup.generation
    if not getattr(options, "sampling", False):
        return None
    return Settings(
        seed_of(setup.task, options),
        options.beam,
        getattr(options, "temperature", 1.0),
        max(0, getattr(options, "sampling_topk", -1)),
        max(0.0, getattr(options, "sampling_topp", -1.0)),
        setup.cfg.sentence_offset,
    )


def _verifier(setup: Setup, certifies: bool) -> Verifier:
    """The models in ``--path``.

    Args:
        setup: the rest.
        certifies: whether the projection is certified without a flag, where this is faster.
    """
    cfg, models = setup.cfg, setup.models
    temperature = getattr(setup.generation, "temperature", 1.0)
    if temperature != 1.0 and any(_adaptive(each) for each in models):
        raise PluginError(
            f"--temperature {temperature} is not supported for a model with an adaptive "
            "softmax; leave it out, or leave out --decoding."
        )
    if cfg.keep_packed_weights:
        keep(models)
    clusters = verifier_clusters(cfg.vocab_clusters, models, setup.task.target_dictionary)
    project, dtype = projection_by(clusters), dtype_of(cfg.verifier_dtype)
    engines = [build_engine(each, dtype, project, setup.backend) for each in models]
    verifier = Verifier(
        engines,
        setup.statistics,
        temperature,
        approximate_scores=cfg.approximate_scores,
        language_model=_language_model(setup),
    )
    if cfg.certified_projection or certifies:
        verifier.certified = _is_certified(verifier, setup)
    return verifier


def _language_model(setup: Setup) -> Optional[LanguageModel]:
    """What ``--lm-path`` names; None: nothing, or its weight is 0."""
    model = getattr(setup.generation, LANGUAGE_MODEL, None)
    if model is None:
        return None
    return LanguageModel(model, setup.generation.lm_weight, setup.backend)


def _is_certified(verifier: Verifier, setup: Setup) -> bool:
    """Whether the projection is certified: where it can be, and was asked for or is faster."""
    cfg, reason = setup.cfg, NativeVerification.certifies(verifier)
    if getattr(setup.generation, "sampling", False):
        reason = "samples are drawn from all symbols"
    wanted = cfg.certified_projection or cfg.approximate_scores
    if reason is None:
        verifier.gains_unscored = NativeVerification.gains(verifier, scored=False)
        return wanted or NativeVerification.gains(verifier, scored=True)
    if wanted:
        flag = "certified-projection" if cfg.certified_projection else "approximate-scores"
        logger.warning(
            f"--{flag} has no effect here, because {reason}. The output is the same. Leave it "
            "out, or give it float32 weights of one model on a CPU."
        )
    return False


def _adaptive(model: Any) -> bool:
    return getattr(model.decoder, "adaptive_softmax", None) is not None


def _lengths(setup: Setup) -> Lengths:
    """fairseq's length options; the verifiers' positions limit the output, as in fairseq."""
    args, limits = setup.generation, [sys.maxsize]
    for model in setup.models:
        if hasattr(model, "max_decoder_positions"):
            limits.append(model.max_decoder_positions())
    # Programs may give options that lack some.
    given = {own: getattr(args, name) for own, name in _OF_LENGTHS.items() if hasattr(args, name)}
    normalize = not getattr(args, "unnormalized", False)
    return Lengths(max_positions=min(limits), normalize=normalize, **given)


def _limit_by_language_model(setup: Setup) -> None:
    """Where its table of positions ends, the output does, and fairseq would fail."""
    model, lengths = setup.verifier.language_model, setup.lengths
    if model is not None:
        lengths.max_positions = min(lengths.max_positions, model.max_positions)
        tell_positions(model.max_positions, lengths.max_positions, setup.generation)
