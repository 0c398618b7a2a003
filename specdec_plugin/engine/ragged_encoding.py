"""An encoder's output that holds no padding."""

from functools import cached_property
from typing import Dict, Iterator, List, Mapping, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .encoder_form import encoder_form
from .spans import Spans


class RaggedEncoding(Mapping[str, List[Tensor]]):
    """What fairseq's encoder returns for a padded batch, of which the symbols' vectors are kept.

    A batch of 512 sentences is mostly padding, because one of them is long. Who reads an item as in
    fairseq's dictionary gets it padded; it is made when it is first read.

    Args:
        vectors: (symbols, dim), those of a row behind each other.
        places: (rows,) long, where a row's first vector is in ``vectors``.
        begins: (rows,) long, the position of a row's first symbol in the padded batch.
        lengths: (rows,) long, how many symbols a row has.
        width: of the padded batch.
    """

    def __init__(
        self, vectors: Tensor, places: Tensor, begins: Tensor, lengths: Tensor, width: int
    ) -> None:
        self.vectors = vectors
        self._places, self._begins, self._lengths, self._width = places, begins, lengths, width

    @property
    def spans(self) -> Spans:
        """Where the symbols of each row are in :attr:`vectors`, seen as one long row."""
        return Spans.behind(self._places, self._lengths)

    def select(self, rows: Union[Tensor, slice]) -> "RaggedEncoding":
        """These rows: (rows,) indices, which may repeat, or a range. No vector is copied."""
        places, begins, lengths = self._places[rows], self._begins[rows], self._lengths[rows]
        return RaggedEncoding(self.vectors, places, begins, lengths, self._width)

    def trimmed(self) -> "RaggedEncoding":
        """The same without the columns that are padding in all rows."""
        first, end = int(self._begins.min()), int((self._begins + self._lengths).max())
        begins = self._begins - first
        return RaggedEncoding(self.vectors, self._places, begins, self._lengths, end - first)

    def at_front(self) -> Tuple[Tensor, Tensor, Tensor]:
        """Padded behind the symbols of each row.

        Returns:
            (rows, src, dim), zero where it is padded; (rows, src) true there; (rows,) lengths.
        """
        out, padding = self._filled(np.zeros(len(self._lengths), int), int(self._lengths.max()))
        return torch.from_numpy(out), torch.from_numpy(padding), self._lengths

    @cached_property
    def _padded(self) -> Dict[str, List[Tensor]]:
        """fairseq's form: ``encoder_out`` [(src, rows, dim)], zero where it is padded."""
        out, padding = self._filled(self._begins.numpy(), self._width)
        found = torch.from_numpy(padding) if padding.any() else None
        return encoder_form(torch.from_numpy(out), found, self._lengths)

    def _filled(
        self, begins: npt.NDArray[np.int64], width: int
    ) -> Tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """(rows, width, dim), a row's symbols from ``begins`` (rows,) on, and where none is."""
        # By NumPy, whose threads cannot hang in a forked process, as those of PyTorch do.
        places, lengths = self._places.numpy()[:, None], self._lengths.numpy()[:, None]
        index = np.arange(width) - begins[:, None]  # (rows, width) of a position in its own row
        padding = (index < 0) | (index >= lengths)
        out = self.vectors.numpy()[np.where(padding, 0, places + index)]
        out[padding] = 0
        return out, padding

    def __getitem__(self, name: str) -> List[Tensor]:
        return self._padded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._padded)

    def __len__(self) -> int:
        return len(self._padded)
