"""How a server ends: behind all that it has accepted, but not behind clients that stall."""

import asyncio
import logging
import os
from typing import Any, Callable, Optional

import uvicorn

from ..fairseq_compat.early_interrupts import STATUS

#: Seconds that uvicorn has to tell clients the end after a second Ctrl-C.
_AT_ONCE = 1.0


class StoppingServer(uvicorn.Server):
    """A server of uvicorn that stops behind the last work, and tells how it has ended.

    Args:
        config: of uvicorn.
        is_decoding: tells whether accepted work waits or is being done.
        patience: seconds behind the last work in which clients may read their answers, or send
            the rest of a request.

    Attributes:
        stalled: connections that were closed because their clients did neither.
    """

    def __init__(
        self, config: uvicorn.Config, is_decoding: Callable[[], bool], patience: float
    ) -> None:
        super().__init__(config)
        self._is_decoding, self._patience = is_decoding, patience
        self.stalled = 0

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; without a traceback for each request that a second Ctrl-C ends."""
        super().handle_exit(sig, frame)
        if self.force_exit:
            logging.getLogger("uvicorn.error").disabled = True

    async def shutdown(self, sockets: Optional[Any] = None) -> None:
        """End as uvicorn does, which waits for all clients, beside a watch over them."""
        watch = asyncio.ensure_future(self._close_stalled())
        try:
            await super().shutdown(sockets)
        finally:
            watch.cancel()

    async def _close_stalled(self) -> None:
        """Close the connections that are open some time behind the last work.

        uvicorn's ``timeout_graceful_shutdown`` would also cancel requests that wait to be decoded.
        """
        now = asyncio.get_running_loop().time
        end = now() + self._patience
        while now() < end and not self.force_exit:
            await asyncio.sleep(0.1)
            if self._is_decoding():
                end = now() + self._patience
        if self.force_exit:
            await asyncio.sleep(_AT_ONCE)
        for connection in [*self.server_state.connections]:
            self.stalled += 1
            connection.transport.abort()

    def tell_end(self) -> None:
        """Print how it has ended; after a second Ctrl-C, end the process with another status."""
        if self.force_exit:
            print("Stopped at once: requests that were not answered are lost.", flush=True)
            # Python would end threads that decode where they are, which aborts the process.
            os._exit(STATUS)
        if self.stalled:
            print(
                f"Connections closed because their clients stalled: {self.stalled:,}.", flush=True
            )
        print("Stopped: all accepted requests are answered.", flush=True)
