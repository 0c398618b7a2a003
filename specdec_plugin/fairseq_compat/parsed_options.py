"""Checks of fairseq-generate and fairseq-interactive as soon as their options are parsed."""

from typing import Any, Callable, Container, Mapping

import torch

from ..errors import PluginError
from .collector import freeze_imports
from .generation import check_fairseqs_search, check_generation
from .interrupts import end_in_a_line
from .options import flag_of
from .programs import check_program
from .workers import fork_workers


def check_when_parsed(
    parser: Any,
    method_of: Callable[[Any], Any],
    check: Callable[[Any, Any], None],
    all_busy: Callable[[], bool],
    read: Container[str],
) -> None:
    """Let a parser of fairseq-generate or fairseq-interactive check what it parsed at once.

    fairseq itself would load data and models first. Where ``--beam`` is not typed, it takes the
    method's beam instead of fairseq's 5. Where ``--num-workers`` is not typed, and the threads that
    decode take all processors, it takes 0 instead of 1: a process that reads data would hold up
    one of them now and then, and all others would wait for it.

    Args:
        parser: fairseq's, to which a task adds its flags; others are left as they are.
        method_of: the method in the parsed options: its ``default_beam``, ``honours`` and
            ``check_search``.
        check: further checks of the task's options and of fairseq's, both among the parsed ones.
        all_busy: whether threads that decode leave no processor to another process.
        read: see :func:`.check_generation`.
    """
    defaults = {name: parser.get_default(name) for name in ("beam", "num_workers")}
    if defaults["beam"] is None:
        return
    parse = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> Any:
        end_in_a_line()
        fork_workers()
        freeze_imports()
        parser.set_defaults(**dict.fromkeys(defaults))
        try:
            found, rest = parse(args, namespace)
        finally:
            parser.set_defaults(**defaults)
        method = None if found.decoding is None else method_of(found)
        _fill_in(found, method, defaults, all_busy)
        if method is not None and not found.score_reference:
            name = str(found.decoding)
            check_generation(found, name, method.default_beam, method.honours, True, read)
            method.check_search(found)
            check(found, found)
        elif not found.score_reference:
            check_fairseqs_search(found, typed=True)
        _check_dropout(found)
        _check_printing(found)
        _check_steps(found, method)
        check_program(found)
        return found, rest

    parser.parse_known_args = parse_known_args


def _fill_in(
    options: Any, method: Any, defaults: Mapping[str, Any], all_busy: Callable[[], bool]
) -> None:
    """Beam and data workers where they were not typed; see :func:`check_when_parsed`."""
    if options.beam is None and options.sampling:
        options.beam = options.nbest  # fairseq's programs want them equal
    if options.beam is None:
        of_method = None if method is None else method.default_beam
        options.beam = of_method or defaults["beam"]
    if options.num_workers is None:
        on_cpu = options.cpu or not torch.cuda.is_available()
        busy = method is not None and on_cpu and all_busy()
        options.num_workers = 0 if busy else defaults["num_workers"]


def _check_dropout(options: Any) -> None:
    """With --decoding no weights are drawn first, so that dropout would draw other numbers."""
    if options.decoding is not None and options.score_reference and options.retain_dropout:
        raise PluginError(
            "--retain-dropout beside --score-reference draws fairseq's random numbers only without "
            "--decoding: leave --decoding out."
        )


def _check_printing(options: Any) -> None:
    """fairseq's programs raise errors where they cannot print soft alignments."""
    if str(options.print_alignment) != "soft":
        return
    if hasattr(options, "buffer_size"):
        raise PluginError(
            "fairseq-interactive cannot print soft alignments: give --print-alignment hard, or "
            "use fairseq-generate."
        )
    if options.score_reference and not options.quiet:
        raise PluginError(
            "--score-reference finds hard alignments alone: give --print-alignment hard, or leave "
            "it out."
        )


def _check_steps(options: Any, method: Any) -> None:
    """fairseq-generate raises a ``KeyError`` where it would print steps of its own search."""
    if hasattr(options, "buffer_size") or options.quiet:
        return  # nothing prints steps
    if options.score_reference:
        reason, cure = "--score-reference is given", "leave one of the two out"
    elif method is None:
        reason, cure = "--decoding is not given", "add --decoding auto, or leave it out"
    else:
        return
    for name in ("print_step", "retain_iter_history"):
        if getattr(options, name):
            raise PluginError(f"{flag_of(name)} finds no steps, because {reason}: {cure}.")
