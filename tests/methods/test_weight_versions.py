"""Weights that change between two batches, under every method on both backends."""

import copy
import gc
import weakref

import pytest
import torch
from fairseq.optim.adam import Adam
from torch import nn

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.engine import CachedDecoder, NativeBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.block_nat.chain import Chain
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from specdec_plugin.methods.blockwise.proposals import Proposals
from specdec_plugin.vocab.cluster_file import made_for, save_clusters
from tests.support import made, tiny
from tests.support.drafters import K, drafter_model
from tests.support.methods import METHODS, SYMBOLS, can_draft_for_itself, generator, verifier
from tests.support.search import MODELS, assert_same, ours, reference

SAMPLE = tiny.sample([5, 3, 6], 2)
#: Those with a projection by clusters: the method, and the flag that names the clusters.
CLUSTERED = {
    "clustered": ("greedy", "vocab_clusters"),
    "clustered self-draft": ("self-draft", "drafter_vocab_clusters"),
    "clustered heads": ("separate heads", "drafter_vocab_clusters"),
}
#: Their output is not fairseq's.
INEXACT = ["relaxed", "nat", "clustered"]
#: They have no form on PyTorch's operators.
NATIVE = ["self-draft", "relaxed", "clustered self-draft"]


@torch.no_grad()
def in_place(model):
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn_like(weight))


def by_an_optimizer(model):
    """One of fairseq's, whose step PyTorch does not count."""
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    Adam(model.parameters(), lr=0.3).step()
    model.zero_grad()


def changed(model):
    """Other weights for the model; what is shared stays shared."""
    other = {id(each): each.detach() + 0.3 * torch.randn_like(each) for each in model.parameters()}
    named = dict(model.named_parameters(remove_duplicate=False))
    state = {name: each.clone() for name, each in model.state_dict().items()}
    return {**state, **{name: other[id(each)] for name, each in named.items()}}


def loaded(model):
    model.load_state_dict(changed(model))


def assigned(model):
    nn.Module.load_state_dict(model, changed(model), assign=True)


def replaced_data(model):
    new = changed(model)
    for name, weight in model.named_parameters():
        weight.data = new[name]


def replaced_twice(model):
    """So that the second weights may come to lie where the first did."""
    replaced_data(model)
    gc.collect()
    replaced_data(model)


def converted(model):
    """Rounded, in the type that they had; PyTorch counts nothing."""
    model.bfloat16()
    model.float()


CHANGES = [
    in_place,
    by_an_optimizer,
    loaded,
    assigned,
    replaced_data,
    replaced_twice,
    converted,
    in_place,
]


def built(method, model, backend, folder):
    """A new generator for the model as it is."""
    if method not in CLUSTERED:
        return generator(method, model, backend)
    plain, flag = CLUSTERED[method]
    clusters = made.random_clusters(5, 16, len(SYMBOLS), 0.6, always=[2, 3], never=[1])
    path = str(folder / "clusters.pt")
    save_clusters(made_for(clusters, 1, model.decoder, SYMBOLS, "made up"), path)
    return generator(plain, model, backend, **{flag: path})


def decode(ours, model):
    ours.forget()
    return [row[0] for row in ours.generate([model], SAMPLE)]


@pytest.mark.parametrize("method", [*METHODS, *CLUSTERED])
def test_what_is_decoded_is_what_the_weights_are(method, backend, tmp_path):
    torch.manual_seed(0)
    model = verifier(CLUSTERED[method][0] if method in CLUSTERED else method)
    if method in NATIVE and not can_draft_for_itself(backend):
        with pytest.raises(PluginError, match="only the native kernels can run"):
            built(method, model, backend, tmp_path)
        return
    ours = built(method, model, backend, tmp_path)
    for change in [lambda model: None, *CHANGES]:
        change(model)
        found = decode(ours, model)
        fresh = decode(built(method, model, backend, tmp_path), model)
        assert_same(found, fresh)
        assert [row["steps"] for row in found] == [row["steps"] for row in fresh], change
        if method in INEXACT:
            continue
        expected = reference([model], SAMPLE, max_len_b=12)
        if method == "certified":  # its scores are rounded
            for row, other in zip(expected, found, strict=True):
                row.update({name: other[name] for name in ("positional_scores", "score")})
        assert_same(found, expected)


@pytest.mark.parametrize("form", ["causal", "full"])
@pytest.mark.parametrize("chain_units", [0, 8])
def test_a_trained_drafter_follows_its_own_weights(form, chain_units, backend):
    """One that was not released, as while it is trained."""
    torch.manual_seed(0)
    model = drafter_model(form, chain_units=chain_units)

    def decoded(drafter):
        return ours(MODELS[:1], SAMPLE, drafter, TopBeta(), backend=backend, max_len_b=12)

    drafter = NATDrafter(model, K, backend=backend)
    for change in [lambda model: None, *CHANGES]:
        change(model)
        found, counted = decoded(drafter)
        fresh, counts = decoded(NATDrafter(model, K, backend=backend))
        assert_same(found, fresh)
        assert counted.kept_lengths == counts.kept_lengths, change
        assert_same(found, reference(MODELS[:1], SAMPLE, max_len_b=12))


def test_what_is_superseded_is_freed():
    model, backend = verifier("joint heads"), NativeBackend()
    drafter = drafter_model("causal", chain_units=8)
    proposals = Proposals(model.heads, CachedDecoder(model.decoder, backend=backend), 4)
    engine = CachedDecoder(drafter.decoder, backend=backend)
    chain = Chain(drafter.decoder.chain, engine)
    held = [
        weakref.ref(each)
        for each in (proposals._native, chain._chain, engine._native, engine.projection.native)
    ]
    in_place(model)
    in_place(drafter)
    proposals.refresh()
    engine.refresh()
    chain.repack()
    gc.collect()
    assert [each() for each in held] == [None] * 4


def test_all_engines_of_a_decoder_share_its_version():
    model = verifier("greedy")
    engines = [CachedDecoder(model.decoder) for _ in range(3)]
    assert len({id(each.weights) for each in engines}) == 1
    assert not model.decoder._forward_pre_hooks
    in_place(model)
    engines[0].refresh()
    assert engines[0].version == engines[1].weights.version == engines[1].version + 1
    engines[1].repack()
    assert engines[1].version == engines[0].version


def test_a_new_generator_decodes_the_layers_that_replaced_others(backend):
    """Also while an older one of the same model is held."""
    model, other = tiny.model(1, symbols=SYMBOLS), tiny.model(7, symbols=SYMBOLS)
    older = generator("greedy", model, backend)
    model.decoder.layers[1] = other.decoder.layers[1]
    model.encoder.layers[0] = other.encoder.layers[0]
    found = decode(generator("greedy", model, backend), model)
    assert_same(found, reference([model], SAMPLE, max_len_b=12))
    del older


def test_a_copy_of_a_model_has_weights_of_its_own():
    model = verifier("greedy")
    engine = CachedDecoder(model.decoder)
    twin = copy.deepcopy(model)
    other, version = CachedDecoder(twin.decoder), engine.version
    in_place(twin)
    other.refresh()
    engine.refresh()
    assert engine.version == version and other.version == 2


@pytest.mark.parametrize("method", ["greedy", "self-draft"])
def test_a_model_may_be_made_in_inference_mode(method):
    """Where PyTorch counts no versions of its weights."""
    with torch.inference_mode():
        unversioned = tiny.model(1, symbols=SYMBOLS)
    usual = tiny.model(1, symbols=SYMBOLS)
    found, expected = (
        generator(method, model).generate([model], SAMPLE) for model in (unversioned, usual)
    )
    assert_same([best for best, *_ in found], [best for best, *_ in expected])
