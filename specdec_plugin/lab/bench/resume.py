"""A journal of finished batches, so that an interrupted run can be resumed."""

from typing import Any, Dict, Mapping, NamedTuple, Sequence

import torch
from torch import Tensor

from ...decoding.statistics import Statistics
from ..records import Records
from . import counters


class Record(NamedTuple):
    """What one method did with one batch.

    Attributes:
        seconds: what it took.
        tokens: by sentence number: the hypothesis, (length,) on the CPU.
        statistics: of this batch.
    """

    seconds: float
    tokens: Dict[int, Tensor]
    statistics: Statistics


#: By number (of the batch; later repeats continue the numbers) and then by method.
Finished = Dict[int, Dict[str, Record]]


_FIELDS = ("batch", "method", "seconds", "tokens", "statistics")


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
        self.finished: Finished = {}
        again = "leave --resume out to start again"
        self._records = Records(path, options, resume, again, _FIELDS)
        for number, line in enumerate(self._records.lines, 2):
            try:
                self.finished.setdefault(line["batch"], {})[line["method"]] = _record(line)
            except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
                raise self._records.damaged(number) from None

    def add(self, batch: int, records: Mapping[str, Record]) -> None:
        """Store a finished batch.

        Args:
            batch: its number.
            records: of every method.
        """
        self._records.add([_line(batch, name, record) for name, record in records.items()])

    def complete(self, names: Sequence[str]) -> Finished:
        """The batches that all of these methods finished."""
        wanted = {*names}
        return {number: each for number, each in self.finished.items() if wanted <= {*each}}


def _line(batch: int, name: str, record: Record) -> Dict[str, Any]:
    return {
        "batch": batch,
        "method": name,
        "seconds": record.seconds,
        "tokens": {number: tokens.tolist() for number, tokens in record.tokens.items()},
        "statistics": counters.to_json(record.statistics),
    }


def _record(line: Mapping[str, Any]) -> Record:
    tokens = {int(number): torch.tensor(each).long() for number, each in line["tokens"].items()}
    return Record(float(line["seconds"]), tokens, counters.from_json(line["statistics"]))
