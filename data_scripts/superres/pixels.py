"""Square patches as lines of text: their levels in raster order, 0 to 255.

A pixel of a grey patch is one level, and of a coloured one three: red, green and blue. No number of
levels is that of both kinds, because three times a square is never a square.
"""

import math
import os
import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from specdec_plugin.errors import PluginError

# The programs of the folder above share their modules with those of this one.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from textfiles import read_lines, write_lines

__all__ = ["LEVELS", "read_patches", "same_number", "same_sizes", "write_lines", "write_patches"]

#: Levels, which are the symbols of both dictionaries.
LEVELS = 256


def write_patches(path: str, patches: Sequence[Any]) -> None:
    """Write patches, (side, side) or (side, side, 3) uint8 each, a line each."""
    write_lines(path, (" ".join(map(str, patch.reshape(-1))) for patch in patches))


def read_patches(path: str) -> List[Any]:
    """(side, side) or (side, side, 3) int64 of every line.

    Raises:
        PluginError: a line is not a square of levels.
    """
    return [_patch(path, number, line) for number, line in enumerate(read_lines(path), start=1)]


def _patch(path: str, number: int, line: str) -> Any:
    words = line.split()
    shape = _shape(len(words))
    levels = [int(word) for word in words if word.isdecimal() and int(word) < LEVELS]
    if shape is None or len(levels) < len(words):
        raise PluginError(
            f"Line {number} of {path} is not a square of levels from 0 to {LEVELS - 1}: it has "
            f"{len(words)} words, {len(levels)} of which are levels. Make patches with "
            "photo_patches.py, and decode them with --min-len and --max-len-b at their size."
        )
    return np.array(levels).reshape(shape)


def _shape(levels: int) -> Optional[Tuple[int, ...]]:
    """That of a patch with so many levels; None if there is no such patch."""
    for channels in ((), (3,)):
        side = math.isqrt(levels // math.prod(channels))
        if side > 0 and side * side * math.prod(channels) == levels:
            return (side, side, *channels)
    return None


def same_number(paths: Sequence[str], patches: Sequence[Sequence[Any]]) -> None:
    """Stop when files do not hold the same number of patches, or none."""
    if not patches[0]:
        raise PluginError(f"{paths[0]} holds no patches. Name a file that does.")
    for path, own in zip(paths, patches):
        if len(own) != len(patches[0]):
            raise PluginError(
                f"{paths[0]} holds {len(patches[0]):,} patches and {path} {len(own):,}: they do "
                "not belong together. Name files of the same split."
            )


def same_sizes(paths: Sequence[str], patches: Sequence[Sequence[Any]]) -> None:
    """Stop when files do not hold the same number of patches, all of one size."""
    same_number(paths, patches)
    levels = patches[0][0].size
    for path, own in zip(paths, patches):
        for number, patch in enumerate(own, start=1):
            if patch.size != levels:
                raise PluginError(
                    f"Line {number:,} of {path} has {patch.size:,} levels, and line 1 of "
                    f"{paths[0]} has {levels:,}: only patches of one size can be compared. Name "
                    "files of the same patches."
                )
