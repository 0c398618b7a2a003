"""Which kernels of a GPU a sentence takes, by the graphs that they belong to."""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from torch.profiler import ProfilerActivity, profile

from specdec_plugin.api import load
from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Translate a line several times with a model's folder on a GPU, and profile the last time. The
kernels are listed in the order in which they ran, graph by graph. Graphs with the same kernels are
listed once. A profiler slows kernels down: compare profiles, and take times from specdec-bench."""

EXAMPLE = """\
example:
  python data_scripts/profile_gpu.py checkpoints/pydocs-en-es --line 'The file is closed.' \\
      --decoding specdec --draft-rows 0"""

#: Categories of a trace that a GPU does.
_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
#: Characters of a kernel's name that are printed.
_NAME = 60


class Work(NamedTuple):
    """What a GPU did: a kernel, or a copy.

    Attributes:
        name: its name.
        begin: in microseconds.
        duration: likewise.
        launch: the number of the launch; all kernels of a graph have the same.
    """

    name: str
    begin: float
    duration: float
    launch: int


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="profile_gpu.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", help="of a model, with specdec.json")
    add("--line", required=True, help="what is translated")
    add("--decoding", default="greedy", help="method (default: %(default)s)")
    add("--draft-rows", type=int, help="0 drafts always")
    add("--device", default="cuda", help="default: %(default)s")
    add("--warm-up", type=int, default=5, help="times before the profile (default: %(default)s)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    flags: Dict[str, Any] = {} if args.draft_rows is None else {"draft_rows": args.draft_rows}
    translator = load(args.folder, decoding=args.decoding, device=args.device, **flags)
    for _ in range(args.warm_up):
        translator.translate([args.line])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        translator.translate([args.line])
    print("\n".join(told(work_of(trace_of(found)))))


def trace_of(found: Any) -> List[Dict[str, Any]]:
    """The events of a profile, as for Chrome's viewer of traces."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        found.export_chrome_trace(str(path))
        return list(json.loads(path.read_text("utf-8"))["traceEvents"])


def work_of(events: Iterable[Dict[str, Any]]) -> List[Work]:
    """What a GPU did, in the order of time.

    Args:
        events: of a trace.

    Raises:
        PluginError: it did nothing.
    """
    work = [
        Work(each["name"], each["ts"], each["dur"], each["args"].get("correlation", -1))
        for each in events
        if each.get("cat") in _KINDS
    ]
    if not work:
        raise PluginError(
            "Nothing ran on a GPU. Give --device cuda on a machine with a GPU of CUDA, and a "
            "PyTorch that finds it."
        )
    return sorted(work, key=lambda each: each.begin)


def told(work: Sequence[Work]) -> List[str]:
    """Lines about what a GPU did: each launch, and what is in it.

    Args:
        work: in the order of time.
    """
    launches: List[List[Work]] = []
    for each in work:
        if not launches or launches[-1][0].launch != each.launch:
            launches.append([])
        launches[-1].append(each)
    lines: List[str] = []
    known: Dict[Sequence[str], int] = {}
    for number, launch in enumerate(launches, 1):
        names = tuple(each.name for each in launch)
        begin, last = launch[0].begin, launch[-1]
        head = (
            f"== launch {number}, at {begin - work[0].begin:.1f} us: {len(launch)} "
            f"{'kernel' if len(launch) == 1 else 'kernels'}, "
            f"{last.begin + last.duration - begin:.1f} us"
        )
        if names in known:
            lines.append(f"{head}, like launch {known[names]}")
            continue
        known[names] = number
        lines.append(head)
        lines += [
            f"{each.begin - begin:8.2f} {each.duration:7.2f} {each.name[:_NAME]}" for each in launch
        ]
    return lines


if __name__ == "__main__":
    main()
