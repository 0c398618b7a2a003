"""Blockwise decoding against the paper's algorithm, one sentence and one token at a time."""

import math
from argparse import Namespace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import Distance, MinBlock, TopBeta
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import CachedDecoder, TorchBackend, build_engine
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.blockwise.drafter import BlockwiseDrafter
from specdec_plugin.methods.blockwise.proposals import Proposals
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.heads import (
    BLOCKWISE,
    EOS,
    FORMS,
    PAD,
    RULES,
    SYMBOLS,
    K,
    blockwise_model,
    generator,
    head_state,
)
from tests.support.naive import stands
from tests.support.search import MODELS, VERIFYING, assert_same

DecodingConfig = config_class()


@torch.no_grad()
def naive(model, encoder_out, rule, k, floor, min_len, max_len):
    """Sections 3 to 5 of the paper for one sentence: drafts, and what each iteration added."""
    project = model.decoder.output_projection
    least = rule.min_block - 1 if isinstance(rule, MinBlock) else 0
    output, steps, state = [], [], None
    while True:
        draft, sure = [], 1.0
        for head in range(2, k + 1) if state is not None else ():
            scores = project(head_state(model, state, head, encoder_out)).log_softmax(-1)
            scores[PAD] = -math.inf
            sure *= float(scores.max().exp())
            if sure < floor and len(draft) >= least:
                break
            draft.append(int(scores.argmax()))
            if draft[-1] == EOS:
                break
        draft = draft[: max_len - len(output)]
        fed = torch.tensor([[EOS, *output, *draft]])
        features = model.decoder.extract_features(fed, encoder_out=encoder_out)[0][0]
        lprobs = model.decoder.output_layer(features).log_softmax(-1)
        added = []
        for place in range(len(draft) + 1):
            scores = lprobs[len(output) + place].clone()
            scores[PAD] = -math.inf
            if len(output) + place >= max_len:
                scores[:EOS] = scores[EOS + 1 :] = -math.inf
            if len(output) + place < min_len:
                scores[EOS] = -math.inf
            if place < len(draft) and stands(scores, draft[place], rule, place):
                added.append(draft[place])
                if added[-1] == EOS:
                    break
                continue
            added.append(int(scores.argmax()))
            break
        state = features[len(output) + len(added) - 1]
        output += added
        steps.append((draft, added))
        if output[-1] == EOS:
            return steps


@settings(max_examples=120)
@given(
    form=st.sampled_from(FORMS),
    rule=st.sampled_from(sorted(RULES)),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    k=st.integers(2, K),
    floor=st.sampled_from([0.0, 0.02, 0.3]),
    min_len=st.integers(0, 4),
    max_len=st.integers(4, 25),
    backend=st.sampled_from([None, TorchBackend()]),
    verifying=VERIFYING,
    seed=st.integers(0, 10**6),
)
def test_every_iteration_is_the_papers(
    form, rule, sources, k, floor, min_len, max_len, backend, verifying, seed
):
    model, sample = BLOCKWISE[form], tiny.sample(sources, seed)
    limits = {"min_len": min_len, "max_len_b": max_len}
    ours = generator(model, RULES[rule], k, floor, verifying, backend=backend, **limits)
    found = [row[0] for row in ours.generate([model], sample)]
    encoded = model.encoder.forward_torchscript(sample["net_input"])
    for row, hypothesis in enumerate(found):
        alone = {
            "encoder_out": [encoded["encoder_out"][0][:, row : row + 1]],
            "encoder_padding_mask": [encoded["encoder_padding_mask"][0][row : row + 1]],
        }
        expected = naive(model, alone, RULES[rule], k, floor, min_len, max_len)
        history = [step["tokens"].tolist() for step in hypothesis["history"]]
        assert list(zip(history[::2], history[1::2], strict=True)) == expected
        assert hypothesis["tokens"].tolist() == [token for _, added in expected for token in added]


@settings(max_examples=100)
@given(
    form=st.sampled_from(FORMS),
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    dtype=st.sampled_from([None, torch.float32, torch.bfloat16, torch.int8, torch.int4]),
    rows=st.sampled_from([None, 1, 2]),
    ensemble=st.booleans(),
    temperature=st.sampled_from([1.0, 0.7]),
    prefix_size=st.integers(0, 3),
    unk_penalty=st.sampled_from([0.0, 1.5]),
    max_len=st.integers(2, 30),
    seed=st.integers(0, 10**6),
)
def test_exact_acceptance_is_fairseqs_greedy_search(
    form, sources, dtype, rows, ensemble, temperature, prefix_size, unk_penalty, max_len, seed
):
    models = [BLOCKWISE[form], *([MODELS[1]] if ensemble else [])]
    sample, prefix = tiny.sample(sources, seed), None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    options = {"max_len_b": max_len, "unk_penalty": unk_penalty}
    search = SequenceGenerator(models, SYMBOLS, beam_size=1, temperature=temperature, **options)
    expected = [row[0] for row in search.generate(models, sample, prefix_tokens=prefix)]
    statistics = Statistics()
    verifier = Verifier([build_engine(model) for model in models], statistics, temperature)
    proposals = Proposals(models[0].heads, verifier.engines[0], K, dtype)
    drafter = BlockwiseDrafter(proposals, verifier, EOS, 0.0, 0)
    loop = DecodingLoop(
        drafter, VerifiedStep(verifier, TopBeta()), statistics, gate=FixedGate(rows)
    )
    limits = Lengths(max_positions=64, **options)
    ours = ParallelGenerator(models, SYMBOLS, loop, statistics, limits)
    assert_same([row[0] for row in ours.generate(models, sample, prefix)], expected)


@pytest.mark.parametrize("verifying", [None, TorchBackend()])
def test_one_call_of_the_model_an_iteration(verifying, monkeypatch):
    """Verification and the next draft are one call, and some blocks are accepted."""
    calls = []
    counted = CachedDecoder.describe if verifying is None else CachedDecoder.feed

    def count(self, *args):
        calls.append(self)
        return counted(self, *args)

    monkeypatch.setattr(CachedDecoder, counted.__name__, count)
    model, iterations, tokens = BLOCKWISE["joint", False], 0, 0
    for seed in range(20):
        ours = generator(model, TopBeta(), verifying=verifying, max_len_b=20)
        before = len(calls)
        ((row,),) = ours.generate([model], tiny.sample([5], seed))
        assert len(calls) - before <= row["steps"] + 1
        iterations, tokens = iterations + row["steps"], tokens + len(row["tokens"])
    assert len(calls) == iterations < 0.9 * tokens


def test_heads_are_asked_at_one_place_an_iteration():
    model, asked = BLOCKWISE["joint", False], []
    model.heads.register_forward_pre_hook(lambda module, inputs: asked.append(inputs[0].shape))
    ours = generator(model, TopBeta(), max_len_b=15, backend=TorchBackend())
    ours.generate([model], tiny.sample([5, 3, 6], 3))
    assert {shape[1:] for shape in asked} == {(1, 16)}
    assert sum(shape[0] for shape in asked) == ours.statistics.drafter_blocks
    assert ours.statistics.drafter_blocks == ours.statistics.iterations - 3


@pytest.mark.parametrize("least", [2, 4, K])
def test_a_least_block_is_added_whatever_it_is(least):
    model = blockwise_model(1)
    with torch.no_grad():
        model.heads.outer.bias.normal_(std=3.0)  # nonsense
    ours = generator(model, MinBlock(TopBeta(), least, EOS), max_len_b=24)
    for seed in range(6):
        for row, *_ in ours.generate([model], tiny.sample([5, 2], seed)):
            added = [step["tokens"].tolist() for step in row["history"][1::2]]
            for place, tokens in enumerate(added[1:], 1):
                draft = row["history"][2 * place]["tokens"].tolist()
                if EOS not in tokens and EOS not in draft and sum(map(len, added[:place])) < 24:
                    assert len(tokens) >= min(least, len(draft) + 1)
            assert EOS not in row["tokens"][:-1].tolist()


def test_new_weights_are_taken_over():
    model, sample = blockwise_model(7), tiny.sample([4, 6], 1)
    ours = generator(model, TopBeta(), max_len_b=20)
    ours.generate([model], sample)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight + 0.3 * torch.randn_like(weight))
    again = generator(model, TopBeta(), max_len_b=20)
    for mine, fresh in zip(
        ours.generate([model], sample), again.generate([model], sample), strict=True
    ):
        assert mine[0]["tokens"].tolist() == fresh[0]["tokens"].tolist()
        assert mine[0]["steps"] == fresh[0]["steps"]


def test_a_decoder_with_a_learned_first_head_is_the_models_own():
    """fairseq's forward, the engine, and the rounded copy that cannot hold it."""
    model = BLOCKWISE["joint", True]
    net_input = tiny.sample([5, 3], 2)["net_input"]
    encoded = model.encoder.forward_torchscript(net_input)
    tokens = torch.randint(4, 16, (2, 6))
    with torch.no_grad():
        expected = model.decoder(tokens, encoder_out=encoded)[0]
        features = model.decoder.extract_features(tokens, encoder_out=encoded)[0]
        assert not torch.allclose(expected, model.decoder.output_projection(features), atol=0.1)
    engine = build_engine(model)
    assert isinstance(engine, CachedDecoder)
    found = engine.projection.scores(engine.feed(engine.start(encoded, 8), tokens)).values
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(PluginError, match="Add --drafter-path"):
        TestFlags().built([model], decoding="specdec")


class TestFlags:
    """``--decoding blockwise`` from its flags."""

    def built(self, models, symbols=SYMBOLS, backend=None, **flags):
        task = tiny.task(symbols)
        task.cfg = DecodingConfig(**{"decoding": "blockwise", **flags})
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, models, options, backend=backend)

    @pytest.mark.parametrize(
        "flags, kind",
        [
            ({}, TopBeta),
            ({"acceptance": "top-k", "top_beta": 3}, TopBeta),
            ({"acceptance": "distance", "epsilon": 1.0}, Distance),
            ({"min_block": 3}, MinBlock),
        ],
    )
    def test_rules(self, flags, kind):
        ours = self.built([BLOCKWISE["joint", False]], **flags)
        assert isinstance(ours.loop.step.rule, kind)
        assert len(ours.generate([], tiny.sample([3, 5], 1))) == 2

    def test_heads_are_rounded_unless_told_otherwise(self):
        model = BLOCKWISE["separate", False]
        assert self.built([model]).loop.drafter.proposals.weight_type == torch.int8
        named = self.built([model], drafter_dtype="float32").loop.drafter
        assert named.proposals.weight_type == torch.float32

    def test_without_kernels_a_type_that_cannot_be_had_is_told(self, caplog):
        models, backend = [BLOCKWISE["joint", False]], TorchBackend()
        proposals = self.built(models, backend=backend).loop.drafter.proposals
        assert proposals.weight_type == torch.float32 and not caplog.records
        self.built(models, backend=backend, drafter_dtype="int8")
        assert "--drafter-dtype int8 needs a CPU" in caplog.text

    @pytest.mark.parametrize("least, drafted", [(1, False), (2, True)])
    def test_in_batches_only_what_must_be_is_drafted_on_a_cpu(self, least, drafted):
        ours = self.built([BLOCKWISE["joint", False]], min_block=least)
        sample = tiny.sample([4, 4, 4], 5)
        shapes = []
        ours.loop.watcher = lambda rows, draft, outcome: shapes.append(draft.tokens.shape)
        ours.generate([], sample)
        assert any(width for size, width in shapes[1:] if size > 1) == drafted

    @pytest.mark.parametrize(
        "flags, words",
        [
            ({"block_size": K + 1}, f"--block-size {K + 1}: these .* trained with {K}. Give 2"),
            ({"block_size": 1}, "--block-size 1"),
            ({"block_size": -1}, "--block-size -1"),
            ({"min_block": K + 1}, f"--min-block {K + 1}: an iteration adds {K}"),
            ({"min_block": 4, "block_size": 3}, "--min-block 4: an iteration adds 3"),
        ],
    )
    def test_sizes_beyond_what_was_trained(self, flags, words):
        with pytest.raises(PluginError, match=words):
            self.built([BLOCKWISE["joint", False]], **flags)

    def test_a_distance_needs_numbers(self):
        words = tiny.dictionary()
        model = blockwise_model(2, symbols=words)
        with pytest.raises(PluginError, match="no symbol of the target dictionary"):
            self.built([model], words, acceptance="distance")

    @pytest.mark.parametrize("model", [MODELS[0], build_model("lstm")])
    def test_a_model_without_heads(self, model):
        with pytest.raises(PluginError, match="The model in --path has no proposal heads"):
            self.built([model])

    def test_another_dictionary(self):
        model = blockwise_model(2, symbols=tiny.dictionary())
        with pytest.raises(PluginError, match="another source dictionary"):
            self.built([model])


class TestHeadsAlone:
    """``--path base.pt --drafter-path heads.pt``."""

    @pytest.fixture
    def built(self, monkeypatch):
        def make(base, heads, **flags):
            monkeypatch.setattr(method_setup, "load_model", lambda *paths: heads)
            return TestFlags().built([base], drafter_path="heads.pt", **flags)

        return make

    def heads_for(self, base, **arguments):
        """Trained as ``--frozen-base`` does, with a checkpoint between."""
        arguments = {"frozen_base": True, "share_all_embeddings": False, **arguments}
        trained = blockwise_model(9, **arguments)
        trained.start_from("base.pt", base)
        loaded = blockwise_model(8, **arguments)
        loaded.load_state_dict(trained.state_dict())
        assert all(name.startswith("heads.") for name, _ in loaded.named_parameters())
        return loaded

    def test_they_serve_their_base(self, built, caplog):
        base = tiny.model(4, symbols=SYMBOLS)
        heads = self.heads_for(base)
        whole = blockwise_model(4)
        whole.start_from("base.pt", base)
        whole.heads.load_state_dict(heads.heads.state_dict())
        sample = tiny.sample([5], 3)
        ours = built(base, heads, drafter_dtype="float32")
        theirs = TestFlags().built([whole], drafter_dtype="float32")
        ((mine,),), ((their,),) = ours.generate([], sample), theirs.generate([], sample)
        assert mine["tokens"].tolist() == their["tokens"].tolist()
        assert mine["steps"] == their["steps"] and not caplog.records
        assert heads.heads.inner.weight.numel() == 0  # packed, and freed

    def test_another_model_is_told(self, built, caplog):
        base, other = tiny.model(4, symbols=SYMBOLS), tiny.model(5, symbols=SYMBOLS)
        ours = built(other, self.heads_for(base))
        assert "were trained for another model" in caplog.text
        ours.generate([], tiny.sample([3, 4], 1))

    def test_another_size_is_refused(self, built):
        base = tiny.model(4, symbols=SYMBOLS)
        wide = tiny.model(4, symbols=SYMBOLS, encoder_embed_dim=32, decoder_embed_dim=32)
        with pytest.raises(PluginError, match=r"states of 16 numbers.* --path has 32"):
            built(wide, self.heads_for(base))
        lstm = build_model("lstm")
        with pytest.raises(PluginError, match=r"--path has none"):
            built(lstm, self.heads_for(base))

    def test_another_dictionary_is_refused(self, built):
        base = tiny.model(4, symbols=SYMBOLS)
        heads = self.heads_for(base)
        heads.target_symbols += 1
        with pytest.raises(PluginError, match=r"heads\.pt was trained with another target"):
            built(base, heads)

    def test_a_model_that_has_no_heads_is_refused(self, built):
        with pytest.raises(PluginError, match=r"heads\.pt has no proposal heads"):
            built(MODELS[0], MODELS[1])

    def test_heads_are_no_model(self):
        heads = self.heads_for(tiny.model(4, symbols=SYMBOLS))
        words = r"--path names a file of proposal heads alone: .* as --drafter-path"
        with pytest.raises(PluginError, match=words):
            TestFlags().built([heads])
        with pytest.raises(PluginError, match=r"--drafter-path HEADS\.pt"):
            heads.decoder.extract_features(torch.zeros(1, 1))
