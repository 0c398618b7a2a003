"""Raw text as subword pieces and back, the way that a model's training data was split."""

import math
import os
import re
from typing import Any, List, Mapping, Optional, Protocol, Sequence, Set

import sentencepiece

from .errors import PluginError

#: The share of pieces that a dictionary and a subword model of one training share at least. Those
#: of two projects, of the same language and size, shared 0.43 to 0.65.
_ALIKE = 0.75
#: Symbols of languages, of which a dictionary may have hundreds.
_TAG = re.compile(r"__.+__|\[.+\]|<.+>")


class Subwords(Protocol):
    """Splits lines and joins pieces; a ``SentencePieceProcessor`` is one."""

    def encode(self, line: str, out_type: type) -> List[str]:
        """The pieces of a line of raw text; ``out_type`` is ``str``."""

    def decode(self, pieces: List[str]) -> str:
        """The raw text of pieces."""


class Chain:
    """One way of splitting behind another, such as Moses and then subword-nmt.

    Args:
        steps: fairseq's encoders, whose ``encode`` and ``decode`` take and give lines.
    """

    def __init__(self, *steps: Any) -> None:
        self._steps = steps

    def encode(self, line: str, out_type: type = str) -> List[str]:
        """The pieces of a line of raw text."""
        for step in self._steps:
            line = step.encode(line)
        return line.split()

    def decode(self, pieces: List[str]) -> str:
        """The raw text of pieces."""
        line = " ".join(pieces)
        for step in reversed(self._steps):
            line = step.decode(line)
        return line

    def between(self, source_lang: str, target_lang: str) -> "Chain":
        """The same for other languages, by whose rules Moses splits and joins."""
        from fairseq.data.encoders.moses_tokenizer import MosesTokenizer

        steps = (
            _moses(source_lang, target_lang) if isinstance(step, MosesTokenizer) else step
            for step in self._steps
        )  # fmt: skip
        return Chain(*steps)

    def of_target(self) -> "Chain":
        """What splits text of the target language: Moses by its rules."""
        from fairseq.data.encoders.moses_tokenizer import MosesTokenizer

        moses = [step for step in self._steps if isinstance(step, MosesTokenizer)]
        if not moses:
            return self
        language = moses[0].cfg.target_lang
        return self.between(language, language)

    def merged(self) -> Set[str]:
        """The pieces that subword-nmt merges; none where it does not split."""
        codes = [step.bpe.bpe_codes for step in self._steps if hasattr(step, "bpe")]
        joined = ["".join(pair) for pairs in codes for pair in pairs]
        return {
            each.removesuffix("</w>") if each.endswith("</w>") else f"{each}@@" for each in joined
        }


class Pair:
    """A SentencePiece model for sources, and another one for targets, as Marian has them.

    Args:
        source: splits raw text.
        target: joins pieces, and splits raw text of the target language.
    """

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self._target = source, target

    def encode(self, line: str, out_type: type = str) -> List[str]:
        """The pieces of a line of raw text."""
        pieces: List[str] = self.source.encode(line, out_type=out_type)
        return pieces

    def decode(self, pieces: List[str]) -> str:
        """The raw text of pieces."""
        return str(self._target.decode(pieces))

    def of_target(self) -> Any:
        """What splits text of the target language."""
        return self._target


def of_target(subwords: Subwords) -> Subwords:
    """What splits raw text of the target language; SentencePiece splits both alike."""
    own = getattr(subwords, "of_target", None)
    return subwords if own is None else own()


def load_sentencepiece(path: str) -> Any:
    """A SentencePiece model.

    Raises:
        PluginError: the file is missing or is something else.
    """
    if not os.path.isfile(path):
        raise PluginError(f"The SentencePiece model {path} is not a file. Check the path.")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=os.fspath(path))
    except (OSError, RuntimeError) as error:
        raise PluginError(
            f"{path} is not a SentencePiece model. Give the one that the data was split with."
        ) from error


def load_subwords(
    described: Mapping[str, Any], source_lang: Optional[str], target_lang: Optional[str]
) -> Subwords:
    """What ``subwords`` of a ``specdec.json`` describes.

    Args:
        described: ``kind`` (``sentencepiece``, ``subword-nmt`` or ``moses``), and ``file``: the
            SentencePiece model, or the codes of subword-nmt. ``moses`` beside subword-nmt: the
            words are those of Moses. ``target_file``: another SentencePiece model, of targets.
        source_lang: whose rules Moses splits by.
        target_lang: whose rules it joins by.

    Raises:
        PluginError: a file is missing or is something else, or a library is missing.
    """
    kind, file = described["kind"], described.get("file", "")
    if kind == "sentencepiece":
        model: Subwords = load_sentencepiece(file)
        other = described.get("target_file")
        return model if other is None else Pair(model, load_sentencepiece(other))
    steps = []
    if kind == "moses" or described.get("moses"):
        steps.append(_moses(source_lang or "en", target_lang or "en"))
    if kind == "subword-nmt":
        steps.append(_subword_nmt(file))
    return Chain(*steps)


def joined(subwords: Subwords, pieces: List[str]) -> str:
    """The raw text of pieces, also of those that a SentencePiece model lacks.

    Marian has another model for targets. Of pieces that it lacks, SentencePiece keeps the marks.
    """
    text = subwords.decode(pieces)
    if isinstance(subwords, Chain) or "▁" not in text:
        return text
    return text.replace("▁", " ").strip()


def check_pieces(
    subwords: Subwords, file: str, symbols: Sequence[str], side: str = "source"
) -> None:
    """Refuse subwords of another project, with which most of a text would be unknown symbols.

    A model of several languages has pieces that the dictionary of one lacks. A dictionary may be
    of a part of a text. So either most pieces have to be in the dictionary, or most symbols of the
    dictionary have to be pieces. Single characters count as neither: any model may leave some.

    Args:
        subwords: of :func:`load_subwords` or :func:`load_sentencepiece`.
        file: where they are from.
        symbols: of the dictionary of a side.
        side: ``source`` or ``target``.

    Raises:
        PluginError: neither holds.
    """
    pieces = _pieces_of(subwords)
    pieces = {piece for piece in pieces if _is_long(piece)}
    words = {word for word in symbols if _is_long(word) and not _TAG.fullmatch(word)}
    both, fewer = len(pieces & words), min(len(pieces), len(words))
    # Of few pieces, a greater share may never stand alone, as steps on the way to longer ones.
    if both < _ALIKE * fewer - 1.5 * math.sqrt(fewer):
        raise PluginError(
            f"{file} does not belong to this model: {both:,} of its {len(pieces):,} pieces are "
            f"among the symbols of the {side} dictionary. Give the file that the data were split "
            "with."
        )


def _pieces_of(subwords: Any) -> Set[str]:
    """All pieces of sources that stand for text."""
    if isinstance(subwords, Chain):
        return subwords.merged()
    model = subwords.source if isinstance(subwords, Pair) else subwords
    special = (model.is_control, model.is_unknown, model.is_unused, model.is_byte)
    numbers = [each for each in range(len(model)) if not any(of(each) for of in special)]
    return set(model.id_to_piece(numbers))


def _is_long(piece: str) -> bool:
    """Whether a piece is more than one character and its marks."""
    return len(piece.removeprefix("▁").removesuffix("@@")) > 1


def _moses(source_lang: str, target_lang: str) -> Any:
    """fairseq's ``--tokenizer moses``."""
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig

    try:
        return MosesTokenizer(
            MosesTokenizerConfig(source_lang=source_lang, target_lang=target_lang)
        )
    except ImportError as error:
        raise PluginError(
            "Subwords of kind moses need the package sacremoses. Install the extra moses: "
            "pip install 'specdec-plugin[moses]'."
        ) from error


def _subword_nmt(path: str) -> Any:
    """fairseq's ``--bpe subword_nmt``."""
    from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

    if not os.path.isfile(path):
        raise PluginError(f"The codes of subword-nmt, {path}, are not a file. Check the path.")
    try:
        with open(path, encoding="utf-8") as file:
            _check_codes(file.readline(), path)
        return SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=path))
    except UnicodeDecodeError as error:
        raise PluginError(_NO_CODES.format(path)) from error


_NO_CODES = "{} holds no codes of subword-nmt. Give the file that learn-bpe wrote."


def _check_codes(line: str, path: str) -> None:
    """subword-nmt ends the process, with a line of its own, at a damaged line of codes."""
    if not line.startswith("#version") and len(line.split()) != 2:
        raise PluginError(_NO_CODES.format(path))
