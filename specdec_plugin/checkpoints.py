"""Loading checkpoints without running code in them, and saying clearly why one does not load.

fairseq calls ``torch.load`` with its defaults.  Since PyTorch 2.6 the default
is *weights only*, which refuses fairseq's own checkpoints because they hold an
``argparse.Namespace``.  :func:`install_safe_loading` puts the few harmless
classes that fairseq checkpoints hold on PyTorch's allow-list; everything else
stays refused, and nothing of a refused file is executed.
"""

import argparse
import functools
import os
import pickle
import re
import zipfile
from typing import Any, Callable, Dict

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import constants

from .errors import PluginError

#: Classes without side effects that fairseq stores beside the weights: the old
#: style arguments, and the string enumerations of the new style configuration.
ALLOWED_CLASSES = [argparse.Namespace] + [
    item
    for item in vars(constants).values()
    if isinstance(item, type) and issubclass(item, constants.StrEnum)
]


def load_weights(path: str) -> Dict[str, Any]:
    """Read a checkpoint file onto the CPU, weights and plain configuration only.

    Args:
        path: a fairseq checkpoint.

    Returns:
        the dictionary that fairseq saved (``model``, ``cfg`` or ``args``, …).

    Raises:
        PluginError: the file is missing, truncated, or holds other objects.
    """
    with torch.serialization.safe_globals(ALLOWED_CLASSES), explained(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or "model" not in state:
        raise PluginError(
            f"{path} is not a fairseq checkpoint (it holds no 'model'). "
            "Give a file that fairseq-train wrote."
        )
    return state


class explained:
    """Context that turns the errors of reading ``path`` into one sentence."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        sentence = _sentence(self.path, error) if error is not None else None
        if sentence is not None:
            raise PluginError(sentence) from None
        return False


def _sentence(path: str, error: BaseException) -> Any:
    """The sentence for an error of reading a checkpoint; ``None`` if it is not one."""
    if isinstance(error, FileNotFoundError):
        return f"Checkpoint not found: {path}. Check the path."
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, not a checkpoint. Name the .pt file inside it."
    if isinstance(error, pickle.UnpicklingError) and "Unsupported" in str(error):
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = found.group(1) if found else "a pickled object"
        return (
            f"{path} was refused: it holds {what}, which is not on the list of harmless "
            "classes, and loading it could run code. Nothing in it was run. Save the "
            "checkpoint again with weights and plain arguments only."
        )
    damaged = (pickle.UnpicklingError, EOFError, zipfile.BadZipFile)
    if isinstance(error, damaged) or (
        isinstance(error, RuntimeError) and "PytorchStreamReader" in str(error)
    ):
        size = os.path.getsize(path) if os.path.exists(path) else 0
        return (
            f"{path} cannot be read as a checkpoint ({size:,} bytes): it is truncated or "
            "damaged. Copy or train it again."
        )
    return None


def install_safe_loading() -> None:
    """Make every checkpoint that fairseq reads load safely (idempotent).

    fairseq offers no hook here, so its ``load_checkpoint_to_cpu`` is wrapped:
    the same function inside :class:`explained`.
    """
    torch.serialization.add_safe_globals(ALLOWED_CLASSES)
    original = checkpoint_utils.load_checkpoint_to_cpu
    if not hasattr(original, "__wrapped__"):
        checkpoint_utils.load_checkpoint_to_cpu = _explaining(original)


def _explaining(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        with explained(path):
            return load(path, *args, **kwargs)

    return load_checkpoint_to_cpu
