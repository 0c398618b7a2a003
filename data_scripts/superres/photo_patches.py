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
Cut square patches out of photographs. The target of a pair is a patch, and its source is
the patch reduced by --factor: each of its levels is the mean of a block. In --output, a
patch a line, as levels from 0 to 255 in raster order. With --colour, a pixel is three
levels: red, green and blue.

  train.low, train.high   all patches --stride apart, in random order, each turned
                          or mirrored at random
  mixed.low, mixed.high   these, and each once more with its blocks in random order, those
                          of both sides: there only the source tells what comes next,
                          so that a model learns soon where to look
  valid.*, test.*         patches side by side of regions that no training patch
                          touches: one square of 64 in ten for each of the two
  dict.txt                the levels, as fairseq's dictionary"""

EXAMPLE = """\
examples:
  python data_scripts/superres/photo_patches.py --output patches/
  python data_scripts/superres/photo_patches.py --output patches/ --photos holiday/*.jpg
  python data_scripts/superres/photo_patches.py --output patches/ --colour --side 32 --factor 4"""

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
        "--factor",
        type=int,
        default=2,
        metavar="N",
        help="how many times as long as its source's the side is (default %(default)s)",
    )
    parser.add_argument("--colour", action="store_true", help="keep the photographs' colours")
    parser.add_argument(
        "--stride",
        type=int,
        default=3,
        metavar="N",
        help="distance of training patches, in pixels (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of order and turns (default 1)")
    return parser


def load(paths: Optional[Sequence[str]], mode: str) -> List[Any]:
    """The photographs, uint8; without paths scikit-learn's.

    Args:
        paths: files, or None.
        mode: Pillow's ``L``, for (height, width), or ``RGB``, for (height, width, 3).
    """
    if paths is None:
        pictures = load_sample_images().images
        return [np.asarray(Image.fromarray(each).convert(mode)) for each in pictures]
    found = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                found.append(np.asarray(picture.convert(mode)))
        except FileNotFoundError:
            raise PluginError(f"Photograph not found: {path}. Check the path.") from None
        except (UnidentifiedImageError, OSError):
            raise PluginError(
                f"{path} is no picture that can be read, or a truncated one. Copy it again."
            ) from None
    return found


def split_of(row: int, column: int) -> str:
    """The split of a square of side :data:`REGION`, by its position among those of a photograph.

    One in five is held out, no two of which touch.
    """
    if (column + 2 * row) % 5:
        return "train"
    return "test" if row % 2 else "valid"


def regions(photo: Any) -> Iterator[Tuple[int, int, str]]:
    """(top, left, split) of the squares of a photograph that are held out."""
    height, width = photo.shape[:2]
    for top in range(0, height, REGION):
        for left in range(0, width, REGION):
            split = split_of(top // REGION, left // REGION)
            if split != "train":
                yield top, left, split


def held_out(photo: Any, side: int) -> Iterator[Tuple[str, Any]]:
    """Split and patch, side by side, of all held-out regions."""
    height, width = photo.shape[:2]
    for top, left, split in regions(photo):
        for y in range(top, min(top + REGION, height) - side + 1, side):
            for x in range(left, min(left + REGION, width) - side + 1, side):
                yield split, photo[y : y + side, x : x + side]


def training(photo: Any, side: int, stride: int) -> Any:
    """(n, side, side), or (n, side, side, 3), the patches that touch no held-out region."""
    taken = np.zeros(photo.shape[:2], dtype=bool)
    for top, left, _ in regions(photo):
        taken[top : top + REGION, left : left + REGION] = True
    strides = (slice(None, None, stride), slice(None, None, stride))
    touches = sliding_window_view(taken, (side, side))[strides].any((2, 3))
    windows = sliding_window_view(photo, (side, side), axis=(0, 1))[strides][~touches]
    return windows if photo.ndim == 2 else np.moveaxis(windows, 1, -1)


def turned(patch: Any, way: int) -> Any:
    """A patch in one of the 8 positions of a square: ``way`` from 0 to 7."""
    patch = np.rot90(patch, way % 4)
    return patch.swapaxes(0, 1) if way >= 4 else patch


def blocks_of(patch: Any, factor: int) -> Any:
    """(side / factor, side / factor, factor, factor, channels) of (side, side[, channels])."""
    count = patch.shape[0] // factor
    return patch.reshape(count, factor, count, factor, -1).swapaxes(1, 2)


def reduced(patch: Any, factor: int) -> Any:
    """(side / factor, side / factor[, channels]) uint8: each block's mean, halves rounded up."""
    blocks, size = blocks_of(patch.astype(np.int64), factor), factor * factor
    means = (blocks.sum((2, 3)) + size // 2) // size
    return means.reshape(*blocks.shape[:2], *patch.shape[2:]).astype(np.uint8)


def scattered(patch: Any, factor: int, order: Any) -> Any:
    """A patch with its blocks in another ``order``, (blocks,)."""
    blocks = blocks_of(patch, factor)
    moved = blocks.reshape(-1, *blocks.shape[2:])[order].reshape(blocks.shape)
    return moved.swapaxes(1, 2).reshape(patch.shape)


def cut(
    photos: Sequence[Any], side: int, factor: int, stride: int, seed: int
) -> Dict[str, List[Any]]:
    """The patches of each split, (side, side) or (side, side, 3) uint8."""
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
        found["mixed"] += [patch, scattered(patch, factor, draw.permutation((side // factor) ** 2))]
    return found


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if args.factor < 2 or args.side not in range(args.factor, REGION + 1, args.factor):
        parser.error(
            f"--factor is at least 2, and --side is a multiple of it, and at most {REGION}"
        )
    if args.stride < 1:
        parser.error("--stride is at least 1")
    photos = load(args.photos, "RGB" if args.colour else "L")
    for path, photo in zip(args.photos or (), photos):
        if min(photo.shape[:2]) < args.side:
            raise PluginError(
                f"{path} is smaller than --side {args.side}: leave it out, or give a smaller side."
            )
    splits = cut(photos, args.side, args.factor, args.stride, args.seed)
    for split, patches in splits.items():
        if not patches:
            raise PluginError(
                f"The photographs are too small to cut patches for {split} out of them: give some "
                f"of at least {3 * REGION} pixels each way."
            )
        low = [reduced(patch, args.factor) for patch in patches]
        write_patches(os.path.join(args.output, f"{split}.low"), low)
        write_patches(os.path.join(args.output, f"{split}.high"), patches)
        print(f"{split}: {len(patches):,} patches")
    write_lines(os.path.join(args.output, "dict.txt"), (f"{level} 1" for level in range(LEVELS)))


if __name__ == "__main__":
    main()
