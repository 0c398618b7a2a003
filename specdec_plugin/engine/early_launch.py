"""Whether kernels of Triton can be launched before those in front of them are done."""

import ctypes
import functools
import logging
from typing import Any, Dict, List

import torch

from .graphs.capture import Graphs

logger = logging.getLogger(__name__)

#: Generations of devices that can, also in graphs: Hopper's, and its successors' for servers.
_MAJORS = (9, 10)
#: The first version of CUDA whose driver captures such launches.
_DRIVER = 12030
#: Graphs of trials: one that is freed while another thread captures would end that capture.
_KEPT: List[Any] = []


@functools.cache
def launch_options(device: torch.device) -> Dict[str, Any]:
    """What each launch of a kernel that waits for others is given, found by a trial.

    Such a kernel has the argument ``early``; see :mod:`.early_kernels`.

    Args:
        device: where kernels run. The first call for it must not be within a capture.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        return {"early": False}
    try:
        major, _ = torch.cuda.get_device_capability(device)
        # A failed capture leaves PyTorch's allocator inconsistent: older drivers are not tried.
        if major in _MAJORS and _driver_version() >= _DRIVER:
            if _works(device):
                return {"early": True, "launch_pdl": True}
            logger.debug("Kernels that are launched early give wrong results")
    except Exception as error:  # an older Triton, CUDA or driver
        logger.debug("Kernels are launched one after another, because %s", error)
    return {"early": False}


def _driver_version() -> int:
    """The version of CUDA that the driver knows: 12030 for 12.3.

    Raises:
        OSError: there is no driver.
    """
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value


@torch.inference_mode(False)
@torch.no_grad()
def _works(device: torch.device) -> bool:
    """Whether early launches work in a graph, beside PyTorch's kernels, copies and fillings."""
    from .early_kernels import add_one

    graphs = Graphs(device)
    _KEPT.append(graphs)
    number, copied, filled = (torch.zeros(1, dtype=torch.float32, device=device) for _ in range(3))

    def add(*numbers: torch.Tensor) -> None:
        with torch.cuda.device(device):  # Triton launches on the current device.
            for each in numbers:
                add_one[(1,)](each, early=True, launch_pdl=True, num_warps=1)

    def work() -> None:
        add(number, number, number)
        copied.copy_(number)
        add(copied)
        copied.mul_(2)
        add(copied)
        filled.zero_()
        add(filled)

    graphs.run(work)
    graph = graphs.record(work)
    _KEPT.append(graph)
    graphs.replay(graph)
    return [float(number), float(copied), float(filled)] == [6.0, 15.0, 1.0]
