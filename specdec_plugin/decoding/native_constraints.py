"""The rules of a batch as the kernels read them."""

import ctypes
from typing import Optional

from torch import Tensor

from ..engine.native.interface import field, structure
from .constraints import Constraints


@structure
class ConstraintsCall(ctypes.Structure):
    """What a row may not choose; see :class:`.Constraints`."""

    suppressed_id = field("int", "a symbol that is not chosen")
    unk = field("int", "a symbol whose log-probability is lowered")
    unk_penalty = field("float", "by so much")
    eos = field("int64_t", "ends a sentence")
    min_len = field("int64_t", "tokens before which no end may come, but in a prefix")
    max_len = field("int64_t", "tokens after which an end must come")
    prefix = field("const int64_t*", "(sentences, prefix_width) tokens to begin with; or null")
    prefix_width = field("int")


def describe(constraints: Constraints, call: ConstraintsCall) -> Optional[Tensor]:
    """Describe the rules of a batch.

    Returns:
        the prefix that the kernels read, which has to live as long as the call; or None.
    """
    call.suppressed_id, call.eos = constraints.pad, constraints.eos
    call.unk, call.unk_penalty = constraints.unk, constraints.unk_penalty
    call.min_len, call.max_len = constraints.min_len, constraints.max_len
    prefix = None if constraints.prefix is None else constraints.prefix.contiguous()
    call.prefix = None if prefix is None else prefix.data_ptr()
    call.prefix_width = 0 if prefix is None else prefix.size(1)
    return prefix
