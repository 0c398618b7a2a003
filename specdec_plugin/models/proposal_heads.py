"""Proposal heads, which predict tokens beyond the next one (Stern et al., 2018)."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Product(NamedTuple):
    """Weights (outputs, inputs) and biases (outputs,) of a linear map."""

    weight: Tensor
    bias: Tensor


class Source(NamedTuple):
    """Cross-attention keys and values of the base's last decoder layer.

    Attributes:
        keys: (rows, attention heads, source, head dim).
        values: of the same shape.
        mask: (rows, 1, 1, source) true at tokens and false at padding, or 0 and -inf;
            None: there is no padding.
    """

    keys: Tensor
    values: Tensor
    mask: Optional[Tensor]


class ProposalHeads(nn.Module):
    """A feed-forward layer with k outputs after the decoder (Stern et al., 2018, Figure 3).

    From the decoder's state h after y_1 … y_j, head i predicts y_{j+i}. Its state

        z_i = h + B_i relu(A h)

    passes through the model's own vocabulary projection. A has d_hidden outputs for each head.
    Each B_i reads the outputs of all heads (*joint*, as in Stern et al.) or only its own
    (*separate*). Separate heads have no weights between heads, so their B_i are k times smaller.
    The B_i start at zero, so every head starts as the model's next-token prediction.

    One state carries little about later tokens, because the model attended to the source of the
    next token. Separate heads may attend to the source themselves, which Stern et al. do not do.
    A then reads h and the result of the head's own attention:

        z_i = h + B_i relu(A_i [h; attention(Q_i h, keys, values)])

    with the cross-attention keys and values of the base's last layer.

    By default head 1 is the model itself, z_1 = h. It has no weights then, and A and B have no
    part for it. Stern et al. learn head 1 too, which changes the model's own predictions
    (footnote 1).

    Args:
        dim: size of h.
        hidden: d_hidden.
        block_size: k, at least 2.
        joint: each B_i reads the whole of A h.
        learned_first: head 1 has weights too.
        dropout: of z_i - h, in training.
        inner_dropout: of relu(A h), in training.
        readers: attention heads of each Q_i; 0: heads do not read the source.
        source_dim: size of keys and values over all attention heads.
    """

    def __init__(
        self,
        dim: int,
        hidden: int,
        block_size: int,
        joint: bool = True,
        learned_first: bool = False,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
        readers: int = 0,
        source_dim: int = 0,
    ) -> None:
        super().__init__()
        if readers and (joint or learned_first):
            raise ValueError("joint heads, or a learned first one, cannot read the source")
        self.dim, self.hidden, self.block_size, self.joint = dim, hidden, block_size, joint
        #: Number of the first head that has weights.
        self.first = 1 if learned_first else 2
        count = block_size - self.first + 1
        self._dropout, self._inner_dropout = dropout, inner_dropout
        self.readers, self.source_dim = readers, source_dim if readers else 0
        if readers:
            self.query = nn.Linear(dim, count * source_dim)
            nn.init.normal_(self.query.weight, std=dim**-0.5)
            nn.init.zeros_(self.query.bias)
        self.inner = nn.Linear(dim + self.source_dim, count * hidden)
        # The weights of separate heads are stacked by rows: (count * dim, hidden).
        self.outer = nn.Linear(count * hidden if joint else hidden, count * dim)
        nn.init.xavier_uniform_(self.inner.weight, gain=2**0.5)
        nn.init.zeros_(self.inner.bias)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(
        self, states: Tensor, heads: Sequence[int], source: Optional[Source] = None
    ) -> List[Tensor]:
        """The states of some heads.

        Args:
            states: (…, dim) h; (rows, positions, dim) if the heads read the source.
            heads: numbers from 1 to k.
            source: keys and values, for heads that read the source.

        Returns:
            (…, dim) z_i of each.
        """
        shared = None
        if self.joint and max(heads, default=0) >= self.first:
            shared = self._inner(states, Product(self.inner.weight, self.inner.bias))
        found = []
        for head in heads:
            if head < self.first:
                found.append(states)
                continue
            inner = shared
            if inner is None:
                inner = self._inner(self._inputs(states, head, source), self.inner_of(head))
            change = F.linear(inner, *self.outer_of(head))
            found.append(states + F.dropout(change, self._dropout, self.training))
        return found

    def start_as(self, other: "ProposalHeads") -> None:
        """Take over the weights of other heads; separate heads may take only the first of them.

        Raises:
            ValueError: the other heads have another form, or are fewer.
        """
        fewer = self.block_size < other.block_size and not self.joint
        if self._form() != other._form() or (self.block_size != other.block_size and not fewer):
            raise ValueError(f"{other._described()} cannot become {self._described()}")
        given = other.state_dict()
        with torch.no_grad():
            for name, weight in self.state_dict().items():
                weight.copy_(given[name][: weight.size(0)])

    def _described(self) -> str:
        kind = "joint" if self.joint else "source-reading" if self.readers else "separate"
        learned = ", the first learned," if self.first == 1 else ""
        sizes = f"{self.hidden} units on {self.dim} states"
        return f"{self.block_size} {kind} heads{learned} of {sizes}"

    def _form(self) -> Tuple[int, int, bool, int, int, int]:
        return self.dim, self.hidden, self.joint, self.first, self.readers, self.source_dim

    def _inputs(self, states: Tensor, head: int, source: Optional[Source]) -> Tensor:
        """The inputs of a head's A: (…, dim + source_dim)."""
        if not self.readers:
            return states
        assert source is not None
        rows, positions, _ = states.shape
        queries = F.linear(states, *self.query_of(head)).view(rows, positions, self.readers, -1)
        found = F.scaled_dot_product_attention(queries.transpose(1, 2), *source)
        return torch.cat([states, found.transpose(1, 2).flatten(2)], dim=2)

    def _inner(self, states: Tensor, product: Product) -> Tensor:
        return F.dropout(torch.relu(F.linear(states, *product)), self._inner_dropout, self.training)

    def query_of(self, head: int) -> Product:
        """Q_i of a head that reads the source."""
        return self._part(self.query, head, self.source_dim)

    def inner_of(self, head: int) -> Product:
        """The rows of A that belong to a head; all rows if the heads are joint."""
        if self.joint:
            return Product(self.inner.weight, self.inner.bias)
        return self._part(self.inner, head, self.hidden)

    def outer_of(self, head: int) -> Product:
        """B_i of a head that has weights."""
        return self._part(self.outer, head, self.dim)

    def _part(self, linear: nn.Linear, head: int, size: int) -> Product:
        part = slice((head - self.first) * size, (head - self.first + 1) * size)
        return Product(linear.weight[part], linear.bias[part])
