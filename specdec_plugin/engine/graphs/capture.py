"""Work on tensors that stay where they are: captured once as a CUDA graph, and replayed."""

import logging
from typing import Any, Callable, Optional

import torch

logger = logging.getLogger(__name__)

#: Work that is done so often is captured: to capture it takes as long as some runs, and a graph
#: takes memory.
CAPTURED_AT = 3


class GraphMemory:
    """What the graphs of one device share: a memory pool, and whether graphs work there.

    Graphs of one pool may use the same memory for what they compute on the way, because they are
    replayed one after another.

    Args:
        device: where the work is done. Only CUDA devices have graphs; elsewhere work simply runs.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.usable = device.type == "cuda"
        self._pool: Any = None

    def capture(self, work: Callable[[], None]) -> Optional[Any]:
        """The graph of ``work``, which runs once before; None if it cannot be captured.

        PyTorch asks for a run on the stream of the capture, where libraries may still allocate.
        """
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"
            ):
                work()
        except RuntimeError as error:
            self.usable = False
            logger.warning(
                f"This model is not captured in CUDA graphs, and runs more slowly, because {error}"
            )
            return None
        return graph


class Replayed:
    """A function without arguments that reads and writes fixed tensors.

    Args:
        work: the function. It must not wait for the device, and what it does on the host must be
            the same in each call.
        memory: of its device.
    """

    def __init__(self, work: Callable[[], None], memory: GraphMemory) -> None:
        self._work, self._memory = work, memory
        self._graph: Optional[Any] = None
        self._runs = 0

    def __call__(self) -> None:
        """Do the work: by a replay, once it is captured."""
        self._runs += 1
        if self._graph is None and self._runs >= CAPTURED_AT and self._memory.usable:
            self._graph = self._memory.capture(self._work)
        if self._graph is None:
            self._work()
        else:
            self._graph.replay()
