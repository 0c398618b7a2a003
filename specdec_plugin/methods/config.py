"""The decoding flags."""

import math
from dataclasses import dataclass, field, fields
from typing import Any, Dict, Optional, Tuple

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..errors import PluginError
from ..fairseq_compat.options import task_options

#: Solvers of paper 000, which need no drafter.
JACOBI = ("jacobi", "gs-jacobi", "hybrid-jacobi")
DECODING_CHOICES = ChoiceEnum(["greedy", "specdec", "input-guided", "blockwise", "nat", *JACOBI])
DTYPES = ("float32", "bfloat16", "float16")
DTYPE_CHOICES = ChoiceEnum(list(DTYPES))
#: A drafter may be wrong, so its weights may be rounded further.
DRAFTER_DTYPES = (*DTYPES, "int8", "int4")
DRAFTER_DTYPE_CHOICES = ChoiceEnum(list(DRAFTER_DTYPES))
JACOBI_INIT_CHOICES = ChoiceEnum(["pad", "source", "random", "ngram"])
FALLBACK_CHOICES = ChoiceEnum(["nat", "ngram"])
ACCEPTANCE_CHOICES = ChoiceEnum(["exact", "top-k", "distance"])
JACOBI_WINDOW_CHOICES = ChoiceEnum(["block", "sliding", "adaptive"])


@dataclass
class DecodingConfig(FairseqDataclass):
    """How the tasks of :class:`ParallelDecodingMixin` decode."""

    decoding: Optional[DECODING_CHOICES] = field(
        default=None,
        metadata={
            "help": "greedy: one token an iteration; specdec: a drafter proposes a block, the "
            "model verifies it; input-guided: what follows in the source is drafted, for "
            "corrections and the like; blockwise: the model's own proposal heads draft; nat: the "
            "drafter alone; jacobi, gs-jacobi, "
            "hybrid-jacobi: the model solves for the whole sentence, for a block, or for a block "
            "up to --hybrid-length, at once, from guesses. Default: fairseq's own beam search"
        },
    )
    drafter_path: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint of the drafter (specdec, nat, input-guided with --fallback nat), "
            "or of proposal heads that were trained for the model (blockwise). "
            "Without one, specdec drafts with a "
            "copy of the model itself whose weights are rounded to 8 bits, or to 4 bits with "
            "--top-beta above 1 (on CPUs with the native kernels)"
        },
    )
    block_size: int = field(
        default=0,
        metadata={
            "help": "k: drafted tokens an iteration; 0 means what the drafter was trained with, "
            "or without --drafter-path 32, and 64 with --top-beta above 1. blockwise: the next "
            "token among them, so that k - 1 are drafted. input-guided: copied "
            "tokens an iteration (default: 8 on a CPU, elsewhere to the end). gs-jacobi and "
            "hybrid-jacobi: b, tokens of a block, or with another --jacobi-window the most "
            "guessed tokens an iteration (default: 3; with --jacobi-window adaptive 2 on a CPU, "
            "8 elsewhere)"
        },
    )
    draft_confidence: float = field(
        default=0.0,
        metadata={
            "help": "adaptive k: stop a draft where the drafter's own probability that all of it "
            "is right would fall below this; 0 drafts k tokens always. With --jacobi-window "
            "adaptive, 0 means 0.1"
        },
    )
    draft_rows: int = field(
        default=-1,
        metadata={
            "help": "draft only while at most so many sentences of a batch are unfinished; 0: "
            "always. Default: 1 on a CPU, where several sentences keep the processor as busy as "
            "a draft does, and always elsewhere"
        },
    )
    fallback: Optional[FALLBACK_CHOICES] = field(
        default=None,
        metadata={
            "help": "input-guided: what is drafted where no end of the output occurs in the source "
            "only once: nat: what --drafter-path drafts; ngram: what follows the longest match, of "
            "several the nearest; without any, or with that of a single symbol far away, the "
            "source as if each symbol replaced one. Default: nothing"
        },
    )
    hybrid_length: int = field(
        default=0,
        metadata={
            "help": "hybrid-jacobi: h, tokens after which it goes on one by one; 0: the limit"
        },
    )
    jacobi_init: JACOBI_INIT_CHOICES = field(
        default="ngram",
        metadata={
            "help": "guesses before the first iteration: padding (the paper's), the source's "
            "tokens, random ones, or, where the last tokens occur in the source or the output "
            "before, what followed them there"
        },
    )
    jacobi_window: JACOBI_WINDOW_CHOICES = field(
        default="adaptive",
        metadata={
            "help": "gs-jacobi, hybrid-jacobi: block: one block of b tokens after the other (the "
            "paper's); sliding: b guesses in each iteration; adaptive: up to b, while "
            "guesses of their origin were right often enough"
        },
    )
    jacobi_pool: int = field(
        default=65536,
        metadata={
            "help": "n-grams of each order up to 3 that are remembered from the sentences before "
            "to guess what follows; 0: none (the paper's)"
        },
    )
    top_beta: int = field(
        default=1,
        metadata={
            "help": "SpecDec++, and blockwise with --acceptance top-k: accept drafted tokens among "
            "the verifier's β best; 1 accepts only its best, so that the output is that of greedy "
            "decoding"
        },
    )
    tolerance: float = field(
        default=math.inf,
        metadata={
            "help": "SpecDec++: τ, how far below the best log-probability an accepted token may be"
        },
    )
    acceptance: ACCEPTANCE_CHOICES = field(
        default="exact",
        metadata={
            "help": "blockwise: accept drafted tokens that are the model's best; among its "
            "--top-beta best; or, for symbols that are numbers, at most --epsilon from its best"
        },
    )
    epsilon: float = field(
        default=2.0,
        metadata={"help": "--acceptance distance: ε, how far an accepted number may be away"},
    )
    min_block: int = field(
        default=1,
        metadata={
            "help": "blockwise: ℓ, tokens that each iteration but the first adds at least, right "
            "or wrong (unless one of them would end the sentence)"
        },
    )
    verifier_dtype: Optional[DTYPE_CHOICES] = field(
        default=None, metadata={"help": "type the verifier's decoder computes in"}
    )
    drafter_dtype: Optional[DRAFTER_DTYPE_CHOICES] = field(
        default=None,
        metadata={
            "help": "type of the drafter's decoder; int8 and int4 (8-bit inputs, and weights of 8 "
            "or 4 bits; on CPUs with the native kernels) are the fastest, and only drafts depend "
            "on it. blockwise: int8 where there are such kernels"
        },
    )
    vocab_clusters: Optional[str] = field(
        default=None,
        metadata={
            "help": "file that specdec-cluster-vocab wrote for the model: only the tokens of the "
            "cluster that a state is nearest to are scored, which is faster where the vocabulary "
            "is large. The output may differ a little from that of the full projection, and "
            "scores are relative to those tokens. Also without --decoding"
        },
    )
    certified_projection: bool = field(
        default=False,
        metadata={
            "help": "score the vocabulary with 8-bit weights first, and in float32 only the "
            "symbols that these cannot rule out: the output stays as it is, scores may differ by "
            "some thousandths (on CPUs with the native kernels; faster the larger the vocabulary)"
        },
    )
    drafter_vocab_clusters: Optional[str] = field(
        default=None,
        metadata={
            "help": "the same for the drafter alone, made of its own states or of the model's: "
            "drafts get cheaper, and the output stays as it is"
        },
    )


def decoding_config(task: Any) -> DecodingConfig:
    """The decoding flags of a task; those that its options lack have their defaults.

    A legacy task may have been set up with the options of a checkpoint that
    fairseq's own task wrote, which know nothing of these flags.
    """
    config: DecodingConfig = DecodingConfig.from_namespace(task_options(task))
    return config


#: The methods that read each field of :class:`DecodingConfig`; the others would ignore it.
READERS: Dict[str, Tuple[str, ...]] = {
    "drafter_path": ("specdec", "nat", "input-guided", "blockwise"),
    "block_size": ("specdec", "nat", "input-guided", "blockwise", "gs-jacobi", "hybrid-jacobi"),
    "draft_confidence": ("specdec", "input-guided", "blockwise", "gs-jacobi", "hybrid-jacobi"),
    "draft_rows": ("specdec", "blockwise", *JACOBI),
    "fallback": ("input-guided",),
    "hybrid_length": ("hybrid-jacobi",),
    "jacobi_init": JACOBI,
    "jacobi_window": ("gs-jacobi", "hybrid-jacobi"),
    "jacobi_pool": JACOBI,
    "top_beta": ("specdec", "blockwise"),
    "tolerance": ("specdec",),
    "acceptance": ("blockwise",),
    "epsilon": ("blockwise",),
    "min_block": ("blockwise",),
    "verifier_dtype": ("greedy", "specdec", "input-guided", "blockwise", *JACOBI),
    "drafter_dtype": ("specdec", "nat", "input-guided", "blockwise"),
    "vocab_clusters": ("greedy", "specdec", "input-guided", "blockwise", *JACOBI),
    "certified_projection": ("greedy", "specdec", "input-guided", "blockwise", *JACOBI),
    "drafter_vocab_clusters": ("specdec", "nat", "input-guided", "blockwise"),
}
#: Fields that fairseq's own search reads too.
_OF_ANY_SEARCH = ("vocab_clusters",)
_DEFAULTS = {item.name: item.default for item in fields(DecodingConfig)}


def check_method_flags(cfg: Any) -> None:
    """Refuse decoding flags that ``--decoding`` would ignore, and values out of range.

    Args:
        cfg: has the fields of :class:`DecodingConfig`.

    Raises:
        PluginError: says which flag and what to do.
    """
    given = {name: getattr(cfg, name) for name in READERS if getattr(cfg, name) != _DEFAULTS[name]}
    for name, value in given.items():
        methods = READERS[name]
        if cfg.decoding is None and name in _OF_ANY_SEARCH:
            continue
        if cfg.decoding is None:
            raise PluginError(
                f"{_given(name, value)} is given without --decoding, so it would have no effect: "
                f"add --decoding {' or '.join(methods)}, or leave {_flag(name)} out."
            )
        if str(cfg.decoding) not in methods:
            raise PluginError(
                f"{_given(name, value)} would have no effect with --decoding {cfg.decoding}: leave "
                f"it out, or decode with --decoding {' or '.join(methods)}."
            )
    if not 0 <= cfg.draft_confidence < 1:
        raise PluginError(
            f"--draft-confidence {cfg.draft_confidence} is no probability that a draft may reach: "
            "give one from 0 to less than 1, such as 0.3."
        )
    if "draft_confidence" in given and str(cfg.decoding) in JACOBI and not _adapts(cfg):
        raise PluginError(
            f"--draft-confidence {cfg.draft_confidence} would have no effect with --jacobi-window "
            f"{cfg.jacobi_window}: leave it out, or give --jacobi-window adaptive."
        )
    if str(cfg.decoding) == "input-guided":
        _check_fallback(cfg, given)
    if str(cfg.decoding) == "blockwise":
        _check_acceptance(cfg, given)
    if cfg.certified_projection:
        _check_certified(cfg)
    for name in ("hybrid_length", "jacobi_pool"):
        if getattr(cfg, name) < 0:
            raise PluginError(f"{_flag(name)} {getattr(cfg, name)}: give 0 or more.")
    if cfg.top_beta < 1 or not cfg.tolerance >= 0:
        raise PluginError("--top-beta must be at least 1, and --tolerance at least 0.")
    if "tolerance" in given and cfg.top_beta == 1:
        raise PluginError(
            f"--tolerance {cfg.tolerance} would have no effect, since only the verifier's best "
            "token is accepted: add --top-beta with 2 or more, or leave --tolerance out."
        )


def _check_fallback(cfg: Any, given: Dict[str, Any]) -> None:
    """A drafter is read as a fallback only, and needed then."""
    if str(cfg.fallback) == "nat":
        if cfg.drafter_path is None:
            raise PluginError("--fallback nat needs a drafter: add --drafter-path DRAFTER.pt.")
        return
    for name in ("drafter_path", "draft_confidence", "drafter_dtype", "drafter_vocab_clusters"):
        if name in given:
            raise PluginError(
                f"{_flag(name)} {given[name]} would have no effect with --decoding input-guided: "
                f"add --fallback nat, or leave {_flag(name)} out."
            )


def _check_certified(cfg: Any) -> None:
    """What is certified is the best symbol, in float32, of the whole vocabulary."""
    if cfg.top_beta > 1:
        raise PluginError(
            f"--certified-projection would have no effect with --top-beta {cfg.top_beta}, for "
            "which 8-bit scores say in any case which symbols are scored exactly: leave it out."
        )
    if cfg.vocab_clusters is not None:
        raise PluginError(
            "--certified-projection finds the best of all symbols, and --vocab-clusters leaves "
            "most of them out: give one of the two."
        )
    if cfg.verifier_dtype is not None and str(cfg.verifier_dtype) != "float32":
        raise PluginError(
            f"--certified-projection certifies what float32 says, and --verifier-dtype is "
            f"{cfg.verifier_dtype}: leave one of the two out."
        )


def _check_acceptance(cfg: Any, given: Dict[str, Any]) -> None:
    """β and ε belong to one rule each, which needs its own."""
    acceptance = str(cfg.acceptance)
    for name, rule in (("top_beta", "top-k"), ("epsilon", "distance")):
        if name in given and acceptance != rule:
            raise PluginError(
                f"{_flag(name)} {given[name]} would have no effect with --acceptance {acceptance}: "
                f"add --acceptance {rule}, or leave {_flag(name)} out."
            )
    if acceptance == "top-k" and cfg.top_beta < 2:
        raise PluginError(
            "--acceptance top-k accepts some of the model's best tokens: add --top-beta with 2 or "
            "more, or leave --acceptance out."
        )
    if not cfg.epsilon >= 0:
        raise PluginError(f"--epsilon {cfg.epsilon}: give a distance of 0 or more.")
    if cfg.min_block < 1:
        raise PluginError(f"--min-block {cfg.min_block}: give 1 or more, or leave it out.")


def _adapts(cfg: Any) -> bool:
    return str(cfg.jacobi_window) == "adaptive"


def _given(name: str, value: Any) -> str:
    """As on the command line."""
    return _flag(name) if value is True else f"{_flag(name)} {value}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
