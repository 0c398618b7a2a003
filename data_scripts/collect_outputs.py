"""Scores of several outputs of fairseq-generate in one file, and how many lines differ."""

import argparse
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from collect_runs import labels_of
from example_results import add_origin, origin_of, write_results
from sacrebleu.metrics import BLEU
from textfiles import read_lines

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Collect what fairseq-generate made with several settings. An output is given as
  LABELS|NAME|REFERENCE|TOKENIZER
such as "direction=en-es;setting=certified|out/certified|raw/test.tgt|13a". NAME.hyp has a
hypothesis a line, and NAME.log, if there is one, what fairseq-generate printed. A file named after
that, |BASE, is compared line by line. The tokenizer is sacreBLEU's. The file of results has a row
for each: its labels, BLEU, how many hypotheses differ from those of BASE, and seconds."""

EXAMPLE = """\
example:
  python data_scripts/collect_outputs.py results/outputs.json --command "run.sh CORPUS OUTPUT" \\
      "setting=fairseq|out/fairseq|raw/test.es|13a" \\
      "setting=clusters|out/clusters|raw/test.es|13a|out/fairseq.hyp" """

_SECONDS = re.compile(r"Translated [\d,]+ sentences .* in ([\d.]+)s")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="collect_outputs.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="FILE", help="of results, to write")
    add_origin(parser)
    parser.add_argument("outputs", nargs="+", metavar="OUTPUT", help="as described above")
    return parser


def lines_of_both(path: str, other: str) -> Tuple[List[str], List[str]]:
    """The lines of two files.

    Raises:
        PluginError: one has more than the other.
    """
    lines, theirs = read_lines(path), read_lines(other)
    if len(lines) != len(theirs):
        raise PluginError(
            f"{path} has {len(lines):,} lines, and {other} {len(theirs):,}: they do not belong "
            "together. Decode again."
        )
    return lines, theirs


def row_of(text: str) -> Dict[str, Any]:
    """A row of the file, for an output as it is given.

    Raises:
        PluginError: it is given in another way, or files do not belong together.
    """
    parts = text.split("|")
    if len(parts) not in (4, 5):
        raise PluginError(f"'{text}' is not LABELS|NAME|REFERENCE|TOKENIZER. Write it so.")
    labels, name, reference, tokenizer, *base = parts
    if tokenizer not in BLEU.TOKENIZERS:
        raise PluginError(
            f"sacreBLEU has no tokenizer {tokenizer}. Give one of {', '.join(BLEU.TOKENIZERS)}."
        )
    hypotheses, references = lines_of_both(f"{name}.hyp", reference)
    metric = BLEU(tokenize=tokenizer)
    row: Dict[str, Any] = {**labels_of(labels)}
    row["bleu"] = metric.corpus_score(hypotheses, [references]).score
    row["bleu signature"] = str(metric.get_signature())
    row["sentences"] = len(hypotheses)
    if base:
        differing = sum(own != other for own, other in zip(*lines_of_both(f"{name}.hyp", base[0])))
        row["differing"] = f"{differing:,} of {len(hypotheses):,}"
    log = Path(f"{name}.log")
    found = _SECONDS.search(log.read_text("utf-8")) if log.exists() else None
    if found is not None:
        row["seconds"] = float(found[1])
    return row


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    args = get_parser().parse_args(argv)
    rows = [row_of(each) for each in args.outputs]
    found = {**origin_of(args.command, args.setting), "rows": rows}
    write_results(args.output, found)
    print(f"{args.output}: {len(rows)} rows")


if __name__ == "__main__":
    main()
