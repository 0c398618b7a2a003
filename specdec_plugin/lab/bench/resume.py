"""A journal of finished batches, so that an interrupted run can be resumed."""

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from ...decoding.statistics import Statistics
from ...errors import PluginError
from . import counters


class Record(NamedTuple):
    """What one method did with one batch.

    Attributes:
        seconds: what it took.
        tokens: by sentence number: the hypothesis, (length,) on the CPU.
        statistics: of this batch; None in journals of older versions, for fairseq's search.
    """

    seconds: float
    tokens: Dict[int, Tensor]
    statistics: Optional[Statistics]


#: By number (of the batch; later repeats continue the numbers) and then by method.
Finished = Dict[int, Dict[str, Record]]


class Journal:
    """A file of JSON lines: first what the run depends on, then each method's batches.

    Args:
        path: the file. It is overwritten unless ``resume``.
        options: what figures depend on; must be the same when a run is resumed.
        resume: continue the file, if it exists.

    Attributes:
        finished: the batches that were read from the file.

    Raises:
        PluginError: the file is of a run with other options, or damaged.
    """

    def __init__(self, path: str, options: Mapping[str, Any], resume: bool = False) -> None:
        self.path = path
        self.finished: Finished = {}
        known = json.loads(json.dumps(options))
        lines = _whole_lines(path) if resume and os.path.exists(path) else []
        if not lines:
            self._append([{"options": known}], mode="w")
            return
        self._check(lines[0].get("options", {}), known)
        for line in lines[1:]:
            self.finished.setdefault(line["batch"], {})[line["method"]] = _record(line)

    def add(self, batch: int, records: Mapping[str, Record]) -> None:
        """Store a finished batch.

        Args:
            batch: its number.
            records: of every method.
        """
        self._append([_line(batch, name, record) for name, record in records.items()])

    def complete(self, names: Sequence[str]) -> Finished:
        """The batches that all of these methods finished."""
        wanted = {*names}
        return {number: each for number, each in self.finished.items() if wanted <= {*each}}

    def _append(self, lines: Sequence[Mapping[str, Any]], mode: str = "a") -> None:
        with open(self.path, mode, encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def _check(self, then: Dict[str, Any], now: Dict[str, Any]) -> None:
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                raise PluginError(
                    f"--resume: the run in {self.path} began with {name} {then.get(name)}, but now "
                    f"it is {now.get(name)}; keep it, or leave --resume out to start again."
                )


def file_state(path: str) -> str:
    """Size and date of a file, to notice that it changed; "missing" if there is none."""
    if not os.path.exists(path):
        return "missing"
    state = os.stat(path)
    return f"{state.st_size:,} bytes, changed at {state.st_mtime:.0f}"


def _whole_lines(path: str) -> List[Dict[str, Any]]:
    """The lines of a journal, after cutting off one that was being written at the end."""
    with open(path, "rb+") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        file.truncate(end)
    lines = []
    for number, line in enumerate(content[:end].splitlines(), 1):
        try:
            lines.append(json.loads(line))
        except ValueError:
            raise PluginError(
                f"--resume: line {number} of {path} is damaged; leave --resume out to start again."
            ) from None
    return lines


def _line(batch: int, name: str, record: Record) -> Dict[str, Any]:
    return {
        "batch": batch,
        "method": name,
        "seconds": record.seconds,
        "tokens": {number: tokens.tolist() for number, tokens in record.tokens.items()},
        # The key is older than the name.
        "trace": None if record.statistics is None else counters.to_json(record.statistics),
    }


def _record(line: Mapping[str, Any]) -> Record:
    tokens = {int(number): torch.tensor(each).long() for number, each in line["tokens"].items()}
    statistics = None if line["trace"] is None else counters.from_json(line["trace"])
    return Record(line["seconds"], tokens, statistics)
