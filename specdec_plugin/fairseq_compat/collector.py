"""Python's cyclic garbage collector beside PyTorch, fairseq and hydra.

It imports neither, because :func:`paused` holds while they are imported.
"""

import gc
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Let no collection begin by itself.

    Importing PyTorch and fairseq makes a million objects, all of which live as long as the
    process. The collector would look through them again and again for a quarter of that time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def freeze_imports() -> None:
    """Keep the collector away from every object that exists now; call it before models are loaded.

    The collector would look through what was imported while sentences are decoded, and several
    times over when the process ends, which takes most of a second.
    """
    gc.freeze()
