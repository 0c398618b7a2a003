"""``--copy-bias``: the source's next token is preferred."""

from typing import Any, Optional

from torch import Tensor

from ...decoding.preference import Preference
from ...decoding.state import Batch, Draft, Rows
from ...decoding.symbols import Symbols
from ...engine import Backend, choose_backend
from .native import NativeSourceNext
from .source_copy import SourceNext, sources_of


class CopyBias(Preference):
    """Prefers the token with which the source continues; see :class:`.source_copy.SourceNext`.

    Args:
        symbols: of the dictionaries.
        bias: added to the log-probability of that token.
        backend: who finds it; None chooses.
    """

    def __init__(self, symbols: Symbols, bias: float, backend: Optional[Backend] = None) -> None:
        self._symbols, self.bias, self._backend = symbols, bias, backend
        self._next: Any = None

    def start(self, batch: Batch) -> None:
        """Begin at the start of the source."""
        backend = self._backend or choose_backend(batch.device)
        make: Any = NativeSourceNext if backend.unsupported() is None else SourceNext
        self._next = make(*sources_of(batch, self._symbols))

    def tokens(self, rows: Rows, draft: Draft) -> Tensor:
        found: Tensor = self._next.after(rows, draft)
        return found.to(rows.inputs.device)

    def select(self, rows: Tensor) -> None:
        self._next.select(rows)
