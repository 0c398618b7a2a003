"""Sequence-level knowledge distillation, step 2: prove that every line is there, and join them."""

import argparse
from typing import Dict, List, Optional, Set

from shardfile import ShardContent, differences, paths_by_count, read_shard
from textfiles import line_ranges, read_piece_lines, sha256, write_lines

from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Join the shards of distill_shard.py into one file, line by line as the source.

Nothing is written unless every line of the source is there exactly once, and
all shards were decoded from this source with the same teachers, dictionaries
and options."""

EXAMPLE = """\
example:
  python data_scripts/merge_shards.py shards/ --source pieces/train.en \\
      --output distilled/train.es"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="merge_shards.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIR", help="the --output-dir of distill_shard.py")
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="the source that was decoded"
    )
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="where the hypotheses are written"
    )
    return parser


def read_shards(folder: str) -> List[ShardContent]:
    """All shards of a folder, by line range."""
    by_count = paths_by_count(folder)
    if not by_count:
        raise PluginError(
            f"No shard was found in {folder}. Name the --output-dir of distill_shard.py."
        )
    if len(by_count) > 1:
        counts = " and ".join(str(count) for count in sorted(by_count))
        names = " or ".join(f"shard-*-of-{count:04d}.txt" for count in sorted(by_count))
        raise PluginError(
            f"{folder} holds files of runs with {counts} shards. Keep one run: remove {names}."
        )
    (paths,) = by_count.values()
    shards = [read_shard(path) for path in Progress(paths, unit="shard")]
    return sorted(shards, key=lambda shard: (shard.manifest.first, shard.manifest.end))


def check_settings(shards: List[ShardContent], source: str, lines: List[str]) -> None:
    """Refuse shards of another source, and shards that differ from the first."""
    expected = sha256("\n".join(lines).encode("utf-8"))
    for shard in shards:
        found = shard.manifest.settings["source"]
        if found["sha256"] != expected:
            raise PluginError(
                f"{shard.path} was decoded from another source ({found['lines']:,} lines) than "
                f"{source} ({len(lines):,} lines). Give that source, or decode the shard again."
            )
        different = differences(shard.manifest.settings, shards[0].manifest.settings)
        if different:
            raise PluginError(
                f"{shard.path} and {shards[0].path} were decoded with different settings: "
                f"{different}. Decode all shards with the same."
            )


def joined(shards: List[ShardContent], total: int) -> List[str]:
    """The hypotheses of lines 0 … total - 1, each proved to be there once."""
    texts: Dict[int, str] = {}
    for shard in shards:
        own: Dict[int, str] = {}
        twice = []
        for number, text in shard.hypotheses:
            if number in own or number in texts:
                twice.append(number)
            own[number] = text
        if twice:
            cure = "Remove the shards that do not belong to this run."
            if not any(number in texts for number in twice):
                cure = "Remove it and decode it again."
            raise PluginError(
                f"Lines {line_ranges(twice)} of {shard.path} are there more than once. {cure}"
            )
        check_range(shard, set(own))
        texts.update(own)
    missing = set(range(total)) - set(texts)
    if missing:
        raise PluginError(
            f"Lines {line_ranges(missing)} of the source are in no shard. "
            "Run distill_shard.py for the shards that are not there."
        )
    return [texts[number] for number in range(total)]


def check_range(shard: ShardContent, found: Set[int]) -> None:
    """Refuse a shard with other lines than those of its range."""
    expected = set(range(shard.manifest.first, shard.manifest.end))
    foreign = found - expected
    if foreign:
        raise PluginError(
            f"{shard.path} holds lines {line_ranges(foreign)}, outside its range. "
            "Remove it and decode it again."
        )
    missing = expected - found
    if missing:
        state = "is damaged or unfinished" if shard.torn else "is unfinished"
        raise PluginError(
            f"{shard.path} {state}: lines {line_ranges(missing)} are missing. "
            "Run distill_shard.py for it again; it resumes."
        )


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    lines = read_piece_lines(args.source)
    shards = read_shards(args.folder)
    check_settings(shards, args.source, lines)
    count = write_lines(args.output, joined(shards, len(lines)))
    print(f"{args.output}: {count:,} lines of {len(shards)} shards, each line once.")


if __name__ == "__main__":
    main()
