"""A drafter with a chain head: its drafts by the training-time forward pass, and losslessness."""

import pytest
import torch

from specdec_plugin.data.block_masking import Blocks
from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.state import Batch, Rows
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from tests.support import tiny
from tests.support.drafters import K, chained_model
from tests.support.search import MODELS, SYMBOLS, assert_same, reference


@torch.no_grad()
def block_by_training(model, encoder_out, row, chosen, k=K):
    """The k drafted tokens after ``chosen``: training's forward pass, once for each of them."""
    one = {
        "encoder_out": [encoder_out["encoder_out"][0][:, row : row + 1]],
        "encoder_padding_mask": [encoder_out["encoder_padding_mask"][0][row : row + 1]],
    }
    targets, masks = torch.zeros(1, 1, k, dtype=torch.long), model.decoder.mask_vectors
    model.decoder.mask_vectors = torch.nn.Parameter(masks[:k])
    for place in range(k):
        blocks = Blocks(torch.tensor([[len(chosen)]]), targets, torch.ones(1, 1, k).bool())
        features = model.decoder.block_features(torch.tensor([[2, *chosen]]), one, blocks)
        scores = model.decoder.output_layer(features)[0, 0, place].log_softmax(-1)
        scores[1] = -torch.inf
        targets[0, 0, place] = int(scores.argmax())
    model.decoder.mask_vectors = masks
    return targets[0, 0].tolist()


@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("lengths", [[5], [5, 2, 7]])
def test_proposals_equal_the_training_forward(form, lengths, backend):
    model = chained_model(form)
    net_input = tiny.sample(lengths, 3)["net_input"]
    # No minimal length: a head that is verified anyway need not know it.
    batch = Batch(net_input, [], 2, Constraints(1, 3, 2, 0.0, 0, 50))
    encoder_out = model.encoder.forward_torchscript(net_input)
    drafter, rows = NATDrafter(model, K, backend=backend, lengths=[2, 3, K]), Rows(batch)
    assert drafter.lengths == (2, 3, K) and drafter.length == K
    drafter.start(batch)
    random = torch.Generator().manual_seed(0)
    for drafter.length in (K, 2, 3, 2, K):
        draft = drafter.propose(rows)
        for row, place in enumerate(rows.order):
            chosen = rows.inputs[row, 1 : 1 + rows.host_lengths[row]].tolist()
            expected = block_by_training(model, encoder_out, place, chosen, drafter.length)
            assert draft.tokens[row].tolist() == expected
        counts = torch.randint(1, K + 2, (rows.size,), generator=random)
        tokens = torch.randint(4, 16, (rows.size, K + 1), generator=random)
        rows.append(tokens, torch.zeros(rows.size, K + 1), counts)
        rows.sync_lengths(rows.lengths.tolist())


@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("confidence", [0.0, 0.05, 0.9])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.int8])
def test_lossless_whatever_the_drafter_computes_in(form, confidence, dtype, backend):
    verifier, model, statistics = tiny.model(1), chained_model(form), Statistics()
    step = VerifiedStep(Verifier([build_engine(verifier, backend=backend)], statistics), TopBeta())
    drafter = NATDrafter(model, K, dtype=dtype, confidence=confidence, backend=backend)
    loop = DecodingLoop(drafter, step, statistics)
    lengths = Lengths(max_len_b=15, max_positions=64)
    generator = ParallelGenerator([verifier], SYMBOLS, loop, statistics, lengths)
    for seed in range(4):
        sample = tiny.sample([3, 6, 0, 2], seed)
        found = [row[0] for row in generator.generate([verifier], sample)]
        assert_same(found, reference([verifier], sample, max_len_b=15))
    drafted = sum(length * times for length, times in statistics.draft_lengths.items())
    assert confidence < 0.5 or drafted < K * statistics.iterations / 2


def generator_that_notes(form, most, noted, backend):
    """Beside a verifier; (rows, width, fewest tokens of a row) of each draft are noted."""
    verifier, model, statistics = MODELS[0], chained_model(form), Statistics()
    step = VerifiedStep(Verifier([build_engine(verifier, backend=backend)], statistics), TopBeta())
    drafter = NATDrafter(model, K, backend=backend)
    propose = drafter.propose

    def counted(rows):
        draft = propose(rows)
        noted.append((rows.size, draft.tokens.size(1), rows.shortest))
        return draft

    drafter.propose = counted
    loop = DecodingLoop(drafter, step, statistics, gate=FixedGate(most))
    lengths = Lengths(max_len_b=15, max_positions=64)
    return verifier, ParallelGenerator([verifier], SYMBOLS, loop, statistics, lengths)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("form", ["full", "causal"])
def test_drafts_begin_when_few_rows_are_left(form, most, backend):
    """Rows that were decoded greedily until then are fed to the drafter all at once."""
    noted = []
    verifier, generator = generator_that_notes(form, most, noted, backend)
    for seed in range(20):
        sample = tiny.sample([33, 36, 30, 32], seed)
        found = [row[0] for row in generator.generate([verifier], sample)]
        assert_same(found, reference([verifier], sample, max_len_b=15))
    assert all(width > 0 and rows <= most for rows, width, _ in noted)
    assert noted


def test_a_drafter_that_would_have_to_read_more_than_is_to_come_is_not_asked():
    noted, silent = [], 0
    verifier, generator = generator_that_notes("causal", 1, noted, None)
    for seed in range(20):
        begin, sample = len(noted), tiny.sample([3, 6, 0, 2], seed)
        source = sample["net_input"]["src_lengths"]
        found = [row[0] for row in generator.generate([verifier], sample)]
        assert_same(found, reference([verifier], sample, max_len_b=15))
        *_, second, longest = sorted(len(each["tokens"]) for each in found)
        if longest > second:  # A single row is left when the second one ends.
            late = 2 * second > int(source.max())
            assert (len(noted) == begin) == late
            silent += late
    assert silent > 0
