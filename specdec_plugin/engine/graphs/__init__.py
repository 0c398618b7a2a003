"""Decoding by CUDA graphs: tensors that stay where they are, and what is captured on them."""
