"""``--task specdec_speech_to_text``: a tiny model of speech, on made-up features."""

import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.support.command_lines import PLUGIN, hypotheses, once_per_run, run_cli

WORDS = [f"w{number}" for number in range(12)]
#: Utterances of each split.
SPLITS = {"train": 60, "dev": 6, "test": 9}
TASK = ["--config-yaml", "config.yaml", "--num-workers", "0", "--cpu", "--user-dir", PLUGIN]
pytestmark = pytest.mark.filterwarnings("ignore:.*'pin_memory' argument")


def write_corpus(folder: Path) -> None:
    """A word is some frames of its own features, with noise."""
    choose, noise = random.Random(1), np.random.RandomState(1)
    sounds = {word: noise.randn(80) for word in WORDS}
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in WORDS))
    config = {"vocab_filename": "dict.txt", "input_feat_per_channel": 80, "input_channels": 1}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for split, count in SPLITS.items():
        lines = ["id\taudio\tn_frames\ttgt_text\tspeaker"]
        for number in range(count):
            words = choose.choices(WORDS, k=choose.randint(2, 6))
            frames = np.repeat([sounds[word] for word in words], 8, axis=0)
            frames = (frames + 0.1 * noise.randn(*frames.shape)).astype(np.float32)
            path = folder / f"{split}{number}.npy"
            np.save(path, frames)
            lines.append(f"{split}{number}\t{path}\t{len(frames)}\t{' '.join(words)}\tone")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def train(folder: Path) -> None:
    write_corpus(folder)
    sizes = ["--encoder-layers", "1", "--decoder-layers", "1", "--conv-channels", "16"]
    for side in ("encoder", "decoder"):
        sizes += [f"--{side}-embed-dim", "16", f"--{side}-ffn-embed-dim", "24"]
        sizes += [f"--{side}-attention-heads", "2"]
    training = ["--criterion", "cross_entropy", "--optimizer", "adam", "--lr", "0.01"]
    training += ["--max-tokens", "4000", "--max-update", "30", "--dropout", "0"]
    training += ["--no-progress-bar", "--disable-validation", "--no-epoch-checkpoints"]
    splits = ["--train-subset", "train", "--valid-subset", "dev"]
    task = ["--task", "specdec_speech_to_text", "--arch", "s2t_transformer_xs", *TASK]
    run_cli(
        ["fairseq-train", folder, *task, *sizes, *training, *splits, "--save-dir", folder / "model"]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with a model."""
    return once_per_run(tmp_path_factory, "speech", train)


def decode(folder: Path, *flags: str, task: str = "specdec_speech_to_text"):
    checkpoint = folder / "model" / "checkpoint_last.pt"
    fixed = ["fairseq-generate", folder, "--task", task, "--path", checkpoint, *TASK]
    return run_cli([*fixed, "--gen-subset", "test", "--max-len-b", "20", *flags])


@pytest.mark.parametrize("size", ["1", "4"])
@pytest.mark.parametrize(
    "beam, flags",
    [
        ("1", ["--decoding", "greedy"]),
        ("1", ["--decoding", "auto"]),
        ("1", ["--decoding", "specdec", "--draft-rows", "0"]),
        ("4", ["--decoding", "beam"]),
    ],
)
def test_hypotheses_are_fairseqs(folder: Path, beam: str, flags: list, size: str) -> None:
    shared = ["--beam", beam, "--batch-size", size, "--required-batch-size-multiple", "1"]
    expected = hypotheses(decode(folder, *shared, task="speech_to_text").stdout)
    found = hypotheses(decode(folder, *shared, *flags).stdout)
    assert found == expected and len(found) == SPLITS["test"] and len(set(found)) > 3


@pytest.mark.parametrize("method", ["input-guided", "hybrid-jacobi"])
def test_what_reads_a_text_is_refused(folder: Path, method: str) -> None:
    with pytest.raises(AssertionError, match=f"--decoding {method}.* reads the source as text"):
        decode(folder, "--beam", "1", "--decoding", method)


def test_lines_of_fairseq_interactive(folder: Path) -> None:
    checkpoint = folder / "model" / "checkpoint_last.pt"
    command = ["fairseq-interactive", folder, "--path", checkpoint, "--beam", "1", *TASK]
    command += ["--task", "specdec_speech_to_text", "--decoding", "greedy", "--max-len-b", "20"]
    sounds = "".join(f"{folder}/test{number}.npy\n" for number in range(SPLITS["test"]))
    # Padding changes what fairseq's convolutions make of the end of a sound.
    alone = ["--beam", "1", "--batch-size", "1", "--decoding", "greedy"]
    expected = hypotheses(decode(folder, *alone).stdout)
    assert hypotheses(run_cli(command, input=sounds).stdout) == expected
