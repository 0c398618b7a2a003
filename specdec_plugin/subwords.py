"""Raw text as subword pieces and back, the way that a model's training data was split."""

import os
from typing import Any, List, Mapping, Optional, Protocol

import sentencepiece

from .errors import PluginError


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


def load_sentencepiece(path: str) -> Any:
    """A SentencePiece model.

    Raises:
        PluginError: the file is missing or is something else.
    """
    if not os.path.isfile(path):
        raise PluginError(f"The SentencePiece model {path} is not a file. Check the path.")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=path)
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
            words are those of Moses.
        source_lang: whose rules Moses splits by.
        target_lang: whose rules it joins by.

    Raises:
        PluginError: a file is missing or is something else, or a library is missing.
    """
    kind, file = described["kind"], described.get("file", "")
    if kind == "sentencepiece":
        model: Subwords = load_sentencepiece(file)
        return model
    steps = []
    if kind == "moses" or described.get("moses"):
        steps.append(_moses(source_lang or "en", target_lang or "en"))
    if kind == "subword-nmt":
        steps.append(_subword_nmt(file))
    return Chain(*steps)


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
