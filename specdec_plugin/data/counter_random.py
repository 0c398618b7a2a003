"""Random numbers that depend on the example, not on the worker that draws them.

A drafter's random prefix must not depend on the worker, batch or order of its sentence. Then
training is reproducible, and the gradient does not depend on the number of workers. A
counter-based generator achieves that without a loop over the batch: each number is a hash of
(seed, epoch, sentence, counter). The hash is the finaliser of SplitMix64 (Steele, Lea & Flood
2014).
"""

import torch
from torch import Tensor

#: An odd number of 64 bits near 2**64 divided by the golden ratio.
GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
#: The multipliers of the finaliser.
MIX_A = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_B = -7723592293110705685  # 0x94D049BB133111EB


def counter_uniform(ids: Tensor, width: int, *stream: int) -> Tensor:
    """Uniform numbers in [0, 1), one row for each sentence.

    Args:
        ids: (rows,) integers that identify the sentences.
        width: number of random numbers per row.
        stream: further integers (seed, epoch, purpose), which select independent sequences.

    Returns:
        (rows, width) float32.
    """
    state = ids.to(torch.int64)
    for number in stream:
        state = mix(state * GOLDEN + number)
    counter = torch.arange(1, width + 1, device=ids.device)
    mixed = mix(state.unsqueeze(1) + counter * GOLDEN)
    return shifted(mixed, 40).to(torch.float32) / 2**24


def mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64, of int64 numbers of any shape."""
    x = (x ^ shifted(x, 30)) * MIX_A
    x = (x ^ shifted(x, 27)) * MIX_B
    return x ^ shifted(x, 31)


def shifted(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; PyTorch's ``>>`` would copy the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
