import pytest
import torch

from specdec_plugin.engine.kv_cache import KVCache

LAYERS, HEADS, DIM = 2, 2, 3


def make_cache(rows, capacity=4):
    return KVCache(LAYERS, rows, HEADS, DIM, capacity, torch.float32, torch.device("cpu"))


def write(cache, new):
    """Random entries for all layers, and what each layer shows."""
    entries = torch.randn(LAYERS, 2, cache.rows, HEADS, new, DIM)
    slots = cache.reserve(new)
    shown = [cache.write(layer, entries[layer]) for layer in range(LAYERS)]
    assert all(part.shape == (cache.rows, HEADS, slots, DIM) for pair in shown for part in pair)
    return entries, shown


@pytest.mark.parametrize("rows", [1, 3])
def test_growing_keeps_what_is_valid(rows):
    cache = make_cache(rows)
    written = []
    for new in (3, 1, 4, 9):
        entries, shown = write(cache, new)
        written.append(entries)
        cache.keep(cache.lengths + new, cache.longest + new)
    expected = torch.cat(written, dim=4)
    assert cache.capacity >= 17
    for layer in range(LAYERS):
        assert torch.equal(shown[layer][0], expected[layer, 0])
        assert torch.equal(shown[layer][1], expected[layer, 1])


def test_capacity_doubles():
    cache = make_cache(2, capacity=4)
    cache.reserve(4)
    assert cache.capacity == 4
    cache.reserve(5)
    assert cache.capacity == 8
    cache.reserve(40)
    assert cache.capacity == 40


def test_a_bound_beyond_the_capacity_may_grow_too():
    cache = make_cache(2, capacity=1)
    first, _ = write(cache, 1)
    cache.keep(torch.tensor([1, 0]), 3)
    _, shown = write(cache, 1)
    assert torch.equal(shown[1][0][0, :, :1], first[1, 0, 0])


def test_ragged_rows_write_behind_their_own_length():
    cache = make_cache(3)
    first, _ = write(cache, 4)
    cache.keep(torch.tensor([4, 1, 2]), 4)
    second, shown = write(cache, 2)
    for row, length in enumerate([4, 1, 2]):
        for part in (0, 1):
            valid = shown[1][part][row, :, : length + 2]
            assert torch.equal(valid[:, :length], first[1, part, row, :, :length])
            assert torch.equal(valid[:, length:], second[1, part, row])


def test_shown_slots_hold_numbers_only():
    cache = make_cache(2)
    cache.keep(torch.tensor([2, 0]), 2)
    _, shown = write(cache, 1)
    assert all(part.isfinite().all() for pair in shown for part in pair)


def test_select_reorders_and_makes_the_bound_exact_for_one_row():
    cache = make_cache(3)
    first, _ = write(cache, 3)
    cache.keep(torch.tensor([3, 1, 2]), 3)
    cache.select(torch.tensor([2, 1]))
    assert cache.lengths.tolist() == [2, 1]
    cache.select(torch.tensor([1]))
    assert (cache.rows, cache.longest) == (1, 1)
    second, shown = write(cache, 2)
    assert torch.equal(shown[0][0][0, :, :1], first[0, 0, 1, :, :1])
    assert torch.equal(shown[0][0][0, :, 1:], second[0, 0, 0])


def test_select_of_no_rows():
    cache = make_cache(2)
    cache.select(torch.tensor([], dtype=torch.long))
    assert cache.rows == 0


@pytest.mark.parametrize("parents", [[2, 0, 0], [1, 1], [0, 1, 2, 2]])
@pytest.mark.parametrize("capacity", [4, 64])
def test_rows_continue_their_parents(parents, capacity):
    """Of a large store whose rows are as many as before, only what is valid is moved."""
    cache = make_cache(3, capacity)
    before, _ = write(cache, 3)
    cache.keep(torch.tensor([3, 2, 3]), 3)
    place = cache.store.data_ptr()
    cache.fork(torch.tensor(parents), torch.arange(len(parents)))
    assert (cache.store.data_ptr() == place) == (capacity == 64 and len(parents) == 3)
    assert cache.capacity == capacity and cache.lengths.tolist() == [[3, 2, 3][p] for p in parents]
    _, shown = write(cache, 1)
    for row, parent in enumerate(parents):
        length = int(cache.lengths[row])
        for layer in range(LAYERS):
            for part in range(2):
                found = shown[layer][part][row, :, :length]
                assert found.equal(before[layer, part, parent, :, :length])
