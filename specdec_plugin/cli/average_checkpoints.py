"""``specdec-average-checkpoints``: one checkpoint whose weights are the mean of several.

fairseq's own ``scripts/average_checkpoints.py`` is not part of its pip package;
the options here have the same names.
"""

import argparse
import os
import re
from argparse import Namespace
from typing import Any, Dict, List, Optional, Tuple

import torch

from ..errors import PluginError
from ..fairseq_compat.checkpoints import load_weights, save_whole
from ..fairseq_compat.interrupts import console_program
from ..outputs import check_output, check_replaceable, same_file
from ..progress import Progress

DESCRIPTION = """\
Average the weights of checkpoints of one model. Configuration and counters are
those of the last; the optimizer state is dropped. The result loads wherever a
fairseq checkpoint does."""

EXAMPLE = """\
examples:
  specdec-average-checkpoints --inputs save_dir --num-epoch-checkpoints 10 \\
      --output averaged.pt --half
  specdec-average-checkpoints --inputs a.pt b.pt c.pt --output averaged.pt"""

#: fairseq's names of checkpoint files; the number is the epoch or the update.
EPOCH_FILE = re.compile(r"checkpoint(\d+)\.pt")
UPDATE_FILE = re.compile(r"checkpoint_\d+_(\d+)\.pt")

State = Dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-average-checkpoints",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help="the averaged checkpoint; its folder is made where there is none",
    )
    last = parser.add_mutually_exclusive_group()
    last.add_argument(
        "--num-epoch-checkpoints", type=int, metavar="N", help="of a folder: the last N epochs"
    )
    last.add_argument(
        "--num-update-checkpoints",
        type=int,
        metavar="N",
        help="of a folder: the last N that --save-interval-updates wrote",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=int,
        metavar="NUMBER",
        help="with one of these: none after this epoch or update",
    )
    parser.add_argument(
        "--half", action="store_true", help="store the weights in half precision (float16)"
    )
    return parser


def last_checkpoints(
    folder: str, pattern: "re.Pattern[str]", count: int, upper_bound: Optional[int]
) -> List[str]:
    """The ``count`` newest checkpoints of a folder whose name fits, oldest first."""
    if not os.path.isdir(folder):
        raise PluginError(f"Folder not found: {folder}. Name the --save-dir of fairseq-train.")
    if count < 1:
        raise PluginError(f"{count} checkpoints cannot be averaged. Ask for at least 1.")
    numbered: List[Tuple[int, str]] = []
    for name in os.listdir(folder):
        match = pattern.fullmatch(name)
        if match and (upper_bound is None or int(match.group(1)) <= upper_bound):
            numbered.append((int(match.group(1)), os.path.join(folder, name)))
    if len(numbered) < count:
        raise PluginError(
            f"{folder} holds {len(numbered)} such checkpoints, and {count} were asked for. Ask for "
            "fewer, or keep more in training (--keep-last-epochs, --keep-interval-updates)."
        )
    return [path for _, path in sorted(numbered)[-count:]]


def check_alike(path: str, model: State, first_path: str, first: State) -> None:
    """Refuse two checkpoints whose parameters differ in name or shape."""
    different = sorted(set(model) ^ set(first))
    if different:
        where = path if different[0] in model else first_path
        raise PluginError(
            f"{path} and {first_path} are not checkpoints of one model: {len(different)} "
            f"parameters are in one of them only, such as {different[0]} in {where}. "
            "Average checkpoints of one training run."
        )
    for name, value in model.items():
        if value.shape != first[name].shape:
            raise PluginError(
                f"{path} and {first_path} are not checkpoints of one model: {name} is "
                f"{tuple(value.shape)} in the first and {tuple(first[name].shape)} in the second. "
                "Average checkpoints of one training run."
            )


def average(paths: List[str], half: bool = False) -> State:
    """The averaged checkpoint.

    Sums are in float64.  Integers and truth values are not averaged but taken
    from the last checkpoint.  Tensors that share their memory there (tied
    embeddings) share it in the result too, and so are stored once.

    Args:
        paths: the checkpoints, the last of which gives everything but weights
            (and, in its options, no folders of this machine).
        half: store floating-point weights as float16, else as in the last one.
    """
    sums, state = summed(paths)
    shared: Dict[Tuple[Any, ...], torch.Tensor] = {}
    averaged: State = {}
    for name, value in state["model"].items():
        memory = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if memory not in shared or not value.numel():
            if name in sums:
                stored_as = torch.float16 if half else value.dtype
                value = (sums[name] / len(paths)).to(stored_as)
            shared[memory] = value
        averaged[name] = shared[memory]
    state["model"] = averaged
    state["last_optimizer_state"] = None
    state["optimizer_history"] = state.get("optimizer_history", [])[-1:]
    for options in ("args", "cfg"):
        state[options] = without_folders(state.get(options))
    return state


def summed(paths: List[str]) -> Tuple[Dict[str, torch.Tensor], State]:
    """The sums of floating-point weights, by name in float64, and the last checkpoint.

    Raises:
        PluginError: a checkpoint cannot be read, or is of another model than the first.
    """
    sums: Dict[str, torch.Tensor] = {}
    first: State = {}
    state: State = {}
    for path in Progress(paths, unit="checkpoint"):
        state = load_weights(path)
        model = state["model"]
        first = first or model
        check_alike(path, model, paths[0], first)
        for name, value in model.items():
            if not value.is_floating_point():
                continue
            if name in sums:
                sums[name].add_(value)
            else:
                sums[name] = value.to(torch.float64, copy=True)
    return sums, state


def without_folders(options: Any) -> Any:
    """fairseq's options with absolute paths cut to file names.

    They mean nothing on another machine, and reveal things about this one.

    Args:
        options: a Namespace, mapping, list or value, nested.
    """
    if isinstance(options, Namespace):
        return Namespace(**without_folders(vars(options)))
    if isinstance(options, dict):
        return {name: without_folders(value) for name, value in options.items()}
    if isinstance(options, list):
        return [without_folders(value) for value in options]
    if isinstance(options, str) and os.path.isabs(options):
        return os.path.basename(options.rstrip(os.sep))
    return options


def _check_output(path: str, inputs: List[str]) -> None:
    """Refuse what cannot be written, and an input, whose optimizer state would be lost."""
    check_output(path)
    check_replaceable(path)
    for each in inputs:
        if same_file(path, each):
            raise PluginError(
                f"--output {path} is one of --inputs, which would be lost: name another file."
            )


@console_program
def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = build_parser().parse_args(argv)
    paths: List[str] = args.inputs
    counts = args.num_epoch_checkpoints, args.num_update_checkpoints
    if args.checkpoint_upper_bound is not None and counts == (None, None):
        raise PluginError(
            f"--checkpoint-upper-bound {args.checkpoint_upper_bound} would have no effect without "
            "--num-epoch-checkpoints or --num-update-checkpoints: add one, or leave it out."
        )
    for pattern, count in (
        (EPOCH_FILE, args.num_epoch_checkpoints),
        (UPDATE_FILE, args.num_update_checkpoints),
    ):
        if count is not None:
            if len(args.inputs) != 1:
                raise PluginError("The last N checkpoints are of one folder. Name one --inputs.")
            paths = last_checkpoints(args.inputs[0], pattern, count, args.checkpoint_upper_bound)
    if paths is args.inputs and any(os.path.isdir(path) for path in paths):
        raise PluginError(
            "--inputs names a folder. Add --num-epoch-checkpoints or --num-update-checkpoints."
        )
    _check_output(args.output, paths)
    save_whole(average(paths, args.half), args.output)
    print(f"{args.output}: the mean of {len(paths)} checkpoints: " + " ".join(paths))


if __name__ == "__main__":
    main()
