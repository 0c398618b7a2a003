"""A picture of small patches, what was made of them, and the truth."""

import argparse
import os
from typing import Any, List, Optional, Sequence

import numpy as np
from matplotlib.figure import Figure
from pixels import read_patches, same_number

DESCRIPTION = """\
Draw some patches of each file, a column a patch and a row a file: of each equal share of
the last file, the patch with the most contrast, so that most plain ones stay out."""

EXAMPLE = """\
example:
  python data_scripts/superres/draw_patches.py --output grid.png input=patches/test.low \\
      greedy=greedy.hyp blockwise=blockwise.hyp truth=patches/test.high"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="draw_patches.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="ending in .png or .svg")
    parser.add_argument("--columns", type=int, default=10, metavar="N", help="default %(default)s")
    parser.add_argument("rows", nargs="+", metavar="LABEL=FILE", help="from top to bottom")
    return parser


def chosen(patches: Sequence[Any], most: int) -> List[int]:
    """Of each of ``most`` equal shares of the patches, the number of the one with most contrast."""
    shares = np.array_split(np.arange(len(patches)), min(most, len(patches)))
    return [int(max(share, key=lambda position: patches[position].std())) for share in shares]


def draw(labels: Sequence[str], rows: Sequence[Sequence[Any]], positions: Sequence[int]) -> Figure:
    """The picture: ``rows[i][position]`` is (side, side) or (side, side, 3)."""
    size = (1.1 + 0.8 * len(positions), 0.85 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(positions), squeeze=False)
    for label, patches, axes in zip(labels, rows, grid):
        for position, axis in zip(positions, axes):
            axis.imshow(patches[position], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        axes[0].set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
    return figure


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if args.columns < 1:
        parser.error("--columns is 1 or more")
    labels, _, paths = zip(*(row.rpartition("=") for row in args.rows))
    if "" in labels:
        parser.error(f"{args.rows[labels.index('')]}: write LABEL=FILE")
    rows = [read_patches(path) for path in paths]
    same_number(paths, rows)
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure = draw(labels, rows, chosen(rows[-1], args.columns))
    figure.savefig(args.output, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
