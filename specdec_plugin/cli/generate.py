"""``specdec-generate``: fairseq-generate with the plugin's task, and help for its options."""

import argparse
import sys
import textwrap
from dataclasses import Field, make_dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq_cli import generate

from ..fairseq_compat.interrupts import console_program
from ..fairseq_compat.options import flag_of
from ..fairseq_compat.user_dir import FOLDER, import_user_dir
from ..methods.options import option
from ..methods.registry import all_flags, methods, names, readers
from .options import methods_of, shown_default

DESCRIPTION = """\
Translate a binarised split. Every option of fairseq-generate is taken (see fairseq-generate
--help), and those below. The task is specdec_translation unless --task names another. Without
--decoding, it is fairseq's own search, with a hypothesis for every line.

fairseq-generate and fairseq-interactive take the same options after
--user-dir "$(python -m specdec_plugin)" --task specdec_translation."""

EXAMPLES = """\
examples:
  specdec-generate data-bin -s en -t es --path model.pt --batch-size 1 --cpu --decoding specdec
  specdec-generate data-bin -s en -t es --path model.pt --batch-size 1 --cpu --decoding specdec \\
      --drafter-path drafter.pt --draft-confidence 0.3
  specdec-generate data-bin -s en -t es --path model.pt --batch-size 32 --decoding greedy \\
      --certified-projection"""


def build_parser() -> argparse.ArgumentParser:
    """A parser of the decoding options, grouped by the methods that read them, for its help."""
    parser = argparse.ArgumentParser(
        prog="specdec-generate",
        usage="specdec-generate DATA --path MODEL.pt [--decoding METHOD] [OPTIONS]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--decoding", metavar="METHOD", help=f"one of {', '.join(names())}")
    flags: Dict[Tuple[str, ...], List[str]] = {}
    for flag, among in readers().items():
        flags.setdefault(among, []).append(flag)
    for name in names():
        own = flags.pop((name,), [])
        group = parser.add_argument_group(f"--decoding {name}", _summary(name, own))
        _add(group, own)
    shared = parser.add_argument_group("options of several methods")
    for _, found in sorted(flags.items(), key=lambda each: -len(each[0])):
        _add(shared, found, f" [{methods_of(found[0])}]")
    return parser


def _summary(name: str, own: Sequence[str]) -> str:
    """What a method does, and the options that it shares with others."""
    summary = "; ".join(each.summary for each in methods() if each.name == name and each.summary)
    shared = [
        flag_of(flag) for flag, among in readers().items() if name in among and flag not in own
    ]
    text = f"{summary}. It also reads {', '.join(shared)}." if shared else f"{summary}."
    return textwrap.fill(text, width=98, break_on_hyphens=False)


def _add(group: Any, flags: Sequence[str], note: str = "") -> None:
    """Add options with fairseq's own translation of dataclasses, and a note after their help."""
    known = all_flags()
    declared: List[Any] = [
        (flag, known[flag].type, option(known[flag].default, _help_of(known[flag]) + note))
        for flag in flags
    ]
    made: Any = make_dataclass("Options", declared, bases=(FairseqDataclass,))
    gen_parser_from_dataclass(group, made())


def _help_of(declared: "Field[Any]") -> str:
    """The help of an option, with its default where the text names none."""
    text, default = str(declared.metadata["help"]), shown_default(declared.default)
    return text if not default or "default" in text.lower() else f"{text} (default: {default})"


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or "-h" in argv or "--help" in argv:
        import_user_dir(argv)  # it may bring more methods
        build_parser().print_help()
        return
    # What the user gives comes later, so that it counts.
    sys.argv[1:] = ["--user-dir", FOLDER, "--task", "specdec_translation", *argv]
    generate.cli_main()


if __name__ == "__main__":
    main()
