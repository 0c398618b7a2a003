"""How a server ends."""

import logging
import os
from typing import Any

import uvicorn

from ..fairseq_compat.early_interrupts import STATUS


class StoppingServer(uvicorn.Server):
    """A server of uvicorn that tells how it has ended."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; without a traceback for each request that a second Ctrl-C ends."""
        super().handle_exit(sig, frame)
        if self.force_exit:
            logging.getLogger("uvicorn.error").disabled = True

    def tell_end(self) -> None:
        """Print how it has ended; after a second Ctrl-C, end the process with another status."""
        if self.force_exit:
            print("Stopped at once: requests that were not answered are lost.", flush=True)
            # Python would end threads that decode where they are, which aborts the process.
            os._exit(STATUS)
        print("Stopped: all accepted requests are answered.", flush=True)
