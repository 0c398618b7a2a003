"""Loading checkpoints without running code in them, and a clear sentence where one does not load.

fairseq calls ``torch.load`` with its defaults. Since PyTorch 2.6 the default
is *weights only*. It refuses fairseq's own checkpoints, because they hold an
``argparse.Namespace`` and, after ``--eval-bleu``, NumPy arrays of counts.
:func:`install_safe_loading` puts the few harmless classes that fairseq
checkpoints hold on PyTorch's allow-list. Everything else stays refused, and
nothing of a refused file is executed.
"""

import argparse
import contextlib
import functools
import importlib
import logging
import os
import re
import threading
import traceback
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    MutableMapping,
    Optional,
    Tuple,
    Union,
)

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import constants
from fairseq.distributed import utils as distributed_utils
from hydra.errors import HydraException

from ..errors import PluginError
from ..outputs import told_if_unwritable, written_whole
from .hub import keep_task_overrides
from .mapping import mapped_models, serves_plugin
from .odd_values import ODD_VALUES, reason_of

logger = logging.getLogger(__name__)

Allowed = Union[Callable[..., Any], Tuple[Callable[..., Any], str]]


def _numpy_parts() -> List[Allowed]:
    """The parts of a pickled array or scalar of numbers, by their names in NumPy 1 and 2."""
    module = importlib.import_module(np.array(0).__reduce__()[0].__module__)
    parts: List[Allowed] = [np.ndarray, np.dtype]
    for name in ("_reconstruct", "scalar"):
        build = getattr(module, name)
        parts += [(build, f"numpy.{core}.multiarray.{name}") for core in ("core", "_core")]
    codes = np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"
    return parts + sorted({type(np.dtype(code)) for code in codes}, key=str)


#: Classes without side effects that fairseq stores beside the weights. They are the arguments of
#: old checkpoints, the string enumerations of new ones, and the arrays of its BLEU counts.
ALLOWED_CLASSES: List[Allowed] = [
    argparse.Namespace,
    *(
        item
        for item in vars(constants).values()
        if isinstance(item, type) and issubclass(item, constants.StrEnum)
    ),
    *_numpy_parts(),
]


def load_weights(path: str) -> Dict[str, Any]:
    """Read the weights and the plain configuration of a fairseq checkpoint onto the CPU.

    Returns:
        the dictionary that fairseq saved (``model``, ``cfg`` or ``args``, …).

    Raises:
        PluginError: the file is missing or truncated, or it holds other objects.
    """
    torch.serialization.add_safe_globals(ALLOWED_CLASSES)
    with explained(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or "model" not in state:
        raise PluginError(
            f"{path} is not a fairseq checkpoint (it holds no 'model'). "
            "Give a file that fairseq-train wrote."
        )
    _check_weights(path, state["model"])
    if not isinstance(state.get("optimizer_history", []), list):
        raise PluginError(f"{path} is damaged: it has no history of training. Copy it again.")
    return state


def _check_weights(path: str, weights: Any) -> None:
    """Refuse anything but tensors of numbers by their names."""
    if not isinstance(weights, dict):
        raise PluginError(f"{path} is damaged: its 'model' holds no weights. Copy it again.")
    for name, value in weights.items():
        plain = isinstance(name, str) and isinstance(value, torch.Tensor)
        plain = plain and value.layout == torch.strided and not value.is_meta
        # One that repeats its memory could be larger than the machine's.
        if not plain or value.nbytes > value.untyped_storage().nbytes():
            raise PluginError(f"{path} is damaged: its {name} is no plain tensor. Copy it again.")


def save_whole(state: Dict[str, Any], path: str) -> None:
    """Write a file that appears under its name only when it is whole; its folder is made.

    Raises:
        PluginError: it cannot be written.
    """
    with told_if_unwritable(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with written_whole(path) as unfinished, open(unfinished, "wb") as file:
            _save(state, file)


def _save(state: Dict[str, Any], file: IO[bytes]) -> None:
    """PyTorch's ``save``, which hides the error of a full disk behind one of its own."""
    try:
        torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def save_untrained(weights: Dict[str, Any], arguments: argparse.Namespace, path: str) -> None:
    """Write a checkpoint of a model that fairseq has not trained, from which training may start.

    Args:
        weights: of the model, by their names.
        arguments: of its architecture, as fairseq-train would store them.
        path: of the file; see :func:`save_whole`.
    """
    # fairseq reads all of these. It uses the names only beside the state of an optimizer.
    done = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    state = {
        "args": arguments,
        "model": weights,
        "optimizer_history": [done],
        "extra_state": {},
        "last_optimizer_state": None,
    }
    save_whole(state, path)


def _check_options(path: str, state: Dict[str, Any]) -> None:
    """Refuse or mend options with which fairseq would build no model.

    It would build more layers than there are weights, for hours. It would read embeddings from the
    file with which training began, which may be gone; the checkpoint holds them.
    """
    config = state.get("cfg")
    # fairseq makes the second of the first, and then reads the first.
    model = config.get("model") if isinstance(config, MutableMapping) else None
    for options in (state.get("args"), model):
        values = (
            options if isinstance(options, MutableMapping) else getattr(options, "__dict__", {})
        )
        _refuse_code(path, values)
        for side in ("encoder", "decoder"):
            count = values.get(f"{side}_layers")
            if isinstance(count, (int, float)) and not count <= len(state["model"]):
                raise PluginError(
                    f"{path} is damaged: its options tell of {count} {side} layers, and it "
                    "holds fewer weights. Copy it again."
                )
            if values.get(f"{side}_embed_path") is not None:
                values[f"{side}_embed_path"] = None


#: Options that fairseq's models evaluate as Python, such as ``[(512, 3)] * 20``. They need numbers,
#: and lists that are repeated.
_EVALUATED = (
    "adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters",
    "conv_aggregator_layers", "conv_feature_layers", "conv_layers", "decoder_attention",
    "decoder_layers", "downsample", "encoder_attention", "encoder_layers", "gated_attention",
    "input_layers", "pretrained", "project_input", "self_attention",
)  # fmt: skip
_HARMLESS = re.compile(r"(True|False|None|\]\s*\*\s*\d{1,3}(?!\d)|[\d\s()\[\],.+-])*")


def _refuse_code(path: str, options: Mapping[str, Any]) -> None:
    """Refuse options that would run code where fairseq evaluates them."""
    for name in _EVALUATED:
        value = options.get(name)
        if isinstance(value, str) and not _HARMLESS.fullmatch(value):
            raise PluginError(
                f"{path} was refused: fairseq would run its option {name} as code, and it holds "
                f"more than numbers ({value[:60]!r}). Nothing in it was run. Save the checkpoint "
                "again with numbers there."
            )


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


#: How PyTorch names what its weights-only reader refuses.
_REFUSED = re.compile(
    r"GLOBAL (\S+)|unrecognized function (.+)|add_safe_globals`,? but got (.+)|(TorchScript)"
)


def _sentence(path: str, error: Exception, kind: str, maker: str) -> Optional[str]:
    """The sentence for an error of reading a file; ``None`` if it is not one."""
    if isinstance(error, FileNotFoundError):
        return f"{kind.capitalize()} not found: {path}. Check the path."
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder, not a {kind}. Name the .pt file inside it."
    if isinstance(error, PermissionError):
        return f"{path} may not be read. Check the permissions of the file and its folder."
    if isinstance(error, MemoryError) or not _raised_in_torch_load(error):
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


def _raised_in_torch_load(error: Exception) -> bool:
    """Whether the error, which may be of any kind, came from reading the file, not from later."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__") == torch.serialization.__name__ for frame in frames)


def install_safe_loading() -> None:
    """Make every checkpoint that fairseq reads load safely (idempotent).

    fairseq offers no hook here. So the two functions that open checkpoints are
    wrapped: they do the same, and explain their errors in a sentence.
    """
    torch.serialization.add_safe_globals(ALLOWED_CLASSES)
    for name, wrap in (
        ("load_checkpoint_to_cpu", _reading_safely),
        ("load_model_ensemble_and_task", _naming_what_is_wrong),
    ):
        original = getattr(checkpoint_utils, name)
        if not hasattr(original, "__wrapped__"):
            setattr(checkpoint_utils, name, wrap(original))
    distributed_utils._broadcast_object_slow = _broadcast_between_workers


def _broadcast_between_workers(obj: Any, src_rank: int, group: Any, dist_device: Any) -> Any:
    """Send an object from one worker to the others, without ``torch.load``.

    The first worker reads a checkpoint safely and sends what it read, OmegaConf
    objects among it, which weights-only loading refuses. A message of our own
    process group is as trustworthy as this program, so it is plainly unpickled.
    """
    box = [obj]
    torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]


def _reading_safely(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_checkpoint_to_cpu(
        path: str, arg_overrides: Optional[Dict[str, Any]] = None, *args: Any, **kwargs: Any
    ) -> Any:
        with _weights_only(), explained(path):
            try:
                state = load(path, arg_overrides, *args, **kwargs)
            except _ODD_VALUES as error:
                if isinstance(error, PluginError) or _raised_in_torch_load(error):
                    raise
                raise _undescribed(path, error) from error
        if isinstance(state.get("model"), dict):
            _check_weights(path, state["model"])
            _check_options(path, state)
        keep_task_overrides(state, arg_overrides or {})
        return state

    return load_checkpoint_to_cpu


def _naming_what_is_wrong(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_model_ensemble_and_task(
        filenames: Any,
        arg_overrides: Optional[Dict[str, Any]] = None,
        task: Any = None,
        strict: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        mapped = mapped_models() if strict and serves_plugin(task) else contextlib.nullcontext()
        try:
            with mapped:
                return load(filenames, arg_overrides, task, strict, *args, **kwargs)
        except PluginError:
            raise
        except Exception as error:
            told = _told(" or ".join(filenames), error)
            if told is None:
                raise
            raise told from error

    return load_model_ensemble_and_task


def _told(paths: str, error: Exception) -> Optional[PluginError]:
    """What to raise instead of an error where models are loaded; None where it is to stay."""
    if isinstance(error, OSError):
        missing = re.match(r"Model file not found: (.+)", str(error))
        return missing and PluginError(f"Checkpoint not found: {missing[1]}. Check the path.")
    if isinstance(error, _ODD_VALUES):
        if "requires a joined dictionary" not in str(error):
            return _undescribed(paths, error)
        return PluginError(
            f"{paths} has one dictionary for both languages, and those of the data differ. Use the "
            "data folder (dictionaries) that the model was trained with."
        )
    if isinstance(error, RuntimeError):
        return _told_of_weights(paths, error)
    # fairseq raises this very type for versions that it no longer reads.
    return _undescribed(paths, error) if type(error) is Exception else None


def _told_of_weights(paths: str, error: RuntimeError) -> Optional[PluginError]:
    """The same for errors that PyTorch raises where weights do not fit the model."""
    sizes = _EMBEDDING_SIZES.search(str(error))
    if sizes is not None:
        return PluginError(
            f"{paths} has {int(sizes[1]):,} symbols, but the dictionary of the data has "
            f"{int(sizes[2]):,}. Use the data folder (dictionaries) that the model was trained "
            "with."
        )
    other = _OTHER_WEIGHTS.search(str(error))
    if other is not None:
        return PluginError(
            f"{paths} does not hold the weights of the {other[1]} that its own options describe "
            f"({other[2]}): it was changed, or its options are overridden. Copy or train it again, "
            "or leave those options out."
        )
    if type(error) is RuntimeError and "CUDA" not in str(error):
        return _undescribed(paths, error)
    return None


#: What fairseq raises where a checkpoint's options are not those that it writes.
_ODD_VALUES = (*ODD_VALUES, HydraException, SyntaxError)


def _undescribed(paths: str, error: Exception) -> PluginError:
    """The sentence for options of which no model can be built. Its cause can be logged."""
    logger.debug(f"options of {paths}", exc_info=error)
    return PluginError(
        f"{paths} cannot be used: its options describe no model ({reason_of(error)}). It is "
        "damaged, or needs another --user-dir. Copy or train it again."
    )


#: PyTorch's message where a model was trained with another dictionary.
_EMBEDDING_SIZES = re.compile(
    r"size mismatch for (?:en|de)coder\.embed_tokens\.weight: .*?torch\.Size\(\[(\d+), .*?"
    r"torch\.Size\(\[(\d+), ",
    re.DOTALL,
)


#: PyTorch's message where weights and options do not fit: the model, and the first reason.
_OTHER_WEIGHTS = re.compile(r"Error\(s\) in loading state_dict for (\w+):\s*(.{1,90})")


#: The environment belongs to all threads, so one thread loads at a time.
_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Load weights only, even where the environment forbids it, as recipes for fairseq advise."""
    with _one_at_a_time:
        override = os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
        try:
            yield
        finally:
            if override is not None:
                os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = override
