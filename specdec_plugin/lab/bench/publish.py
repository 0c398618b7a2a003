"""The report of a run: printed, and stored with its plots."""

import argparse
import datetime
import json
import logging
import math
import os
import shlex
import sys
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from ...outputs import write_text
from . import sweeps
from .edits import Edits, ratio_table
from .examples import examples_tables
from .flops import flops_table
from .report import Row, machine, markdown, memory_table, parts_table, values_in


def publish(
    options: argparse.Namespace,
    argv: Sequence[str],
    rows: Sequence[Row],
    seconds: Mapping[str, Sequence[float]],
    edits: Optional[Edits] = None,
) -> None:
    """Print the tables; with ``--output``, store them, the figures and the plots."""
    origin = {
        "machine": machine(options.device),
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["specdec-bench", *map(str, argv)]),
    }
    text = document(options.sweep, rows, origin, edits)
    drawn: List[str] = []
    if options.output is not None:
        results = {**origin, "options": vars(options), "rows": rows}
        if edits is not None:
            results.update({"by edit ratio": edits.rows, "examples": edits.examples})
        text_of_all = json.dumps(finite(results), indent=1, allow_nan=False)
        write(options.output, "results.json", text_of_all)
        write(options.output, "results.md", text + "\n")
        drawn = draw(options, rows, seconds, edits)
    print(text)
    for path in drawn:
        print(f"wrote {path}", file=sys.stderr)


def draw(
    options: argparse.Namespace,
    rows: Sequence[Row],
    seconds: Mapping[str, Sequence[float]],
    edits: Optional[Edits] = None,
) -> List[str]:
    """Draw what belongs to the run into ``--output``; returns the files."""
    # fairseq shows the messages of every logger, and this one logs each font.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from . import plots

    drawn = _draw_sweep(options, rows, seconds)
    if edits is not None and edits.rows:
        drawn += plots.plot_edit_ratios(edits.ratios, seconds, options.output)
    return drawn


def _draw_sweep(
    options: argparse.Namespace, rows: Sequence[Row], seconds: Mapping[str, Sequence[float]]
) -> List[str]:
    """What was swept, or without a sweep how speed-ups are distributed."""
    from . import plots

    if options.sweep == "directions":
        return []  # the table shows what there is
    if options.sweep == "k":
        return plots.plot_block_sizes(rows, options.output)
    if options.sweep == "beta-tau":
        return plots.plot_grid(rows, options.output)
    if options.sweep == "batch":
        return plots.plot_batch_sizes(rows, options.output)
    if options.sweep == "threads":
        return plots.plot_threads(rows, options.output)
    unit = "sentences" if options.batch_size == 1 else f"batches of {options.batch_size}"
    return plots.plot_distribution(seconds, options.output, unit)


def document(
    sweep: Optional[str],
    rows: Sequence[Row],
    origin: Mapping[str, Any],
    edits: Optional[Edits] = None,
) -> str:
    """What a reader gets: tables, what they mean, and where the figures come from."""
    parts: List[Optional[str]] = []
    if sweep == "beta-tau":
        parts.append(sweeps.grid_tables(rows))
    if sweep == "jacobi":
        parts.append(sweeps.guess_table(rows))
    if sweep == "batch":
        parts.append(sweeps.batch_tables(rows))
    if sweep == "threads":
        parts.append(sweeps.thread_tables(rows))
    if sweep == "directions":
        parts.append(sweeps.direction_table(rows))
    for heading, some in _by_conditions(rows, sweep):
        parts += [heading, markdown(some), parts_table(some), flops_table(some)]
        parts.append(memory_table(some) if sweep != "batch" else None)
    if edits is not None:
        parts.append(ratio_table(edits.rows) if edits.rows else None)
        parts.append(examples_tables(edits.examples) if edits.examples else None)
    where, counts = origin["machine"], sorted({row["threads"] for row in rows})
    plural = "s" if counts[-1] > 1 else ""
    accelerator = f"{where['accelerator']}, with " if "accelerator" in where else ""
    parts.append(
        f"All methods took turns in one process, on {accelerator}{where['processor']} "
        f"({where['processors']} for this process) with {_listed(counts)} thread{plural}, Python "
        f"{where['python']} and PyTorch {where['torch']}, on {origin['date']}:"
    )
    parts.append(f"```sh\n{origin['command']}\n```")
    return "\n\n".join(part for part in parts if part is not None)


def _by_conditions(
    rows: Sequence[Row], sweep: Optional[str]
) -> List[Tuple[Optional[str], List[Row]]]:
    """The rows that were timed under the same conditions, with a heading where others follow."""
    headings = {"batch": ("batch size", "Batches of"), "directions": ("direction", "Direction")}
    key, head = headings.get(str(sweep), ("threads", "Threads:"))
    values = values_in(rows, key)
    return [
        (
            f"{head} {value}" if len(values) > 1 else None,
            [row for row in rows if row[key] == value],
        )
        for value in values
    ]


def _listed(counts: Sequence[int]) -> str:
    *most, last = map(str, counts)
    return f"{', '.join(most)} and {last}" if most else last


def finite(value: Any) -> Any:
    """What JSON can hold: None in the place of an infinite number, which stands for no limit."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(folder: str, name: str, text: str) -> None:
    """Store a text."""
    write_text(os.path.join(folder, name), text)
