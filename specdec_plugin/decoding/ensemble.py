"""What the kernels are told of an ensemble's other models, and of a language model beside them."""

import ctypes
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..engine import CachedDecoder, DecoderState
from ..engine.native.interface import field, structure
from .state import Batch


@structure
class ModelCall(ctypes.Structure):
    """A model that is fed what the first one is."""

    layers = field("const Stack*")
    projection = field("const Linear*", "scores all symbols, exactly")
    stack = field("StackCall", "of its decoder: positions, cache and source; in queues: positions")
    source_in = field("const Linear*", "makes keys and values in queues; null: there is no source")
    source = field("SourceKvCall", "the sentences' sources in queues, without a result")
    fused = field("int", "1: a language model, whose log-probabilities are added; 0: averaged")
    weight = field("float", "of a language model's log-probabilities")


class Others(NamedTuple):
    """Other models than the first one.

    Attributes:
        engines: one for each; a language model's is the last one.
        weight: of the language model; None: there is none.
    """

    engines: Sequence[CachedDecoder]
    weight: Optional[float] = None

    def calls(self) -> Any:
        """An array of :class:`ModelCall`, undescribed."""
        calls = (ModelCall * len(self.engines))()
        for engine, call in zip(self.engines, calls):
            call.layers, call.projection = engine.handles
        if self.weight is not None:
            calls[-1].fused, calls[-1].weight = 1, self.weight
        return calls

    def describe(self, calls: Any, states: Sequence[DecoderState], new: int) -> None:
        """Point ``calls`` to what ``new`` tokens a row are fed with.

        Args:
            calls: from :meth:`calls`.
            states: of each engine.
            new: see :meth:`.CachedDecoder.describe`.
        """
        for engine, state, call in zip(self.engines, states, calls):
            engine.describe(state, new, call.stack)

    def describe_queue(self, batch: Batch) -> Tuple[Any, List[Any]]:
        """An array of :class:`ModelCall` for a batch, and what has to be kept beside it."""
        calls, longest, kept = self.calls(), batch.constraints.max_len + 1, []
        outs = batch.encoder_outs[1:]
        for engine, call, out in zip(self.engines, calls, outs):
            call.source_in, own = engine.describe_queue(out, longest, call.stack, call.source)
            kept.append(own)
        if self.weight is not None:
            self.engines[-1].describe_positions(0, longest, calls[-1].stack)
        return calls, kept
