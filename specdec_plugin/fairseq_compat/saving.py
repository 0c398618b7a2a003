"""Checkpoints that fairseq copies appear under their names only when they are whole.

fairseq writes a checkpoint beside its name and renames it. But the other names of the same
checkpoint, such as ``checkpoint_last.pt``, are copies that it writes in place. A process that ends
meanwhile leaves half a file, and training could not be resumed.
"""

import functools
import shutil
from typing import Any

from fairseq.file_io import PathManager

from ..outputs import written_whole


def install_whole_copies() -> None:
    """Make fairseq's copies of checkpoints whole or absent (idempotent)."""
    copy = PathManager.copy
    if hasattr(copy, "__wrapped__"):
        return

    @functools.wraps(copy)
    def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if "://" in dst_path:  # of a storage that fairseq knows by its package iopath
            return copy(src_path, dst_path, overwrite)
        with written_whole(dst_path) as unfinished:
            shutil.copyfile(src_path, unfinished)
        return dst_path

    PathManager.copy = staticmethod(copy_whole)
