"""How decoding shares the processors of a machine that others use, too."""

import argparse
import contextlib
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence

from example_results import origin_of, write_results

from specdec_plugin.progress import Progress

DESCRIPTION = """\
Decode a text alone, beside an endless loop on each processor, beside a command of yours, and
beside a second program that decodes the text, too. As many threads as the machine has processors
would have half of each one then. So the fair share's time is twice that of decoding alone. Print
each time, its ratio to that, and its ratio to the time of a program with one thread."""

EXAMPLE = """\
example:
  python data_scripts/busy_machine.py checkpoints/pydocs-en-es --input test.en --output busy.json \\
      --beside "fairseq-train data-bin --cpu --arch transformer --max-tokens 4096" """

#: What may decode at the same time, and what tables call it.
NEIGHBOURS = {"loops": "loops", "command": "the command", "twin": "a second program"}
#: Seconds until a command is busy.
WARMING = 60
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
    add("--beside", metavar="COMMAND", help="also decode beside it; it is ended afterwards")
    add("--warming", type=float, default=WARMING, help="seconds until it is busy (%(default)s)")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    methods = options.methods.split(",")
    cells = [(method, size) for size in options.batch_sizes for method in methods]
    rows = [measured(options, *cell) for cell in Progress(cells, unit="cell")]
    print(table(rows))
    origin = origin_of(shlex.join(["busy_machine.py", *argv]), [])
    write_results(options.output, {**origin, "rows": rows})


def measured(options: argparse.Namespace, method: str, size: int) -> Dict[str, Any]:
    """The seconds of all passes of one way to decode, by neighbour and number of threads."""
    threads = os.cpu_count() or 1
    decoders = [Decoder(options, method, size, count) for count in (threads, 1, threads)]
    ours, single, twin = (each.wait() for each in decoders)
    row: Dict[str, Any] = {"method": method, "batch size": size}
    row["alone"] = turns([ours, single], options.repeats)
    with beside([[sys.executable, "-c", LOOP]] * threads, 0):
        row["loops"] = turns([ours, single], options.repeats)
    if options.beside:
        with beside([shlex.split(options.beside)], options.warming):
            row["command"] = turns([ours, single], options.repeats)
    row["twin"] = [[both(ours, twin)] for _ in range(options.repeats)]
    for decoder in decoders:
        decoder.close()
    return row


@contextlib.contextmanager
def beside(commands: Sequence[Sequence[str]], warming: float) -> Iterator[None]:
    """While programs run, which are busy after so many seconds."""
    # In the same session: Linux grants every session a share of its own, whatever its threads.
    started = [
        subprocess.Popen(each, process_group=0, stdout=subprocess.DEVNULL) for each in commands
    ]
    try:
        time.sleep(warming)
        yield
        if any(each.poll() is not None for each in started):
            raise SystemExit("The command ended before the last pass. Give one that runs longer.")
    finally:
        for each in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def turns(decoders: Sequence[Decoder], repeats: int) -> List[List[float]]:
    """The seconds of the decoders' passes, which take turns."""
    return [[one(decoder) for decoder in decoders] for _ in range(repeats)]


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
    """The figures in Markdown: medians, and their ratios."""
    shown = {name: title for name, title in NEIGHBOURS.items() if name in rows[0]}
    heads = [f"beside {title}, s (÷ fair share; ÷ one thread)" for title in shown.values()]
    lines = [
        f"| method | batch size | alone, s (÷ one thread) | {' | '.join(heads)} |",
        "|---|---:|---:" + "|---:" * len(heads) + "|",
    ]
    for row in rows:
        alone, *single = medians(row["alone"])
        cells = [f"{alone:.2f} ({alone / single[0]:.2f})"]
        for name in shown:
            seconds, *single = medians(row[name])
            ratios = [seconds / (2 * alone), *(seconds / each for each in single)]
            cells.append(f"{seconds:.2f} ({'; '.join(f'{ratio:.2f}' for ratio in ratios)})")
        lines.append(f"| `{row['method']}` | {row['batch size']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def medians(passes: Sequence[Sequence[float]]) -> List[float]:
    """Of each decoder."""
    return [statistics.median(each) for each in zip(*passes)]


if __name__ == "__main__":
    main()
