"""The NAT drafter against the training-time forward pass of the same model."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.state import Batch, Rows
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import UnverifiedStep, VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import TorchBackend, UncachedDecoder, build_engine
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.drafters import K, chained_model, drafter_model, one_by_one
from tests.support.hostile import HostileDrafter
from tests.support.search import SYMBOLS, assert_same, reference


def assert_proposals_of_training(model, lengths, block_size=K):
    """Ragged rows that grow by different counts and leave; the model drafts as in training."""
    net_input = tiny.sample(lengths, 3)["net_input"]
    batch = Batch(net_input, [], 2, Constraints(1, 3, 2, 0.0, 1, 50))
    encoder_out = model.encoder.forward_torchscript(net_input)
    drafter = NATDrafter(model, block_size, with_scores=True)
    rows = Rows(batch)
    drafter.start(batch)
    random = torch.Generator().manual_seed(0)
    seen = set()
    for turn in range(6):
        with torch.no_grad():
            draft = drafter.propose(rows)
        for row, place in enumerate(rows.order):
            chosen = rows.inputs[row, 1 : 1 + rows.host_lengths[row]].tolist()
            expected, scores = one_by_one(model, encoder_out, place, chosen, block_size)
            assert draft.tokens[row].tolist() == expected
            assert torch.allclose(draft.scores[row], scores, atol=1e-5)
            seen.update(scores.tolist())
        counts = torch.randint(1, K + 2, (rows.size,), generator=random)
        tokens = torch.randint(3, 16, (rows.size, K + 1), generator=random)
        rows.append(tokens, torch.zeros(rows.size, K + 1), counts)
        rows.sync_lengths(rows.lengths.tolist())
        if turn in (1, 3) and rows.size > 1:
            # The longest row leaves: nothing may depend on it any longer.
            longest = rows.host_lengths.index(max(rows.host_lengths))
            left = [row for row in range(rows.size) if row != longest]
            drafter.select(rows.select(left))
    assert len(seen) > 5 * block_size


@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("lengths", [[5], [5, 2, 7, 1]])
@pytest.mark.parametrize("learned", [False, True])
def test_proposals_equal_the_training_forward(form, lengths, learned):
    assert_proposals_of_training(drafter_model(form, decoder_learned_pos=learned), lengths)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("block_size", [1, 2, 4])
@pytest.mark.parametrize("lengths", [[5], [5, 2, 7, 1]])
@pytest.mark.usefixtures("threads_again")
def test_threads_share_the_work_of_wide_layers(norm_first, block_size, lengths):
    """Of few vectors, each has all; and behind the last self-attention only masks are left."""
    wide = {"decoder_embed_dim": 128, "decoder_ffn_embed_dim": 512, "encoder_embed_dim": 128}
    wide["decoder_normalize_before"] = norm_first
    model = drafter_model("causal", block_size=block_size, **wide)
    torch.set_num_threads(2)
    assert_proposals_of_training(model, lengths, block_size)


def first_drafts(drafter, sources, most=50, left=None):
    """The drafts of a new batch, some rows of which may have left already."""
    net_input = tiny.sample(sources, 3)["net_input"]
    batch = Batch(net_input, [], 2, Constraints(1, 3, 2, 0.0, 1, most))
    rows = Rows(batch)
    drafter.start(batch)
    if left is not None:
        drafter.select(rows.select(left))
    with torch.no_grad():
        return drafter.propose(rows)


@pytest.mark.parametrize("form", ["full", "causal"])
def test_rows_that_left_before_the_first_draft_are_not_read(form):
    drafter = NATDrafter(drafter_model(form), K)
    whole = first_drafts(drafter, [5, 2, 7]).tokens.tolist()
    assert whole[0] != whole[1] != whole[2]
    for left in ([1], [0, 2]):
        drafter.statistics.drafter_sources = 0
        found = first_drafts(drafter, [5, 2, 7], left=left).tokens.tolist()
        assert found == [whole[row] for row in left]
        assert drafter.statistics.drafter_sources == len(left)


def test_drafts_without_a_chain_end_where_they_are_unsure(backend):
    model = drafter_model("causal")
    whole = first_drafts(NATDrafter(model, K, with_scores=True, backend=backend), [5, 2, 7])
    sure = whole.scores.cumsum(1).exp()
    floor = float(sure[:, 1].median())
    drafter = NATDrafter(model, K, confidence=floor, backend=backend)
    found = first_drafts(drafter, [5, 2, 7])
    assert found.lengths.tolist() == (sure >= floor).sum(1).tolist()
    assert 0 < int(found.lengths.max()) <= found.tokens.size(1)
    assert int(found.lengths.min()) < K


@pytest.mark.parametrize("most", [1, 2])
def test_a_chain_ends_each_sentence_at_its_limit_of_length(most):
    """Which may lie within a block."""
    drafter = NATDrafter(chained_model(), K, with_scores=True)
    free, limited = (first_drafts(drafter, [5, 2, 7], most=each).tokens for each in (50, most))
    assert not free[:, most].eq(2).all() and limited[:, most].eq(2).all()
    assert torch.equal(free[:, :most], limited[:, :most])


@torch.no_grad()
def test_rows_with_few_new_tokens_are_fed_as_alone():
    """Where the widest row's new tokens would end behind the others' inputs."""
    drafter = NATDrafter(drafter_model("causal"), K, backend=TorchBackend())
    drafter.engine.embedding.reach(10, 6 + K)
    inputs = torch.randint(4, 16, (2, 8), generator=torch.Generator().manual_seed(0))
    held, lengths, counts = torch.tensor([0, 6]), torch.tensor([5, 7]), (6, 2)
    together = drafter.arranged(inputs, lengths, held, 6)
    for row, count in enumerate(counts):
        own = slice(row, row + 1)
        alone = drafter.arranged(inputs[own], lengths[own], held[own], count)
        used = count + K
        torch.testing.assert_close(together.embedded[own, :used], alone.embedded)
        assert torch.equal(together.limits[own, :used], alone.limits)
        assert torch.equal(together.where[own], alone.where)


@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("share", [False, True])
def test_lossless_with_a_real_drafter(form, share):
    verifier = tiny.model(1)
    model = drafter_model(form, share)
    statistics = Statistics()
    step = VerifiedStep(Verifier([build_engine(verifier)], statistics), TopBeta())
    drafter = NATDrafter(model, K, shared=0 if share else None)
    lengths = Lengths(max_len_b=15, max_positions=64)
    loop = DecodingLoop(drafter, step, statistics)
    generator = ParallelGenerator([verifier], SYMBOLS, loop, statistics, lengths)
    for seed in range(8):
        sample = tiny.sample([3, 6, 0, 2, 4], seed)
        found = [row[0] for row in generator.generate([verifier], sample)]
        assert_same(found, reference([verifier], sample, max_len_b=15))


@pytest.mark.parametrize("form", ["full", "causal"])
def test_nat_accepts_whole_blocks(form):
    model = drafter_model(form)
    statistics = Statistics()
    loop = DecodingLoop(NATDrafter(model, K, with_scores=True), UnverifiedStep(), statistics)
    lengths = Lengths(max_len_b=10, max_positions=64)
    generator = ParallelGenerator([model], SYMBOLS, loop, statistics, lengths)
    sample = tiny.sample([3, 6, 1], 2)
    encoder_out = model.encoder.forward_torchscript(sample["net_input"])
    for place, (hypothesis,) in enumerate(generator.generate([model], sample)):
        expected = []
        while 2 not in expected:
            expected += one_by_one(model, encoder_out, place, expected)[0]
            if len(expected) > 10:
                expected = [*expected[:10], 2]
        expected = expected[: expected.index(2) + 1]
        assert hypothesis["tokens"].tolist() == expected
        assert hypothesis["positional_scores"].shape == hypothesis["tokens"].shape
        assert bool((hypothesis["positional_scores"] <= 0).all())


def uncached(arch):
    """A verifier that the engine cannot cache, and a drafter and dictionary that fit it."""
    symbols = tiny.dictionary(words=19)
    model = build_model(arch)
    assert model.decoder.embed_tokens.num_embeddings == len(symbols)
    assert isinstance(build_engine(model), UncachedDecoder)
    return model, drafter_model("causal", symbols=symbols), symbols


@pytest.mark.parametrize("method", ["greedy", "specdec", "specdec++", "hostile"])
@pytest.mark.parametrize("arch", ["lstm", "fconv"])
def test_every_method_with_decoders_that_cannot_be_cached(arch, method):
    verifier, model, symbols = uncached(arch)
    sample = tiny.sample([6, 4, 1], 3, words=19)  # LSTMs want the longest first
    search = SequenceGenerator([verifier], symbols, beam_size=1, max_len_b=12)
    expected = [row[0] for row in search.generate([verifier], sample)]
    drafter = {
        "greedy": None,
        "hostile": HostileDrafter([row["tokens"].tolist() for row in expected], 0.7, 5, 1),
    }.get(method, NATDrafter(model, K))
    rule = TopBeta(1, 2.0) if method == "specdec++" else TopBeta()
    statistics = Statistics()
    step = VerifiedStep(Verifier([build_engine(verifier)], statistics), rule)
    loop = DecodingLoop(drafter, step, statistics)
    lengths = Lengths(max_len_b=12, max_positions=verifier.max_decoder_positions())
    generator = ParallelGenerator([verifier], symbols, loop, statistics, lengths)
    assert_same([row[0] for row in generator.generate([verifier], sample)], expected)
    assert method != "hostile" or statistics.accepted_tokens > 1
