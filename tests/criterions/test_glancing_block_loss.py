"""The drafter's loss against a sum over sentences, blocks and tokens; gradients on two workers."""

import math
import subprocess
import sys
from unittest.mock import Mock

import pytest
import torch

from specdec_plugin.data.block_masking import sample_blocks
from specdec_plugin.data.counter_random import counter_uniform
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.tasks.block_nat_translation import (
    BlockNATTranslationConfig,
    BlockNATTranslationTask,
)
from specdec_plugin.tasks.blockwise_translation import BlockwiseTranslationTask
from tests.support import tiny
from tests.support.command_lines import drafter_train_args, run_cli
from tests.support.drafters import K, drafter_model, one_by_one
from tests.support.training import PAD, criterion, free_port, naive_loss, training_sample


@pytest.mark.parametrize(
    "form, rate, decay", [("causal", 0.5, 1.0), ("causal", 0.0, 0.7), ("full", 0.0, 1.0)]
)
def test_validation_loss_is_the_sum_over_hidden_tokens(form, rate, decay):
    model, sample = drafter_model(form), training_sample()
    loss_of = criterion(rate=rate, decay=decay)
    with torch.no_grad():
        loss, size, log = loss_of(model, sample)
        noise = counter_uniform(sample["id"], 8, 7, 0, 1)
        blocks = sample_blocks(sample["target"], PAD, K, rate, noise)
        expected, count = naive_loss(model, sample, blocks, 0.1, decay)
    assert float(size) == pytest.approx(count)
    assert size == log["sample_size"]
    assert torch.allclose(loss, expected, atol=1e-4)

    # The metric, with the drafter run one sentence and one block at a time.
    encoder_out = model.encoder.forward_torchscript(sample["net_input"])
    leading, hidden = 0, 0
    for row in range(3):
        for block, start in enumerate(blocks.starts[row].tolist()):
            truth = sample["target"][row, start : start + K]
            truth = truth[truth.ne(PAD)].tolist()
            if not blocks.scored[row, block, 0]:
                continue
            chosen = sample["target"][row, :start].tolist()
            said = one_by_one_unmasked(model, encoder_out, row, chosen)
            hidden += 1
            for mine, true in zip(said, truth, strict=True):
                if mine != true:
                    break
                leading += 1
    assert int(log["blocks"]) == hidden
    assert int(log["accepted"]) == leading


@pytest.mark.parametrize("kind", [BlockNATTranslationTask, BlockwiseTranslationTask])
def test_tasks_tell_criterions_the_epoch_and_the_updates(kind):
    symbols, model = tiny.dictionary(), drafter_model("causal")
    task = kind(BlockNATTranslationConfig(), symbols, symbols)
    task.fingerprints = model.fingerprints()
    task.begin_epoch(4, model)
    loss_of = Mock(return_value=(torch.zeros(()), 1, {}))
    task.train_step({}, model, loss_of, Mock(), 7)
    assert task.updates == 7
    assert kind is BlockwiseTranslationTask or task.epoch == 4


def one_by_one_unmasked(model, encoder_out, row, chosen):
    """Like ``one_by_one``; the tiny model never prefers what decoding would mask."""
    said, _ = one_by_one(model, encoder_out, row, chosen)
    assert PAD not in said
    return said


def test_training_reveals_half_of_the_errors_and_scores_the_rest():
    model, sample = drafter_model("causal").train(), training_sample()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    loss_of = criterion(start=1.0, end=1.0)
    # λ = 1: as many tokens are revealed as the first pass got wrong.
    loss, size, _ = loss_of(model, sample)
    noise = counter_uniform(sample["id"], 8, 7, 3, 1)
    blocks = sample_blocks(sample["target"], PAD, K, 0.5, noise)
    model.eval()
    with torch.no_grad():
        prediction = model(**sample["net_input"], blocks=blocks)
    right = int((prediction.logits.argmax(-1) == blocks.targets[prediction.scored]).sum())
    assert int(size) == right
    assert loss.requires_grad or size == 0


def test_ratio_falls_linearly_and_stays():
    loss_of = criterion()
    ratios = [loss_of.glancing_ratio(update) for update in (0, 25, 50, 100, 500)]
    assert ratios == pytest.approx([0.5, 0.45, 0.4, 0.3, 0.3])


@pytest.mark.parametrize(
    "name, value, told",
    [
        ("smoothing", -2.0, r"--label-smoothing -2\.0: give 0 or more, and less than 1\."),
        ("smoothing", 1.0, r"--label-smoothing 1\.0: give 0 or more, and less than 1\."),
        ("start", 7.0, r"--glancing-start 7\.0: give 0 to 1\."),
        ("end", -0.1, r"--glancing-end -0\.1: give 0 to 1\."),
        ("updates", -5, r"--glancing-updates -5: give 0 or more\."),
        ("rate", -3.0, r"--block-rate -3\.0: give 0 to 1\."),
        ("rate", math.nan, r"--block-rate nan: give 0 to 1\."),
        ("decay", 0.0, r"--position-decay 0\.0: give a number above 0 and at most 1\."),
        ("decay", 1.5, r"--position-decay 1\.5: give a number above 0 and at most 1\."),
    ],
)
def test_options_out_of_range(name, value, told):
    with pytest.raises(PluginError, match=told):
        criterion(**{name: value})


def test_the_ends_of_the_ranges():
    criterion(smoothing=0.0, start=0.0, end=0.0, updates=0, rate=0.0, decay=1.0)
    criterion(start=1.0, end=1.0, rate=1.0, decay=1e-6)


@pytest.mark.slow
def test_two_workers_give_the_gradient_of_one(corpus, tiny_verifier, tmp_path):
    """One SGD step of length 1 and no momentum: the weights' change is the gradient."""
    init = tmp_path / "init.pt"
    run_cli(
        ["specdec-init-drafter", corpus.data_dir, "-s", "en", "-t", "es", "--share-encoder"]
        + ["--verifier", tiny_verifier, "--output", init, "--block-size", 4]
    )
    step = ["--finetune-from-model", init, "--optimizer", "sgd", "--lr", 1, "--batch-size", 8]
    step += ["--max-update", 1, "--clip-norm", 0, "--max-tokens", 4000]

    def arguments(folder, *more):
        return drafter_train_args(corpus.data_dir, folder, tiny_verifier, *step, *more)

    run_cli(arguments(tmp_path / "one", "--update-freq", 2))
    address = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "fairseq_cli.train", *arguments(tmp_path / "two")[1:]]
    command += ["--distributed-no-spawn", "--distributed-init-method", address]
    command += ["--distributed-world-size", "2", "--distributed-backend", "gloo"]
    command += ["--ddp-backend", "legacy_ddp"]
    workers = [
        subprocess.Popen(
            [*command, "--distributed-rank", str(rank)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    printed = [worker.communicate(timeout=240)[0][-3000:] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(printed)

    before = load_weights(str(init))["model"]
    one = load_weights(str(tmp_path / "one" / "checkpoint_last.pt"))["model"]
    two = load_weights(str(tmp_path / "two" / "checkpoint_last.pt"))["model"]
    changed = 0
    for name in one:
        if not one[name].is_floating_point():
            continue
        alone, together = one[name] - before[name], two[name] - before[name]
        changed += int(alone.abs().max() > 1e-4)
        assert torch.allclose(alone, together, atol=1e-5), name
    assert changed > 10
