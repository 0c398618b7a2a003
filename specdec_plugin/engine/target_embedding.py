"""What the layers of a decoder take: vectors of tokens, and of masks, at their positions."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn

from .decoder_layer import Norm, linear_of
from .fused.embedding import FusedEmbedding, fused_embedding
from .linear import Linear
from .positions import PositionTable


class TargetEmbedding:
    """Vectors of a decoder's tokens. Every token has a position, ``pad`` too.

    Methods that end in ``_within`` look at no number, so they do not wait for a device. They serve
    positions that :meth:`reach` made sure of.

    Args:
        decoder: fairseq's Transformer decoder.
        dtype: of the vectors.
        fused: whether to try kernels that make all vectors of an iteration at once.

    Attributes:
        table: (symbols, dim) token vectors, not scaled.
        scale: of token vectors.
        projected: whether token vectors have another dimension than the layers.
        masks: (count, dim) what may be fed where there is no token yet, the ``mask_vectors``
            of the decoder scaled as token vectors are; ``None`` where it has none.
    """

    def __init__(self, decoder: Any, dtype: torch.dtype, fused: bool) -> None:
        self.dtype = dtype
        self.table = decoder.embed_tokens.weight.detach().to(dtype)
        self.scale = float(decoder.embed_scale)
        masks = getattr(decoder, "mask_vectors", None)
        self.masks = None if masks is None else (self.scale * masks.detach()).to(dtype)
        self._project = optional_linear(decoder.project_in_dim, dtype)
        self.projected = self._project is not None
        self._positions: Optional[PositionTable] = None
        if decoder.embed_positions is not None:
            self._positions = PositionTable(decoder.embed_positions, dtype)
        self._norm = optional_norm(decoder.layernorm_embedding, dtype)
        self._fused: Optional[FusedEmbedding] = None
        if fused and not self.projected:
            self._fused = fused_embedding(self.table, self.scale)

    def of_tokens(self, tokens: Tensor, starts: Tensor, longest: Optional[int] = None) -> Tensor:
        """Vectors of tokens.

        Args:
            tokens: (rows, new) long.
            starts: (rows,) long, position of each row's first token in its sentence.
            longest: an upper bound of ``starts``, exact for one row; if ``None`` it is
                read from ``starts``, which waits for the device.

        Returns:
            (rows, new, dim).

        Raises:
            PluginError: a learned position table ends before; see :class:`PositionTable`.
        """
        return self._at_positions(self._looked_up(tokens), self.scale, starts, longest)

    def of_tokens_within(self, tokens: Tensor, starts: Tensor) -> Tensor:
        """:meth:`of_tokens` within :meth:`reach`."""
        return self._at_positions_within(self._looked_up(tokens), self.scale, starts)

    def of_vectors(self, vectors: Tensor, starts: Tensor, longest: Optional[int] = None) -> Tensor:
        """:meth:`of_tokens` for vectors that are made already: adds positions and normalises.

        Args:
            vectors: (rows, new, dim), scaled as they shall be; not changed.
            starts: (rows,) long.
            longest: as for :meth:`of_tokens`.

        Returns:
            (rows, new, dim).

        Raises:
            PluginError: as for :meth:`of_tokens`.
        """
        return self._at_positions(vectors.to(self.dtype), 1.0, starts, longest)

    def of_vectors_within(self, vectors: Tensor, starts: Tensor) -> Tensor:
        """:meth:`of_vectors` within :meth:`reach`."""
        return self._at_positions_within(vectors.to(self.dtype), 1.0, starts)

    def of_draft(self, inputs: Tensor, draft: Tensor, lengths: Tensor) -> Tensor:
        """The newest token of each row and a draft behind it, within :meth:`reach`.

        Args:
            inputs: (rows, …) long, all tokens of each row.
            draft: (rows, m) long.
            lengths: (rows,) long, the index of the newest token.

        Returns:
            (rows, m + 1, dim).
        """
        if self._fused is None:
            newest = inputs.gather(1, lengths.unsqueeze(1))
            return self.of_tokens_within(torch.cat([newest, draft], dim=1), lengths)
        return self._normalised(self._fused.of_draft(inputs, draft, lengths, self.positions()))

    def of_block(
        self, inputs: Tensor, held: Tensor, lengths: Tensor, masks: Tensor, new: int
    ) -> Optional[Tuple[Tensor, Tensor, Tensor, Tensor]]:
        """New tokens of each row, and masks behind them, within :meth:`reach`.

        Args:
            inputs: (rows, …) long, all tokens of each row.
            held: (rows,) long, the index of the first token that is fed.
            lengths: (rows,) long, the index of the newest one.
            masks: (k, dim), of :attr:`masks`.
            new: tokens of a row, at most.

        Returns:
            (rows, new + k, dim); (rows, new + k) long, how many slots each vector sees: tokens see
            those before, masks see all; (rows, k, 1) long, the index of each mask in its row; and
            (rows,) long, the newest tokens. None where the kernels do not run.
        """
        if self._fused is None:
            return None
        table = self.positions()
        found, *others = self._fused.of_block(inputs, held, lengths, masks, new, table)
        limits, where, newest = others
        return self._normalised(found), limits, where, newest

    def reach(self, longest: int, new: int) -> int:
        """Make sure of vectors for ``new`` positions from ``longest`` on; how many there are.

        Raises:
            PluginError: as for :meth:`of_tokens`.
        """
        positions = self.positions(longest, new)
        return 0 if positions is None else positions.size(0)

    def positions(self, longest: int = 0, new: int = 1) -> Optional[Tensor]:
        """(positions, dim) all vectors of positions, as for :meth:`reach`; None: there are none."""
        return None if self._positions is None else self._positions.reach(longest, new)

    def scaled(self, tokens: Tensor) -> Tensor:
        """(…) long to (…, dim): scaled vectors of tokens, without positions."""
        return self.scale * torch.embedding(self.table, tokens)

    def _looked_up(self, tokens: Tensor) -> Tensor:
        """(rows, new) to (rows, new, dim), not yet scaled."""
        vectors = torch.embedding(self.table, tokens)
        if self._project is not None:
            vectors = self._project(vectors.flatten(0, 1)).view(*tokens.shape, -1)
        return vectors

    def _at_positions(
        self, vectors: Tensor, scale: float, starts: Tensor, longest: Optional[int]
    ) -> Tensor:
        """``scale * vectors`` + positions, normalised."""
        positions = None
        if self._positions is not None:
            if longest is None:
                longest = int(starts.max())
            positions = self._positions.vectors(starts, longest, vectors.size(1))
        return self._added(vectors, scale, positions)

    def _at_positions_within(self, vectors: Tensor, scale: float, starts: Tensor) -> Tensor:
        """:meth:`_at_positions` within :meth:`reach`."""
        positions = None
        if self._positions is not None:
            positions = self._positions.within(starts, vectors.size(1))
        return self._added(vectors, scale, positions)

    def _added(self, vectors: Tensor, scale: float, positions: Optional[Tensor]) -> Tensor:
        """``scale * vectors + positions``, normalised."""
        if positions is not None:
            vectors = torch.add(positions, vectors, alpha=scale)
        elif scale != 1.0:
            vectors = vectors * scale
        return self._normalised(vectors)

    def _normalised(self, vectors: Tensor) -> Tensor:
        return vectors if self._norm is None else self._norm(vectors)


def optional_linear(module: Optional[nn.Linear], dtype: torch.dtype) -> Optional[Linear]:
    """A projection that a decoder may have."""
    return None if module is None else linear_of(dtype, module)


def optional_norm(module: Optional[nn.LayerNorm], dtype: torch.dtype) -> Optional[Norm]:
    """A layer norm that a decoder may have."""
    return None if module is None else Norm(module, dtype)
