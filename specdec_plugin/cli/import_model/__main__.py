"""``specdec-import``: a checkpoint of Hugging Face's transformers as one of fairseq."""

import argparse
import contextlib
import os
import shutil
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from ...errors import PluginError
from ...fairseq_compat.checkpoints import save_untrained
from ...fairseq_compat.interrupts import console_program
from ...fairseq_compat.odd_values import ODD_VALUES, reason_of
from ...fairseq_compat.options import flag_of
from ...outputs import check_output, told_if_unwritable
from .languages import FILE, TASK, Languages, with_languages
from .symbols import SUBWORDS, Symbols, has_target_vocabulary, read_json, read_symbols
from .weights import Checkpoint, convert, read_kind, read_tensors, start_id, table_size

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
        checkpoint, sides, languages, first = _converted(options)
    write(options.folder, options.output, checkpoint, sides, languages)
    symbols = len(sides[options.target_lang].ids)
    print(f"{options.output}/model.pt: {len(checkpoint.state)} weights, {symbols} symbols")
    print(first)


def _converted(
    options: argparse.Namespace,
) -> Tuple[Checkpoint, Dict[str, Symbols], Languages, str]:
    """The checkpoint, the symbols of both sides, the languages, and how targets begin."""
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
    if {*sides} <= {*languages.codes}:
        first = _flags(options, languages)
    else:
        first = first_words(options.folder, config, target, languages)
    return checkpoint, sides, languages, first


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


def write(
    folder: str,
    output: str,
    checkpoint: Checkpoint,
    sides: Dict[str, Symbols],
    languages: Languages,
) -> None:
    """Write a checkpoint, a dictionary for each side, and copies of subword models."""
    with told_if_unwritable(output):
        os.makedirs(output, exist_ok=True)
        for language, symbols in sides.items():
            symbols.dictionary.save(os.path.join(output, f"dict.{language}.txt"))
        if languages.codes:
            with open(os.path.join(output, FILE), "w", encoding="utf-8") as file:
                file.writelines(f"{code}\n" for code in languages.codes)
        for name in SUBWORDS:
            if os.path.isfile(os.path.join(folder, name)):
                shutil.copyfile(os.path.join(folder, name), os.path.join(output, name))
    save_untrained(checkpoint.state, checkpoint.arguments, os.path.join(output, "model.pt"))


def _flags(options: argparse.Namespace, languages: Languages) -> str:
    """How a direction of a multilingual model is decoded."""
    given = languages.options(options.source_lang, options.target_lang)
    words = [
        flag_of(name) if value is True else f"{flag_of(name)} {value}"
        for name, value in given.items()
    ]
    return (
        f"The model has {len(languages.codes)} languages. Decode with --task {TASK} "
        f"--lang-dict {os.path.join(options.output, FILE)} {' '.join(words)}."
    )


def first_words(folder: str, config: Dict[str, Any], target: Symbols, languages: Languages) -> str:
    """How a target begins, in words: with a forced symbol, or freely."""
    forced = read_json(folder, "generation_config.json").get("forced_bos_token_id")
    forced = config.get("forced_bos_token_id") if forced is None else forced
    several = ""
    if languages.codes:
        several = (
            f" Or name languages of the model in -s and -t, such as {languages.codes[0]}: then "
            f"--task {TASK} writes their symbols."
        )
    if forced is not None:
        symbol = target.dictionary[target.ids.index(forced)]
        return (
            f"Each target begins with {symbol}: write it first, and give --prefix-size 1.{several}"
        )
    if config["model_type"] in ("m2m_100", "mbart"):
        return (
            "Each target begins with its language's symbol: write it first, and give "
            f"--prefix-size 1.{several}"
        )
    return "Targets begin freely: no symbol comes before them, and --prefix-size is not needed."


if __name__ == "__main__":
    main()
