"""BLEU of validations (``--eval-bleu``), whose search is built together with the model."""

from functools import cached_property
from typing import Any, Callable


class LateGenerator:
    """A search that is built when the first batch is decoded.

    fairseq builds the one of ``--eval-bleu`` before the model has its weights, type and device.

    Args:
        build: gives the search, which has fairseq's ``generate``.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build

    @cached_property
    def _search(self) -> Any:
        return self._build()

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`fairseq.sequence_generator.SequenceGenerator.generate`."""
        return self._search.generate(*args, **kwargs)
