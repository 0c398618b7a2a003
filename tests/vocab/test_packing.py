import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.vocab.packing import pack, unpack

from . import made


@settings(max_examples=100, deadline=None)
@given(
    vocabulary=st.sampled_from([1, 7, 8, 255, 256, 1000, 3000]),
    count=st.integers(1, 6),
    data=st.data(),
)
def test_any_sets_survive_in_either_form(vocabulary, count, data):
    symbols = st.sets(st.integers(0, vocabulary - 1), min_size=1)
    sets = [sorted(data.draw(symbols)) for _ in range(count)]
    given_ = made.clusters(sets, 4, vocabulary)
    packed = pack(given_.offsets, given_.tokens, vocabulary)
    offsets, tokens = unpack(packed, count, vocabulary)
    assert made.sets_of(given_._replace(offsets=offsets, tokens=tokens)) == sets
    assert tokens.dtype == torch.int32


def test_the_smaller_form_is_taken():
    few = made.random_clusters(20, 4, 8000, share=0.02)
    many = made.random_clusters(20, 4, 8000, share=0.4)
    packed = [pack(each.offsets, each.tokens, 8000) for each in (few, many)]
    assert [each.dim() for each in packed] == [1, 2]
    assert packed[0].numel() < 1.3 * few.tokens.numel()
    assert packed[1].numel() == 20 * 1000


@pytest.mark.parametrize(
    "packed",
    [
        torch.zeros(2, 3, dtype=torch.uint8),
        torch.zeros(3, 2, dtype=torch.uint8),
        torch.tensor([3, 0], dtype=torch.uint8),
        torch.tensor([3, 200], dtype=torch.uint8),
        torch.full((9,), 255, dtype=torch.uint8),
        torch.empty(0, dtype=torch.uint8),
    ],
)
def test_nonsense_is_refused(packed):
    with pytest.raises(ValueError):
        unpack(packed, 2, 20)
