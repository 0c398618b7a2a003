"""``specdec-score``: a score for each pair of lines, in order."""

import gzip
import json

import pytest

import specdec_plugin
from specdec_plugin.cli.score import main
from specdec_plugin.errors import PluginError
from tests.support.command_lines import run_cli


@pytest.fixture(scope="module")
def pairs(corpus):
    english, spanish = (corpus.lines("test", side)[:7] for side in ("en", "es"))
    return [*zip(english, spanish, strict=True), ("", "uno"), ("a", "")]


@pytest.fixture(scope="module")
def wanted(packed, pairs):
    return specdec_plugin.load(str(packed)).score(*zip(*pairs, strict=True))


@pytest.fixture
def files(pairs, tmp_path):
    """Paths of the sources, which are packed, and of the targets."""
    source, target = (("\n".join(side) + "\n").encode() for side in zip(*pairs, strict=True))
    (tmp_path / "source.gz").write_bytes(gzip.compress(source))
    (tmp_path / "target").write_bytes(target)
    return [str(tmp_path / "source.gz"), str(tmp_path / "target")]


@pytest.fixture(autouse=True)
def levels(caplog):
    """The program makes loggers quieter, and pytest's stay as they were."""
    for name in ("fairseq", "specdec_plugin"):
        caplog.set_level("INFO", name)


def test_a_score_for_each_line(packed, files, wanted):
    done = run_cli(["specdec-score", packed, *files])
    assert [float(line) for line in done.stdout.splitlines()] == [
        pytest.approx(each.score, abs=1e-3) for each in wanted
    ]
    assert "Traceback" not in done.stderr and "INFO" not in done.stderr


@pytest.mark.parametrize("size", [1, 4])
def test_objects(packed, files, wanted, tmp_path, size):
    output = tmp_path / "new" / "scores"
    flags = ["--json", "--output", str(output), "--batch-size", str(size)]
    main([str(packed), *files, *flags])
    found = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [each["text"] for each in found] == [each.text for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one["token_scores"] == pytest.approx(other.positional_scores.tolist(), abs=1e-4)


def test_pairs_are_read_as_they_are_needed(packed):
    session, read = specdec_plugin.load_session(str(packed)), []

    def pairs():
        for number in range(100):
            read.append(number)
            yield "one", "uno"

    next(session.score_iter(pairs(), 2))
    assert len(read) == 32


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--batch-size", "0"], "--batch-size 0: give at least 1"),
        (["-t", "fr"], "The model has one direction"),
        (["--output", "."], "is a folder. Name a file"),
    ],
)
def test_refusals(packed, files, flags, words):
    with pytest.raises(PluginError) as caught:
        main([str(packed), *files, *flags])
    assert words in str(caught.value)


def test_files_that_do_not_fit(packed, files, tmp_path):
    with pytest.raises(PluginError, match="The source and the target are both"):
        main([str(packed), files[0], files[0]])
    with pytest.raises(PluginError, match=r"none.*Check the path"):
        main([str(packed), files[0], str(tmp_path / "none")])
    with pytest.raises(PluginError, match="is the input, which would be lost"):
        main([str(packed), *files, "--output", files[1]])
    with (tmp_path / "target").open("a", encoding="utf-8") as file:
        file.write("one more\n")
    with pytest.raises(PluginError, match="The source ends before line 10, and another text"):
        main([str(packed), *files])
    with pytest.raises(PluginError, match="The target ends before line 10"):
        main([str(packed), *reversed(files)])
