"""Options that several methods share; an option of one method stands in its own folder."""

import math
import os
from dataclasses import Field, dataclass
from numbers import Integral, Real
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, get_args

from fairseq.dataclass import ChoiceEnum

from ..errors import PluginError
from ..fairseq_compat.options import option

DTYPES = ("float32", "bfloat16", "float16")
DTYPE_CHOICES = ChoiceEnum(list(DTYPES))
#: A drafter may be wrong, so its weights may be rounded further.
DRAFTER_DTYPES = (*DTYPES, "int8", "int4")
DRAFTER_DTYPE_CHOICES = ChoiceEnum(list(DRAFTER_DTYPES))


class Range(NamedTuple):
    """The values that a number may have.

    Attributes:
        low: the least value.
        cure: what to give instead of a value outside.
        below: every value is less than this.
    """

    low: float
    cure: str
    below: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether ``value`` is inside; NaN never is, nor a count that the kernels cannot hold."""
        if isinstance(value, int) and value >= 2**31:
            return False
        return value >= self.low and (value < self.below or value == math.inf == self.below)


def kind_of(declared: "Field[Any]") -> Any:
    """The type of an option's values, None aside."""
    kinds = [each for each in get_args(declared.type) if each is not type(None)]
    return kinds[0] if kinds else declared.type


def choices_of(declared: "Field[Any]") -> List[str]:
    """The values of an option that is a choice; else none."""
    members: Any = getattr(kind_of(declared), "__members__", {})
    return [str(each.value) for each in members.values()]


#: What Python's values of a type are, and the cure for others.
_TYPES: Dict[Any, Tuple[Any, str]] = {
    bool: (bool, "give True or False"),
    int: (Integral, "give a whole number"),
    float: (Real, "give a number"),
    str: ((str, os.PathLike), "give a text"),
}


def check_value(declared: "Field[Any]", value: Any) -> None:
    """Refuse a value that a command line would not take for an option.

    Raises:
        PluginError: it is none of the option's choices, or of another type.
    """
    if value is None and (declared.default is None or type(None) in get_args(declared.type)):
        return
    choices = choices_of(declared)
    if choices and str(value) not in choices:
        raise PluginError(f"{declared.name}={value!r}: choose one of {', '.join(choices)}.")
    types, cure = _TYPES.get(kind_of(declared), (object, ""))
    a_switch = isinstance(value, bool) and types in (Integral, Real)
    if a_switch or not isinstance(value, types):
        raise PluginError(f"{declared.name}={value!r}: {cure}.")


@dataclass
class ModelOptions:
    """How the model computes."""

    verifier_dtype: Optional[DTYPE_CHOICES] = option(
        None, "type that the verifier's decoder computes in (default: the model's own)"
    )
    vocab_clusters: Optional[str] = option(
        None,
        "file that specdec-cluster-vocab wrote for the model: the scores are computed only for "
        "the tokens of the cluster that is nearest to a decoder state, which is faster where the "
        "vocabulary is large. The output may differ a little from that of the full projection, "
        "and scores are relative to those tokens. Also works without --decoding",
    )


@dataclass
class WorkerOptions(ModelOptions):
    """How the verifier computes, and by whom."""

    decoding_workers: int = option(
        0,
        "sentences of a batch that are decoded without drafts are shared by so many workers, each "
        "with a thread and rows of its own; 1: all threads decode the same rows. Default (0): as "
        "many as threads, with 8 rows at least for each. On a CPU with the native kernels",
        Range(0, "give 1 or more, or leave it out"),
    )
    keep_packed_weights: bool = option(
        False,
        "keep packed weights in a folder beside the checkpoint, its path and .packed, which takes "
        "at most as much room as the checkpoint. Later runs start faster, with or without this "
        "flag. For checkpoints of 1 GiB or more, on a CPU with the native kernels",
    )


@dataclass
class VerifierOptions(WorkerOptions):
    """How the verifier computes, and which samples it draws."""

    sentence_offset: int = option(
        0,
        "with --sampling: sentences of the corpus before the first one that is decoded here. "
        "Samples depend on --seed and on a sentence's number in the whole corpus, so that parts "
        "of a corpus draw what the whole draws",
        Range(0, "give 0 or more"),
    )
    certified_projection: bool = option(
        False,
        "score the vocabulary with 8-bit weights first, and in float32 only the symbols that the "
        "8-bit scores cannot rule out; log-probabilities are normalised later, for many positions "
        "at once. The output stays the same. It is used where few positions are scored at a time, "
        "on a CPU with the native kernels, and gains more the larger the vocabulary is. "
        "--decoding auto does so where it is faster",
    )
    approximate_scores: bool = option(
        False,
        "with a certified projection: normalise log-probabilities by the 8-bit scores of all but "
        "the likely symbols, for any number of positions. The tokens stay the same; a sentence's "
        "score was off by less than 0.0001 with the shipped model, and may be off by more with "
        "others",
    )


@dataclass
class DrafterPathOptions:
    """The file that drafts."""

    drafter_path: Optional[str] = option(
        None,
        "checkpoint of the drafter (specdec, nat, auto, input-guided with --fallback nat), or of "
        "proposal heads that were trained for the model (blockwise, auto). Without it, specdec and "
        "auto draft with the model itself. On a CPU, which needs the native kernels, its weights "
        "are rounded to 4 bits, or to 8 bits in a beam search; on a GPU they are in half "
        "precision",
    )


@dataclass
class BlockSizeOptions:
    """How much is drafted."""

    block_size: int = option(
        0,
        "k: tokens that are drafted in an iteration, at most. For blockwise, k includes the "
        "model's own next token. For gs-jacobi and hybrid-jacobi it is b, the length of a block. "
        "Default (0): depends on the method; python -m specdec_plugin.cli.options lists it",
        Range(0, "give 1 or more, or leave it out"),
    )


@dataclass
class DraftConfidenceOptions:
    """Where a draft ends."""

    draft_confidence: float = option(
        0.0,
        "adaptive k: a draft ends before the drafter's own probability that all of it is right "
        "falls below this. Default (0): for drafters on a CPU 0.2, but for --decoding nat; "
        "else k tokens are drafted always; with --jacobi-window adaptive 0.1",
        Range(0, "give a probability from 0 to less than 1, such as 0.3", below=1),
    )


@dataclass
class DraftRowsOptions:
    """When anything is drafted."""

    draft_rows: int = option(
        -1,
        "draft only while at most this many sentences of a batch are unfinished; 0: always. "
        "Default (-1): while drafts are measured to be faster. Where the output depends on drafts "
        "(--top-beta above 1, --acceptance, --min-block), the default is 1 on a CPU, and always "
        "elsewhere",
        Range(-1, "give 0 or more, or leave it out"),
    )


@dataclass
class DrafterOptions:
    """How a drafter computes."""

    drafter_dtype: Optional[DRAFTER_DTYPE_CHOICES] = option(
        None,
        "type of the drafter's weights; only drafts depend on it (with nat the output). int8 and "
        "int4 round the inputs to 8 bits and the weights to 8 or 4; they are the fastest, and "
        "need a CPU with the native kernels. Default: int8 where the kernels run, and int4 for a "
        "self-draft outside of beam search; float16 on a GPU; for --decoding nat the model's own "
        "type",
    )
    drafter_vocab_clusters: Optional[str] = option(
        None,
        "as --vocab-clusters, for drafts alone, made from the drafter's decoder states or the "
        "model's: drafts become cheaper, and the output stays the same, but for that of nat",
    )


@dataclass
class TopBetaOptions:
    """Acceptance among the best."""

    top_beta: int = option(
        1,
        "SpecDec++, and blockwise with --acceptance top-k: accept a drafted token among the "
        "verifier's β best. 1 accepts only its best, so that the output is that of greedy "
        "decoding",
        Range(1, "give 1 or more"),
    )


@dataclass
class ToleranceOptions(TopBetaOptions):
    """Acceptance among the best that are near the best."""

    tolerance: float = option(
        math.inf,
        "SpecDec++: τ, how far the log-probability of an accepted token may be below the best",
        Range(0, "give 0 or more"),
    )
