"""The drafter's loss against a sum over sentences, blocks and tokens; gradients on two workers."""

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from specdec_plugin.criterions.glancing_block_loss import GlancingBlockLoss
from specdec_plugin.data.block_masking import sample_blocks
from specdec_plugin.data.counter_random import counter_uniform
from specdec_plugin.fairseq_compat.checkpoints import load_weights

from ..conftest import drafter_train_args, run_cli
from ..decoding import tiny
from ..decoding.test_nat_drafter import K, drafter_model, one_by_one

PAD = 1


def criterion(start=0.5, end=0.3, smoothing=0.1, rate=0.5, decay=1.0, teacher=None, share=0.5):
    symbols = tiny.dictionary()
    task = SimpleNamespace(target_dictionary=symbols, epoch=3, updates=50, teacher=teacher)
    return GlancingBlockLoss(
        task, smoothing, start, end, 100, rate, decay, share, 2.0, seed=7, max_update=0
    )


def training_sample():
    sample = tiny.sample([4, 6, 2], 1)
    target = torch.full((3, 8), PAD)
    generator = torch.Generator().manual_seed(4)
    for row, length in enumerate([8, 5, 2]):
        target[row, :length] = torch.randint(4, 16, (length,), generator=generator)
        target[row, length - 1] = 2
    shifted = torch.full_like(target, PAD)
    shifted[:, 0] = 2
    shifted[:, 1:] = target[:, :-1].masked_fill(target[:, :-1].eq(2), PAD)
    sample["net_input"]["prev_output_tokens"] = shifted
    sample.update(target=target, ntokens=15, id=torch.tensor([11, 3, 40]))
    return sample


def naive_loss(model, sample, blocks, smoothing, decay, revealed=None):
    """Label-smoothed cross entropy and its weights, one hidden token at a time."""
    net_input, target = sample["net_input"], sample["target"]
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    features = model.decoder.block_features(
        net_input["prev_output_tokens"], encoder_out, blocks, revealed
    )
    lprobs = model.decoder.output_layer(features).log_softmax(-1)
    vocabulary = lprobs.size(-1)
    total, count = 0.0, 0
    for row in range(target.size(0)):
        for block in range(blocks.starts.size(1)):
            for place in range(K):
                if not blocks.scored[row, block, place]:
                    continue
                if revealed is not None and revealed[row, block, place]:
                    continue
                token = target[row, int(blocks.starts[row, block]) + place]
                wanted = torch.full((vocabulary,), smoothing / (vocabulary - 1))
                wanted[token] = 1 - smoothing
                total = total - decay**place * (wanted * lprobs[row, block, place]).sum()
                count += decay**place
    return total, count


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
            for mine, true in zip(said, truth):
                if mine != true:
                    break
                leading += 1
    assert int(log["blocks"]) == hidden
    assert int(log["accepted"]) == leading


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


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
