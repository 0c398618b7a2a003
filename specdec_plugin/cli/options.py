"""``python -m specdec_plugin.cli.options``: the decoding options as a table in Markdown.

The table follows from the registered methods, those of ``--user-dir`` among them.
``docs/options.md`` is what it prints.
"""

import argparse
import math
from typing import Any, Optional, Sequence

from ..fairseq_compat.options import flag_of
from ..fairseq_compat.user_dir import import_user_dir
from ..methods.block_nat.method import SHORTER
from ..methods.input_guided.method import BLOCK_ON_CPU
from ..methods.jacobi.method import ADAPTIVE_BLOCKS, BLOCK
from ..methods.options import choices_of
from ..methods.registry import all_flags, names, readers
from ..methods.self_draft import captured_drafter
from ..methods.self_draft.drafter import (
    BEAM_BLOCK_SIZE,
    BLOCK_SIZE,
    INT4_BLOCK_SIZE,
    RELAXED_BLOCK_SIZE,
    SHORT,
)

NO_LIMIT = "no limit"
INTRODUCTION = """\
`--decoding METHOD` names the method. Without it, fairseq's own beam search decodes.
[Choosing a method](choosing.md) describes each one. The options below belong to methods, and are
refused with others."""


def options_table() -> str:
    """A line for each decoding option: the methods that read it, its meaning, its default."""
    lines = ["| option | methods | meaning | default |", "|---|---|---|---|"]
    for name, declared in all_flags().items():
        default = shown_default(declared.default)
        choices = ", ".join(f"`{each}`" for each in choices_of(declared))
        option = f"`{flag_of(name)}`" + (f": {choices}" if choices else "")
        text = declared.metadata["help"].replace("|", "\\|")
        plain = default and default != NO_LIMIT
        shown = f"`{default}`" if plain else default
        lines.append(f"| {option} | {methods_of(name)} | {text} | {shown} |")
    return "\n".join(lines)


def block_sizes() -> str:
    """A line for each default of ``--block-size``: on a CPU, and elsewhere."""
    own, gpu = "as the drafter was trained", captured_drafter
    rows = [
        ("specdec, auto, with `--drafter-path`", f"{own}, or {SHORTER[0]}, as measured", own),
        ("specdec, auto", f"{SHORT} or {INT4_BLOCK_SIZE}, as measured ({SHORT} or {BLOCK_SIZE} "
         "unless in `int4`)", f"{gpu.SHORT} or {gpu.BLOCK_SIZE}, as measured"),
        ("specdec with `--top-beta` above 1", RELAXED_BLOCK_SIZE, gpu.BLOCK_SIZE),
        ("specdec, auto, in a beam search", f"{BEAM_BLOCK_SIZE} steps",
         "specdec is refused, auto drafts nothing"),
        ("nat", own, own),
        ("blockwise", *["as the heads were trained"] * 2),
        ("input-guided", BLOCK_ON_CPU, "all of the source"),
        ("gs-jacobi, hybrid-jacobi", *ADAPTIVE_BLOCKS),
        ("the same with `--jacobi-window` `block` or `sliding`", BLOCK, BLOCK),
    ]  # fmt: skip
    lines = ["| method | on a CPU | elsewhere |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def methods_of(flag: str) -> str:
    """The methods that read a flag, or those that do not, whichever is shorter."""
    among = readers()[flag]
    others = [name for name in names() if name not in among]
    if not others:
        return "all"
    return f"all but {', '.join(others)}" if len(others) < len(among) else ", ".join(among)


def shown_default(default: Any) -> str:
    """A default in words; nothing where the meaning contains it."""
    if default is None or default is False:
        return ""
    return NO_LIMIT if default == math.inf else str(default)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_plugin.cli.options",
        description="Print the decoding options as a table in Markdown.",
        epilog="example: python -m specdec_plugin.cli.options --user-dir my_methods",
    )
    parser.add_argument("--user-dir", help="folder with methods of your own")
    parser.parse_args(argv)
    import_user_dir(argv)
    print(f"# Decoding options\n\n{INTRODUCTION}\n\n{options_table()}")
    print(f"\n## Defaults of `--block-size`\n\n{block_sizes()}")


if __name__ == "__main__":
    main()
