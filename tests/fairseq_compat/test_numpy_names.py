"""What fairseq reads from NumPy and newer versions of it have not."""

import shutil

import numpy as np
import pytest
from fairseq.data import language_pair_dataset, token_block_dataset

from specdec_plugin.fairseq_compat.numpy_names import install_numpy_names
from tests.support.command_lines import (
    PLUGIN,
    TINY_TRAINING,
    generate_args,
    hypotheses,
    run_cli,
    train_args,
)


def test_fairseqs_modules_alone_see_them():
    for _ in range(2):
        install_numpy_names()
    for module in (language_pair_dataset, token_block_dataset):
        assert module.np.zeros(2, module.np.compat.long).dtype == np.int64
        assert module.np.arange is np.arange
        with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
            module.np.no_such_name  # noqa: B018
    assert np.zeros is token_block_dataset.np.zeros


def test_batches_of_few_lengths(corpus, tmp_path):
    """--num-batch-buckets pads sentences to a few lengths, as for an accelerator that compiles."""
    more = ["--num-batch-buckets", 2, "--max-update", 3]
    done = run_cli(train_args(corpus.data_dir, tmp_path, *more))
    assert "bucketing source lengths" in done.stderr + done.stdout


def test_buckets_change_no_hypothesis(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier)
    plain = hypotheses(run_cli(args).stdout)
    for more in (["--max-tokens", 100], ["--max-tokens", 100, "--decoding", "auto"]):
        found = run_cli([*args, *more, "--num-batch-buckets", 2])
        assert hypotheses(found.stdout) == plain
    done = run_cli([*args, "--batch-size", 8, "--num-batch-buckets", 2], check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "--num-batch-buckets makes batches of as many tokens as --max-tokens" in done.stderr


def test_training_of_language_models(corpus, tmp_path):
    """Of sentences, each by itself, as a language model beside a translation model reads them."""
    args = ["fairseq-preprocess", "--only-source", "--srcdict", f"{corpus.data_dir}/dict.es.txt"]
    for split in ("train", "valid"):
        shutil.copy(f"{corpus.raw_dir}/{split}.es", tmp_path / split)
        args += [f"--{split}pref", tmp_path / split]
    run_cli([*args, "--destdir", tmp_path / "bin", "--workers", 1])
    sizes = "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32".split()
    more = ["--sample-break-mode", "eos", "--decoder-attention-heads", 2, "--max-update", 3]
    args = ["fairseq-train", tmp_path / "bin", "--user-dir", PLUGIN, "--task", "language_modeling"]
    args += ["--arch", "transformer_lm", *sizes, *more, *TINY_TRAINING, "--save-dir", tmp_path]
    run_cli(args)
    assert (tmp_path / "checkpoint_last.pt").exists()
