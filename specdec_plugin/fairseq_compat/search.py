"""fairseq's own search with another projection than its model's."""

from typing import Any, Callable

import torch
from torch import Tensor, nn


def search_with(
    generator: Any, module: nn.Module, projection: Callable[[], Callable[[Tensor], Tensor]]
) -> Any:
    """Put another function in a module's place while one generator searches.

    Args:
        generator: fairseq's, whose ``generate`` is replaced.
        module: of the model that it searches with, which others use unchanged.
        projection: gives the function for a batch, before each.

    Returns:
        the generator.
    """
    search = generator.generate

    @torch.no_grad()
    def generate(*args: Any, **kwargs: Any) -> Any:
        module.forward = projection()
        try:
            return search(*args, **kwargs)
        finally:
            del module.forward

    generator.generate = generate
    return generator
