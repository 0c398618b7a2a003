"""How many operations models and drafts cost.

Only matrix products are counted: a multiplication and an addition for each weight, whatever the
type of the numbers. PyTorch's own counter does not see the native kernels.
"""

from typing import Any, Iterable, NamedTuple, Optional, Sequence

from torch import nn

from ..engine.decoder_layer import every_layer
from .statistics import Statistics


class Layers(NamedTuple):
    """The cost of a stack of layers.

    Attributes:
        token: operations for each token.
        look: operations for each position that a token attends to.
    """

    token: float
    look: float

    def run(self, tokens: float, positions: float) -> float:
        """Operations for so many tokens, each of which attends to ``positions`` on average."""
        return tokens * (self.token + self.look * positions)


class Decoder(NamedTuple):
    """The cost of a decoder.

    Attributes:
        layers: its layers, and the projections before and behind them.
        source: operations for the keys and values of each source token.
        projection: operations to score the vocabulary once.
    """

    layers: Layers
    source: float
    projection: float


class Work(NamedTuple):
    """One batch that was decoded.

    Attributes:
        models: the verifiers.
        lengths: source tokens of each sentence, its end included.
        statistics: the counters of this batch.
    """

    models: Sequence[Any]
    lengths: Sequence[int]
    statistics: Statistics

    @property
    def source(self) -> float:
        """Mean source tokens of a sentence."""
        return sum(self.lengths) / len(self.lengths)

    @property
    def positions(self) -> float:
        """Positions of the output that a token attends to: the mean of greedy decoding."""
        return (self.statistics.tokens / max(1, self.statistics.sentences) + 1) / 2

    @property
    def drafted(self) -> int:
        """Drafted tokens."""
        return sum(length * times for length, times in self.statistics.draft_lengths.items())

    def decoding(self, steps: float, projection: Optional[float] = None) -> float:
        """Operations of so many steps of the first verifier's decoder, with their projections.

        Args:
            steps: how many.
            projection: operations to score the vocabulary once; None: the decoder's.
        """
        decoder = decoder_of(self.models[0].decoder)
        run = decoder.layers.run(steps, self.positions + self.source)
        return run + steps * (decoder.projection if projection is None else projection)

    def computed(self, most: int, together: int) -> int:
        """Positions that drafters computed which stop where a draft ends.

        They compute one position more than they draft. Iterations without a block drafted nothing.

        Args:
            most: tokens that a draft has at most.
            together: positions that are computed at once.
        """

        def computed(length: int) -> int:
            return min(most, -(-(length + 1) // together) * together)

        lengths = self.statistics.draft_lengths
        without = sum(lengths.values()) - self.statistics.drafter_blocks
        every = sum(computed(length) * times for length, times in lengths.items())
        return every - without * computed(0)


def layers_of(encoder: Any) -> Layers:
    """The costs of a fairseq Transformer encoder."""
    layers = every_layer(encoder)
    return Layers(products(layers), 4.0 * sum(each.self_attn.embed_dim for each in layers))


def encode(encoder: Any, lengths: Sequence[int]) -> float:
    """Operations of a fairseq Transformer encoder for sources of these lengths."""
    layers = layers_of(encoder)
    return sum(layers.run(length, length) for length in lengths)


def decoder_of(decoder: Any) -> Decoder:
    """The costs of a fairseq Transformer decoder that the engine runs with its cache."""
    layers = every_layer(decoder)
    sources = [each.encoder_attn for each in layers]
    source = products(map for each in sources for map in (each.k_proj, each.v_proj))
    ends = [each for each in (decoder.project_in_dim, decoder.project_out_dim) if each is not None]
    return Decoder(
        Layers(
            products([*layers, *ends]) - source,
            4.0 * sum(each.self_attn.embed_dim for each in layers),
        ),
        source,
        products([decoder.output_projection]),
    )


def products(modules: Iterable[nn.Module]) -> float:
    """Operations of all linear maps in these modules, for one input each.

    A drafter's weights may be freed once they are packed for the kernels; their sizes are not.
    """
    maps = [each for module in modules for each in module.modules() if isinstance(each, nn.Linear)]
    return 2.0 * sum(each.in_features * each.out_features for each in maps)
