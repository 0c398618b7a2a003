"""The command line of ``specdec-serve``: what it takes, and what it refuses."""

import argparse
import os
from typing import List, Optional

import torch

from ..api import FAIRSEQ
from ..errors import PluginError
from ..fairseq_compat.mapping import MAPPED_FROM
from ..fairseq_compat.options import flag_of
from ..folder import Folder
from ..methods.registry import names
from .questions import Limits

EXAMPLE = """example:
  specdec-serve checkpoints/pydocs-en-es --port 5000
  curl http://127.0.0.1:5000/translate -H 'Content-Type: application/json' \\
      -d '{"q": "The file is closed.", "source": "en", "target": "es"}'
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-serve",
        description="Serve a folder of specdec-pack over HTTP: LibreTranslate's JSON interface, "
        "metrics for Prometheus, and a page to try the model on. SIGTERM or Ctrl-C stops it when "
        "all accepted requests are answered.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="has a specdec.json")
    parser.add_argument(
        "--host", default="127.0.0.1", help="(default: %(default)s, for this machine only; 0.0.0.0 "
        "for all networks)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=5000, help="0: any (default: %(default)s)")
    parser.add_argument("--device", help="for example cuda (default: the CPU)")
    parser.add_argument(
        "--methods",
        type=_names,
        help="that clients may ask for, such as auto,beam; the first is "
        "taken where they name none, and beam finds their alternatives (default: all, the folder's "
        "own first)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=32, help="the most sentences that are decoded together "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--decoders", type=int, help="batches that are decoded at once, each with a share of the "
        "processors and with the model in memory (default: 2, or 1 for large models, for a single "
        "processor and beside a GPU)",
    )  # fmt: skip
    _add_limits(parser.add_argument_group("limits, beyond which requests are refused"))
    return parser


def _names(text: str) -> List[str]:
    return text.split(",")


_names.__name__ = "list of methods"


def _add_limits(group: argparse._ArgumentGroup) -> None:
    default = Limits()
    flags = (
        ("--max-characters", default.characters, "of a request's texts: 413"),
        ("--max-body", default.body, "bytes of a request: 413"),
        ("--max-waiting", default.sentences, "sentences of all clients that wait: 503"),
        ("--max-requests", default.requests, "of one address that are not answered yet: 429; 0 "
         "for any number, as behind a proxy"),
    )  # fmt: skip
    for flag, value, text in flags:
        group.add_argument(flag, type=int, default=value, help=f"{text} (default: %(default)s)")


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits that were given.

    Raises:
        PluginError: a number is too small.
    """
    for name in ("batch_size", "max_characters", "max_body", "max_waiting"):
        if getattr(options, name) < 1:
            flag = flag_of(name)
            raise PluginError(f"{flag} {getattr(options, name)}: give at least 1.")
    if options.decoders is not None and options.decoders < 1:
        raise PluginError(f"--decoders {options.decoders}: give at least 1.")
    if options.max_requests < 0:
        raise PluginError(f"--max-requests {options.max_requests}: give 0 or more.")
    return Limits(
        options.max_characters, options.max_body, options.max_waiting, options.max_requests
    )


def default_decoders(folder: Folder, device: Optional[str]) -> int:
    """How many batches are decoded at once, where nobody tells.

    With two, one has the processors while the other's sentences are read, split and joined, and
    while its last sentences end. Each has packed weights of its own.
    """
    size = sum(os.path.getsize(folder.at(name)) for name in folder.model)
    alone = device not in (None, "cpu") or torch.get_num_threads() == 1 or size >= MAPPED_FROM
    return 1 if alone else 2


def check_folder(folder: Folder, options: argparse.Namespace) -> None:
    """Refuse a folder without raw text, and methods that do not exist."""
    folder.check_raw_text()
    own = folder.decoding or FAIRSEQ
    if own not in (*names(), FAIRSEQ):
        raise PluginError(
            f"{folder.path} is to be decoded by {own}, which is unknown. Give it another "
            f"--decoding with specdec-pack: {', '.join(names())} or fairseq."
        )
    unknown = {*(options.methods or [])} - {*names(), FAIRSEQ}
    if unknown:
        raise PluginError(
            f"--methods {min(unknown)} is unknown. Choose from {', '.join(names())} and fairseq."
        )
