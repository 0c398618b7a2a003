"""The loss that never keeps its logits, and its gradient, against fairseq's over all of them."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from specdec_plugin.criterions import projected_loss as module
from specdec_plugin.criterions.projected_loss import projected_loss
from specdec_plugin.engine import TorchBackend

SYMBOLS, DIM = 11, 6


def random_input(count, dtype=torch.float32):
    torch.manual_seed(count)
    states = torch.randn(count, DIM).to(dtype).requires_grad_()
    weight = torch.randn(SYMBOLS, DIM).to(dtype).requires_grad_()
    return states, weight, torch.randint(0, SYMBOLS, (count,))


def whole(states, weight, targets, smoothing):
    lprobs = (states @ weight.t()).float().log_softmax(-1)
    return label_smoothed_nll_loss(lprobs, targets.unsqueeze(1), smoothing)


def gradients(of, states, weight, targets, smoothing):
    states.grad = weight.grad = None
    loss, nll = of(states, weight, targets, smoothing)
    (3 * loss).backward()
    return loss.detach(), nll.detach(), states.grad, weight.grad


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_loss_and_gradients_are_fairseqs(monkeypatch, count, smoothing):
    monkeypatch.setattr(module, "CHUNK", 4)
    given = random_input(count)
    expected = gradients(whole, *given, smoothing)
    for found, wanted in zip(gradients(projected_loss, *given, smoothing), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_large_logits_do_not_overflow():
    states, weight, targets = random_input(5)
    with torch.no_grad():
        states *= 100
    for found, wanted in zip(
        gradients(projected_loss, states, weight, targets, 0.1),
        gradients(whole, states, weight, targets, 0.1),
        strict=True,
    ):
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("trained", ["states", "weight", "neither"])
def test_only_what_is_trained_gets_a_gradient(trained):
    states, weight, targets = random_input(9)
    states.requires_grad_(trained == "states")
    weight.requires_grad_(trained == "weight")
    loss, nll = projected_loss(states, weight, targets, 0.1)
    assert loss.requires_grad == (trained != "neither") and not nll.requires_grad
    torch.testing.assert_close(loss, whole(states, weight, targets, 0.1)[0])
    if trained == "neither":
        return
    loss.backward()
    assert (states.grad is None) == (trained == "weight")
    assert (weight.grad is None) == (trained == "states")


def test_small_gradients_of_half_precision_are_scaled_before_they_are_rounded():
    """Improbable symbols have gradients of 1.5e-8, less than half precision can tell from 0."""
    states = torch.ones(1, DIM, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(SYMBOLS, DIM, dtype=torch.float16)
    weight[5] = 3.0
    weight.requires_grad_()
    loss, _ = projected_loss(states, weight, torch.tensor([5]), 0.0)
    (2.0**15 * loss).backward()
    probability = torch.tensor([0.0] * (SYMBOLS - 1) + [3.0 * DIM]).softmax(0)[0]
    assert states.grad.dtype == weight.grad.dtype == torch.float16
    assert weight.grad[0].tolist() == pytest.approx([2.0**15 * float(probability)] * DIM, rel=0.01)


def test_without_gradients_none_are_computed(monkeypatch):
    states, weight, targets = random_input(9)
    made, zeros = [], torch.zeros_like
    monkeypatch.setattr(
        module.torch, "zeros_like", lambda *args, **more: made.append(1) or zeros(*args, **more)
    )
    with torch.no_grad():
        found, _ = projected_loss(states, weight, targets, 0.1)
    assert made == [] and not found.requires_grad
    torch.testing.assert_close(found, projected_loss(states, weight, targets, 0.1)[0].detach())
    assert made == [1]


def test_autocast_multiplies_in_bfloat16_and_adds_in_float32():
    states, weight, targets = random_input(300)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(projected_loss, states, weight, targets, 0.1)
    low = [given.detach().bfloat16().float().requires_grad_() for given in (states, weight)]
    expected = gradients(whole, *low, targets, 0.1)
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize("symbols", [1, 2, 15, 16, 17, 100, 1003])
@pytest.mark.parametrize("compiled", [True, False])
def test_comparing_scores_of_bfloat16(monkeypatch, symbols, compiled):
    """By the kernel (where there is a compiler) and without it: what float64 has for these,
    to a bfloat16's last bit."""
    if not compiled:
        monkeypatch.setattr(module, "choose_backend", lambda device: TorchBackend())
    torch.manual_seed(symbols)
    z = (8 * torch.randn(37, symbols)).bfloat16()
    z[0], z[1, 0] = -300.0, 300.0
    target = torch.randint(0, symbols, (37, 1))
    expected = torch.log_softmax(z.double(), 1)
    wanted = expected.exp().scatter_add(1, target, torch.full((37, 1), -0.9).double())
    right = -expected.gather(1, target)
    normaliser = z.double().logsumexp(1, keepdim=True)
    wrong, total, slope = module._compare(z, target, -0.9)
    torch.testing.assert_close(wrong.double(), right, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(total.double(), normaliser, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(slope.double(), wanted, rtol=2**-8, atol=1e-7)


def test_a_small_gradient_survives_half_precision():
    # Of float16's normal numbers the least is 6e-5; an unlikely symbol's share is less.
    states, weight, targets = random_input(9, torch.float16)
    with torch.no_grad():
        weight[7] = 0
        weight[7, 0] = -20
        states[:, 0] = 0.6  # e^-12
    targets[targets == 7] = 6
    found = gradients(projected_loss, states, weight, targets, 0.0)[3][7]
    wide = [given.detach().float().requires_grad_() for given in (states, weight)]
    expected = gradients(whole, *wide, targets, 0.0)[3][7]
    assert found.dtype == torch.float16 and float(expected.abs().max()) > 0
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=1e-6)
