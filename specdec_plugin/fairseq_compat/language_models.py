"""fairseq's language models, which score outputs beside the model (``--lm-path``)."""

import logging
import os
import sys
import threading
import weakref
from typing import Any, Dict, Sequence, Tuple

from fairseq.models import FairseqLanguageModel
from fairseq.modules import LearnedPositionalEmbedding
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from torch import nn

from ..errors import PluginError
from .mapping import version_of
from .options import with_option
from .pairing import load_model

logger = logging.getLogger(__name__)

#: The attribute of options that holds a loaded language model; see :func:`.options.with_option`.
LANGUAGE_MODEL = "language_model"
#: fairseq's options of it, which a beam search keeps.
OF_LANGUAGE_MODELS = frozenset(["lm_path", "lm_weight"])
#: Where fairseq's programs hand a search the language model: an argument of ``build_generator``.
EXTRA = "extra_gen_cls_kwargs"
#: What is in it.
OF_EXTRA = frozenset(["lm_model", "lm_weight"])
#: By model: of which file and for which type a language model was loaded last beside it, and the
#: language model. fairseq's hub builds a search for each call.
_LOADED: "weakref.WeakKeyDictionary[nn.Module, Tuple[Any, Any]]" = weakref.WeakKeyDictionary()
_one_at_a_time = threading.Lock()


class _AnyModelTask(LanguageModelingTask):
    """fairseq's, which builds other models as well, so that their kind can be told."""

    def build_model(self, args: Any, from_checkpoint: bool = False) -> Any:
        return FairseqTask.build_model(self, args, from_checkpoint)


def asks_language_model(options: Any) -> bool:
    """Whether fairseq's generation options have a language model, or name one, with a weight."""
    path = getattr(options, "lm_path", None)
    named = path is not None or getattr(options, LANGUAGE_MODEL, None) is not None
    return named and getattr(options, "lm_weight", 0) != 0


def with_language_model(
    options: Any, arguments: Dict[str, Any], models: Sequence[Any], dictionary: Any, ours: bool
) -> Tuple[Any, Dict[str, Any]]:
    """Load the language model that options name, if they do.

    ``fairseq-generate`` loads it; ``fairseq-interactive`` and fairseq's hub do not.

    Args:
        options: fairseq's generation options.
        arguments: others of ``build_generator``.
        models: the models in ``--path``.
        dictionary: of the target.
        ours: for a search of this plugin. fairseq's own gets what a program has loaded as it is.

    Returns:
        the options, of which :data:`LANGUAGE_MODEL` is on the models' device; and the arguments
        with it.

    Raises:
        PluginError: it is another kind of model, or has other symbols.
    """
    extra = dict(arguments.get(EXTRA) or {})
    path = getattr(options, "lm_path", None)
    if ours and path is None and extra.get("lm_model") is not None:
        # fairseq's own weight, where a program gives none.
        options = with_option(options, "lm_weight", extra.get("lm_weight", 1.0))
        options = with_option(options, LANGUAGE_MODEL, extra["lm_model"])
    if not asks_language_model(options):
        return options, arguments
    name = "lm_model" if path is None else f"--lm-path {path}"
    model = extra.get("lm_model")
    model = _loaded(path, dictionary, models[0]) if model is None else model
    _check(name, model, dictionary)
    weights = next(models[0].parameters())
    model = model.to(weights.device, weights.dtype)
    extra.update(lm_model=model, lm_weight=options.lm_weight)
    return with_option(options, LANGUAGE_MODEL, model), {**arguments, EXTRA: extra}


def limited(arguments: Dict[str, Any], models: Sequence[Any], options: Any) -> Dict[str, Any]:
    """Arguments of ``build_generator`` with which fairseq's search ends where positions do.

    fairseq looks at the positions of the models, and an ``IndexError`` tells of those of a language
    model.

    Args:
        arguments: from :func:`with_language_model`.
        models: the models in ``--path``.
        options: fairseq's generation options.

    Raises:
        PluginError: the lengths of sources limit the output instead.
    """
    extra = arguments.get(EXTRA) or {}
    if extra.get("lm_model") is None:
        return arguments
    own = positions_of(extra["lm_model"])
    theirs = (
        model.max_decoder_positions() for model in models if hasattr(model, "max_decoder_positions")
    )
    if own >= min(theirs, default=sys.maxsize):
        return arguments
    if getattr(options, "match_source_len", False):
        raise PluginError(
            f"--lm-path has {own} positions, and --match-source-len may ask for longer outputs: "
            "leave one of the two out, or add --decoding auto."
        )
    tell_positions(own, own, options)
    return {**arguments, EXTRA: {**extra, "max_len": min(own, extra.get("max_len") or own)}}


def tell_positions(positions: int, limit: int, options: Any) -> None:
    """Warn that a language model's positions limit the output.

    Args:
        positions: those of the language model.
        limit: the fewest that any model has.
        options: fairseq's generation options.
    """
    if positions <= min(limit, getattr(options, "max_len_b", 200)):
        logger.warning(f"--lm-path has {positions} positions: no output has more tokens than that.")


def positions_of(model: Any) -> int:
    """The most tokens that a language model reads: a learned table of positions ends."""
    decoder = getattr(model, "decoder", None)
    if isinstance(getattr(decoder, "embed_positions", None), LearnedPositionalEmbedding):
        return int(model.decoder.max_positions())
    return sys.maxsize


def _check(name: str, model: Any, dictionary: Any) -> None:
    """Refuse other models, and other symbols; ``name`` is how the user gave it."""
    if not isinstance(model, FairseqLanguageModel):
        raise PluginError(
            f"{name} names a {type(model).__name__}, which is no language model: give one that was "
            "trained with --task language_modeling, or leave it out."
        )
    own = getattr(model.decoder, "dictionary", dictionary)
    # With --output-dictionary-size, the length alone is another one.
    if len(own) != len(dictionary) or own.symbols != dictionary.symbols:
        raise PluginError(
            f"{name} has other symbols than the target, in number or order: train the language "
            "model with the target's dictionary (fairseq-preprocess --srcdict), or leave it out."
        )


def _loaded(path: Any, dictionary: Any, beside: nn.Module) -> Any:
    """The model of a checkpoint, whose symbols are those of the target."""
    version = version_of(path) if os.path.exists(path) else None
    wanted = path, version, next(beside.parameters()).dtype
    with _one_at_a_time:
        kept, model = _LOADED.get(beside, (None, None))
        if version is None or kept != wanted:
            _LOADED.pop(beside, None)
            del model  # before another one takes memory
            task = _AnyModelTask(LanguageModelingConfig(), dictionary)
            model = load_model(path, dictionary, dictionary, task)
            _LOADED[beside] = wanted, model
        return model
