"""Text files, plain or packed, a line at a time."""

import gzip
import zlib
from typing import Iterator

from ...errors import PluginError


def read_lines(path: str) -> Iterator[str]:
    r"""The lines of a UTF-8 file without their ends, unpacked where its name ends in ``.gz``.

    Lines end in ``\n`` or ``\r\n`` only, so that other separators of Unicode do not shift them.

    Raises:
        PluginError: the file is missing, not text, or damaged.
    """
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                yield line.rstrip("\r\n")
    except FileNotFoundError:
        raise PluginError(f"File not found: {path}. Check the path.") from None
    except IsADirectoryError:
        raise PluginError(f"{path} is a folder, not a file. Name a file inside it.") from None
    except UnicodeDecodeError:
        raise PluginError(f"{path} is not UTF-8. Convert it (for instance with iconv).") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PluginError(
            f"{path} is truncated, or is no gzip file in spite of its name. Copy it again."
        ) from None
