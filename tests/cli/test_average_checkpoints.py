"""Averaged checkpoints: the mean, and still a fairseq checkpoint."""

import os
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from specdec_plugin.cli.average_checkpoints import main
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from tests.support.command_lines import Corpus, generate_args, hypotheses, run_cli

TIED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


@pytest.fixture(scope="module")
def run(tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run's folder: four epochs, two updates, each with other weights."""
    folder = tmp_path_factory.mktemp("run")
    generator = torch.Generator().manual_seed(3)
    names = ["checkpoint8.pt", "checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    names += ["checkpoint_8_800.pt", "checkpoint_9_900.pt"]
    for step, name in enumerate(names):
        state = load_weights(tiny_verifier)
        for value in {value.data_ptr(): value for value in state["model"].values()}.values():
            value += 0.01 * torch.randn(value.shape, generator=generator)
        state["model"]["counter"] = torch.tensor([step])
        state["optimizer_history"][-1]["num_updates"] = 100 * step
        torch.save(state, folder / name)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        (folder / name).write_bytes(b"not read")
    return folder


def model(path: Path) -> Dict[str, torch.Tensor]:
    found: Dict[str, torch.Tensor] = load_weights(str(path))["model"]
    return found


def average(*args: Any) -> None:
    main([str(arg) for arg in args])


@pytest.mark.parametrize(
    "options, names",
    [
        (["--num-epoch-checkpoints", 3], ["checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]),
        (
            ["--num-epoch-checkpoints", 2, "--checkpoint-upper-bound", 10],
            ["checkpoint9.pt", "checkpoint10.pt"],
        ),
        (["--num-update-checkpoints", 2], ["checkpoint_8_800.pt", "checkpoint_9_900.pt"]),
        ([], ["checkpoint11.pt", "checkpoint8.pt"]),
    ],
)
def test_is_the_mean(options: List[Any], names: List[str], run: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "averaged.pt"
    inputs = [run] if options else [run / name for name in names]
    average("--inputs", *inputs, *options, "--output", output)
    models = [model(run / name) for name in names]
    found = load_weights(str(output))
    assert list(found["model"]) == list(models[-1])
    for name, value in found["model"].items():
        assert value.dtype == models[-1][name].dtype
        if name == "counter":
            assert value.item() == models[-1][name].item()
        else:
            mean = torch.stack([model[name].double() for model in models]).mean(0)
            torch.testing.assert_close(value.double(), mean, rtol=1e-7, atol=1e-7)
    last = load_weights(str(run / names[-1]))
    assert found["last_optimizer_state"] is None and last["last_optimizer_state"] is not None
    assert found["optimizer_history"] == last["optimizer_history"][-1:]
    assert found["cfg"]["model"].decoder_layers == last["cfg"]["model"].decoder_layers
    assert found["cfg"].keys() == last["cfg"].keys() and found["args"] == last["args"]
    tied = [found["model"][name] for name in TIED]
    assert tied[0].data_ptr() == tied[1].data_ptr()  # stored once


def test_an_upper_bound_of_named_checkpoints_is_refused(run: Path, tmp_path: Path) -> None:
    options = ["--checkpoint-upper-bound", 10, "--output", tmp_path / "averaged.pt"]
    with pytest.raises(PluginError, match="--checkpoint-upper-bound 10 would have no effect"):
        average("--inputs", run / "checkpoint8.pt", *options)


def test_no_folder_of_this_machine_is_stored(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "averaged.pt"
    inputs = run / "checkpoint8.pt"
    trained_in = Path(load_weights(str(inputs))["cfg"]["checkpoint"]["save_dir"])
    assert trained_in.is_absolute()
    average("--inputs", inputs, "--output", output)
    cfg = load_weights(str(output))["cfg"]
    assert cfg["checkpoint"]["save_dir"] == trained_in.name
    assert str(trained_in.parent) not in str(cfg)


def test_half_precision_loads_in_fairseq(
    run: Path, corpus: Corpus, tiny_verifier: str, tmp_path: Path
) -> None:
    """Through the command lines; twice the same checkpoint averages to itself."""
    output = tmp_path / "half.pt"
    run_cli(
        ["python", "-m", "specdec_plugin.cli.average_checkpoints", "--half"]
        + ["--inputs", tiny_verifier, tiny_verifier, "--output", output]
    )
    whole = model(Path(tiny_verifier))
    for name, value in model(output).items():
        assert value.dtype == torch.float16
        assert torch.equal(value, whole[name].half())
    assert output.stat().st_size < 0.5 * Path(tiny_verifier).stat().st_size
    printed = run_cli(
        generate_args(corpus.data_dir, output, "--required-batch-size-multiple", 1)
    ).stdout
    assert len(hypotheses(printed)) == 21


def test_mistakes_are_told_in_a_sentence(run: Path, tiny_verifier: str, tmp_path: Path) -> None:
    def refused(sentence: str, *args: Any) -> None:
        with pytest.raises(PluginError, match=sentence):
            average(*args, "--output", tmp_path / "out.pt")
        assert not (tmp_path / "out.pt").exists()

    one = run / "checkpoint8.pt"
    refused(r"such as counter in .*checkpoint8.pt", "--inputs", one, tiny_verifier)
    state = load_weights(str(one))
    name = next(iter(state["model"]))
    state["model"][name] = torch.zeros(2, 7)
    torch.save(state, tmp_path / "shape.pt")
    refused(rf"{name} is \(2, 7\)", "--inputs", one, tmp_path / "shape.pt")
    refused("holds 4 such .* 5 were", "--inputs", run, "--num-epoch-checkpoints", 5)
    refused("at least 1", "--inputs", run, "--num-epoch-checkpoints", 0)
    refused("names a folder", "--inputs", run)
    with pytest.raises(PluginError, match="is one of --inputs, which would be lost"):
        average("--inputs", one, "--output", one)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PluginError, match="pipe is not a file, and may not become one"):
        average("--inputs", one, "--output", tmp_path / "pipe")
    refused("of one folder", "--inputs", run, run, "--num-update-checkpoints", 1)
    refused("Folder not found", "--inputs", one, "--num-update-checkpoints", 1)
    refused("not found", "--inputs", one, tmp_path / "none.pt")
    refused("truncated, damaged", "--inputs", run / "checkpoint_last.pt")
