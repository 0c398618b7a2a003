"""A recurrent head that conditions each token of a drafted block on those before it."""

from typing import List

import torch
from torch import Tensor, nn


class ChainHead(nn.Module):
    """A small recurrent layer over the states of a block.

    A block-NAT drafter predicts each token of a block independently. Where two translations
    are equally good, it mixes tokens of both (Xia et al., 2023, section 1), and the verifier
    rejects the mixture. This layer conditions the state of position i on the tokens before it:

        u_i = relu(A h_i + B e(y_{i-1}) + C u_{i-1}),   z_i = h_i + D u_i,

    and z_i is projected on the vocabulary. D starts at zero. The layer costs three small
    products per token; the decoder's layers still run once per block.

    Args:
        dim: size of the decoder's output h.
        token_dim: size of the token vectors e.
        units: size of u.
    """

    def __init__(self, dim: int, token_dim: int, units: int) -> None:
        super().__init__()
        self.from_state = nn.Linear(dim, units)
        self.from_token = nn.Linear(token_dim, units, bias=False)
        self.from_chain = nn.Linear(units, units, bias=False)
        self.out = nn.Linear(units, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor, before: Tensor) -> Tensor:
        """The states of whole blocks whose tokens are known (teacher forcing).

        Args:
            states: (…, k, dim) h.
            before: (…, k, token_dim) vectors of the token before each position.

        Returns:
            (…, k, dim) z.
        """
        inputs = self.from_state(states) + self.from_token(before)
        chain: List[Tensor] = [torch.relu(inputs[..., 0, :])]
        for position in range(1, inputs.size(-2)):
            chain.append(torch.relu(inputs[..., position, :] + self.from_chain(chain[-1])))
        return states + self.out(torch.stack(chain, dim=-2))
