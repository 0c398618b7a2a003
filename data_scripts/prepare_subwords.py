"""From raw parallel text to subword pieces and fairseq's binary data, no line lost."""

import argparse
import functools
import io
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import sentencepiece
from binarise import binarise
from fairseq.data import data_utils
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from textfiles import (
    check_parallel,
    clean,
    find_text,
    read_bytes,
    read_lines,
    sha256_of_file,
    write_lines,
)

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import check_output, written_whole
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Raw text -> subword pieces -> fairseq-preprocess, with one dictionary for both
languages. PREFIX stands for PREFIX.SOURCE_LANG and PREFIX.TARGET_LANG, each
plain or with .gz. In --output:

  raw/    the text, cleaned of white space and control characters on which
          some program would split a line
  spm.model or bpe.codes   the subword model
  pieces/ the text as subword pieces
  bin/    what fairseq-train reads

Both sides are checked to have the same number of lines after each step. A step
that is finished is not done again, so the same command resumes a killed run."""

EXAMPLE = """\
examples:
  python data_scripts/prepare_subwords.py -s en -t es --size 8000 --output data/ \\
      --train corpus/train --valid corpus/dev --test corpus/test
  # for an existing teacher, with its subword model and dictionary:
  python data_scripts/prepare_subwords.py -s en -t es --output data/ \\
      --train corpus/train --subword-model spm.model --dictionary dict.en.txt"""

SPLITS = ("train", "valid", "test")
#: Lines that are cut into pieces at a time.
CHUNK = 10_000


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="prepare_subwords.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for side in ("source", "target"):
        about = f"{side} language: the ending of its files"
        parser.add_argument(
            f"-{side[0]}", f"--{side}-lang", required=True, metavar="LANG", help=about
        )
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder of its own")
    parser.add_argument("--train", metavar="PREFIX", help="training text")
    parser.add_argument("--valid", "--dev", metavar="PREFIX", help="validation text")
    parser.add_argument("--test", metavar="PREFIX", help="test text")
    _add_subwords(parser)
    parser.add_argument(
        "--dictionary", metavar="FILE", help="use this fairseq dictionary, build none"
    )
    parser.add_argument(
        "--target-dictionary", metavar="FILE", help="where the target side has another"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="default 1")
    return parser


def _add_subwords(parser: argparse.ArgumentParser) -> None:
    """How words become pieces."""
    parser.add_argument(
        "--subwords",
        choices=("sentencepiece", "subword-nmt"),
        default="sentencepiece",
        help="default sentencepiece, for raw text; subword-nmt wants tokenised text",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=8000,
        metavar="N",
        help="joint pieces (SentencePiece) or merges (subword-nmt) to learn (default 8000)",
    )
    parser.add_argument(
        "--character-coverage",
        type=float,
        default=0.9995,
        metavar="SHARE",
        help="of the characters that SentencePiece must know (default 0.9995)",
    )
    parser.add_argument(
        "--source-dropout",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="merges left out, at random, in words of the training source that its target line "
        "lacks: misspelt ones (BPE-dropout of SentencePiece; default 0)",
    )
    parser.add_argument(
        "--subword-model", metavar="FILE", help="use this one (model or codes), learn none"
    )


class Preparation:
    """The steps; each leaves its result under its name only when it is whole."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.languages = (args.source_lang, args.target_lang)
        self.splits: Dict[str, str] = {
            split: getattr(args, split) for split in SPLITS if getattr(args, split)
        }
        name = "spm.model" if args.subwords == "sentencepiece" else "bpe.codes"
        self.model = self.path(name)

    def path(self, *parts: str) -> str:
        """A path in the output folder."""
        return os.path.join(self.args.output, *parts)

    def check_input(self) -> None:
        """Stop where the input has to be mended, before anything is in the output folder."""
        if self.args.subword_model:
            self._subwords(self.args.subword_model)
        for split, prefix in self.splits.items():
            paths = [find_text(f"{prefix}.{language}") for language in self.languages]
            counts = [len(read_lines(path)) for path in paths]
            check_parallel(paths[0], paths[1], counts[0], counts[1])
            if not counts[0]:
                raise PluginError(f"{paths[0]} holds no line. Name another text for --{split}.")

    def check_settings(self) -> None:
        """Stop where the output folder is that of other input or options."""
        args = self.args
        files = {
            f"{split}.{language}": find_text(f"{prefix}.{language}")
            for split, prefix in self.splits.items()
            for language in self.languages
        }
        for name in ("subword_model", "dictionary", "target_dictionary"):
            if getattr(args, name):
                files[name] = getattr(args, name)
        settings = {name: sha256_of_file(path) for name, path in files.items()}
        settings["subwords"] = args.subwords
        if args.source_dropout:
            settings["source_dropout"] = str(args.source_dropout)
        of_the_model = {"size": args.size, "character_coverage": args.character_coverage}
        if not args.subword_model:
            settings.update({name: str(value) for name, value in of_the_model.items()})
        path = self.path("settings.json")
        if os.path.exists(path):
            before = json.loads(read_bytes(path).decode("utf-8"))
            different = [
                name
                for name in sorted(set(before) | set(settings))
                if before.get(name) != settings.get(name)
                # Until a model is learnt, its size can be corrected.
                and (name not in of_the_model or os.path.exists(self.model))
            ]
            if different:
                raise PluginError(
                    f"{args.output} was made with another {', '.join(different)}. "
                    "Remove it or choose another --output."
                )
        write_lines(path, [json.dumps(settings, indent=1, sort_keys=True)])

    def each_side(self, step: str, make: Callable[[str, str, str], None]) -> None:
        """Make ``step``/split.language for all; check that sides have as many lines."""
        for split in self.splits:
            paths = [self.path(step, f"{split}.{language}") for language in self.languages]
            counts = []
            for path, language in zip(paths, self.languages):
                if not os.path.exists(path):
                    make(path, split, language)
                counts.append(len(read_lines(path)))
            check_parallel(paths[0], paths[1], counts[0], counts[1])
            print(f"{step}/{split}: {counts[0]:,} lines on both sides.")

    def clean_raw(self, path: str, split: str, language: str) -> None:
        """Step 1: one clean line for each line of the raw text."""
        lines = read_lines(find_text(f"{self.splits[split]}.{language}"))
        write_lines(path, (clean(line) for line in Progress(lines, unit="line")))

    def learn(self) -> None:
        """Step 2: the subword model, learnt from both sides of the training text."""
        if os.path.exists(self.model):
            return
        if self.args.subword_model:
            content = read_bytes(self.args.subword_model)
        elif self.args.subwords == "sentencepiece":
            content = self._learn_sentencepiece()
        else:
            content = self._learn_codes()
        with written_whole(self.model) as unfinished, open(unfinished, "wb") as handle:
            handle.write(content)

    def _training_text(self) -> Iterator[str]:
        for language in self.languages:
            yield from read_lines(self.path("raw", f"train.{language}"))

    def _learn_sentencepiece(self) -> bytes:
        content = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for line in self._training_text() if line),
                model_writer=content,
                model_type="bpe",
                vocab_size=self.args.size,
                character_coverage=self.args.character_coverage,
                num_threads=self.args.workers,
                max_sentence_length=100_000,
                minloglevel=1,
            )
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1]
            most = re.search(r"value <= (\d+)", reason)
            cause = f", which has {most[1]} at most" if most else f" ({reason})"
            raise PluginError(
                f"SentencePiece cannot learn {self.args.size} pieces from this text{cause}. "
                "Choose another --size."
            ) from None
        return content.getvalue()

    def _learn_codes(self) -> bytes:
        codes = io.StringIO()
        text = list(self._training_text())
        learn_bpe(text, codes, self.args.size, num_workers=1)
        return codes.getvalue().encode("utf-8")

    def cut_into_pieces(self, path: str, split: str, language: str) -> None:
        """Step 3: the pieces of each line."""
        lines = read_lines(self.path("raw", f"{split}.{language}"))
        pieces = self._pieces(lines)
        if self.args.source_dropout and (split, language) == ("train", self.languages[0]):
            targets = read_lines(self.path("raw", f"{split}.{self.languages[1]}"))
            pieces = self._sampled_pieces(lines, targets)
        write_lines(path, Progress(pieces, total=len(lines), unit="line"))

    def _subwords(self, path: str) -> Any:
        """A subword model of the wanted kind."""
        return (_sentencepiece if self.args.subwords == "sentencepiece" else _codes)(path)

    def _sampled_pieces(self, lines: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
        """Pieces drawn anew (Provilkov et al., 2020) for each word that the target line lacks."""
        model = self._subwords(self.model)
        sentencepiece.set_random_generator_seed(1)
        drawn = {"enable_sampling": True, "alpha": self.args.source_dropout}
        usual = functools.lru_cache(None)(lambda word: model.encode(word, out_type=str))
        for line, target in zip(lines, targets):
            known, pieces = {*target.split()}, []
            for word in line.split():
                pieces += (
                    usual(word) if word in known else model.encode(word, out_type=str, **drawn)
                )
            yield " ".join(pieces)

    def _pieces(self, lines: Sequence[str]) -> Iterator[str]:
        model = self._subwords(self.model)
        if self.args.subwords == "subword-nmt":
            yield from (model.segment(line) for line in lines)
            return
        for start in range(0, len(lines), CHUNK):
            chunk = list(lines[start : start + CHUNK])
            for pieces in model.encode(chunk, out_type=str, num_threads=self.args.workers):
                # A model of another's may let white space through, or end a line.
                yield " ".join(" ".join(pieces).split())

    def binarise(self) -> None:
        """Step 4: ``fairseq-preprocess``, whose datasets must have all lines."""
        args = self.args
        if os.path.exists(self.path("bin")):
            return
        arguments = ["-s", args.source_lang, "-t", args.target_lang]
        arguments += ["--workers", str(args.workers)]
        for split in self.splits:
            arguments += [f"--{split}pref", self.path("pieces", split)]
        if args.dictionary:
            arguments += ["--srcdict", args.dictionary]
        if args.target_dictionary:
            arguments += ["--tgtdict", args.target_dictionary]
        else:
            arguments.append("--joined-dictionary")
        binarise(arguments, self.path("bin"), self._check_binary)

    def _check_binary(self, folder: str) -> None:
        pair = "-".join(self.languages)
        for split in self.splits:
            for language in self.languages:
                text = self.path("pieces", f"{split}.{language}")
                data = os.path.join(folder, f"{split}.{pair}.{language}")
                check_parallel(
                    text,
                    data,
                    len(read_lines(text)),
                    len(data_utils.load_indexed_dataset(data, None)),
                )

    def run(self) -> None:
        """All steps."""
        self.check_input()
        check_output(self.args.output, folder=True)
        self.check_settings()
        self.each_side("raw", self.clean_raw)
        self.learn()
        self.each_side("pieces", self.cut_into_pieces)
        self.binarise()
        print(f"{self.path('bin')}: ready for fairseq-train.")


def _sentencepiece(path: str) -> sentencepiece.SentencePieceProcessor:
    content = read_bytes(path)
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=content or b"\n")
    except RuntimeError:
        raise PluginError(
            f"{path} is not a SentencePiece model. "
            "For codes of subword-nmt, add --subwords subword-nmt."
        ) from None


def _codes(path: str) -> BPE:
    try:
        return BPE(io.StringIO(read_bytes(path).decode("utf-8")))
    except UnicodeDecodeError:
        raise PluginError(
            f"{path} has no codes of subword-nmt. "
            "For a model of SentencePiece, leave --subwords out."
        ) from None


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what would fail later, or do something else without a word."""
    if not (args.train or args.valid or args.test):
        raise PluginError("No text was given. Add --train PREFIX (or --valid, --test).")
    if not args.train and not (args.subword_model and args.dictionary):
        raise PluginError(
            "Without --train there is nothing to learn subwords and a dictionary from. "
            "Add --train, or both --subword-model and --dictionary."
        )
    if not 0 <= args.source_dropout < 1:
        raise PluginError("--source-dropout must be from 0 to less than 1. Correct it.")
    if args.source_dropout and args.subwords != "sentencepiece":
        raise PluginError("--source-dropout is for SentencePiece. Leave it out, or --subwords.")
    if args.target_dictionary and not args.dictionary:
        raise PluginError(
            "--target-dictionary goes with the source's. Add --dictionary, or leave it out."
        )


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    check_arguments(args)
    Preparation(args).run()


if __name__ == "__main__":
    main()
