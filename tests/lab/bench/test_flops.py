"""The formula of operations against PyTorch's counter, on PyTorch's operators."""

import copy

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from specdec_plugin.api import Session
from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.operations import Work, decoder_of, layers_of
from specdec_plugin.decoding.statistics import PARTS, Statistics
from specdec_plugin.decoding.steps import UnverifiedStep, VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import TorchBackend, build_engine
from specdec_plugin.lab.bench import flops
from specdec_plugin.lab.bench.methods import Method
from specdec_plugin.lab.bench.timing import Timing, _timed
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from specdec_plugin.methods.block_nat.method import BlockNAT, UnverifiedBlockNAT
from specdec_plugin.methods.blockwise.drafter import BlockwiseDrafter
from specdec_plugin.methods.blockwise.method import Blockwise
from specdec_plugin.methods.blockwise.proposals import Proposals
from specdec_plugin.methods.greedy.method import Greedy
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from specdec_plugin.methods.self_draft.method import SelfDraft
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.drafters import K, drafter_model
from tests.support.heads import blockwise_model


def attention(queries, keys, values, *rest, **more):
    """What PyTorch's counter knows of other devices alone."""
    return sdpa_flop_count(queries, keys, values)


MISSING = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention}


BACKEND = TorchBackend()  # PyTorch's counter does not see the kernels


def counted(action):
    """What PyTorch's counter sees, and what the action gives."""
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=MISSING) as counter:
        result = action()
    return counter.get_total_flops(), result


class Task:
    """Stands for fairseq's task."""

    def inference_step(self, generator, models, batch, prefix_tokens=None):
        return generator.generate(models, batch)


def measured(method, models, lengths=(7,), seed=1):
    """Operations by PyTorch's counter and by the formula, and the batch's statistics."""
    batch = tiny.sample(list(lengths), seed)
    session = Session(Task(), models)
    true, record = counted(lambda: _timed(session, method, batch))
    own = batch["net_input"]["src_lengths"].tolist()
    return true, flops.operations(method, models, own, record.statistics), record.statistics


def ours(models, drafter=None, step=None, statistics=None, **lengths):
    statistics = Statistics() if statistics is None else statistics
    if step is None:
        engines = [build_engine(model, backend=BACKEND) for model in models]
        step = VerifiedStep(Verifier(engines, statistics), TopBeta())
    loop = DecodingLoop(drafter, step, statistics)
    limits = Lengths(max_positions=64, max_len_b=30, **lengths)
    method = METHODS[type(drafter)] if isinstance(step, VerifiedStep) else UnverifiedBlockNAT
    generator = ParallelGenerator(
        models, tiny.dictionary(), loop, statistics, limits, backend=BACKEND
    )
    return Method("ours", generator, statistics, method=method)


METHODS = {type(None): Greedy, NATDrafter: BlockNAT, BlockwiseDrafter: Blockwise}


@pytest.mark.parametrize("lengths", [(9,), (5, 5)])
def test_an_encoder_pass(lengths):
    model = tiny.model(3)
    net_input = tiny.sample(list(lengths))["net_input"]
    true, _ = counted(lambda: model.encoder.forward_torchscript(net_input))
    layers = layers_of(model.encoder)
    assert true == sum(layers.run(each, each) for each in net_input["src_lengths"].tolist())


@pytest.mark.parametrize("lengths", [(7,), (4, 4, 4)])
@pytest.mark.parametrize("more", [{}, {"decoder_output_dim": 10, "share_all_embeddings": False}])
def test_greedy_decoding(lengths, more):
    models = [tiny.model(0, **more)]
    true, spent, statistics = measured(ours(models, min_len=8), models, lengths)
    assert statistics.tokens > 8
    tolerance = 0 if len(lengths) == 1 else 0.03  # rows of a batch are not equally long
    assert sum(spent.values()) == pytest.approx(true, rel=tolerance)
    assert list(spent) == list(PARTS) and spent["drafter"] == 0


def test_an_ensemble():
    models = [tiny.model(0), tiny.model(1, decoder_layers=1, encoder_layers=2)]
    true, spent, _ = measured(ours(models), models)
    assert sum(spent.values()) == true


@pytest.mark.parametrize("beam", [1, 3])
def test_the_search_of_fairseq(beam):
    models = [tiny.model(0)]
    search = SequenceGenerator(models, tiny.dictionary(), beam_size=beam, max_len_b=30)
    true, spent, statistics = measured(Method("fairseq", search, None), models)
    assert statistics.iterations >= 3 and sum(spent.values()) == true


@pytest.mark.parametrize("form", ["causal", "full"])
@pytest.mark.parametrize("more", [{}, {"chain_units": 6}])
@pytest.mark.parametrize("verified", [True, False])
def test_a_trained_drafter(form, more, verified):
    models, statistics = [tiny.model(0)], Statistics()
    model = drafter_model(form, decoder_embed_dim=32, encoder_layers=2, **more)
    drafter = NATDrafter(model, K, statistics=statistics, with_scores=not verified, backend=BACKEND)
    step = None if verified else UnverifiedStep()
    true, spent, statistics = measured(ours(models, drafter, step, statistics, min_len=20), models)
    assert statistics.drafter_blocks == statistics.iterations and statistics.drafter_sources == 1
    # Of places in the output the mean is taken.
    assert sum(spent.values()) == pytest.approx(true, rel=0.03)
    assert spent["drafter"] > 0 and (spent["projection"] > 0) == verified


def test_a_drafter_that_shares_the_encoder_does_not_run_it_again():
    model, statistics = tiny.model(0), Statistics()
    drafter = NATDrafter(
        drafter_model("causal", share=True), K, shared=0, statistics=statistics, backend=BACKEND
    )
    true, spent, _ = measured(ours([model], drafter, statistics=statistics, min_len=20), [model])
    assert sum(spent.values()) == pytest.approx(true, rel=0.03)


@pytest.mark.parametrize("form", ["joint", "separate", "source"])
def test_proposal_heads(form):
    models, statistics = [blockwise_model(21, form)], Statistics()
    verifier = Verifier([build_engine(models[0], backend=BACKEND)], statistics)
    proposals = Proposals(models[0].heads, verifier.engines[0], 4)
    drafter = BlockwiseDrafter(proposals, verifier, 2, statistics=statistics)
    step = VerifiedStep(verifier, TopBeta())
    true, spent, statistics = measured(ours(models, drafter, step, statistics, min_len=20), models)
    assert statistics.drafter_blocks == statistics.iterations - 1
    assert sum(spent.values()) == pytest.approx(true, rel=0.03)
    asked = 3 * statistics.drafter_blocks
    each = 2 * 16 * 16 + 2 * 16 * 24 * (4 if form == "joint" else 2)
    once = 2 * 16 * 24 * 4 if form == "joint" else 0
    if form == "source":
        each += 2 * 16 * 16 + 2 * 16 * 24
        assert spent["drafter"] > each * asked  # and attention
        return
    assert spent["drafter"] == each * asked + once * statistics.drafter_blocks


def test_positions_that_are_computed_of_drafts_that_stop_early():
    statistics = Statistics(iterations=7, drafter_blocks=6)
    statistics.draft_lengths.update({0: 3, 2: 1, 7: 1, 10: 2})  # an empty one had no block
    work = Work([], [7], statistics)
    assert work.computed(10, 1) == 2 * 1 + 3 + 8 + 2 * 10
    assert work.computed(10, 8) == 2 * 8 + 8 + 8 + 2 * 10


def test_a_drafter_that_stops_early_scores_less():
    class Early(NATDrafter):
        """As the kernels run it."""

        stops_early = True

    model = drafter_model("causal", chain_units=6)
    statistics = Statistics(drafter_blocks=5, drafter_masks=5 * K)
    statistics.draft_lengths.update({0: 5})
    whole, early = [kind(model, K) for kind in (NATDrafter, Early)]
    spent = [each.cost(Work([], [7], statistics)) for each in (whole, early)]
    head = model.decoder.chain
    step = 2 * sum(each.weight.numel() for each in (head.from_token, head.from_chain, head.out))
    assert spent[0] - spent[1] == step * 5 * (K - 1)


def test_a_copy_of_the_verifier_costs_what_the_verifier_costs():
    model = tiny.model(0)
    copying = SelfDrafter.__new__(SelfDrafter)
    copying._low_rank = None
    method = ours([model])._replace(method=SelfDraft)
    method.generator.loop.drafter = copying
    statistics = Statistics(sentences=1, tokens=12, iterations=2)
    statistics.draft_lengths.update({5: 2})
    spent = flops.operations(method, [model], [7], statistics)
    source = decoder_of(model.decoder).source * 7
    each = (spent["verifier"] - source + spent["projection"]) / 12
    assert spent["drafter"] == pytest.approx(10 * each)


def test_weights_by_hand():
    model = tiny.model(0)  # 16 wide, 24 between, 1 + 2 layers, 16 symbols
    assert layers_of(model.encoder) == (2 * (4 * 256 + 2 * 16 * 24), 4 * 16)
    decoder = decoder_of(model.decoder)
    assert decoder.layers == (2 * 2 * (6 * 256 + 2 * 16 * 24), 2 * 4 * 16)
    assert decoder.source == 2 * 2 * 2 * 256 and decoder.projection == 2 * 16 * 16


def test_a_report_has_thousands_of_millions_a_sentence():
    models = [tiny.model(0)]
    method, batch = ours(models), tiny.sample([4])
    statistics = Statistics(sentences=1, tokens=5, iterations=5)
    session, once = Session(Task(), models), {"ours": Timing(statistics=[statistics])}
    spent = flops.gflops(session, [method], once, [batch])["ours"]
    twice = {"ours": Timing(statistics=[statistics, copy.copy(statistics)])}
    assert flops.gflops(session, [method], twice, [batch] * 2)["ours"] == pytest.approx(spent)
    operations = flops.operations(method, models, [5], statistics)
    assert spent["total"] == pytest.approx(sum(operations.values()) / 1e9)
    assert flops.gflops(Session(Task(), [build_model("lstm")]), [method], once, [batch]) == {}


def test_table():
    parts = {"encoder": 1.0, "drafter": 0.0, "verifier": 2.0, "projection": 1.0, "total": 4.0}
    rows = [
        {"method": "greedy", "GFLOPs a sentence": parts, "median speed-up over greedy": 1.0},
        {"method": "specdec", "GFLOPs a sentence": parts, "median speed-up over greedy": 1.6},
    ]
    lines = flops.flops_table(rows).splitlines()
    assert lines[0].startswith("| GFLOPs a sentence | encoder | drafter | verifier | projection |")
    assert lines[0].endswith("| total | total ÷ speed-up over greedy |")
    assert lines[3] == "| specdec | 1 | 0 | 2 | 1 | 4 | 2.5 |"
    alone = flops.flops_table(rows[1:]).splitlines()
    assert alone[2] == "| specdec | 1 | 0 | 2 | 1 | 4 |"
    assert flops.flops_table([{"method": "greedy"}]) is None
