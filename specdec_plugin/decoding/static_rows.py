"""Tokens of rows in tensors that stay where they are, which a device adds to by itself."""

from typing import Dict, List, NamedTuple

import torch
from torch import Tensor

from ..engine.graphs.tables import Tables
from ..engine.graphs.tensors import StaticTensors, counts_of
from .acceptance import Emission
from .state import Draft, HostTokens, Rows

#: Iterations that are queued before the host reads the oldest one's outcome.
AHEAD = 1
#: The first columns of an outcome. Behind them are the tokens, and the bits of their scores.
LENGTH, DRAFTED, KEPT, ADDED, ENDED, TOKENS = range(6)
#: An outcome on the host, by row.
Table = List[List[int]]


class Outcomes(NamedTuple):
    """How iterations of some width turn out.

    Attributes:
        table: (rows, 5 + 2 * width) long, of the last iteration, where :meth:`StaticRows.append`
            writes it.
        host: what the host reads.
        width: tokens that an iteration adds at most.
    """

    table: Tensor
    host: Tables
    width: int

    def add(self, outcome: List[int], known: HostTokens) -> None:
        """Add what an iteration gave a row to what the host knows of the row."""
        end = TOKENS + outcome[ADDED]
        known.tokens.extend(outcome[TOKENS:end])
        known.scores.extend(outcome[TOKENS + self.width : end + self.width])


class StaticRows:
    """The tokens of some rows, in tensors that stay where they are.

    Args:
        tensors: of the verifier's batch.
        rows: how many, rounded up.

    Attributes:
        inputs: (rows, capacity + 1) what the decoder is fed; see :class:`.state.Rows`.
        scores: (rows, capacity + 1) log-probabilities of the chosen tokens.
        lengths: (rows,) long, how many tokens are chosen.
        alive: (rows,) long, 0 where a row has ended, or is one too many.
        held: (rows,) long, tokens in the cache of a drafter that has one of its own, and is fed all
            chosen tokens in each iteration.
        runs: (rows,) long, iterations since the rows were read, where a kernel counts them.
        fresh: whether no row had a token when they were read.
    """

    def __init__(self, tensors: StaticTensors, rows: int) -> None:
        lengths, width = tensors.lengths, tensors.sizes.capacity + 1
        self._tensors = tensors
        self.inputs = lengths.new_zeros(rows, width)
        self.scores = torch.zeros(rows, width, dtype=torch.float32, device=lengths.device)
        whole = rows == lengths.size(0)
        self._counts = tensors.counts if whole else counts_of(lengths, rows)
        self.lengths, self.alive, self.held, self.runs = self._counts[:, :rows]
        self.fresh, self._bos = False, -1
        self._outcomes: Dict[int, Outcomes] = {}
        self._constants: Dict[int, Tensor] = {}
        self._begun: Dict[int, Tensor] = {}

    def outcomes(self, width: int) -> Outcomes:
        """Those of iterations that add so many tokens at most.

        They are made outside of captures, which write into them.
        """
        if width not in self._outcomes:
            with torch.inference_mode(False):
                table = self.lengths.new_zeros(self.lengths.size(0), TOKENS + 2 * width)
                self._outcomes[width] = Outcomes(table, Tables(table, AHEAD + 1), width)
        return self._outcomes[width]

    def read(self, rows: Rows) -> None:
        """Continue with rows. A drafter's cache is taken to have no tokens."""
        for each in self._outcomes.values():
            each.host.clear()  # of a run that was interrupted; and the device's runs begin at 0
        tensors, count, chosen = self._tensors, rows.size, rows.longest
        tensors.graphs.wait_for_replays()
        self.fresh = chosen == 0
        begun = tensors.begun and self._counts is tensors.counts
        if not begun or count < self.lengths.size(0):
            self._counts.copy_(self._begin(count))  # one operator for all of them
        tensors.begun = False
        if self._bos != rows.bos:  # else it stands in all rows since an earlier batch
            self.inputs[:, 0] = self._bos = rows.bos
        if self.fresh:
            return
        self.inputs[:count, : chosen + 1].copy_(rows.inputs[:, : chosen + 1])
        self.scores[:count, :chosen].copy_(rows.scores[:, :chosen])
        self.lengths[:count].copy_(rows.lengths)

    def _begin(self, count: int) -> Tensor:
        """What the counts of so many rows begin with."""
        if count not in self._begun:
            with torch.inference_mode(False):
                begun = torch.zeros_like(self._counts)
                begun[1, :count] = 1
                self._begun[count] = begun
        return self._begun[count]

    def write(self, rows: Rows, longest: int) -> None:
        """Let the rows have what was chosen; the longest one has so many tokens."""
        count = rows.size
        rows.inputs = self.inputs[:count, : longest + 1].clone()
        rows.scores = self.scores[:count, : longest + 1].clone()
        rows.lengths = self.lengths[:count].clone()

    def newest(self) -> Tensor:
        """(rows, 1) the newest token of each row."""
        return self.inputs.gather(1, self.lengths.unsqueeze(1))

    def empty_draft(self) -> Draft:
        """A draft of no tokens: (rows, 0)."""
        return Draft(self.inputs[:, :0], self.all(0))

    def all(self, number: int) -> Tensor:
        """(rows,) long, a number for each row; not to be changed.

        It is made outside of captures, which may read it.
        """
        if number not in self._constants:
            with torch.inference_mode(False):
                self._constants[number] = torch.full_like(self.lengths, number)
        return self._constants[number]

    def append(self, emission: Emission, drafted: Tensor, steps: Tensor) -> None:
        """Add what is emitted to the rows that have not ended, and note it in the table.

        Args:
            emission: of m + 1 tokens a row.
            drafted: (rows,) tokens that were drafted.
            steps: (rows, m + 1) numbers of the positions, 0 for a row's first token.
        """
        # Behind its last token, a row may have any.
        self.scores.scatter_(1, steps, emission.scores)
        torch.add(self.lengths, 1, out=self.held)
        self.inputs.scatter_(1, steps + 1, emission.tokens)
        facts = torch.stack([drafted, emission.kept, emission.counts, emission.ended], 1)
        facts *= self.alive.unsqueeze(1)
        self.lengths += facts[:, ADDED - 1]
        self.alive -= facts[:, ENDED - 1]
        table = self.outcomes(emission.tokens.size(1)).table
        bits = emission.scores.float().view(torch.int32)
        for begin, part in (
            (LENGTH, self.lengths.unsqueeze(1)),
            (DRAFTED, facts),
            (TOKENS, emission.tokens),
            (TOKENS + emission.tokens.size(1), bits),
        ):
            table[:, begin : begin + part.size(1)].copy_(part)
