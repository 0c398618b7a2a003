import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.vocab.packing import pack, unpack
from tests.support import made


@settings(max_examples=100)
@given(
    vocabulary=st.sampled_from([1, 7, 8, 255, 256, 1000, 3000]),
    count=st.integers(1, 6),
    data=st.data(),
)
def test_any_sets_survive(vocabulary, count, data):
    symbols = st.sets(st.integers(0, vocabulary - 1), min_size=1)
    sets = [sorted(data.draw(symbols)) for _ in range(count)]
    given_ = made.clusters(sets, 4, vocabulary)
    packed = pack(given_.offsets, given_.tokens, vocabulary)
    offsets, tokens = unpack(packed, count, vocabulary)
    assert made.sets_of(given_._replace(offsets=offsets, tokens=tokens)) == sets
    assert tokens.dtype == torch.int32


def test_few_bytes():
    """Not many more than the entropy of which symbols are active how often."""
    torch.manual_seed(0)
    share = torch.rand(4000).pow(6)  # a few symbols are active nearly everywhere
    active = torch.rand(200, 4000) < share
    active[:, 0] = True
    sets = [row.nonzero().flatten().tolist() for row in active]
    found = made.clusters(sets, 4, 4000)
    entropy = torch.distributions.Bernoulli(share).entropy().sum() / torch.tensor(2.0).log() * 200
    assert pack(found.offsets, found.tokens, 4000).numel() < 1.4 * float(entropy) / 8


def compressed(*rows):
    return torch.frombuffer(bytearray(zlib.compress(bytes(rows))), dtype=torch.uint8)


@pytest.mark.parametrize(
    "packed, reason",
    [
        (torch.empty(0, dtype=torch.uint8), "another shape than 5 bytes"),
        (torch.zeros(9, dtype=torch.uint8), "unknown compression method"),
        (compressed(192, 0, 0, 0), "another shape"),
        (compressed(192, 0, 0, 0, 0, 0), "another shape"),
        (compressed(*100_000 * [192]), "another shape"),
        (compressed(192, 0, 0, 0, 0)[:-6], "another shape"),
        (compressed(192, 0, 0, 0, 0)[:-1], "another shape"),
        (compressed(128, 0, 0, 128, 0), "a cluster without tokens"),
        (compressed(224, 0, 0, 0, 0), "tokens of no cluster"),
    ],
)
def test_nonsense_is_refused(packed, reason):
    with pytest.raises(ValueError, match=reason):
        unpack(packed, 2, 5)


def test_no_machine_is_filled():
    with pytest.raises(ValueError, match="268,435,456,000 bytes of tokens"):
        unpack(compressed(1), 1000, 2**31)
