"""How far enlarged patches are from the truth."""

import argparse
from typing import Any, Dict, Optional, Sequence

import numpy as np
from PIL import Image
from pixels import read_patches, same_number, same_sizes

DESCRIPTION = """\
Print the mean absolute error of patches, in levels, and their peak signal-to-noise
ratio in decibels, over all levels; a line a file. With --low, also those of the small
patches enlarged without any model (bicubic)."""

EXAMPLE = """\
example:
  python data_scripts/superres/score_patches.py --truth patches/test.high \\
      --low patches/test.low greedy.hyp blockwise.hyp"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="score_patches.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--truth", required=True, metavar="FILE", help="the right patches")
    parser.add_argument("--low", metavar="FILE", help="the small patches")
    parser.add_argument("hypotheses", nargs="*", metavar="FILE", help="enlarged patches")
    return parser


def bicubic(patch: Any, side: int) -> Any:
    """(side, side[, 3]) of a smaller patch."""
    small = Image.fromarray(patch.astype(np.uint8))
    return np.asarray(small.resize((side, side), Image.Resampling.BICUBIC)).astype(np.int64)


def scores(truth: Sequence[Any], patches: Sequence[Any]) -> Dict[str, float]:
    """Mean absolute error and peak signal-to-noise ratio."""
    apart = np.stack(patches).astype(float) - np.stack(truth)
    square = float((apart**2).mean())
    ratio = 10 * np.log10(255**2 / square) if square else np.inf
    return {"MAE": float(np.abs(apart).mean()), "PSNR": float(ratio)}


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    args = get_parser().parse_args(argv)
    truth = read_patches(args.truth)
    found = {path: read_patches(path) for path in args.hypotheses}
    if args.low is not None:
        low = read_patches(args.low)
        same_number([args.truth, args.low], [truth, low])
        found["bicubic"] = [bicubic(patch, right.shape[0]) for patch, right in zip(low, truth)]
    same_sizes([args.truth, *found], [truth, *found.values()])
    for name, patches in found.items():
        print(name, *(f"{key} {value:.3f}" for key, value in scores(truth, patches).items()))


if __name__ == "__main__":
    main()
