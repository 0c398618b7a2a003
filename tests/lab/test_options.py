"""Options that the lab's programs share have one name; older names give the same."""

import pytest

from specdec_plugin.lab.bench import command_line as bench
from specdec_plugin.lab.check import command_line as check
from specdec_plugin.lab.viz import command_line as viz

PROGRAMS = {"bench": bench, "check": check, "viz": viz}
GIVEN = ["data-bin", "--path", "model.pt", "--output", "out"]
SPLIT, PIECES = ("--gen-subset", "--subset"), ("--sentencepiece", "--subwords")


@pytest.mark.parametrize(
    "program, names",
    [("bench", SPLIT), ("check", SPLIT), ("viz", SPLIT), ("check", PIECES), ("viz", PIECES)],
)
def test_older_names_give_the_same(program, names, capsys):
    parser = PROGRAMS[program].build_parser()
    new, old = (parser.parse_args([*GIVEN, name, "given"]) for name in names)
    assert new == old and "given" in vars(new).values()
    told = parser.format_help()
    assert names[0] in told and f"{names[1]} " not in told
    with pytest.raises(SystemExit):
        parser.parse_args([*GIVEN, names[1]])
    assert f"argument {names[0]}: expected one argument" in capsys.readouterr().err
