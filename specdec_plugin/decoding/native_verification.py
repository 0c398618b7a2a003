"""An iteration's verification in one call of the native kernels.

Between two calls nothing of PyTorch runs: at the sizes of translation models its
operators would take as long as the arithmetic. The kernels compute what
:class:`.loop.VerifiedStep` computes on PyTorch's operators.
"""

import ctypes
import time
import weakref
from ctypes import c_int64
from typing import Any, List, Optional

import torch

from ..engine import CachedDecoder, native
from ..engine.native import pointer
from .acceptance import Rule
from .native_rows import describe_rows
from .state import Draft, Outcome, Rows
from .verifier import Verifier


class NativeVerification:
    """Feed, score, judge and append, for a single verifier without forced prefixes.

    With β above 1 not all of the vocabulary is scored exactly: 8-bit scores say which
    symbols are in question, about sixty a place, and those are scored in float32, as is what
    was drafted. The rest only counts in the normaliser of the log-probabilities. With β of 1 this
    is done for a certified verifier, with all symbols that might be the best in question.

    Args:
        verifier: one for which :meth:`supports` is true.
        rule: the acceptance rule.
    """

    def __init__(self, verifier: Verifier, rule: Rule) -> None:
        engine = verifier.engines[0]
        assert isinstance(engine, CachedDecoder)
        self._verifier, self._engine = verifier, engine
        self._library = native.library()
        self._scratch: int = self._library.verification_new()
        weakref.finalize(self, self._library.verification_free, self._scratch)
        self._rule = rule  # its tensors are read by the kernels
        self._round = native.Round()
        rule.describe(self._round)
        self._facts: List[Any] = []

    @staticmethod
    def supports(verifier: Verifier) -> bool:
        """Whether the kernels give what this verifier gives, wherever its weights are by then."""
        if len(verifier.engines) != 1 or verifier.temperature != 1.0:
            return False
        return isinstance(verifier.engines[0], CachedDecoder) and native.library() is not None

    @classmethod
    def certifies(cls, verifier: Verifier) -> Optional[str]:
        """Why the kernels cannot be certain of what float32 says, in a few words; None: they can.

        Asked where the weights are now.
        """
        if len(verifier.engines) != 1:
            return f"--path names {len(verifier.engines)} models"
        if verifier.temperature != 1.0:
            return f"--temperature is {verifier.temperature}"
        engine = verifier.engines[0]
        if not isinstance(engine, CachedDecoder):
            return "the model's decoder is not a plain Transformer's"
        if engine.weight_type != torch.float32:
            kept = str(engine.weight_type).removeprefix("torch.")
            return f"the weights are {kept} and not float32 (--fp16, --bf16, --verifier-dtype)"
        if not engine.takes_tokens or engine.projection.native is None:
            return "the native kernels do not run this model here (a CPU, a C++ compiler)"
        return None

    def fits(self, rows: Rows) -> bool:
        """Whether no rule is left that the kernels do not know."""
        constraints = rows.constraints
        prefix = 0 if constraints.prefix is None else constraints.prefix.size(1)
        if constraints.unk_penalty != 0 or rows.shortest < prefix:
            return False
        projection = self._engine.projection
        kernels = projection.native is not None or projection.gather is not None
        return self._engine.takes_tokens and kernels

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append to each row what stands of its draft, and the verifier's next token."""
        begin = time.perf_counter()
        call, projection = self._round, self._engine.projection
        tokens, lengths = draft.tokens.contiguous(), draft.lengths.contiguous()
        width = tokens.size(1)
        rows.make_room(width + 1)
        self._engine.describe(self._verifier.states[0], width + 1, call.call)
        describe_rows(rows, call.rows)
        self._describe_limits(rows)
        call.gather = projection.gather
        if projection.native is not None and (call.beta > 1 or self._verifier.certified):
            screen = projection.screen
            call.screen, call.symbols = screen.rounded.handle, pointer(screen.weight)
            call.bias, call.certainty = pointer(screen.bias), screen.certainty
        call.block = width
        call.draft, call.draft_lengths = tokens.data_ptr(), lengths.data_ptr()
        self._library.verification_run(
            self._scratch,
            self._engine.stack,
            None if projection.native is None else projection.native.handle,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        now, *outcome = [fact[: rows.size] for fact in self._facts]
        rows.sync_lengths(now)
        self._verifier.spent(time.perf_counter() - begin, call.scoring)
        if self._verifier.certified:
            places = rows.size * (1 + max(outcome[0]))
            self._verifier.statistics.certify(places, call.sure, call.asked)
        return Outcome(*outcome)

    def _describe_limits(self, rows: Rows) -> None:
        call, constraints = self._round, rows.constraints
        call.never, call.eos = constraints.pad, constraints.eos
        call.min_len, call.max_len = constraints.min_len, constraints.max_len
        if not self._facts or len(self._facts[0]) < rows.size:
            self._facts = [(c_int64 * rows.size)() for _ in range(5)]
            call.lengths, call.drafted, call.kept, call.added, call.ended = map(
                ctypes.addressof, self._facts
            )
