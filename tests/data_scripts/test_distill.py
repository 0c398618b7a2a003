"""Distillation: every line once, whatever the shards, the kills and the input."""

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import distill_shard
import filter_pairs
import finish_distillation
import merge_shards
import pytest
from shardfile import Manifest, open_shard, read_shard, shard_bounds, shard_path
from textfiles import sha256

from specdec_plugin.errors import PluginError
from specdec_plugin.methods.beam.search import BeamSearch
from specdec_plugin.outputs import alone
from specdec_plugin.progress import Progress
from tests.support.command_lines import (
    ENGLISH,
    ENVIRONMENT,
    ROOT,
    SCRIPTS,
    Corpus,
    generate_args,
    hypotheses,
    run_cli,
)

ShardArgs = Callable[..., List[str]]
SAMPLING = ["--decoding", "greedy", "--sampling"]
FAIRSEQ = ["--task", "translation"]  # its own search


def write(path: Path, lines: List[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return path


def read(path: Path) -> List[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def merged(folder: Path, source: Path) -> List[str]:
    output = folder / "merged"
    merge_shards.main([str(folder), "--source", str(source), "--output", str(output)])
    return read(output)


def distilled(shard_args: ShardArgs, source: Path, folder: Path, *more: Any) -> List[str]:
    """Decoded in one shard, in this process."""
    distill_shard.main(shard_args(source, folder, *more))
    return merged(folder, source)


# --- decoding ---------------------------------------------------------------------------


def test_shards_equal_no_shards_and_fairseq(
    corpus: Corpus, tiny_verifier: str, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = Path(corpus.raw_dir) / "test.en"
    whole = distilled(shard_args, source, tmp_path / "whole")
    for shard in range(4):
        args = shard_args(source, tmp_path / "cut", "--shard", shard, "--shards", 4)
        distill_shard.main([*args, "--max-tokens", "30"])
    assert merged(tmp_path / "cut", source) == whole
    more = ["--beam", 5, "--required-batch-size-multiple", 1]
    fairseq = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more))
    assert hypotheses(fairseq.stdout) == whole
    assert len(set(whole)) > 5  # the teacher says something


def settings(folder: Path) -> Dict[str, Any]:
    """What the first shard of one says that its hypotheses depend on."""
    return read_shard(shard_path(str(folder), 0, 1)).manifest.settings


def test_beam_search_finds_what_fairseqs_own_finds(
    shard_args: ShardArgs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(7)
    lines = [" ".join(choose.choices(ENGLISH, k=choose.randint(1, 9))) for _ in range(60)]
    source = write(tmp_path / "source", ["", *lines])
    searches = []
    search = BeamSearch.decode
    monkeypatch.setattr(
        BeamSearch, "decode", lambda self, batch: searches.append(self) or search(self, batch)
    )
    for beam in ([], ["--beam", 2, "--lenpen", 0.6]):
        found = {
            name: distilled(shard_args, source, tmp_path / f"{name}{len(beam)}", *beam, *more)
            for name, more in {
                "fairseq": FAIRSEQ,
                "default": [],
                "named": ["--decoding", "beam"],
                "drafted": ["--decoding", "specdec", *(beam or ["--beam", 5])],
            }.items()
        }
        assert all(each == found["fairseq"] for each in found.values())
        assert len(searches) > 2 and not searches.clear()
        assert len(set(found["fairseq"])) > 20
        kept = [settings(tmp_path / f"{name}{len(beam)}") for name in found]
        assert kept == kept[:1] * 4  # one may go on where another was killed


@pytest.mark.parametrize(
    "more",
    [["--fp16"], ["--no-repeat-ngram-size", 2], ["--diversity-rate", 0.5], ["--retain-dropout"]],
)
def test_what_beam_search_changes_is_left_to_fairseq(
    more: List[Any], shard_args: ShardArgs
) -> None:
    def config(*added: Any) -> Any:
        _, rest = distill_shard.get_parser().parse_known_args(shard_args("s", "o", *added))
        return distill_shard.fairseq_config(rest)

    plain, changed, named = config(), config(*more), config("--decoding", "jacobi")
    assert plain.task._name == named.task._name == "specdec_translation"
    assert (str(plain.task.decoding), plain.generation.beam) == ("beam", 5)
    assert (str(named.task.decoding), named.generation.beam) == ("jacobi", 1)
    assert (changed.task._name, changed.generation.beam) == ("translation", 5)


def test_samples_do_not_depend_on_shards(
    corpus: Corpus, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = Path(corpus.raw_dir) / "test.en"
    whole = distilled(shard_args, source, tmp_path / "whole", *SAMPLING)
    for shard in range(3):
        args = shard_args(source, tmp_path / "cut", "--shard", shard, "--shards", 3, *SAMPLING)
        distill_shard.main([*args, "--max-tokens", "30"])
    assert merged(tmp_path / "cut", source) == whole
    other = distilled(shard_args, source, tmp_path / "other", *SAMPLING, "--seed", 2)
    assert len(other) == len(whole) and other != whole
    assert settings(tmp_path / "other")["seed"] == 2
    assert distilled(shard_args, source, tmp_path / "short", "--sampling") == whole
    # A part of a corpus draws what the whole draws.
    part = write(tmp_path / "part", read(source)[5:])
    more = ["--sampling", "--sentence-offset", 5]
    assert distilled(shard_args, part, tmp_path / "p", *more) == whole[5:]


def test_killed_shard_resumes_to_the_same_file(shard_args: ShardArgs, tmp_path: Path) -> None:
    choose = random.Random(5)
    lines = [" ".join(choose.choices(ENGLISH, k=choose.randint(1, 9))) for _ in range(150)]
    source = write(tmp_path / "source", lines)
    args = shard_args(source, tmp_path / "killed", "--batch-size", 2)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "distill_shard.py"), *args], env=environment
    )
    path = Path(shard_path(str(tmp_path / "killed"), 0, 1))
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    before = path.read_bytes()
    with pytest.raises(PluginError, match=r"unfinished: lines .* are missing"):
        merged(tmp_path / "killed", source)
    path.write_bytes(before + b'0123abcd {"lines": [1')  # as a kill in mid-write leaves it
    resumed = distilled(shard_args, source, tmp_path / "killed", "--batch-size", 2)
    uninterrupted = distilled(shard_args, source, tmp_path / "whole", "--batch-size", 2)
    assert resumed == uninterrupted
    assert path.read_bytes().startswith(before)  # nothing was decoded twice
    assert path.read_bytes() == Path(shard_path(str(tmp_path / "whole"), 0, 1)).read_bytes()


@pytest.mark.parametrize("size", [1, 7, 8, 9])
def test_every_line_of_any_size(size: int, shard_args: ShardArgs, tmp_path: Path) -> None:
    lines = [f"{ENGLISH[number]} one two" for number in range(size)]
    source = write(tmp_path / "source", lines)
    alone = [distilled(shard_args, write(tmp_path / f"{i}", [line]), tmp_path / f"d{i}")[0]
             for i, line in enumerate(lines[:2])]  # fmt: skip
    both = distilled(shard_args, source, tmp_path / "out")
    assert len(both) == size and both[:2] == alone


def test_empty_and_over_limit_lines(
    shard_args: ShardArgs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ["two"] * 1100
    lines = ["one two", "", "seven", " ".join(long), " \t", "nosuchword", "nine"]
    source = write(tmp_path / "source", lines)
    found = distilled(shard_args, source, tmp_path / "out", "--max-tokens", 50)
    warning = capsys.readouterr().err
    assert f"line 4 of {source.name} has 1100 pieces and was truncated to 1023" in warning
    assert len(found) == 7 and found[1] == found[4] == ""
    short = write(tmp_path / "short", [" ".join(long[:1023])])
    assert distilled(shard_args, short, tmp_path / "short_out") == [found[3]]
    nothing = write(tmp_path / "nothing", ["", ""])
    assert distilled(shard_args, nothing, tmp_path / "nothing_out") == ["", ""]


@pytest.mark.parametrize("more", [[], ["--no-progress-bar"]])
def test_progress(
    more: List[str], shard_args: ShardArgs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: List[Any] = []

    class Shown(Progress):
        def add(self, count: int, tokens: int) -> None:
            shown.append((count, tokens, self.disable))

    monkeypatch.setattr(distill_shard, "Progress", Shown)
    source = write(tmp_path / "source", ["one two", "", "seven"])
    found = distilled(shard_args, source, tmp_path / "out", *more)
    tokens = sum(len(line.split()) for line in found) + 2  # with the ends of sentences
    assert shown == [(2, tokens, bool(more))]  # the empty line was not decoded


def test_ensemble_and_own_length_limits(
    shard_args: ShardArgs, tiny_verifier: str, tmp_path: Path
) -> None:
    lines = ["one two three", "four", "five six seven eight nine", "two two", "one and four"]
    source = write(tmp_path / "source", lines)
    relative = ["--max-len-a", 1, "--max-len-b", 0]  # at most as many pieces as the source
    single = distilled(shard_args, source, tmp_path / "single", *relative)
    assert all(
        len(out.split()) <= len(line.split()) + 1 for out, line in zip(single, lines, strict=True)
    )
    ensemble = ["--path", f"{tiny_verifier}:{tiny_verifier}"]
    assert distilled(shard_args, source, tmp_path / "twice", *relative, *ensemble) == single
    manifests = [
        read_shard(shard_path(str(tmp_path / name), 0, 1)).manifest for name in ("single", "twice")
    ]
    assert [len(manifest.settings["teachers"]) for manifest in manifests] == [1, 2]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--beam", 4], r"begun with other settings: generation.beam 5 there, 4 here\. Remove"),
        (["--lenpen", 0.6], r"generation.lenpen 1\S* there, 0.6 here"),
        (["--shard", 3, "--shards", 3], "names no shard"),
        (["--shards", 3], r"begun with --shards 1, but now it is 3\. Give --shards 1 to resume"),
        (["--path", "/nowhere/t.pt"], r"not found: /nowhere/t.pt"),
        (["--source", "/nowhere/s.en"], r"not found: /nowhere/s.en"),
        (["--prefix-size", 1], "--prefix-size cannot be used in distillation"),
        ([*FAIRSEQ, "--sampling"], "--sampling of fairseq's own search would give other lines"),
        (["--decoding", "beam", "--sampling"], "--sampling cannot be kept with --decoding beam"),
        (["--nbest", 6], "--nbest 6 with --beam 5: a search finds as many hypotheses"),
        (["--decoding", "specdec", "--top-beta", 3, "--beam", 1], "--top-beta None there, 3 here"),
        ([*SAMPLING, "--nbest", 3], "--nbest 3 draws several samples"),
        (["--model-overrides", "1"], "not a dictionary"),
        (["--beams", 4], r"Unrecognized arguments: --beams 4\. See distill_shard.py --help\."),
        (["--beam", "x"], r"Argument --beam: invalid int value: 'x'\. See"),
        (["-t", "fr"], "The dictionary .*dict.fr.txt cannot be read"),
        (["-t", "fr", *FAIRSEQ], "The dictionary .*dict.fr.txt cannot be read"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    more: List[Any], sentence: str, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", ["", ""])  # complete without a model
    distill_shard.main(shard_args(source, tmp_path / "out"))
    with pytest.raises(PluginError, match=sentence):
        distill_shard.main(shard_args(source, tmp_path / "out", *more))


@pytest.mark.parametrize(
    "first, second, told",
    [
        (["--decoding", "input-guided"], ["--copy-bias", "5"], "--copy-bias None there, 5.0 here"),
        (
            ["--decoding", "specdec", "--top-beta", "3"],
            ["--block-size", "2"],
            "--block-size None there, 2 here",
        ),
        (
            ["--decoding", "specdec", "--top-beta", "3", "--batch-size", "4"],
            ["--batch-size", "1"],
            "--batch-size 4 there, 1 here",
        ),
        (["--decoding", "specdec"], ["--block-size", "2", "--batch-size", "1"], ""),
    ],
)
def test_a_shard_keeps_what_its_lines_depend_on(
    first: List[str], second: List[str], told: str, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", ["", ""])  # complete without a model
    args = shard_args(source, tmp_path / "out", "--beam", "1", *first)
    distill_shard.main(args)
    if told:
        with pytest.raises(PluginError, match=told):
            distill_shard.main([*args, *second])
    else:  # its lines are the same
        distill_shard.main([*args, *second])


@pytest.mark.parametrize(
    "lines, sentence",
    [
        (["one two", *["The cat sat."] * 6], "source is no text in .*: 18 of 20 are not in"),
        ([], "source holds no line"),
    ],
)
def test_what_is_no_text_of_pieces_is_not_begun(
    lines: List[str], sentence: str, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", lines)
    with pytest.raises(PluginError, match=sentence):
        distill_shard.main(shard_args(source, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(shard_args: ShardArgs, tmp_path: Path) -> None:
    source = write(tmp_path / "source", ["one"])
    with pytest.raises(PluginError, match=r"cannot be written \(Not a directory\)"):
        distill_shard.main(shard_args(source, source / "out"))


def test_foreign_dictionary_is_told(
    corpus: Corpus, tiny_verifier: str, shard_args: ShardArgs, tmp_path: Path
) -> None:
    source = write(tmp_path / "source", ["one"])
    for language in ("en", "es"):
        write(tmp_path / "other" / f"dict.{language}.txt", ["one 1"])
    args = shard_args(source, tmp_path / "out")
    args[0] = str(tmp_path / "other")
    with pytest.raises(PluginError, match="has 32 symbols, but the dictionary of the data has 5"):
        distill_shard.main(args)


@pytest.mark.parametrize(
    "given, sentence",
    [
        (["--partition", "gpu"], "--partition needs --launcher."),
        (["--slurm=mem=3GB"], "--slurm needs --launcher."),
        (["--launcher"], "--launcher needs a value"),
        (["--shards", "many"], "-n and -j take whole numbers"),
        (["-n", "0"], "-n takes 1 or more."),
        (["--launch", "local"], "unknown option --launch;"),
        (["-y"], "unknown option -y;"),
        (["-n"], "-n needs a value;"),
    ],
)
def test_options_of_the_shell_script(given: List[str], sentence: str) -> None:
    fixed = "-d data -p t.pt -x train -s en -t es -o out".split()
    args = ["bash", str(SCRIPTS / "distill.sh"), *fixed, *given]
    done = subprocess.run(args, capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and sentence in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "end, sentence",
    [
        ("exit 1", "a shard failed for the reason above. Mend it;"),
        ("exit 2", "a shard failed for the reason above. Mend it;"),
        ("kill -9 $$", "a shard was killed. Run the same command again to resume."),
    ],
)
@pytest.mark.parametrize("how", [[], ["--launcher", "local"]])
def test_the_shell_script_tells_a_mistake_from_a_kill(
    end: str, sentence: str, how: List[str], tmp_path: Path
) -> None:
    python = write(tmp_path / "python", ["#!/bin/bash", end])
    python.chmod(0o755)
    args = "-d data -p t.pt -x train -s en -t es -o out -n 1".split()
    done = subprocess.run(
        ["bash", str(SCRIPTS / "distill.sh"), *args, *how],
        env={**os.environ, "PYTHON": str(python)}, capture_output=True, encoding="utf-8",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1 and f"distill.sh: {sentence}" in done.stderr.splitlines()[-1]


def test_the_shell_script_takes_ctrl_c_of_its_launcher_for_no_kill(tmp_path: Path) -> None:
    python = write(tmp_path / "python", ["#!/bin/bash", "exit 130"])
    python.chmod(0o755)
    args = "-d data -p t.pt -x train -s en -t es -o out -n 1 --launcher submitit".split()
    done = subprocess.run(
        ["bash", str(SCRIPTS / "distill.sh"), *args],
        env={**os.environ, "PYTHON": str(python)}, capture_output=True, encoding="utf-8",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    told = "distill.sh: it was interrupted. Run the same command again to resume.\n"
    assert done.stderr == told


def test_numbers_may_begin_with_a_zero(tmp_path: Path) -> None:
    python = write(tmp_path / "python", ["#!/bin/bash", 'echo "$@"'])
    python.chmod(0o755)

    def run(*args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["bash", str(SCRIPTS / "distill.sh"), *"-d d -p t -x x -s en -t es -o out".split()]
            + [*args],
            env={**os.environ, "PYTHON": str(python)}, capture_output=True, encoding="utf-8",
            cwd=tmp_path,
        )  # fmt: skip

    done = run("-n", "09", "-j", "08")
    assert done.returncode == 0 and not done.stderr
    assert "== decoding 9 shards, 8 at a time" in done.stdout and "--shards 9 " in done.stdout
    none = run("-n", "")
    assert none.returncode == 1 and none.stderr == "distill.sh: -n takes 1 or more.\n"


@pytest.mark.parametrize("flag", ["-v", "-e"])
def test_what_would_fail_behind_the_decoding_is_refused_before(flag: str, tmp_path: Path) -> None:
    def refused(sentence: str, output: str = "out") -> None:
        args = f"-d data -p t.pt -x train -s en -t es -o {output} {flag} valid".split()
        done = subprocess.run(
            ["bash", str(SCRIPTS / "distill.sh"), *args],
            capture_output=True, encoding="utf-8", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith(f"distill.sh: {sentence}") and done.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()

    refused("file not found: valid.en. Check -v and -e.")
    write(tmp_path / "valid.en", ["one", "two"])
    refused("file not found: valid.es.")
    write(tmp_path / "valid.es", ["uno"])
    refused("valid.en and valid.es have different numbers of lines.")
    (tmp_path / "valid.es").write_text("uno\ndos", "utf-8")
    (tmp_path / "file").touch()
    refused("file/out cannot be written.", "file/out")


def test_a_folder_of_before_survives_text_that_does_not_belong_together(tmp_path: Path) -> None:
    (tmp_path / "out" / "bin").mkdir(parents=True)
    for name, lines in {"train.en": ["a"], "valid.en": ["a", "b"], "valid.es": ["a"]}.items():
        write(tmp_path / name, lines)
    args = ["data", "--train", tmp_path / "train", "--valid", tmp_path / "valid", "-s", "en"]
    args += ["-t", "es", "--output", tmp_path / "out"]
    with pytest.raises(PluginError, match=r"valid.en has 2 lines and .*valid.es has 1: they"):
        finish_distillation.main([str(each) for each in args])
    assert (tmp_path / "out" / "bin").is_dir()


@pytest.mark.parametrize(
    "how, more",
    [
        (["-n", 2, "-j", 2], ["--decoding", "beam", "--beam", 5]),
        pytest.param(
            ["--launcher", "local", "--shards", 2, "--jobs=2"],
            ["--decoding", "beam", "--beam", 5],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["-n2", "-j", 2],
            ["--decoding", "specdec", "--sampling", "--nbest", 1],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_whole_pipeline_by_its_shell_script(
    how: List[Any],
    more: List[Any],
    corpus: Corpus,
    tiny_verifier: str,
    shard_args: ShardArgs,
    tmp_path: Path,
) -> None:
    """Two shards at once, merge, filter, fairseq-preprocess; a failed shard stops it."""
    raw = Path(corpus.raw_dir)
    lines = ["", *read(raw / "test.en")]
    packed = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    (tmp_path / "train.en.gz").write_bytes(packed)
    args = ["bash", SCRIPTS / "distill.sh", "-d", corpus.data_dir, "-p", tiny_verifier]
    args += ["-x", tmp_path / "train", "-v", raw / "valid", "-s", "en", "-t", "es"]
    args += ["-o", tmp_path / "out", *how, "--", "--cpu", "--max-len-b", 20, *more]
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": ROOT}
    done = subprocess.run(
        [str(arg) for arg in args],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "out" / "shards" / "jobs").exists() == ("--launcher" in how)
    whole = distilled(shard_args, tmp_path / "train.en.gz", tmp_path / "whole", *more)
    assert read(tmp_path / "out" / "distilled" / "train.es") == whole
    kept = [read(tmp_path / "out" / "filtered" / f"train.{side}") for side in ("en", "es")]
    assert len(kept[0]) == len(kept[1]) > len(lines) // 2
    if "--sampling" not in more:
        assert "dropped 1 empty, 0 too long, 0 length ratio" in done.stdout
    log = (tmp_path / "out" / "bin" / "preprocess.log").read_text("utf-8")
    assert log.count(f"train.es: {len(kept[0])} sents") == 1
    for side in ("en", "es"):
        dictionary = (tmp_path / "out" / "bin" / f"dict.{side}.txt").read_bytes()
        assert dictionary == (Path(corpus.data_dir) / f"dict.{side}.txt").read_bytes()
        assert (tmp_path / "out" / "bin" / f"valid.en-es.{side}.bin").exists()


# --- the shard's file and the merge, without a model --------------------------------------


def fake_shards(folder: Path, lines: List[str], shards: int, **settings: Any) -> Path:
    """Shards whose hypotheses are the source lines in capitals."""
    source = write(folder / "source", lines)
    for shard in range(shards):
        fake_shard(folder, lines, shard, shards, settings)
    return source


def fake_shard(
    folder: Path, lines: List[str], shard: int, shards: int, settings: Dict[str, Any]
) -> None:
    text = "\n".join(lines).encode("utf-8")
    settings = {"source": {"sha256": sha256(text), "lines": len(lines)}, **settings}
    first, end = shard_bounds(len(lines), shard, shards)
    with open_shard(
        shard_path(str(folder), shard, shards), Manifest(settings, first, end, {})
    ) as writer:
        for number in reversed(range(first, end)):
            writer.append([number], [lines[number].upper()])


TEN = [f"línea\u2028{number}" for number in range(10)]


def test_merge_proves_every_line(tmp_path: Path) -> None:
    source = fake_shards(tmp_path, TEN, 3, beam=5)
    assert merged(tmp_path, source) == [line.upper() for line in TEN]
    more_shards_than_lines = fake_shards(tmp_path / "many", TEN[:2], 5)
    assert merged(tmp_path / "many", more_shards_than_lines) == ["LÍNEA\u20280", "LÍNEA\u20281"]


def test_merge_refuses_what_is_not_whole(tmp_path: Path) -> None:
    source = fake_shards(tmp_path, TEN, 3, beam=5)
    second = Path(shard_path(str(tmp_path), 1, 3))
    content = second.read_bytes()
    output = tmp_path / "merged"

    def refused(sentence: str) -> None:
        with pytest.raises(PluginError, match=sentence):
            merged(tmp_path, source)
        assert not output.exists()

    second.unlink()
    refused(r"Lines 4-6 of the source are in no shard")
    second.write_bytes(content[: content.rindex(b"\n", 0, -1) + 1])
    refused(r"shard-0001-of-0003.txt is unfinished: lines 4 are missing")
    second.write_bytes(content.replace(b"NEA", b"NEU", 1))
    refused(r"is damaged or unfinished: lines 4-6 are missing")
    second.write_bytes(content + content.splitlines(keepends=True)[-1])
    refused(r"Lines 4 of .*shard-0001-of-0003.txt are there more than once. Remove it and decode")
    first = Path(shard_path(str(tmp_path), 0, 3)).read_bytes()
    second.write_bytes(content[: content.index(b"\n") + 1] + first[first.index(b"\n") + 1 :])
    refused(r"Lines 1-3 of .* are there more than once. Remove the shards that do not belong")
    second.write_bytes(b"")
    refused(r"is not a file of distill_shard.py")

    second.write_bytes(content)
    fake_shard(tmp_path, TEN, 0, 5, {"beam": 5})
    refused(
        r"runs with 3 and 5 shards\. Keep one run: remove shard-\*-of-0003.txt or "
        r"shard-\*-of-0005.txt\."
    )
    Path(shard_path(str(tmp_path), 0, 5)).unlink()
    second.unlink()
    fake_shard(tmp_path, TEN, 1, 3, {"beam": 4})
    refused(r"different settings: beam 4 there, 5 here")
    second.unlink()
    fake_shard(tmp_path, [*TEN[:9], "other"], 1, 3, {"beam": 5})
    refused(r"shard-0001-of-0003.txt was decoded from another source")
    with pytest.raises(PluginError, match="No shard was found"):
        merged(tmp_path / "empty", source)


def test_cut_at_any_byte_a_shard_keeps_whole_records(tmp_path: Path) -> None:
    fake_shards(tmp_path, TEN[:2], 1)
    path = Path(shard_path(str(tmp_path), 0, 1))
    content = path.read_bytes()
    manifest = read_shard(str(path)).manifest
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with open_shard(str(path), manifest) as writer:
            done = [number for number, _ in writer.done]
            assert done == [1, 0][: len(done)]
            assert len(done) == max(0, content[:cut].count(b"\n") - 1)
            for number in [1, 0][len(done) :]:
                writer.append([number], [TEN[number].upper()])
        assert path.read_bytes() == content


def with_dictionaries(folder: Path) -> None:
    for language in ("en", "es"):
        write(folder / f"dict.{language}.txt", ["a 1"])


def test_a_disk_that_is_full_at_the_end_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    source = fake_shards(tmp_path / "out" / "shards", TEN * 20, 2)
    train = source.rename(tmp_path / "train.en").with_suffix("")
    with_dictionaries(tmp_path)
    program = [sys.executable, str(SCRIPTS / "finish_distillation.py"), str(tmp_path)]
    program += ["--train", str(train), "-s", "en", "-t", "es", "--output", str(tmp_path / "out")]
    done = subprocess.run(
        ["bash", "-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "bash", *program],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 1
    assert "cannot be written (File too large)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_merge_without_room_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    source = fake_shards(tmp_path / "shards", TEN * 20, 2)
    program = [sys.executable, str(SCRIPTS / "merge_shards.py"), str(tmp_path / "shards")]
    program += ["--source", str(source), "--output", str(tmp_path / "out" / "merged")]
    done = subprocess.run(
        ["bash", "-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "bash", *program],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "out/merged cannot be written (File too large). Choose another place." in done.stderr
    assert not [*(tmp_path / "out").iterdir()]


def test_one_process_merges_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    source = fake_shards(tmp_path / "out" / "shards", TEN, 2)
    train = source.rename(tmp_path / "train.en").with_suffix("")
    args = [str(tmp_path), "--train", str(train), "-s", "en", "-t", "es"]
    args += ["--output", str(tmp_path / "out")]
    with pytest.raises(PluginError, match=r"dict\.en\.txt"):
        finish_distillation.main(args)
    with_dictionaries(tmp_path)
    with (
        alone(str(tmp_path / "out"), "merged"),
        pytest.raises(PluginError, match="out is being merged by another process"),
    ):
        finish_distillation.main(args)
    assert not (tmp_path / "out" / "distilled").exists()


def test_one_process_a_shard(tmp_path: Path) -> None:
    manifest = Manifest({}, 0, 1, {})
    path = shard_path(str(tmp_path), 0, 1)
    refused = pytest.raises(PluginError, match="by another process")
    with open_shard(path, manifest), refused, open_shard(path, manifest):
        pass


def test_slices_are_a_partition() -> None:
    for lines in range(12):
        for shards in range(1, 14):
            slices = [range(*shard_bounds(lines, shard, shards)) for shard in range(shards)]
            assert [number for slice_ in slices for number in slice_] == list(range(lines))


def test_batches_hold_every_sentence_once() -> None:
    choose = random.Random(1)
    for _ in range(200):
        lengths = [choose.randint(1, 30) for _ in range(choose.randint(0, 20))]
        alike = choose.random() < 0.5
        plan = distill_shard.batches(lengths, 25, choose.choice([None, 1, 3]), alike)
        assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
        for batch in plan:
            longest = max(lengths[index] for index in batch)
            assert len(batch) == 1 or len(batch) * longest <= 25
            assert not alike or len({lengths[index] for index in batch}) == 1


# --- the filter -------------------------------------------------------------------------


def test_filter_counts_and_keeps_sides_parallel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pieces(count: int) -> str:
        return " ".join(["x"] * count)

    lengths = [(3, 3), (0, 4), (4, 0), (0, 0), (291, 290), (290, 290), (4, 20), (4, 21), (36, 10)]
    sides = [
        write(tmp_path / f"in.{side}", [pieces(pair[side]) for pair in lengths]) for side in (0, 1)
    ]
    outputs = [
        "--output-source",
        str(tmp_path / "out.0"),
        "--output-target",
        str(tmp_path / "out.1"),
    ]
    filter_pairs.main([*map(str, sides), *outputs])
    assert "Kept 3 of 9 pairs; dropped 3 empty, 1 too long, 2 length ratio." in (
        capsys.readouterr().out
    )
    kept = [[len(line.split()) for line in read(tmp_path / f"out.{side}")] for side in (0, 1)]
    assert list(zip(*kept, strict=True)) == [(3, 3), (290, 290), (4, 20)]

    write(sides[1], ["x"])
    with pytest.raises(PluginError, match="do not belong together line by line"):
        filter_pairs.main([*map(str, sides), *outputs])
    with pytest.raises(PluginError, match="must be four files"):
        filter_pairs.main([*map(str, sides), outputs[0], str(sides[0]), *outputs[2:]])
    write(sides[1], [""] * 9)
    with pytest.raises(PluginError, match="No pair was kept; dropped 9 empty, 0 too long, 0 le"):
        filter_pairs.main([*map(str, sides), *outputs])
    assert [len(read(tmp_path / f"out.{side}")) for side in (0, 1)] == [3, 3]
