"""From flags to a generator: which verifier, drafter and rule belong to a method."""

import copy
import logging
import sys
from typing import Any, Optional, Sequence

import torch
from fairseq.models.transformer import TransformerEncoderBase

from ..decoding.acceptance import AtLeast, Distance, Rule, TopBeta
from ..decoding.drafter import Drafter, NoDrafter
from ..decoding.generator import Lengths, ParallelGenerator
from ..decoding.loop import DecodingLoop, UnverifiedStep, VerifiedStep
from ..decoding.native_verification import NativeVerification
from ..decoding.statistics import Statistics
from ..decoding.symbols import Symbols, numbers_of
from ..decoding.verifier import Verifier
from ..engine import CachedDecoder, Clusters, build_engine
from ..errors import PluginError
from ..fairseq_compat.generation import check_generation
from ..fairseq_compat.pairing import check_pair, load_model
from ..models.block_nat import BlockNATModel
from ..models.blockwise_transformer import BlockwiseTransformerModel
from ..models.frozen_encoder import FrozenEncoder
from ..vocab.flags import drafter_clusters, verifier_clusters
from .block_nat.drafter import NATDrafter, learned_positions
from .blockwise.drafter import BlockwiseDrafter
from .blockwise.proposals import Proposals
from .config import JACOBI, decoding_config
from .input_guided.drafter import InputGuidedDrafter
from .jacobi.drafter import JacobiDrafter
from .jacobi.ngram_lookup import Window
from .self_draft.drafter import BLOCK_SIZE, RELAXED_BLOCK_SIZE, SelfDrafter

logger = logging.getLogger(__name__)


def build_generator(task: Any, models: Sequence[Any], args: Any, eos: Optional[int] = None) -> Any:
    """Build what ``--decoding`` names.

    Args:
        task: has the fields of :class:`DecodingConfig` (see :func:`decoding_config`), and
            dictionaries.
        models: the verifiers.
        args: fairseq's generation options.
        eos: the symbol that starts and ends sentences, if not the dictionary's.

    Raises:
        PluginError: flags contradict each other, or the drafter does not fit.
    """
    cfg = decoding_config(task)
    method = str(cfg.decoding)
    check_generation(args, method)
    statistics = Statistics()
    model = _load_drafter(cfg, task, models) if _trained(cfg, method) else None
    step: Any = UnverifiedStep()
    drafter: Drafter = NoDrafter()
    if method != "nat":
        verifier = _verifier(cfg, args, task, models, statistics)
        step = VerifiedStep(verifier, _rule(cfg, task, eos))
    if method == "input-guided":
        drafter = _input_guided_drafter(cfg, task, models, model, statistics, eos)
    elif model is not None:
        drafter = _drafter(cfg, task, model, models, statistics, with_scores=method == "nat")
    elif method == "specdec":
        drafter = _self_drafter(cfg, task, models, verifier)
    elif method in JACOBI:
        drafter = _jacobi_drafter(cfg, task, models, eos)
    elif method == "blockwise":
        drafter = _blockwise_drafter(cfg, task, models, verifier, statistics, eos)
    history = bool(getattr(args, "retain_iter_history", False))
    loop = DecodingLoop(drafter, step, statistics, history)
    lengths = _lengths(args, models, model if method == "nat" else None)
    return ParallelGenerator(models, task.target_dictionary, loop, statistics, lengths, eos)


def _trained(cfg: Any, method: str) -> bool:
    """Whether a trained drafter is needed."""
    return method == "nat" or (
        method in ("specdec", "input-guided") and cfg.drafter_path is not None
    )


def _verifier(
    cfg: Any, args: Any, task: Any, models: Sequence[Any], statistics: Statistics
) -> Verifier:
    temperature = getattr(args, "temperature", 1.0)
    if temperature != 1.0 and any(_adaptive(each) for each in models):
        raise PluginError(
            f"--temperature {temperature} is not supported for a model with an adaptive "
            "softmax; leave it out, or leave out --decoding."
        )
    clusters = verifier_clusters(cfg.vocab_clusters, models, task.target_dictionary)
    engines = [build_engine(each, _dtype(cfg.verifier_dtype), clusters) for each in models]
    verifier = Verifier(engines, statistics, temperature)
    if cfg.certified_projection:
        reason = NativeVerification.certifies(verifier)
        verifier.certified = reason is None
        if reason is not None:
            logger.warning(
                f"--certified-projection has no effect here, because {reason}. The output is the "
                "same. Leave it out, or give it float32 weights of one model on a CPU."
            )
    return verifier


def _rule(cfg: Any, task: Any, eos: Optional[int]) -> Rule:
    """Which drafted tokens may stand; other methods than blockwise have the defaults."""
    target = task.target_dictionary
    rule: Rule = TopBeta(cfg.top_beta, cfg.tolerance)
    if str(cfg.acceptance) == "distance":
        numbers = numbers_of(target)
        if bool(numbers.isnan().all()):
            raise PluginError(
                "--acceptance distance compares numbers, and no symbol of the target dictionary is "
                "one: give --acceptance top-k, or leave it out."
            )
        rule = Distance(numbers, cfg.epsilon)
    if cfg.min_block > 1:
        rule = AtLeast(rule, cfg.min_block, target.eos() if eos is None else eos)
    return rule


def _self_drafter(cfg: Any, task: Any, models: Sequence[Any], verifier: Verifier) -> SelfDrafter:
    if cfg.block_size < 0:
        raise PluginError(f"--block-size {cfg.block_size}: give 1 or more, or leave it out.")
    if cfg.draft_confidence != 0:
        raise PluginError(
            f"--draft-confidence {cfg.draft_confidence} is about a trained drafter: add "
            "--drafter-path DRAFTER.pt, or leave it out."
        )
    # With 4 bits the copy now and then says another word, but one of the best.
    exact = cfg.top_beta == 1
    dtype = _dtype(cfg.drafter_dtype) or _dtype("int8" if exact else "int4")
    assert dtype is not None
    return SelfDrafter(
        verifier,
        cfg.block_size or (BLOCK_SIZE if exact else RELAXED_BLOCK_SIZE),
        dtype,
        _most_rows(cfg.draft_rows, models),
        _drafter_clusters(cfg, task, models[0], models),
    )


def _drafter_clusters(
    cfg: Any, task: Any, drafter: Any, models: Sequence[Any]
) -> Optional[Clusters]:
    """Those of ``--drafter-vocab-clusters``, for a drafter with this model's projection."""
    path, target = cfg.drafter_vocab_clusters, task.target_dictionary
    return drafter_clusters(path, drafter.decoder, models[0].decoder, target)


#: Copied tokens that a draft has at most on a CPU: where the model decides otherwise, those behind
#: were in vain. Of 4 to 64 it was the best for sentences of which one symbol in ten changes.
_COPIES_ON_CPU = 8


def _input_guided_drafter(
    cfg: Any,
    task: Any,
    models: Sequence[Any],
    model: Optional[BlockNATModel],
    statistics: Statistics,
    eos: Optional[int],
) -> InputGuidedDrafter:
    if cfg.block_size < 0:
        raise PluginError(f"--block-size {cfg.block_size}: give 1 or more, or leave it out.")
    fallback = None
    if model is not None:
        trained = copy.copy(cfg)
        trained.block_size = min(cfg.block_size, model.decoder.block_size)
        fallback = _drafter(trained, task, model, models, statistics, with_scores=False)
    target = task.target_dictionary
    return InputGuidedDrafter(
        Symbols.of(task.source_dictionary, target, target.eos() if eos is None else eos),
        cfg.block_size or (_COPIES_ON_CPU if _on_cpu(models) else sys.maxsize),
        longest=str(cfg.fallback) == "ngram",
        fallback=fallback,
    )


#: b where none is given: the paper's best; and of an adaptive window, the most guesses on a CPU,
#: where an iteration takes a tenth longer with each, and elsewhere. They pay as long as the chance
#: that they are right is more than that (3+3 layers, d=256, 2 cores).
_JACOBI_BLOCK, _ADAPTIVE_BLOCKS, _WORTH = 3, (2, 8), 0.1


def _jacobi_drafter(
    cfg: Any, task: Any, models: Sequence[Any], eos: Optional[int]
) -> JacobiDrafter:
    method, adaptive = str(cfg.decoding), str(cfg.jacobi_window) == "adaptive"
    most = _ADAPTIVE_BLOCKS[0 if _on_cpu(models) else 1]
    size = cfg.block_size or (most if adaptive else _JACOBI_BLOCK)
    if size < 1:
        raise PluginError(f"--block-size {cfg.block_size}: give 1 or more, or leave it out.")
    if method == "jacobi":
        window = Window(block=sys.maxsize)
    elif str(cfg.jacobi_window) == "block":
        window = Window(block=size - 1, size=size)
    else:
        window = Window(block=size, floor=(cfg.draft_confidence or _WORTH) if adaptive else 0.0)
    target = task.target_dictionary
    return JacobiDrafter(
        window,
        Symbols.of(task.source_dictionary, target, target.eos() if eos is None else eos),
        str(cfg.jacobi_init),
        cfg.hybrid_length or sys.maxsize,
        cfg.jacobi_pool,
        _most_rows(cfg.draft_rows, models),
    )


def _blockwise_drafter(
    cfg: Any,
    task: Any,
    models: Sequence[Any],
    verifier: Verifier,
    statistics: Statistics,
    eos: Optional[int],
) -> BlockwiseDrafter:
    model, engine = _load_heads(cfg, task, models), verifier.engines[0]
    if not isinstance(engine, CachedDecoder):
        raise PluginError(
            "--decoding blockwise reads the states of the model in --path, which cannot be had, "
            f"because {CachedDecoder.supports(models[0].decoder)}. Use --decoding greedy."
        )
    k = cfg.block_size or model.block_size
    if not 2 <= k <= model.block_size:
        raise PluginError(
            f"--block-size {cfg.block_size}: these proposal heads were trained with "
            f"{model.block_size}. Give 2 to {model.block_size}, or leave it out."
        )
    if cfg.min_block > k:
        raise PluginError(
            f"--min-block {cfg.min_block}: an iteration adds {k} tokens at most. Give 1 to {k}."
        )
    wanted = _dtype(cfg.drafter_dtype)
    clusters = _drafter_clusters(cfg, task, models[0], models)
    if clusters is not None and wanted is not None and not wanted.is_floating_point:
        raise PluginError(
            f"--drafter-dtype {cfg.drafter_dtype} cannot be had for proposal heads with "
            "--drafter-vocab-clusters: leave it out, or give bfloat16 or float32."
        )
    default = torch.int8 if _on_cpu(models) and clusters is None else None
    proposals = Proposals(model.heads, engine, k, wanted or default, clusters)
    if cfg.drafter_path is not None:
        proposals.release()
    if wanted is not None and proposals.weight_type != wanted:
        _warn_of_type(cfg.drafter_dtype)
    # What is accepted right or wrong must not depend on how many sentences are left.
    always = cfg.min_block > 1 and cfg.draft_rows < 0
    return BlockwiseDrafter(
        proposals,
        verifier,
        task.target_dictionary.eos() if eos is None else eos,
        cfg.draft_confidence,
        cfg.min_block - 1,
        None if always else _most_rows(cfg.draft_rows, models),
        statistics,
    )


def _load_heads(cfg: Any, task: Any, models: Sequence[Any]) -> BlockwiseTransformerModel:
    """The model that has the heads: the first of --path, or that of --drafter-path."""
    path, base = cfg.drafter_path, models[0]
    if isinstance(base, BlockwiseTransformerModel) and base.alone:
        raise PluginError(
            "The file in --path holds proposal heads and no model: give the model that they were "
            "trained for as --path, and this file as --drafter-path."
        )
    dictionaries = task.source_dictionary, task.target_dictionary
    model = base if path is None else load_model(path, *dictionaries)
    if not isinstance(model, BlockwiseTransformerModel):
        named = "The model in --path" if path is None else path
        raise PluginError(
            f"{named} has no proposal heads, which --decoding blockwise drafts with: train some "
            "with --task blockwise_translation --arch blockwise_transformer, and give a whole "
            "model as --path, or heads alone as --drafter-path."
        )
    check_pair(path or "The model in --path", model, *dictionaries)
    if path is None:
        return model
    width = getattr(base.decoder, "output_embed_dim", None)
    if model.heads.dim != width:
        raise PluginError(
            f"The proposal heads of {path} read states of {model.heads.dim} numbers, and the model "
            f"in --path has {width or 'none'}. Give the model that they were trained for, or train "
            "heads for this one."
        )
    if not model.belongs_to(base):
        logger.warning(
            f"The proposal heads of {path} were trained for another model than the one in --path. "
            "The output stays that of greedy decoding, but few drafts will be accepted: train "
            "heads for this model."
        )
    weight = next(base.parameters())
    return model.to(device=weight.device, dtype=weight.dtype)


def _adaptive(model: Any) -> bool:
    return getattr(model.decoder, "adaptive_softmax", None) is not None


def _load_drafter(cfg: Any, task: Any, models: Sequence[Any]) -> BlockNATModel:
    path = cfg.drafter_path
    if path is None:
        raise PluginError(
            f"--decoding {cfg.decoding} needs a drafter: add --drafter-path DRAFTER.pt "
            "(train one with --task block_nat_translation), or use another --decoding."
        )
    drafter = load_model(path, task.source_dictionary, task.target_dictionary)
    if not isinstance(drafter, BlockNATModel):
        raise PluginError(
            f"{path} is not a drafter but a {type(drafter).__name__}. Give a model trained with "
            "--arch block_nat."
        )
    check_pair(path, drafter, task.source_dictionary, task.target_dictionary)
    reason = CachedDecoder.supports(drafter.decoder)
    if reason is not None:
        raise PluginError(
            f"{path} cannot draft, because {reason}. Train a drafter without that option."
        )
    weight = next(models[0].parameters())
    return drafter.to(device=weight.device, dtype=weight.dtype)


def _drafter(
    cfg: Any,
    task: Any,
    model: BlockNATModel,
    models: Sequence[Any],
    statistics: Statistics,
    with_scores: bool,
) -> NATDrafter:
    trained = model.decoder.block_size
    if not 0 <= cfg.block_size <= trained:
        raise PluginError(
            f"--block-size {cfg.block_size}: this drafter was trained with {trained}. Give 1 to "
            f"{trained}, or leave it out."
        )
    shared = None
    if isinstance(model.encoder, FrozenEncoder):
        shared = _shared_encoder(model, models)
    drafter = NATDrafter(
        model,
        cfg.block_size or trained,
        shared,
        _dtype(cfg.drafter_dtype),
        with_scores,
        0.0 if with_scores else cfg.draft_confidence,
        None if with_scores else _most_rows(cfg.draft_rows, models),
        statistics,
        _drafter_clusters(cfg, task, model, models),
    )
    drafter.release()
    dtype = _dtype(cfg.drafter_dtype)
    if dtype is not None and not dtype.is_floating_point and drafter.engine.weight_type != dtype:
        _warn_of_type(cfg.drafter_dtype)
    return drafter


def _warn_of_type(wanted: Any) -> None:
    logger.warning(
        f"--drafter-dtype {wanted} needs a CPU and the native kernels, which are "
        "missing here: the drafter computes in its model's own type, and slower. On a CPU, "
        "install a C++ compiler; elsewhere, leave --drafter-dtype out or give bfloat16."
    )


#: With more rows a pass over drafts takes longer in proportion than it saves: at 2 rows SpecDec ran
#: at 0.80 of greedy's speed, at 4 at 0.70 (3+3 layers, d=256, 2 cores).
_ROWS_ON_CPU = 1


def _most_rows(wanted: int, models: Sequence[Any]) -> Optional[int]:
    """How many unfinished rows may be left for drafts to pay; None: any number."""
    if wanted >= 0:
        return wanted or None
    return _ROWS_ON_CPU if _on_cpu(models) else None


def _on_cpu(models: Sequence[Any]) -> bool:
    return bool(next(models[0].parameters()).device.type == "cpu")


def _shared_encoder(drafter: BlockNATModel, models: Sequence[Any]) -> int:
    """Which verifier's encoder the drafter was trained with.

    Else the first that it can read, with a warning; PluginError if there is none.
    """
    for index, model in enumerate(models):
        if drafter.shares_encoder_of(model):
            return index
    width = drafter.decoder.layers[0].encoder_attn.kdim
    readable = [index for index, model in enumerate(models) if _encoder_width(model) == width]
    if not readable:
        raise PluginError(
            f"The drafter shares the encoder of a Transformer that is {width} wide, and the model "
            "in --path has another. Give the verifier that the drafter was trained with, or train "
            "a drafter for this one."
        )
    logger.warning(
        "The drafter was trained with the encoder of another verifier. The output stays that of "
        "greedy decoding, but few drafts will be accepted: train a drafter for this verifier."
    )
    return readable[0]


def _encoder_width(model: Any) -> Optional[int]:
    """The size of a Transformer encoder's states; None for other encoders."""
    if not isinstance(model.encoder, TransformerEncoderBase):
        return None
    return int(model.encoder.embed_tokens.embedding_dim)


def _dtype(name: Any) -> Optional[torch.dtype]:
    return None if name is None else getattr(torch, str(name))


def _lengths(args: Any, models: Sequence[Any], alone: Optional[BlockNATModel]) -> Lengths:
    """fairseq's length options; positions limit the output as the verifiers' do in fairseq.

    Args:
        args: fairseq's generation options.
        models: the verifiers.
        alone: the drafter, if nobody goes on where its positions end.
    """
    limits = [sys.maxsize]
    for model in models:
        if hasattr(model, "max_decoder_positions"):
            limits.append(model.max_decoder_positions())
    positions = None if alone is None else learned_positions(alone.decoder)
    if positions is not None:
        # A block starts one position behind the tokens before it.
        limits.append(positions - 1)
    return Lengths(
        max_len_a=getattr(args, "max_len_a", 0),
        max_len_b=getattr(args, "max_len_b", 200),
        min_len=getattr(args, "min_len", 1),
        max_positions=min(limits),
        unk_penalty=getattr(args, "unkpen", 0),
        len_penalty=getattr(args, "lenpen", 1),
        normalize=not getattr(args, "unnormalized", False),
    )
