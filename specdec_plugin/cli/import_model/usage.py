"""How an imported model is used: in a sentence, and as a folder that takes raw text."""

import os
import re
from typing import Dict, NamedTuple, Optional, Sequence

from ...errors import PluginError
from ...fairseq_compat.options import flag_of
from ...folder import Folder
from ...subwords import check_pieces, load_sentencepiece
from .languages import FILE, OF_LANGUAGES, TASK, Languages
from .symbols import OF_SOURCE, OF_TARGET, Symbols
from .weights import Checkpoint

#: The checkpoint in the folder.
MODEL = "model.pt"
#: What Marian models of several targets expect before the source, such as ``>>zh-Hans<<``.
_TARGET = re.compile(r">>.+<<")


class Imported(NamedTuple):
    """A model that was read.

    Attributes:
        kind: ``model_type`` of config.json.
        checkpoint: fairseq's.
        sides: the symbols of the source and of the target language, in this order, by their names.
        languages: that it translates into each other.
        forced: the symbol that begins every target; None if there is none, or it depends.
    """

    kind: str
    checkpoint: Checkpoint
    sides: Dict[str, Symbols]
    languages: Languages
    forced: Optional[str]

    @property
    def of_languages(self) -> bool:
        """Whether its sides are named as languages that it has symbols for."""
        return {*self.sides} <= {*self.languages.codes}

    @property
    def symbol_of_target(self) -> Optional[str]:
        """A symbol of a target that begins sources; None where sources have none."""
        source, *_ = self.sides.values()
        return next(filter(_TARGET.fullmatch, source.dictionary.symbols), None)


def usage(imported: Imported, output: str) -> str:
    """How sources and targets begin, and what is given for it.

    Args:
        imported: the model.
        output: its folder.
    """
    if imported.of_languages:
        return _options_of_languages(imported, output)
    codes, symbol = imported.languages.codes, imported.symbol_of_target
    if imported.forced is not None or codes:
        sentences = (
            f"Each target begins with {imported.forced or 'the symbol of its language'}: write it "
            "first, and give --prefix-size 1."
        )
    elif imported.kind in OF_LANGUAGES:
        sentences = (
            "The files name no languages. If targets begin with a symbol, write it first, and give "
            "--prefix-size 1."
        )
    else:
        sentences = (
            "Targets begin freely: no symbol comes before them, and --prefix-size is not needed."
        )
    if codes:
        sentences += (
            f" Or name languages of the model in -s and -t, such as {codes[0]}: then --task {TASK} "
            "writes their symbols."
        )
    if symbol is not None:
        sentences += (
            f" Sources begin with the symbol of a target language, such as {symbol}: write it."
        )
    return sentences


def _options_of_languages(imported: Imported, output: str) -> str:
    """The options of fairseq's multilingual task."""
    languages = imported.languages
    given = languages.options(*imported.sides)
    words = [
        flag_of(name) if value is True else f"{flag_of(name)} {value}"
        for name, value in given.items()
    ]
    source, target = imported.sides
    return (
        f"The model has {len(languages.codes)} languages. Decode with -s {source} -t {target} "
        f"--task {TASK} --lang-dict {os.path.join(output, FILE)} {' '.join(words)}."
    )


def folder_of(imported: Imported, output: str) -> Optional[Folder]:
    """What ``specdec.json`` tells; None where raw text needs symbols that nobody would write.

    Args:
        imported: the model.
        output: its folder, with the subword models.
    """
    source, target = imported.sides
    free = imported.kind == "marian" and imported.symbol_of_target is None
    file = _subwords_of(imported.sides[source], output, OF_SOURCE)
    if file is None or not (free or imported.of_languages):
        return None
    subwords = {"kind": "sentencepiece", "file": file}
    of_target = _subwords_of(imported.sides[target], output, [OF_TARGET])
    if of_target is not None:
        subwords["target_file"] = of_target
    dictionaries = [f"dict.{source}.txt", f"dict.{target}.txt"]
    folder = Folder(output, [MODEL], dictionaries, source, target, subwords)
    if not imported.of_languages:
        return folder
    options = {"langs": ",".join(imported.languages.codes)}
    options.update(imported.languages.options(source, target))
    return Folder(**{**vars(folder), "task": TASK, "task_options": options})


def _subwords_of(side: Symbols, output: str, files: Sequence[str]) -> Optional[str]:
    """The file that splits a side's text; None if there is none, or it is of another model."""
    names = [name for name in files if os.path.isfile(os.path.join(output, name))]
    if not names:
        return None
    path = os.path.join(output, names[0])
    try:
        dictionary = side.dictionary
        check_pieces(load_sentencepiece(path), path, dictionary.symbols[dictionary.nspecial :])
    except PluginError:
        return None
    return names[0]
