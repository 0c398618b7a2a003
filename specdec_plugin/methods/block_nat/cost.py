"""What a block-NAT drafter computes."""

from typing import Any

from ...decoding.operations import Work, decoder_of, encode, products
from .chain import CHAIN_POSITIONS


def operations(drafter: Any, work: Work, stops_early: bool) -> float:
    """Operations of the drafter for a batch.

    Args:
        drafter: a :class:`.drafter.NATDrafter`.
        work: the batch.
        stops_early: whether the scores behind the end of a draft were not computed.
    """
    statistics, k, masks = work.statistics, drafter.block_size, work.statistics.drafter_masks
    decoder = decoder_of(drafter.model.decoder)
    total = decoder.source * statistics.drafter_sources * work.source
    if drafter.shared is None:
        share = statistics.drafter_sources / len(work.lengths)
        total += share * encode(drafter.model.encoder, work.lengths)
    # A full prefix is fed anew for each block, long ones as often as short ones.
    seen = work.positions if drafter.causal else 4 / 3 * work.positions + k
    total += decoder.layers.run(statistics.drafter_tokens, seen + work.source)
    total += decoder.layers.run(masks, work.positions + k + work.source)

    def scored(together: int) -> int:
        return work.computed(k, together) if stops_early else masks

    total += decoder.projection * scored(CHAIN_POSITIONS)
    head = drafter.model.decoder.chain
    if head is not None:
        total += products([head.from_state]) * masks
        total += products([head.from_token, head.from_chain, head.out]) * scored(1)
    return total
