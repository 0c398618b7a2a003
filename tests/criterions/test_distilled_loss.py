"""The loss that is computed a few rows at a time, and its gradient, against that of all at once."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from specdec_plugin.criterions import distilled_loss as module
from specdec_plugin.criterions.distilled_loss import Teacher, distilled_loss

SYMBOLS = 11


def random_input(count, dtype=torch.float32, scale=1.0):
    torch.manual_seed(count)
    logits = (scale * torch.randn(count, SYMBOLS)).to(dtype).requires_grad_()
    return logits, torch.randint(0, SYMBOLS, (count,)), torch.rand(count)


def random_teacher(count, share=0.5, temperature=1.0, dtype=torch.float32):
    logits = torch.randn(count + 3, SYMBOLS).to(dtype)
    return Teacher(logits, torch.randint(0, count + 3, (count,)), share, temperature)


def at_once(logits, targets, weights, smoothing, teacher=None):
    """By fairseq's function and PyTorch's."""
    lprobs = logits.float().log_softmax(-1)
    losses, nlls = label_smoothed_nll_loss(lprobs, targets.unsqueeze(1), smoothing, reduce=False)
    if teacher is not None:
        wanted = (teacher.logits[teacher.rows].float() / teacher.temperature).log_softmax(-1)
        drafted = (logits.float() / teacher.temperature).log_softmax(-1)
        divergence = F.kl_div(drafted, wanted, reduction="none", log_target=True).sum(-1)
        losses = (1 - teacher.share) * losses + teacher.share * teacher.temperature**2 * divergence
    return (losses * weights).sum(), (nlls * weights).sum()


def results(of, logits, *others):
    logits.grad = None
    loss, nll = of(logits, *others)
    (3 * loss).backward()
    return loss.detach(), nll.detach(), logits.grad


@pytest.fixture(autouse=True)
def a_few_rows(monkeypatch):
    monkeypatch.setattr(module, "AT_ONCE", 4 * SYMBOLS + 3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_without_a_teacher(count, smoothing):
    given = (*random_input(count), smoothing)
    for found, wanted in zip(
        results(distilled_loss, *given), results(at_once, *given), strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_with_a_teacher(count, share, temperature):
    given = (*random_input(count), 0.1, random_teacher(count, share, temperature))
    for found, wanted in zip(
        results(distilled_loss, *given), results(at_once, *given), strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_large_logits_do_not_overflow(temperature):
    given = (*random_input(9, scale=300.0), 0.1, random_teacher(9, temperature=temperature))
    for found, wanted in zip(
        results(distilled_loss, *given), results(at_once, *given), strict=True
    ):
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_of_half_precision_are_summed_in_float32(dtype):
    given = (*random_input(9, dtype), 0.1, random_teacher(9, dtype=dtype))
    found, wanted = results(distilled_loss, *given), results(at_once, *given)
    assert found[0].dtype == torch.float32 and found[2].dtype == dtype
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(found[:2], wanted[:2])


def test_small_gradients_survive_the_scaling_of_half_precision():
    """A loss is scaled after its gradient is known, which must not be zero by then."""
    logits, targets, _ = random_input(4, torch.float16)
    loss, _ = distilled_loss(logits, targets, torch.full((4,), 1e-8), 0.1)
    (2.0**20 * loss).backward()
    assert (logits.grad != 0).any(1).all()


def test_without_a_gradient_nothing_is_kept():
    logits, targets, weights = random_input(9)
    with torch.no_grad():
        loss, nll = distilled_loss(logits, targets, weights, 0.1)
    wanted = at_once(logits, targets, weights, 0.1)
    torch.testing.assert_close((loss, nll), (wanted[0].detach(), wanted[1].detach()))
    assert not loss.requires_grad
