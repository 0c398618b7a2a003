"""examples/back_translation/run.sh with a tiny reverse model."""

import json
import shutil
from functools import partial
from pathlib import Path

import distill_shard
import pytest
from shardfile import read_shard, shard_path

from tests.support.command_lines import ROOT, Corpus, run_cli, run_example, train_args

run = partial(run_example, "back_translation")
TINY = dict(SHARDS="2", SENTENCES="4", THREADS="1", UPDATES="4")


@pytest.fixture()
def text(corpus: Corpus, tmp_path: Path) -> Path:
    """The tiny corpus under the names of a user's, and text in Spanish alone."""
    folder = tmp_path / "text"
    folder.mkdir()
    for theirs, ours in (("train", "train"), ("dev", "valid")):
        for language in ("en", "es"):
            shutil.copy(
                Path(corpus.raw_dir) / f"{ours}.{language}", folder / f"{theirs}.{language}"
            )
    shutil.copy(Path(corpus.raw_dir) / "test.es", folder / "news.es")
    return folder


@pytest.fixture()
def reverse(text: Path, tmp_path: Path) -> Path:
    """A model from Spanish to English, with its subwords and dictionary."""
    folder = tmp_path / "given"
    prepare = ["python", Path(ROOT) / "data_scripts" / "prepare_subwords.py", "-s", "es", "-t"]
    prepare += ["en", "--size", 60, "--output", folder, "--train", text / "train"]
    run_cli([*prepare, "--valid", text / "dev"])
    run_cli(train_args(folder / "bin", folder, "--max-update", 60))
    shutil.copy(folder / "checkpoint_last.pt", folder / "reverse.pt")
    shutil.copy(folder / "bin" / "dict.es.txt", folder)
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


@pytest.mark.slow
def test_from_text_to_pairs(text: Path, reverse: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = run(text, text / "news", output, reverse, **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    whole = lines(output / "synthetic" / "distilled" / "train.en")
    assert len(whole) == len(lines(text / "news.es")) and len(set(whole)) > 5
    pairs = [lines(output / "synthetic" / "filtered" / f"train.{side}") for side in ("en", "es")]
    assert len(pairs[0]) == len(pairs[1]) > 10
    for size in (1, 32):
        report = json.loads((output / f"speed{size}" / "results.json").read_text("utf-8"))
        rows = {row["method"]: row for row in report["rows"]}
        assert [*rows] == ["fairseq beam 1", "greedy", "specdec self"]
        assert rows["specdec self"]["equal to greedy"] == rows["greedy"]["sentences"]
        assert report["options"]["sampling"] and report["options"]["batch_size"] == size
    assert done.stdout.count("tokens a second |") == 2
    # Both sets train a model of the pairs' direction.
    model = tmp_path / "model"
    more = ["-s", "en", "-t", "es", "--max-update", 2, "--upsample-primary", 1]
    trained = run_cli(train_args(output / "bin", model, *more))
    printed = trained.stdout + trained.stderr
    assert f"{len(lines(text / 'train.en'))} examples" in printed
    assert f"{len(pairs[0])} examples" in printed

    # What a kill left is finished, by jobs of submitit too, and what is there stays.
    shutil.rmtree(output / "bin")
    shutil.rmtree(output / "synthetic" / "bin")
    shard = next((output / "synthetic" / "shards").glob("shard-0001*"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-9])
    jobs = {"SENTENCES": "0", "LAUNCHER": "local", "JOBS": "2"}
    refused = run(text, text / "news", output, reverse, **{**TINY, **jobs, "MINUTES": "0"})
    assert refused.returncode == 1 and "--minutes 0: give 1 or more" in refused.stderr
    again = run(text, text / "news", output, reverse, **{**TINY, **jobs})
    assert again.returncode == 0, again.stdout + again.stderr
    assert shard.read_bytes() == content
    assert lines(output / "synthetic" / "distilled" / "train.en") == whole
    assert (output / "bin" / "train1.es-en.en.bin").exists()


@pytest.mark.slow
def test_from_one_symbol_the_best_is_drawn(text: Path, reverse: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    settings = dict(TOPK="1", SENTENCES="0", SHARDS="1", THREADS="1", DECODING="specdec", SEED="5")
    done = run(text, text / "news", output, reverse, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    args = [reverse / "bin", "-s", "es", "-t", "en", "--path", reverse / "reverse.pt", "--cpu"]
    args += ["--source", output / "text" / "pieces" / "train.es", "--output-dir", tmp_path]
    distill_shard.main([*map(str, args), "--decoding", "greedy"])
    best = dict(read_shard(shard_path(str(tmp_path), 0, 1)).hypotheses)
    found = lines(output / "synthetic" / "distilled" / "train.en")
    assert found == [best[number] for number in range(len(best))]


def test_refusals(text: Path, tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(text, text / "news").returncode == 1
    for args, settings, sentence in (
        ((text, text / "none", tmp_path), {}, "none.es was not found. Check the path."),
        ((text, text / "news", tmp_path), {"TOPK": "x"}, "TOPK, SEED and SENTENCES take whole"),
        ((text, text / "news", tmp_path, tmp_path), {}, "reverse.pt was not found. Name the"),
    ):
        done = run(*args, **settings)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
