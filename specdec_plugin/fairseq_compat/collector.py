"""Python's cyclic garbage collector beside PyTorch, fairseq and hydra."""

import gc


def freeze_imports() -> None:
    """Keep the collector away from every object that exists now; call it before models are loaded.

    Importing PyTorch and fairseq makes a million objects, all of which live as long as the
    process. The collector would look through them again and again while sentences are decoded,
    and several times over when the process ends, which takes most of a second.
    """
    gc.freeze()
