"""Loading models that must fit together: one dictionary, one verifier, one drafter.

A fairseq checkpoint does not hold its dictionaries, so a wrong pair would run
and give nonsense. Models that the plugin trains carry fingerprints; for others
the size of the vocabulary is compared.
"""

import functools
import hashlib
import os
import re
from typing import Any, Callable, Dict, Iterable, Optional, Union

import torch
from fairseq import checkpoint_utils, utils
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from ..errors import PluginError
from .checkpoints import load_weights


def load_model(
    path: Union[str, "os.PathLike[str]"],
    source_dictionary: Any,
    target_dictionary: Any,
    task: Optional[FairseqTask] = None,
) -> Any:
    """Build the model of a checkpoint for the dictionaries of the data in use.

    The folder that the checkpoint names may be gone.

    Args:
        path: of the checkpoint.
        source_dictionary, target_dictionary: of the data.
        task: builds the model; None: translation, with these dictionaries.

    Returns:
        the model on the CPU, float32, in evaluation mode.

    Raises:
        PluginError: it cannot be read, belongs to other dictionaries, or is several checkpoints.
    """
    path = os.fspath(path)
    several = utils.split_paths(path)
    if not os.path.exists(path) and len(several) > 1 and all(map(os.path.exists, several)):
        raise PluginError(
            f"{path} names an ensemble, and one checkpoint is needed here. Give one of them; only "
            "--path, and -p of distill.sh, take several."
        )
    check_vocabulary(path, load_weights(path)["model"], source_dictionary, target_dictionary)
    task = task or TranslationTask(TranslationConfig(), source_dictionary, target_dictionary)
    # Looked up in its module, where checkpoints.py has wrapped it.
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([path], task=task)
    return models[0].float().eval()


def check_vocabulary(path: str, weights: Dict[str, Tensor], source: Any, target: Any) -> None:
    """Compare the sizes of embeddings with the dictionaries; PluginError if they differ."""
    for side, name, dictionary in (
        ("source", "encoder.embed_tokens.weight", source),
        ("target", "decoder.embed_tokens.weight", target),
    ):
        symbols = weights[name].shape[:1] if name in weights else None
        if symbols is not None and symbols != (len(dictionary),):
            raise PluginError(
                f"{path} has {sum(symbols):,} {side} symbols, but the {side} dictionary "
                f"of the data, with the task's own symbols such as languages, has "
                f"{len(dictionary):,}. Use the data folder (dictionaries) that this model was "
                "trained with."
            )


def check_pair(path: str, drafter: Any, source_dictionary: Any, target_dictionary: Any) -> None:
    """Check the fingerprints of a drafter, read from ``path``, against the dictionaries in use.

    Raises:
        PluginError: they differ.
    """
    for side, stored, dictionary in (
        ("source", drafter.source_symbols, source_dictionary),
        ("target", drafter.target_symbols, target_dictionary),
    ):
        if not torch.equal(stored.cpu(), fingerprint_of_dictionary(dictionary)):
            raise PluginError(
                f"{path} was trained with another {side} dictionary than the data's: the same "
                "indices mean other symbols. Use the dictionaries that it was trained with, or "
                "train a drafter for these dictionaries."
            )


#: By fingerprint: the part of a sentence that names the mismatch, and what to give instead.
_KINDS = {
    "source_symbols": ("another source dictionary than the data's", "the data folder"),
    "target_symbols": ("another target dictionary than the data's", "the data folder"),
    "shared_encoder": ("the encoder of another verifier than --verifier-path's", "the verifier"),
    "base_weights": ("another model than --verifier-path's", "the model"),
}


def check_resumed(own: Dict[str, Tensor], loaded: Dict[str, Tensor]) -> None:
    """Check that a loaded drafter fits what it is trained with from now on.

    Args:
        own: fingerprints of the dictionaries and of what the drafter shares with the verifier,
            by the drafter's buffer; 0 where there is none.
        loaded: those that the checkpoint brought.

    Raises:
        PluginError: one of them is another's.
    """
    for name in own:
        other, needed = _KINDS[name]
        known = bool(own[name].any()) and bool(loaded[name].any())
        if known and not torch.equal(own[name], loaded[name]):
            raise PluginError(
                f"The checkpoint to resume from was trained with {other}, so what it has learned "
                f"would not fit. Give {needed} that it was trained with, or another --save-dir and "
                "no --finetune-from-model (specdec-init-drafter makes a drafter to start from)."
            )


def explain_loading(model: nn.Module) -> None:
    """Let a model that is trained tell in a sentence that a checkpoint has another shape."""
    vars(model)["load_state_dict"] = functools.partial(_load, model.load_state_dict)


def _load(load: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return load(*args, **kwargs)
    except RuntimeError as error:
        # No PluginError: fairseq's trainer would bury any Exception in a traceback.
        raise SystemExit(_why_it_does_not_fit(str(error))) from error


def _why_it_does_not_fit(told: str) -> str:
    """A sentence of PyTorch's account of names and shapes that differ, which may fill a page."""
    fault = (told.splitlines()[1:] or [told])[0].strip().rstrip(".")
    own = re.search(r'Missing key.*"(heads\.[^"]+|[^"]*mask_vectors)"', fault)
    if own:
        return (
            f"The checkpoint to start from has no {own[1]}, so it is a whole model: heads start "
            "from one by --verifier-path, and a drafter from what specdec-init-drafter makes of it."
        )
    return (
        f"The checkpoint to start from is of another shape than the options describe ({fault}). "
        "Give the options that it was made with; those of a new drafter are what "
        "specdec-init-drafter printed with it."
    )


def fingerprint_of_dictionary(dictionary: Any) -> Tensor:
    """(1,) int64 that differs when the symbols or their order differ; 0 for None, for speech."""
    if dictionary is None:
        return torch.zeros(1, dtype=torch.int64)
    return _fingerprint(symbol.encode("utf-8") + b"\n" for symbol in dictionary.symbols)


def fingerprint_of_module(module: nn.Module) -> Tensor:
    """(1,) int64 that differs when the weights differ.

    Weights are compared in half precision, so that a model and its copy in half
    precision are the same.
    """
    weights = module.state_dict()
    return _fingerprint(
        weights[name].detach().cpu().to(torch.float16).numpy().tobytes()
        for name in sorted(weights)
        if weights[name].is_floating_point() and weights[name].numel() > 1
    )


def _fingerprint(parts: Iterable[bytes]) -> Tensor:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return torch.tensor([int.from_bytes(digest.digest()[:8], "big", signed=True)])
