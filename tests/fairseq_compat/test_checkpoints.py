"""Checkpoints of both styles load everywhere; whatever could run code loads nowhere."""

import io
import os
import pickle
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict
from unittest import mock

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.models.transformer import TransformerModel

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import explained, load_weights
from tests.support import checkpoints
from tests.support.command_lines import (
    PLUGIN,
    Corpus,
    generate_args,
    hypotheses,
    run_cli,
    train_args,
)

READERS = [load_weights, checkpoint_utils.load_checkpoint_to_cpu]


@pytest.fixture(scope="module")
def state(tiny_verifier: str) -> Dict[str, Any]:
    """What fairseq-train saved today: a ``cfg`` and no ``args``."""
    found = load_weights(tiny_verifier)
    assert isinstance(found["cfg"], dict) and found["args"] is None
    return found


@pytest.fixture(scope="module")
def old_style(
    state: Dict[str, Any], corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The same model as fairseq saved it before there was a ``cfg``: the command line's flags."""
    flags = train_args(corpus.data_dir, "unused")[1:]
    flags[flags.index("specdec_translation")] = "translation"
    args = options.parse_args_and_arch(options.get_training_parser(), flags)
    assert type(args) is Namespace
    old = {key: value for key, value in state.items() if key not in ("cfg", "task_state")}
    path = tmp_path_factory.mktemp("old_style") / "old.pt"
    torch.save({**old, "args": args}, path)
    return str(path)


class Hostile:
    """Pickles to a call of ``function(argument)``."""

    def __init__(self, function: Any, argument: Any) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> Any:
        return self.call


def hostile_state(state: Dict[str, Any], marker: Path) -> Dict[str, Any]:
    return {**state, "extra_state": Hostile(os.mkdir, str(marker))}


@pytest.fixture(scope="module")
def damaged(
    state: Dict[str, Any], tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory
) -> SimpleNamespace:
    """Files that are not what they should be, by name."""
    folder = tmp_path_factory.mktemp("damaged")
    good = Path(tiny_verifier).read_bytes()
    buffer = io.BytesIO()
    torch.save(state, buffer, _use_new_zipfile_serialization=False)
    before_zip = buffer.getvalue()
    contents = {
        "empty": b"",
        "text": b"This is the README of the model.\n",
        "zeros": b"\0" * 1000,
        "truncated": good[: len(good) // 2],
        "without_its_end": good[:-30],
        "only_its_start": good[:100],
        "overwritten": good[:3000] + b"\xff" * 300 + good[3300:],
        "truncated_before_zip": before_zip[: len(before_zip) // 2],
        "only_its_start_before_zip": before_zip[:300],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    marker = folder / "the hostile code ran"
    torch.save(hostile_state(state, marker), folder / "hostile")
    paths = {name: str(folder / name) for name in [*contents, "hostile", "missing"]}
    return SimpleNamespace(**paths, folder=str(folder), marker=marker, contents=contents)


# Reading, by functions


@pytest.mark.parametrize("read", READERS)
def test_both_styles_load(read: Any, tiny_verifier: str, old_style: str) -> None:
    new, old = read(tiny_verifier), read(old_style)
    assert new["model"].keys() == old["model"].keys()
    for name, weights in new["model"].items():
        assert torch.equal(weights, old["model"][name])


def test_an_untrained_model_has_a_whole_configuration(tmp_path: Path) -> None:
    """From arguments fairseq would make one whenever it loads the model."""
    path = checkpoints.save(checkpoints.model(), tmp_path / "model.pt")
    found = load_weights(path)
    assert isinstance(found["cfg"], dict) and found["args"] is None
    made = "convert_namespace_to_omegaconf"
    with mock.patch.object(checkpoint_utils, made, side_effect=AssertionError(made)):
        loaded = checkpoints.load(path)
    for name, weights in loaded.state_dict().items():
        assert torch.equal(weights, found["model"][name])


@pytest.mark.parametrize("read", READERS)
def test_damage_is_told_in_a_sentence(read: Any, damaged: SimpleNamespace) -> None:
    for name, content in damaged.contents.items():
        with pytest.raises(PluginError) as caught:
            read(getattr(damaged, name))
        text = str(caught.value)
        assert text.startswith(f"{getattr(damaged, name)} cannot be read"), name
        assert f"({len(content):,} bytes)" in text and "\n" not in text


@pytest.mark.parametrize("style", ["old", "new"])
def test_embeddings_are_the_checkpoints_own(
    style: str, tiny_verifier: str, old_style: str, tmp_path: Path
) -> None:
    """The file that training took them from may be gone, or be no file."""
    path = str(tmp_path / "moved.pt")
    state = load_weights(old_style if style == "old" else tiny_verifier)
    options = state["args"] if style == "old" else state["cfg"]["model"]
    options.encoder_embed_path = options.decoder_embed_path = "gone/vectors.txt"
    torch.save(state, path)
    loaded = checkpoint_utils.load_checkpoint_to_cpu(path)
    for found in (loaded["args"], loaded["cfg"]["model"]):
        if found is not None:
            assert found.encoder_embed_path is found.decoder_embed_path is None


@pytest.mark.parametrize("read", READERS)
def test_missing_file_and_folder_are_told_apart(read: Any, damaged: SimpleNamespace) -> None:
    with pytest.raises(PluginError, match=r"^Checkpoint not found: .*missing"):
        read(damaged.missing)
    with pytest.raises(PluginError, match="is a folder, not a checkpoint"):
        read(damaged.folder)


def test_a_file_without_model_is_no_checkpoint(tmp_path: Path) -> None:
    torch.save([torch.ones(2)], tmp_path / "list.pt")
    with pytest.raises(PluginError, match="holds no 'model'"):
        load_weights(str(tmp_path / "list.pt"))


def test_only_errors_of_reading_are_explained() -> None:
    with pytest.raises(KeyError), explained("model.pt"):
        raise KeyError("after reading")
    with pytest.raises(KeyboardInterrupt), explained("model.pt"):
        raise KeyboardInterrupt
    with pytest.raises(PluginError, match="permissions"), explained("model.pt"):
        raise PermissionError(13, "Permission denied", "model.pt")


# Reading what could run code

HOSTILE_CALLS = {
    "a module that PyTorch blocks": lambda marker: Hostile(os.mkdir, str(marker)),
    "a function of Python": lambda marker: Hostile(exec, f"import os; os.mkdir({str(marker)!r})"),
    "a method of an object": lambda marker: Hostile(type(marker).mkdir, marker),
    "hidden in an array": lambda marker: np.array([Hostile(os.mkdir, str(marker))], dtype=object),
    "hidden in the arguments": lambda marker: Namespace(arch=Hostile(os.mkdir, str(marker))),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kind", HOSTILE_CALLS)
@pytest.mark.parametrize("override", [False, True])
def test_hostile_objects_are_refused_unrun(
    read: Any,
    zipped: bool,
    kind: str,
    override: bool,
    state: Dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker, path = tmp_path / "ran", str(tmp_path / "hostile.pt")
    torch.save(
        {**state, "args": HOSTILE_CALLS[kind](marker)}, path, _use_new_zipfile_serialization=zipped
    )
    if override:  # the usual advice for running fairseq under today's PyTorch
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(PluginError, match="was refused: it holds") as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert not marker.exists()
    assert os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD") == ("1" if override else None)
    torch.load(path, weights_only=False)
    assert marker.exists(), "the hostile file is harmless, so this test shows nothing"


def test_a_model_of_averaged_weights_is_read_as_weights_only(
    state: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of ``--ema-seed-model``."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = str(tmp_path / "ema.pt")
    torch.save({**state, "extra_state": {"ema": state["model"]}}, path)
    found = checkpoint_utils.load_ema_from_checkpoint(path)
    assert found["model"].keys() == state["model"].keys()
    torch.save(hostile_state(state, tmp_path / "ran"), path)
    with pytest.raises(PluginError, match="was refused: it holds"):
        checkpoint_utils.load_ema_from_checkpoint(path)
    assert not (tmp_path / "ran").exists()


def test_threads_that_load_at_once_leave_the_environment_as_it_was(
    tiny_verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    monkeypatch.setenv(name, "1")
    load, seen = torch.load, []

    def slow(*args: Any, **kwargs: Any) -> Any:
        seen.append(os.environ.get(name))
        time.sleep(0.02)
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", slow)
    with ThreadPoolExecutor(4) as pool:
        read = pool.map(checkpoint_utils.load_checkpoint_to_cpu, [tiny_verifier] * 8)
        assert len(list(read)) == 8
    assert seen == [None] * 8
    assert os.environ[name] == "1"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_pickles_are_not_run(read: Any, protocol: int, tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "hostile.pt"
    path.write_bytes(pickle.dumps({"model": Hostile(os.mkdir, str(marker))}, protocol))
    with pytest.raises(PluginError):
        read(str(path))
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists()


@pytest.mark.parametrize("core", ["core", "_core"])
def test_arrays_of_numbers_load(core: str, state: Dict[str, Any], tmp_path: Path) -> None:
    """``--eval-bleu`` leaves its counts in the checkpoint as arrays, named by NumPy 1 or 2."""
    kinds = [*np.typecodes["AllInteger"], *np.typecodes["AllFloat"], "?"]
    arrays = {kind: np.arange(6).reshape(2, 3).astype(kind) for kind in kinds}
    scalars = {kind: array[1, 2] for kind, array in arrays.items()}
    buffer = io.BytesIO()
    torch.save(
        {**state, "extra_state": (arrays, scalars)}, buffer, _use_new_zipfile_serialization=False
    )
    here = np.array(0).__reduce__()[0].__module__.encode()
    path = tmp_path / "counts.pt"
    path.write_bytes(buffer.getvalue().replace(here, f"numpy.{core}.multiarray".encode()))
    found_arrays, found_scalars = load_weights(str(path))["extra_state"]
    for kind in kinds:
        assert found_arrays[kind].dtype == arrays[kind].dtype
        np.testing.assert_array_equal(found_arrays[kind], arrays[kind])
        assert found_scalars[kind] == scalars[kind]


# The same through fairseq's command lines


def test_generate_reads_both_styles(corpus: Corpus, tiny_verifier: str, old_style: str) -> None:
    """An ensemble of a model with itself says what the model says."""
    one = run_cli(generate_args(corpus.data_dir, tiny_verifier))
    both = run_cli(generate_args(corpus.data_dir, f"{tiny_verifier}:{old_style}"))
    assert hypotheses(one.stdout)
    assert hypotheses(one.stdout) == hypotheses(both.stdout)


def test_interactive_reads_the_old_style(corpus: Corpus, old_style: str) -> None:
    lines = corpus.lines("test", "en")[:3]
    args = generate_args(corpus.data_dir, old_style)
    done = run_cli(["fairseq-interactive", *args[1:]], input="\n".join(lines) + "\n")
    assert len(hypotheses(done.stdout)) == 3


def test_training_resumes_from_both_styles(corpus: Corpus, old_style: str, tmp_path: Path) -> None:
    """First from the old style; then from what that saved, with the arrays of --eval-bleu."""
    args = train_args(corpus.data_dir, tmp_path)
    args.remove("--disable-validation")
    args += ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 10}']
    args += ["--eval-tokenized-bleu", "--validate-interval-updates", "1"]
    first = run_cli([*args, "--restore-file", old_style, "--max-update", "61"])
    assert "@ 60 updates)" in first.stderr + first.stdout
    last = str(tmp_path / "checkpoint_last.pt")
    assert b"multiarray" in Path(last).read_bytes()
    second = run_cli([*args, "--max-update", "62"])
    assert "@ 61 updates)" in second.stderr + second.stdout
    assert load_weights(last)["optimizer_history"][-1]["num_updates"] == 62


def test_hub_reads_both_styles(
    corpus: Corpus, tiny_verifier: str, old_style: str, damaged: SimpleNamespace
) -> None:
    def load(path: str) -> Any:
        return TransformerModel.from_pretrained(
            *os.path.split(path), data_name_or_path=corpus.data_dir, user_dir=PLUGIN
        )

    line = corpus.lines("test", "en")[0]
    new, old = (load(path).translate(line, beam=1) for path in (tiny_verifier, old_style))
    assert new == old
    for path in (damaged.hostile, damaged.truncated, damaged.missing):
        with pytest.raises(ValueError, match=os.path.basename(path)):
            load(path)
    assert not damaged.marker.exists()


SENTENCES = {
    "hostile": "was refused: it holds posix.mkdir",
    "truncated": "cannot be read as a checkpoint",
    "empty": "(0 bytes)",
    "missing": "Checkpoint not found",
    "folder": "is a folder, not a checkpoint",
}


@pytest.mark.parametrize(
    "program, names",
    [
        ("fairseq-generate", ["hostile", "missing", "folder"]),
        ("fairseq-interactive", ["empty", "hostile"]),
        ("fairseq-train", ["hostile", "truncated"]),
    ],
)
def test_command_lines_say_one_sentence(
    program: str, names: Any, corpus: Corpus, damaged: SimpleNamespace, tmp_path: Path
) -> None:
    for name in names:
        path = getattr(damaged, name)
        if program == "fairseq-train":
            args = train_args(corpus.data_dir, tmp_path, "--restore-file", path)
        else:
            args = [program, *generate_args(corpus.data_dir, path)[1:]]
        environment = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"} if name == "hostile" else {}
        done = run_cli(args, check=False, env=environment)
        assert done.returncode == 1, name
        assert "Traceback" not in done.stderr, name
        last = done.stderr.splitlines()[-1]
        assert path in last and SENTENCES[name] in last
        assert done.stderr.count(SENTENCES[name]) == 1
        assert not damaged.marker.exists()


def test_dictionaries_that_should_be_one(corpus, tiny_verifier, tmp_path):
    lines = (Path(corpus.data_dir) / "dict.en.txt").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "dict.en.txt").write_text("".join(lines), "utf-8")
    (tmp_path / "dict.es.txt").write_text("".join(lines[::-1]), "utf-8")
    with pytest.raises(PluginError, match="has one dictionary for both languages, and those of"):
        specdec_plugin.load(tiny_verifier, str(tmp_path), source_lang="en", target_lang="es")
