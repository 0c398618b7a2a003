"""Any fairseq decoder behind the engine's face: slower, and it holds everything."""

import sys
from typing import Any, Optional

import torch
from fairseq.models import BaseFairseqModel, FairseqEncoder
from fairseq.models.lstm import LSTMDecoder
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.modules.dynamic_convolution import DynamicConv1dTBC, DynamicConv_scripatable
from torch import Tensor

from ..fairseq_compat.beams_of_models import one_beam, reordered, told_beams


class TokenState:
    """What a batch in progress holds: the tokens fed so far and the encoder's output.

    Attributes:
        lengths: (rows,) long, accepted tokens of each row; (0,) before the first call.
        longest: upper bound of ``lengths``, known to the host.
        tokens: (rows, columns) long: accepted tokens, then what the last call fed.
        encoder_out: what the fairseq encoder returned, in its own layout.
    """

    def __init__(self, encoder: FairseqEncoder, encoder_out: Any, capacity: int) -> None:
        self._encoder = encoder
        self._capacity = capacity
        self.encoder_out = encoder_out
        self.tokens = torch.empty(0, 0, dtype=torch.long)
        self.lengths = torch.empty(0, dtype=torch.long)
        self.longest = 0

    def keep(self, lengths: Tensor, longest: int) -> None:
        """Declare how many tokens of each row are accepted: accept and roll back at once.

        Args:
            lengths: (rows,) long, each at most the former length plus the tokens fed since.
            longest: an upper bound of ``lengths``.
        """
        self.lengths = lengths
        self.longest = longest

    def select(self, rows: Tensor) -> None:
        """Keep these rows only, in this order.

        Args:
            rows: (kept,) long, on the decoder's device.
        """
        self.encoder_out = reordered(self._encoder, self.encoder_out, rows)
        if self.tokens.size(0):
            self.tokens = self.tokens.index_select(0, rows)
            self.lengths = self.lengths.index_select(0, rows)

    def fork(self, parents: Tensor, sentences: Tensor, left: Optional[Tensor] = None) -> None:
        """Continue with copies of these rows; see :meth:`.DecoderState.fork`."""
        self.select(parents)

    def feed(self, new_tokens: Tensor, pad: int, least: int = 0) -> Tensor:
        """Put tokens behind the accepted ones.

        Args:
            new_tokens: (rows, new) long.
            pad: fills each row to the right.
            least: columns that the input has at least.

        Returns:
            (rows, longest + new or ``least``) long, the input of a whole forward pass.
        """
        rows, new = new_tokens.shape
        end = max(self.longest + new, least)
        if not self.tokens.size(0):
            self.tokens = new_tokens.new_empty(rows, 0)
            self.lengths = new_tokens.new_zeros(rows)
        if end > self.tokens.size(1):
            size = max(end, self._capacity, 2 * self.tokens.size(1))
            room = new_tokens.new_full((rows, size - self.tokens.size(1)), pad)
            self.tokens = torch.cat([self.tokens, room], dim=1)
        columns = torch.arange(end, device=new_tokens.device)
        positions = self.lengths.unsqueeze(1) + columns[:new]
        self.tokens.scatter_(1, positions, new_tokens)
        behind = columns >= (self.lengths + new).unsqueeze(1)
        return self.tokens[:, :end].masked_fill(behind, pad)


def least_input(decoder: Any) -> int:
    """Tokens that a whole forward pass has to be fed at least, so that it does as fairseq's search.

    Of a shorter input, fairseq's dynamic convolutions normalise only a part of their filters.
    """
    dynamic = DynamicConv1dTBC, DynamicConv_scripatable
    filters = (each.kernel_size for each in decoder.modules() if isinstance(each, dynamic))
    return max(filters, default=0)


def positions_of(decoder: Any) -> int:
    """How many positions a decoder has a table of.

    Where it computes them, there is no limit: with ``--match-source-len``, fairseq's search
    goes beyond the positions that the model names.
    """
    table = getattr(decoder, "embed_positions", decoder)  # what is not known may have a table
    computed = table is None or isinstance(table, SinusoidalPositionalEmbedding)
    if computed or isinstance(decoder, LSTMDecoder):
        return sys.maxsize
    return int(decoder.max_positions())


class UncachedDecoder:
    """Runs a fairseq decoder in full, over the accepted and the new tokens, in every call.

    For decoders that :class:`.CachedDecoder` cannot hold: LSTM, convolution, adaptive
    softmax, anything that is causal.  Same face, same results as fairseq's own.

    Args:
        model: a fairseq model with an encoder and a decoder, in evaluation mode.
    """

    def __init__(self, model: BaseFairseqModel) -> None:
        self.model = model
        self._told_beams = told_beams(model.decoder)
        self._least = least_input(model.decoder)
        self._positions = positions_of(model.decoder)

    def start(self, encoder_out: Any, capacity: int, beams: int = 1) -> TokenState:
        """Begin a batch, with nothing accepted yet.

        Args:
            encoder_out: what ``model.encoder`` returned.
            capacity: target tokens to make room for; more are made room for when needed.
            beams: the most rows that a sentence will have.

        Returns:
            the state for :meth:`logits`.
        """
        return TokenState(self.model.encoder, encoder_out, capacity)

    def logits(self, state: TokenState, tokens: Tensor) -> Tensor:
        """Scores of the token after each of the new ones.

        They are normalised already (log-probabilities), because only the model knows
        how to do it: with an adaptive softmax there are no other logits.

        Args:
            state: from :meth:`start`.
            tokens: (rows, new) long, behind the accepted tokens.

        Returns:
            (rows, new, vocabulary) float32.
        """
        pad = self.model.decoder.dictionary.pad()
        fed = state.feed(tokens, pad, self._least)
        # Behind the longest row, the drafts of shorter ones are given columns that no table has.
        limit = self._positions
        fed = fed[:, : max(limit, self._least)]
        fed[:, limit:] = pad
        with torch.no_grad(), one_beam(self._told_beams):
            output = self.model.decoder(fed, encoder_out=state.encoder_out)
            new = torch.arange(tokens.size(1), device=tokens.device)
            rows = torch.arange(tokens.size(0), device=tokens.device)
            positions = (state.lengths.unsqueeze(1) + new).clamp(max=limit - 1)
            scores = output[0][rows.unsqueeze(1), positions]
            log_probs: Tensor = self.model.get_normalized_probs(
                (scores, output[1]), log_probs=True, sample=None
            )
        return log_probs.float()
