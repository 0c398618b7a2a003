"""How much memory another process has, while it runs. Linux only."""

from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """In bytes.

    Attributes:
        resident: now.
        peak: at most so far.
    """

    resident: int
    peak: int


def memory_of(process: int) -> Memory:
    """Of a process; 0 once it has ended.

    What the system tells of ended processes includes memory of those that started them.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8")
    except OSError:
        return Memory(0, 0)
    lines = dict(line.split(":", 1) for line in status.splitlines())
    resident, peak = (lines.get(name, "0 kB").split()[0] for name in ("VmRSS", "VmHWM"))
    return Memory(1024 * int(resident), 1024 * int(peak))
