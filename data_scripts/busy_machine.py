"""How decoding shares the processors of a machine that others use, too."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from specdec_plugin.progress import Progress

DESCRIPTION = """\
Decode a text alone, beside an endless loop on each processor, and beside a second program that
decodes it, too. As many threads as the machine has processors would have half of each one then.
So the fair share's time is twice that of decoding alone. Print each time, and its ratio to that."""

EXAMPLE = """\
example:
  python data_scripts/busy_machine.py checkpoints/pydocs-en-es --input test.en --output busy.json"""

NEIGHBOURS = ("loops", "twin")
#: The program that decodes: it tells that it is ready, and the seconds of each pass that it is
#: asked for by a line.
DECODER = """\
import sys, time
import specdec_plugin
folder, text, method, size = sys.argv[1:]
lines = open(text, encoding="utf-8").read().splitlines()
translator = specdec_plugin.load(folder, decoding=method)
translator.translate(lines[:3])
print("ready", flush=True)
for _ in sys.stdin:
    begin = time.perf_counter()
    translator.translate(lines, batch_size=int(size))
    print(time.perf_counter() - begin, flush=True)
"""
LOOP = "while True: pass"


class Decoder:
    """A process that decodes the text as often as it is asked to."""

    def __init__(self, options: argparse.Namespace, method: str, size: int, threads: int) -> None:
        arguments = [options.folder, options.input, method, str(size)]
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", DECODER, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> "Decoder":
        """Return when the model is loaded."""
        while self._line() != "ready":
            pass
        return self

    def begin(self) -> None:
        """Begin a pass."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def seconds(self) -> float:
        """Those of the pass, when it has ended."""
        return float(self._line())

    def _line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("A program that decodes has failed; its message is above.")
        return str(line.strip())

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="busy_machine.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", help="of a model, as specdec_plugin.load takes it")
    add("--input", required=True, metavar="FILE", help="raw text, a sentence a line")
    add("--methods", default="greedy,specdec", help="default: %(default)s")
    add("--batch-sizes", type=int, nargs="+", default=[1, 32], help="default: 1 32")
    add("--repeats", type=int, default=3, help="passes of each (default: %(default)s)")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    options = get_parser().parse_args(argv)
    methods = options.methods.split(",")
    cells = [(method, size) for size in options.batch_sizes for method in methods]
    rows = [measured(options, *cell) for cell in Progress(cells, unit="cell")]
    print(table(rows))
    written = {"options": vars(options), "processors": os.cpu_count(), "rows": rows}
    Path(options.output).write_text(json.dumps(written, indent=1) + "\n", "utf-8")


def measured(options: argparse.Namespace, method: str, size: int) -> Dict[str, Any]:
    """The seconds of all passes of one way to decode, by neighbour."""
    threads = os.cpu_count() or 1
    decoders = [Decoder(options, method, size, threads) for _ in range(2)]
    ours, twin = (each.wait() for each in decoders)
    row: Dict[str, Any] = {"method": method, "batch size": size}
    row["alone"] = [one(ours) for _ in range(options.repeats)]
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(threads)]
    try:
        row["loops"] = [one(ours) for _ in range(options.repeats)]
    finally:
        for each in loops:
            each.kill()
            each.wait()
    row["twin"] = [both(ours, twin) for _ in range(options.repeats)]
    for decoder in decoders:
        decoder.close()
    return row


def one(decoder: Decoder) -> float:
    """The seconds of a pass."""
    decoder.begin()
    return decoder.seconds()


def both(ours: Decoder, twin: Decoder) -> float:
    """The seconds of two passes at once, on average."""
    ours.begin()
    twin.begin()
    return (ours.seconds() + twin.seconds()) / 2


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """The figures in Markdown: medians, and their ratios to the fair share's time."""
    lines = [
        "| method | batch size | alone, s | beside loops, s (÷ fair share) "
        "| beside a second program, s (÷ fair share) |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        alone = statistics.median(row["alone"])
        cells: List[str] = []
        for name in NEIGHBOURS:
            seconds = statistics.median(row[name])
            cells.append(f"{seconds:.2f} ({seconds / (2 * alone):.2f})")
        figures = " | ".join([f"{alone:.2f}", *cells])
        lines.append(f"| `{row['method']}` | {row['batch size']} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
