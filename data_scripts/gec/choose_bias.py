"""How much a model should change: GLEU by ``--copy-bias``, and clean sentences that it changes."""

import argparse
import os
from typing import Any, List, NamedTuple, Optional, Sequence

from count_edits import LINES
from linestreams import read_lines
from textfiles import check_parallel

from specdec_plugin.api import Session, load_session
from specdec_plugin.lab.gec.bootstrap import Difference, estimate
from specdec_plugin.lab.gec.gleu import Gleu
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Correct sentences of learners with several values of --copy-bias, and print for each the GLEU,
how much that is above the source (with the ends of the 95 % interval), and the share of clean
sentences that are changed. All text is tokenised. Choose on --lines even, and measure on odd."""

EXAMPLE = """\
example:
  python data_scripts/gec/choose_bias.py checkpoints/gec-en --source dev.src \\
      --references dev.ref0 dev.ref1 dev.ref2 dev.ref3 --clean clean.en --lines even"""

#: Sentences that are decoded together.
BATCH = 16


class Learners(NamedTuple):
    """Sentences of learners, and their corrections."""

    sources: List[str]
    #: A list for each reference.
    references: List[List[str]]

    def gleu(self, hypotheses: Sequence[str]) -> Gleu:
        """The statistics of these corrections."""
        references = [_tokens(each) for each in self.references]
        return Gleu.of(_tokens(self.sources), _tokens(hypotheses), references)


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="choose_bias.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", metavar="FOLDER", help="with model.pt, spm.model and both dictionaries"
    )
    parser.add_argument("--source", required=True, metavar="FILE", help="sentences of learners")
    parser.add_argument(
        "--references", required=True, nargs="+", metavar="FILE", help="their corrections"
    )
    parser.add_argument("--clean", metavar="FILE", help="sentences without errors")
    parser.add_argument(
        "--biases",
        nargs="+",
        type=float,
        default=[0.0, 0.5, 1.0, 1.5, 2.0],
        metavar="B",
        help="values of --copy-bias (default 0 0.5 1 1.5 2)",
    )
    parser.add_argument(
        "--lines",
        choices=LINES,
        default="all",
        help="of the learners, counted from 0 (default all)",
    )
    parser.add_argument("--samples", type=int, default=1000, help="for intervals (default 1000)")
    return parser


def _tokens(lines: Sequence[str]) -> List[List[str]]:
    return [line.split() for line in lines]


def tokenised(path: str) -> List[str]:
    """The lines of a file, with single spaces."""
    return [" ".join(line.split()) for line in read_lines(path)]


def read_learners(source: str, references: Sequence[str], lines: str) -> Learners:
    """The chosen lines of these files; PluginError where their numbers of lines differ."""
    files = [tokenised(path) for path in (source, *references)]
    for path, found in zip(references, files[1:]):
        check_parallel(path, source, len(found), len(files[0]))
    sources, *corrections = [found[LINES[lines]] for found in files]
    return Learners(sources, corrections)


def corrected(session: Session, bias: float, lines: Sequence[str]) -> List[str]:
    """The sentences as the model corrects them."""
    flags: Any = {"copy_bias": bias} if bias else {}
    translator = session.translator("input-guided", fallback="ngram", **flags)
    return [found.text for found in translator.translate(lines, BATCH)]


def row(session: Session, bias: float, learners: Learners, clean: List[str], samples: int) -> str:
    """A row of the table."""
    ours = learners.gleu(corrected(session, bias, learners.sources))
    source, sentences = learners.gleu(learners.sources), len(learners.sources)
    score = estimate(ours, sentences, samples=0)["GLEU"].score
    gain = estimate(Difference(ours, source), sentences, samples)["GLEU gain"]
    found = f"| {bias:g} | {score:.2f} | {gain.score:+.2f} ({gain.low:+.2f} to {gain.high:+.2f}) |"
    if clean:
        changed = sum(map(str.__ne__, corrected(session, bias, clean), clean))
        found += f" {changed} of {len(clean)} |"
    return found


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    learners = read_learners(args.source, args.references, args.lines)
    clean = tokenised(args.clean) if args.clean else []
    session = load_session(
        os.path.join(args.model, "model.pt"),
        source_lang="err",
        target_lang="cor",
        subwords=os.path.join(args.model, "spm.model"),
    )
    print("| bias | GLEU | above the source |" + (" clean sentences changed |" if clean else ""))
    print("|---|---|---|" + ("---|" if clean else ""))
    for bias in Progress(args.biases, unit="bias"):
        print(row(session, bias, learners, clean, args.samples), flush=True)


if __name__ == "__main__":
    main()
