"""data_scripts/large_model.py, with a small one."""

import json
from pathlib import Path
from typing import Any

import grow_model
import large_model
import pytest
import torch

from specdec_plugin.errors import PluginError
from tests.support.compiled import needs_kernels

SMALL = "--dim 16 --ffn 24 --heads 2 --layers 1 --symbols 60 --sentences 2 --length 5".split()


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = str(tmp_path / "model"), tmp_path / "large.json"
    flags = ["--folder", folder, "--output", str(output), "--ways", "fairseq beam 1", "greedy"]
    # So many tokens that their time is not rounded to nothing.
    large_model.main([*SMALL, *flags, "--sentences", "60", "--length", "40"])
    found = json.loads(output.read_text())["ways"]
    assert [*found] == ["fairseq beam 1", "greedy"]
    assert found["fairseq beam 1"]["steps_a_second"] is None
    assert found["greedy"]["steps_a_second"] > found["greedy"]["tokens_a_second"]
    for each in found.values():
        assert each["peak"] > 1e8 and each["tokens_a_second"] > 0 and each["seconds"] > 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and rows[3].startswith("| greedy |")


def test_results_tell_no_sizes_that_a_model_does_not_have() -> None:
    arguments = [*SMALL, "--folder", "x", "--output", "y"]
    made = large_model.told_options(large_model.get_parser().parse_args(arguments))
    assert (made["dim"], made["layers"], made["model"]) == (16, 1, None)
    given = large_model.get_parser().parse_args([*arguments, "--model", "grown.pt"])
    assert {*made} - {*large_model.told_options(given)} == {"dim", "ffn", "heads", "layers"}


def test_time_of_the_steps_alone() -> None:
    printed = """8 sentences, 1,080 tokens, 1,080 iterations: 1.00 accepted tokens an iteration
time 4.00 s: encoder 37%, drafter 0%, verifier 40%, projection 20%, rest 3%"""
    assert large_model.steps_a_second(printed) == pytest.approx(1080 / 2.4)
    assert large_model.steps_a_second(printed.replace("4.00", "0.00")) is None
    assert large_model.steps_a_second("Translated 8 sentences (1,080 tokens)") is None


def test_bytes_of_a_step_are_those_of_the_decoders_matrices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a grown model are its own, and a learned position is a row."""
    monkeypatch.setattr(large_model, "bytes_of", lambda matrix: 4 * matrix.numel())
    options = large_model.get_parser().parse_args([*SMALL, "--folder", "x", "--output", "y"])
    large_model.make_model(tmp_path, large_model.dictionary(options.symbols), options)
    path, grown = tmp_path / "model.pt", tmp_path / "grown.pt"
    assert large_model.bytes_of_a_step(path) == 4 * (6 * 16**2 + 2 * 16 * 24 + 60 * 16)
    grow_model.main([str(path), "--output", str(grown), "--width", "2", "--layers", "3"])
    layer = 6 * 32**2 + 2 * 32 * 48
    assert large_model.bytes_of_a_step(grown) == 4 * (3 * layer + 60 * 32)


@needs_kernels
@pytest.mark.parametrize(("kind", "each"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_weights_that_16_bits_hold_are_read_in_16_bits(kind: str, each: int) -> None:
    matrix = torch.randn(8, 5).to(getattr(torch, kind)).float()
    assert large_model.bytes_of(matrix) == 40 * each


def test_a_folder_with_a_model_gets_as_many_sentences_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(folder: Path, *rest: Any) -> None:
        made.append(folder)
        (folder / "model.pt").touch()

    monkeypatch.setattr(large_model, "make_model", make)
    for count in ("8", "3"):
        arguments = ["--folder", str(tmp_path), "--output", "y", "--sentences", count, "--ways"]
        large_model.main([*SMALL, *arguments])
        lines = (tmp_path / "test.src-tgt.src").read_text("utf-8").splitlines()
        assert len(lines) == int(count)
    assert made == [tmp_path]
    with pytest.raises(PluginError, match="has other sizes"):
        large_model.main([*SMALL, *arguments, "--layers", "7"])


def test_a_trained_model_decodes_sentences_of_a_text(tmp_path: Path) -> None:
    given = {"model": tmp_path / "grown.pt", "dictionary": tmp_path / "d", "text": tmp_path / "t"}
    given["model"].write_text("weights")
    given["dictionary"].write_text("a 3\nb 2\n")
    given["text"].write_text("a\nb\na b\nb b\nb a\n")
    folder = tmp_path / "large"
    flags = ["--folder", str(folder), "--output", "y", "--ways"]
    flags += [part for name, path in given.items() for part in (f"--{name}", str(path))]
    large_model.main([*SMALL, *flags])
    assert (folder / "test.src-tgt.src").read_text() == "b\nb b\n"
    assert (folder / "one.src-tgt.src").read_text() == "b\n"
    assert (folder / "model.pt").read_text() == "weights"
    symbols = (folder / "dict.src.txt").read_text().splitlines()
    assert symbols[:3] == ["a 3", "b 2", "w0 1"] and len(symbols) == 60 - 4
    with pytest.raises(PluginError, match="together"):
        large_model.main([*SMALL, *flags[:-2]])


def test_a_failing_process_is_shown(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="--decoding greedy failed"):
        large_model.run(tmp_path, "test", ["--decoding", "greedy"])
