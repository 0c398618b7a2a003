"""A drafter's training resumes only with the dictionaries and the verifier that it began with."""

import shutil
from pathlib import Path

import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.fairseq_compat.pairing import check_resumed
from specdec_plugin.models.block_nat import BlockNATModel
from tests.support import tiny
from tests.support.command_lines import (
    PLUGIN,
    blockwise_train_args,
    drafter_train_args,
    run_cli,
    train_args,
)
from tests.support.drafters import drafter_model
from tests.support.files import some


@pytest.fixture(scope="module")
def other_verifier(tiny_verifier, tmp_path_factory):
    """A verifier of the same shape with another encoder."""
    path = tmp_path_factory.mktemp("other") / "verifier.pt"
    state = load_weights(tiny_verifier)
    state["model"]["encoder.layers.0.fc1.weight"] += 1
    torch.save(state, path)
    return str(path)


@pytest.fixture(scope="module")
def other_data(corpus, tmp_path_factory):
    """A data folder whose dictionaries have the same symbols in another order."""
    folder = tmp_path_factory.mktemp("other") / "bin"
    shutil.copytree(corpus.data_dir, folder)
    for dictionary in some(folder.glob("dict.*.txt")):
        lines = dictionary.read_text("utf-8").splitlines()
        dictionary.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n", "utf-8")
    return str(folder)


def refused(args, *words, **how):
    done = run_cli(args, check=False, **how)
    assert done.returncode != 0
    assert "Traceback (most recent call last)" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, last


def test_finetuning_for_another_verifier(
    corpus, tiny_verifier, other_verifier, tiny_drafter, tmp_path
):
    more = ["--finetune-from-model", tiny_drafter, "--max-update", 1]
    args = drafter_train_args(corpus.data_dir, tmp_path / "no", other_verifier, *more)
    refused(args, "encoder of another verifier", "Give the verifier", "specdec-init-drafter")
    assert not list((tmp_path / "no").glob("*.pt"))
    args = drafter_train_args(corpus.data_dir, tmp_path / "yes", tiny_verifier, *more)
    run_cli(args)
    assert (tmp_path / "yes" / "checkpoint_last.pt").exists()


def test_resuming_with_another_verifier(corpus, other_verifier, tiny_drafter, tmp_path):
    shutil.copy(tiny_drafter, tmp_path / "checkpoint_last.pt")
    before = Path(tiny_drafter).read_bytes()
    args = drafter_train_args(corpus.data_dir, tmp_path, other_verifier, "--max-update", 70)
    refused(args, "encoder of another verifier")
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


def test_finetuning_with_another_dictionary(other_data, tiny_verifier, tiny_drafter, tmp_path):
    more = ["--finetune-from-model", tiny_drafter, "--max-update", 1]
    args = drafter_train_args(other_data, tmp_path, tiny_verifier, *more)
    refused(args, "another source dictionary", "Give the data folder")


def test_the_task_trains_drafters_only(corpus, tmp_path):
    args = train_args(corpus.data_dir, tmp_path, "--task", "block_nat_translation")
    refused([*args, "--max-update", "1"], "--arch block_nat", "trains drafters")


@pytest.mark.parametrize("role", ["--verifier-path", "--teacher-path"])
def test_whole_models_are_needed(corpus, tiny_verifier, tiny_drafter, tiny_heads, role, tmp_path):
    for path, what in ((tiny_drafter, "a drafter"), (tiny_heads, "a file of proposal heads alone")):
        args = drafter_train_args(corpus.data_dir, tmp_path / "drafter", tiny_verifier, role, path)
        refused(args, f"{role} {path} names {what}", "give the model that it was trained for")
    args = blockwise_train_args(corpus.data_dir, tmp_path, "--verifier-path", tiny_drafter)
    refused(args, f"--verifier-path {tiny_drafter} names a drafter")
    both = f"{tiny_verifier}:{tiny_verifier}"
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, role, both)
    refused(args, f"{both} names an ensemble", "Give one of them")
    assert not list(tmp_path.glob("**/*.pt"))


def test_heads_do_not_resume_from_a_whole_model(corpus, tiny_verifier, tmp_path):
    more = ["--verifier-path", tiny_verifier, "--frozen-base", "--finetune-from-model"]
    args = blockwise_train_args(corpus.data_dir, tmp_path, *more, tiny_verifier)
    refused(args, "has no heads.", "heads start from one by --verifier-path")


@pytest.mark.parametrize("metric", ["accepted", "accuracy_2", "bleu"])
def test_the_best_checkpoint_is_not_the_worst(corpus, tiny_verifier, metric, tmp_path):
    more = ["--verifier-path", tiny_verifier, "--best-checkpoint-metric", metric]
    args = blockwise_train_args(corpus.data_dir, tmp_path, *more)
    refused(args, f"--best-checkpoint-metric {metric}", "add --maximize-best-checkpoint-metric")
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, *more[2:])
    refused(args, f"--best-checkpoint-metric {metric}", "add --maximize-best-checkpoint-metric")


@pytest.mark.parametrize("more", [[], ["--cpu"]], ids=len)
@pytest.mark.parametrize("flag", ["--fp16", "--bf16"])
def test_half_precision_needs_a_gpu(corpus, tiny_verifier, flag, more, tmp_path):
    words, hidden = (f"{flag} trains on a GPU only", "--cpu-autocast"), {"CUDA_VISIBLE_DEVICES": ""}
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, flag, *more)
    refused(args, *words, env=hidden)
    heads = ["--verifier-path", tiny_verifier, flag, *more]
    refused(blockwise_train_args(corpus.data_dir, tmp_path, *heads), *words, env=hidden)


def test_what_was_trained_so_is_validated(corpus, tiny_verifier, tiny_drafter, tmp_path):
    state = load_weights(tiny_drafter)
    changed = {"fp16": True, "best_checkpoint_metric": "accepted"}  # as on a GPU
    state["cfg"]["criterion"].update(changed)
    torch.save(state, tmp_path / "drafter.pt")
    args = ["fairseq-validate", corpus.data_dir, "--user-dir", PLUGIN, "--cpu", "--path"]
    args += [tmp_path / "drafter.pt", "--task", "block_nat_translation", "--max-tokens", 500]
    args += ["--verifier-path", tiny_verifier, "--valid-subset", "test"]
    done = run_cli([str(each) for each in args])
    assert "accepted" in done.stdout + done.stderr


class TestFingerprints:
    """What is compared."""

    @pytest.mark.parametrize("name", ["source_symbols", "target_symbols", "shared_encoder"])
    def test_known_ones_must_agree_and_unknown_ones_may_differ(self, name):
        own = dict.fromkeys(
            ["source_symbols", "target_symbols", "shared_encoder"], torch.tensor([5])
        )
        check_resumed(own, own)
        unknown, another = torch.tensor([0]), torch.tensor([-6])
        check_resumed({**own, name: unknown}, {**own, name: another})
        check_resumed(own, {**own, name: unknown})
        with pytest.raises(PluginError):
            check_resumed(own, {**own, name: another})

    def test_of_a_model_with_and_without_its_verifier(self):
        drafter = drafter_model("causal", share=True)
        assert isinstance(drafter, BlockNATModel)
        assert not drafter.fingerprints()["shared_encoder"].any()
        drafter.attach_encoder(tiny.model(1).encoder)
        before = drafter.fingerprints()
        assert before["shared_encoder"].any()
        other = drafter_model("causal", share=True)
        other.attach_encoder(tiny.model(2).encoder)
        drafter.load_state_dict(other.state_dict())
        with pytest.raises(PluginError, match="another verifier"):
            check_resumed(before, drafter.fingerprints())
