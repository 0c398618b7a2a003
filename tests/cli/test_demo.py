"""The demo as users run it."""

import pytest

from tests.support.command_lines import ROOT, run_cli


def test_demo_with_the_shipped_models():
    lines = "The file is closed.\n\nqqq ⌘\nReturns the number of items in the list.\n"
    args = [
        "python",
        "-m",
        "specdec_plugin.cli.demo",
        "--input",
        "-",
        "--repeats",
        1,
        "--threads",
        1,
    ]
    done = run_cli(args, input=lines, cwd=ROOT)
    assert "4 of 4 translations by SpecDec equal fairseq's greedy decoding." in done.stdout
    for method in ("fairseq beam 5", "fairseq beam 1", "greedy", "specdec"):
        assert f"\n{method} " in done.stdout
    assert done.stdout.count(" tokens an iteration.") == 2
    assert "specdec self with the model itself" in done.stdout and "Threads: 1." in done.stdout


def test_demo_keeps_the_number_of_threads_in_the_environment():
    code = "from specdec_plugin.cli.demo import build_parser; print(build_parser().parse_args([]))"
    done = run_cli(["python", "-c", code], env={"OMP_NUM_THREADS": "1"}, fresh=True)
    assert "threads=1" in done.stdout


def test_demo_elsewhere_says_where_its_models_are(tmp_path):
    done = run_cli(["python", "-m", "specdec_plugin.cli.demo"], check=False, cwd=tmp_path)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "verifier.pt does not exist" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "more, content, words",
    [
        ([], b"", "nothing to translate"),
        ([], "se\u00f1al".encode("latin-1"), "not UTF-8"),
        (["--repeats", 0], b"one", "at least 1"),
    ],
)
def test_demo_tells_what_it_cannot_read(more, content, words, tmp_path):
    (tmp_path / "text").write_bytes(content)
    args = ["python", "-m", "specdec_plugin.cli.demo", "--input", tmp_path / "text", *more]
    done = run_cli(args, check=False, cwd=ROOT)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert words in done.stderr.strip().splitlines()[-1]
