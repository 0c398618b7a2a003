"""What kernels of Triton that are launched early share. Importing this needs Triton.

A kernel that is launched early begins while the kernel before it still runs (CUDA's programmatic
dependent launch). Until :func:`wait_for_others` it may read only what was there before an
ordinary kernel that ran in between, such as weights, and it may write nothing.
"""

import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # before Triton 3.4, which launches no kernel early

    @triton.jit
    def gdc_launch_dependents() -> None:
        """Does nothing."""

    @triton.jit
    def gdc_wait() -> None:
        """Does nothing."""


@triton.jit
def wait_for_others(early: tl.constexpr) -> None:
    """Let the next kernel begin, and wait until all kernels before are done.

    The compiler moves no read from one side of this to the other.

    Args:
        early: whether kernels are launched early; else nothing happens.
    """
    if early:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def add_one(numbers: tl.tensor, early: tl.constexpr) -> None:
    """Add 1 to the first of the numbers."""
    wait_for_others(early)
    tl.store(numbers, tl.load(numbers) + 1)
