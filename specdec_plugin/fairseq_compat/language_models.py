"""fairseq's language models, which score outputs beside the model (``--lm-path``)."""

import math
from typing import Any, Sequence

from fairseq.models import FairseqLanguageModel
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from ..errors import PluginError
from .pairing import load_model

#: The attribute of options that holds a loaded language model; see :func:`.options.with_option`.
LANGUAGE_MODEL = "language_model"
#: fairseq's options of it, which a beam search keeps.
OF_LANGUAGE_MODELS = frozenset(["lm_path", "lm_weight"])


class _AnyModelTask(LanguageModelingTask):
    """fairseq's, which builds other models as well, so that their kind can be told."""

    def build_model(self, args: Any, from_checkpoint: bool = False) -> Any:
        return FairseqTask.build_model(self, args, from_checkpoint)


def asks_language_model(options: Any) -> bool:
    """Whether fairseq's generation options name a language model whose weight is not 0."""
    path, weight = getattr(options, "lm_path", None), getattr(options, "lm_weight", 0)
    return path is not None and weight != 0


def language_model(options: Any, given: Any, models: Sequence[Any], dictionary: Any) -> Any:
    """The language model that options name, on the models' device.

    ``fairseq-generate`` loads it; ``fairseq-interactive`` and fairseq's hub do not.

    Args:
        options: fairseq's generation options; see :func:`asks_language_model`.
        given: what a program has loaded; None: nothing.
        models: the models in ``--path``.
        dictionary: of the target.

    Raises:
        PluginError: it is another kind of model, or has other symbols, or its weight is no number.
    """
    path = options.lm_path
    if not math.isfinite(options.lm_weight):
        raise PluginError(f"--lm-weight {options.lm_weight}: give a finite number.")
    model = _loaded(path, dictionary) if given is None else given
    if not isinstance(model, FairseqLanguageModel):
        raise PluginError(
            f"--lm-path {path} names a {type(model).__name__}, which is no language model: give "
            "one that was trained with --task language_modeling, or leave --lm-path out."
        )
    own = getattr(model.decoder, "dictionary", dictionary)
    # With --output-dictionary-size, the length alone is another one.
    if len(own) != len(dictionary) or own.symbols != dictionary.symbols:
        raise PluginError(
            f"--lm-path {path} has other symbols than the target, in number or order: train the "
            "language model with the target's dictionary (fairseq-preprocess --srcdict), or leave "
            "--lm-path out."
        )
    weights = next(models[0].parameters())
    return model.to(weights.device, weights.dtype)


def _loaded(path: str, dictionary: Any) -> Any:
    """The model of a checkpoint, whose symbols are those of the target."""
    task = _AnyModelTask(LanguageModelingConfig(), dictionary)
    return load_model(path, dictionary, dictionary, task)
