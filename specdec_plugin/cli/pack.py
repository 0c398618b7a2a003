"""``specdec-pack``: a folder whose name alone loads a model, a drafter, and how text is split."""

import argparse
import contextlib
import os
import shutil
from argparse import Namespace
from typing import Any, Dict, Iterable, List, Optional, Sequence

from fairseq import utils

from ..api import FAIRSEQ, Session, open_folder
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..fairseq_compat.odd_values import reason_of
from ..fairseq_compat.tasks import add_task_options, given_task_options
from ..folder import NAME, Folder
from ..methods.checks import typed
from ..methods.registry import suited
from ..outputs import check_output, told_if_unwritable, write_text
from .option_values import add_decoding, name

EXAMPLE = """examples:
  specdec-pack --path runs/model.pt --data data-bin -s en -t es --sentencepiece spm.model \\
      --output packed
  specdec-pack --path a.pt:b.pt --data data-bin -s de -t en --subword-nmt bpe.codes --moses \\
      --decoding beam --option beam=4 --option max_len_b=100 --link --output packed
then, in Python:
  specdec_plugin.load("packed").translate(["A sentence."])
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-pack",
        description="Copy a model and what decoding needs beside it into a folder, load it from "
        "there, and write specdec.json. Files that are in the folder already stay as they are.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--path", required=True, help="model (several: a.pt:b.pt)")
    parser.add_argument("--output", required=True, help="the folder")
    parser.add_argument(
        "--data", help="folder with dict.LANG.txt (default: the folder of the model)"
    )
    parser.add_argument("--link", action="store_true", help="link the files, and copy none")
    add_task_options(parser)
    _add_files(parser.add_argument_group("files beside the model"))
    group = parser.add_argument_group("decoding, where a program asks for nothing else")
    add_decoding(group, "auto", "%(default)s")
    group.add_argument(
        "--language-name",
        action="append",
        type=name,
        default=[],
        metavar="CODE=NAME",
        help="what people call a language, such as en=English; may be repeated",
    )
    return parser


def _add_files(group: Any) -> None:
    group.add_argument("--drafter", help="a trained drafter, for specdec and nat")
    group.add_argument("--heads", help="a model with proposal heads, for blockwise")
    group.add_argument("--sentencepiece", metavar="MODEL", help="splits raw text")
    group.add_argument(
        "--target-sentencepiece", metavar="MODEL", help="of targets, if they have one of their own"
    )
    group.add_argument("--subword-nmt", metavar="CODES", help="splits raw text, or Moses' words")
    group.add_argument("--moses", action="store_true", help="raw text is split by Moses' rules")
    group.add_argument("--vocab-clusters", metavar="FILE", help="as in fairseq-generate")
    group.add_argument("--drafter-vocab-clusters", metavar="FILE", help="likewise")


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    _check_subwords(options)
    check_output(options.output, folder=True)
    path = os.path.join(options.output, NAME)
    if os.path.lexists(path):
        raise PluginError(f"{path} exists already. Remove it, or name another folder.")
    packed = Packed(options.output, options.link)
    try:
        folder = folder_of(options, packed)
        translator = open_folder(folder).translator()
        for decoding in _decodable(folder):  # a drafter that does not fit is refused here
            translator.session.translator(decoding)
        _check_effects(folder, translator.session)
        _check_names(folder, translator.session)
        (found,) = translator.translate_pieces(["."])
        write_text(path, folder.text())
    except BaseException as error:
        packed.undo()
        if isinstance(error, PluginError):
            raise PluginError(_as_given(str(error), options, packed)) from error
        raise
    print(
        f"{options.output}: {len(folder.files)} files, {packed.bytes / 2**20:,.1f} MiB. "
        f"They load, and decode by {translator.method} ({len(found.tokens)} tokens of a full stop)."
    )


def _check_effects(folder: Folder, session: Session) -> None:
    """Refuse an option that no method reads that the folder is made for."""
    flags = folder.flags(folder.decoding)
    read = {
        name for decoding in (folder.decoding, *_decodable(folder))
        for name in suited(flags, decoding)
    }  # fmt: skip
    useless = {name: flags[name] for name in folder.options if name not in read}
    if useless:
        session.translator(folder.decoding, **useless)


def _check_names(folder: Folder, session: Session) -> None:
    """Refuse names of languages that the model does not have."""
    known = session.languages or [each for each in session.direction if each]
    for code, shown in folder.names.items():
        if code not in known:
            raise PluginError(
                f"--language-name {code}={shown}: the model has no language {code}. Its languages "
                f"are {', '.join(known)}."
            )


def _as_given(message: str, options: Namespace, packed: "Packed") -> str:
    """A message about the files in the folder, with the names that the user knows them by."""
    for target, path in packed.brought.items():
        message = message.replace(target, path)
    folder = options.data or os.path.dirname(utils.split_paths(options.path)[0])
    return message.replace(os.path.join(options.output, "dict."), os.path.join(folder, "dict."))


def _check_subwords(options: Namespace) -> None:
    if options.sentencepiece is not None and (options.subword_nmt or options.moses):
        other = typed("subword_nmt", options.subword_nmt) if options.subword_nmt else "--moses"
        raise PluginError(
            f"--sentencepiece {options.sentencepiece} splits raw text by itself: leave {other} out."
        )
    if options.target_sentencepiece is not None and options.sentencepiece is None:
        raise PluginError(
            f"--target-sentencepiece {options.target_sentencepiece} splits targets alone: give "
            "--sentencepiece for sources, too."
        )


class Packed:
    """Files that are brought into a folder, and taken out again if they are of no use.

    Args:
        folder: is made where it is missing.
        link: whether the files are linked.

    Attributes:
        bytes: of all files.
        brought: where each file that was brought is from, by where it is now.
    """

    def __init__(self, folder: str, link: bool) -> None:
        self._folder, self._link = folder, link
        self.brought: Dict[str, str] = {}
        self._new = not os.path.exists(folder)
        self.bytes = 0
        with told_if_unwritable(folder):
            os.makedirs(folder, exist_ok=True)

    def add(self, path: str) -> str:
        """Bring a file into the folder, and give its name there.

        Raises:
            PluginError: it is missing, or another one has its name, or the folder has no room.
        """
        if not os.path.isfile(path):
            raise PluginError(f"File not found: {path}. Check the path.")
        name = os.path.basename(path)
        target = os.path.join(self._folder, name)
        if target in self.brought:
            self._check_alike(path, self.brought[target])
            return name
        self.bytes += os.path.getsize(path)
        if os.path.lexists(target):
            if os.path.exists(target) and os.path.samefile(path, target):
                return name
            raise PluginError(
                f"{target} exists already, and is another file than {path}. Rename one of them, "
                "or name another folder."
            )
        self.brought[target] = path
        with told_if_unwritable(target):
            if self._link:
                os.symlink(os.path.abspath(path), target)
            else:
                shutil.copyfile(path, target)
        return name

    @staticmethod
    def _check_alike(path: str, other: str) -> None:
        if not os.path.samefile(path, other):
            raise PluginError(
                f"{other} and {path} have one name, but a folder holds one file of a name. Rename "
                "one of them."
            )

    def add_all(self, paths: Iterable[str]) -> List[str]:
        """:meth:`add` of several."""
        return [self.add(path) for path in paths]

    def undo(self) -> None:
        """Remove what was brought, and then the folder if it was made and nothing else is in it."""
        for path in self.brought:
            if os.path.lexists(path):
                os.remove(path)
        if self._new:
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)


def folder_of(options: Namespace, packed: Packed) -> Folder:
    """What ``specdec.json`` tells, with the files brought into the folder."""
    models = utils.split_paths(options.path)
    data = options.data or os.path.dirname(models[0]) or "."
    given = given_task_options(options)
    source, target = given.pop("source_lang", None), given.pop("target_lang", None)
    if "lang_dict" in given and "langs" not in given:  # a file elsewhere
        given["langs"] = ",".join(_languages(given.pop("lang_dict")))
    found = sorted(name for name in _listed(data) if name.startswith("dict."))
    wanted = {f"dict.{source}.txt", f"dict.{target}.txt"}
    dictionaries = [name for name in found if name in wanted] or found
    if not dictionaries:
        raise PluginError(
            f"The folder {data} has no dict.LANG.txt. Name in --data the folder with the "
            "dictionaries that the model was trained with."
        )
    optional = {name: getattr(options, name) for name in ("drafter", "heads")}
    clusters = {"verifier": options.vocab_clusters, "drafter": options.drafter_vocab_clusters}
    return Folder(
        options.output,
        packed.add_all(models),
        packed.add_all(os.path.join(data, name) for name in dictionaries),
        source,
        target,
        _subwords(options, packed),
        clusters={key: packed.add(path) for key, path in clusters.items() if path},
        task=options.task,
        task_options=given,
        decoding=None if options.decoding == FAIRSEQ else options.decoding,
        options=dict(options.option),
        names=dict(options.language_name),
        **{name: packed.add(path) for name, path in optional.items() if path},
    )


def _languages(path: str) -> List[str]:
    """Those of ``--lang-dict``: one on each line."""
    try:
        with open(path, encoding="utf-8") as file:
            found = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise PluginError(
            f"--lang-dict {path} cannot be read ({reason_of(error)}). Name a file with a language "
            "on each line."
        ) from error
    if not found:
        raise PluginError(f"--lang-dict {path} is empty. Name a file with a language on each line.")
    return found


def _listed(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise PluginError(f"The folder {folder} cannot be read ({error.strerror}).") from error


def _subwords(options: Namespace, packed: Packed) -> Optional[Dict[str, Any]]:
    if options.sentencepiece is not None:
        model = {"kind": "sentencepiece", "file": packed.add(options.sentencepiece)}
        if options.target_sentencepiece is not None:
            model["target_file"] = packed.add(options.target_sentencepiece)
        return model
    if options.subword_nmt is not None:
        codes = {"kind": "subword-nmt", "file": packed.add(options.subword_nmt)}
        return {**codes, "moses": True} if options.moses else codes
    return {"kind": "moses"} if options.moses else None


def _decodable(folder: Folder) -> List[str]:
    """The methods that read the folder's drafter and heads."""
    return [
        decoding
        for decoding, model in (("specdec", folder.drafter), ("blockwise", folder.heads))
        if model is not None
    ]


if __name__ == "__main__":
    main()
