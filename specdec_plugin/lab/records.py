"""Files of JSON lines from which an interrupted program resumes."""

import json
import os
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..checksum import checksum
from ..errors import PluginError
from ..fairseq_compat.user_dir import FOLDER


class Records:
    """A file of JSON lines: first what they depend on, then one for each thing that is done.

    Args:
        path: the file. It is overwritten unless ``resume``.
        options: what the lines depend on; must be the same when a run is resumed.
        resume: continue the file, if it exists.
        again: how to start again, for errors.
        fields: that each line but the first has.
        causes: by what lines depend on, what it may have changed with, for errors.

    Attributes:
        lines: those that were read from the file, but for the first.

    Raises:
        PluginError: the file is of a run with other options, or damaged.
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, Any],
        resume: bool = True,
        again: str = "",
        fields: Sequence[str] = (),
        causes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.path, self._again, self._causes = path, again, causes
        self.lines: List[Dict[str, Any]] = []
        known = json.loads(json.dumps(options))
        lines = self._whole_lines() if resume and os.path.exists(path) else []
        if not lines:
            self._write([{"options": known}], mode="w")
            return
        self._check(self._options(lines[0]), known)
        self.lines = lines[1:]
        for number, line in enumerate(self.lines, 2):
            if not {*fields} <= {*line}:
                raise self.damaged(number)

    def damaged(self, number: int) -> PluginError:
        """The error of a line, from 1."""
        return PluginError(f"Line {number} of {self.path} is damaged; {self._again}.")

    def _options(self, line: Dict[str, Any]) -> Dict[str, Any]:
        options = line.get("options", {})
        if not isinstance(options, dict):
            raise self.damaged(1)
        return options

    def add(self, lines: Sequence[Dict[str, Any]]) -> None:
        """Store lines; they are on the disk afterwards."""
        self._write(lines, mode="a")

    def _write(self, lines: Sequence[Mapping[str, Any]], mode: str) -> None:
        with open(self.path, mode, encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def _check(self, then: Dict[str, Any], now: Dict[str, Any]) -> None:
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                raise PluginError(
                    f"The run in {self.path} began with {name} {then.get(name)}, but now it is "
                    f"{now.get(name)}{self._causes.get(name, '')}; keep it, or {self._again}."
                )

    def _whole_lines(self) -> List[Dict[str, Any]]:
        """All lines, after cutting off one that was being written at the end."""
        with open(self.path, "rb+") as file:
            content = file.read()
            end = content.rfind(b"\n") + 1
            file.truncate(end)
        lines = []
        for number, line in enumerate(content[:end].splitlines(), 1):
            try:
                lines.append(json.loads(line))
            except ValueError:
                raise self.damaged(number) from None
            if not isinstance(lines[-1], dict):
                raise self.damaged(number)
        return lines


def file_state(path: str) -> str:
    """Size and date of a file, to notice that it changed; "missing" if there is none."""
    if not os.path.exists(path):
        return "missing"
    state = os.stat(path)
    return f"{state.st_size:,} bytes, changed at {state.st_mtime:.0f}"


def code_state(user_dir: Optional[str]) -> str:
    """Changes with each file of the plugin, and of the methods of the user's own."""
    files = (
        path.read_bytes()
        for folder in filter(None, (FOLDER, user_dir))
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in (".py", ".h")
    )
    return checksum(files)
