"""How an imported model is used: in a sentence, and as a folder that takes raw text."""

import os
import re
from typing import Dict, NamedTuple, Optional

from ...fairseq_compat.options import flag_of
from ...folder import Folder
from .languages import FILE, TASK, Languages
from .symbols import SUBWORDS, Symbols
from .weights import Checkpoint

#: The checkpoint in the folder.
MODEL = "model.pt"
#: What Marian models of several targets expect before the source, such as ``>>zh-Hans<<``.
_TARGET = re.compile(r">>.+<<")


class Imported(NamedTuple):
    """A model that was read.

    Attributes:
        checkpoint: fairseq's.
        sides: the symbols of the source and of the target language, in this order, by their names.
        languages: that it translates into each other.
        forced: the symbol that begins every target; None if there is none, or it depends.
        begins: whether targets begin with a symbol at all.
    """

    checkpoint: Checkpoint
    sides: Dict[str, Symbols]
    languages: Languages
    forced: Optional[str]
    begins: bool

    @property
    def of_languages(self) -> bool:
        """Whether its sides are named as languages that it has symbols for."""
        return {*self.sides} <= {*self.languages.codes}


def told(imported: Imported, output: str) -> str:
    """How targets begin, and what is given for it.

    Args:
        imported: the model.
        output: its folder.
    """
    languages = imported.languages
    if imported.of_languages:
        given = languages.options(*imported.sides)
        words = [
            flag_of(name) if value is True else f"{flag_of(name)} {value}"
            for name, value in given.items()
        ]
        return (
            f"The model has {len(languages.codes)} languages. Decode with "
            f"{' '.join(f'{flag} {code}' for flag, code in zip(('-s', '-t'), imported.sides))} "
            f"--task {TASK} --lang-dict {os.path.join(output, FILE)} {' '.join(words)}."
        )
    if not imported.begins:
        return "Targets begin freely: no symbol comes before them, and --prefix-size is not needed."
    symbol = imported.forced or "its language's symbol"
    several = ""
    if languages.codes:
        several = (
            f" Or name languages of the model in -s and -t, such as {languages.codes[0]}: then "
            f"--task {TASK} writes their symbols."
        )
    return f"Each target begins with {symbol}: write it first, and give --prefix-size 1.{several}"


def described(imported: Imported, output: str) -> Optional[Folder]:
    """What ``specdec.json`` tells; None where raw text needs symbols that nobody would write.

    Args:
        imported: the model.
        output: its folder, with the subword models.
    """
    here = [name for name in SUBWORDS if os.path.isfile(os.path.join(output, name))]
    source, target = imported.sides
    first = imported.sides[source].dictionary
    free = not imported.begins and not any(map(_TARGET.fullmatch, first.symbols))
    if not here or not (free or imported.of_languages):
        return None
    folder = Folder(
        output,
        [MODEL],
        [f"dict.{source}.txt", f"dict.{target}.txt"],
        source,
        target,
        {"kind": "sentencepiece", "file": here[0]},
    )
    if not imported.of_languages:
        return folder
    options = {"langs": ",".join(imported.languages.codes)}
    options.update(imported.languages.options(source, target))
    return Folder(**{**vars(folder), "task": TASK, "task_options": options})
