"""Clustered projections: of the verifier, where all methods agree, and of drafters, unseen."""

import math
import os
from argparse import Namespace
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import FORCED_SCORE
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import NativeBackend, TorchBackend, build_engine
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.registry import config_class
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from specdec_plugin.vocab.cluster_file import made_for, save_clusters
from specdec_plugin.vocab.clustered_projection import projection_by
from specdec_plugin.vocab.flags import cluster_search, verifier_clusters
from tests.support import made, tiny
from tests.support.architectures import build_model
from tests.support.compiled import needs_kernels
from tests.support.drafters import drafter_model
from tests.support.heads import TinyBlockwise
from tests.support.hostile import HostileDrafter
from tests.support.search import MODELS, SYMBOLS, assert_same, reference

DecodingConfig = config_class()

VOCABULARY = len(SYMBOLS)
HEADS = tiny.model(2, TinyBlockwise, block_size=4, heads="separate")
#: Drafters, which are built anew for each use, because they are freed when they are packed.
FORMS = {
    "causal": lambda: drafter_model("causal"),
    "full": lambda: drafter_model("full"),
    "chain": lambda: drafter_model("causal", chain_units=8),
}
METHODS = {
    "greedy": {},
    "self": {"decoding": "specdec", "drafter_path": None, "block_size": 5},
    "causal": {"decoding": "specdec"},
    "full": {"decoding": "specdec"},
    "chain": {"decoding": "specdec"},
    "auto": {"drafter_path": None},
    "input-guided": {},
    "fallback": {"decoding": "input-guided", "fallback": "nat"},
    "blockwise": {},
    "jacobi": {},
    "gs-jacobi": {},
    "hybrid-jacobi": {},
}
#: Those that draft with a model.
DRAFTING = ["self", "causal", "full", "chain", "fallback", "blockwise"]

clusters = st.fixed_dictionaries(
    {
        "count": st.integers(1, 8),
        "share": st.sampled_from([0.0, 0.2, 0.5, 1.0]),
        "seed": st.integers(0, 10**6),
    }
)


def clusters_of(drawn, always=(2, 3)):
    share, seed = drawn["share"], drawn["seed"]
    return made.random_clusters(drawn["count"], 16, VOCABULARY, share, seed, always, [1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("clusters"))


def written(folder, clusters, model):
    path = os.path.join(folder, "clusters.pt")
    save_clusters(made_for(clusters, 1, model.decoder, SYMBOLS, "made up"), path)
    return path


def decode(method, model, sample, prefix=None, options=(), **flags):
    """Tokens of each row."""
    flags = {"decoding": method, "draft_rows": 0, **METHODS[method], **flags}
    if flags["decoding"] in ("greedy", "input-guided"):
        del flags["draft_rows"]
    if method in FORMS or method == "fallback":
        flags.setdefault("drafter_path", "drafter.pt")
    task = tiny.task(SYMBOLS)
    task.cfg = DecodingConfig(**flags)
    drafter = FORMS.get(method, FORMS["causal"])()
    with mock.patch.object(method_setup, "load_model", lambda *paths: drafter):
        arguments = Namespace(**{"beam": 1, "max_len_b": 12, **dict(options)})
        generator = build.build_generator(task, [model], arguments)
    return [row[0] for row in generator.generate([model], sample, prefix_tokens=prefix)]


def tokens_of(found):
    return [row["tokens"].tolist() for row in found]


@contextmanager
def naively(model, clusters, noise=0.0):
    """Let fairseq's model project in full, and rule out what is not in each state's cluster.

    noise: the standard deviation of what is added to scores, always the same numbers.
    """
    module, sets = model.decoder.output_projection, made.sets_of(clusters)
    drawn = torch.Generator().manual_seed(round(noise * 1e6))

    def forward(features):
        flat = features.flatten(0, -2)
        values = F.linear(flat, module.weight)
        values += noise * torch.randn(values.shape, generator=drawn)
        for row, state in enumerate(flat):
            own = (clusters.centroids.double() - state.double()).square().sum(1).argmin()
            kept = values[row, sets[own]].clone()
            values[row] = -math.inf
            values[row, sets[own]] = kept
        return values.view(*features.shape[:-1], -1)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


@settings(max_examples=15)
@given(
    drawn=clusters,
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    number=st.integers(0, 2),
    min_len=st.integers(1, 3),
    unkpen=st.sampled_from([0, 1.5]),
    temperature=st.sampled_from([1.0, 0.7]),
    seed=st.integers(0, 10**6),
)
def test_greedy_is_fairseqs_over_the_active_tokens(
    folder, drawn, sources, number, min_len, unkpen, temperature, seed
):
    model, sample, clusters = MODELS[number], tiny.sample(sources, seed), clusters_of(drawn)
    with naively(model, clusters), torch.no_grad():
        expected = reference(
            [model],
            sample,
            max_len_b=12,
            min_len=min_len,
            unk_penalty=unkpen,
            temperature=temperature,
        )
    options = {"min_len": min_len, "unkpen": unkpen, "temperature": temperature}
    path = written(folder, clusters, model)
    assert_same(decode("greedy", model, sample, options=options, vocab_clusters=path), expected)


@settings(max_examples=40)
@given(
    drawn=clusters,
    method=st.sampled_from([name for name in METHODS if name != "greedy"]),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    prefix_size=st.integers(0, 2),
    min_len=st.integers(1, 3),
    number=st.integers(0, 2),
    seed=st.integers(0, 10**6),
)
def test_every_method_says_what_greedy_says(
    folder, drawn, method, sources, prefix_size, min_len, number, seed
):
    model = HEADS if method == "blockwise" else MODELS[number]
    sample, clusters = tiny.sample(sources, seed), clusters_of(drawn)
    flags = {"vocab_clusters": written(folder, clusters, model)}
    flags["options"] = {"min_len": min_len}
    if prefix_size > 0:  # forced tokens, as a rule not in the cluster
        torch.manual_seed(seed)
        flags["prefix"] = torch.randint(4, 16, (len(sources), prefix_size))
    expected = tokens_of(decode("greedy", model, sample, **flags))
    assert tokens_of(decode(method, model, sample, **flags)) == expected
    if prefix_size > 0:
        assert [row[:prefix_size] for row in expected] == flags["prefix"].tolist()
    else:
        one = decode("greedy", model, alone(sample, len(sources) - 1), **flags)
        assert tokens_of(one) == expected[-1:]


@needs_kernels
@settings(max_examples=30)
@given(
    drawn=clusters,
    always=st.sampled_from([(2, 3), (3,)]),  # with the end of a sentence or without
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=40),
    beta=st.integers(1, 4),
    tolerance=st.sampled_from([0.7, math.inf]),
    min_len=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_the_native_step_is_the_loop_on_operators(
    drawn, always, sources, beta, tolerance, min_len, seed
):
    model, sample, clusters = MODELS[0], tiny.sample(sources, seed), clusters_of(drawn, always)
    limits = Lengths(max_positions=64, max_len_b=12, min_len=min_len)
    truth, both = [[5, 6, 7, 8, 2]] * len(sources), []
    for verifying in (TorchBackend(), NativeBackend()):
        statistics = Statistics()
        verifier = Verifier([build_engine(model, None, projection_by(clusters))], statistics)
        step = VerifiedStep(verifier, TopBeta(beta, tolerance), verifying)
        loop = DecodingLoop(HostileDrafter(truth, 0.5, 5, seed), step, statistics)
        generator = ParallelGenerator([model], SYMBOLS, loop, statistics, limits)
        with mock.patch.object(Verifier, "scores", Verifier.scores if len(both) == 0 else None):
            both.append([row[0] for row in generator.generate([model], sample)])
    assert_same(*reversed(both))


def alone(sample, row):
    """One sentence of a batch, as a batch."""
    length = sample["net_input"]["src_lengths"][row : row + 1]
    tokens = sample["net_input"]["src_tokens"][row : row + 1, -int(length) :]
    return {"net_input": {"src_tokens": tokens, "src_lengths": length}}


@settings(max_examples=40)
@given(
    drawn=clusters,
    method=st.sampled_from(DRAFTING),
    of_verifier=st.booleans(),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    min_len=st.integers(1, 3),
    number=st.integers(0, 2),
    seed=st.integers(0, 10**6),
)
def test_clusters_of_a_drafter_change_nothing(
    folder, drawn, method, of_verifier, sources, min_len, number, seed
):
    model = HEADS if method == "blockwise" else MODELS[number]
    sample, own = tiny.sample(sources, seed), FORMS.get(method, FORMS["causal"])()
    if of_verifier or method in ("self", "blockwise"):
        own = model
    path = written(folder, clusters_of(drawn, always=()), own)
    found = decode(method, model, sample, options={"min_len": min_len}, drafter_vocab_clusters=path)
    assert_same(found, reference([model], sample, max_len_b=12, min_len=min_len))


def doubt(weight, state):
    """How far a score may be off if weights and state are rounded to 127 levels on each side."""
    steps = weight.abs().amax(1) / 127, state.abs().max() / 127
    within = steps[0] * state.abs().sum() + steps[1] * (weight.abs().sum(1) + steps[0] * len(state))
    return float(within.detach().max()) / 2 + 1e-4


@settings(max_examples=20)
@given(
    drawn=clusters,
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    number=st.integers(0, 2),
    threads=st.integers(1, 3),
    min_len=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_a_copy_drafts_the_best_of_the_active_tokens(
    drawn, sources, number, threads, min_len, seed
):
    model, sample, clusters = MODELS[number], tiny.sample(sources, seed), clusters_of(drawn)
    before, statistics = torch.get_num_threads(), Statistics()
    torch.set_num_threads(threads)
    try:
        verifier = Verifier([build_engine(model)], statistics)
        drafter = SelfDrafter(verifier, 5, torch.float32, clusters=clusters)
        loop = DecodingLoop(drafter, VerifiedStep(verifier, TopBeta()), statistics, True)
        limits = Lengths(max_len_b=12, min_len=min_len)
        found = ParallelGenerator([model], SYMBOLS, loop, statistics, limits).generate(
            [model], sample
        )
    finally:
        torch.set_num_threads(before)
    sets, weight = made.sets_of(clusters), model.decoder.output_projection.weight
    encoded = model.encoder.forward_torchscript(sample["net_input"])
    for index, (row,) in enumerate(found):
        said, alone = [], model.encoder.reorder_encoder_out(encoded, torch.tensor([index]))
        for draft, verified in zip(row["history"][::2], row["history"][1::2], strict=True):
            tokens = draft["tokens"].tolist()
            fed = torch.tensor([[2, *said, *tokens[:-1]]])
            with torch.no_grad():
                states = model.decoder(fed, encoder_out=alone, features_only=True)[0][0]
            for place, token in enumerate(tokens, start=len(said)):
                distances = clusters.norms - 2 * clusters.centroids.float() @ states[place]
                active = {*sets[distances.argmin()]} - ({2} if place < min_len else set())
                scores, apart = weight @ states[place], 2 * doubt(weight, states[place])
                assert token in active and scores[token] >= scores[[*active]].max() - apart
            said += verified["tokens"].tolist()


@settings(max_examples=20)
@given(
    drawn=clusters,
    beam=st.integers(1, 4),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
)
def test_fairseqs_beam_search(drawn, beam, sources, seed):
    model, sample, clusters = MODELS[0], tiny.sample(sources, seed), clusters_of(drawn)
    full = SequenceGenerator([model], SYMBOLS, beam_size=beam, max_len_b=9)
    before = tokens_of(row[0] for row in full.generate([model], sample))
    with naively(model, clusters), torch.no_grad():
        expected = tokens_of(row[0] for row in full.generate([model], sample))
    generator = SequenceGenerator([model], SYMBOLS, beam_size=beam, max_len_b=9)
    found = cluster_search(generator, model.decoder, clusters).generate([model], sample)
    assert tokens_of(row[0] for row in found) == expected
    # The model is as it was, for whoever else uses it.
    assert tokens_of(row[0] for row in full.generate([model], sample)) == before


def passes(check, argument):
    try:
        check(argument)
    except AssertionError:
        return False
    return True


@settings(max_examples=40)
@example(  # two candidates for the last beam have -2.3108556 and -2.3108554, by float64
    drawn={"count": 1, "share": 1.0, "seed": 0},
    beam=2,
    sources=[7, 5],
    number=0,
    workers=0,
    min_len=1,
    unkpen=0,
    seed=71442,
)
@given(
    drawn=clusters,
    beam=st.integers(2, 4),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=20),
    number=st.integers(0, 2),
    workers=st.integers(0, 3),
    min_len=st.integers(1, 3),
    unkpen=st.sampled_from([0, 1.5]),
    seed=st.integers(0, 10**6),
)
def test_beam_is_fairseqs_search_over_the_active_tokens(
    folder, drawn, beam, sources, number, workers, min_len, unkpen, seed
):
    model, sample, clusters = MODELS[number], tiny.sample(sources, seed), clusters_of(drawn)
    theirs = SequenceGenerator(
        [model],
        SYMBOLS,
        beam_size=beam,
        max_len_b=9,
        min_len=min_len,
        unk_penalty=unkpen,
    )
    task = tiny.task(SYMBOLS)
    task.cfg = DecodingConfig(
        decoding="beam",
        vocab_clusters=written(folder, clusters, model),
        decoding_workers=workers,
    )
    options = Namespace(beam=beam, nbest=beam, max_len_b=9, min_len=min_len, unkpen=unkpen)
    ours = build.build_generator(task, [model], options)
    found = ours.generate([model], sample)

    def compare(noise):
        with naively(model, clusters, noise), torch.no_grad():
            expected = theirs.generate([model], sample)
        for mine, others in zip(found, expected, strict=True):
            # Where few tokens are active, fairseq pads its list with impossible hypotheses.
            assert_same(mine, [each for each in others if math.isfinite(each["score"])])

    # Of scores that differ by less than float32 tells apart, either may stay in the beam.
    ties = [number * 1e-6 for number in range(1, 9)]
    if not any(passes(compare, noise) for noise in (0.0, *ties)):
        compare(0.0)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_prefix_may_leave_the_active_tokens(folder, beam):
    """fairseq chooses it whatever its score is."""
    model, sample = MODELS[0], tiny.sample([4, 2], 3)
    clusters = clusters_of({"count": 3, "share": 0.2, "seed": 5})
    absent = set(range(4, VOCABULARY)).difference(*made.sets_of(clusters))
    prefix = torch.tensor([[min(absent)], [max(absent)]])
    task = tiny.task(SYMBOLS)
    task.cfg = DecodingConfig(
        decoding="greedy" if beam == 1 else "beam", vocab_clusters=written(folder, clusters, model)
    )
    ours = build.build_generator(task, [model], Namespace(beam=beam, max_len_b=9))
    found = ours.generate([model], sample, prefix_tokens=prefix)
    assert [int(rows[0]["tokens"][0]) for rows in found] == prefix.flatten().tolist()


def test_beams_tell_apart_what_follows_such_a_prefix(folder, backend):
    """Its score is a part of each hypothesis's, and must leave float32 some digits for the rest."""
    clusters = clusters_of({"count": 1, "share": 0.5, "seed": 5})
    absent = sorted(set(range(4, VOCABULARY)).difference(*made.sets_of(clusters)))
    prefix, sample = torch.tensor([absent[:3], absent[1:4], absent[-3:]]), tiny.sample([5, 2, 7])
    for model in MODELS:
        found = {}
        for name in ("greedy", "beam"):
            task = tiny.task(SYMBOLS)
            path = written(folder, clusters, model)
            task.cfg = DecodingConfig(decoding=name, vocab_clusters=path)
            options = Namespace(beam=1, max_len_b=12)
            ours = build.build_generator(task, [model], options, backend=backend)
            rows = ours.generate([model], sample, prefix_tokens=prefix)
            found[name] = tokens_of(row[0] for row in rows)
            for row in rows:  # whatever is added to all of a model's scores
                forced = row[0]["positional_scores"][: prefix.size(1)]
                torch.testing.assert_close(forced, torch.full_like(forced, FORCED_SCORE))
        assert found["beam"] == found["greedy"]


@pytest.mark.parametrize("form", FORMS)
def test_a_drafter_alone_scores_such_a_prefix_alike(folder, form):
    clusters = clusters_of({"count": 1, "share": 0.5, "seed": 5})
    absent = sorted(set(range(4, VOCABULARY)).difference(*made.sets_of(clusters)))
    prefix, sample, drafter = torch.tensor([absent[:3]]), tiny.sample([5]), FORMS[form]()
    task = tiny.task(SYMBOLS)
    path = written(folder, clusters, drafter)
    task.cfg = DecodingConfig(
        decoding="nat", drafter_path="drafter.pt", drafter_vocab_clusters=path
    )
    with mock.patch.object(method_setup, "load_model", lambda *paths: drafter):
        alone = build.build_generator(task, MODELS[:1], Namespace(beam=1, max_len_b=12))
    ((found,),) = alone.generate(MODELS[:1], sample, prefix_tokens=prefix)
    assert found["tokens"][:3].tolist() == absent[:3]
    forced = found["positional_scores"][:3]
    torch.testing.assert_close(forced, torch.full_like(forced, FORCED_SCORE))


@needs_kernels
@pytest.mark.parametrize("beam", [1, 3])
def test_the_kernels_decode_with_clusters(folder, beam):
    """In one call for a batch, whose workers score at the same time."""
    model, sample = MODELS[0], tiny.sample([4] * 40, 3)
    clusters = clusters_of({"count": 8, "share": 0.5, "seed": 1})
    task = tiny.task(SYMBOLS)
    path = written(folder, clusters, model)

    def decoded(workers):
        name = "greedy" if beam == 1 else "beam"
        task.cfg = DecodingConfig(decoding=name, vocab_clusters=path, decoding_workers=workers)
        generator = build.build_generator(task, [model], Namespace(beam=beam, max_len_b=12))
        with mock.patch.object(Verifier, "scores", side_effect=AssertionError("on PyTorch")):
            return [tokens_of(rows) for rows in generator.generate([model], sample)]

    assert decoded(1) == decoded(3)


def test_new_weights_are_noticed_by_fairseqs_search():
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    clusters = made.random_clusters(4, 16, VOCABULARY, 0.5, 3, [2, 3], [1])
    generator = SequenceGenerator([model], SYMBOLS, beam_size=2, max_len_b=9)
    ours = cluster_search(
        SequenceGenerator([model], SYMBOLS, beam_size=2, max_len_b=9), model.decoder, clusters
    )
    ours.generate([model], sample)
    with torch.no_grad():
        model.decoder.output_projection.weight.copy_(tiny.model(8).decoder.output_projection.weight)
    with naively(model, clusters), torch.no_grad():
        expected = tokens_of(row[0] for row in generator.generate([model], sample))
    assert tokens_of(row[0] for row in ours.generate([model], sample)) == expected


def test_refusals(folder):
    model, sample = MODELS[0], tiny.sample([3])
    clusters = made.random_clusters(3, 16, VOCABULARY, 0.5, 3, [2, 3], [1])
    path = written(folder, clusters, model)
    with pytest.raises(PluginError, match="belongs to one model, and --path names 2"):
        verifier_clusters(path, MODELS[:2], SYMBOLS)
    with pytest.raises(PluginError, match="not a Transformer decoder"):
        verifier_clusters(path, [build_model("lstm")], SYMBOLS)
    with pytest.raises(PluginError, match=r"--vocab-clusters .* another checkpoint"):
        decode("greedy", MODELS[1], sample, vocab_clusters=path)
    with pytest.raises(PluginError, match=r"--drafter-vocab-clusters .* another checkpoint"):
        decode("self", MODELS[1], sample, drafter_vocab_clusters=path)
    for method in ("self", "auto"):
        flags = {"block_size": 4, "options": {"beam": 3}, "draft_rows": -1}
        with pytest.raises(PluginError, match="--block-size 4 would have no effect beside --vocab"):
            decode(method, model, sample, vocab_clusters=path, **flags)
    path = written(folder, clusters, HEADS)
    flags = {"drafter_vocab_clusters": path, "drafter_dtype": "int8"}
    with pytest.raises(PluginError, match="--drafter-dtype int8 is unavailable for proposal heads"):
        decode("blockwise", HEADS, sample, **flags)
