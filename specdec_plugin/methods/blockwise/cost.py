"""What proposal heads compute."""

from ...decoding.operations import Work, decoder_of
from .drafter import BlockwiseDrafter
from .native import HEADS_AT_ONCE


def operations(drafter: BlockwiseDrafter, work: Work) -> float:
    """Operations of the heads for a batch, and of the projection behind each head that ran."""
    heads, count = drafter.proposals.heads, len(drafter.proposals.numbers)
    blocks = work.statistics.drafter_blocks
    joint = 2.0 * heads.inner.in_features * heads.inner.out_features
    each = 2.0 * heads.dim * heads.outer.in_features
    each += decoder_of(work.models[0].decoder).projection
    if not heads.joint:
        reading = heads.source_dim * (heads.dim + 2 * work.source)  # queries, attention
        joint, each = 0.0, each + 2.0 * (heads.inner.in_features * heads.hidden + reading)
    ran = work.computed(count, HEADS_AT_ONCE) if drafter.stops_early else count * blocks
    return joint * blocks + each * ran
