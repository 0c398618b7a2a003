"""Floating point operations a sentence, by a formula (Santilli et al., 2023, Table 3, appendix C).

PyTorch's own counter does not see the native kernels. What is counted are matrix products, a
multiplication and an addition each, whatever the type of their numbers. With

- W, the weights of a stack of layers but for keys and values of the source, and D, four times
  the sum of their widths (scores and sums of attention, for a place that is looked at),
- R, the weights of keys and values of the source, and P, those of the projection,

a sentence of S source tokens, ends included, costs

- *encoder*: S (2 W + D S), of the encoder's layers;
- *verifier*: 2 R S + F (2 W + D (A + S)), of the decoder's layers, for F tokens that it is fed:
  one an iteration, and every drafted one. fairseq's search feeds as many tokens a step as its
  beam is wide, has a step for each token of its longest hypothesis, and projects the source for
  each place in its beam;
- *projection*: 2 P F;
- *drafter*, if it is a copy of the verifier: as verifier and projection, but for the source, with F
  the drafted tokens. If it is trained: its encoder, if it has its own; the source; F the tokens and
  the masks that it is fed; the projection at the places of a block, or with a chain head that stops
  early those that it looks at (eight at once; all of them where copies of the source are drafted
  too, whose lengths are not told apart); and the weights of that head. Of proposal heads: those
  that are asked (with the kernels four at once, until a draft ends), and the projection behind
  each. Else nothing: Jacobi iterations, copies of the source and greedy decoding need no model
  to draft.

A, the places that a token sees in the output, is taken as (tokens + 1) / 2, the mean of greedy
decoding (for masks with the block added, and a third more for drafters with a full prefix, which
feed long ones anew as often as short ones), and in batches S and A are means of the batch. Left out
are what is no matrix product, padding, symbols that are scored a second time, exactly, behind a
rounded projection (some sixty of the vocabulary), and training.
"""

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from fairseq.models.transformer import TransformerEncoderBase
from torch import nn

from ...decoding.loop import UnverifiedStep
from ...decoding.statistics import PARTS, Statistics
from ...engine import CachedDecoder
from ...methods.block_nat.chain import CHAIN_POSITIONS
from ...methods.block_nat.drafter import NATDrafter
from ...methods.blockwise.drafter import BlockwiseDrafter
from ...methods.blockwise.native import HEADS_AT_ONCE
from ...methods.input_guided.drafter import InputGuidedDrafter
from ...methods.self_draft.drafter import SelfDrafter
from .methods import Method, Session
from .report import Row, table
from .timing import Timing

#: Operations by part, of :data:`PARTS`.
Operations = Dict[str, float]


class Layers(NamedTuple):
    """What a stack of layers costs.

    Attributes:
        token: operations for each token,
        look: and for each place that a token attends to.
    """

    token: float
    look: float

    def run(self, tokens: float, places: float) -> float:
        """Operations for so many tokens that attend to so many places each, on average."""
        return tokens * (self.token + self.look * places)


class Decoder(NamedTuple):
    """What a decoder costs.

    Attributes:
        layers: its layers, and what leads in and out of them.
        source: operations for the keys and values of each source token.
        projection: operations to score the vocabulary once.
    """

    layers: Layers
    source: float
    projection: float


def layers_of(encoder: Any) -> Layers:
    """The costs of a fairseq Transformer encoder."""
    layers = _list(encoder.layers)
    return Layers(_products(layers), 4.0 * sum(each.self_attn.embed_dim for each in layers))


def decoder_of(decoder: Any) -> Decoder:
    """The costs of a fairseq Transformer decoder that the engine runs with its cache."""
    layers = _list(decoder.layers)
    sources = [each.encoder_attn for each in layers]
    source = _products(map for each in sources for map in (each.k_proj, each.v_proj))
    ends = [each for each in (decoder.project_in_dim, decoder.project_out_dim) if each is not None]
    return Decoder(
        Layers(
            _products([*layers, *ends]) - source,
            4.0 * sum(each.self_attn.embed_dim for each in layers),
        ),
        source,
        _products([decoder.output_projection]),
    )


def _list(layers: Any) -> List[Any]:
    """All of them; iterating would drop some at random under LayerDrop."""
    return [layers[index] for index in range(len(layers))]


def _products(modules: Iterable[nn.Module]) -> float:
    """Operations of all linear maps in these modules, for one input each.

    A drafter's weights may be gone, packed for the kernels; their sizes are not.
    """
    maps = [each for module in modules for each in module.modules() if isinstance(each, nn.Linear)]
    return 2.0 * sum(each.in_features * each.out_features for each in maps)


def gflops(
    session: Session,
    methods: Sequence[Method],
    timings: Mapping[str, Timing],
    batches: Sequence[Any],
) -> Dict[str, Operations]:
    """Thousands of millions (10⁹) of operations a sentence, by method and part.

    Args:
        session: has the verifiers.
        methods: what was timed.
        timings: by method, with the trace of each batch.
        batches: fairseq's.

    Returns:
        with the sum of the parts as ``total``; without methods that project on a part of the
        vocabulary; {} for models without a formula, and where a batch comes from a journal that
        lacks its trace.
    """
    traces = [trace for each in timings.values() for trace in each.traces]
    if None in traces or not all(map(_has_formula, session.models)):
        return {}
    lengths = [batch["net_input"]["src_lengths"].tolist() for batch in batches]
    sentences = sum(map(len, lengths))
    found: Dict[str, Operations] = {}
    for method in methods:
        if method.partial:  # what its projection computes depends on the states
            continue
        spent = dict.fromkeys(PARTS, 0.0)
        for each, trace in zip(lengths, timings[method.name].traces):
            assert trace is not None
            for part, amount in operations(method, session.models, each, trace).items():
                spent[part] += amount / sentences / 1e9
        found[method.name] = {**spent, "total": sum(spent.values())}
    return found


def _has_formula(model: Any) -> bool:
    transforms = isinstance(getattr(model, "encoder", None), TransformerEncoderBase)
    return transforms and CachedDecoder.supports(model.decoder) is None


def operations(
    method: Method, models: Sequence[Any], lengths: Sequence[int], trace: Statistics
) -> Operations:
    """Operations of one batch by part.

    Args:
        method: who decoded.
        models: the verifiers.
        lengths: of the sources, ends of sentences included.
        trace: the batch's counters.
    """
    loop = getattr(method.generator, "loop", None)
    found = dict.fromkeys(PARTS, 0.0)
    found["encoder"] = sum(_encode(model.encoder, lengths) for model in models)
    if loop is None or not isinstance(loop.step, UnverifiedStep):
        beam = getattr(method.generator, "beam_size", 1)
        fed = trace.iterations + _drafted(trace)
        source, places = _mean(lengths), _mean_places(trace)
        for decoder in [decoder_of(model.decoder) for model in models]:
            found["verifier"] += beam * decoder.source * sum(lengths)
            found["verifier"] += beam * decoder.layers.run(fed, places + source)
            found["projection"] += beam * decoder.projection * fed
    drafter = None if loop is None else loop.drafter
    if isinstance(drafter, SelfDrafter):
        found["drafter"] = _copy(decoder_of(models[0].decoder), lengths, trace)
    elif isinstance(drafter, NATDrafter):
        found["drafter"] = _trained(drafter, lengths, trace, drafter.stops_early)
    elif isinstance(drafter, BlockwiseDrafter):
        decoder = decoder_of(models[0].decoder)
        found["drafter"] = _foreseen(drafter, decoder, _mean(lengths), trace)
    elif isinstance(drafter, InputGuidedDrafter) and isinstance(drafter.fallback, NATDrafter):
        found["drafter"] = _trained(drafter.fallback, lengths, trace, stops_early=False)
    return found


def _encode(encoder: Any, lengths: Sequence[int]) -> float:
    layers = layers_of(encoder)
    return sum(layers.run(length, length) for length in lengths)


def _copy(decoder: Decoder, lengths: Sequence[int], trace: Statistics) -> float:
    """A copy of the verifier, which drafts token by token."""
    run = decoder.layers.run(_drafted(trace), _mean_places(trace) + _mean(lengths))
    return run + decoder.projection * _drafted(trace)


def _trained(
    drafter: NATDrafter, lengths: Sequence[int], trace: Statistics, stops_early: bool
) -> float:
    """A block-NAT drafter."""
    k, blocks, source = drafter.block_size, trace.drafter_blocks, _mean(lengths)
    decoder, places = decoder_of(drafter.model.decoder), _mean_places(trace)
    total = decoder.source * trace.drafter_sources * source
    if drafter.shared is None:
        share = trace.drafter_sources / len(lengths)
        total += share * _encode(drafter.model.encoder, lengths)
    # With a full prefix all of it is fed for each block, long ones as often as short ones.
    seen = places if drafter.causal else 4 / 3 * places + k
    total += decoder.layers.run(trace.drafter_tokens, seen + source)
    total += decoder.layers.run(k * blocks, places + k + source)
    looked = _looked if stops_early else _whole
    total += decoder.projection * looked(drafter, trace, CHAIN_POSITIONS)
    head = drafter.model.decoder.chain
    if head is not None:
        total += _products([head.from_state]) * k * blocks
        step = [head.from_token, head.from_chain, head.out]
        total += _products(step) * looked(drafter, trace, 1)
    return total


def _foreseen(
    drafter: BlockwiseDrafter, decoder: Decoder, source: float, trace: Statistics
) -> float:
    """Proposal heads and the projection behind each of them that is asked."""
    heads, count = drafter.proposals.heads, len(drafter.proposals.numbers)
    joint = 2.0 * heads.inner.in_features * heads.inner.out_features
    each = 2.0 * heads.dim * heads.outer.in_features + decoder.projection
    if not heads.joint:
        reading = heads.source_dim * (heads.dim + 2 * source)  # queries, attention
        joint, each = 0.0, each + 2.0 * (heads.inner.in_features * heads.hidden + reading)
    asked = count * trace.drafter_blocks
    if drafter.stops_early:
        asked = _asked(count, trace, HEADS_AT_ONCE)
    return joint * trace.drafter_blocks + each * asked


def _whole(drafter: NATDrafter, trace: Statistics, together: int) -> int:
    """Places of blocks."""
    return drafter.block_size * trace.drafter_blocks


def _looked(drafter: NATDrafter, trace: Statistics, together: int) -> int:
    """Those where tokens were chosen, or at least looked for, so many at once.

    A draft that stops early was looked for one place further. Iterations without a block drafted
    nothing.
    """
    return _asked(drafter.block_size, trace, together)


def _asked(most: int, trace: Statistics, together: int) -> int:
    """:func:`_looked` of drafts of ``most`` tokens."""

    def looked(length: int) -> int:
        return min(most, -(-(length + 1) // together) * together)

    without = sum(trace.draft_lengths.values()) - trace.drafter_blocks
    every = sum(looked(length) * times for length, times in trace.draft_lengths.items())
    return every - without * looked(0)


def _drafted(trace: Statistics) -> int:
    return sum(length * times for length, times in trace.draft_lengths.items())


def _mean(lengths: Sequence[int]) -> float:
    return sum(lengths) / len(lengths)


def _mean_places(trace: Statistics) -> float:
    """A: how many places of the output a token sees."""
    return (trace.tokens / max(1, trace.sentences) + 1) / 2


#: Speed-ups that operations are set against: over the first of these that was timed.
_BASES = ("greedy", "fairseq beam 1", "fairseq beam 5")


def flops_table(rows: Sequence[Row]) -> Optional[str]:
    """GFLOPs a sentence by part, and divided by the speed-up; None where there is no formula."""
    counted = [row for row in rows if "GFLOPs a sentence" in row]
    if not counted:
        return None
    base = next((name for name in _BASES if any(row["method"] == name for row in rows)), None)
    head = [] if base is None else [f"total ÷ speed-up over {base}"]
    cells = []
    for row in counted:
        spent = row["GFLOPs a sentence"]
        line = [row["method"], *(f"{spent[name]:.3g}" for name in (*PARTS, "total"))]
        if base is not None:
            line.append(f"{spent['total'] / row[f'median speed-up over {base}']:.3g}")
        cells.append(line)
    return table(["GFLOPs a sentence", *PARTS, "total", *head], cells) + "\n\n" + FLOPS_NOTE


FLOPS_NOTE = (
    "GFLOPs: 10⁹ operations in matrix products, two a weight, whatever the type of the weights. "
    "Encoder: S (2 W + D S), for S source tokens, W weights of the layers, D four times the sum of "
    "their widths. Verifier: 2 R S + F (2 W + D (A + S)), R the weights of keys and values of the "
    "source, F tokens fed (iterations and drafted tokens; of fairseq beam × steps, and beam times "
    "its R), A = (output tokens + 1) / 2 places seen in the output on average. Projection: 2 F "
    "times its weights. Drafter: the same of what it is fed. Without padding and training."
)
