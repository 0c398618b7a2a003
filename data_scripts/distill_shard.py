"""Sequence-level knowledge distillation, step 1: a teacher decodes one shard of the source."""

import argparse
import os
import sys
from typing import Iterator, List, Optional, Sequence, Set

import fairseq
import torch
from fairseq.data import Dictionary
from shardfile import Manifest, ShardWriter, check_count, open_shard, shard_bounds, shard_path
from teacher import Teacher, fairseq_config
from textfiles import line_ranges, read_piece_lines, sha256

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.collector import freeze_imports
from specdec_plugin.progress import Progress

#: Lines of a shard of which most pieces have to be in the dictionary, if they are so many.
CHECKED_LINES, FEW_PIECES = 1000, 20

DESCRIPTION = """\
Decode shards of a file of source pieces with a teacher (or an ensemble).

The source is cut into --shards slices of lines.  Shards are independent: run
them in any order, on any machines, one or several in a process.  A shard that was killed resumes
when the same command is run again; one that is complete is left alone.
Then join them with merge_shards.py.

Options that are not listed here are fairseq-generate's and are handed to it:
DATA (the folder with the dictionaries), --path (a.pt, or a.pt:b.pt for an
ensemble), --task, -s, -t, --beam (default 5), --max-len-b (default 300),
--max-tokens (default 16384, for fairseq's own search 4096), --lenpen, --fp16, --cpu, ...

So are those of `specdec-generate --help`: --decoding METHOD, and with
--sampling a sample of each line, the same in any shards. The default is
--decoding beam, which finds what fairseq's search finds; --task translation
is fairseq's search itself."""

EXAMPLE = """\
example (shard 0 of 4; Spanish from English):
  python data_scripts/distill_shard.py bin/ -s en -t es --path teacher.pt \\
      --source pieces/train.en --output-dir shards/ --shard 0 --shards 4"""


def get_parser() -> argparse.ArgumentParser:
    """The options that are not fairseq's."""
    parser = argparse.ArgumentParser(
        prog="distill_shard.py",
        usage="%(prog)s DATA --path TEACHER --source FILE --output-dir DIR [options]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="source lines as subword pieces (or .gz)"
    )
    parser.add_argument(
        "--output-dir", required=True, metavar="DIR", help="where the shards' files are"
    )
    parser.add_argument(
        "--shard",
        "--shard-id",
        type=int,
        nargs="+",
        default=[0],
        metavar="I",
        help="from 0, one after another (default 0)",
    )
    parser.add_argument(
        "--shards", "--num-shards", type=int, default=1, metavar="N", help="default 1"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait while another process decodes the shard, then resume its work",
    )
    return parser


def truncated(
    tokens: List[torch.Tensor], limit: int, first: int, path: str
) -> Iterator[torch.Tensor]:
    """Each source, cut to ``limit`` tokens with its end of sentence; warns of each that is cut."""
    for number, ids in enumerate(tokens, start=first + 1):
        if len(ids) > limit:
            Progress.write(
                f"warning: line {number} of {path} has {len(ids) - 1} pieces and was truncated "
                f"to {limit - 1}, the most that the teacher reads.",
                file=sys.stderr,
            )
            ids = torch.cat([ids[: limit - 1], ids[-1:]])
        yield ids


def check_known(lines: Sequence[str], dictionary: Dictionary, path: str) -> None:
    """Refuse raw text, or pieces of another subword model, before it is decoded."""
    pieces = [piece for line in lines for piece in line.split()]
    unknown = sum(piece not in dictionary for piece in pieces)
    if len(pieces) >= FEW_PIECES and 2 * unknown > len(pieces):
        raise PluginError(
            f"{path} is no text in the teacher's pieces: {unknown:,} of {len(pieces):,} are not in "
            "its dictionary. Split it with the teacher's subword model (prepare_subwords.py)."
        )


def batches(
    lengths: Sequence[int], max_tokens: int, max_sentences: Optional[int], alike: bool
) -> List[List[int]]:
    """Indices of all sentences in batches of about the same length, the longest first.

    A sentence longer than ``max_tokens`` is a batch of its own: unlike fairseq's
    iterators, this one never loses or refuses a sentence.

    Args:
        lengths: tokens of each sentence.
        max_tokens: the most tokens of a batch, padding included.
        max_sentences: the most sentences of a batch.
        alike: batches of exactly one length only.
    """
    result: List[List[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        batch = result[-1] if result else []
        fits = (
            batch
            and (len(batch) + 1) * lengths[batch[0]] <= max_tokens
            and (max_sentences is None or len(batch) < max_sentences)
            and (not alike or lengths[index] == lengths[batch[0]])
        )
        if fits:
            batch.append(index)
        else:
            result.append([index])
    return result


def decode_shard(
    teacher: Teacher, lines: List[str], manifest: Manifest, path: str, wait: bool
) -> None:
    """Decode what is missing in the shard's file ``path``.

    With ``wait``, another process that is decoding it ends first.
    """
    lines = lines[manifest.first : manifest.end]
    check_known(lines[:CHECKED_LINES], teacher.task.source_dictionary, manifest.about["source"])
    with open_shard(path, manifest, wait) as writer:
        done = {number - manifest.first for number, _ in writer.done}
        empty = [index for index, line in enumerate(lines) if not line.split()]
        if not done.issuperset(empty):
            writer.append([manifest.first + index for index in empty], [""] * len(empty))
            done.update(empty)
        if len(done) < len(lines):
            _decode_rest(teacher, lines, manifest, done, writer)
    print(f"{path} is complete: {len(lines):,} lines.")


def _decode_rest(
    teacher: Teacher, lines: List[str], manifest: Manifest, done: Set[int], writer: ShardWriter
) -> None:
    """Decode the lines of a shard but for those that are done.

    Batches are made of the whole shard, whatever an earlier run has done, so a
    resumed shard computes exactly what an uninterrupted one does.
    """
    first, source, config = manifest.first, manifest.about["source"], teacher.config
    teacher.load()
    tokens = list(truncated(teacher.encode(lines), teacher.source_limit, first, source))
    plan = batches(
        [len(ids) for ids in tokens],
        config.dataset.max_tokens,
        config.dataset.batch_size,
        # fairseq's limits that depend on the source take the longest of the
        # batch: with one length in a batch, each line has its own limit.
        alike=config.generation.max_len_a != 0 or config.generation.match_source_len,
    )
    left = ([index for index in batch if index not in done] for batch in plan)
    hidden = config.common.no_progress_bar
    with Progress(total=len(lines), initial=len(done), unit="line", disable=hidden) as bar:
        for batch in filter(None, left):
            numbers = [first + index for index in batch]
            texts = teacher.translate([tokens[index] for index in batch], numbers)
            writer.append(numbers, texts)
            bar.add(len(batch), tokens=sum(len(text.split()) + 1 for text in texts))


def make_manifest(
    teacher: Teacher, source: str, lines: List[str], shard: int, shards: int
) -> Manifest:
    """What this shard is, for its file."""
    first, end = shard_bounds(len(lines), shard, shards)
    settings = {
        "source": {"sha256": sha256("\n".join(lines).encode("utf-8")), "lines": len(lines)},
        **teacher.settings(),
    }
    about = {
        "source": os.path.basename(source),
        "teachers": [os.path.basename(path) for path in teacher.paths],
        "shard": shard,
        "shards": shards,
        "max_tokens": teacher.config.dataset.max_tokens,
        "batch_size": teacher.config.dataset.batch_size,
        "device": "cuda" if teacher.use_cuda else "cpu",
        "fairseq": str(fairseq.__version__),
        "torch": str(torch.__version__),
    }
    return Manifest(settings, first, end, about)


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args, rest = get_parser().parse_known_args(argv)
    for shard in args.shard:
        if not 0 <= shard < args.shards:
            raise PluginError(
                f"--shard {shard} --shards {args.shards} names no shard. Shards count from 0 to "
                "one less than --shards."
            )
    check_count(args.output_dir, args.shards)
    config = fairseq_config(rest)
    freeze_imports()
    lines = read_piece_lines(args.source)
    if not lines:
        raise PluginError(f"{args.source} holds no line. Give the pieces of a training text.")
    teacher = Teacher(config)
    for shard in args.shard:
        manifest = make_manifest(teacher, args.source, lines, shard, args.shards)
        path = shard_path(args.output_dir, shard, args.shards)
        told = line_ranges(range(manifest.first, manifest.end)) or "none"
        print(f"Shard {shard} of {args.shards}: lines {told} of {args.source}")
        decode_shard(teacher, lines, manifest, path, args.wait)


if __name__ == "__main__":
    main()
