"""A tiny teacher for the examples that take one."""

import shutil
from pathlib import Path
from typing import Any

from .command_lines import SCRIPTS, run_cli, train_args


def train_teacher(text: Path, folder: Path, updates: int, *options: Any) -> None:
    """Leave ``teacher.pt``, its subwords and its dictionary in a folder.

    Args:
        text: with train, dev and test in English and Spanish.
        folder: is made.
        updates: of the training.
        options: of fairseq-train, besides those of every tiny model.
    """
    run_cli(
        ["python", SCRIPTS / "prepare_subwords.py", "-s", "en", "-t", "es", "--size", 60]
        + ["--output", folder, "--train", text / "train"]
        + ["--valid", text / "dev", "--test", text / "test"]
    )
    run_cli(train_args(folder / "bin", folder, "--max-update", updates, *options))
    shutil.copy(folder / "checkpoint_last.pt", folder / "teacher.pt")
    shutil.copy(folder / "bin" / "dict.en.txt", folder)


#: Of a teacher in the shape of the examples' models: LAYERS=2 DIM=16.
LAYERS_2_DIM_16 = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64 "
    "--encoder-attention-heads 4 --decoder-attention-heads 4"
).split()
