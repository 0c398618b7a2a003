"""How far a long program is, on the standard error: tqdm's bar, or a line now and then."""

import io
import sys
from typing import IO, Any

from tqdm import tqdm

#: Seconds between two lines where nobody looks at a bar.
SECONDS = 60


class Progress(tqdm):
    """A bar of tqdm on a terminal; elsewhere a line a minute, and none of short work.

    It takes tqdm's arguments. ``disable`` hides it, as fairseq's ``--no-progress-bar`` should.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("mininterval", 1)
        if sys.stderr is None:  # It is closed, as behind 2>&-.
            options.update(disable=True, file=io.StringIO())
        elif not sys.stderr.isatty():
            seconds = dict.fromkeys(["mininterval", "maxinterval", "delay"], SECONDS)
            options.update(seconds, file=_Lines(sys.stderr), dynamic_ncols=False, ncols=0)
        self._tokens = 0
        super().__init__(*args, **options)

    def add(self, count: int, tokens: int) -> None:
        """Count what is done, and show the tokens of this run for each second of it."""
        self._tokens += tokens
        if not self.disable:
            rate = self._tokens / max(self.format_dict["elapsed"], 1e-6)
            self.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        self.update(count)


class _Lines:
    """Writes each state of a bar as a line of its own."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        line = text.strip("\r\n ")
        if line:
            self._file.write(line + "\n")

    def flush(self) -> None:
        self._file.flush()
