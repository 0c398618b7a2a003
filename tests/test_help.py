"""Every argument of every program has a help text, which names its default."""

import argparse
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAKERS = ("get_parser", "build_parser")
PROGRAMS = sorted(
    path
    for folder in ("data_scripts", "specdec_plugin")
    for path in (ROOT / folder).rglob("*.py")
    if any(f"def {name}() ->" in path.read_text("utf-8") for name in MAKERS)
)


def parser_of(path, monkeypatch):
    """The command line of a program."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if name.startswith("specdec_plugin."):
        module = importlib.import_module(name)
    else:
        for folder in (ROOT / "data_scripts", path.parent):
            monkeypatch.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location(f"help_of_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return next(getattr(module, name) for name in MAKERS if hasattr(module, name))()


def actions(parser):
    """All arguments, those of subcommands among them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from actions(each)
        else:
            yield action


def test_programs_are_found():
    assert len(PROGRAMS) > 40


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_arguments_have_help(path, monkeypatch):
    parser = parser_of(path, monkeypatch)
    assert not [each.option_strings or each.dest for each in actions(parser) if not each.help]
    # A switch or a list of nothing needs no default; nor does None, which the help may explain.
    values = [
        each
        for each in actions(parser)
        if each.nargs != 0 and each.default not in (None, [], "", argparse.SUPPRESS)
    ]
    hidden = [each.option_strings for each in values if "default" not in each.help.lower()]
    assert not hidden, "Their help does not name the default."
