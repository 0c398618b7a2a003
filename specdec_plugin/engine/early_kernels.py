"""What kernels of Triton that are launched early share. Importing this needs Triton.

A kernel that is launched early begins while the kernel before it still runs (CUDA's programmatic
dependent launch). Until :func:`wait_for_others` it may read only what no kernel writes, and it
may write nothing.
"""

import triton
import triton.language as tl


@triton.jit
def wait_for_others(early: tl.constexpr) -> None:
    """Let the next kernel begin, and wait until all kernels before are done.

    The compiler moves no read from one side of this to the other.

    Args:
        early: whether kernels are launched early; else nothing happens.
    """
    if early:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def add_one(numbers: tl.tensor, early: tl.constexpr) -> None:
    """Add 1 to the first of the numbers."""
    wait_for_others(early)
    tl.store(numbers, tl.load(numbers) + 1)
