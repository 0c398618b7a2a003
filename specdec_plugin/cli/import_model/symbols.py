"""The symbols of a tokenizer in Hugging Face's files, as a dictionary of fairseq."""

import json
import os
from typing import Any, Callable, Dict, List, NamedTuple

import sentencepiece
from fairseq.data import Dictionary

from ...errors import PluginError

#: fairseq's own symbols, which begin every dictionary.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
#: Subword models of sources.
OF_SOURCE = ("sentencepiece.bpe.model", "source.spm", "spiece.model")
#: That of targets, where they have one of their own.
OF_TARGET = "target.spm"
#: Those that are copied beside the checkpoint.
SUBWORDS = (*OF_SOURCE, OF_TARGET)
#: The id of a symbol that a dictionary has and the checkpoint has not.
ABSENT = -1
#: Languages of M2M-100 models in the order of their ids, by ``language_codes``. Some folders do not
#: list them.
LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl "
        "tn tr uk ur uz vi wo xh yi yo zh zu"
    ),
    "wmt21": "en ha is ja cs ru zh de",
}


class Symbols(NamedTuple):
    """A dictionary, and where its symbols come from.

    Attributes:
        dictionary: fairseq's.
        ids: the id in the other library of each symbol, or :data:`ABSENT`.
    """

    dictionary: Dictionary
    ids: List[int]


def read_symbols(folder: str, size: int, target: bool = False) -> Symbols:
    """The symbols of a folder, in the order of their ids behind fairseq's own four.

    A symbol that no line of pieces can hold is named after its id, such as ``<id:7>``. So is an
    id that the files do not name, because tables of weights may be larger than their vocabulary.

    Args:
        folder: has a file of :data:`READERS`.
        size: rows of the table of embeddings.
        target: whether the target language has a vocabulary of its own, as Marian's may.

    Raises:
        PluginError: there is no such file, or it has more symbols than rows.
    """
    named = _read_target(folder) if target else _read(folder)
    if named.get(size) == "<mask>":  # of BART models that were tuned without it
        del named[size]
    largest = max(named, default=ABSENT)
    if largest >= size or largest < len(SPECIAL) - 1:
        raise PluginError(
            f"The vocabulary in {folder} ends at id {largest}, but the weights have {size} rows. "
            "Copy tokenizer and weights from the same model."
        )
    names = _names(named, size)
    absent = [name for name in SPECIAL[1:] if name not in names]
    if absent:
        raise PluginError(
            f"The vocabulary in {folder} has no {' and no '.join(absent)}. Give the tokenizer's "
            "files as they were published with the model."
        )
    ids = {name: number for number, name in enumerate(names)}
    order = [ids.pop(name, ABSENT) for name in SPECIAL]
    dictionary = Dictionary()
    for name in ids:
        dictionary.add_symbol(name)
    return Symbols(dictionary, [*order, *ids.values()])


def has_target_vocabulary(folder: str) -> bool:
    """Whether the target language has a vocabulary of its own."""
    return os.path.isfile(os.path.join(folder, "target_vocab.json"))


def read_json(folder: str, name: str) -> Dict[str, Any]:
    """An object in a JSON file; empty if there is no such file.

    Raises:
        PluginError: the file holds something else.
    """
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PluginError(f"{path} is not a JSON object. Copy the model's folder again.")
    return found


def _names(named: Dict[int, str], size: int) -> List[str]:
    """A name for each id, no two alike, without white space."""
    names: List[str] = []
    taken = set()
    for number in range(size):
        name = named.get(number, "")
        encodable = name.encode("utf-8", "ignore").decode("utf-8")  # without half surrogate pairs
        if not name or encodable.split() != [name] or name in taken:
            name = f"<id:{number}>"
        names.append(name)
        taken.add(name)
    return names


def _read(folder: str) -> Dict[int, str]:
    """The symbols by their ids, those among them that were added to the vocabulary."""
    for name, reader in READERS.items():
        if os.path.isfile(os.path.join(folder, name)):
            return _with_added(folder, reader(folder, name))
    raise PluginError(
        f"{folder} has no vocabulary: none of {', '.join(READERS)}. Copy the tokenizer's files "
        "beside the weights."
    )


def _read_target(folder: str) -> Dict[int, str]:
    return _vocabulary(folder, "target_vocab.json")


def _vocabulary(folder: str, name: str) -> Dict[int, str]:
    """A file that maps symbols to ids."""
    return {int(number): symbol for symbol, number in read_json(folder, name).items()}


def _tokenizer(folder: str, name: str) -> Dict[int, str]:
    """A file of the library ``tokenizers``: scored symbols in a list, or symbols with ids."""
    vocabulary = read_json(folder, name).get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):
        return {number: symbol for number, (symbol, _) in enumerate(vocabulary)}
    return {int(number): symbol for symbol, number in vocabulary.items()}


def _sentencepiece(folder: str, name: str) -> Dict[int, str]:
    """A SentencePiece model: its three special pieces make place for fairseq's four."""
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, name))
    except (OSError, RuntimeError) as error:
        raise PluginError(
            f"{os.path.join(folder, name)} is not a SentencePiece model. Copy it again."
        ) from error
    pieces = [model.id_to_piece(number) for number in range(3, model.get_piece_size())]
    return dict(enumerate([*SPECIAL, *pieces]))


#: Files of a vocabulary, the first choice first, and what reads them.
READERS: Dict[str, Callable[[str, str], Dict[int, str]]] = {
    "vocab.json": _vocabulary,
    "tokenizer.json": _tokenizer,
    "sentencepiece.bpe.model": _sentencepiece,
}


def _with_added(folder: str, named: Dict[int, str]) -> Dict[int, str]:
    """Add symbols that stand beside the vocabulary, such as languages.

    Some files give their ids. Other symbols are only listed; they follow the vocabulary.
    """
    config = read_json(folder, "tokenizer_config.json")
    for symbol, number in read_json(folder, "added_tokens.json").items():
        named.setdefault(int(number), symbol)
    for number, entry in config.get("added_tokens_decoder", {}).items():
        named.setdefault(int(number), _text(entry))
    for entry in read_json(folder, "tokenizer.json").get("added_tokens", []):
        named.setdefault(int(entry["id"]), _text(entry))
    known = set(named.values())
    for symbol in _listed(config, read_json(folder, "special_tokens_map.json")):
        if symbol not in known:
            named[max(named, default=ABSENT) + 1] = symbol
            known.add(symbol)
    return named


def _listed(*files: Dict[str, Any]) -> List[str]:
    """Symbols that files list without ids: languages, then the mask."""
    found: List[str] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        for file in files:
            entries = file.get(key) or []
            found += [_text(entry) for entry in entries if isinstance(entries, list)]
    if not found:
        codes = [LANGUAGES.get(str(file.get("language_codes")), "") for file in files]
        found = [f"__{code}__" for code in " ".join(codes).split()]
    return found + [_text(file["mask_token"]) for file in files if file.get("mask_token")]


def _text(entry: Any) -> str:
    """A symbol that is written alone, or as an object with its content."""
    return str(entry["content"] if isinstance(entry, dict) else entry)
