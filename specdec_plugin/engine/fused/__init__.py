"""Triton's kernels of a decoder that is fed few vectors, for CUDA devices."""
