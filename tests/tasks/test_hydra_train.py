"""``fairseq-hydra-train`` trains what fairseq-train does, and tells mistakes in a sentence."""

import json
import sys
from importlib.metadata import version

import pytest
import torch

from specdec_plugin.fairseq_compat.checkpoints import load_weights
from tests.support.command_lines import (
    PLUGIN,
    TRACEBACK,
    drafter_train_args,
    generate_args,
    hypotheses,
    run_cli,
)

# A later Hydra has to pass.
pytestmark = pytest.mark.skipif(
    sys.version_info >= (3, 14) and version("hydra-core").startswith("1.3."),
    reason="Hydra 1.3 does not start on Python 3.14",
)

#: The tiny model: sizes of both sides.
SIDE = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}
SHAPE = {"encoder": SIDE, "decoder": SIDE, "share_all_embeddings": True, "dropout": 0.1}
FLAT = {"share_all_embeddings": True, "dropout": 0.1}
FLAT |= {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDE.items()}
UPDATES = 20


@pytest.fixture
def hydra_train(corpus, tmp_path):
    """Trains with a configuration file; what was printed."""

    def run(name, task, model, criterion, check=True, **checkpoint):
        checkpoint |= {"save_dir": str(tmp_path / name), "no_epoch_checkpoints": True}
        data = {"data": corpus.data_dir, "source_lang": "en", "target_lang": "es"}
        config = {
            "common": {"user_dir": PLUGIN, "cpu": True, "seed": 1, "no_progress_bar": True},
            "checkpoint": checkpoint,
            "dataset": {
                "max_tokens": 400,
                "num_workers": 0,
                "data_buffer_size": 0,
                "disable_validation": True,
            },
            "task": {**data, **task},
            "model": model,
            "criterion": criterion,
            "optimizer": {"_name": "adam"},
            "lr_scheduler": {"_name": "fixed"},
            "optimization": {"lr": [0.02], "max_update": UPDATES},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(config), "utf-8")
        args = ["--config-dir", tmp_path, "--config-name", name, f"hydra.run.dir={tmp_path}/log"]
        done = run_cli(["fairseq-hydra-train", *args], check=check)
        return str(tmp_path / name / "checkpoint_last.pt") if check else done

    return run


@pytest.mark.parametrize("shape", [SHAPE, FLAT], ids=["groups", "single options"])
def test_a_drafter_is_that_of_fairseq_train(corpus, hydra_train, tmp_path, shape):
    verifier = hydra_train(
        "verifier",
        {"_name": "specdec_translation"},
        {"_name": "transformer", **shape},
        {"_name": "label_smoothed_cross_entropy"},
    )
    init = str(tmp_path / "init.pt")
    args = ["specdec-init-drafter", corpus.data_dir, "-s", "en", "-t", "es", "--share-encoder"]
    run_cli([*args, "--verifier", verifier, "--output", init, "--block-size", 4])
    more = ["--share-all-embeddings", "--dropout", 0.1, "--finetune-from-model", init]
    for name, value in FLAT.items():
        more += [f"--{name.replace('_', '-')}", value] if name.startswith(("enc", "dec")) else []
    more += ["--max-update", UPDATES]
    run_cli(drafter_train_args(corpus.data_dir, tmp_path / "own", verifier, *more))
    drafter = hydra_train(
        "drafter",
        {"_name": "block_nat_translation", "verifier_path": verifier},
        {"_name": "block_nat", **shape, "block_size": 4, "share_encoder": True},
        {"_name": "glancing_block_loss"},
        finetune_from_model=init,
    )
    ours = load_weights(drafter)["model"]
    theirs = load_weights(str(tmp_path / "own" / "checkpoint_last.pt"))["model"]
    assert ours.keys() == theirs.keys() and len(ours) > 20
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    greedy = generate_args(corpus.data_dir, verifier, "--decoding", "greedy")
    specdec = generate_args(corpus.data_dir, verifier, "--decoding", "specdec")
    found = run_cli([*specdec, "--drafter-path", drafter]).stdout
    assert hypotheses(found) == hypotheses(run_cli(greedy).stdout)


def test_heads(corpus, tiny_verifier, hydra_train):
    heads = hydra_train(
        "heads",
        {"_name": "blockwise_translation", "verifier_path": tiny_verifier},
        {
            "_name": "blockwise_transformer",
            "frozen_base": True,
            "block_size": 4,
            "heads": "source",
        },
        {"_name": "blockwise_cross_entropy", "head_loss": "mean"},
    )
    weights = load_weights(heads)["model"]
    assert weights["base_weights"].any() and all(
        name.startswith("heads.") or weights[name].numel() == 1 for name in weights
    )
    greedy = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy")
    blockwise = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "blockwise")
    found = run_cli([*blockwise, "--drafter-path", heads]).stdout
    assert hypotheses(found) == hypotheses(run_cli(greedy).stdout)


@pytest.mark.parametrize(
    "more, told",
    [
        ({"share_encodr": True}, "model.share_encodr: block_nat has no such option. Take the"),
        ({"encoder": {"layer": 2}}, "model.encoder_layer: block_nat has no such option. Take"),
        ({"prefix_attention": "both"}, "model.prefix_attention both: Invalid value 'both', exp"),
        ({"block_size": "ten"}, "model.block_size ten: Value 'ten' of type 'str' could not be"),
        ({"share_encoder": True}, "--share-encoder needs the verifier: add --verifier-path"),
        ({"_name": "transformer"}, "--task block_nat_translation trains drafters, but this mo"),
    ],
)
def test_mistakes(hydra_train, more, told):
    task = {"_name": "block_nat_translation"}
    model = {"_name": "block_nat", **FLAT, **more}
    done = hydra_train("drafter", task, model, {"_name": "glancing_block_loss"}, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert any(line.startswith(told) for line in done.stderr.splitlines())
