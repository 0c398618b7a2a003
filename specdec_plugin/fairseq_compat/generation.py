"""fairseq's own generation flags beside ``--decoding``: kept, or refused in a sentence."""

import math
from dataclasses import MISSING, fields
from typing import Any, Callable, Container, Dict, Mapping, Optional, Tuple

from fairseq.dataclass.configs import GenerationConfig

from ..errors import PluginError
from .language_models import EXTRA, OF_EXTRA, OF_LANGUAGE_MODELS, asks_language_model
from .options import flag_of
from .strategies import ALLOWED, OF_STRATEGIES, strategies_given

_LEAVE = "leave it out, or leave out {decoding}"
_SEARCHES = "{searches}, or leave it out"
_DROPOUT = "with dropout no two passes agree; leave it out"
_SAMPLING = f"the method draws no samples; {_LEAVE}, or use --decoding greedy"
_CUT = "it tells which symbols --sampling draws from; add --sampling, or leave it out"
_SPEECH = "it belongs to speech translation; leave it out"
_ITERATIVE = "it belongs to fairseq's iterative refinement; leave it out"

#: Of ``extra_gen_cls_kwargs``: symbols that fairseq's programs do not print.
STRIPPED = "symbols_to_strip_from_output"
#: Options that have a meaning of their own with --sampling.
OF_SAMPLES = frozenset(["sampling", "sampling_topk", "sampling_topp", "beam", "nbest"])
#: Options that parallel greedy decoding cannot keep: why, and what to do instead.
REFUSED: Dict[str, str] = {
    "beam": "the method speeds up greedy search; {beam}",
    "nbest": "greedy decoding has one hypothesis; leave it out",
    "replace_unk": "fairseq itself fails at the first unknown word; leave it out",
    **dict.fromkeys(["match_source_len", "no_repeat_ngram_size"], _SEARCHES),
    **dict.fromkeys([*OF_STRATEGIES, *OF_LANGUAGE_MODELS], _SEARCHES),
    **dict.fromkeys(["retain_dropout", "retain_dropout_modules"], _DROPOUT),
    "sampling": _SAMPLING,
    **dict.fromkeys(["sampling_topk", "sampling_topp"], _CUT),
    **dict.fromkeys(["beam_mt", "max_len_a_mt", "max_len_b_mt", "lenpen_mt", "eos_token"], _SPEECH),
    **dict.fromkeys(
        [
            "iter_decode_eos_penalty", "iter_decode_max_iter", "iter_decode_force_max_iter",
            "iter_decode_with_beam", "iter_decode_with_external_reranker", "decoding_format",
        ],
        _ITERATIVE,
    ),
}  # fmt: skip
#: Options that are numbers: which values have a meaning, and what to do instead. NaN has none.
#: fairseq's own search ends in an error with others, or finds nothing.
_NUMBERS: Dict[str, Tuple[Callable[[float], bool], str]] = {
    # Logits that are divided by less may overflow in float32.
    "temperature": (lambda value: value >= 1e-30, "give more than 0, at least 1e-30"),
    # To a larger power, a length of some thousands is too large for float32.
    "lenpen": (lambda value: -10 <= value <= 10, "give a number from -10 to 10, such as 1"),
    "unkpen": (lambda value: value > -math.inf, "give a number, such as 0"),
    "diverse_beam_strength": (math.isfinite, "give a finite number, such as 0.5"),
    "diversity_rate": (lambda value: -1 <= value < math.inf, "give a finite number from 0"),
    # Log-probabilities of a whole output, times more, may overflow in float32.
    "lm_weight": (lambda value: -1e30 <= value <= 1e30, "give a number such as 0.3"),
    **dict.fromkeys(
        ["max_len_a", "max_len_b"],
        (lambda value: abs(value) <= 1e9, "give a finite number, up to 1e9"),
    ),
}
#: Likewise of those that fairseq ignores in its own search.
_IGNORED: Dict[str, Tuple[Callable[[float], bool], str]] = {
    "prefix_size": (lambda value: value >= 0, "give 0 or more"),
    "no_repeat_ngram_size": (lambda value: value == 0 or value > 1, "give 2 or more, or 0"),
    "diverse_beam_groups": (lambda value: value >= -1, "give 1 or more groups"),
}


def check_generation(
    options: Any,
    method: str,
    beam: Optional[int] = 1,
    honours: Container[str] = (),
    typed: bool = False,
    read: Container[str] = (),
) -> None:
    """Refuse options of fairseq that would be ignored.

    Args:
        options: fairseq's generation options (dataclass, OmegaConf or Namespace).
        method: the value of ``--decoding``.
        beam: the beam that the method takes; None: any.
        honours: options that the method keeps, though greedy decoding cannot.
        typed: they come from a command line; else from a program, such as fairseq's hub.
        read: options that the task reads.

    Raises:
        PluginError: names the option as it was given, and the cure.
    """
    check_numbers(options, typed, ours=True)
    drawn = getattr(options, "sampling", False) and "sampling" in honours
    if drawn:
        _check_samples(options, typed)
        honours = OF_SAMPLES  # what else the method keeps, it keeps in a beam search
    if any(name in honours for name in OF_STRATEGIES):
        check_strategy(options, typed)
        _check_effects(options, typed)
    elif ALLOWED in strategies_given(options) and ALLOWED not in honours:
        raise PluginError(
            f"{ALLOWED} cannot be kept with {'sampling=True' if drawn else f'decoding={method!r}'}"
            ": it tells a beam search what may follow. Pass decoding='auto', or leave it out."
        )
    for item in fields(GenerationConfig):
        if item.name in honours or item.name in read or (item.name == "beam" and beam is None):
            continue
        default = beam if item.name == "beam" else item.default
        value = getattr(options, item.name, default)
        if item.name in REFUSED and default is not MISSING and value not in (default, None):
            raise PluginError(_refusal(item.name, value, method, beam, typed, drawn))


def check_numbers(options: Any, typed: bool, ours: bool = False) -> None:
    """Refuse numbers of a search that have no meaning.

    Args:
        options: fairseq's generation options.
        typed: see :func:`check_generation`.
        ours: for a method of this plugin, and not for fairseq's own search.

    Raises:
        PluginError: names the option as it was given, and the cure.
    """
    for name, (holds, cure) in {**_NUMBERS, **(_IGNORED if ours else {})}.items():
        value = getattr(options, name, None)
        if value is not None and not holds(value):
            raise PluginError(f"{_given(name, value, typed)}: {cure}.")
    if getattr(options, "max_len_a", 0) == 0 and not getattr(options, "match_source_len", False):
        check_room(getattr(options, "min_len", 1), int(getattr(options, "max_len_b", 200)))


def _refusal(
    name: str, value: Any, method: str, beam: Optional[int], typed: bool, drawn: bool
) -> str:
    """Why an option cannot be kept; see :func:`check_generation`. ``drawn``: samples are."""
    cure = REFUSED[name].format(
        decoding="--decoding" if typed else "decoding",
        beam=f"give --beam {beam}" if typed else f"pass beam={beam}",
        searches="use --decoding auto" if typed else "use decoding='auto'",
    )
    beside = f"--decoding {method}" if typed else f"decoding={method!r}"
    if drawn and REFUSED[name] == _SEARCHES:
        beside, cure = _given("sampling", True, typed), "leave one of the two out"
    return f"{_given(name, value, typed)} cannot be kept with {beside}: {cure}."


def check_strategy(options: Any, typed: bool) -> None:
    """Refuse two ways to choose, and groups that cannot share the beams of a search.

    Args:
        options: fairseq's generation options.
        typed: see :func:`check_generation`.

    Raises:
        PluginError: names the options, and the cure.
    """
    others = ("sampling", "match_source_len")
    given = strategies_given(options) + [name for name in others if getattr(options, name, False)]
    if len(given) > 1:
        names = " and ".join(flag_of(name) if typed else name for name in given[:2])
        raise PluginError(f"{names} both tell how a search chooses: leave one of them out.")
    groups, beam = getattr(options, "diverse_beam_groups", -1), getattr(options, "beam", 5)
    if groups > 0 and beam % groups != 0:
        raise PluginError(
            f"{_given('diverse_beam_groups', groups, typed)} cannot share "
            f"{_given('beam', beam, typed)} evenly: give a number of beams that it divides."
        )


def _check_effects(options: Any, typed: bool) -> None:
    """Refuse what has no effect without another option."""
    strength, weight = (
        getattr(options, name, default)
        for name, default in (("diverse_beam_strength", 0.5), ("lm_weight", 0))
    )
    if getattr(options, "diverse_beam_groups", -1) <= 0 and strength != 0.5:
        raise PluginError(
            f"{_given('diverse_beam_strength', strength, typed)} would have no effect without "
            "groups: add --diverse-beam-groups, or leave it out."
        )
    if weight != 0 and not asks_language_model(options):
        raise PluginError(
            f"{_given('lm_weight', weight, typed)} would have no effect without a language model: "
            "add --lm-path, or leave it out."
        )


def check_counts(options: Any, typed: bool) -> None:
    """Refuse a search without beams, or without hypotheses that anybody gets.

    Args:
        options: fairseq's generation options.
        typed: see :func:`check_generation`.

    Raises:
        PluginError: names the option, and the cure.
    """
    for name in ("beam", "nbest"):
        number = getattr(options, name, 1)
        if number < 1:
            raise PluginError(f"{_given(name, number, typed)}: give 1 or more.")


def check_room(
    min_len: int, max_len: int, cure: str = "Lower it, or raise --max-len-a or --max-len-b."
) -> None:
    """Refuse a minimum length that no output can reach.

    Raises:
        PluginError: names the options that limit it.
    """
    if min_len > max_len:
        raise PluginError(f"--min-len {min_len} is more than the length limit {max_len}. {cure}")


def _check_samples(options: Any, typed: bool) -> None:
    """Refuse what cannot be drawn."""
    _check_number_of_samples(options, typed)
    top_k, top_p = getattr(options, "sampling_topk", -1), getattr(options, "sampling_topp", -1.0)
    if top_k != -1 and top_k < 1:
        raise PluginError(f"{_given('sampling_topk', top_k, typed)}: give 1 or more symbols.")
    if top_p != -1 and not 0 < top_p <= 1:
        raise PluginError(
            f"{_given('sampling_topp', top_p, typed)}: give a probability above 0, up to 1."
        )
    if top_k != -1 and top_p != -1:
        raise PluginError(
            f"{_given('sampling_topk', top_k, typed)} and {_given('sampling_topp', top_p, typed)} "
            "both tell which symbols are drawn from: leave one of them out."
        )


def _check_number_of_samples(options: Any, typed: bool) -> None:
    """Refuse two numbers of samples, for which fairseq's programs have an assertion."""
    beam, nbest = getattr(options, "beam", 1), getattr(options, "nbest", 1)
    if beam < 1:
        raise PluginError(f"{_given('beam', beam, typed)}: give 1 or more samples.")
    if nbest != beam and (typed or nbest != 1):
        raise PluginError(
            f"{_given('nbest', nbest, typed)} beside {_given('beam', beam, typed)}: both are the "
            "number of samples. Give the same number, or one of them."
        )


def check_fairseqs_search(options: Any, typed: bool) -> None:
    """Refuse options for which fairseq's own search has assertions, or errors without a cure.

    Args:
        options: fairseq's generation options.
        typed: see :func:`check_generation`.

    Raises:
        PluginError: names the option, and the cure.
    """
    check_numbers(options, typed)
    check_strategy(options, typed)
    if getattr(options, "sampling", False):
        if typed:  # fairseq's programs have an assertion, and its hub ignores one of them
            _check_number_of_samples(options, typed)
        return
    check_counts(options, typed)
    for name in ("sampling_topk", "sampling_topp"):
        value = getattr(options, name, -1)
        if value >= 0:
            raise PluginError(
                f"{_given(name, value, typed)} tells which symbols --sampling draws from: add "
                "--sampling, or leave it out."
            )


def check_call(options: Any, arguments: Mapping[str, Any], config: Any) -> None:
    """Refuse what a program, such as fairseq's hub, gives and decoding would ignore.

    Args:
        options: fairseq's generation options, to which the hub adds all that ``translate`` got.
        arguments: others of ``build_generator``.
        config: a dataclass: the task's decoding options.

    Raises:
        PluginError: names the argument, and the cure.
    """
    extra = arguments.get(EXTRA) or {}
    given = [name for name in ("seq_gen_cls",) if arguments.get(name) is not None]
    given += [f"{EXTRA}[{name!r}]" for name in extra if name not in {*OF_EXTRA, STRIPPED}]
    if given:
        raise PluginError(
            f"{given[0]} cannot be kept with decoding={str(config.decoding)!r}: leave it out, or "
            "leave out decoding."
        )
    for item in fields(config):
        value = getattr(options, item.name, None)
        if value is not None and value != getattr(config, item.name) and item.name != "_name":
            raise PluginError(
                f"{item.name}={value!r} is an option of the task, not of a search: pass it to "
                "from_pretrained."
            )


def _given(name: str, value: Any, typed: bool) -> str:
    """An option as it was given: on a command line, or by a program."""
    return _typed(name, value) if typed else f"{name}={value!r}"


def _typed(name: str, value: Any) -> str:
    """A flag as on the command line; a value only where it cannot be one that fairseq filled in."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{flag_of(name)} {value}" if number else flag_of(name)
