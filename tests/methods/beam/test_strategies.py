"""Beam search by fairseq's strategies, against fairseq's own search with the same ones."""

import random
from functools import partial

import pytest
import torch
from fairseq.search import (
    DiverseBeamSearch,
    DiverseSiblingsSearch,
    LexicallyConstrainedBeamSearch,
    PrefixConstrainedBeamSearch,
)
from fairseq.token_generation_constraints import pack_constraints
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import GraphBackend, NativeBackend, TorchBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.beam.native import NativeBeamSearch
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.nbest import (
    LENGTHS,
    RULES,
    assert_lists_of_strategy,
    assert_same_lists,
    ours,
    reference,
)
from tests.support.search import MODELS, SYMBOLS

BACKENDS = [NativeBackend(), TorchBackend(), GraphBackend()]
BACKEND_NAMES = ["native", "torch", "graphs"]
EOS, PAD = SYMBOLS.eos(), SYMBOLS.pad()

rules = st.fixed_dictionaries(RULES)


def on_all(test):
    """The test with each backend."""
    return pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)(test)


def unnumbered(lengths, seed, *symbols):
    """A batch whose numbers fairseq does not take for rows."""
    sample = tiny.sample(lengths, seed, *symbols)
    sample.pop("id", None)
    return sample


def lexical(order):
    """A strategy by which phrases are in the output."""
    return partial(LexicallyConstrainedBeamSearch, representation=order)


def packed(lists):
    """Phrases of each sentence, as lists of symbols."""
    return pack_constraints([[torch.tensor(phrase) for phrase in row] for row in lists])


def searched(models, sample, beams, backend, **options):
    """Our lists, which are fairseq's where it finds any; None: no hypothesis can end.

    fairseq fails with an assertion where fewer than B hypotheses of a sentence end in time.
    """
    try:
        reference(models, sample, beams, **options)
        fails = False
    except AssertionError:
        fails = True
    try:
        found = ours(models, sample, beams, backend=backend, **options)
    except PluginError:
        assert fails
        return None
    if not fails:
        assert_lists_of_strategy(found, models, sample, beams, **options)
    return found


def contains(tokens, phrase):
    """Whether symbols follow each other in a hypothesis."""
    width = len(phrase)
    return any(tokens[at : at + width] == phrase for at in range(len(tokens) - width + 1))


@on_all
@given(LENGTHS, st.integers(0, 99), st.integers(1, 3), st.integers(1, 3), rules, st.integers(1, 2))
@settings(max_examples=25, deadline=None)
def test_diverse_beams(backend, lengths, seed, groups, each, options, count):
    """In any number of groups, by ensembles too."""
    sample, models = unnumbered(lengths, seed), MODELS[:count]
    strategy = partial(DiverseBeamSearch, num_groups=groups, diversity_strength=0.7)
    given = dict(options, strategy=strategy)
    assert searched(models, sample, groups * each, backend, **given)


@on_all
@given(LENGTHS, st.integers(0, 99), st.integers(1, 6), rules, st.sampled_from([0.0, 0.3, 2.0]))
@settings(max_examples=25, deadline=None)
def test_diverse_siblings(backend, lengths, seed, beams, options, rate):
    sample = unnumbered(lengths, seed)
    given = dict(options, strategy=partial(DiverseSiblingsSearch, diversity_rate=rate))
    assert searched(MODELS[:1], sample, beams, backend, **given)


@on_all
@given(st.integers(0, 99), st.integers(1, 6), st.data())
@settings(max_examples=25, deadline=None)
def test_allowed_tokens(backend, seed, beams, data):
    """What a function of a sentence's number and the tokens so far allows.

    It allows an end always, as fairseq finds nothing else for a sentence without one.
    """
    sizes = data.draw(LENGTHS)
    sample = unnumbered(sizes, seed)
    sample["id"] = torch.tensor(data.draw(st.permutations(range(7, 7 + len(sizes)))))

    def allowed(number, tokens):
        first = 4 + (3 * number + 2 * len(tokens)) % 9
        return [EOS, first, first + 1, first + 2]

    strategy = partial(PrefixConstrainedBeamSearch, prefix_allowed_tokens_fn=allowed)
    given = dict(max_len_b=9, strategy=strategy)
    found = searched(MODELS[:1], sample, beams, backend, **given)
    for number, hypotheses in zip(sample["id"].tolist(), found, strict=True):
        for hypothesis in hypotheses:
            tokens = [EOS, *hypothesis["tokens"].tolist()]
            for at in range(1, len(tokens)):
                assert tokens[at] in allowed(number, tokens[:at])


phrases = st.lists(st.lists(st.integers(4, 15), min_size=1, max_size=3), max_size=2)


@on_all
@pytest.mark.parametrize("order", ["ordered", "unordered"])
@given(st.integers(0, 99), st.integers(2, 6), st.data())
@settings(max_examples=20, deadline=None)
def test_phrases(backend, order, seed, beams, data):
    """fairseq's lists; all of a sentence's phrases are in each hypothesis."""
    sizes = data.draw(LENGTHS)
    wanted = [data.draw(phrases) for _ in sizes]
    sample, given = unnumbered(sizes, seed), dict(max_len_b=14, phrases=packed(wanted))
    given["strategy"] = lexical(order)
    found = searched(MODELS[:1], sample, beams, backend, **given)
    for row, hypotheses in zip(wanted, found or [[]] * len(sizes), strict=True):
        for hypothesis in hypotheses:
            assert all(contains(hypothesis["tokens"].tolist(), phrase) for phrase in row)


@pytest.fixture(scope="module")
def ending():
    """A model with more symbols than the kernels compare at once, whose outputs soon end."""
    model = tiny.model(5, symbols=tiny.dictionary(1000), share_all_embeddings=False)
    source = tiny.sample([9] * 8, 1, 1000)["net_input"]
    with torch.no_grad():
        encoded = model.encoder(source["src_tokens"], source["src_lengths"])
        fed = torch.randint(4, 1000, (8, 20))
        states, _ = model.decoder.extract_features(fed, encoder_out=encoded)
        usual = states.flatten(0, 1).mean(0)
        model.decoder.output_projection.weight[EOS] = 10 * usual / usual.norm() ** 2
    return model


@pytest.fixture
def answered(monkeypatch):
    """By batch of the kernels: the sentences that they leave to PyTorch's operators."""
    found, run = [], NativeBeamSearch.run

    def noted(self, batch, strategy):
        hypotheses, doubtful = run(self, batch, strategy)
        found.append((batch.size, len(doubtful)))
        return hypotheses, doubtful

    monkeypatch.setattr(NativeBeamSearch, "run", noted)
    return found


@needs_kernels
@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_phrases_in_the_kernels(ending, answered, order):
    """Of many sentences, some of which wait. Most phrases are chosen without PyTorch's sort."""
    symbols, draw = ending.decoder.dictionary, random.Random(7)
    for beams in (2, 5, 8):
        sizes = [draw.randint(1, 9) for _ in range(40)]
        # Some begin alike, or are the same, or are parts of others.
        words = [[draw.randint(4, 9) for _ in range(draw.randint(1, 3))] for _ in range(30)]
        wanted = [draw.sample(words, draw.randint(0, 3)) for _ in sizes]
        wanted[0] = [[5, 6], [5, 6], [5], [5, 6, 7]]
        given = dict(max_len_b=60, phrases=packed(wanted), strategy=lexical(order), symbols=symbols)
        sample = unnumbered(sizes, beams, 1000)
        found = ours([ending], sample, beams, backend=NativeBackend(), **given)
        assert_lists_of_strategy(found, [ending], sample, beams, **given)
    sentences, left = map(sum, zip(*answered, strict=True))
    assert sentences == 120 and 0 < left < 60


@on_all
def test_phrases_behind_a_prefix(backend):
    """A prefix, such as the symbol of a language, leaves all beams to the phrases.

    In fairseq's search, beams of phrases that the prefix has ruled out stay to the end.
    """
    sample, wanted = unnumbered([4, 6, 3], 1), [[[5, 6], [9]], [], [[7]]]
    prefix = torch.tensor([[10], [11], [12]])
    for order in ("ordered", "unordered"):
        given = dict(max_len_b=14, phrases=packed(wanted), strategy=lexical(order))
        found = ours(MODELS[:1], sample, 3, prefix, backend, **given)
        for row, first, hypotheses in zip(wanted, prefix.tolist(), found, strict=True):
            assert hypotheses
            for hypothesis in hypotheses:
                tokens = hypothesis["tokens"].tolist()
                assert tokens[:1] == first and all(contains(tokens, each) for each in row)
                total = float(hypothesis["positional_scores"].sum())
                assert total / len(tokens) == pytest.approx(float(hypothesis["score"]), abs=1e-4)
        plain = ours(MODELS[:1], sample, 3, prefix, backend, max_len_b=14)
        assert_same_lists(found[1:2], plain[1:2])


@on_all
@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_what_a_prefix_contains_is_not_wanted_again(backend, order):
    """A whole phrase, or the beginning of one. No end comes before what is still missing."""
    sample, wanted = unnumbered([4, 6, 2], 1), [[[5, 6]], [[8, 9]], [[7], [14]]]
    prefix = torch.tensor([[5, 6], [7, 8], [9, 7]])
    given = dict(max_len_b=14, min_len=0, phrases=packed(wanted), strategy=lexical(order))
    lists = ours(MODELS[:1], sample, 4, prefix, backend, **given)
    found = [[each["tokens"].tolist() for each in row] for row in lists]
    assert not any(contains(tokens[2:], [5, 6]) for tokens in found[0])
    assert any(tokens[:3] == [7, 8, 9] for tokens in found[1])
    for row, hypotheses in zip(wanted, found, strict=True):
        assert all(contains(tokens, each) for tokens in hypotheses for each in row)


def test_phrases_behind_prefixes_of_different_lengths():
    """A sentence would depend on the others of its batch. A prefix may end its sentence."""
    given = dict(max_len_b=12, phrases=packed([[[5]], [[6]]]), strategy=lexical("ordered"))
    short = torch.tensor([[10, 8], [6, PAD]])
    with pytest.raises(PluginError, match=r"^prefix_tokens of a batch with constraints have diff"):
        ours(MODELS[:1], unnumbered([5, 2], 3), 3, short, **given)
    whole = torch.tensor([[10, 8, 7], [6, EOS, PAD]])
    first, second = ours(MODELS[:1], unnumbered([5, 2], 3), 3, whole, **given)
    assert first[0]["tokens"][:3].tolist() == [10, 8, 7]
    assert second[0]["tokens"].tolist() == [6, EOS]


def test_a_prefix_scores_as_the_model_does():
    """Log-probabilities of hypotheses behind a prefix are those of a pass over them."""
    sample, prefix = unnumbered([5, 2], 3), torch.tensor([[10, 8], [6, 11]])
    given = dict(max_len_b=12, phrases=packed([[[5, 6]], [[9]]]), strategy=lexical("ordered"))
    found = ours(MODELS[:1], sample, 4, prefix, **given)
    model = MODELS[0]
    for row, hypotheses in enumerate(found):
        names = "src_tokens", "src_lengths"
        source = {name: sample["net_input"][name][row : row + 1] for name in names}
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"]
            fed = torch.cat([torch.tensor([EOS]), tokens[:-1]])[None]
            logits, _ = model(**source, prev_output_tokens=fed)
            lprobs = logits.log_softmax(-1)[0].gather(1, tokens[:, None])[:, 0]
            assert torch.allclose(lprobs, hypothesis["positional_scores"], atol=1e-4)


@on_all
def test_a_sentence_alone_and_together(backend):
    """Its list does not depend on the batch, whose other sentences end before it or after it."""
    sizes, wanted = [4, 9, 1, 6], [[[5]], [[7, 7], [6]], [], [[8, 9, 10]]]
    cases = [
        (partial(DiverseBeamSearch, num_groups=2, diversity_strength=0.5), None),
        (partial(DiverseSiblingsSearch, diversity_rate=0.5), None),
        (lexical("unordered"), wanted),
    ]
    tokens = tiny.sample(sizes, 5)["net_input"]["src_tokens"]
    for strategy, lists in cases:
        given = dict(max_len_b=14, strategy=strategy)
        of_all = None if lists is None else packed(lists)
        together = ours(
            MODELS[:1], unnumbered(sizes, 5), 4, backend=backend, phrases=of_all, **given
        )
        for row, size in enumerate(sizes):
            net_input = {
                "src_tokens": tokens[row : row + 1, -size - 1 :],
                "src_lengths": torch.tensor([size + 1]),
            }
            own = None if lists is None else packed(lists[row : row + 1])
            found = ours(
                MODELS[:1], {"net_input": net_input}, 4, backend=backend, phrases=own, **given
            )
            assert_same_lists(found, [together[row]])


@pytest.mark.parametrize("none", [None, packed([[], []]), torch.zeros(2, 0).long()])
def test_without_phrases_it_is_plain_beam_search(none, monkeypatch):
    """Which the kernels search."""
    monkeypatch.setattr("specdec_plugin.methods.beam.search.StrategySearch", None)
    sample = unnumbered([4, 6], 1)
    found = ours(MODELS[:1], sample, 3, max_len_b=9, phrases=none, strategy=lexical("ordered"))
    assert_same_lists(found, reference(MODELS[:1], sample, 3, max_len_b=9))


def test_phrases_for_which_there_is_no_room():
    """fairseq's search ends with an assertion, or an empty list."""
    given = dict(max_len_b=3, phrases=packed([[[5, 6, 7, 8]]]), strategy=lexical("ordered"))
    with pytest.raises(PluginError, match=r"^No hypothesis of 1 sentences .*--constraints\.$"):
        ours(MODELS[:1], unnumbered([4], 1), 2, **given)


@pytest.mark.parametrize(
    "wrong, told",
    [
        (torch.tensor([[2, 5, 0, 6]]), "^constraints are not packed"),
        (torch.tensor([[1, 5, 0], [1, 6, 0]]), "^constraints has 2 rows for 1 sentences"),
        (torch.tensor([[1, 500, 0]]), "^constraints has symbol number 500"),
    ],
)
def test_phrases_that_make_no_sense(wrong, told):
    with pytest.raises(PluginError, match=told):
        ours(MODELS[:1], unnumbered([4], 1), 2, phrases=wrong, strategy=lexical("ordered"))
