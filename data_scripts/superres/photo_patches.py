"""Photographs as pairs of small patches and their enlargements, for super-resolution."""

import argparse
import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image, UnidentifiedImageError
from pixels import LEVELS, write_lines, write_patches
from sklearn.datasets import load_sample_images

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Cut grey square patches out of photographs; a patch of half their side, each level
of which is the mean of four, is the source of a pair, and the patch its target. In
--output, a patch a line, as levels from 0 to 255 in raster order:

  train.low, train.high   all patches --stride apart, in random order, each turned
                          or mirrored at random
  mixed.low, mixed.high   these, and each once more with its blocks of four pixels in
                          random order: there only the source tells what comes next,
                          so that a model learns soon where to look
  valid.*, test.*         patches side by side of regions that no training patch
                          touches: one square of 64 in ten for each of the two
  dict.txt                the levels, as fairseq's dictionary"""

EXAMPLE = """\
examples:
  python data_scripts/superres/photo_patches.py --output patches/
  python data_scripts/superres/photo_patches.py --output patches/ --photos holiday/*.jpg"""

#: Side of the squares that are held out.
REGION = 64


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="photo_patches.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder of its own")
    parser.add_argument(
        "--photos",
        nargs="+",
        metavar="FILE",
        help="pictures of any kind; default: the two photographs that scikit-learn brings along",
    )
    parser.add_argument(
        "--side", type=int, default=16, metavar="N", help="pixels (default %(default)s)"
    )
    parser.add_argument(
        "--stride",
        type=int,
        default=3,
        metavar="N",
        help="distance of training patches, in pixels (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of order and turns (default 1)")
    return parser


def grey(picture: Image.Image) -> Any:
    """(height, width) uint8."""
    return np.asarray(picture.convert("L"))


def load(paths: Optional[Sequence[str]]) -> List[Any]:
    """The photographs as (height, width) uint8; without paths scikit-learn's."""
    if paths is None:
        return [grey(Image.fromarray(each)) for each in load_sample_images().images]
    found = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                found.append(grey(picture))
        except FileNotFoundError:
            raise PluginError(f"Photograph not found: {path}. Check the path.") from None
        except (UnidentifiedImageError, OSError):
            raise PluginError(
                f"{path} is no picture that can be read, or a truncated one. Copy it again."
            ) from None
    return found


def split_of(row: int, column: int) -> str:
    """The split of a square of side :data:`REGION`, by its place among those of a photograph.

    One in five is held out, no two of which touch.
    """
    if (column + 2 * row) % 5:
        return "train"
    return "test" if row % 2 else "valid"


def regions(photo: Any) -> Iterator[Tuple[int, int, str]]:
    """(top, left, split) of the squares of a photograph that are held out."""
    height, width = photo.shape
    for top in range(0, height, REGION):
        for left in range(0, width, REGION):
            split = split_of(top // REGION, left // REGION)
            if split != "train":
                yield top, left, split


def held_out(photo: Any, side: int) -> Iterator[Tuple[str, Any]]:
    """Split and patch, side by side, of all held-out regions."""
    height, width = photo.shape
    for top, left, split in regions(photo):
        for y in range(top, min(top + REGION, height) - side + 1, side):
            for x in range(left, min(left + REGION, width) - side + 1, side):
                yield split, photo[y : y + side, x : x + side]


def training(photo: Any, side: int, stride: int) -> Any:
    """(n, side, side) the patches that touch no held-out region."""
    taken = np.zeros(photo.shape, dtype=bool)
    for top, left, _ in regions(photo):
        taken[top : top + REGION, left : left + REGION] = True
    places = (slice(None, None, stride), slice(None, None, stride))
    touches = sliding_window_view(taken, (side, side))[places].any((2, 3))
    return sliding_window_view(photo, (side, side))[places][~touches]


def turned(patch: Any, way: int) -> Any:
    """A patch in one of the 8 positions of a square: ``way`` from 0 to 7."""
    patch = np.rot90(patch, way % 4)
    return patch.T if way >= 4 else patch


def halved(patch: Any) -> Any:
    """(side / 2, side / 2) uint8: the mean of each four pixels, halves rounded up."""
    half = patch.shape[0] // 2
    sums = patch.astype(np.int64).reshape(half, 2, half, 2).sum((1, 3))
    return ((sums + 2) // 4).astype(np.uint8)


def scattered(patch: Any, order: Any) -> Any:
    """A patch with its blocks of 2x2 pixels in another ``order``, (side^2 / 4,)."""
    half = patch.shape[0] // 2
    blocks = patch.reshape(half, 2, half, 2).swapaxes(1, 2).reshape(-1, 2, 2)[order]
    return blocks.reshape(half, half, 2, 2).swapaxes(1, 2).reshape(patch.shape)


def cut(photos: Sequence[Any], side: int, stride: int, seed: int) -> Dict[str, List[Any]]:
    """The patches of each split, (side, side) uint8."""
    draw = np.random.default_rng(seed)
    found: Dict[str, List[Any]] = {"train": [], "valid": [], "test": []}
    for photo in photos:
        found["train"] += list(training(photo, side, stride))
        for split, patch in held_out(photo, side):
            found[split].append(patch)
    order = draw.permutation(len(found["train"]))
    ways = draw.integers(8, size=len(order))
    found["train"] = [turned(found["train"][i], way) for i, way in zip(order, ways)]
    found["mixed"] = []
    for patch in found["train"]:
        found["mixed"] += [patch, scattered(patch, draw.permutation(side * side // 4))]
    return found


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if not 2 <= args.side <= REGION or args.side % 2 or args.stride < 1:
        parser.error(f"--side is an even number from 2 to {REGION}, and --stride at least 1")
    splits = cut(load(args.photos), args.side, args.stride, args.seed)
    for split, patches in splits.items():
        if not patches:
            raise PluginError(
                f"The photographs are too small to cut patches for {split} out of them: give some "
                f"of at least {3 * REGION} pixels each way."
            )
        write_patches(os.path.join(args.output, f"{split}.low"), [halved(p) for p in patches])
        write_patches(os.path.join(args.output, f"{split}.high"), patches)
        print(f"{split}: {len(patches):,} patches")
    write_lines(os.path.join(args.output, "dict.txt"), (f"{level} 1" for level in range(LEVELS)))


if __name__ == "__main__":
    main()
