"""SciTLDR's articles and summaries to pairs for training, and to a part that is scored."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

# The programs of the folder above share their modules with those of this one.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from textfiles import (
    check_parallel,
    clean,
    find_text,
    read_lines,
    split_sentences,
    write_lines,
    write_pairs,
)

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Read TRAIN.jsonl and DEV.jsonl of SciTLDR (Cachola et al., 2020), plain or .gz. A line is an article
{"source": [sentences], "target": [summaries]}; or {"summaries": [...]}, and the article is the same
line of TRAIN.src. In OUTPUT:

  train.src, train.tgt   every article with each of its summaries
  valid.src, valid.tgt   the same of the last articles of TRAIN, a twentieth
  test.src, test.tgt     the articles of DEV, with the first summary
  test.lead              their first sentences
  test.jsonl             all their summaries: {"summaries": [...]}"""

EXAMPLE = """\
example:
  python data_scripts/summarization/summary_pairs.py SciTLDR-A/train SciTLDR-A/dev --output pairs"""

#: One article of so many is for validation.
VALID = 20


class Article(NamedTuple):
    """An article and its summaries, a line each."""

    text: str
    lead: str
    summaries: List[str]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="summary_pairs.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("train", metavar="TRAIN", help="path without .jsonl")
    parser.add_argument("dev", metavar="DEV", help="path without .jsonl")
    parser.add_argument("--output", required=True, metavar="OUTPUT", help="folder to write")
    return parser


def read_records(path: str) -> Iterator[Any]:
    """The objects of a file of JSON lines."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise PluginError(f"Line {number} of {path} is no JSON object. Give SciTLDR's file.")
        yield record


def texts_of(record: Dict[str, Any], key: str, where: str) -> List[str]:
    """A list of texts in a record; none where it has no such key.

    Args:
        record: of :func:`read_records`.
        key: its name there.
        where: what line it is, for errors.
    """
    found = record.get(key) or []
    if not (isinstance(found, list) and all(isinstance(each, str) for each in found)):
        raise PluginError(f'{where}: "{key}" is no list of texts. Give SciTLDR\'s file.')
    return found


def read_articles(prefix: str) -> List[Article]:
    """All articles that have a text and a summary."""
    path = find_text(f"{prefix}.jsonl")
    records = list(read_records(path))
    with_text = bool(records) and "source" in records[0]
    texts: List[str] = []
    if not with_text:
        texts_path = find_text(f"{prefix}.src")
        texts = read_lines(texts_path)
        check_parallel(texts_path, path, len(texts), len(records))
    found = []
    for number, record in enumerate(records):
        where = f"Line {number + 1:,} of {path}"
        sentences = (
            texts_of(record, "source", where) if with_text else split_sentences(texts[number])
        )
        listed = texts_of(record, "target", where) or texts_of(record, "summaries", where)
        summaries = [clean(each) for each in listed]
        text = clean(" ".join(sentences))
        if text and any(summaries):
            found.append(Article(text, clean(sentences[0]), [each for each in summaries if each]))
    if not found:
        raise PluginError(f"{path} holds no article with a summary. Give SciTLDR's file.")
    return found


def pairs_of(articles: Sequence[Article]) -> List[Tuple[str, str]]:
    """Every article with each of its summaries."""
    return [(article.text, summary) for article in articles for summary in article.summaries]


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    articles, tested = read_articles(args.train), read_articles(args.dev)
    kept = len(articles) - max(1, len(articles) // VALID)
    path = os.path.join
    write_lines(path(args.output, "test.lead"), [article.lead for article in tested])
    records = [json.dumps({"summaries": article.summaries}) for article in tested]
    write_lines(path(args.output, "test.jsonl"), records)
    parts = {
        "test": [(article.text, article.summaries[0]) for article in tested],
        "valid": pairs_of(articles[kept:]),
        "train": pairs_of(articles[:kept]),
    }
    counts = {
        name: write_pairs(path(args.output, name), pairs) for name, pairs in parts.items() if pairs
    }
    print(", ".join(f"{name}: {count:,} pairs" for name, count in counts.items()) + ".")


if __name__ == "__main__":
    main()
