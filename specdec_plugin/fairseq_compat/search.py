"""fairseq's own search with another projection than its model's."""

from typing import Any, Callable

import torch
from torch import Tensor, nn


def search_with(
    generator: Any,
    module: nn.Module,
    forward: Callable[[Tensor], Tensor],
    before: Callable[[], None],
) -> Any:
    """Let one of fairseq's generators search with another function than a module's.

    Args:
        generator: its ``generate`` is replaced.
        module: of the model that it searches with, which others use unchanged.
        forward: the function.
        before: called before each batch.

    Returns:
        the generator.
    """
    search = generator.generate

    @torch.no_grad()
    def generate(*args: Any, **kwargs: Any) -> Any:
        before()
        module.forward = forward
        try:
            return search(*args, **kwargs)
        finally:
            del module.forward

    generator.generate = generate
    return generator
