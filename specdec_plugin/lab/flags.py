"""Decoding flags as command-line options of the lab's programs."""

from dataclasses import Field
from typing import Any, Dict

from ..fairseq_compat.options import flag_of
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
