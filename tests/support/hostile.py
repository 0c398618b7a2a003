"""A drafter that knows the output and mixes it with anything else."""

from typing import List

import torch

from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.state import Batch, Draft, Rows


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
        self.rows = list(range(batch.size))

    def propose(self, rows: Rows) -> Draft:
        assert rows.order == self.rows
        width = int(torch.randint(0, self.most + 1, (1,), generator=self.random))
        # As drafters that stop early do, it shows a part of a wider tensor.
        tokens = torch.randint(0, 16, (rows.size, width + 1), generator=self.random)[:, :width]
        honest = torch.rand(rows.size, width, generator=self.random) < self.honesty
        for row, place in enumerate(self.rows):
            begin = rows.host_lengths[row]
            true = self.truth[place][begin : begin + width]
            for column, token in enumerate(true):
                if honest[row, column]:
                    tokens[row, column] = token
        lengths = torch.randint(0, width + 1, (rows.size,), generator=self.random)
        return Draft(tokens, lengths)

    def select(self, rows: torch.Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]
