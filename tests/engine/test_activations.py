"""The activations of the kernels are those of float64, to the last places of float32."""

import pytest
import torch

from specdec_plugin.engine.native import interface

from ..support.own_kernels import loaded

ACTIVATED = """
#pragma once
#include "engine/native/vector.h"
#include "interface.h"
namespace native {
// in, out: (count), a multiple of LANES
extern "C" void gelu_run(const float* in, int count, float* out) {
  for (int i = 0; i < count; i += LANES) store(out + i, gelu(load(in + i)));
}

extern "C" void silu_run(const float* in, int count, float* out) {
  for (int i = 0; i < count; i += LANES) store(out + i, silu(load(in + i)));
}
}  // namespace native
"""


def inputs():
    """Numbers of all sizes, of both signs."""
    sizes = torch.logspace(-30, 4, 1 << 16)
    return torch.cat([torch.linspace(-12, 12, 1 << 18), sizes, -sizes])


def exact(name, x):
    """In float64, without the difference of nearly equal numbers."""
    if name == "gelu":
        return x.double() * 0.5 * torch.erfc(-x.double() * 0.5**0.5)
    return x.double() * torch.sigmoid(x.double())


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_activations(registry, tmp_path, name):
    (tmp_path / "activated.h").write_text(ACTIVATED)
    interface.Header(str(tmp_path / "module.py"), "activated.h")
    library = loaded(tmp_path)
    x = inputs()
    out = torch.empty_like(x)
    run = getattr(library, f"{name}_run")
    run(x.data_ptr(), x.numel(), out.data_ptr())
    error = (out.double() - exact(name, x)).abs() / x.abs()
    assert error.max() < 2.5e-7  # two units in the last place of x
    peers = getattr(torch.nn.functional, name)(x).double()
    assert error.max() < 2 * ((peers - exact(name, x)).abs() / x.abs()).max()
    limits = torch.tensor([0.0, -0.0, 1e38, -1e38, float("nan")]).repeat(16)
    found = torch.empty_like(limits)
    run(limits.data_ptr(), limits.numel(), found.data_ptr())
    wanted = getattr(torch.nn.functional, name)(limits)
    assert torch.allclose(found, wanted, atol=1e-5, equal_nan=True)
