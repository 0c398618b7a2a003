"""Files that a test looks for."""

from pathlib import Path
from typing import Iterable, List


def some(paths: Iterable[Path]) -> List[Path]:
    """The paths in order. Without any, a loop over them would test nothing, so it fails."""
    found = sorted(paths)
    assert found, "no such file is there"
    return found
