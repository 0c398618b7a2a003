"""What source and target dictionaries have in common."""

import math
import re
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Symbols(NamedTuple):
    """What has to be known of the dictionaries.

    Attributes:
        of_source: (source vocabulary,) each source symbol in the target dictionary, or -1.
        ordinary: target symbols that stand for text.
        eos: ends a sentence.
        source_pad: pads sources.
    """

    of_source: Tensor
    ordinary: Tensor
    eos: int
    source_pad: int

    def source(self, tokens: Tensor) -> Tensor:
        """The source in symbols of the output.

        Args:
            tokens: fairseq's ``src_tokens``, (rows, length), on the CPU.

        Returns:
            (rows, length), -1 where the output has no such symbol, and for padding.
        """
        return self.of_source[tokens]

    def shared(self) -> bool:
        """Whether any source symbol stands for text of the output, too."""
        return bool(torch.isin(self.of_source, self.ordinary).any())

    @classmethod
    def of(cls, source: Any, target: Any, eos: int) -> "Symbols":
        """Those of two of fairseq's dictionaries.

        Args:
            source: source dictionary.
            target: target dictionary.
            eos: the symbol that ends a target sentence.
        """
        silent = {source.bos_index, source.pad_index, source.unk_index, source.eos_index}
        of_source = [
            -1 if number in silent else target.indices.get(symbol, -1)
            for number, symbol in enumerate(source.symbols)
        ]
        of_source[source.eos_index] = eos
        special = {target.bos_index, target.pad_index, target.unk_index, target.eos_index, eos}
        ordinary = [number for number in range(len(target)) if number not in special]
        return cls(torch.tensor(of_source), torch.tensor(ordinary or [eos]), eos, source.pad())


_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def numbers_of(dictionary: Any) -> Tensor:
    """What the symbols of a dictionary mean as numbers.

    Args:
        dictionary: one of fairseq's.

    Returns:
        (vocabulary,) float32, NaN where a symbol is no number.
    """
    meant = [
        float(symbol) if _NUMBER.fullmatch(symbol) else math.nan for symbol in dictionary.symbols
    ]
    return torch.tensor(meant)
