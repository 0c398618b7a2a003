"""Whether kernels of Triton can be launched before those in front of them are done."""

import functools
import logging
from typing import Any, Dict

import torch

from .graphs.capture import Graphs

logger = logging.getLogger(__name__)

#: The first devices that can: Hopper's.
_CAPABILITY = (9, 0)
#: Kernels of the trial.
_TRIED = 3


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
        capable = torch.cuda.get_device_capability(device) >= _CAPABILITY
        if capable and _works(device):
            return {"early": True, "launch_pdl": True}
    except Exception as error:  # an older Triton, CUDA or driver
        logger.debug("Kernels are launched one after another, because %s", error)
    return {"early": False}


def _works(device: torch.device) -> bool:
    """Whether early launches work in a graph, too."""
    from .early_kernels import add_one

    number, graphs = torch.zeros(1, device=device), Graphs(device)

    def work() -> None:
        with torch.cuda.device(device):
            for _ in range(_TRIED):
                add_one[(1,)](number, early=True, launch_pdl=True, num_warps=1)

    graphs.run(work)
    graphs.replay(graphs.record(work))
    return int(number) == 2 * _TRIED
