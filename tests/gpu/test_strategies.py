"""On a GPU, fairseq's strategies choose among candidates there, as on the CPU."""

import copy
from functools import partial

import pytest
import torch
from fairseq import utils
from fairseq.search import (
    DiverseBeamSearch,
    DiverseSiblingsSearch,
    LexicallyConstrainedBeamSearch,
    PrefixConstrainedBeamSearch,
)
from fairseq.token_generation_constraints import pack_constraints

from tests.gpu.test_identity import on_cpu
from tests.support import tiny
from tests.support.nbest import assert_lists_of_strategy, ours
from tests.support.search import MODELS

PHRASES = pack_constraints([[torch.tensor([5, 6]), torch.tensor([9])], [], [torch.tensor([7])]])
STRATEGIES = {
    "groups": partial(DiverseBeamSearch, num_groups=2, diversity_strength=0.7),
    "siblings": partial(DiverseSiblingsSearch, diversity_rate=0.5),
    "ordered": partial(LexicallyConstrainedBeamSearch, representation="ordered"),
    "unordered": partial(LexicallyConstrainedBeamSearch, representation="unordered"),
    "allowed": partial(
        PrefixConstrainedBeamSearch,
        prefix_allowed_tokens_fn=lambda number, tokens: [2, 4 + (number + len(tokens)) % 9],
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_lists_are_fairseqs(name, device):
    sample = tiny.sample([4, 9, 2], 3)
    sample.pop("id", None)
    given = dict(max_len_b=14, strategy=STRATEGIES[name])
    there, phrases = copy.deepcopy(MODELS[0]).to(device), None
    if "ordered" in name:
        given["phrases"] = phrases = PHRASES
    placed = utils.move_to_cuda(sample) if device.type == "cuda" else sample
    on_device = given if phrases is None else {**given, "phrases": phrases.to(device)}
    found = on_cpu(ours([there], placed, 4, **on_device))
    assert_lists_of_strategy(found, MODELS[:1], sample, 4, **given)
