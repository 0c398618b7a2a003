"""The table of options."""

import textwrap

import pytest

from specdec_plugin.cli.options import block_sizes, main, options_table
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.registry import all_flags, names, readers
from tests.support.command_lines import run_cli


def cells():
    """By option, the other cells of its line."""
    _, _, *lines = options_table().splitlines()
    found = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {option.split("`")[1]: [option, *rest] for option, *rest in found}


def test_block_sizes_have_a_line_for_each_method_that_reads_them():
    lines = block_sizes().splitlines()
    assert all(line.count("|") == 4 for line in lines)
    assert all(any(name in line for line in lines) for name in readers()["block_size"])


def test_every_option_has_a_line():
    table = cells()
    assert [flag.replace("_", "-") for flag in all_flags()] == [each[2:] for each in table]
    assert all(len(line) == 4 for line in table.values())
    assert table["--acceptance"] == [
        "`--acceptance`: `exact`, `top-k`, `distance`",
        "blockwise",
        all_flags()["acceptance"].metadata["help"],
        "`exact`",
    ]
    assert table["--tolerance"][1:4:2] == ["specdec", "no limit"]
    assert table["--drafter-path"][3] == table["--certified-projection"][3] == ""


def test_the_methods_that_read_an_option_or_those_that_do_not():
    assert readers()["verifier_dtype"] == tuple(each for each in names() if each != "nat")
    assert cells()["--verifier-dtype"][1] == "all but nat"
    assert cells()["--jacobi-window"][1] == "gs-jacobi, hybrid-jacobi"


METHOD = """
from dataclasses import dataclass
from specdec_plugin.methods.options import VerifierOptions, option
from specdec_plugin.methods.registry import Method, register_method

@dataclass
class OwnOptions(VerifierOptions):
    own: str = option("a", "either | or")

@register_method("own")
class Own(Method):
    summary = "of one's own"
    Config = OwnOptions

    @classmethod
    def build(cls, setup):
        return None
"""


def test_a_method_of_ones_own(tmp_path):
    folder = tmp_path / "own_method"
    folder.mkdir()
    (folder / "__init__.py").write_text(textwrap.dedent(METHOD), "utf-8")
    done = run_cli(["python", "-m", "specdec_plugin.cli.options", "--user-dir", folder])
    assert "| `--own` | own | either \\| or | `a` |\n" in done.stdout
    with pytest.raises(PluginError, match="none does not exist"):
        main(["--user-dir", str(tmp_path / "none")])
