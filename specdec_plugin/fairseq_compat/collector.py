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


def let_imports_age() -> None:
    """Count what exists now as old; call it at the end of :func:`paused`.

    The collector would begin at once with all that was made meanwhile, as if it were young. What
    somebody froze stays frozen, and then this does nothing.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()


def freeze_imports() -> None:
    """Keep the collector away from every object that exists now; call it before models are loaded.

    The collector would look through what was imported while sentences are decoded, and several
    times over when the process ends, which takes most of a second.
    """
    gc.freeze()
