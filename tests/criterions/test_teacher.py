"""The divergence from a teacher, against a loop over hidden tokens."""

import pytest
import torch

from specdec_plugin.data.block_masking import sample_blocks
from specdec_plugin.data.counter_random import counter_uniform
from specdec_plugin.errors import PluginError
from specdec_plugin.models.frozen import FrozenVerifier
from tests.support import tiny
from tests.support.drafters import K, drafter_model
from tests.support.training import PAD, criterion, naive_loss, training_sample

TEMPERATURE = 2.0


def naive_divergence(model, teacher, sample, blocks):
    """Σ T² KL(teacher ‖ drafter), one hidden token at a time."""
    net_input = sample["net_input"]
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    features = model.decoder.block_features(net_input["prev_output_tokens"], encoder_out, blocks)
    drafted = (model.decoder.output_layer(features) / TEMPERATURE).log_softmax(-1)
    said = (teacher(**net_input)[0] / TEMPERATURE).log_softmax(-1)
    total = 0.0
    for row, block, position in blocks.scored.nonzero().tolist():
        known = said[row, int(blocks.starts[row, block]) + position]
        total += TEMPERATURE**2 * (known.exp() * (known - drafted[row, block, position])).sum()
    return total


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_share_of_the_teacher(share):
    model, teacher, sample = drafter_model("causal"), tiny.model(8), training_sample()
    loss_of = criterion(start=0.0, end=0.0, teacher=FrozenVerifier(teacher), share=share)
    model.train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0  # no dropout
    loss, size, _ = loss_of(model, sample)
    noise = counter_uniform(sample["id"], 8, 7, 3, 1)
    blocks = sample_blocks(sample["target"], PAD, K, 0.5, noise)
    with torch.no_grad():
        target, count = naive_loss(model, sample, blocks, 0.1, 1.0)
        apart = naive_divergence(model, teacher, sample, blocks)
    assert float(size) == pytest.approx(count)
    assert float(loss) == pytest.approx(float((1 - share) * target + share * apart), rel=1e-4)
    loss.backward()
    assert all(weight.grad is None for weight in teacher.parameters())
    assert float(model.decoder.mask_vectors.grad.abs().sum()) > 0


def test_a_teacher_is_moved_once(monkeypatch):
    """That walks all of it, in each step of a training."""
    teacher, sample, moves = tiny.model(8), training_sample(), []
    move = teacher.to
    monkeypatch.setattr(teacher, "to", lambda *given: moves.append(given) or move(*given))
    frozen = FrozenVerifier(teacher)
    for dtype in (torch.float32, torch.float64, torch.float64, torch.float32):
        assert frozen.logits(sample["net_input"], None, None, dtype).dtype == dtype
    device = torch.device("cpu")
    assert moves == [(device, torch.float64), (device, torch.float32)]


@pytest.mark.parametrize("knows", [True, False])
def test_a_teacher_of_another_dictionary_is_noticed_once(knows, caplog):
    """As is one that was trained for symbols in another order."""
    model, sample = drafter_model("causal"), training_sample()
    model.train()

    class Sure(FrozenVerifier):
        def logits(self, *given):
            size = super().logits(*given).size(-1)
            target = sample["target"] if knows else (sample["target"] + 1) % size
            return 20.0 * torch.nn.functional.one_hot(target, size)

    loss_of = criterion(teacher=Sure(tiny.model(8)))
    for _ in range(2):
        loss_of(model, sample)
    assert caplog.text.count("The teacher predicts targets worse than chance") == (not knows)


def test_validation_is_of_the_target_alone():
    model, sample = drafter_model("causal"), training_sample()
    with torch.no_grad():
        alone = criterion()(model, sample)[0]
        taught = criterion(teacher=FrozenVerifier(tiny.model(8)))(model, sample)[0]
    assert torch.equal(alone, taught)


def test_a_shared_encoder_is_not_run_twice(monkeypatch):
    verifier, model = tiny.model(8), drafter_model("causal", share=True)
    model.attach_encoder(verifier.encoder)
    calls = []
    forward = type(verifier.encoder).forward
    monkeypatch.setattr(
        type(verifier.encoder),
        "forward",
        lambda self, *args, **kwargs: calls.append(1) or forward(self, *args, **kwargs),
    )
    loss_of = criterion(start=0.0, end=0.0, teacher=FrozenVerifier(verifier))
    model.train()
    loss_of(model, training_sample())
    assert len(calls) == 1


@pytest.mark.parametrize("share", [True, False])
def test_a_drafter_in_half_precision_has_a_teacher_of_its_type(share):
    """fairseq's --fp16 and --bf16 convert the drafter, and with it a shared encoder."""
    verifier, model = tiny.model(8), drafter_model("causal", share=share)
    if share:
        model.attach_encoder(verifier.encoder)
    loss_of = criterion(start=0.0, end=0.0, teacher=FrozenVerifier(verifier))
    model.train().bfloat16()
    loss, _, _ = loss_of(model, training_sample())
    loss.backward()
    assert torch.isfinite(loss) and float(model.decoder.mask_vectors.grad.abs().sum()) > 0


@pytest.mark.parametrize("share, temperature", [(-0.1, 1.0), (1.1, 1.0), (0.5, 0.0)])
def test_impossible_options(share, temperature):
    with pytest.raises(PluginError, match="teacher-weight must be from 0 to 1"):
        criterion(share=share, temperature=temperature)
