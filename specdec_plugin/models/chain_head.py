"""Dependence between the tokens of a block, without which a drafter mixes translations."""

from typing import List

import torch
from torch import Tensor, nn


class ChainHead(nn.Module):
    """A small recurrent layer over the states of a block.

    A block-NAT drafter chooses each token of a block for itself: where two
    translations are as good, it takes a word of one and a word of the other
    (Xia et al., 2023, section 1), and the verifier stops there. Here the state of position i
    also learns which tokens were chosen before it in the block:

        u_i = relu(A h_i + B e(y_{i-1}) + C u_{i-1}),   z_i = h_i + D u_i,

    and z_i is projected on the vocabulary. D starts at zero. It costs three small
    products a token; the layers of the decoder still run once a block.

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
        """The states of whole blocks when it is known which tokens were chosen.

        Args:
            states: (…, k, dim) h.
            before: (…, k, token_dim) vectors of the token before each position.

        Returns:
            (…, k, dim) z.
        """
        inputs = self.from_state(states) + self.from_token(before)
        chain: List[Tensor] = [torch.relu(inputs[..., 0, :])]
        for place in range(1, inputs.size(-2)):
            chain.append(torch.relu(inputs[..., place, :] + self.from_chain(chain[-1])))
        return states + self.out(torch.stack(chain, dim=-2))
