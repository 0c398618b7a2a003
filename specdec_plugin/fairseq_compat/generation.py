"""fairseq's own generation flags beside ``--decoding``: kept, or refused in a sentence."""

import importlib.util
from dataclasses import MISSING, fields
from typing import Any, Callable, Container, Dict, Mapping, Optional

from fairseq.dataclass.configs import GenerationConfig

from ..errors import PluginError
from .options import flag_of

#: Options of fairseq that keep their meaning, or have none for any greedy search.
HONOURED = frozenset(
    [
        "max_len_a", "max_len_b", "min_len", "unnormalized", "lenpen", "unkpen", "prefix_size",
        "temperature", "print_step", "print_alignment", "retain_iter_history", "sacrebleu",
        "score_reference", "no_early_stop", "no_beamable_mm", "no_seed_provided",
    ]
)  # fmt: skip

_LEAVE = "leave it out, or leave out {decoding}"
_LANGUAGE_MODEL = "a language model is not verified in parallel; leave it out"
_DROPOUT = "with dropout no two passes agree; leave it out"
_SAMPLING = f"decoding is deterministic there; {_LEAVE}"
_DIVERSE = f"diverse search needs a beam; {_LEAVE}"
_SPEECH = "it belongs to speech translation; leave it out"
_ITERATIVE = "it belongs to fairseq's iterative refinement; leave it out"

#: Options that parallel greedy decoding cannot keep: why, and what to do instead.
REFUSED: Dict[str, str] = {
    "beam": "the method speeds up greedy search; {beam}",
    "nbest": "greedy decoding has one hypothesis; leave it out",
    "replace_unk": "fairseq itself fails at the first unknown word; leave it out",
    "match_source_len": _LEAVE,
    "no_repeat_ngram_size": _LEAVE,
    "constraints": _LEAVE,
    **dict.fromkeys(["lm_path", "lm_weight"], _LANGUAGE_MODEL),
    **dict.fromkeys(["retain_dropout", "retain_dropout_modules"], _DROPOUT),
    **dict.fromkeys(["sampling", "sampling_topk", "sampling_topp"], _SAMPLING),
    **dict.fromkeys(["diverse_beam_groups", "diverse_beam_strength", "diversity_rate"], _DIVERSE),
    **dict.fromkeys(["beam_mt", "max_len_a_mt", "max_len_b_mt", "lenpen_mt", "eos_token"], _SPEECH),
    **dict.fromkeys(
        [
            "iter_decode_eos_penalty", "iter_decode_max_iter", "iter_decode_force_max_iter",
            "iter_decode_with_beam", "iter_decode_with_external_reranker", "decoding_format",
        ],
        _ITERATIVE,
    ),
}  # fmt: skip


def check_generation(
    options: Any,
    method: str,
    beam: Optional[int] = 1,
    honours: Container[str] = (),
    typed: bool = False,
) -> None:
    """Refuse options of fairseq that would be ignored.

    Args:
        options: fairseq's generation options (dataclass, OmegaConf or Namespace).
        method: the value of ``--decoding``.
        beam: the beam that the method takes; None: any.
        honours: options that the method keeps, though greedy decoding cannot.
        typed: they come from a command line; else from a program, such as fairseq's hub.

    Raises:
        PluginError: names the option as it was given, and the cure.
    """
    for item in fields(GenerationConfig):
        any_beam = item.name == "beam" and beam is None
        if item.name not in REFUSED or item.name in honours or any_beam:
            continue
        default = beam if item.name == "beam" else item.default
        value = getattr(options, item.name, default)
        if default is not MISSING and value != default and value is not None:
            cure = REFUSED[item.name].format(
                decoding="--decoding" if typed else "decoding",
                beam=f"give --beam {beam}" if typed else f"pass beam={beam}",
            )
            beside = f"--decoding {method}" if typed else f"decoding={method!r}"
            given = _typed(item.name, value) if typed else f"{item.name}={value!r}"
            raise PluginError(f"{given} cannot be kept with {beside}: {cure}.")


def check_call(options: Any, arguments: Mapping[str, Any], config: Any) -> None:
    """Refuse what a program, such as fairseq's hub, gives and decoding would ignore.

    Args:
        options: fairseq's generation options, to which the hub adds all that ``translate`` got.
        arguments: others of ``build_generator``.
        config: a dataclass: the task's decoding options.

    Raises:
        PluginError: names the argument, and the cure.
    """
    for name in ("prefix_allowed_tokens_fn", "seq_gen_cls"):
        if arguments.get(name) is not None:
            raise PluginError(
                f"{name} cannot be kept with decoding={str(config.decoding)!r}: leave it out, or "
                "leave out decoding."
            )
    for item in fields(config):
        value = getattr(options, item.name, None)
        if value is not None and value != getattr(config, item.name) and item.name != "_name":
            raise PluginError(
                f"{item.name}={value!r} is an option of the task, not of a search: pass it to "
                "from_pretrained."
            )


def _typed(name: str, value: Any) -> str:
    """A flag as on the command line; a value only where it cannot be one that fairseq filled in."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{flag_of(name)} {value}" if number else flag_of(name)


def check_when_parsed(parser: Any, method_of: Callable[[Any], Any]) -> None:
    """Let a parser of fairseq-generate or fairseq-interactive check what it parsed at once.

    fairseq itself would load data and models first. Where ``--beam`` is not typed, it takes the
    method's beam instead of fairseq's 5.

    Args:
        parser: fairseq's, to which a task adds its flags; others are left as they are.
        method_of: the method in the parsed options: its ``default_beam``, ``honours`` and
            ``check_search``.
    """
    default = parser.get_default("beam")
    if default is None:
        return
    parse = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> Any:
        parser.set_defaults(beam=None)
        try:
            found, rest = parse(args, namespace)
        finally:
            parser.set_defaults(beam=default)
        _check_tokenizer(found)
        method = None if found.decoding is None else method_of(found)
        if found.beam is None:
            found.beam = default if method is None else method.default_beam or default
        if method is not None and not found.score_reference:
            name = str(found.decoding)
            check_generation(found, name, method.default_beam, method.honours, typed=True)
            method.check_search(found)
            _check_printing(found)
        return found, rest

    parser.parse_known_args = parse_known_args


def _check_tokenizer(options: Any) -> None:
    """fairseq asks for sacremoses in a traceback, after it has loaded data and models."""
    if options.tokenizer == "moses" and importlib.util.find_spec("sacremoses") is None:
        raise PluginError(
            "--tokenizer moses needs the package sacremoses: pip install 'specdec-plugin[moses]'."
        )


def _check_printing(options: Any) -> None:
    """fairseq-interactive raises a ``ValueError`` when it prints soft alignments."""
    if hasattr(options, "buffer_size") and str(options.print_alignment) == "soft":
        raise PluginError(
            "fairseq-interactive cannot print soft alignments: give --print-alignment hard, or "
            "use fairseq-generate."
        )
