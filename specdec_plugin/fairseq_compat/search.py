"""fairseq's own search: with another projection than its model's, and where it finds no end."""

import contextlib
import re
from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn

from ..errors import PluginError

#: What fairseq asserts of a step and the length limit.
_UNENDED = re.compile(r"(\d+) < \1")


def unended(count: object) -> PluginError:
    """What is told where the length limit comes before an end.

    Args:
        count: of the sentences.
    """
    return PluginError(
        f"No hypothesis of {count} sentences of a batch can end within the length limit. Raise "
        "--max-len-b, or leave out --prefix-size and --constraints."
    )


@contextlib.contextmanager
def told_if_unended() -> Iterator[None]:
    """Turn the assertion of fairseq's search that each sentence has ended into a sentence."""
    try:
        yield
    except AssertionError as error:
        if _UNENDED.fullmatch(str(error)) is None:
            raise
        raise unended("some") from error


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
