"""Which tokens a drafter sees and which it must predict (Xia et al., 2023, section 3.1).

A training example is a prefix of the target and the k tokens after it, hidden.
The papers train one such block a sentence.  When prefix tokens see only the
prefix (``--prefix-attention causal``), many blocks can share one pass over the
sentence: all prefixes are read off the same causal states.

The decoder's input is laid out as ``[prefix (length) ; block 1 (k) ; block 2 (k) …]``.
A block that starts after s tokens predicts tokens s … s+k-1 of the target, each
at the position that the token itself will take when it is fed to the verifier.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .counter_random import counter_uniform


class Blocks(NamedTuple):
    """The hidden blocks of a batch.

    Attributes:
        starts: (rows, blocks) how many target tokens precede the block.
        targets: (rows, blocks, k) the hidden tokens; pad where the sentence has
            ended, or where the row has fewer blocks than others.
        scored: (rows, blocks, k) true where there is a token to predict.
    """

    starts: Tensor
    targets: Tensor
    scored: Tensor


def sample_blocks(target: Tensor, pad: int, block_size: int, rate: float, noise: Tensor) -> Blocks:
    """Hide blocks at random places, uniformly among those that hide a token.

    Args:
        target: (rows, length) with the end of sentence, padded on the right.
        pad: the padding symbol.
        block_size: k.
        rate: blocks a target token; at least one block a sentence is drawn, so 0
            means one.  Blocks of one sentence start at different places.
        noise: (rows, length) uniform random numbers that choose the places.

    Returns:
        the blocks, ``ceil(rate · longest)`` or 1 a row.
    """
    rows, length = target.shape
    real = target.ne(pad)
    lengths = real.sum(1)
    wanted = (lengths * rate).ceil().long().clamp(min=1)  # (rows,)
    blocks = max(1, math.ceil(length * rate))
    order = noise.masked_fill(~real, 2.0).argsort(1)
    starts = order[:, :blocks]  # (rows, blocks)
    present = torch.arange(starts.size(1), device=target.device) < wanted.unsqueeze(1)

    slots = starts.unsqueeze(2) + torch.arange(block_size, device=target.device)
    inside = slots < lengths.view(rows, 1, 1)
    scored = inside & present.unsqueeze(2)
    flat = slots.clamp(max=length - 1).view(rows, -1)
    targets = target.gather(1, flat).view_as(slots).masked_fill(~scored, pad)
    return Blocks(starts, targets, scored)


def input_slots(blocks: Blocks, length: int) -> Tensor:
    """Where each input of the layout stands in its sentence.

    Slot 0 holds the start symbol, so the hidden token t stands at slot t + 1.

    Args:
        blocks: the hidden blocks.
        length: how many prefix inputs the layout begins with.

    Returns:
        (rows, length + blocks · k) slots.
    """
    rows, _, block_size = blocks.targets.shape
    device = blocks.starts.device
    prefix = torch.arange(length, device=device).expand(rows, length)
    hidden = blocks.starts.unsqueeze(2) + 1 + torch.arange(block_size, device=device)
    return torch.cat([prefix, hidden.view(rows, -1)], dim=1)


def may_attend(blocks: Blocks, length: int, causal_prefix: bool) -> Tensor:
    """Who sees whom in the layout.

    A masked position sees the prefix before its block and its whole block, also
    the masks past the end of the sentence: hiding those would tell its length.
    A prefix token sees the prefix up to itself (``causal``), or everything that
    its only block sees (``full``, the papers' form).

    Args:
        blocks: the hidden blocks; exactly one a row unless ``causal_prefix``.
        length: how many prefix inputs the layout begins with.
        causal_prefix: whether prefix tokens see only the prefix.

    Returns:
        (rows, layout, layout) true where the query (second axis) sees the key.
    """
    rows, count, block_size = blocks.targets.shape
    device = blocks.starts.device
    slot = torch.arange(length, device=device)
    owner = torch.arange(count, device=device).repeat_interleave(block_size)

    before = slot <= blocks.starts.unsqueeze(2)  # (rows, blocks, length)
    block_rows = torch.cat(
        [before[:, owner], (owner.unsqueeze(1) == owner).expand(rows, -1, -1)], dim=2
    )
    if causal_prefix:
        own = (slot <= slot.unsqueeze(1)).expand(rows, length, length)
        prefix_rows = torch.cat([own, own.new_zeros(rows, length, owner.numel())], dim=2)
    else:
        prefix_rows = block_rows[:, :1].expand(rows, length, -1)
    return torch.cat([prefix_rows, block_rows], dim=1)


def glance(wrong: Tensor, scored: Tensor, ratio: float, noise: Tensor) -> Tensor:
    """Choose reference tokens to reveal (glancing, Qian et al. 2021).

    With H wrong predictions in a block, ⌊ratio · H⌋ of its tokens are revealed,
    drawn uniformly from the block.

    Args:
        wrong: (rows, blocks, k) true where the first pass was wrong.
        scored: (rows, blocks, k) true where there is a token to predict.
        ratio: λ.
        noise: (rows, blocks, k) uniform random numbers.

    Returns:
        (rows, blocks, k) true where the reference is revealed.
    """
    count = ((wrong & scored).sum(2, keepdim=True) * ratio).floor()
    rank = noise.masked_fill(~scored, 2.0).argsort(2).argsort(2)
    return (rank < count) & scored


def block_noise(ids: Tensor, blocks: Blocks, *stream: int) -> Tensor:
    """(rows, blocks, k) uniform numbers for :func:`glance`; see :func:`counter_uniform`."""
    rows, count, block_size = blocks.targets.shape
    return counter_uniform(ids, count * block_size, *stream).view(rows, count, block_size)
