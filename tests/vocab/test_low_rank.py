"""Factors of low rank: that they are the best, which rank is taken, and when they are found."""

import logging
from unittest import mock

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, build_engine
from specdec_plugin.vocab import low_rank
from specdec_plugin.vocab.clustered_projection import projection_by
from specdec_plugin.vocab.low_rank import FittedLowRank, factors, fit
from tests.support import made, tiny
from tests.support.compiled import needs_kernels

DIM = 16


def correlated(count, effective=None, dim=DIM, seed=0):
    """(count, dim) states, of which few directions vary much."""
    torch.manual_seed(seed)
    scale = 0.5 ** torch.arange(dim) if effective is None else (torch.arange(dim) < effective)
    basis = torch.linalg.qr(torch.randn(dim, dim)).Q
    return 30 * torch.randn(count, dim) * scale @ basis


def second_moment(states):
    moment = states.t() @ states / len(states)
    return moment + low_rank._RIDGE * moment.diag().mean() * torch.eye(len(moment))


def error(weights, expand, down, moment, rank):
    """The mean squared error of all scores over states of this second moment."""
    rest = weights - weights @ expand[:, :rank] @ down[:rank]
    return float((rest @ moment * rest).sum())


class TestFactors:
    weights, states = torch.randn(200, DIM), correlated(500)

    def test_all_of_them_are_the_projection(self):
        expand, down = factors(self.weights, self.states)
        torch.testing.assert_close(expand @ down, torch.eye(DIM), atol=1e-3, rtol=0)

    @pytest.mark.parametrize("rank", [1, 4, 8, 15])
    def test_none_of_that_rank_has_a_smaller_error(self, rank):
        """That of the best factors is the sum of the squares of the singular values left out."""
        expand, down = factors(self.weights, self.states)
        moment = second_moment(self.states)
        least = torch.linalg.svdvals(self.weights @ torch.linalg.cholesky(moment))[rank:]
        found = error(self.weights, expand, down, moment, rank)
        assert found == pytest.approx(float(least.square().sum()), rel=1e-3)

    def test_states_count(self):
        """Those of another distribution, such as any state, have larger errors."""
        moment = second_moment(self.states)
        own = error(self.weights, *factors(self.weights, self.states), moment, 4)
        other = error(self.weights, *factors(self.weights, 30 * torch.randn(500, DIM)), moment, 4)
        assert own < 0.5 * other


def projection(vocabulary=3000, seed=1, bias=None, **arguments):
    """That of a tiny model, as the kernels have it."""
    model = tiny.model(seed, symbols=tiny.dictionary(vocabulary - 4), **arguments)
    if bias is not None:
        model.decoder.output_projection.bias = torch.nn.Parameter(bias)
    return build_engine(model).projection


@needs_kernels
class TestFit:
    def test_the_least_rank_that_suffices(self):
        """States of few dimensions need no more."""
        whole = projection()
        for effective, expected in ((3, 4), (6, 6), (8, 8)):
            found = fit(whole, correlated(512, effective))
            assert found is not None and found.rank == expected
            assert found.operations == 2 * expected * (3000 + DIM)

    def test_none_where_all_directions_count(self):
        assert fit(projection(), 30 * torch.randn(512, DIM)) is None

    @pytest.mark.parametrize("dtype, error", [(torch.int4, 0.3), (torch.int8, 0.05)])
    def test_rough_scores_are_the_exact_ones_but_for_a_shift(self, dtype, error, monkeypatch):
        """Biases and the mean of all weights included."""
        monkeypatch.setattr(low_rank, "_TRIED", ((2, dtype),))
        monkeypatch.setattr(low_rank, "_SYMBOLS_A_CANDIDATE", 0)
        bias = 20 * torch.randn(3000)
        whole, states = projection(bias=bias), correlated(512, 3)
        with torch.no_grad():
            whole._source.weight.add_(torch.randn(DIM))
        whole.refresh()
        found = fit(whole, states)
        exact = states[400:] @ whole._source.weight.detach().t() + bias
        apart = exact - found.scores(states[400:])
        shift = apart.mean(1, keepdim=True)
        assert float((apart - shift).abs().max()) < error * float(exact.std())

    def test_the_margin_is_twice_the_largest_distance_of_the_best_symbols(self):
        """Among states that had no part in the factors."""
        whole, states = projection(), correlated(512, 3) + 1.5 * torch.randn(512, DIM)
        with mock.patch.object(low_rank, "_SYMBOLS_A_CANDIDATE", 0):
            found = fit(whole, states)
        scores, best = found.scores(states[384:]), whole.native(states[384:]).argmax(1)
        distance = scores.max(1).values - scores.gather(1, best.unsqueeze(1)).squeeze(1)
        assert float(distance.max()) > 0.5
        assert found.margin == pytest.approx(2 * float(distance.max()), rel=1e-3)

    def test_the_margin_of_exact_scores(self):
        found = fit(projection(), correlated(512, 3))
        assert found.margin == low_rank._LEAST_MARGIN

    @pytest.mark.parametrize("symbols, rank", [(1, 4), (200, 16)])
    def test_the_candidates_decide(self, symbols, rank, monkeypatch):
        """Where more of them may be read, a lower rank suffices. A full one needs hardly any."""
        monkeypatch.setattr(low_rank, "_TRIED", ((2, torch.int8), (8, torch.int8)))
        monkeypatch.setattr(low_rank, "_LEAST_MARGIN", 0.0)
        monkeypatch.setattr(low_rank, "_SYMBOLS_A_CANDIDATE", symbols)
        assert fit(projection(), 30 * torch.randn(512, DIM)).rank == rank

    @pytest.mark.parametrize("symbols, dtype, rank", [(16, torch.int4, 4), (1024, torch.int8, 4)])
    def test_four_bits_where_they_leave_few_candidates(self, symbols, dtype, rank, monkeypatch):
        monkeypatch.setattr(low_rank, "_SYMBOLS_A_CANDIDATE", symbols)
        found = fit(projection(), correlated(512, 3))
        assert (found.dtype, found.rank) == (dtype, rank)


@pytest.fixture
def few_states(monkeypatch):
    """Vocabularies of tests are large enough, and few states suffice."""
    monkeypatch.setattr(low_rank, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(low_rank, "_STATES", 64)
    monkeypatch.setattr(low_rank, "_STATES_A_NUMBER", 4)


@needs_kernels
@pytest.mark.usefixtures("few_states")
class TestWhenTheyAreFound:
    def recording(self, whole, states=None):
        """With as many states as wanted, of few dimensions."""
        fitted = FittedLowRank(whole)
        fitted.refresh()
        room = fitted.sample.call.room
        fitted.sample.call.count = room
        fitted.sample.states.copy_(correlated(room, 3) if states is None else states[:room])
        return fitted

    def found(self, whole):
        fitted = self.recording(whole)
        fitted.refresh()
        assert fitted.found is not None and fitted.sample is None
        assert fitted.describe().margin == fitted.found.margin
        return fitted

    def test_not_before_there_are_enough_states(self):
        whole = projection()
        fitted = FittedLowRank(whole)
        fitted.refresh()
        sample = fitted.sample
        assert sample is not None and not sample.full and sample.call.room == 64
        fitted.refresh()
        assert fitted.found is None and fitted.sample is sample
        assert fitted.describe().down is None

    def test_weights_of_a_mapped_file_leave_memory_again(self):
        whole = projection()
        fitted = self.recording(whole)
        with mock.patch.object(whole, "forget_pages") as forget:
            fitted.refresh()
        assert fitted.found is not None and forget.call_count == 1

    def test_others_of_the_same_weights_share_them(self):
        whole = projection()
        late, first, second = self.recording(whole), self.found(whole), FittedLowRank(whole)
        for each in (late, second):
            each.refresh()
            assert each.found is first.found and each.sample is None

    def test_a_projection_by_clusters_does_not_take_those_of_the_whole_one(self):
        model = tiny.model(1, symbols=tiny.dictionary(2996))
        whole = build_engine(model).projection
        first = self.found(whole)
        clusters = projection_by(made.random_clusters(5, DIM, 3000, 0.2))
        other = FittedLowRank(CachedDecoder(model.decoder, project=clusters).projection)
        other.refresh()
        assert first.found is not None
        assert other.found is None and other.sample is None and other.describe().down is None

    def test_new_weights_need_new_states(self):
        whole = projection()
        fitted = self.found(whole)
        with torch.no_grad():
            whole._source.weight.mul_(1.5)
        whole.refresh()
        fitted.refresh()
        assert fitted.found is None and fitted.sample is not None

    def test_forgotten_ones_are_found_again(self):
        whole = projection()
        fitted = self.found(whole)
        fitted.forget()
        fitted.refresh()
        assert fitted.found is None and fitted.sample is not None

    def test_nothing_is_recorded_for_a_small_vocabulary(self, monkeypatch):
        monkeypatch.setattr(low_rank, "LEAST_WEIGHTS", 3000 * DIM + 1)
        fitted = FittedLowRank(projection())
        fitted.refresh()
        assert fitted.sample is None and fitted.found is None

    @pytest.mark.parametrize(
        "states",
        [30 * torch.randn(64, DIM), torch.zeros(64, DIM), torch.full((64, DIM), 1e30)],
        ids=["of any direction", "zero", "too large for their squares"],
    )
    def test_where_none_are_found_nothing_is_tried_again(self, states):
        fitted = self.recording(projection(), states)
        for _ in range(2):
            fitted.refresh()
            assert fitted.found is None and fitted.sample is None

    @pytest.mark.parametrize("error", [MemoryError, RuntimeError, torch.linalg.LinAlgError])
    def test_without_room_drafts_go_on(self, error, caplog):
        fitted = self.recording(projection())
        with mock.patch.object(low_rank, "factors", side_effect=error("no room")):
            with caplog.at_level(logging.INFO):
                fitted.refresh()
        assert fitted.found is None and fitted.sample is None
        assert "drafts score all symbols, because no factors were found: no room" in caplog.text
