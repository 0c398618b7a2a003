"""Proposal heads, which predict the tokens behind the next one (Stern et al., 2018)."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Product(NamedTuple):
    """Weights (outputs, inputs) and biases (outputs,) of a linear map."""

    weight: Tensor
    bias: Tensor


class Source(NamedTuple):
    """What the base's last decoder layer knows of the source.

    Attributes:
        keys: (rows, attention heads, source, head dim).
        values: likewise.
        mask: (rows, 1, 1, source) true where there is a token, or 0 there and -inf elsewhere;
            None: all are tokens.
    """

    keys: Tensor
    values: Tensor
    mask: Optional[Tensor]


class ProposalHeads(nn.Module):
    """A feed-forward layer with k outputs behind the decoder (Stern et al., 2018, Figure 3).

    From the decoder's state h behind y_1 … y_j, head i says what y_{j+i} is: its state

        z_i = h + B_i relu(A h)

    goes through the model's own vocabulary projection. A has d_hidden outputs for each head, and
    each B_i reads those of all heads (*joint*, as in the paper) or its own alone (*separate*: the
    same shape without the weights between heads, k times fewer in the B_i). The B_i start at zero,
    so that every head starts as the model's next-token prediction.

    One state says little of what comes later: the place of the source that will be translated then
    is not where the model looked. Separate heads may look there themselves (an addition to the
    paper): A reads h and, beside it, what an attention of the head's own finds in the source,

        z_i = h + B_i relu(A_i [h; attention(Q_i h, keys, values)])

    with the keys and values of the base's last layer, which are there in any case.

    Head 1 is the model itself, z_1 = h, unless it is learned too, as in the paper, whose heads
    change the model's own predictions thereby (footnote 1). It has no weights then, and heads
    that have none take no part in the sizes of A and B.

    Args:
        dim: size of h.
        hidden: d_hidden.
        block_size: k, at least 2.
        joint: B_i reads all of A h.
        learned_first: head 1 has weights too.
        dropout: of z_i - h, in training.
        inner_dropout: of relu(A h), in training.
        readers: attention heads of each Q_i; 0: heads do not read the source.
        source_dim: size of keys and values, all attention heads together.
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
        #: The first head that has weights.
        self.first = 1 if learned_first else 2
        count = block_size - self.first + 1
        self._dropout, self._inner_dropout = dropout, inner_dropout
        self.readers, self.source_dim = readers, source_dim if readers else 0
        if readers:
            self.query = nn.Linear(dim, count * source_dim)
            nn.init.normal_(self.query.weight, std=dim**-0.5)
            nn.init.zeros_(self.query.bias)
        self.inner = nn.Linear(dim + self.source_dim, count * hidden)
        # Of separate heads, the outputs of one below those of the other: (count * dim, hidden).
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
            states: (…, dim) h; (rows, places, dim) if the heads read the source.
            heads: numbers from 1 to k.
            source: for heads that read it.

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
                inner = self._inner(self._known(states, head, source), self.inner_of(head))
            change = F.linear(inner, *self.outer_of(head))
            found.append(states + F.dropout(change, self._dropout, self.training))
        return found

    def start_as(self, other: "ProposalHeads") -> None:
        """Take over the weights of other heads, of separate ones the first.

        Raises:
            ValueError: they have another form, or are fewer.
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

    def _known(self, states: Tensor, head: int, source: Optional[Source]) -> Tensor:
        """What A of a head reads: (…, dim + source_dim)."""
        if not self.readers:
            return states
        assert source is not None
        rows, places, _ = states.shape
        queries = F.linear(states, *self.query_of(head)).view(rows, places, self.readers, -1)
        found = F.scaled_dot_product_attention(queries.transpose(1, 2), *source)
        return torch.cat([states, found.transpose(1, 2).flatten(2)], dim=2)

    def _inner(self, states: Tensor, product: Product) -> Tensor:
        return F.dropout(torch.relu(F.linear(states, *product)), self._inner_dropout, self.training)

    def query_of(self, head: int) -> Product:
        """Q_i of a head that reads the source."""
        return Product(*self._part(self.query, head, self.source_dim))

    def inner_of(self, head: int) -> Product:
        """The rows of A that a head reads; all of them if the heads are joint."""
        if self.joint:
            return Product(self.inner.weight, self.inner.bias)
        return Product(*self._part(self.inner, head, self.hidden))

    def outer_of(self, head: int) -> Product:
        """B_i of a head that has weights."""
        return Product(*self._part(self.outer, head, self.dim))

    def _part(self, linear: nn.Linear, head: int, size: int) -> Tuple[Tensor, Tensor]:
        begin = (head - self.first) * size
        return linear.weight[begin : begin + size], linear.bias[begin : begin + size]
