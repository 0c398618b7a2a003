"""Which verifier, drafter and types belong together, and what is refused."""

import logging
from argparse import Namespace

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

from specdec_plugin.engine import GraphBackend, TorchBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.drafters import drafter_model
from tests.support.search import assert_same, reference

DecodingConfig = config_class()


@pytest.fixture
def built(monkeypatch):
    """Builds what the flags name, with a model in place of the drafter's checkpoint."""

    def make(verifiers, drafter, backend=None, **flags):
        monkeypatch.setattr(method_setup, "load_model", lambda *paths: drafter)
        task = tiny.task()
        task.cfg = DecodingConfig(decoding="specdec", drafter_path="drafter.pt", **flags)
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, verifiers, options, backend=backend)

    return make


def wide(seed=1):
    """A verifier whose encoder is wider than the others'."""
    return tiny.model(seed, encoder_embed_dim=32, share_all_embeddings=False)


@pytest.mark.parametrize(
    "arch", ["nonautoregressive_transformer", "cmlm_transformer", "levenshtein_transformer", None]
)
@pytest.mark.parametrize("decoding", ["greedy", "auto", "beam", "specdec"])
def test_models_of_other_kinds(arch, decoding):
    """Their decoders would fail, or give tokens that mean nothing."""
    told = "TransformerLanguageModel, which reads no source. Give"
    model = TransformerLanguageModel(tiny.model(1).decoder) if arch is None else build_model(arch)
    if arch is not None:
        told = rf"non-autoregressive model \({type(model).__name__}\), which predicts all positions"
    task = tiny.task()
    task.cfg = DecodingConfig(decoding=decoding)
    with pytest.raises(PluginError, match=f"^--path names a {told}") as caught:
        build.build_generator(task, [model], Namespace(beam=1))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("backend, stops", [(None, True), (GraphBackend(), False)])
def test_drafts_end_early_or_are_shorter_on_a_cpu_unless_a_confidence_is_given(
    backend, stops, built, monkeypatch
):
    monkeypatch.setattr(method_setup.Setup, "on_cpu", stops)

    def confidence(**flags):
        model = drafter_model("causal", block_size=6)
        drafter = built([tiny.model(2)], model, backend, **flags).loop.drafter
        assert len(drafter.lengths) == 1 + stops
        return drafter.confidence

    assert (confidence() > 0) == stops and confidence(draft_confidence=0.7) == 0.7


@pytest.mark.parametrize("block_size, lengths", [(0, (4, 6)), (5, (5,)), (6, (6,))])
def test_drafts_may_be_shorter_where_no_length_is_given(block_size, lengths, built):
    model = drafter_model("causal", block_size=6)
    drafter = built([tiny.model(2)], model, block_size=block_size).loop.drafter
    assert drafter.lengths == lengths


def test_more_tokens_than_a_drafter_was_trained_with_are_refused(built):
    with pytest.raises(PluginError, match=r"--block-size 7: .* trained with 6. Give 1 to 6"):
        built([tiny.model(2)], drafter_model("causal", block_size=6), block_size=7)


class TestSharedEncoder:
    """The drafter reads an encoder of the width that it was trained with."""

    def test_another_width_is_refused(self, built):
        with pytest.raises(PluginError, match=r"16 wide.*train a drafter for this one"):
            built([wide()], drafter_model("causal", share=True))

    @pytest.mark.parametrize("arch", ["lstm", "fconv"])
    def test_another_architecture_is_refused(self, built, arch):
        with pytest.raises(PluginError, match="Give the verifier"):
            built([build_model(arch)], drafter_model("causal", share=True))

    def test_of_an_ensemble_it_takes_one_that_it_can_read(self, built, caplog):
        verifiers = [wide(), tiny.model(2)]
        drafter = drafter_model("causal", share=True)
        drafter.shared_encoder.fill_(7)
        with caplog.at_level(logging.WARNING, logger="specdec_plugin.methods"):
            generator = built(verifiers, drafter)
        assert generator.loop.drafter.shared == 1
        assert "trained with the encoder of another verifier" in caplog.text
        sample = tiny.sample([3, 6, 1], 2)
        found = [row[0] for row in generator.generate(verifiers, sample)]
        assert_same(found, reference(verifiers, sample, max_len_b=12))


def test_a_decoder_that_the_engine_cannot_run_is_no_drafter(built):
    drafter = drafter_model("causal", quant_noise_pq=0.1, quant_noise_pq_block_size=4)
    with pytest.raises(PluginError, match=r"quantization-noise.*without that option"):
        built([tiny.model(1)], drafter)


class TestInt8:
    """8-bit weights where there are kernels for them; else a warning, once."""

    def warnings(self, built, caplog, dtype, backend=None):
        with caplog.at_level(logging.WARNING, logger="specdec_plugin.methods"):
            generator = built(
                [tiny.model(1)], drafter_model("causal"), backend, drafter_dtype=dtype
            )
        generator.generate([], tiny.sample([3, 6, 1], 2))
        return [
            each.getMessage()
            for each in caplog.records
            if each.name.startswith("specdec_plugin.methods")
        ]

    def test_without_kernels_the_models_type_is_named(self, built, caplog):
        (said,) = self.warnings(built, caplog, "int8", TorchBackend())
        assert "--drafter-dtype int8" in said and "its model's own type" in said

    def test_without_kernels_bfloat16_is_no_surprise(self, built, caplog):
        assert self.warnings(built, caplog, "bfloat16", TorchBackend()) == []

    def test_with_kernels_nothing_is_said(self, built, caplog):
        assert self.warnings(built, caplog, "int8") == []


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("adaptive_softmax_cutoff", "5,10", "--adaptive-softmax-cutoff out"),
        ("cross_self_attention", True, "--cross-self-attention out"),
        ("chain_units", -1, "0 or more chain units"),
    ],
)
def test_a_drafter_that_could_not_be_trained_is_not_built(option, value, words):
    with pytest.raises(PluginError, match=words):
        drafter_model("causal", **{option: value})


def test_the_type_is_that_of_the_verifier(built):
    generator = built([tiny.model(1)], drafter_model("causal"), drafter_dtype="bfloat16")
    assert generator.loop.drafter.engine.weight_type == torch.bfloat16


def test_drafts_of_large_batches_are_tried_late_on_a_gpu(built, monkeypatch):
    """With many rows, the first trial waits until it can hardly lose more than its share."""
    monkeypatch.setattr(method_setup.Setup, "on_cpu", False)
    made = built([tiny.model(1)], drafter_model("causal"), TorchBackend())
    assert made.loop.gate.promising == 4
    made = built([tiny.model(1)], drafter_model("causal"), TorchBackend(), draft_rows=0)
    assert made.loop.gate.max_rows is None


@pytest.mark.parametrize("rows", [1, 3])
def test_a_drafter_whose_states_have_another_size(built, rows):
    """Several rows' masks are gathered from states that are narrower than what was fed."""
    model, sample = tiny.model(1), tiny.sample([3, 5, 2][:rows])
    drafter = drafter_model("causal", decoder_output_dim=10)
    for backend in (TorchBackend(), GraphBackend()):
        ours = built([model], drafter, backend, draft_rows=0)
        found = [row[0] for row in ours.generate([model], sample)]
        assert_same(found, reference([model], sample, max_len_b=12))
        assert ours.statistics.draft_lengths.total() > 0
