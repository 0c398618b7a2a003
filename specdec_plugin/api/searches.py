"""From a method's name and its options to what decodes."""

from argparse import Namespace
from dataclasses import fields
from typing import Any, Mapping, Optional, Sequence, Tuple, Type

from fairseq.dataclass.configs import CommonConfig, GenerationConfig

from ..errors import PluginError
from ..fairseq_compat.options import task_options, with_own_options
from ..methods.options import check_value
from ..methods.registry import Method, decoding_config, method_of

#: What ``method`` calls fairseq's own search.
FAIRSEQ = "fairseq"
#: fairseq's options that a search reads.
SEARCH_OPTIONS = (
    "beam", "max_len_a", "max_len_b", "min_len", "lenpen", "unkpen", "unnormalized", "temperature",
    "no_repeat_ngram_size", "match_source_len", "sampling", "sampling_topk", "sampling_topp",
    "diverse_beam_groups", "diverse_beam_strength", "diversity_rate", "constraints", "lm_path",
    "lm_weight", "print_alignment",
    "retain_iter_history", "seed",
)  # fmt: skip
#: Those whose types fairseq declares; ``seed`` is of another class.
_SEARCHED = {
    item.name: item for item in (*fields(GenerationConfig), *fields(CommonConfig))
    if item.name in SEARCH_OPTIONS
}  # fmt: skip
#: What a search for outputs with given phrases has by default, as in fairseq.
OF_PHRASES = {"constraints": "unordered", "beam": 5}


def check_options(task: Any, decoding: Optional[str], flags: Mapping[str, Any]) -> None:
    """Refuse values of another type, and what is no option."""
    declared = {**_SEARCHED, **{item.name: item for item in fields(decoding_config(task))}}
    for name, value in {"decoding": decoding, **flags}.items():
        if name in declared and name != "_name":
            check_value(declared[name], value)
        elif name not in SEARCH_OPTIONS:
            raise PluginError(
                f"There is no option {name}. `specdec-generate --help` lists the decoding "
                f"options; those of fairseq are {', '.join(SEARCH_OPTIONS)}."
            )


def build_search(
    task: Any,
    models: Sequence[Any],
    decoding: Optional[str],
    flags: Mapping[str, Any],
    prefix_size: int = 0,
) -> Tuple[Any, Optional[Type[Method]]]:
    """A generator, and the method that it decodes by; None for fairseq's own search.

    Args:
        task: fairseq's.
        models: an ensemble if there are several.
        decoding: as ``--decoding``.
        flags: the other decoding options, and :data:`SEARCH_OPTIONS`.
        prefix_size: fairseq's option, which some tasks check.

    Raises:
        PluginError: an option does not exist, or has no effect, or contradicts another.
    """
    check_options(task, decoding, flags)
    task = _with(task, {"decoding": decoding, **flags})
    known = {item.name for item in fields(decoding_config(task))}
    searching = {name: value for name, value in flags.items() if name not in known}
    method = None if decoding is None else method_of(decoding_config(task))
    beam = None if method is None else method.default_beam
    shared = {"beam": beam or 5, "prefix_size": prefix_size, "eos_token": None}
    return task.build_generator(models, Namespace(**{**shared, **searching})), method


def build_scorer(
    task: Any, models: Sequence[Any], flags: Mapping[str, Any], prefix_size: int = 0
) -> Any:
    """What scores targets.

    Args:
        task, models, flags, prefix_size: as for :func:`build_search`.
    """
    args = Namespace(score_reference=True, prefix_size=prefix_size, eos_token=None)
    return _with(task, {**flags, "decoding": "greedy"}).build_generator(models, args)


def _with(task: Any, flags: Mapping[str, Any]) -> Any:
    """The task with other decoding options."""
    task = with_own_options(task)
    options = task_options(task)
    for item in fields(decoding_config(task)):
        if item.name in flags and item.name != "_name":
            setattr(options, item.name, flags[item.name])
    return task
