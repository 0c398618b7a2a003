"""Gumbel noise that depends on seed, sentence, sample, position and symbol alone.

The symbol with the greatest log-probability plus Gumbel noise is a draw from the distribution
(Gumbel, 1954; Maddison et al., 2014). The noise is a hash of five numbers, and not the next number
of a generator. So a draft and its verification see the same noise, and a sample is the same in any
batch. The first three numbers and the position make a key of 64 bits by SplitMix64 (Steele, Lea &
Flood, 2014). The key and the symbol make 32 bits by two rounds of a mixer of 32-bit integers
(Wellons, 2018, ``lowbias32``).

``noise.h`` does the same on vectors: the same bits, and noise that agrees to about 1e-6.
"""

import torch
from torch import Tensor

from ..data.counter_random import GOLDEN, MIX_A, MIX_B, mix, shifted
from ..engine.native.interface import constants

#: Of the mixer.
_SPREAD, _LOW_A, _LOW_B = 0x9E3779B9, 0x7FEB352D, 0x846CA68B
_MASK = 0xFFFFFFFF
#: The greatest float32 below 1: a uniform number of 1 would have no noise.
_BELOW_ONE = 1 - 2**-24

constants(NOISE_SPREAD=_SPREAD, NOISE_LOW_A=_LOW_A, NOISE_LOW_B=_LOW_B)
constants(NOISE_GOLDEN=GOLDEN, NOISE_MIX_A=MIX_A, NOISE_MIX_B=MIX_B)


def row_keys(seed: int, sentences: Tensor, samples: Tensor) -> Tensor:
    """What tells rows apart.

    Args:
        seed: any whole number.
        sentences: (rows,) each row's sentence, counted in the whole corpus.
        samples: (rows,) which sample of the sentence it is.

    Returns:
        (rows,) int64, any bits.
    """
    keys = torch.full_like(sentences, _signed(seed))
    for number in (torch.zeros_like(sentences), sentences, samples):
        keys = mix(keys * GOLDEN + number)
    return keys


def gumbel(keys: Tensor, positions: Tensor, symbols: int) -> Tensor:
    """The noise of every symbol.

    Args:
        keys: (rows,) of :func:`row_keys`.
        positions: (rows, width) of the tokens that are chosen, from 0.
        symbols: how many symbols there are.

    Returns:
        (rows, width, symbols) float32.
    """
    state = mix(keys.unsqueeze(1) * GOLDEN + positions).unsqueeze(2)
    bits = torch.arange(symbols, device=keys.device) * _SPREAD
    bits = _low_mix((bits + (state & _MASK)) & _MASK)
    bits = _low_mix(bits ^ shifted(state, 32))
    return gumbel_of(bits)


def gumbel_of(bits: Tensor) -> Tensor:
    """-log(-log(1 - u)) of numbers u = (bits + 1/2) / 2^32, of any shape."""
    uniform = bits.float().add_(0.5).mul_(2.0**-32).clamp_(max=_BELOW_ONE)
    # The inner logarithm is Kahan's form, exact for small numbers too.
    rest = 1 - uniform
    lost = 1 - rest
    exponential = torch.where(lost > 0, -rest.log() * (uniform / lost), uniform)
    return exponential.log_().neg_()


def _signed(number: int) -> int:
    """The number's last 64 bits as PyTorch holds them."""
    return (number + 2**63) % 2**64 - 2**63


def _low_mix(x: Tensor) -> Tensor:
    """A permutation of numbers of 32 bits."""
    x = ((x ^ (x >> 16)) * _LOW_A) & _MASK
    x = ((x ^ (x >> 15)) * _LOW_B) & _MASK
    return x ^ (x >> 16)
