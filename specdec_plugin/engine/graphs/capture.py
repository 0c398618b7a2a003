"""Work on tensors that stay where they are: captured once as a CUDA graph, and replayed."""

import contextlib
import functools
import logging
import threading
from typing import Any, Callable, Dict, Iterator, Optional

import torch

from ...fairseq_compat.collector import paused

logger = logging.getLogger(__name__)

#: The run of some work in which it is captured: what is done once takes no graph's memory.
CAPTURED_AT = 2

#: CUDA allows one capture at a time in a process. Nobody else may use its stream meanwhile.
_ONE_AT_A_TIME = threading.RLock()
#: Of each thread, the number of :func:`unusual_runs`.
_UNUSUAL = threading.local()


def current_stream(device: torch.device) -> Any:
    """PyTorch's current stream of a CUDA device, the same object for the same stream.

    PyTorch makes an object for each question, which takes longer than a kernel does.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    return _stream(index, torch._C._cuda_getCurrentRawStream(index))


@functools.lru_cache(maxsize=16)
def _stream(index: int, address: int) -> Any:
    """The current stream of a device, which has this address."""
    return torch.cuda.current_stream(index)


class Graphs:
    """What the graphs of one device share: memory, a stream, and whether graphs work there.

    Graphs may use the same memory for what they compute on the way, because they are captured on
    one stream and replayed one after another. Use :meth:`of`: there is one for each device.

    Args:
        device: where the work is done. Only CUDA devices have graphs; elsewhere work simply runs.

    Attributes:
        usable: whether work is captured.
    """

    _of: Dict[torch.device, "Graphs"] = {}

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.usable = device.type == "cuda"
        self._stream: Any = None
        self._pool: Any = None
        self._keeper: Any = None
        self._last: Any = None  # the stream of the last replay
        self._order = threading.Lock()

    @classmethod
    def of(cls, device: torch.device) -> "Graphs":
        """That of a device."""
        return cls._of.setdefault(device, cls(device))

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the stream of the captures, where libraries may still allocate.

        PyTorch asks for such a run before a capture.
        """
        if not self.usable:
            work()
            return
        _note_unusual()
        with _ONE_AT_A_TIME, self._on_stream():
            work()

    def replay(self, graph: Any) -> None:
        """Replay a graph on the current stream, behind other graphs: they share memory."""
        current = current_stream(self.device)
        with self._order:
            self._let_wait(current)
            graph.replay()
            self._last = current

    def wait_for_replays(self) -> None:
        """Let the current stream wait for all replays: what comes next changes what they read."""
        if self._last is not None:
            with self._order:
                self._let_wait(current_stream(self.device))

    def _let_wait(self, current: Any) -> None:
        """Let this stream wait."""
        if self._last is not None and current is not self._last:
            current.wait_stream(self._last)

    def record(self, work: Callable[[], None]) -> Any:
        """The graph of ``work``, which :meth:`run` has run before. Nothing is computed.

        Raises:
            RuntimeError: it cannot be captured.
        """
        _note_unusual()
        # A graph that the collector frees during a capture would end the capture.
        with _ONE_AT_A_TIME, paused(), torch.inference_mode(False), torch.no_grad():
            with self._on_stream():
                if self._keeper is None:
                    self._keep_pool()
                return self._recorded(work)

    def capture(self, work: Callable[[], None]) -> Optional[Any]:
        """The same; None if it cannot be captured, for now or ever, which a warning tells."""
        try:
            return self.record(work)
        except torch.cuda.OutOfMemoryError:
            return None  # there may be memory later
        except RuntimeError as error:
            self.usable = False
            logger.warning(
                f"This model is not captured in CUDA graphs, and runs more slowly, because {error}"
            )
            return None

    def _keep_pool(self) -> None:
        """A small graph that stays: PyTorch refuses a pool whose graphs are all gone."""
        kept = torch.zeros(1, device=self.device)
        self._keeper = kept, self._recorded(kept.zero_)

    def _recorded(self, work: Callable[[], Any]) -> Any:
        """The graph of work, on the stream of the captures."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
        return graph

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Use the stream of the captures; it waits for what is queued, and is waited for."""
        with torch.cuda.device(self.device):
            if self._stream is None:
                self._stream = torch.cuda.Stream(self.device)
                self._pool = torch.cuda.graph_pool_handle()
            current = torch.cuda.current_stream(self.device)
            self._stream.wait_stream(current)
            torch.cuda.set_stream(self._stream)
            try:
                yield
            finally:
                torch.cuda.set_stream(current)
                current.wait_stream(self._stream)


def unusual_runs() -> int:
    """How often this thread captured work, or ran it on the way to a capture.

    That happens once for each graph. It takes many times as long as a replay, most of all where
    Triton compiles kernels.
    """
    found: int = getattr(_UNUSUAL, "runs", 0)
    return found


def _note_unusual() -> None:
    _UNUSUAL.runs = unusual_runs() + 1


class Replayed:
    """Runs work that reads and writes fixed tensors, by replays once it is captured.

    A call does the work once, so that it may change what it reads; but see ``at``.

    Args:
        graphs: of its device.
        at: the call in which it is captured. In the first one, the work is done twice.
    """

    def __init__(self, graphs: Graphs, at: int = CAPTURED_AT) -> None:
        self._graphs, self._at = graphs, at
        self._graph: Optional[Any] = None
        self._runs = 0

    def __call__(self, work: Callable[[], None]) -> None:
        """Do the work.

        Args:
            work: the same in each call. It must not wait for the device, and what it does on the
                host must be the same each time.
        """
        if self._graph is None and self._runs + 1 >= self._at and self._graphs.usable:
            if self._runs == 0:
                self._graphs.run(work)
            self._graph = self._graphs.capture(work)
        if self._graph is None:
            self._graphs.run(work)
        else:
            self._graphs.replay(self._graph)
        self._runs += 1  # a run that fails is none
