"""A batch in progress whose tensors stay where they are, as CUDA graphs need them.

Sizes are rounded up, so that few graphs serve many batches: rows, new tokens, slots and source
positions that are too many are computed, and nobody reads what they give.
"""

from typing import Any, Mapping, Optional, Tuple

from torch import Tensor

from ..decoder_state import DecoderState
from .cache import StaticCache
from .encoding import StaticEncoding
from .layers import StaticLayers
from .source import Projection, begin, begin_in_place
from .steps import StaticSteps
from .tensors import GRAIN, Pool, Sizes, StaticTensors, leading, rounded


class StaticState(DecoderState):
    """See :class:`.DecoderState`.

    Args:
        pool: lends the tensors.
        encoder_out: what the encoder gave; see :meth:`.CachedDecoder.start`.
        project: makes keys and values of what is encoded. It is the same for all states of a pool.
        capacity: target tokens to make room for; more are made room for when needed.
        beams: rows that each sentence may have.
    """

    def __init__(
        self,
        pool: Pool,
        encoder_out: Mapping[str, Any],
        project: Projection,
        capacity: int,
        beams: int,
    ) -> None:
        # Drafts reach behind the limit of a row.
        capacity += GRAIN
        if isinstance(encoder_out, StaticEncoding) and encoder_out.fresh:
            sentences = encoder_out.shape[0]
            source = encoder_out.tensors.tokens.size(1)
            self._lease = pool.lend(Sizes.of(sentences, beams, source, capacity))
            begin_in_place(self._lease.tensors, project, encoder_out)
        else:
            encoded = encoder_out["encoder_out"][0].detach().transpose(0, 1)
            sentences, source, _ = encoded.shape
            self._lease = pool.lend(Sizes.of(sentences, beams, source, capacity))
            padding = next(iter(encoder_out["encoder_padding_mask"]), None)
            begin(self._lease.tensors, project, encoded, padding)
        tensors = self._lease.tensors
        self.cache: StaticCache
        super().__init__(
            StaticCache(tensors, sentences),
            leading(tensors.source_kv, sentences, 1),
            leading(tensors.source_mask, sentences),
            None,
            beams,
        )

    def run(self, decoder: Any, embedded: Tensor, limits: Optional[Tensor]) -> Tensor:
        """The layers of a decoder; see :meth:`.CachedDecoder.forward`.

        The next call overwrites what it returns.
        """
        rows, new, _ = embedded.shape
        sentences, fed = self.source_kv.size(1), rounded(new)
        tensors, visible = self.with_room(fed)
        key = rounded(sentences), rows // sentences, fed, visible, limits is not None
        layers = tensors.calls.get(key, lambda: StaticLayers(decoder, tensors, *key))
        found: Tensor = layers.run(decoder, tensors, embedded, self.lengths, limits)
        return found

    def choose(self, decoder: Any, first: Tensor, count: int, suppressed_id: int) -> Tensor:
        """Greedy decoding of some steps, in which nobody waits for the device.

        ``first`` and all chosen tokens are fed: their keys and values go behind the accepted
        ones, and count from :meth:`keep` on. There is one row a sentence.

        Args:
            decoder: a :class:`.CachedDecoder`.
            first: (rows, 1) long, what each row is fed first.
            count: tokens to choose.
            suppressed_id: a symbol that is not chosen.

        Returns:
            (rows, count) long, which the next call overwrites.

        Raises:
            PluginError: as for :meth:`.TargetEmbedding.of_tokens`.
        """
        tensors, visible = self.with_room(count + 1)
        # A captured graph reads the table of positions that there was.
        table = decoder.embedding.reach(self.longest, count + 1)
        key = rounded(first.size(0)), count, visible, suppressed_id
        steps = tensors.calls.get((*key, table), lambda: StaticSteps(tensors, *key))
        chosen: Tensor = steps.run(decoder, tensors, first, self.lengths)
        return chosen

    def with_room(self, new: int) -> Tuple[StaticTensors, int]:
        """The tensors, with room for ``new`` more entries a row than the longest row has.

        Returns:
            also how many slots are looked at.
        """
        needed = rounded(self.longest + new, GRAIN)
        self.cache.written = max(self.cache.written, self.longest + new)
        if needed > self._lease.tensors.sizes.capacity:
            sentences = self.source_kv.size(1)
            tensors = self._lease.grow(needed)
            self.cache.store = tensors.store
            self.source_kv = tensors.source_kv[:, :sentences]
            self.source_mask = tensors.source_mask[:sentences]
        return self._lease.tensors, needed

    def _select_sources(self, sentences: Tensor) -> None:
        tensors, left = self._lease.tensors, sentences.size(0)
        for whole, own, dim in (
            (tensors.source_kv, self.source_kv, 1),
            (tensors.source_mask, self.source_mask, 0),
        ):
            assert own is not None
            whole.narrow(dim, 0, left).copy_(own.index_select(dim, sentences))
        self.source_kv = tensors.source_kv[:, :left]
        self.source_mask = tensors.source_mask[:left]
