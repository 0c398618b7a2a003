"""Proposal heads through fairseq's command lines: training, decoding, and what is refused."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdec_plugin.fairseq_compat.checkpoints import load_weights
from tests.support.command_lines import (
    HEADS,
    PLUGIN,
    TINY_MODEL,
    TRACEBACK,
    blockwise_train_args,
    generate_args,
    hypotheses,
    run_cli,
    scored,
    train_args,
)
from tests.support.training import free_port


def plain(corpus, path, batch_size):
    """fairseq's own greedy search."""
    args = generate_args(corpus.data_dir, path, "--batch-size", batch_size)
    args[args.index("specdec_translation")] = "translation"
    return scored(run_cli([*args, "--required-batch-size-multiple", 1]).stdout)


def accepted(done):
    return float(re.search(r"([\d.]+) accepted tokens an iteration", done.stderr)[1])


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("kind", ["frozen", "fine-tuned"])
def test_exact_acceptance_is_fairseqs_greedy_search(
    corpus, tiny_verifier, tiny_heads, tiny_blockwise, kind, batch_size
):
    path = tiny_verifier if kind == "frozen" else tiny_blockwise
    more = ["--decoding", "blockwise", "--batch-size", batch_size, "--draft-rows", 0]
    more += ["--drafter-path", tiny_heads] if kind == "frozen" else []
    done = run_cli(generate_args(corpus.data_dir, path, *more))
    expected, found = plain(corpus, path, batch_size), scored(done.stdout)
    assert found.keys() == expected.keys() and len(found) == 21
    for name, (score, text) in expected.items():
        assert found[name][1] == text
        assert abs(found[name][0] - score) < 1e-4
    assert accepted(done) > 1


@pytest.mark.slow
def test_heads_that_read_the_source(corpus, tiny_verifier, tmp_path):
    """Trained for a model as it is, and by the kernels and PyTorch; then together with it."""
    more = ["--heads", "source", "--verifier-path", tiny_verifier, "--max-update"]
    frozen = [*more, 60, "--frozen-base"]
    run_cli(blockwise_train_args(corpus.data_dir, tmp_path / "frozen", *frozen))
    heads = tmp_path / "frozen" / "checkpoint_last.pt"
    weights = load_weights(str(heads))["model"]
    assert weights["heads.query.weight"].any() and not any("encoder" in name for name in weights)
    fixed = ["--decoding", "blockwise", "--batch-size", 5, "--draft-rows", 0]
    expected = [text for _, text in plain(corpus, tiny_verifier, 5).values()]
    for flags, environment in (
        ([], {}),
        (["--drafter-dtype", "float32"], {"SPECDEC_NATIVE": "0"}),
    ):
        args = generate_args(
            corpus.data_dir, tiny_verifier, *fixed, "--drafter-path", heads, *flags
        )
        done = run_cli(args, env=environment)
        assert [text for _, text in scored(done.stdout).values()] == expected
        assert accepted(done) > 1
    tuned = [*more, 5, "--heads-path", heads]
    run_cli(blockwise_train_args(corpus.data_dir, tmp_path / "tuned", *tuned))
    whole = str(tmp_path / "tuned" / "checkpoint_last.pt")
    expected = plain(corpus, whole, 5)
    found = scored(run_cli(generate_args(corpus.data_dir, whole, *fixed)).stdout)
    assert {name: text for name, (_, text) in found.items()} == {
        name: text for name, (_, text) in expected.items()
    }


def test_only_heads_are_stored(tiny_heads, tiny_verifier):
    weights = load_weights(tiny_heads)["model"]
    assert {name.split(".")[0] for name in weights} == {
        "heads", "source_symbols", "target_symbols", "base_weights",
    }  # fmt: skip
    assert weights["heads.outer.weight"].any() and weights["base_weights"].any()


def test_finetuning_changes_what_it_began_with(tiny_blockwise, tiny_verifier):
    """The shape is the verifier's without a flag, and its weights were the start."""
    state, begun = load_weights(tiny_blockwise), load_weights(tiny_verifier)["model"]
    weights = state["model"]
    assert not weights["base_weights"].any()
    for name, value in begun.items():
        assert weights[name].shape == value.shape
    apart = (weights["decoder.embed_tokens.weight"] - begun["decoder.embed_tokens.weight"]).abs()
    assert 0 < float(apart.mean()) < 0.5 * float(begun["decoder.embed_tokens.weight"].abs().mean())


def test_starting_from_trained_heads(corpus, tiny_verifier, tiny_heads, tmp_path):
    """The first of them; with a learning rate of nothing they stay."""
    more = ["--verifier-path", tiny_verifier, "--heads-path", tiny_heads, "--heads", "separate"]
    more += ["--block-size", HEADS - 1, "--lr", 0, "--max-update", 1]
    run_cli(blockwise_train_args(corpus.data_dir, tmp_path, *more))
    given = load_weights(tiny_heads)["model"]
    begun = load_weights(str(tmp_path / "checkpoint_last.pt"))["model"]
    for name in ("heads.inner.weight", "heads.outer.weight", "heads.outer.bias"):
        assert torch.equal(begun[name], given[name][: len(begun[name])])
        assert len(begun[name]) == len(given[name]) * (HEADS - 2) // (HEADS - 1)


@pytest.mark.parametrize(
    "flags",
    [
        ["--acceptance", "top-k", "--top-beta", 5],
        ["--min-block", 3],
        ["--min-block", HEADS, "--acceptance", "top-k", "--top-beta", 2, "--block-size", HEADS],
    ],
)
def test_relaxed_acceptance_accepts_more(corpus, tiny_blockwise, flags):
    def run(*more):
        args = generate_args(corpus.data_dir, tiny_blockwise, "--decoding", "blockwise", *more)
        done = run_cli([*args, "--batch-size", "1"])
        assert len(hypotheses(done.stdout)) == 21
        return accepted(done)

    assert run(*flags) > run()


def test_smaller_blocks_without_kernels_and_by_confidence(corpus, tiny_verifier, tiny_heads):
    fixed = ["--decoding", "blockwise", "--drafter-path", tiny_heads, "--batch-size", 1]
    fixed += ["--draft-rows", 0]  # whether drafts pay or not
    everything = [
        run_cli(generate_args(corpus.data_dir, tiny_verifier, *fixed, *more), env=environment)
        for more, environment in (
            ([], {}),
            (["--block-size", 2], {}),
            (["--draft-confidence", 0.5], {}),
            (["--drafter-dtype", "bfloat16"], {"SPECDEC_NATIVE": "0"}),
        )
    ]
    assert len({tuple(hypotheses(done.stdout)) for done in everything}) == 1
    rates = [accepted(done) for done in everything]
    assert rates[1] <= min(2.0, rates[0]) and rates[2] <= rates[0]
    tables = [done.stderr.split("position in the block:")[1].split("\n")[0] for done in everything]
    assert "3:" in tables[0] and "2:" not in tables[1]


def validation(printed):
    """The figures of the last validation."""
    lines = [line for line in printed.splitlines() if '"valid_loss"' in line]
    return json.loads(lines[-1][lines[-1].index("{") :])


@pytest.mark.slow
def test_learned_first_head_frozen_and_not(corpus, tiny_verifier, tmp_path):
    for name, more in (("whole", []), ("frozen", ["--frozen-base"])):
        more += ["--learned-first-head", "--verifier-path", tiny_verifier, "--max-update", 40]
        run_cli(blockwise_train_args(corpus.data_dir, tmp_path / name, *more))
        path = tmp_path / name / "checkpoint_last.pt"
        weights = load_weights(str(path))["model"]
        given = load_weights(tiny_verifier)["model"]
        one = "encoder.layers.0.fc1.weight"
        assert torch.equal(weights[one], given[one]) == (name == "frozen")
        done = run_cli(generate_args(corpus.data_dir, path, "--decoding", "blockwise"))
        found, expected = scored(done.stdout), plain(corpus, path, 21)
        assert {key: text for key, (_, text) in found.items()} == {
            key: text for key, (_, text) in expected.items()
        }


def test_validation_tells_what_decoding_will_accept(corpus, tiny_blockwise, tmp_path):
    args = ["fairseq-validate", corpus.data_dir, "--user-dir", PLUGIN, "--path", tiny_blockwise]
    args += ["--task", "blockwise_translation", "--criterion", "blockwise_cross_entropy"]
    args += ["--valid-subset", "valid", "--max-tokens", "200", "--cpu", "--num-workers", "0"]
    done = run_cli(args)
    printed = done.stdout + done.stderr
    for head in range(1, HEADS + 1):
        assert f"nll_loss_{head}" in printed and f"accuracy_{head}" in printed
    assert 1 <= float(re.search(r"accepted[\"' :|]+([\d.]+)", printed)[1]) <= HEADS


@pytest.mark.slow
def test_two_workers_give_the_gradient_and_the_figures_of_one(corpus, tiny_verifier, tmp_path):
    """SGD steps of length 1 without momentum: the weights' change is the gradient."""
    step = ["--verifier-path", tiny_verifier, "--optimizer", "sgd", "--lr", 1, "--batch-size", 8]
    step += ["--max-update", 3, "--clip-norm", 0, "--max-tokens", 4000, "--heads", "separate"]
    step += ["--log-format", "json", "--validate-interval-updates", 3]

    def arguments(folder, *more):
        args = blockwise_train_args(corpus.data_dir, folder, *step, *more)
        args.remove("--disable-validation")
        return args

    alone = run_cli(arguments(tmp_path / "one", "--update-freq", 2))
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
    printed = [worker.communicate(timeout=240)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(printed)[-5000:]

    one = load_weights(str(tmp_path / "one" / "checkpoint_last.pt"))["model"]
    two = load_weights(str(tmp_path / "two" / "checkpoint_last.pt"))["model"]
    assert one["heads.outer.weight"].any()
    for name in one:
        if one[name].is_floating_point():
            assert torch.allclose(one[name], two[name], atol=1e-4), name
    mine, theirs = validation(alone.stdout + alone.stderr), validation(printed[0])
    assert {f"valid_accuracy_{head}" for head in range(1, HEADS + 1)} <= set(mine)
    for key in mine:
        if key.startswith(("valid_loss", "valid_nll", "valid_acc")):
            assert float(mine[key]) == pytest.approx(float(theirs[key]), rel=0.02, abs=0.01), key


def refused(args, *words):
    done = run_cli(args, check=False)
    assert done.returncode != 0
    assert TRACEBACK not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, last
    assert "H-" not in done.stdout


class TestBadInput:
    """One sentence that says what is wrong and what to do; no traceback."""

    def decode(self, corpus, path, heads=None, *more):
        args = generate_args(corpus.data_dir, path, "--decoding", "blockwise", *more)
        return args if heads is None else [*args, "--drafter-path", str(heads)]

    def changed(self, path, tmp_path, change):
        state = load_weights(path)
        change(state)
        torch.save(state, tmp_path / "changed.pt")
        return str(tmp_path / "changed.pt")

    def test_no_heads(self, corpus, tiny_verifier, tiny_drafter):
        refused(self.decode(corpus, tiny_verifier), "has no proposal heads", "--drafter-path")
        refused(self.decode(corpus, tiny_verifier, tiny_drafter), "has no proposal heads")

    def test_heads_in_the_place_of_the_model(self, corpus, tiny_heads):
        refused(
            self.decode(corpus, tiny_heads),
            "names a file of proposal heads alone",
            "--drafter-path",
        )

    def test_too_great_a_block(self, corpus, tiny_verifier, tiny_heads):
        args = self.decode(corpus, tiny_verifier, tiny_heads, "--block-size", HEADS + 1)
        refused(args, f"--block-size {HEADS + 1}", f"trained with {HEADS}", f"Give 2 to {HEADS}")

    def test_missing_and_truncated(self, corpus, tiny_verifier, tiny_heads, tmp_path):
        refused(self.decode(corpus, tiny_verifier, "nowhere.pt"), "nowhere.pt", "not found")
        content = Path(tiny_heads).read_bytes()
        (tmp_path / "half.pt").write_bytes(content[: len(content) // 2])
        refused(self.decode(corpus, tiny_verifier, tmp_path / "half.pt"), "half.pt", "truncated")

    def test_another_dictionary(self, corpus, tiny_verifier, tiny_heads, tmp_path):
        def change(state):
            state["model"]["target_symbols"] += 1

        path = self.changed(tiny_heads, tmp_path, change)
        refused(self.decode(corpus, tiny_verifier, path), path, "another target dictionary")

    def test_another_dimension(self, corpus, tiny_verifier, tmp_path):
        wide = ["--encoder-embed-dim", 32, "--decoder-embed-dim", 32, "--max-update", 1]
        run_cli(train_args(corpus.data_dir, tmp_path / "wide", *wide))
        base = tmp_path / "wide" / "checkpoint_last.pt"
        more = ["--verifier-path", base, "--frozen-base", "--max-update", 1]
        run_cli(blockwise_train_args(corpus.data_dir, tmp_path / "heads", *more))
        heads = tmp_path / "heads" / "checkpoint_last.pt"
        args = self.decode(corpus, tiny_verifier, heads)
        refused(args, "states of 32 numbers", "--path has 16")

    @pytest.mark.parametrize("kind", ["heads", "whole"])
    def test_weights_that_are_not_what_the_options_say(
        self, corpus, tiny_verifier, tiny_heads, tiny_blockwise, tmp_path, kind
    ):
        def change(state):
            weight = state["model"]["heads.outer.weight"]
            state["model"]["heads.outer.weight"] = weight[:-3]

        if kind == "heads":
            path = self.changed(tiny_heads, tmp_path, change)
            args = self.decode(corpus, tiny_verifier, path)
        else:
            path = self.changed(tiny_blockwise, tmp_path, change)
            args = self.decode(corpus, path)
        refused(args, path, "does not hold the weights", "heads.outer.weight")

    def test_training(self, corpus, tmp_path):
        def train(*more):
            return blockwise_train_args(corpus.data_dir, tmp_path, "--max-update", 1, *more)

        refused(train("--frozen-base"), "--frozen-base", "add --verifier-path")
        refused(train("--block-size", 1), "--block-size 1", "2 or more")
        refused(train("--head-units", -1), "--head-units -1")
        other = train(*TINY_MODEL)
        where = other.index("--block-size")
        other = other[:where] + other[where + 2 :]
        refused(other, "trains blockwise Transformers", "--arch blockwise_transformer")
        refused(train("--adaptive-softmax-cutoff", "4,8"), "--adaptive-softmax-cutoff")
        refused(train("--heads", "source", "--learned-first-head"), "--heads source", "separate")

    def test_heads_to_start_from(self, corpus, tiny_verifier, tiny_heads, tmp_path):
        def train(heads, *more):
            base = ["--verifier-path", tiny_verifier, "--heads-path", heads, "--max-update", 1]
            return blockwise_train_args(corpus.data_dir, tmp_path, *base, *more)

        refused(train(tiny_verifier), tiny_verifier, "has no proposal heads to start from")
        refused(train("nowhere.pt"), "nowhere.pt", "not found")
        joint = [f"{HEADS} separate heads of", f"cannot become {HEADS} joint heads", "--heads"]
        refused(train(tiny_heads), tiny_heads, *joint)

    def test_left_padding_and_other_criterions(self, corpus, tmp_path):
        args = blockwise_train_args(corpus.data_dir, tmp_path, "--max-update", 1)
        refused([*args, "--left-pad-target"], "--left-pad-target cannot be kept")
        args[args.index("blockwise_cross_entropy")] = "label_smoothed_cross_entropy"
        refused(args, "trains by --criterion blockwise_cross_entropy")

    def test_the_criterion_with_another_task(self, corpus, tmp_path):
        args = blockwise_train_args(corpus.data_dir, tmp_path, "--max-update", 1)
        args[args.index("blockwise_translation")] = "translation"
        refused(args, "needs a task that trains proposal heads", "--task blockwise_translation")

    def test_the_criterion_without_heads(self, corpus, tmp_path):
        criterion = ["--criterion", "blockwise_cross_entropy", "--max-update", 1]
        args = train_args(corpus.data_dir, tmp_path, *criterion)
        refused(args, "blockwise_cross_entropy", "add --arch blockwise_transformer")

    def test_resuming_for_another_base(self, corpus, tiny_verifier, tiny_heads, tmp_path):
        state = load_weights(tiny_verifier)
        state["model"]["decoder.layers.0.fc1.weight"] += 1
        torch.save(state, tmp_path / "other.pt")
        (tmp_path / "out").mkdir()
        shutil.copy(tiny_heads, tmp_path / "out" / "checkpoint_last.pt")
        more = ["--verifier-path", tmp_path / "other.pt", "--frozen-base", "--heads", "separate"]
        args = blockwise_train_args(corpus.data_dir, tmp_path / "out", *more, "--max-update", 70)
        refused(args, "another model than --verifier-path's", "Give the model")


def test_resuming_goes_on(corpus, tiny_verifier, tiny_heads, tmp_path):
    shutil.copy(tiny_heads, tmp_path / "checkpoint_last.pt")
    more = ["--verifier-path", tiny_verifier, "--frozen-base", "--heads", "separate"]
    run_cli(blockwise_train_args(corpus.data_dir, tmp_path, *more, "--max-update", 62))
    after = load_weights(str(tmp_path / "checkpoint_last.pt"))
    before, one = load_weights(tiny_heads), "heads.outer.weight"
    assert not torch.equal(before["model"][one], after["model"][one])
    assert after["optimizer_history"][-1]["num_updates"] == 62


def test_hub_with_smaller_blocks(corpus, tiny_blockwise):
    """fairseq's hub gives every option to the model too."""
    program = f"""
import specdec_plugin
from pathlib import Path
from fairseq.models.transformer import TransformerModel
path = Path({tiny_blockwise!r})
for extra in ({{}}, {{"decoding": "blockwise"}}, {{"decoding": "blockwise", "block_size": 3}}):
    hub = TransformerModel.from_pretrained(
        str(path.parent), path.name, {corpus.data_dir!r}, task="specdec_translation", **extra)
    print("said", hub.translate(["one two three", "nine and two"], beam=1))
"""
    lines = run_cli(["python", "-c", program]).stdout.splitlines()
    said = [line for line in lines if line.startswith("said")]
    assert len(said) == 3 and len(set(said)) == 1
