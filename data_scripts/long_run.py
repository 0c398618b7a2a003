"""The memory of one long run, and whether each line gets its hypothesis in order."""

import argparse
import itertools
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from example_results import origin_of, write_results
from process_memory import memory_of
from textfiles import read_piece_lines

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Let fairseq-interactive translate a text again and again in one process, and note its memory. The
text repeats, so that memory which grows belongs to the program. Print the memory after so many
lines, and whether each line had its hypothesis, in order, and the same one in each repetition.
Linux only."""

EXAMPLE = """\
example:
  python data_scripts/long_run.py --input pieces.en --lines 100000 --output memory.json -- \\
      data-bin -s en -t es --path model.pt --task specdec_translation --decoding auto --beam 1 \\
      --batch-size 512 --buffer-size 512 --cpu"""

#: Rows of a table.
SHOWN = 8
#: Seconds between two looks at the process.
_PAUSE = 0.2
_HYPOTHESIS = re.compile(rb"H-(\d+)\t[^\t]*\t(.*)")


class Output:
    """What the program has written so far.

    Attributes:
        numbers, hypotheses: of the lines.
    """

    def __init__(self, path: Path) -> None:
        self.numbers: List[int] = []
        self.hypotheses: List[str] = []
        self._bytes: BinaryIO = path.open("rb")
        self._rest = b""  # it may end amid a character

    def read(self) -> int:
        """Read on; returns the number of hypotheses."""
        *lines, self._rest = (self._rest + self._bytes.read()).split(b"\n")
        for found in filter(None, map(_HYPOTHESIS.fullmatch, lines)):
            self.numbers.append(int(found[1]))
            self.hypotheses.append(found[2].decode("utf-8"))
        return len(self.numbers)

    def is_right(self, lines: int, period: int) -> bool:
        """Whether each line has a hypothesis, in order, and the one that it had a period ago."""
        repeated = zip(self.hypotheses, self.hypotheses[period:])
        return self.numbers == list(range(lines)) and all(one == two for one, two in repeated)


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="long_run.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--input", required=True, metavar="FILE", help="as fairseq-interactive reads it")
    add("--lines", type=int, required=True, metavar="N", help="so many in all")
    add("--every", type=int, metavar="N", help="lines between two figures (default: the text's)")
    add("--output", required=True, metavar="FILE", help="file for all figures, as JSON")
    add("options", nargs="+", help="of fairseq-interactive, after --")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    text = read_piece_lines(options.input)
    if not text or options.lines < 1:
        raise PluginError("--input needs a line, and --lines a number above 0.")
    with tempfile.TemporaryDirectory() as folder:
        rows, output = watched(options, text, Path(folder))
    right = output.is_right(options.lines, len(text))
    print(table(rows))
    verdict = "all" if right else "NOT all"
    print(f"{len(output.numbers):,} hypotheses, {verdict} in order and the same.")
    origin = origin_of(shlex.join(["long_run.py", *argv]), [f"lines of the text={len(text)}"])
    write_results(options.output, {**origin, "all in order and the same": right, "rows": rows})
    if not right:
        raise SystemExit(1)


def watched(
    options: argparse.Namespace, text: List[str], folder: Path
) -> Tuple[List[Dict[str, Any]], Output]:
    """Run the program; returns its memory after each number of lines, and its output."""
    given, written = folder / "input", folder / "output"
    lines = itertools.islice(itertools.cycle(text), options.lines)
    given.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    plugin = str(Path(specdec_plugin.__file__).parent)
    beside = Path(sys.executable).parent / "fairseq-interactive"
    command = [str(beside) if beside.exists() else beside.name, *options.options]
    command += ["--user-dir", plugin, "--input", str(given), "--no-progress-bar"]
    with written.open("w") as out:
        program = subprocess.Popen(command, stdout=out)
    output = Output(written)
    rows = list(memory(program, output, options.every or len(text), options.lines))
    if program.returncode:
        raise SystemExit("fairseq-interactive has failed; its message is above.")
    return rows, output


def memory(
    program: "subprocess.Popen[bytes]", output: Output, every: int, lines: int
) -> Iterator[Dict[str, Any]]:
    """Resident memory and its peak, in MB, after every so many lines."""
    since, due, done = time.perf_counter(), every, 0
    with Progress(total=lines, unit="line") as bar:
        while program.poll() is None:
            time.sleep(_PAUSE)
            known, before = memory_of(program.pid), done
            done = output.read()
            bar.update(done - before)
            if done >= due and known.resident:
                due = every * (done // every + 1)
                seconds = round(time.perf_counter() - since, 1)
                megabytes = {name: size >> 20 for name, size in known._asdict().items()}
                yield {"lines": done, "seconds": seconds, **megabytes}
    output.read()


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """The figures in Markdown: all of few, else some with the first and the last."""
    parts = min(len(rows), SHOWN) - 1
    shown = [rows[part * (len(rows) - 1) // max(1, parts)] for part in range(parts + 1)]
    lines = ["| lines | seconds | resident, MB | peak, MB | peak ÷ first |", "|---:" * 5 + "|"]
    for row in shown:
        ratio = row["peak"] / rows[0]["peak"]
        lines.append(
            f"| {row['lines']:,} | {row['seconds']:.0f} | {row['resident']:,} | {row['peak']:,} "
            f"| {ratio:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
