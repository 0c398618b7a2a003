"""Command-line options that the lab's programs share: they have one name, meaning and default."""

import argparse
from dataclasses import Field
from typing import Any, Dict, Sequence

from ..api import Session, load_session
from ..errors import PluginError
from ..fairseq_compat.options import flag_of
from ..fairseq_compat.tasks import given_task_options
from ..methods.options import choices_of, kind_of


def add_flag(group: Any, declared: "Field[Any]", shown: Any, note: str = "", **more: Any) -> None:
    """Add an option for a decoding flag.

    Args:
        group: of an argument parser.
        declared: the flag; see :func:`..methods.options.option`.
        shown: the default that its help names; None for none.
        note: more text for its help.
        more: for ``add_argument``.
    """
    text = str(declared.metadata["help"]) + note
    text += "" if shown is None or shown is False else f" (default: {shown})"
    given: Dict[str, Any] = {"help": text.replace("%", "%%"), **more}
    if kind_of(declared) is bool:
        given["action"] = "store_true"
    elif choices_of(declared):
        given["choices"] = choices_of(declared)
    else:
        given["type"] = kind_of(declared)
    group.add_argument(flag_of(declared.name), **given)


def add_device(parser: Any) -> None:
    """Where models run."""
    parser.add_argument("--device", help="for example cuda (default: the CPU)")


def add_split(group: Any, text: str) -> None:
    """The split of the data, which ``text`` tells the use of; ``--subset`` is an older name."""
    _add(
        group,
        ["--gen-subset", "--subset"],
        default="test",
        metavar="SPLIT",
        help=f"{text} (default: %(default)s)",
    )


def add_sentencepiece(group: Any) -> None:
    """What splits the text of ``--input``; ``--subwords`` is an older name."""
    _add(
        group,
        ["--sentencepiece", "--subwords"],
        metavar="MODEL",
        help="splits the lines of --input; without it they must be subword pieces already, with "
        "spaces between them, as in the data",
    )


def check_sentencepiece(options: argparse.Namespace) -> None:
    """Refuse ``--sentencepiece`` where nothing would be split; PluginError names the cure."""
    if options.sentencepiece is not None and options.input is None:
        raise PluginError(
            f"--sentencepiece {options.sentencepiece} would have no effect: the sentences of a "
            "binarised split are subword pieces already. Leave it out, or give --input."
        )


def open_session(options: argparse.Namespace, prefix_size: int = 0) -> Session:
    """Load what a command line names.

    Args:
        options: ``path``, ``data``, ``device``, ``sentencepiece``, and those of the task.
        prefix_size: see :class:`..api.Session`.

    Raises:
        PluginError: see :func:`..api.load_session`.
    """
    return load_session(
        options.path,
        options.data,
        device=options.device,
        subwords=options.sentencepiece,
        task=options.task,
        task_options=given_task_options(options),
        prefix_size=prefix_size,
    )


def add_prefix_size(group: Any, whose: str = "") -> None:
    """fairseq's forced beginning of hypotheses; ``whose`` tells of which."""
    group.add_argument(
        "--prefix-size",
        type=int,
        default=0,
        help=f"so many tokens of the references begin the hypotheses{whose}, such as the symbol of "
        "the language; --decoder-langtok needs none (default: %(default)s)",
    )


def add_lengths(group: Any) -> None:
    """fairseq's limit of the length of hypotheses."""
    group.add_argument("--max-len-a", type=float, default=0, help="(default: %(default)s)")
    group.add_argument("--max-len-b", type=int, default=200, help="(default: %(default)s)")


def _add(group: Any, names: Sequence[str], **given: Any) -> None:
    """Add an option that older names also give; help and errors have the first alone."""
    group.add_argument(*names, **given).option_strings = [names[0]]
