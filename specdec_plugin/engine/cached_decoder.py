"""A fairseq Transformer decoder that takes several new tokens a call for each ragged row."""

import functools
from typing import Any, Callable, List, Mapping, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.models.speech_to_text.s2t_transformer import TransformerDecoderScriptable
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from ..models.blockwise_transformer import LearnedFirstDecoder
from . import native
from .backend import Backend, choose_backend
from .decoder_layer import DecoderLayer, every_layer
from .decoder_state import DecoderState
from .fused.layers import FusedLayers, fused_layers
from .fused.source import FusedSource, fused_source
from .graphs.source import Projection
from .graphs.state import StaticState
from .graphs.tensors import Pool, Shape, StaticTensors
from .kv_cache import KVCache
from .linear import Linear, NativeLinear, parameters_of
from .native_layers import NativeLayers
from .output_projection import OutputProjection
from .ragged_encoding import RaggedEncoding
from .spans import Spans, amid
from .target_embedding import TargetEmbedding, optional_linear, optional_norm
from .weights import Packed

EncoderOut = Mapping[str, List[Tensor]]

#: Decoders that compute what this engine computes. That of fairseq's models of speech calls the
#: plain one's methods by other names.
_KNOWN = (TransformerDecoderBase, TransformerDecoderScriptable, LearnedFirstDecoder)


class CachedDecoder(Packed):
    """Runs a fairseq Transformer decoder over its own weights, in evaluation mode always.

    A call takes ``new`` tokens for each row and computes them only: the keys and
    values of the accepted tokens are cached.  It never advances the rows; the
    caller does, with ``state.keep(lengths, longest)``, when it knows what it accepts.

    Args:
        decoder: fairseq's decoder; see :meth:`unsupported`.
        dtype: type to run in, the fairseq model staying as it is; ``None`` is the model's.
        project: makes the output projection of what :class:`OutputProjection` takes.
        backend: who computes; ``None`` chooses.
        begins: whether it has :meth:`start`; otherwise it runs on states that another one of the
            same decoder began, and packs nothing for it.

    Attributes:
        width: of what the layers take, ``dim`` below.
        embedding: what the layers take.
        on_torch: why PyTorch's operators run this decoder, in a few words; ``None`` where the
            native kernels do, from tokens to states.
    """

    def __init__(
        self,
        decoder: TransformerDecoderBase,
        dtype: Optional[torch.dtype] = None,
        project: Callable[..., OutputProjection] = OutputProjection,
        backend: Optional[Backend] = None,
        begins: bool = True,
    ) -> None:
        # The whole decoder is looked at: in training, it may call its projection in other ways.
        super().__init__(decoder)
        self.decoder = decoder
        self.backend = backend or choose_backend(decoder.embed_tokens.weight.device)
        first_head = getattr(decoder, "first_head", None)
        self.projection = project(decoder, dtype, first_head, self.backend)
        self._dtype, self._begins = dtype, begins
        self.repack()

    @staticmethod
    def unsupported(decoder: nn.Module, attends: bool = True) -> Optional[str]:
        """Why this engine cannot hold ``decoder``, in a few words; ``None`` if it can.

        Args:
            decoder: fairseq's decoder.
            attends: see :meth:`.DecoderLayer.unsupported`.
        """
        if not isinstance(decoder, TransformerDecoderBase):
            return f"{type(decoder).__name__} is not a Transformer decoder"
        known: Any = [each for each in _KNOWN if isinstance(decoder, each)][-1]
        for name in ("forward", "extract_features", "extract_features_scriptable", "output_layer"):
            if getattr(type(decoder), name) is not getattr(known, name):
                return f"{type(decoder).__name__} has its own {name}()"
        if decoder.adaptive_softmax is not None:
            return "it has an adaptive softmax"
        if type(decoder.output_projection) is not nn.Linear:
            return f"its output projection is a {type(decoder.output_projection).__name__}"
        if decoder.output_projection.in_features != decoder.output_embed_dim:
            return "its output projection has another width than its layers"
        if decoder.cross_self_attention:
            return "it attends to source and target at once (--cross-self-attention)"
        if decoder.quant_noise is not None:
            return "it has a quantization-noise layer behind its embedding"
        if type(decoder.embed_tokens) is not nn.Embedding:
            return f"its embedding is a {type(decoder.embed_tokens).__name__}"
        if not every_layer(decoder):
            return "it has no layers (--decoder-layers 0)"
        reasons = (DecoderLayer.unsupported(layer, attends) for layer in every_layer(decoder))
        return next((reason for reason in reasons if reason is not None), None)

    @staticmethod
    def unsupported_alone(decoder: Any, backend: Backend) -> Optional[str]:
        """Why the kernels cannot run a decoder that reads no source; ``None`` if they can.

        Args:
            decoder: of a language model of fairseq.
            backend: who computes.
        """
        reason = CachedDecoder.unsupported(decoder, attends=False)
        if reason is not None:
            return reason
        every, dtype = every_layer(decoder), decoder.embed_tokens.weight.dtype
        return NativeLayers.unsupported(every, backend, dtype)

    def repack(self) -> None:
        """See :class:`Packed`; the projection does so too."""
        self.projection.repack()
        super().repack()

    def release(self) -> None:
        """Free the model's layers where the kernels have packed them: they are not read again.

        For a model that serves this engine alone; it cannot be run or trained otherwise
        afterwards.
        """
        if self._native is not None:
            self.weights.release(self.decoder.layers)

    def _resized(self) -> bool:
        return bool(self.decoder.embed_tokens.weight.shape != self.embedding.table.shape)

    def _pack(self) -> None:
        layers = every_layer(self.decoder)
        native = self._choose_types(layers)
        self._pack_ends()
        self._pack_layers(layers, native)

    def _choose_types(self, layers: List[Any]) -> bool:
        """Whether the kernels run the layers; and the types of weights and numbers."""
        decoder, embedding = self.decoder, self.decoder.embed_tokens.weight
        wanted = self._dtype or embedding.dtype
        self.on_torch = NativeLayers.unsupported(layers, self.backend, wanted)
        native = self.on_torch is None
        if native and (decoder.project_in_dim is not None or decoder.project_out_dim is not None):
            self.on_torch = "its embedding is projected (--decoder-embed-dim, --decoder-output-dim)"
        if not wanted.is_floating_point and not native:
            wanted = embedding.dtype  # PyTorch's operators have no such products
        # The kernels keep weights in the wanted type, and compute in float32.
        self.weight_type = wanted
        self.dtype = torch.float32 if native else wanted
        self.device = embedding.device
        return native

    def _pack_ends(self) -> None:
        """What stands before the layers, and between them and the projection."""
        dtype = self.dtype
        self.embedding = TargetEmbedding(self.decoder, dtype, fused=self.backend.static)
        self._project_out = optional_linear(self.decoder.project_out_dim, dtype)
        self._mask_table = torch.empty(0, 0, dtype=dtype, device=self.device)
        self._ordinals = torch.empty(0, dtype=torch.long, device=self.device)

    def _pack_layers(self, layers: List[Any], native: bool) -> None:
        """The layers, for the kernels or for PyTorch's operators."""
        decoder, dtype = self.decoder, self.dtype
        self._heads, self.width = layers[0].self_attn.num_heads, layers[0].embed_dim
        linear: Any = NativeLinear if native else Linear.of
        form = native, self.weight_type
        attentions = [each.encoder_attn for each in layers if each.encoder_attn is not None]
        pairs = [each for attention in attentions for each in (attention.k_proj, attention.v_proj)]
        self._source_in: Any = None  # a language model reads no source
        if pairs and self._begins:
            self._source_in = self._shared(
                ("source", *form), lambda: linear(*parameters_of(*pairs), self.weight_type)
            )
        self._native: Optional[NativeLayers] = None
        self._layers: List[DecoderLayer] = []
        if native:
            self._native = self._shared(("layers", *form), lambda: self._native_layers(layers))
        else:
            self._layers = [
                self._shared(("layer", index, *form), functools.partial(DecoderLayer, layer, dtype))
                for index, layer in enumerate(layers)
            ]
        self._final_norm = None if native else optional_norm(decoder.layer_norm, dtype)
        self._fused: Optional[FusedLayers] = None
        if self.backend.static and not native:
            self._fused = fused_layers(self._layers, self._final_norm)
        self._pool: Optional[Pool] = None
        self._fused_source: Optional[FusedSource] = None
        if not native and self.backend.static:
            head_dim = layers[0].self_attn.head_dim
            self._pool = Pool(Shape(len(layers), self._heads, head_dim, dtype, self.device))
            self._fused_source = fused_source(self._source_in, len(layers), self._heads)

    def _native_layers(self, layers: List[Any]) -> NativeLayers:
        """The layers, for the kernels."""
        embedding = self.embedding
        made = NativeLayers(layers, self.decoder.layer_norm, self.weight_type)
        if not embedding.projected:
            norm = self.decoder.layernorm_embedding
            made.embed_with(embedding.table, embedding.scale, embedding.masks, norm)
        return made

    @property
    def by_kernels(self) -> bool:
        """Whether the kernels run it, and its projection."""
        return self.on_torch is None and self.projection.by_kernels

    def start(self, encoder_out: EncoderOut, capacity: int, beams: int = 1) -> DecoderState:
        """Begin a batch: project its source once for all layers, with nothing accepted yet.

        There is one row a sentence, until :meth:`DecoderState.fork`. Where weights may have
        changed, :meth:`refresh` has to be called before.

        Args:
            encoder_out: what fairseq's Transformer encoder returned: ``encoder_out``
                [(src, rows, dim)], ``encoder_padding_mask`` [(rows, src)] or [].
            capacity: target tokens to make room for; more are made room for when needed.
            beams: the most rows that a sentence will have.

        Returns:
            the state for :meth:`forward`.
        """
        if self._pool is not None:
            project = Projection(self._project_source, self._fused_source)
            return StaticState(self._pool, encoder_out, project, capacity, beams)
        padding: Optional[Tensor]
        lengths: Optional[Tensor] = None
        if isinstance(encoder_out, RaggedEncoding) and self._native is not None:
            encoded, padding, lengths = encoder_out.at_front()
        else:
            encoded = encoder_out["encoder_out"][0].detach().transpose(0, 1)
            padding = _padding_of(encoder_out)
            if padding is not None and self._native is not None:
                encoded, padding, lengths = _moved_to_front(encoded, padding)
        source_kv = self._project_source(encoded)
        mask = None if padding is None else self._source_mask(padding)
        cache = self._cache(encoded.size(0) * (1 if self._native is None else beams), capacity)
        return DecoderState(cache, source_kv, mask, lengths, beams)

    def start_alone(self, rows: int, capacity: int, beams: int = 1) -> DecoderState:
        """Begin a batch of a language model; see :meth:`start` and :meth:`unsupported_alone`.

        Args:
            rows: sentences of the batch.
            capacity, beams: as for :meth:`start`.
        """
        no_source = torch.empty(0, 0, self._heads, 0, self.width // self._heads)
        return DecoderState(self._cache(rows * beams, capacity), no_source, None, None, beams)

    def _cache(self, rows: int, capacity: int) -> KVCache:
        """An empty cache of so many rows."""
        return KVCache(
            len(self.decoder.layers),
            rows,
            self._heads,
            self.width // self._heads,
            capacity,
            self.dtype,
            self.device,
            for_kernels=self._native is not None,
        )

    def _project_source(self, encoded: Tensor) -> Tensor:
        """(rows, src, dim) to (2 * layers, rows, heads, src, head_dim)."""
        count, (rows, source, _) = 2 * len(self.decoder.layers), encoded.shape
        if isinstance(self._source_in, NativeLinear):
            spans = Spans.of(rows, source, None)
            source_kv = self._source_in.by_vector(encoded, spans, count, self._heads)
            return source_kv.view(count, rows, self._heads, source, -1)
        source_kv = self._source_in(encoded.to(self.dtype).flatten(0, 1))
        source_kv = source_kv.view(rows, source, count, self._heads, -1)
        return source_kv.permute(2, 0, 3, 1, 4).contiguous()

    def _source_mask(self, padding: Tensor) -> Tensor:
        """(rows, src), true where padded, as a mask to add."""
        if self._native is not None:  # by NumPy, as in `Spans.of`
            mask = torch.from_numpy(np.where(padding.numpy(), np.float32("-inf"), np.float32(0)))
        else:
            mask = torch.zeros(padding.shape, dtype=self.dtype, device=self.device)
            mask.masked_fill_(padding, float("-inf"))
        return mask[:, None, None, :]

    def forward(
        self, state: DecoderState, embedded: Tensor, limits: Optional[Tensor] = None
    ) -> Tensor:
        """Run the layers over new vectors, behind the accepted ones of each row.

        Their keys and values go to the slots ``state.lengths[r] + i`` but count only
        after ``state.keep``.

        Args:
            state: from :meth:`start`.
            embedded: (rows, new, dim), of :attr:`embedding`.
            limits: (rows, new) long: query ``i`` of row ``r`` sees the slots below
                ``limits[r, i]``, from 1 to ``state.lengths[r] + new``.  ``None`` is
                causal, ``state.lengths[r] + i + 1``.

        Returns:
            (rows, new, output dim): what fairseq's ``extract_features`` returns.
        """
        rows, new, dim = embedded.shape
        cache = state.cache
        if self._native is not None:
            call = native.StackCall()
            self._describe_state(state, new, call)
            hidden = self._native.decode(call, embedded, new, state.lengths, limits)
            if self._project_out is not None:
                hidden = self._project_out(hidden.flatten(0, 1)).view(rows, new, -1)
            return hidden
        if isinstance(state, StaticState):
            return state.run(self, embedded, limits)
        mask = self._mask(state, new, cache.reserve(new), limits)
        hidden = embedded.reshape(rows * new, dim)
        hidden = self.run_layers(hidden, rows, cache, mask, state.source_kv, state.source_mask)
        return hidden.view(rows, new, -1)

    def run_layers(
        self,
        hidden: Tensor,
        rows: int,
        cache: KVCache,
        mask: Optional[Tensor],
        source_kv: Tensor,
        source_mask: Optional[Tensor],
    ) -> Tensor:
        """The layers on PyTorch's operators, and what follows them.

        Args:
            hidden: (rows * new, dim); not changed.
            rows: rows of the batch.
            cache: reserved for ``new`` entries a row.
            mask: (rows or 1, 1, new, slots), what is added to the attention's scores, or which
                slots it sees; None: all.
            source_kv: (2 * layers, sentences, heads, src, head_dim); as many rows follow each other
                for each sentence.
            source_mask: (sentences, 1, 1, src), likewise.

        Returns:
            (rows * new, output dim).
        """
        each = source_kv.unbind(0)
        for index, (layer, source) in enumerate(zip(self._layers, zip(each[::2], each[1::2]))):
            hidden = layer.run(hidden, rows, cache, index, mask, source, source_mask)
        if self._final_norm is not None:
            hidden = self._final_norm(hidden)
        return hidden if self._project_out is None else self._project_out(hidden)

    def runs_fused(self, vectors: int) -> bool:
        """Whether :meth:`run_fused` runs so many vectors: rows times new ones."""
        return self._fused is not None and vectors <= self._fused.most

    def slots_seen(self, vectors: int, tensors: StaticTensors, visible: int) -> int:
        """How many slots so many vectors are shown, of which ``visible`` may have entries.

        Fused kernels read no slot without an entry. So that one graph serves rows of any length,
        they are shown all.
        """
        return tensors.sizes.capacity if self.runs_fused(vectors) else visible

    def run_fused(
        self,
        embedded: Tensor,
        held: Tensor,
        limits: Optional[Tensor],
        tensors: StaticTensors,
        beams: int,
        wanted: Optional[Tensor] = None,
    ) -> Tensor:
        """The layers in fused kernels, and what follows them; see :meth:`.FusedLayers.run`."""
        assert self._fused is not None
        hidden = self._fused.run(embedded, held, limits, tensors, beams, wanted)
        return hidden if self._project_out is None else self._project_out(hidden)

    def feed(self, state: DecoderState, tokens: Tensor) -> Tensor:
        """Run the layers over new tokens, causally; see :meth:`forward`.

        Args:
            state: from :meth:`start`.
            tokens: (rows, new) long.

        Returns:
            (rows, new, output dim).

        Raises:
            PluginError: a learned position table ends before; see :class:`PositionTable`.
        """
        if self._native is None or self.on_torch is not None:
            embedded = self.embedding.of_tokens(tokens, state.lengths, state.longest)
            return self.forward(state, embedded)
        call, new = native.StackCall(), tokens.size(1)
        self.describe(state, new, call)
        return self._native.decode(call, tokens, new, state.lengths)

    def feed_block(
        self, state: DecoderState, tokens: Tensor, counts: Tensor, most: int, block: int
    ) -> Tensor:
        """Feed new tokens causally and masks behind them that see all of their row.

        Only where :attr:`on_torch` is None.

        Args:
            state: from :meth:`start`.
            tokens: (rows, …) long, contiguous: all tokens of each row, with the new ones
                at ``state.lengths``.
            counts: (rows,) long, new tokens of each row.
            most: the greatest of ``counts``, known to the host.
            block: masks a row.

        Returns:
            (rows, block, dim): what the decoder gives at the masks.

        Raises:
            PluginError: as for :meth:`feed`.
        """
        assert self._native is not None
        call, width = native.StackCall(), most + block
        self.describe(state, width, call)
        return self._native.decode(call, tokens, width, state.lengths, counts=counts, block=block)

    @property
    def stack(self) -> int:
        """The kernels' handle of the layers, where :attr:`on_torch` is None."""
        assert self._native is not None
        return self._native.handle

    @property
    def handles(self) -> List[Optional[int]]:
        """:attr:`stack` and the handle of the projection; None where it scores a part."""
        whole = self.projection.native
        return [self.stack, None if whole is None else whole.handle]

    def describe(self, state: DecoderState, new: int, call: Any) -> None:
        """Point ``call``, a :class:`native.StackCall`, to what ``new`` tokens a row are fed with.

        Room for them is made in the cache. Only where :attr:`on_torch` is None.

        Raises:
            PluginError: as for :meth:`feed`.
        """
        self.describe_positions(state.longest, new, call)
        self._describe_state(state, new, call)

    def _describe_state(self, state: DecoderState, new: int, call: Any) -> None:
        """:meth:`describe` without the positions."""
        cache, source = state.cache, state.source_kv
        cache.make_room(new)
        call.cache, call.capacity = cache.store.data_ptr(), cache.capacity
        call.total_rows, call.row_index = cache.store.size(2), native.pointer(cache.row_index)
        call.beams, call.ancestors = state.beams, native.pointer(cache.ancestors)
        call.source_kv, call.source_length = source.data_ptr(), source.size(3)
        call.source_lengths = native.pointer(state.source_lengths)

    def describe_queue(
        self, encoder_out: EncoderOut, longest: int, call: Any, source: native.SourceKvCall
    ) -> Tuple[Optional[int], List[Any]]:
        """Point ``call`` and ``source`` to a batch of which some rows are decoded at a time.

        Nothing of its source is padded. Only where :attr:`on_torch` is None.

        Args:
            encoder_out: as for :meth:`start`.
            longest: tokens that a row may have.
            call: a :class:`native.StackCall`.
            source: what keys and values of the source are made of.

        Returns:
            the kernels' handle of the linear map that makes them, and what has to be kept while the
            calls are used.

        Raises:
            PluginError: as for :meth:`feed`.
        """
        self.describe_positions(0, longest, call)
        if isinstance(encoder_out, RaggedEncoding):
            encoded, stride, spans = encoder_out.vectors, 0, encoder_out.spans
        else:
            encoded = encoder_out["encoder_out"][0].detach().transpose(0, 1)
            padding = _padding_of(encoder_out)
            rows, stride = encoded.shape[:2]
            if padding is not None and amid(padding):
                encoded, padding, _ = _moved_to_front(encoded, padding)
            spans = Spans.of(rows, stride, padding)
        assert isinstance(self._source_in, NativeLinear)
        count = 2 * len(self.decoder.layers)
        inputs = self._source_in.describe(encoded, stride, spans, count, self._heads, source)
        return self._source_in.handle, [inputs, spans]

    def describe_positions(self, longest: int, new: int, call: Any) -> None:
        """Point ``call``, a :class:`native.StackCall`, to the vectors of positions, if any.

        Args:
            longest: tokens that a row has.
            new: tokens that it is fed beyond them.
            call: of the layers.

        Raises:
            PluginError: as for :meth:`feed`.
        """
        positions = self.embedding.positions(longest, new)
        if positions is not None:
            call.positions, call.position_limit = positions.data_ptr(), positions.size(0)

    def _mask(
        self, state: DecoderState, new: int, slots: int, limits: Optional[Tensor]
    ) -> Optional[Tensor]:
        """(rows or 1, 1, new, slots), 0 where a query may look and -inf elsewhere."""
        if slots >= self._mask_table.size(0):
            self._grow_mask_table(slots + 1)
        table = self._mask_table[:, :slots]
        if limits is None:
            if state.lengths.size(0) == 1:
                if new == 1:
                    return None
                first = state.longest + 1
                return table[first : first + new].view(1, 1, new, slots)
            limits = state.lengths.unsqueeze(1) + self._ordinals[:new]
        return F.embedding(limits, table).unsqueeze(1)

    def _grow_mask_table(self, needed: int) -> None:
        """Row ``n`` of the table is the mask of a query that sees ``n`` slots."""
        size = max(needed, 2 * self._mask_table.size(0), 64)
        with torch.inference_mode(False):
            table = torch.full((size, size), float("-inf"), dtype=torch.float32, device=self.device)
            self._mask_table = table.triu_().to(self.dtype)
            self._ordinals = torch.arange(1, size + 1, device=self.device)


def _padding_of(encoder_out: EncoderOut) -> Optional[Tensor]:
    """(rows, src) true where padded; ``None`` if nothing is, for which a GPU is waited for."""
    padding = encoder_out["encoder_padding_mask"]
    return padding[0] if padding and bool(padding[0].any()) else None


def _moved_to_front(encoded: Tensor, padding: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Put what is no padding first: (rows, src, dim), (rows, src) and the lengths, (rows,)."""
    order = padding.byte().argsort(dim=1, stable=True)
    moved = encoded.gather(1, order.unsqueeze(2).expand_as(encoded))
    return moved, padding.gather(1, order), (~padding).sum(1)
