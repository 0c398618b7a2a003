"""``specdec-generate`` and its help."""

import re
import sys

import pytest
from fairseq_cli import generate as fairseq_generate

from specdec_plugin.cli import generate
from specdec_plugin.fairseq_compat.options import flag_of
from specdec_plugin.methods.registry import all_flags, names, readers
from tests.support.command_lines import PLUGIN, run_cli

OWN_METHOD = """
from dataclasses import dataclass
from specdec_plugin.methods.options import VerifierOptions, option
from specdec_plugin.methods.registry import Method, register_method

@dataclass
class Options(VerifierOptions):
    wonder: int = option(0, "how much to wonder")

@register_method("wondering")
class Wondering(Method):
    summary = "wonders"
    Config = Options

    @classmethod
    def build(cls, setup):
        return None
"""


def sections(printed):
    """The help by heading."""
    parts = re.split(r"^(\S.*):$", printed, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_help_lists_every_option_once_beside_the_methods_that_read_it():
    found = sections(generate.build_parser().format_help())
    for flag in all_flags():
        entry = re.compile(rf"^  {flag_of(flag)}( [A-Z{{].*|  .*)?$", re.MULTILINE)
        listed = [name for name, text in found.items() if entry.search(text)]
        only = readers()[flag]
        assert listed == [
            f"--decoding {only[0]}" if len(only) == 1 else "options of several methods"
        ]
    for name in names():
        text = found[f"--decoding {name}"]
        for flag, among in readers().items():
            assert (flag_of(flag) in re.split(r"[\s,.]+", text)) == (name in among), (name, flag)
    assert "specdec-generate data-bin" in found["examples"]


def test_help_of_the_package():
    printed = run_cli(["python", "-m", "specdec_plugin", "--help"]).stdout
    assert printed == generate.build_parser().format_help()
    done = run_cli(["python", "-m", "specdec_plugin", "--version"], check=False)
    assert done.returncode == 1 and "takes no --version" in done.stderr


def test_help_shows_a_method_of_the_users_own(tmp_path):
    (tmp_path / "own_methods").mkdir()
    (tmp_path / "own_methods" / "__init__.py").write_text(OWN_METHOD, "utf-8")
    command = ["python", "-m", "specdec_plugin.cli.generate", "--help"]
    printed = run_cli([*command, "--user-dir", tmp_path / "own_methods"]).stdout
    found = sections(printed)["--decoding wondering"]
    assert "wonders. It also reads --verifier-dtype" in found and "--wonder WONDER" in found


@pytest.mark.parametrize(
    "more, task", [([], "specdec_translation"), (["--task", "translation"], "translation")]
)
def test_it_is_fairseq_generate_with_the_task(monkeypatch, more, task):
    ran = []
    monkeypatch.setattr(sys, "argv", ["specdec-generate", "data", "--path", "model.pt", *more])
    monkeypatch.setattr(fairseq_generate, "main", ran.append)
    generate.main()
    (options,) = ran
    assert (options.task, options.user_dir, options.data) == (task, PLUGIN, "data")
    assert options.beam == 5
