"""What is wrong with a checkpoint that does not load, in a sentence."""

import contextlib
import logging
import os
import re
import traceback
from typing import Iterator, Optional

import torch
from fairseq.models import multilingual_transformer
from hydra.errors import HydraException

from ..errors import PluginError
from .odd_values import ODD_VALUES, reason_of

logger = logging.getLogger(__name__)

#: What fairseq raises where a checkpoint's options are not those that it writes.
CONTRADICTIONS = (*ODD_VALUES, HydraException, SyntaxError)
#: How PyTorch names what its weights-only reader refuses.
_REFUSED = re.compile(
    r"GLOBAL (\S+)|unrecognized function (.+)|add_safe_globals`,? but got (.+)|(TorchScript)"
)
#: PyTorch's message where a model was trained with another dictionary.
_EMBEDDING_SIZES = re.compile(
    r"size mismatch for (?:en|de)coder\.embed_tokens\.weight: .*?torch\.Size\(\[(\d+), .*?"
    r"torch\.Size\(\[(\d+), ",
    re.DOTALL,
)
#: PyTorch's message where weights and options do not fit: the model, and the first reason.
_OTHER_WEIGHTS = re.compile(r"Error\(s\) in loading state_dict for (\w+):\s*(.{1,90})")


@contextlib.contextmanager
def explained(path: str, kind: str = "checkpoint", maker: str = "fairseq-train") -> Iterator[None]:
    """Turn the errors of reading ``path`` into one sentence.

    Args:
        path: the file.
        kind: what it should be.
        maker: who writes such files.
    """
    try:
        yield
    except Exception as error:
        sentence = _sentence(path, error, kind, maker)
        if sentence is None:
            raise
        raise PluginError(sentence) from None


def _sentence(path: str, error: Exception, kind: str, maker: str) -> Optional[str]:
    """The sentence for an error of reading a file; ``None`` if it is not one."""
    if isinstance(error, FileNotFoundError):
        return f"{kind.capitalize()} not found: {path}. Check the path."
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, not a {kind}. Name the .pt file inside it."
    if isinstance(error, PermissionError):
        return f"{path} may not be read. Check the permissions of the file and its folder."
    if isinstance(error, MemoryError) or not raised_by_reader(error):
        return None
    refused = _REFUSED.search(str(error))
    if refused:
        return (
            f"{path} was refused: it holds {refused.group(refused.lastindex or 0)}, which is not "
            "on the list of harmless classes, and loading it could run code. Nothing in it was "
            f"run. Save the {kind} again with weights and plain arguments only."
        )
    return (
        f"{path} cannot be read as a {kind} ({os.path.getsize(path):,} bytes): it is "
        f"truncated, damaged, or not a file that {maker} wrote. Copy or make it again."
    )


def raised_by_reader(error: Exception) -> bool:
    """Whether the error, which may be of any kind, came from reading the file, not from later."""
    return _raised_in(error, torch.serialization.__name__)


def _raised_in(error: Exception, module: str) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == module for frame in frames)


def loading_error(paths: str, error: Exception) -> Optional[PluginError]:
    """What to raise instead of an error where models are loaded; None where it is to stay."""
    if isinstance(error, OSError):
        missing = re.match(r"Model file not found: (.+)", str(error))
        return missing and PluginError(f"Checkpoint not found: {missing[1]}. Check the path.")
    if _raised_in(error, multilingual_transformer.__name__):  # which asserts its task
        return PluginError(
            f"{paths} has an encoder and a decoder for each pair of languages: use fairseq's "
            "--task multilingual_translation."
        )
    if isinstance(error, CONTRADICTIONS):
        if "requires a joined dictionary" not in str(error):
            return options_error(paths, error)
        return PluginError(
            f"{paths} has one dictionary for both languages, and those of the data differ. Use the "
            "data folder (dictionaries) that the model was trained with."
        )
    if isinstance(error, RuntimeError):
        return _weights_error(paths, error)
    # fairseq raises this very type for versions that it no longer reads.
    return options_error(paths, error) if type(error) is Exception else None


def _weights_error(paths: str, error: RuntimeError) -> Optional[PluginError]:
    """:func:`loading_error` where PyTorch finds that weights do not fit the model."""
    sizes = _EMBEDDING_SIZES.search(str(error))
    if sizes is not None:
        return PluginError(
            f"{paths} has {int(sizes[1]):,} symbols, but the dictionary of the data has "
            f"{int(sizes[2]):,}. Use the data folder (dictionaries) that the model was trained "
            "with, and its --task and languages, which may add symbols (--langs, --lang-tok-style)."
        )
    other = _OTHER_WEIGHTS.search(str(error))
    if other is not None:
        return PluginError(
            f"{paths} does not hold the weights of the {other[1]} that its own options describe "
            f"({other[2]}): it was changed, or its options are overridden. Copy or train it again, "
            "or leave those options out."
        )
    if type(error) is RuntimeError and "CUDA" not in str(error):
        return options_error(paths, error)
    return None


def options_error(paths: str, error: Exception) -> PluginError:
    """The sentence for options of which no model can be built. Its cause can be logged."""
    logger.debug(f"options of {paths}", exc_info=error)
    return PluginError(
        f"{paths} cannot be used: its options describe no model ({reason_of(error)}). It is "
        "damaged, or needs another --user-dir. Copy or train it again."
    )
