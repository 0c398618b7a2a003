"""What follows the decoding of a training set's shards: merge them, filter the pairs, binarise."""

import argparse
import os
from typing import List, Optional

import filter_pairs
import merge_shards
from binarise import binarise
from textfiles import check_parallel, find_text, read_piece_lines

from specdec_plugin.fairseq_compat.dictionaries import read_dictionary
from specdec_plugin.fairseq_compat.interrupts import end_in_a_line
from specdec_plugin.outputs import alone

DESCRIPTION = """\
Merge the shards that distill_shard.py decoded, filter the pairs, and binarise them
with the teacher's dictionaries. It is the end of distill.sh, in one process, because
importing fairseq takes seconds. With --decoded, another program was the decoder."""

EXAMPLE = """\
example:
  python data_scripts/finish_distillation.py data/bin --train data/pieces/train \\
      -s en -t es --output distilled"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="finish_distillation.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="folder with the teacher's dict.LANG.txt files")
    add("--train", required=True, metavar="PIECES", help="prefix of the training pieces (or .gz)")
    add("--valid", metavar="PIECES", help="prefix of validation pieces, binarised as they are")
    add("--test", metavar="PIECES", help="prefix of test pieces, binarised as they are")
    add("-s", "--source-lang", required=True, metavar="LANG", help="of the teacher")
    add("-t", "--target-lang", required=True, metavar="LANG", help="of the teacher")
    add("--output", required=True, metavar="DIR", help="shards/ is in it; the rest is written")
    add("--decoded", metavar="FILE", help="a line of pieces for each pair (or .gz), for no shards/")
    return parser


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    check_texts(args)
    for path in dictionaries_of(args):
        read_dictionary(path)
    source = find_text(f"{args.train}.{args.source_lang}")
    with alone(args.output, "merged"):
        _write(args, source)


def dictionaries_of(args: argparse.Namespace) -> List[str]:
    """The teacher's, of the source and of the target."""
    languages = args.source_lang, args.target_lang
    return [os.path.join(args.data, f"dict.{language}.txt") for language in languages]


def _write(args: argparse.Namespace, source: str) -> None:
    """Write all of the output."""
    distilled = args.decoded or merge(args, source)
    print("== filtering", flush=True)
    filtered = os.path.join(args.output, "filtered", "train")
    outputs = ["--output-source", f"{filtered}.{args.source_lang}"]
    outputs += ["--output-target", f"{filtered}.{args.target_lang}"]
    filter_pairs.main([source, distilled, *outputs])
    print("== binarising", flush=True)
    write_data(args, filtered)


def check_texts(args: argparse.Namespace) -> None:
    """Refuse validation and test text that is missing, or whose sides do not belong together."""
    for prefix in filter(None, (args.valid, args.test)):
        paths = [f"{prefix}.{language}" for language in (args.source_lang, args.target_lang)]
        check_parallel(*paths, *(len(read_piece_lines(path)) for path in paths))


def merge(args: argparse.Namespace, source: str) -> str:
    """The file of all shards' lines, in the order of ``source``."""
    print("== merging", flush=True)
    merged = os.path.join(args.output, "distilled", f"train.{args.target_lang}")
    shards = os.path.join(args.output, "shards")
    merge_shards.main([shards, "--source", source, "--output", merged])
    return merged


def write_data(args: argparse.Namespace, train: str) -> None:
    """Write ``bin/``, all of it or nothing.

    Args:
        args: of the command line.
        train: prefix of the filtered pieces.
    """
    command = ["-s", args.source_lang, "-t", args.target_lang]
    source, target = dictionaries_of(args)
    command += ["--srcdict", source, "--tgtdict", target]
    for name, prefix in (("train", train), ("valid", args.valid), ("test", args.test)):
        command += [f"--{name}pref", prefix] if prefix else []
    binarise(command, os.path.join(args.output, "bin"))


if __name__ == "__main__":
    end_in_a_line()
    main()
