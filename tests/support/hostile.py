"""Drafters that know the output and mix it with anything else."""

from random import Random
from typing import Callable, Dict, List, Optional

import torch

from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.state import Batch, Draft, Outcome, Rows


class HostileDrafter(Drafter):
    """Knows what will be said, and mixes it with anything else.

    Args:
        truth: the outputs that greedy decoding gives, row by row.
        honesty: how often a drafted token is the true one.
        most: longest draft.
        seed: of everything random.
    """

    def __init__(self, truth: List[List[int]], honesty: float, most: int, seed: int) -> None:
        self.truth = truth
        self.honesty = honesty
        self.most = most
        self.random = torch.Generator().manual_seed(seed)

    def start(self, batch: Batch) -> None:
        self.rows: Optional[List[int]] = None

    def propose(self, rows: Rows) -> Draft:
        assert rows.order == (self.rows or rows.order)
        self.rows = list(rows.order)
        width = int(torch.randint(0, self.most + 1, (1,), generator=self.random))
        # As drafters that stop early do, it shows a part of a wider tensor.
        tokens = torch.randint(0, 16, (rows.size, width + 1), generator=self.random)[:, :width]
        honest = torch.rand(rows.size, width, generator=self.random) < self.honesty
        for row, place in enumerate(rows.order):
            begin = rows.host_lengths[row]
            true = self.truth[place][begin : begin + width]
            for column, token in enumerate(true):
                if honest[row, column]:
                    tokens[row, column] = token
        lengths = torch.randint(0, width + 1, (rows.size,), generator=self.random)
        return Draft(tokens, lengths)

    def select(self, rows: torch.Tensor) -> None:
        if self.rows is not None:
            self.rows = [self.rows[row] for row in rows.tolist()]


def _any(random: Random) -> int:
    return random.randrange(16)


#: Drafts that nobody should make, given what fairseq says from here on.
HOSTILE: Dict[str, Callable[[List[int], Random], List[int]]] = {
    "garbage": lambda true, random: [_any(random) for _ in range(6)],
    "half right": lambda true, random: [
        token if random.random() < 0.7 else _any(random) for token in true[:8]
    ],
    "too long": lambda true, random: [*true, *(_any(random) for _ in range(90))],
    "ends": lambda true, random: [*true[: random.randrange(4)], *[2] * 4],
    "padding": lambda true, random: [*true[: random.randrange(4)], *[1] * 4],
    "ragged": lambda true, random: true[: random.randrange(9)],
}


class Interrupted(Drafter):
    """Another drafter, which is asked in some iterations; in the others hostile drafts are made.

    Args:
        drafter: the other; None to make hostile drafts only.
        kind: of ``HOSTILE``.
        truth: the outputs that greedy decoding gives, row by row.
        seed: of everything random.
    """

    def __init__(
        self, drafter: Optional[Drafter], kind: str, truth: List[List[int]], seed: int
    ) -> None:
        self.drafter = drafter
        self.needs = frozenset() if drafter is None else drafter.needs
        self.make = HOSTILE[kind]
        self.truth = truth
        self.random = Random(seed)

    def start(self, batch: Batch) -> None:
        if self.drafter is not None:
            self.drafter.start(batch)

    def propose(self, rows: Rows) -> Draft:
        if self.drafter is not None and self.random.random() < 0.5:
            return self.drafter.propose(rows)
        left = [
            self.truth[row][begin:]
            for row, begin in zip(rows.order, rows.host_lengths, strict=True)
        ]
        return Draft.of([self.make(true, self.random) for true in left], rows.lengths.device)

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        if self.drafter is not None:
            self.drafter.accept(rows, outcome)

    def select(self, rows: torch.Tensor) -> None:
        if self.drafter is not None:
            self.drafter.select(rows)
