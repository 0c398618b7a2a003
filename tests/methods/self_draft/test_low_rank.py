"""Self-drafts whose symbols a product of low rank finds."""

from argparse import Namespace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.operations import Work
from specdec_plugin.decoding.sampling import Settings
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine
from specdec_plugin.methods import build
from specdec_plugin.methods.registry import config_class
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from specdec_plugin.vocab import low_rank
from tests.support import made, tiny
from tests.support.compiled import needs_kernels
from tests.support.low_rank import low_rank_of
from tests.support.search import MODELS, SYMBOLS, assert_same, reference

pytestmark = needs_kernels

MANY = tiny.dictionary(2000)


class Search:
    """A self-drafting search that takes these factors, if any are given."""

    def __init__(
        self, model, rank=None, margin=0.0, dtype=torch.float32, symbols=SYMBOLS, history=True,
        clusters=None, sampling=None, up=torch.int8, **lengths,
    ):  # fmt: skip
        self.models, self.statistics = [model], Statistics()
        self.verifier = Verifier([build_engine(model)], self.statistics)
        self.drafter = SelfDrafter(self.verifier, 6, dtype, clusters, low_rank=True)
        loop = DecodingLoop(
            self.drafter, VerifiedStep(self.verifier, TopBeta()), self.statistics, history
        )
        options = Lengths(max_positions=64, **lengths)
        self.generator = ParallelGenerator(
            self.models, symbols, loop, self.statistics, options, sampling=sampling
        )
        self.low_rank = self.drafter._low_rank
        if rank is not None:
            self.low_rank.refresh()
            self.low_rank.found = low_rank_of(self.verifier.decoder, rank, margin, up)

    def __call__(self, sample, prefix=None):
        found = self.generator.generate(self.models, sample, prefix_tokens=prefix)
        return [row[0] for row in found]

    @property
    def kept(self):
        """Of the drafted tokens, the share that was kept."""
        drafted, kept = (
            sum(length * times for length, times in counted.items())
            for counted in (self.statistics.draft_lengths, self.statistics.kept_lengths)
        )
        return kept / drafted


def with_many_symbols(seed=0, bias=None):
    """A model whose words vary, with a projection of its own."""
    model = tiny.model(
        seed, symbols=MANY, share_all_embeddings=False, share_decoder_input_output_embed=False
    )
    projection = model.decoder.output_projection
    with torch.no_grad():
        projection.weight.mul_(3)
    if bias is not None:
        projection.bias = torch.nn.Parameter(bias)
    return model


@pytest.mark.usefixtures("threads_again")
@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sources", [[5], [3, 6, 1, 4]])
@pytest.mark.parametrize("biased", [False, True])
def test_with_a_wide_margin_the_draft_is_what_the_model_would_choose(
    sources, threads, history, biased
):
    """All candidates are scored exactly, whatever the rank; also where the sentence may not end."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = with_many_symbols(4, 3 * torch.randn(len(MANY)) if biased else None)
    lengths = {"min_len": 7, "max_len_b": 20}
    search = Search(model, 2, 1e9, symbols=MANY, history=history, **lengths)
    found = search(tiny.sample(sources, 5))
    plain = Search(model, symbols=MANY, **lengths)
    assert_same(found, plain(tiny.sample(sources, 5)))
    assert search.kept == 1 and search.statistics.accepted_tokens > 3
    assert len({token for row in found for token in row["tokens"].tolist()}) > 5


@pytest.mark.usefixtures("threads_again")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("up, margin", [(torch.int8, 0.5), (torch.int4, 3.0)])
def test_with_a_full_rank_few_candidates_suffice(threads, up, margin):
    torch.set_num_threads(threads)
    search = Search(with_many_symbols(1), 16, margin, symbols=MANY, up=up, max_len_b=20)
    search(tiny.sample([5, 7, 3, 6], 2))
    assert search.kept > 0.9


def test_a_low_rank_without_a_margin_is_often_wrong():
    """So the tests above see which scores decide."""
    search = Search(with_many_symbols(1), 4, 0.0, symbols=MANY, max_len_b=20)
    search(tiny.sample([5, 7, 3, 6], 2))
    assert search.kept < 0.7


def test_padding_is_never_drafted():
    model = with_many_symbols(2)
    with torch.no_grad():
        model.decoder.output_projection.weight[1] *= 20
    search = Search(model, 2, 1e9, symbols=MANY, max_len_b=20)
    search(tiny.sample([5, 7, 3, 6], 2))
    assert search.kept == 1


@settings(max_examples=40)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    model=st.sampled_from(MODELS),
    rank=st.integers(1, 16),
    margin=st.sampled_from([0.0, 0.5, 3.0]),
    up=st.sampled_from([torch.int4, torch.int8]),
    min_len=st.integers(0, 3),
    prefix_size=st.integers(0, 2),
    seed=st.integers(0, 10**6),
)
def test_lossless(sources, model, rank, margin, up, min_len, prefix_size, seed):
    sample, prefix = tiny.sample(sources, seed), None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    search = Search(model, rank, margin, torch.int8, up=up, min_len=min_len, max_len_b=15)
    expected = reference([model], sample, prefix, min_len=min_len, max_len_b=15)
    assert_same(search(sample, prefix), expected)


@pytest.mark.parametrize("rank", [1, None])
def test_samples_are_drafted_from_all_symbols(rank):
    """Factors, however bad, change no draft."""
    search = Search(MODELS[0], rank, sampling=Settings(1), max_len_b=15)
    search(tiny.sample([5, 3, 6], 4))
    assert search.kept == 1


def test_clusters_are_taken_before_factors():
    clusters = made.random_clusters(3, 16, 16, 1.0)
    search = Search(MODELS[0], dtype=torch.int8, clusters=clusters, max_len_b=12)
    assert search.low_rank is None
    assert_same(search(tiny.sample([5])), reference(MODELS[:1], tiny.sample([5]), max_len_b=12))


def test_drafts_cost_fewer_operations():
    model = with_many_symbols()
    costs = []
    for rank in (None, 4):
        search = Search(model, rank, 1e9, symbols=MANY, max_len_b=20)
        search(tiny.sample([5]))
        costs.append(search.drafter.cost(Work([model], [6], search.statistics)))
    drafted = Work([model], [6], search.statistics).drafted
    assert costs[0] - costs[1] == drafted * 2 * (len(MANY) * 16 - (len(MANY) + 16) * 4)


@pytest.fixture
def early(monkeypatch):
    """Factors of any vocabulary, after few states."""
    monkeypatch.setattr(low_rank, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(low_rank, "_STATES", 40)
    monkeypatch.setattr(low_rank, "_STATES_A_NUMBER", 1)
    monkeypatch.setattr(low_rank, "_SYMBOLS_A_CANDIDATE", 0)


@pytest.mark.usefixtures("early")
class TestRecordedStates:
    @pytest.mark.parametrize("history", [True, False])
    def test_they_are_those_before_the_chosen_tokens(self, history):
        search = Search(MODELS[2], history=history, max_len_b=12)
        found = search(tiny.sample([5, 7], 0))
        tokens = torch.cat([row["tokens"] for row in found])
        taken = search.low_rank.sample
        assert taken.call.count == len(tokens)
        scores = taken.states @ MODELS[2].decoder.output_projection.weight.detach().t()
        scores[:, 1] = -torch.inf
        chosen, written = scores.argmax(1).tolist(), tokens.tolist()
        for symbol in set(written) - {2}:  # the limit of length ends sentences, too
            assert chosen.count(symbol) >= written.count(symbol)
        assert len(set(written)) > 2

    def test_nothing_is_recorded_of_samples(self):
        search = Search(MODELS[0], sampling=Settings(1), max_len_b=6)
        search(tiny.sample([4], 3))
        assert search.low_rank.sample.call.count == 0

    def test_enough_of_them_make_factors_between_two_batches(self):
        search = Search(MODELS[2], dtype=torch.int8, history=False)
        with mock.patch.object(low_rank, "fit", wraps=low_rank.fit) as fitting:
            for seed in range(12):
                sample = tiny.sample([6, 2], seed)
                assert_same(search(sample), reference(MODELS[2:], sample))
        assert fitting.call_count == 1
        assert search.verifier.sample is None

    def test_a_search_that_forgets_begins_again(self):
        search = Search(MODELS[2])
        search(tiny.sample([6, 2]))
        first = search.verifier.sample
        search.generator.forget()
        assert search.verifier.sample is None
        search(tiny.sample([6, 2]))
        assert search.verifier.sample not in (None, first)


@pytest.mark.usefixtures("early")
class TestMethods:
    """Which of them take factors."""

    def built(self, **flags):
        task = tiny.task()
        task.cfg = config_class()(**flags)
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, MODELS[:1], options)

    @pytest.mark.parametrize("flags", [{"decoding": "specdec"}, {"decoding": "auto"}])
    def test_exact_ones_record_states(self, flags):
        search = self.built(**flags)
        search.generate(MODELS[:1], tiny.sample([5]))
        assert search.loop.step.verifier.sample is not None

    def test_others_do_not(self):
        """Their output would depend on earlier sentences."""
        search = self.built(decoding="specdec", top_beta=3)
        search.generate(MODELS[:1], tiny.sample([5]))
        assert search.loop.step.verifier.sample is None
