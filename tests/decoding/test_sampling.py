"""Samples: fairseq's, draw for draw, whoever drafts, computes and decodes beside them."""

import itertools
import math

import pytest
import torch
from fairseq.search import Sampling as FairseqSampling
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.sampling import Sampler, Settings
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import NativeBackend, TorchBackend, build_engine, native
from specdec_plugin.engine.output_projection import Scores
from specdec_plugin.errors import PluginError
from tests.support import draws, tiny
from tests.support.compiled import needs_kernels
from tests.support.hostile import HostileDrafter
from tests.support.search import MODELS, SYMBOLS, settings_of_search

BACKENDS = [TorchBackend()] + ([NativeBackend()] if native.library() is not None else [])

cuts = st.sampled_from(
    [{}, {"top_k": 1}, {"top_k": 4}, {"top_k": 99}, {"top_p": 0.3}, {"top_p": 0.8}, {"top_p": 1.0}]
)


def generator(models, wanted, drafter=None, backend=None, **lengths):
    """What draws with the settings ``wanted``."""
    statistics = Statistics()
    engines = [build_engine(model, backend=backend) for model in models]
    step = VerifiedStep(Verifier(engines, statistics, wanted.temperature), TopBeta())
    loop = DecodingLoop(drafter, step, statistics)
    positions = min(model.max_decoder_positions() for model in models)
    limits = Lengths(max_positions=positions, **lengths)
    symbols = models[0].decoder.dictionary
    return ParallelGenerator(models, symbols, loop, statistics, limits, sampling=wanted)


def tokens_of(found):
    return [[each["tokens"].tolist() for each in samples] for samples in found]


@settings(max_examples=120)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    options=settings_of_search,
    cut=cuts,
    samples=st.integers(1, 4),
    ensemble=st.integers(1, 2),
    prefix_size=st.integers(0, 2),
    honesty=st.sampled_from([None, 0.0, 0.7, 1.0]),
    backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 10**6),
)
def test_samples_are_those_of_fairseqs_search_with_the_same_noise(
    sources, options, cut, samples, ensemble, prefix_size, honesty, backend, seed
):
    options = dict(options)
    temperature = options.pop("temperature")
    wanted = Settings(seed, samples, temperature, offset=seed % 3, **cut)
    models, sample = MODELS[:ensemble], tiny.sample(sources, seed)
    sample["id"] = torch.randperm(50)[: len(sources)]
    prefix = None
    if prefix_size > 0:
        generate = torch.Generator().manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size), generator=generate)
    expected = draws.reference(models, SYMBOLS, sample, wanted, prefix, **options)
    drafter = None
    if honesty is not None:
        truth = [tokens for each in tokens_of(expected) for tokens in each]
        drafter = HostileDrafter(truth, honesty, 5, seed)
    found = generator(models, wanted, drafter, backend, **options).generate(
        models, sample, prefix_tokens=prefix
    )
    expected = [draws.best_first(each) for each in expected]
    assert tokens_of(found) == tokens_of(expected)
    for mine, theirs in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        scores = mine["positional_scores"], theirs["positional_scores"]
        torch.testing.assert_close(*scores, atol=1e-4, rtol=0)
        assert abs(float(mine["score"]) - float(theirs["score"])) < 1e-4


@settings(max_examples=150)
@given(data=st.data())
def test_the_cut_leaves_what_fairseqs_leaves(data):
    rows, symbols = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 60))
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    lprobs = (torch.randn(rows, 1, symbols) * data.draw(st.floats(0.1, 6))).log_softmax(2)
    lprobs[..., 1] = -math.inf
    top_k = data.draw(st.integers(0, symbols))
    top_p = 0.0 if top_k else data.draw(st.floats(0.01, 1.0))
    search = FairseqSampling(tiny.dictionary(), top_k or -1, top_p or -1.0)
    left = draws.left_by_fairseq(search, lprobs)
    sampler = Sampler(torch.arange(rows), 1.0, top_k, top_p)
    floor = sampler._floor(Scores(lprobs, torch.zeros(rows, 1)))
    if floor is None:
        floor = torch.full((rows, 1, 1), -math.inf)
    kept = (lprobs >= floor) & lprobs.isfinite()
    assert torch.equal(kept, left.isfinite())


@pytest.fixture(scope="module")
def wide():
    """A model whose vocabulary is larger than a vector, and a batch of sentences."""
    symbols = tiny.dictionary(300)
    return tiny.model(5, symbols=symbols), tiny.sample([6, 3, 7, 5, 2], 4, 300)


def part_of(sample, rows):
    """Some sentences of a batch, as a batch of their own."""
    tokens = sample["net_input"]["src_tokens"][rows]
    tokens = tokens[:, int(tokens.eq(1).sum(1).min()) :]
    lengths = sample["net_input"]["src_lengths"][rows]
    return {"id": sample["id"][rows], "net_input": {"src_tokens": tokens, "src_lengths": lengths}}


@pytest.mark.parametrize("backend", BACKENDS, ids=["torch", "native"][: len(BACKENDS)])
@pytest.mark.parametrize("cut", [{}, {"top_k": 20}, {"top_p": 0.9}, {"temperature": 0.7}])
def test_samples_do_not_depend_on_company(wide, backend, cut):
    model, sample = wide
    wanted = Settings(seed=11, samples=5, **cut)
    made = generator([model], wanted, backend=backend, max_len_b=12)
    together = tokens_of(made.generate([model], sample))
    assert len({tuple(tokens) for each in together for tokens in each}) > 20
    for rows in ([3], [4, 0, 2], [1, 3, 0, 4, 2]):
        found = tokens_of(made.generate([model], part_of(sample, torch.tensor(rows))))
        assert found == [together[row] for row in rows]


@needs_kernels
@pytest.mark.parametrize("cut", [{}, {"top_k": 20}, {"top_p": 0.9}])
def test_samples_do_not_depend_on_threads(wide, cut):
    model, sample = wide
    made = generator([model], Settings(samples=4, **cut), backend=NativeBackend(), max_len_b=12)
    alone = tokens_of(made.generate([model], sample))
    torch.set_num_threads(2)
    try:
        assert tokens_of(made.generate([model], sample)) == alone
    finally:
        torch.set_num_threads(1)


def test_other_seeds_and_offsets_draw_other_samples(wide):
    model, sample = wide

    def draw(**wanted):
        made = generator([model], Settings(samples=3, **wanted), max_len_b=12)
        return tokens_of(made.generate([model], sample))

    first = draw(seed=1)
    assert first == draw(seed=1) == draw(seed=1 + 2**64)
    assert first != draw(seed=2) and first != draw(seed=1, offset=1)
    sample = {**sample, "id": sample["id"] - 4}
    assert first == draw(seed=1, offset=4)


class TestDistribution:
    """χ² of the first token, and of the second behind the commonest first."""

    DRAWS = 4000
    CUTS = [{}, {"top_k": 4}, {"top_p": 0.7}, {"temperature": 0.7}]
    SEEDS = [1, 2, 3]

    @pytest.mark.parametrize("backend", BACKENDS, ids=["torch", "native"][: len(BACKENDS)])
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("cut", CUTS)
    def test_tokens(self, backend, seed, cut):
        model = MODELS[seed % 3]
        wanted = Settings(seed, self.DRAWS, **cut)
        made = generator([model], wanted, backend=backend, max_len_b=3)
        (samples,) = made.generate([model], tiny.sample([5], seed))
        tokens = [each["tokens"].tolist() for each in samples]
        firsts = torch.tensor([each[0] for each in tokens])
        common = int(firsts.bincount().argmax())
        seconds = torch.tensor([each[1] for each in tokens if each[0] == common])
        least = 0.001 / (2 * len(self.CUTS) * len(self.SEEDS))
        for drawn, prefix in ((firsts, []), (seconds, [common])):
            expected = self.probabilities(model, tiny.sample([5], seed), prefix, wanted)
            assert bool(expected[drawn].gt(0).all())
            assert self.p_value(drawn, expected) >= least

    @staticmethod
    def probabilities(model, sample, prefix, wanted):
        """(vocabulary,) what fairseq's sampling draws behind a prefix."""
        fed = torch.tensor([[SYMBOLS.eos(), *prefix]])
        net_input = sample["net_input"]
        logits, _ = model(net_input["src_tokens"], net_input["src_lengths"], fed)
        lprobs = (logits[:, -1:].double() / wanted.temperature).log_softmax(2)
        lprobs[..., SYMBOLS.pad()] = -math.inf
        if not prefix:
            lprobs[..., SYMBOLS.eos()] = -math.inf  # --min-len is 1
        search = FairseqSampling(SYMBOLS, wanted.top_k or -1, wanted.top_p or -1.0)
        left = draws.left_by_fairseq(search, lprobs).exp().flatten().detach()
        return left / left.sum()

    @staticmethod
    def p_value(drawn, expected):
        """Of Pearson's test; symbols that are expected fewer than 5 times count as one."""
        counts = torch.bincount(drawn, minlength=len(expected)).double()
        expected = expected * len(drawn)
        rare = expected < 5
        counts = torch.cat([counts[~rare], counts[rare].sum().view(1)])
        expected = torch.cat([expected[~rare], expected[rare].sum().view(1)])
        if float(expected[-1]) < 5:
            kept = expected[:-1].argmin()
            expected[kept] += expected[-1]
            counts[kept] += counts[-1]
            counts, expected = counts[:-1], expected[:-1]
        if len(expected) == 1:
            return 1.0
        distance = ((counts - expected) ** 2 / expected).sum()
        freedom = torch.tensor((len(expected) - 1) / 2).double()
        return float(torch.special.gammaincc(freedom, distance / 2))


def decoded(sample, backend):
    ours = generator(MODELS[:1], Settings(), backend=backend, max_len_b=6)
    return [row[0]["tokens"].tolist() for row in ours.generate(MODELS[:1], sample)]


@pytest.mark.parametrize("numbers", [torch.arange(1), torch.arange(9), torch.arange(3)[None]])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_sentence_has_one_number(numbers, backend):
    """The kernels would read others behind the tensor."""
    with pytest.raises(PluginError, match=rf"^id of a batch has {numbers.numel()} numbers for 3 "):
        decoded({**tiny.sample([5, 3, 6]), "id": numbers}, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_may_be_short_integers(backend):
    sample = tiny.sample([5, 3, 6])
    assert decoded({**sample, "id": sample["id"].int()}, backend) == decoded(sample, backend)
