"""Block masking against references that go sentence by sentence."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.data.block_masking import (
    Blocks,
    block_noise,
    glance,
    input_positions,
    may_attend,
    sample_blocks,
)
from specdec_plugin.data.counter_random import counter_uniform

PAD, EOS = 1, 2


def batch_of(lengths):
    """Padded targets: words 10, 11, …, then the end of sentence."""
    target = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        target[row, :length] = torch.arange(10, 10 + length)
        target[row, length - 1] = EOS
    return target


batches = st.lists(st.integers(1, 9), min_size=1, max_size=5)


class TestSampleBlocks:
    @settings(max_examples=60)
    @given(batches, st.integers(1, 5), st.sampled_from([0.0, 0.2, 0.5, 1.0]), st.integers(0, 99))
    def test_hides_what_follows_each_start(self, lengths, block_size, rate, seed):
        target = batch_of(lengths)
        noise = counter_uniform(torch.arange(len(lengths)), target.size(1), seed)
        blocks = sample_blocks(target, PAD, block_size, rate, noise)
        for row, length in enumerate(lengths):
            wanted = max(1, math.ceil(length * rate))
            starts = blocks.starts[row].tolist()
            sentence = target[row, :length].tolist()
            assert len(set(starts[:wanted])) == wanted
            for position, start in enumerate(starts):
                hidden = sentence[start : start + block_size] if position < wanted else []
                assert not hidden or start < length
                padding = [PAD] * (block_size - len(hidden))
                assert blocks.targets[row, position].tolist() == hidden + padding
                scored = [True] * len(hidden) + [False] * len(padding)
                assert blocks.scored[row, position].tolist() == scored

    def test_rate_zero_hides_one_block_a_sentence(self):
        target = batch_of([8, 3])
        blocks = sample_blocks(target, PAD, 2, 0.0, torch.rand(2, 8))
        assert blocks.starts.shape == (2, 1)
        assert blocks.scored[:, 0, 0].all()

    def test_starts_are_uniform(self):
        target = batch_of([5] * 5000)
        noise = counter_uniform(torch.arange(5000), 5, 7)
        starts = sample_blocks(target, PAD, 3, 0.0, noise).starts
        counts = torch.bincount(starts.flatten(), minlength=5)
        assert counts.min() > 900 and counts.max() < 1100


@settings(max_examples=60)
@given(batches, st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_attention_and_slots_agree_with_one_by_one(lengths, block_size, causal, seed):
    target = batch_of(lengths)
    length = target.size(1)
    noise = counter_uniform(torch.arange(len(lengths)), length, seed)
    blocks = sample_blocks(target, PAD, block_size, 0.5 if causal else 0.0, noise)
    seen = may_attend(blocks, length, causal)
    slots = input_positions(blocks, length)
    for row in range(len(lengths)):
        starts = blocks.starts[row].tolist()
        # (kind, block or None, slot) of each input of the layout
        inputs = [(None, slot) for slot in range(length)]
        inputs += [(b, s + 1 + i) for b, s in enumerate(starts) for i in range(block_size)]
        assert slots[row].tolist() == [slot for _, slot in inputs]
        for query, (query_block, query_slot) in enumerate(inputs):
            for key, (key_block, key_slot) in enumerate(inputs):
                block = query_block if query_block is not None or causal else 0
                if block is None:
                    expected = key_block is None and key_slot <= query_slot
                elif key_block is None:
                    expected = key_slot <= starts[block]
                else:
                    expected = key_block == block
                assert bool(seen[row, query, key]) == expected


class TestGlance:
    @pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 1.0])
    def test_reveals_the_floor_of_its_share(self, ratio):
        torch.manual_seed(0)
        scored = torch.rand(6, 3, 8) < 0.8
        wrong = scored & (torch.rand(6, 3, 8) < 0.6)
        revealed = glance(wrong, scored, ratio, torch.rand(6, 3, 8))
        assert not (revealed & ~scored).any()
        for row in range(6):
            for block in range(3):
                errors = int(wrong[row, block].sum())
                assert int(revealed[row, block].sum()) == math.floor(ratio * errors)

    def test_draws_uniformly_from_the_block_not_from_its_errors(self):
        wrong = torch.zeros(4000, 1, 4, dtype=torch.bool)
        wrong[..., :2] = True
        scored = torch.ones_like(wrong)
        blocks = Blocks(torch.zeros(4000, 1).long(), torch.zeros(4000, 1, 4).long(), scored)
        noise = block_noise(torch.arange(4000), blocks, 5)
        counts = glance(wrong, scored, 0.5, noise).sum((0, 1))
        assert counts.min() > 850 and counts.max() < 1150


class TestCounterUniform:
    def test_rows_depend_on_their_sentence_only(self):
        together = counter_uniform(torch.tensor([5, 9, 2]), 6, 1, 3)
        alone = counter_uniform(torch.tensor([2]), 6, 1, 3)
        assert torch.equal(together[2:], alone)
        assert torch.equal(together[:, :4], counter_uniform(torch.tensor([5, 9, 2]), 4, 1, 3))

    def test_seed_epoch_and_purpose_change_everything(self):
        ids = torch.arange(50)
        streams = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)]
        drawn = [counter_uniform(ids, 20, *stream) for stream in streams]
        for first in range(4):
            for second in range(first):
                assert (drawn[first] == drawn[second]).float().mean() < 0.01

    def test_uniform_and_uncorrelated(self):
        drawn = counter_uniform(torch.arange(20000), 3, 11)
        assert drawn.min() >= 0 and drawn.max() < 1
        assert abs(drawn.mean().item() - 0.5) < 0.005
        assert abs(drawn.var().item() - 1 / 12) < 0.002
        assert torch.corrcoef(drawn.T).triu(1).abs().max() < 0.02
