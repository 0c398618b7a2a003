"""Drafts of a block-NAT model (Xia et al., 2023; Ge et al., 2022)."""

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor

from ...decoding.captured_iterations import CapturedIterations
from ...decoding.drafter import Drafter, confident
from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.operations import Work
from ...decoding.state import Batch, Draft, Rows
from ...decoding.statistics import Statistics
from ...engine import Backend, CachedDecoder, native
from ...engine.encoder import build_encoder
from ...engine.graphs.tensors import chosen
from ...engine.output_projection import Scores
from ...engine.threads import kernel_threads, one_thread
from ...errors import PluginError
from ...fairseq_compat.late_input import on_host
from ...models.block_nat import BlockNATModel
from ...vocab.clustered_projection import projection_by
from ...vocab.clusters import Clusters
from . import cost
from .captured import CapturedBlock
from .chain import Chain
from .native import BlockDraftCall


class NATDrafter(Drafter):
    """Predicts the next k tokens at once.

    With a causal prefix the decoder is fed only what is new, [new tokens ; k masks],
    and forgets the masks afterwards. Otherwise prefix tokens depend on the masks
    after them, and everything is computed again. Behind the last learned position, or for
    longer sources than its own encoder has learned, it drafts nothing.

    Args:
        model: the drafter; its own encoder runs unless it shares the verifier's.
        block_size: k, at most what the model was trained with.
        shared: which of the verifiers' encoder outputs it reads, if it shares one.
        dtype: the type it computes in; None keeps the model's.
        with_scores: also return the drafter's log-probabilities.
        confidence: a draft stops where the drafter's own probability that all of it is
            right would fall below this; 0 drafts k tokens always.
        statistics: where it is counted what the model is fed.
        clusters: of the states that are projected, or None.
        backend: who computes; None chooses.
        lengths: shorter drafts that the loop may choose, rising. A model trained with k masks
            predicts nearly as well with fewer.

    Attributes:
        engine: runs its decoder.
        chain: chooses the tokens of a block one after another; None: each for itself.
        causal: whether tokens see no masks.
        positions: how many the decoder has learned; None where they do not end.
    """

    def __init__(
        self,
        model: BlockNATModel,
        block_size: int,
        *,
        shared: Optional[int] = None,
        dtype: Optional[torch.dtype] = None,
        with_scores: bool = False,
        confidence: float = 0.0,
        statistics: Optional[Statistics] = None,
        clusters: Optional[Clusters] = None,
        backend: Optional[Backend] = None,
        lengths: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.statistics = Statistics() if statistics is None else statistics
        self.positions = learned_positions(model.decoder)
        self.block_size = min(block_size, self.positions or block_size)
        shorter = [each for each in lengths if each < self.block_size]
        self.lengths, self.length = (*shorter, self.block_size), self.block_size
        self.shared = shared
        self._sources = learned_positions(model.encoder) if shared is None else None
        self.with_scores = with_scores
        self.confidence = confidence
        self.causal = model.decoder.causal_prefix
        self.engine = CachedDecoder(model.decoder, dtype, projection_by(clusters), backend)
        self._encode = build_encoder(model, self.engine.backend)
        head = model.decoder.chain
        self.chain = None if head is None else Chain(head, self.engine)
        self._scratch: Optional[int] = None  # of the kernel, where it drafts
        if self._drafts_natively():
            self._scratch = native.own(self, "block_draft")
        self._call = BlockDraftCall(confidence=confidence)
        self._buffers = {each: DraftBuffer(each) for each in self.lengths}
        self._batch: Any = None
        self._state: Any = None
        self._cached: Dict[int, int] = {}  # inputs in the cache, by index in the batch

    def release(self) -> None:
        """Free what the kernels have packed, for a model that serves this drafter alone."""
        self.engine.release()
        if self.chain is not None and not self.with_scores:
            self.chain.release()

    @property
    def _chains_natively(self) -> bool:
        """Whether the kernels choose a block's tokens one after another. They give no scores."""
        chained = self.chain is not None and self.chain.native is not None
        return chained and not self.with_scores

    def _drafts_natively(self) -> bool:
        """Whether the kernels feed a block and choose its tokens in one call."""
        return self._chains_natively and self.causal and self.engine.on_torch is None

    @property
    def stops_early(self) -> bool:
        """Whether positions behind the end of a draft cost hardly anything."""
        return self._chains_natively and self.confidence > 0

    def start(self, batch: Batch) -> None:
        """Begin a batch; its source is read when the first draft is wanted."""
        self._batch = batch
        self._state = None
        self._cached = {}

    def stop(self) -> None:
        """See :meth:`.Drafter.stop`."""
        self._batch = self._state = None

    def _encode_source(self, batch: Batch) -> None:
        """Encode the source, or take the verifier's encoding of it."""
        if self._too_long(batch):
            raise PluginError(
                f"The drafter has learned {self._sources} source positions, and a sentence has "
                "more tokens: give shorter sentences, or decode with --decoding greedy."
            )
        if self.shared is None:
            encoded = self._encode(batch.net_input)
        else:
            encoded = batch.encoder_outs[self.shared]
        self.statistics.drafter_sources += batch.size
        capacity = min(batch.constraints.max_len + 1 + self.block_size, 256)
        self.engine.refresh()
        self._state = self.engine.start(encoded, capacity)
        if self.chain is not None:
            self.chain.repack()

    def too_late(self, batch: Batch, rows: Rows) -> bool:
        """See :meth:`.Drafter.too_late`.

        It is where rows have more tokens than are likely to come. As many are expected as the
        longest source of the batch has. A source that is too long is never read.
        """
        return self._skips(batch) or 2 * rows.shortest > batch.source

    def cost(self, work: Work, alone: bool = True) -> float:
        """What was fed, and scored."""
        return cost.operations(self, work, alone and self.stops_early)

    def propose(self, rows: Rows) -> Draft:
        """A block of k tokens: the most probable ones, or those that are drawn.

        A chain head chooses them one after another. Without one, each position is predicted for
        itself, and the rules of the batch hold.
        """
        if self._at_end(rows):
            return rows.empty_draft()
        if self._state is None:
            self._encode_source(self._batch)
        state = self._state
        # Rows were fed different counts, and some of them may have left since.
        fed = [self._cached.get(index, 0) for index in rows.order]
        new = max(length + 1 - before for length, before in zip(rows.host_lengths, fed))
        state.keep(state.lengths, max(fed))
        self._count(sum(rows.host_lengths) + rows.size - sum(fed), rows.size)
        if self._scratch is not None and self._fits(new):
            return self._draft_natively(rows, new)
        hidden = self._feed(rows, new)
        if self.causal:
            self._note_cached(rows, rows.lengths + 1)
        if self.chain is not None:
            return self._chained(hidden, rows)
        scored = self.engine.projection.scores(hidden, rows.temperature, rows.constraints.pad)
        rows.constraints.apply(
            scored.values, rows.lengths, rows.shortest, rows.longest, scored.normalisers
        )
        tokens = rows.best(scored)
        scores = scored.of(tokens)
        return self._stopped(Draft(tokens, confident(scores, self.confidence), scores))

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """Draft for a single row and verify; see :meth:`.Drafter.iterate`."""
        if rows.size > 1 or self._scratch is None or self._state is None:
            return None
        before = self._cached.get(rows.order[0], 0)
        new = rows.longest + 1 - before
        if not self._fits(new) or self._at_end(rows):
            return None
        self._state.keep(self._state.lengths, before)

        def run(*arguments: Any) -> None:
            own = self._describe(rows, new)
            native.library().block_draft_iterate(*own, *arguments, kernel_threads())

        buffer = self._buffers[self.length]
        buffer.fit(1, self._call)
        found = verification.repeat(rows, buffer.draft, most, run)
        if found is None:
            return None
        done, fed = found.iterations, rows.longest - found.outcome.added[0] + 1
        self._state.keep(self._state.lengths, fed)
        self._cached = {rows.order[0]: fed}
        self._count(fed - before, done)
        return found

    def iterate_captured(
        self, rows: Rows, iterations: CapturedIterations, most: int
    ) -> Optional[Repeated]:
        """Draft and verify on a GPU; see :meth:`.Drafter.iterate_captured`."""
        if self._at_end(rows):
            return None
        if self._state is None:
            self._encode_source(self._batch)
        before = [self._cached.get(index, 0) for index in rows.order]
        new = max(length + 1 - fed for length, fed in zip(rows.host_lengths, before))
        # More tokens than an iteration adds are fed by :meth:`propose` first.
        if not CapturedBlock.supports(self, rows) or new > self.length + 1:
            return None
        block = CapturedBlock(self, self._state, rows.constraints.pad)
        found = iterations.repeat(rows, most, block)
        if found is None:
            return None
        last = found.outcome.added
        fed = [length - added + 1 for length, added in zip(rows.host_lengths, last)]
        if not all(found.outcome.ended):
            self._state.keep(rows.lengths - rows.lengths.new_tensor(last) + 1, max(fed))
        self._cached = dict(zip(rows.order, fed))
        self._count(sum(fed) - sum(before), len(found.added))
        return found

    def _count(self, tokens: int, blocks: int) -> None:
        """Count what the model was fed."""
        self.statistics.drafter_tokens += tokens
        self.statistics.drafter_blocks += blocks
        self.statistics.drafter_masks += blocks * self.length

    def _at_end(self, rows: Rows) -> bool:
        """Whether a row is where no position was learned for a draft, or the source too long."""
        if self._skips(self._batch):
            return True
        return self.positions is not None and rows.longest + 1 >= self.positions

    def _too_long(self, batch: Batch) -> bool:
        """Whether the drafter's own encoder has learned fewer positions than a source has."""
        if self._sources is None or batch.source <= self._sources:
            return False
        return int(on_host(batch.net_input)["src_lengths"].max()) > self._sources  # but padding

    def _skips(self, batch: Batch) -> bool:
        """Whether a batch with too long a source is decoded without drafts."""
        return not self.with_scores and self._too_long(batch)

    def _draft_natively(self, rows: Rows, new: int) -> Draft:
        """Feed at most ``new`` tokens a row and k masks; the next draft overwrites this one."""
        native.library().block_draft_run(*self._describe(rows, new), kernel_threads())
        self._note_cached(rows, self._state.lengths)
        return self._buffers[self.length].draft

    def _describe(self, rows: Rows, new: int) -> List[Any]:
        """The arguments of the kernels that feed at most ``new`` tokens a row and k masks."""
        assert self.chain is not None
        call, state, buffer = self._call, self._state, self._buffers[self.length]
        call.block = self.length
        buffer.fit(rows.size, call)
        self.engine.describe(state, new + call.block, call.stack)
        describe_rows(rows, call.rows)
        call.suppressed_id = rows.constraints.pad
        call.fed = state.lengths.data_ptr()
        return [self._scratch, self.engine.stack, self.chain.native, ctypes.byref(call)]

    def _note_cached(self, rows: Rows, lengths: Tensor) -> None:
        """All tokens of ``rows`` are in the cache, ``lengths`` of each."""
        self._state.keep(lengths, rows.longest + 1)
        self._cached = {index: length + 1 for index, length in zip(rows.order, rows.host_lengths)}

    def _fits(self, new: int) -> bool:
        """Whether each input, masks too, has a learned position, as the kernels need."""
        return self.positions is None or new + self.length <= self.positions

    def _stopped(self, draft: Draft) -> Draft:
        """Without the columns that no row drafts."""
        # Elsewhere the host would have to wait for the lengths, and unused columns cost little.
        if self.confidence <= 0 or draft.tokens.device.type != "cpu":
            return draft
        width = int(draft.lengths.max())
        scores = None if draft.scores is None else draft.scores[:, :width]
        return Draft(draft.tokens[:, :width], draft.lengths, scores)

    def _chained(self, hidden: Tensor, rows: Rows) -> Draft:
        """A block whose tokens are chosen one after another."""
        assert self.chain is not None
        last = rows.last().squeeze(1)
        if not self.with_scores:
            drafted = self.chain.draft(hidden, last, self.confidence, rows.constraints.pad, rows)
            return self._stopped(Draft(*drafted))

        def rules(scored: Scores, position: int) -> None:
            rows.constraints.apply(
                scored.values,
                rows.lengths + position,
                rows.shortest + position,
                rows.longest + position,
                scored.normalisers,
            )

        numbers = rows.size * self.engine.embedding.table.size(0)
        with one_thread(numbers if self.engine.by_kernels else None):
            tokens, scores = self.chain.choose(hidden, last, rows.constraints.pad, rules)
        return Draft(tokens, confident(scores, self.confidence), scores)

    def _feed(self, rows: Rows, new: int) -> Tensor:
        """States at k masks behind the new tokens, at most ``new`` a row. (rows, k, dim)."""
        if self.causal and self.engine.on_torch is None and self._fits(new):
            counts = rows.lengths + 1 - self._state.lengths
            return self.engine.feed_block(self._state, rows.inputs, counts, new, self.length)
        return self._feed_one(rows, new) if rows.size == 1 else self._feed_many(rows, new)

    def _feed_one(self, rows: Rows, new: int) -> Tensor:
        """A single row: plain slices instead of gathering. (1, k, dim)."""
        state, end = self._state, rows.longest + 1
        tokens = self.engine.embedding.of_tokens(
            rows.inputs[:, end - new : end], state.lengths, state.longest
        )
        masks = self.engine.embedding.of_vectors(self._masks(), rows.lengths + 1, end)
        x = torch.cat([tokens, masks], dim=1)
        first = 1 + torch.arange(end - new, end + self.length, device=x.device)
        limits = first.masked_fill(first > end, end + self.length).unsqueeze(0)
        if not self.causal:
            limits = limits.clamp(min=end + self.length)
        return self.engine.forward(state, x, limits)[:, new:]

    def _feed_many(self, rows: Rows, new: int) -> Tensor:
        """Rows with different numbers of new tokens. (rows, k, dim)."""
        state = self._state
        self.engine.embedding.reach(state.longest, new)
        self.engine.embedding.reach(rows.longest + 1, self.length)
        block = self.arranged(rows.inputs, rows.lengths, state.lengths, new)
        return block.at_masks(self.engine.forward(state, block.embedded, block.limits))

    def arranged(self, inputs: Tensor, lengths: Tensor, held: Tensor, new: int) -> "Arranged":
        """What is fed where rows have different numbers of new tokens.

        The host reads no value. So the tables of positions have to :meth:`reach
        <.TargetEmbedding.reach>` far enough before.

        Args:
            inputs: (rows, …) all tokens of each row.
            lengths: (rows,) tokens that are chosen, of ``lengths + 1`` that can be fed.
            held: (rows,) tokens that the decoder has been fed.
            new: tokens of the row that has most new ones; no row has more.
        """
        fed = None
        if self.causal:
            fed = self.engine.embedding.of_block(inputs, held, lengths, self._masks()[0], new)
        if fed is not None:
            return Arranged(*fed)
        k = self.length
        counts = (lengths + 1 - held).unsqueeze(1)  # (rows, 1) new tokens
        # The widest row decides; behind their masks, others feed undefined values.
        slot = torch.arange(new + k, device=counts.device)
        source = (held.unsqueeze(1) + slot[:new]).clamp(max=inputs.size(1) - 1)
        tokens = self.engine.embedding.of_tokens_within(inputs.gather(1, source), held)
        masks = self._masks().expand(inputs.size(0), -1, -1)
        masks = self.engine.embedding.of_vectors_within(masks, lengths + 1)
        where = (counts + slot[:k]).unsqueeze(2)
        x = torch.cat([tokens, masks], dim=1).scatter(1, where.expand_as(masks), masks)
        seen = (lengths + 1 + k).unsqueeze(1)
        own = held.unsqueeze(1) + slot + 1
        token = (slot < counts) if self.causal else torch.zeros_like(slot < counts)
        return Arranged(x, torch.where(token, own, seen), where)

    def _masks(self) -> Tensor:
        """(1, k, dim) scaled mask vectors."""
        assert self.engine.embedding.masks is not None
        return self.engine.embedding.masks[: self.length].unsqueeze(0)

    def select(self, rows: Tensor) -> None:
        if self._state is None:
            self._batch = self._batch.left(rows)
        else:
            self._state.select(rows)


class Arranged(NamedTuple):
    """New tokens and masks of rows, as a decoder is fed.

    Attributes:
        embedded: (rows, new + k, dim).
        limits: (rows, new + k) long, slots that each of them sees.
        where: (rows, k, 1) long, the index of each mask in its row.
        newest: (rows,) long, the last token of each row, where a kernel has read it.
    """

    embedded: Tensor
    limits: Tensor
    where: Tensor
    newest: Optional[Tensor] = None

    def at_masks(self, states: Tensor) -> Tensor:
        """(rows, k, any) of states (rows, new + k, any)."""
        return chosen(states, self.where)


def learned_positions(stack: Any) -> Optional[int]:
    """How many positions an encoder or a decoder has learned; None where they do not end."""
    table = getattr(stack, "embed_positions", None)
    return table.max_positions if isinstance(table, LearnedPositionalEmbedding) else None
