"""What an encoder's graph gives, in the graph's own tensors for as long as nobody overwrites it."""

import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

from ...fairseq_compat.late_input import on_host
from ..encoder_form import encoder_form
from .capture import Graphs, Replayed
from .tensors import leading

#: (rows, src) tokens to (rows, src, dim).
Encode = Callable[[Tensor], Tensor]


class EncoderTensors:
    """The tensors of sources of about one length, and the graph that encodes them.

    Args:
        rows: sentences.
        source: source positions; rounded up, as the rows are.
        pad: what tokens are padded with.
        graphs: of the device.

    Attributes:
        tokens: (rows, source) long.
        encoded: (rows, source, dim), anything where padded; None before the first run.
        padded: (rows, source), true where padded.
    """

    def __init__(self, rows: int, source: int, pad: int, graphs: Graphs) -> None:
        self._graphs, self._pad, device = graphs, pad, graphs.device
        self.tokens = torch.full((rows, source), pad, dtype=torch.long, device=device)
        self._on_host = torch.full((rows, source), pad, dtype=torch.long, device="cpu")
        self._written_there = self._on_host.numpy()  # by NumPy, which is faster here
        self.padded = torch.ones(rows, source, dtype=torch.bool, device=device)
        self.encoded: Optional[Tensor] = None
        self._written = 0, 0  # rows and positions that may hold no padding
        self._replayed = Replayed(graphs)
        self._last: Callable[[], Optional[StaticEncoding]] = lambda: None

    def encode(self, net_input: Mapping[str, Any], encode: Encode) -> "StaticEncoding":
        """Encode a batch.

        Args:
            net_input: fairseq's, with at most so many rows and positions.
            encode: the same in each call.
        """
        before, given = self._last(), on_host(net_input)["src_tokens"]
        if before is not None:
            before.keep()
        self._last = lambda: None  # Nothing is held if this fails.
        rows, length = given.shape
        self._graphs.wait_for_replays()
        self._take(given)
        self._replayed(lambda: self._work(encode))
        found = StaticEncoding(self, (rows, length), net_input)
        self._last = weakref.ref(found)
        return found

    def _take(self, given: Tensor) -> None:
        """Take (rows, src) tokens, from the device or from the host."""
        rows, length = given.shape
        if given.is_cpu:
            self._written_there.fill(self._pad)
            self._written_there[:rows, :length] = given.numpy()
            # Nobody waits: the driver takes memory that is not pinned.
            self.tokens.copy_(self._on_host, non_blocking=True)
            self._written = self.tokens.size(0), self.tokens.size(1)
            return
        if rows < self._written[0] or length < self._written[1]:
            self.tokens.fill_(self._pad)
        self._written = rows, length
        leading(leading(self.tokens, rows), length, 1).copy_(given)

    def wait_for_encoding(self) -> None:
        """Let the current stream wait until what was encoded is there."""
        self._graphs.wait_for_replays()

    def holds(self, encoding: "StaticEncoding") -> bool:
        """Whether nothing was encoded since."""
        return self._last() is encoding

    def _work(self, encode: Encode) -> None:
        found = encode(self.tokens)
        if self.encoded is None:
            with torch.inference_mode(False):
                self.encoded = torch.empty_like(found)
        self.encoded.copy_(found)
        torch.eq(self.tokens, self._pad, out=self.padded)


class StaticEncoding(Mapping[str, List[Tensor]]):
    """A batch's encoding in fairseq's form, which is copied when it is first read.

    Who knows the tensors reads them, while :attr:`fresh`.

    Args:
        tensors: what it is in.
        shape: rows, and source positions.
        net_input: fairseq's.
    """

    def __init__(
        self, tensors: EncoderTensors, shape: Tuple[int, int], net_input: Mapping[str, Any]
    ) -> None:
        self.tensors, self.shape, self._net_input = tensors, shape, net_input
        self._copy: Dict[str, List[Tensor]] = {}

    @property
    def fresh(self) -> bool:
        """Whether the tensors still hold it."""
        return self.tensors.holds(self)

    def keep(self) -> None:
        """Copy it, before the tensors get another one."""
        if self._copy:
            return
        (rows, length), encoded = self.shape, self.tensors.encoded
        assert encoded is not None
        self.tensors.wait_for_encoding()
        both = encoded, self.tensors.padded
        mine, padding = (each[:rows, :length].clone() for each in both)
        self._copy = encoder_form(mine, padding, self._net_input["src_lengths"])

    def __getitem__(self, name: str) -> List[Tensor]:
        self.keep()
        return self._copy[name]

    def __iter__(self) -> Iterator[str]:
        self.keep()
        return iter(self._copy)

    def __len__(self) -> int:
        self.keep()
        return len(self._copy)
