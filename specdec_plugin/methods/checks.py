"""The refusal of flags: those that a method would ignore, or that contradict each other.

What a method itself refuses is its :meth:`.Method.check`.
"""

from typing import Any, Optional, Sequence, Type

from fairseq.models.nat import FairseqNATModel

from ..errors import PluginError
from ..fairseq_compat.options import flag_of
from ..fairseq_compat.strategies import ALLOWED, strategies_given
from ..models.roles import check_whole_model
from .registry import (
    OF_ANY_SEARCH,
    Method,
    Need,
    all_flags,
    flags_of,
    given_flags,
    method_of,
    methods,
    readers,
)

#: Flags with which the output would not follow the model's distribution: what they do.
_NOT_DRAWN = {
    **dict.fromkeys(["top_beta", "acceptance", "min_block"], "accepts tokens that were not drawn"),
    "vocab_clusters": "leaves out most symbols",
    "copy_bias": "prefers tokens of the source",
}


def check_models(models: Sequence[Any], decoding: Any) -> None:
    """Refuse models that do not predict a token from a source and the tokens before it.

    Raises:
        PluginError: names the model's class, and the cure.
    """
    check_whole_models(models)
    for model in models:
        kind = type(model).__name__
        if isinstance(model, FairseqNATModel):
            raise PluginError(
                f"--path names a non-autoregressive model ({kind}), which predicts all positions "
                "at once: leave out --decoding, and decode with fairseq's --task translation_lev."
            )
        if not hasattr(model, "encoder"):
            raise PluginError(
                f"--path names a {kind}, which reads no source. Give --decoding {decoding} a "
                "model with an encoder and a decoder, such as one for translation."
            )


def check_whole_models(models: Sequence[Any]) -> None:
    """Refuse drafters, and heads alone, in ``--path``; see :func:`.check_whole_model`."""
    for model in models:
        check_whole_model(model, "--path", ", and this file as --drafter-path")


def check_alignment(models: Sequence[Any], generation: Any) -> None:
    """Refuse alignments by models of which no decoder attends to the source.

    Args:
        models: those in ``--path``.
        generation: fairseq's generation options.
    """
    if getattr(generation, "print_alignment", None) and not any(map(_attends, models)):
        raise PluginError(
            "--print-alignment shows attention to the source, which this model "
            "(--no-cross-attention) lacks: leave it out."
        )


def _attends(model: Any) -> bool:
    """Whether a decoder reads the source, as far as its layers tell."""
    layers = getattr(getattr(model, "decoder", None), "layers", ())
    return len(layers) == 0 or any(getattr(each, "encoder_attn", 0) is not None for each in layers)


def check_method_flags(cfg: Any) -> None:
    """Refuse decoding flags that ``--decoding`` would ignore, and values out of range.

    Args:
        cfg: has the fields of :func:`.registry.config_class`.

    Raises:
        PluginError: the sentence names the flag and the cure.
    """
    given = given_flags(cfg)
    for flag, value in given.items():
        if cfg.decoding is None and flag in OF_ANY_SEARCH:
            continue
        if cfg.decoding is None:
            raise PluginError(
                f"{typed(flag, value)} is given without --decoding, so it would have no effect: "
                f"add --decoding {' or '.join(readers()[flag])}, or leave {flag_of(flag)} out."
            )
        _check_reader(cfg, flag, value)
    for flag, each in all_flags().items():
        valid = each.metadata["valid"]
        if valid is not None and not valid.holds(getattr(cfg, flag)):
            raise PluginError(f"{flag_of(flag)} {getattr(cfg, flag)}: {valid.cure}.")
    if cfg.decoding is not None:
        _check_certified(cfg)
        method_of(cfg).check(cfg)


def _check_reader(cfg: Any, flag: str, value: Any) -> None:
    """Refuse a flag that the method in ``cfg`` would ignore."""
    method = method_of(cfg)
    useless = f"{typed(flag, value)} would have no effect with --decoding {cfg.decoding}"
    if flag in flags_of(method):
        need = _unmet(method, flag, cfg)
        if need is not None:
            raise PluginError(
                f"{useless}: add {flag_of(need.flag)} {need.value}, or leave {flag_of(flag)} out."
            )
        return
    for other in methods():
        if other.name == method.name and flag in flags_of(other):
            raise PluginError(f"{useless}: add {other.condition}, or leave {flag_of(flag)} out.")
    raise PluginError(
        f"{useless}: leave it out, or decode with --decoding {' or '.join(readers()[flag])}."
    )


def _unmet(method: Type[Method], flag: str, cfg: Any) -> Optional[Need]:
    """What ``flag`` of a method needs beside it and lacks; None where it has an effect."""
    need = method.needs.get(flag)
    if need is None or str(getattr(cfg, need.flag)) == need.value:
        return None
    return need


def _check_certified(cfg: Any) -> None:
    """The certificate holds for the best symbol, in float32, of the whole vocabulary."""
    if not cfg.certified_projection:
        if cfg.approximate_scores and not method_of(cfg).certifies:
            raise PluginError(
                "--approximate-scores would have no effect, since all scores are exact: add "
                "--certified-projection, or leave it out."
            )
        return
    if cfg.top_beta > 1:
        raise PluginError(
            f"--certified-projection would have no effect with --top-beta {cfg.top_beta}, where "
            "8-bit scores choose the symbols that are scored exactly in any case: leave it out."
        )
    if cfg.vocab_clusters is not None:
        raise PluginError(
            "--certified-projection finds the best of all symbols, and --vocab-clusters leaves "
            "most of them out: give one of the two."
        )
    if cfg.verifier_dtype is not None and str(cfg.verifier_dtype) != "float32":
        raise PluginError(
            "--certified-projection certifies the choice of float32, and --verifier-dtype is "
            f"{cfg.verifier_dtype}: leave one of the two out."
        )


def check_read(cfg: Any, method: Type[Method], generation: Any) -> None:
    """Refuse flags of a method that have no effect beside fairseq's generation options."""
    given = given_flags(cfg)
    for flag in sorted(method.unread(generation) & given.keys()):
        raise PluginError(
            f"{typed(flag, given[flag])} would have no effect in the beam search that --beam or "
            "another option of fairseq asks for, such as --match-source-len, "
            "--no-repeat-ngram-size or --lm-path: leave one of them out."
        )


def check_beside(cfg: Any, generation: Any) -> None:
    """Refuse flags that fairseq's generation options contradict.

    Args:
        cfg: as for :func:`check_method_flags`, with a method.
        generation: fairseq's generation options.
    """
    _check_sampling(cfg, generation)
    _check_drafts_of_beams(cfg, generation)
    wanting = {ALLOWED, "constraints"}.intersection(strategies_given(generation))
    if cfg.vocab_clusters is not None and wanting:
        (name,) = wanting
        wants = name if name == ALLOWED else flag_of(name)
        raise PluginError(
            f"--vocab-clusters {cfg.vocab_clusters} leaves out most symbols, which {wants} may "
            "want: leave one of the two out."
        )


def _check_drafts_of_beams(cfg: Any, generation: Any) -> None:
    """Refuse flags about drafts where a beam search has none; see :class:`.SelfDraft`."""
    sampling = getattr(generation, "sampling", False)
    if cfg.vocab_clusters is None or sampling or getattr(generation, "beam", 1) == 1:
        return
    for flag in sorted({"block_size", "drafter_dtype"} & given_flags(cfg).keys()):
        raise PluginError(
            f"{typed(flag, getattr(cfg, flag))} would have no effect beside --vocab-clusters, with "
            "which a beam search drafts nothing: leave it out."
        )


def _check_sampling(cfg: Any, generation: Any) -> None:
    """Refuse flags that would bend the distribution of samples, and those that need samples.

    Args:
        cfg: as for :func:`check_method_flags`, with a method.
        generation: fairseq's generation options.
    """
    given = given_flags(cfg)
    if not getattr(generation, "sampling", False):
        if "sentence_offset" in given:
            raise PluginError(
                f"--sentence-offset {cfg.sentence_offset} would have no effect without --sampling:"
                " leave it out, or add --sampling."
            )
        return
    for flag, reason in _NOT_DRAWN.items():
        if flag in given:
            raise PluginError(
                "--sampling draws from the model's own distribution, and "
                f"{typed(flag, given[flag])} {reason}: leave one of the two out."
            )


def typed(flag: str, value: Any) -> str:
    """A flag and its value as on the command line."""
    return flag_of(flag) if value is True else f"{flag_of(flag)} {value}"
