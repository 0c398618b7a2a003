"""What the decoder looks at of a source: keys and values of all layers, in one CUDA graph."""

from typing import Callable, NamedTuple, Optional
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..fused.source import FusedSource
from .capture import Replayed
from .encoding import EncoderTensors, StaticEncoding
from .tensors import StaticTensors

#: Source symbols of a batch, padding among them, up to which a graph pays. What it gives stays in
#: memory, and with more symbols the host is not what takes the time.
MOST_SYMBOLS = 2048


class Projection(NamedTuple):
    """Who makes keys and values of what an encoder gave.

    Attributes:
        whole: (rows, src, dim) to (2 * layers, rows, heads, src, head_dim).
        fused: does this for short sources, and makes their mask; or None.
    """

    whole: Callable[[Tensor], Tensor]
    fused: Optional[FusedSource]


def begin(
    tensors: StaticTensors, project: Projection, encoded: Tensor, padding: Optional[Tensor]
) -> None:
    """Forget the batch before, and take the source of another one.

    Args:
        tensors: of the batch; all but lengths are written.
        project: the same in each call.
        encoded: (rows, src, dim).
        padding: (rows, src), true where padded; None: nowhere.
    """
    key = "source", encoded.size(2), encoded.dtype
    copied: _Copied = tensors.calls.get(key, lambda: _Copied(tensors, encoded))
    copied.take(tensors, encoded, padding)
    copied.source.begin(tensors, project)


def begin_in_place(tensors: StaticTensors, project: Projection, encoding: StaticEncoding) -> None:
    """The same for what an encoder's graph has given, which is read where it is."""
    given = encoding.tensors
    assert given.encoded is not None
    # They go with the encoder's tensors, which it may let go of.
    known: WeakKeyDictionary[EncoderTensors, _Source] = tensors.calls.get(
        "sources in place", WeakKeyDictionary
    )
    source = known.get(given)
    if source is None:
        source = known[given] = _Source(tensors, given.encoded, given.padded)
    source.begin(tensors, project)


class _Source:
    """Begins batches: one after another, on the same tensors.

    It holds neither the decoder nor its tensors, which hold it.

    Args:
        tensors: of the decoder's batches.
        encoded: (rows, src, dim), anything where padded; no more positions than the decoder has.
        padded: (rows, src), true where padded.
    """

    def __init__(self, tensors: StaticTensors, encoded: Tensor, padded: Tensor) -> None:
        self._encoded, self._padded = encoded, padded
        self._replayed = Replayed(tensors.graphs)

    def begin(self, tensors: StaticTensors, project: Projection) -> None:
        """Take what the tensors hold now.

        Args:
            tensors: as above; all but lengths are written.
            project: the same in each call.
        """
        tensors.graphs.wait_for_replays()
        if self._padded.numel() > MOST_SYMBOLS:
            self._work(tensors, project)
        else:
            self._replayed(lambda: self._work(tensors, project))
        tensors.begun = True

    def _work(self, tensors: StaticTensors, project: Projection) -> None:
        tensors.begin()
        fused, keys_values, mask = project.fused, tensors.source_kv, tensors.source_mask
        if fused is not None and mask.numel() <= fused.most:
            fused.run(self._encoded, self._padded, keys_values, mask)
        else:
            self._work_unfused(tensors, project)

    def _work_unfused(self, tensors: StaticTensors, project: Projection) -> None:
        padded, (_, source, _) = self._padded, self._encoded.shape
        real = self._encoded.masked_fill(padded.unsqueeze(2), 0)
        if padded.size(0) > 1:  # Rows that are too many look at a zero.
            unseen = padded.clone()
            unseen[:, 0] &= ~padded.all(1)
            padded = unseen
        mask = torch.where(padded, float("-inf"), 0.0).to(tensors.source_mask.dtype)
        tensors.source_kv[:, :, :, :source].copy_(project.whole(real))
        tensors.source_mask[..., :source].copy_(mask[:, None, None, :])
        if source < tensors.source_mask.size(3):  # No number that was there may be a NaN.
            tensors.source_kv[:, :, :, source:].zero_()
            tensors.source_mask[..., source:].fill_(float("-inf"))


class _Copied:
    """Sources that are copied into tensors of their own.

    Args:
        tensors: of the decoder's batches.
        like: (rows, src, dim) what an encoder gives.

    Attributes:
        source: begins batches with them.
    """

    def __init__(self, tensors: StaticTensors, like: Tensor) -> None:
        sizes = tensors.sizes
        self._encoded = like.new_zeros(sizes.sentences, sizes.source, like.size(2))
        self._padded = torch.ones(
            sizes.sentences, sizes.source, dtype=torch.bool, device=like.device
        )
        self.source = _Source(tensors, self._encoded, self._padded)

    def take(self, tensors: StaticTensors, encoded: Tensor, padding: Optional[Tensor]) -> None:
        """Take (rows, src, dim), and (rows, src), true where padded, or None."""
        rows, source, _ = encoded.shape
        tensors.graphs.wait_for_replays()
        self._encoded[:rows, :source].copy_(encoded)
        self._padded.fill_(True)
        mine = self._padded[:rows, :source]
        mine.zero_() if padding is None else mine.copy_(padding)
