"""Loading checkpoints without running code in them, and saving them whole.

fairseq calls ``torch.load`` with its defaults. Since PyTorch 2.6 the default
is *weights only*. It refuses fairseq's own checkpoints, because they hold an
``argparse.Namespace`` and, after ``--eval-bleu``, NumPy arrays of counts.
:func:`install_safe_loading` puts the few harmless classes that fairseq
checkpoints hold on PyTorch's allow-list. Everything else stays refused, and
nothing of a refused file is executed. fairseq evaluates some options of what
was read; :mod:`.plain_values` sees to them.
"""

import argparse
import contextlib
import functools
import importlib
import os
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Optional,
    Tuple,
    Union,
)

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import constants
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf

from ..errors import PluginError
from ..outputs import told_if_unwritable, written_whole
from .checkpoint_errors import (
    CONTRADICTIONS,
    explained,
    loading_error,
    options_error,
    raised_by_reader,
)
from .checkpoint_options import check_options, name_of_option
from .hub import keep_task_overrides
from .mapping import ONE_AT_A_TIME, mapped_models, serves_plugin
from .options import configuration_of
from .plain_values import CodeRefusedError

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

    Its configuration is whole, as fairseq-train writes it. From arguments alone fairseq would make
    it twice whenever it loads the model, which takes a second.

    Args:
        weights: of the model, by their names.
        arguments: of its architecture, as fairseq's parser gives them.
        path: of the file; see :func:`save_whole`.
    """
    options = argparse.Namespace(**{"task": "translation", **vars(arguments)})
    config = configuration_of(options)
    # fairseq reads all of these. It uses the names only beside the state of an optimizer.
    done = {
        "criterion_name": "CrossEntropyCriterion",
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(config, resolve=True, enum_to_str=True),
        "model": weights,
        "optimizer_history": [done],
        "extra_state": {},
        "last_optimizer_state": None,
    }
    save_whole(state, path)


def install_safe_loading() -> None:
    """Make every checkpoint that fairseq reads load safely (idempotent).

    fairseq offers no hook here. So the functions that open checkpoints are
    wrapped: they do the same, and explain their errors in a sentence.
    """
    torch.serialization.add_safe_globals(ALLOWED_CLASSES)
    for name, wrap in (
        ("load_checkpoint_to_cpu", _reading_safely),
        ("load_ema_from_checkpoint", _reading_weights_only),
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
            except CONTRADICTIONS as error:
                if isinstance(error, PluginError) or raised_by_reader(error):
                    raise
                raise options_error(path, error) from error
        if isinstance(state.get("model"), dict):
            _check_weights(path, state["model"])
            check_options(path, state)
        keep_task_overrides(state, arg_overrides or {})
        return state

    return load_checkpoint_to_cpu


def _reading_weights_only(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_ema_from_checkpoint(fpath: str) -> Any:
        with _weights_only(), explained(fpath):
            return load(fpath)

    return load_ema_from_checkpoint


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
            # Some models read further files, which the checkpoint names.
            with mapped, _weights_only():
                return load(filenames, arg_overrides, task, strict, *args, **kwargs)
        except CodeRefusedError as error:
            raise _naming_the_option(filenames, error) from None
        except PluginError:
            raise
        except Exception as error:
            explanation = loading_error(" or ".join(filenames), error)
            if explanation is None:
                raise
            raise explanation from error

    return load_model_ensemble_and_task


def _naming_the_option(filenames: Any, refused: CodeRefusedError) -> PluginError:
    """The error that names the checkpoint whose option holds the code; else the error itself."""
    for path in filter(os.path.isfile, filenames):
        name = name_of_option(load_weights(path), refused.text)
        if name is not None:
            return PluginError(
                f"{path} was refused: fairseq would run its option {name} as code, and it holds "
                f"more than plain values ({refused.text[:60]!r}). Nothing in it was run. Save the "
                "checkpoint again with numbers there."
            )
    return refused


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Load weights only, even where the environment forbids it, as recipes for fairseq advise."""
    with ONE_AT_A_TIME:  # The environment belongs to all threads.
        override = os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
        try:
            yield
        finally:
            if override is not None:
                os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = override
