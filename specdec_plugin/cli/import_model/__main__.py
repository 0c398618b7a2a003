"""``specdec-import``: a checkpoint of Hugging Face's transformers as one of fairseq."""

import argparse
import contextlib
import os
import shutil
from typing import Any, Dict, Iterator, Optional, Sequence

from ...errors import PluginError
from ...fairseq_compat.checkpoints import save_untrained
from ...fairseq_compat.interrupts import console_program
from ...fairseq_compat.odd_values import ODD_VALUES, reason_of
from ...folder import NAME, Folder
from ...outputs import check_output, told_if_unwritable, write_text
from .languages import FILE, with_languages
from .symbols import SUBWORDS, Symbols, has_target_vocabulary, read_json, read_symbols
from .usage import MODEL, Imported, folder_of, usage
from .weights import convert, read_kind, read_tensors, start_id, table_size

EXAMPLE = """example:
  specdec-import --from transformers opus-mt-en-es --output imported -s en -t es
  specdec-generate data-bin -s en -t es --path imported/model.pt --beam 1 --decoding auto
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-import",
        description="Write a Marian, M2M-100, NLLB, mBART-50 or BART model of Hugging Face as a "
        "checkpoint of fairseq with its dictionaries. Nothing is downloaded.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="has config.json, the weights, and the tokenizer's files")
    parser.add_argument(
        "--from", dest="library", required=True, choices=["transformers"], help="whose format it is"
    )
    parser.add_argument("--output", required=True, help="a new or empty folder")
    parser.add_argument("--source-lang", "-s", default="source", help="default: %(default)s")
    parser.add_argument("--target-lang", "-t", default="target", help="default: %(default)s")
    return parser


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    check_output(options.output, folder=True)
    if os.path.exists(options.output) and os.listdir(options.output):
        raise PluginError(f"--output {options.output} is not an empty folder. Name a new one.")
    if options.source_lang == options.target_lang:
        raise PluginError(f"-s and -t are both {options.source_lang}: give each its own name.")
    with _explained(options.folder):
        imported = _converted(options)
    with _undone_after_errors(options.output, imported):
        folder = write(options.folder, options.output, imported)
    symbols = len(imported.sides[options.target_lang].ids)
    weights = len(imported.checkpoint.state)
    print(f"{options.output}/{MODEL}: {weights} weights, {symbols} symbols")
    if folder is not None:
        print(f"It takes raw text: specdec-serve {options.output}, or load it in Python.")
    print(usage(imported, options.output))


def _converted(options: argparse.Namespace) -> Imported:
    config, _ = read_kind(options.folder)
    tensors = read_tensors(options.folder)
    size = table_size(config, "vocab_size", tensors)
    source, languages = with_languages(read_symbols(options.folder, size), config["model_type"])
    target = source
    if has_target_vocabulary(options.folder):
        if config.get("decoder_vocab_size"):
            size = table_size(config, "decoder_vocab_size", tensors)
        target = read_symbols(options.folder, size, target=True)
    start = start_id(options.folder, config, target)
    checkpoint = convert(config, tensors, source, target, start)
    sides = {options.source_lang: source, options.target_lang: target}
    forced = _forced(options.folder, config, target)
    return Imported(config["model_type"], checkpoint, sides, languages, forced)


def _forced(folder: str, config: Dict[str, Any], target: Symbols) -> Optional[str]:
    """The symbol that the model's files force at the beginning of targets."""
    forced = read_json(folder, "generation_config.json").get("forced_bos_token_id")
    forced = config.get("forced_bos_token_id") if forced is None else forced
    if forced is not None and forced not in target.ids:
        raise ValueError(f"forced_bos_token_id {forced} is no symbol")
    return None if forced is None else str(target.dictionary[target.ids.index(forced)])


@contextlib.contextmanager
def _explained(folder: str) -> Iterator[None]:
    """Turn errors over odd values in the files of a folder into a sentence."""
    try:
        yield
    except PluginError:
        raise
    except (*ODD_VALUES, RuntimeError) as error:
        raise PluginError(
            f"The files in {folder} contradict each other or are damaged ({reason_of(error)}). "
            "Copy the model's folder again."
        ) from error


@contextlib.contextmanager
def _undone_after_errors(folder: str, imported: Imported) -> Iterator[None]:
    """Take what :func:`write` has written out of an empty folder, and a new folder away.

    Else the next run would refuse a folder that is not empty.
    """
    found = os.path.exists(folder)
    try:
        yield
    except BaseException:
        dictionaries = [f"dict.{language}.txt" for language in imported.sides]
        for name in (*dictionaries, *SUBWORDS, FILE, MODEL, NAME):
            with contextlib.suppress(OSError):  # the error itself is told
                os.remove(os.path.join(folder, name))
        if not found:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        raise


def write(folder: str, output: str, imported: Imported) -> Optional[Folder]:
    """Write a checkpoint, its dictionaries, copies of subword models, and ``specdec.json``.

    Returns:
        what that tells; None if there is none.
    """
    with told_if_unwritable(output):
        os.makedirs(output, exist_ok=True)
        for language, symbols in imported.sides.items():
            symbols.dictionary.save(os.path.join(output, f"dict.{language}.txt"))
        if imported.languages.codes:
            write_text(os.path.join(output, FILE), "\n".join([*imported.languages.codes, ""]))
        for name in SUBWORDS:
            if os.path.isfile(os.path.join(folder, name)):
                shutil.copyfile(os.path.join(folder, name), os.path.join(output, name))
    checkpoint = imported.checkpoint
    save_untrained(checkpoint.state, checkpoint.arguments, os.path.join(output, MODEL))
    found = folder_of(imported, output)
    if found is not None:
        write_text(os.path.join(output, NAME), found.text())
    return found


if __name__ == "__main__":
    main()
