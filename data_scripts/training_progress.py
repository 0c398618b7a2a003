"""How far a training of fairseq has come: updates, hours, and the best figure in validation."""

import argparse
from typing import NamedTuple, Optional, Sequence

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights

DESCRIPTION = """\
Print the updates, the hours of training and the best figure of --best-checkpoint-metric that a
checkpoint of fairseq-train records."""

EXAMPLE = """\
example:
  python data_scripts/training_progress.py drafter/checkpoint_last.pt"""


class Progress(NamedTuple):
    """What a checkpoint records.

    Attributes:
        updates: of the weights.
        hours: of training and validation, those before interruptions included.
        best: of ``--best-checkpoint-metric``; None without validation.
    """

    updates: int
    hours: float
    best: Optional[float]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="training_progress.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="FILE", help="of fairseq-train")
    return parser


def progress_of(path: str) -> Progress:
    """What a checkpoint records.

    Raises:
        PluginError: fairseq-train did not write it.
    """
    state = load_weights(path)
    try:
        updates = state["optimizer_history"][-1]["num_updates"]
        extra = state["extra_state"]
        seconds = extra["previous_training_time"]
    except (KeyError, IndexError):
        raise PluginError(
            f"{path} does not record its training. Give a checkpoint that fairseq-train wrote, "
            "such as checkpoint_last.pt."
        ) from None
    best = extra.get("best")
    return Progress(int(updates), seconds / 3600, None if best is None else float(best))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    found = progress_of(get_parser().parse_args(argv).checkpoint)
    best = "-" if found.best is None else f"{found.best:.6g}"
    print(f"{found.updates} {found.hours:.4f} {best}")


if __name__ == "__main__":
    main()
