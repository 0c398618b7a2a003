"""A drafter whose learned positions end before the verifier's: only speed may suffer."""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.state import Batch, Rows
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.drafters import K, drafter_model, one_by_one
from tests.support.search import MODELS, assert_same, ours, reference

DecodingConfig = config_class()

POSITIONS = 11


def learned(form, positions=POSITIONS):
    return drafter_model(form, decoder_learned_pos=True, max_target_positions=positions)


class Watched(NATDrafter):
    """Remembers how long the longest row was at each draft, and how wide the draft."""

    def start(self, batch):
        super().start(batch)
        self.seen = []

    def propose(self, rows):
        draft = super().propose(rows)
        assert draft.tokens.size(0) == rows.size == draft.lengths.size(0)
        self.seen.append((rows.longest, int(draft.lengths.max())))
        return draft


@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("sources", [[5], [3, 6, 0, 2, 4]])
def test_rows_go_on_greedily_where_positions_end(form, sources):
    drafter = Watched(learned(form), K)
    for seed in range(4):
        sample = tiny.sample(sources, seed)
        found, _ = ours(MODELS[1:2], sample, drafter, TopBeta(), max_len_b=30)
        assert_same(found, reference(MODELS[1:2], sample, max_len_b=30))
        assert any(width > 0 for _, width in drafter.seen)
        assert all(width == 0 for longest, width in drafter.seen if longest + 1 >= POSITIONS)
    assert max(len(row["tokens"]) for row in found) > POSITIONS


#: Source positions that the drafters below have learned: those of the short batches.
SOURCES = 6


def reading(form, **more):
    """A drafter that has learned fewer source positions than the verifier."""
    return drafter_model(form, encoder_learned_pos=True, max_source_positions=SOURCES, **more)


@pytest.mark.parametrize("encoder", [{}, {"activation_fn": "tanh"}])
@pytest.mark.parametrize("form", ["full", "causal"])
def test_longer_sources_are_decoded_greedily(form, encoder, backend):
    """By the kernels' encoder, and by fairseq's own."""
    drafter = Watched(reading(form, **encoder), K, backend=backend)
    for sources, drafts in [([6], False), ([5, 2], True), ([3, 7, 0], False), ([4], True)]:
        sample = tiny.sample(sources, 1)
        drafter.seen = []
        found, _ = ours(MODELS[1:2], sample, drafter, TopBeta(), backend=backend, max_len_b=30)
        assert_same(found, reference(MODELS[1:2], sample, max_len_b=30))
        assert any(width > 0 for _, width in drafter.seen) == drafts


def test_padding_makes_no_source_too_long(backend):
    drafter = Watched(reading("causal"), K, backend=backend)
    sample = tiny.sample([SOURCES - 1, 2], 1)
    net_input = sample["net_input"]
    net_input["src_tokens"] = F.pad(net_input["src_tokens"], (3, 0), value=1)
    found, _ = ours(MODELS[1:2], sample, drafter, TopBeta(), backend=backend, max_len_b=30)
    assert_same(found, reference(MODELS[1:2], sample, max_len_b=30))
    assert any(width > 0 for _, width in drafter.seen)


@pytest.mark.parametrize("encoder", [{}, {"activation_fn": "tanh"}])
def test_alone_the_drafter_refuses_longer_sources(monkeypatch, encoder):
    built = generator(monkeypatch, reading("causal", **encoder), "nat")
    assert built.generate(MODELS[1:2], tiny.sample([SOURCES - 1]))
    with pytest.raises(PluginError, match="learned 6 source positions, and a sentence has more"):
        built.generate(MODELS[1:2], tiny.sample([SOURCES]))


@pytest.mark.parametrize("form", ["full", "causal"])
def test_drafts_go_on_when_the_longest_row_left(form):
    batch = Batch(tiny.sample([4, 4, 4], 1)["net_input"], [], 2, Constraints(1, 3, 2, 0.0, 1, 50))
    drafter, rows = NATDrafter(learned(form), K), Rows(batch)

    def grow(counts):
        tokens = torch.full((rows.size, max(counts)), 5)
        rows.append(tokens, torch.zeros(tokens.shape), torch.tensor(counts))
        rows.sync_lengths(rows.lengths.tolist())

    drafter.start(batch)
    with torch.no_grad():
        assert drafter.propose(rows).tokens.size(1) == K
        grow([POSITIONS - 2, 1, 2])
        assert drafter.propose(rows).tokens.size(1) == K  # the first mask has the last position
        grow([1, 1, 1])
        assert drafter.propose(rows).tokens.shape == (3, 0)
        grow([1, 1, 1])
        drafter.select(rows.select([1, 2]))
        assert rows.longest + 1 < POSITIONS
        draft = drafter.propose(rows)
        # What the others were given meanwhile is fed now: the drafts are those of a new start.
        for row in range(2):
            chosen = rows.inputs[row, 1 : 1 + rows.host_lengths[row]].tolist()
            encoder_out = drafter.model.encoder.forward_torchscript(batch.net_input)
            expected, _ = one_by_one(drafter.model, encoder_out, row + 1, chosen)
            assert draft.tokens[row].tolist() == expected


def generator(monkeypatch, drafter, method, verifier=MODELS[1], **flags):
    """What the flags build, with ``drafter`` in place of a checkpoint."""
    monkeypatch.setattr(method_setup, "load_model", lambda *paths: drafter)
    task = tiny.task()
    task.cfg = DecodingConfig(decoding=method, drafter_path="drafter.pt", **flags)
    options = Namespace(beam=1, max_len_a=0, max_len_b=40)
    return build.build_generator(task, [verifier], options)


@pytest.mark.parametrize("form", ["full", "causal"])
def test_the_output_limit_is_the_verifiers(monkeypatch, form):
    built = generator(monkeypatch, learned(form), "specdec")
    sample = tiny.sample([3, 6, 1], 2)
    found = [row[0] for row in built.generate(MODELS[1:2], sample)]
    assert_same(found, reference(MODELS[1:2], sample, max_len_b=40))
    assert max(len(row["tokens"]) for row in found) > POSITIONS


@pytest.mark.parametrize("positions", [3, 6, POSITIONS])
@pytest.mark.parametrize("form", ["full", "causal"])
@pytest.mark.parametrize("sources", [[5], [3, 6, 1, 4]])
def test_alone_the_drafter_ends_where_its_positions_end(monkeypatch, form, sources, positions):
    built = generator(monkeypatch, learned(form, positions), "nat")
    lengths = set()
    for seed in range(6):
        sample = tiny.sample(sources, seed)
        for row, (hypothesis,) in enumerate(built.generate(MODELS[1:2], sample)):
            tokens = hypothesis["tokens"].tolist()
            net_input = {name: each[row : row + 1] for name, each in sample["net_input"].items()}
            ((alone,),) = built.generate(MODELS[1:2], {"net_input": net_input})
            assert tokens[-1] == 2 and tokens == alone["tokens"].tolist()
            lengths.add(len(tokens))
    assert max(lengths) == positions - 1
