"""Prefixes and hidden blocks of a drafter's training examples (Xia et al., 2023, section 3.1).

A training example is a prefix of the target and the k hidden tokens after it. Xia et al. train
one such block per sentence. With ``--prefix-attention causal`` prefix tokens attend only to the
prefix. Then many blocks share one pass, because all prefixes have the same causal states.

The decoder's input is ``[prefix (length) ; block 1 (k) ; block 2 (k) …]``. A block that starts
after s tokens predicts tokens s … s+k-1 of the target. Each token is predicted at the position
that it will have as the verifier's input.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .counter_random import counter_uniform


class Blocks(NamedTuple):
    """The hidden blocks of a batch.

    Attributes:
        starts: (rows, blocks) number of target tokens before the block.
        targets: (rows, blocks, k) the hidden tokens; pad after the end of the sentence, and in
            rows with fewer blocks than others.
        scored: (rows, blocks, k) true at the tokens to predict.
    """

    starts: Tensor
    targets: Tensor
    scored: Tensor


def sample_blocks(target: Tensor, pad: int, block_size: int, rate: float, noise: Tensor) -> Blocks:
    """Hide blocks at random starts, drawn uniformly from the positions of tokens.

    Args:
        target: (rows, length) with the end of sentence, padded on the right.
        pad: the padding symbol.
        block_size: k.
        rate: blocks per target token. Each sentence has at least one block, so 0 means one.
            Blocks of one sentence start at different positions.
        noise: (rows, length) uniform random numbers that select the starts.

    Returns:
        the blocks, ``ceil(rate · longest)`` but at least 1 per row.
    """
    rows, length = target.shape
    real = target.ne(pad)
    lengths = real.sum(1)
    wanted = (lengths * rate).ceil().long().clamp(min=1)  # (rows,)
    blocks = max(1, math.ceil(length * rate))
    order = noise.masked_fill(~real, 2.0).argsort(1)
    starts = order[:, :blocks]  # (rows, blocks)
    present = torch.arange(starts.size(1), device=target.device) < wanted.unsqueeze(1)

    positions = starts.unsqueeze(2) + torch.arange(block_size, device=target.device)
    inside = positions < lengths.view(rows, 1, 1)
    scored = inside & present.unsqueeze(2)
    flat = positions.clamp(max=length - 1).view(rows, -1)
    targets = target.gather(1, flat).view_as(positions).masked_fill(~scored, pad)
    return Blocks(starts, targets, scored)


def input_positions(blocks: Blocks, length: int) -> Tensor:
    """The position of each decoder input in its sentence.

    Position 0 holds the start symbol, so the hidden token t has position t + 1.

    Args:
        blocks: the hidden blocks.
        length: number of prefix inputs.

    Returns:
        (rows, length + blocks · k) positions.
    """
    rows, _, block_size = blocks.targets.shape
    device = blocks.starts.device
    prefix = torch.arange(length, device=device).expand(rows, length)
    hidden = blocks.starts.unsqueeze(2) + 1 + torch.arange(block_size, device=device)
    return torch.cat([prefix, hidden.view(rows, -1)], dim=1)


def may_attend(blocks: Blocks, length: int, causal_prefix: bool) -> Tensor:
    """The self-attention mask of the decoder's inputs.

    A masked position attends to the prefix before its block and to its whole block. That includes
    the masks past the end of the sentence, whose absence would reveal its length. A prefix token
    attends to the prefix up to itself (``causal``), or to all inputs that its only block attends
    to (``full``, as in Xia et al. 2023).

    Args:
        blocks: the hidden blocks; exactly one per row unless ``causal_prefix``.
        length: number of prefix inputs.
        causal_prefix: whether prefix tokens attend only to the prefix.

    Returns:
        (rows, inputs, inputs) true where the query (second axis) attends to the key.
    """
    rows, count, block_size = blocks.targets.shape
    device = blocks.starts.device
    position = torch.arange(length, device=device)
    owner = torch.arange(count, device=device).repeat_interleave(block_size)

    before = position <= blocks.starts.unsqueeze(2)  # (rows, blocks, length)
    block_rows = torch.cat(
        [before[:, owner], (owner.unsqueeze(1) == owner).expand(rows, -1, -1)], dim=2
    )
    if causal_prefix:
        own = (position <= position.unsqueeze(1)).expand(rows, length, length)
        prefix_rows = torch.cat([own, own.new_zeros(rows, length, owner.numel())], dim=2)
    else:
        prefix_rows = block_rows[:, :1].expand(rows, length, -1)
    return torch.cat([prefix_rows, block_rows], dim=1)


def glance(wrong: Tensor, scored: Tensor, ratio: float, noise: Tensor) -> Tensor:
    """Choose reference tokens to reveal (glancing, Qian et al. 2021).

    In a block with H wrong predictions, ⌊ratio · H⌋ tokens are revealed. They are drawn uniformly
    from the block.

    Args:
        wrong: (rows, blocks, k) true at the tokens to predict where the first pass was wrong.
        scored: (rows, blocks, k) true at the tokens to predict.
        ratio: λ.
        noise: (rows, blocks, k) uniform random numbers.

    Returns:
        (rows, blocks, k) true where the reference is revealed.
    """
    count = (wrong.sum(2, keepdim=True) * ratio).floor()
    rank = noise.masked_fill(~scored, 2.0).argsort(2).argsort(2)
    return (rank < count) & scored


def block_noise(ids: Tensor, blocks: Blocks, *stream: int) -> Tensor:
    """(rows, blocks, k) uniform numbers for :func:`glance`; see :func:`counter_uniform`."""
    rows, count, block_size = blocks.targets.shape
    return counter_uniform(ids, count * block_size, *stream).view(rows, count, block_size)
