"""BLEU of validations (``--eval-bleu``), whose search is built together with the model."""

import contextlib
import json
import os
from argparse import Namespace
from dataclasses import fields
from typing import Any, Callable, Dict, Iterator

from fairseq.data.encoders import TOKENIZER_REGISTRY
from fairseq.dataclass.configs import GenerationConfig

from ..errors import PluginError
from ..fairseq_compat.generation import check_fairseqs_search
from ..fairseq_compat.options import flag_of, with_option
from ..fairseq_compat.programs import check_package, check_subwords
from ..methods.options import check_value

#: What ``--eval-bleu-args`` may have.
_SEARCH = {item.name: item for item in fields(GenerationConfig)}


def check_bleu(options: Any) -> None:
    """Refuse options of ``--eval-bleu`` that fairseq ignores, or tells of in a traceback.

    Args:
        options: those of a fairseq task, which may have none of these.

    Raises:
        PluginError: names the option, and the cure.
    """
    if not getattr(options, "eval_bleu", False):
        return
    given = _read(options, "eval_bleu_args")
    for name in given:
        if name not in _SEARCH:
            raise PluginError(
                f"--eval-bleu-args has {name}, which is no option of a search: give some of those "
                "that fairseq-generate has, such as beam and max_len_b."
            )
    with of_validations():
        for name, value in given.items():
            check_value(_SEARCH[name], value)
        check_fairseqs_search(Namespace(**{"beam": 5, **given}), typed=False)
    _read(options, "eval_bleu_detok_args")
    kind = options.eval_bleu_detok
    if kind not in TOKENIZER_REGISTRY:
        raise PluginError(
            f"--eval-bleu-detok {kind} is unknown: give one of {', '.join(TOKENIZER_REGISTRY)}."
        )
    check_package("--eval-bleu-detok", "tokenizer", kind)
    check_subwords("--eval-bleu-remove-bpe", options.eval_bleu_remove_bpe)


def check_files(config: Any) -> None:
    """Refuse files that a search would miss at the first validation.

    Args:
        config: the decoding options.

    Raises:
        PluginError: names the option, and the file.
    """
    for name in ("drafter_path", "vocab_clusters", "drafter_vocab_clusters"):
        path = getattr(config, name, None)
        if path is not None and not os.path.exists(path):
            raise PluginError(f"{flag_of(name)} {path} is not there. Check the path.")


def with_beam(options: Any, method: Any) -> Any:
    """fairseq's generation options with a number of beams, which ``--eval-bleu-args`` may lack.

    Args:
        options: which.
        method: the class whose default it is.
    """
    if getattr(options, "beam", None) is not None:
        return options
    return with_option(options, "beam", method.default_beam or 5)


def _read(options: Any, name: str) -> Dict[str, Any]:
    """The object in an option that is JSON."""
    given = getattr(options, name)
    try:
        found = json.loads(given)
    except (json.JSONDecodeError, TypeError):
        found = None
    if not isinstance(found, dict):
        raise PluginError(
            f"{flag_of(name)} {given} is no object of JSON: give one such as '{{\"beam\": 4}}'."
        )
    return found


@contextlib.contextmanager
def of_validations() -> Iterator[None]:
    """Let a refusal tell that it is about validations."""
    try:
        yield
    except PluginError as error:
        raise PluginError(f"The search of --eval-bleu: {error}") from None


class LateGenerator:
    """A search that is built when the first batch is decoded.

    fairseq builds the one of ``--eval-bleu`` before the model has its weights, type and device. It
    does so too for its hub, which decodes nothing with it.

    Args:
        build: gives the search, which has fairseq's ``generate``.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._search: Any = None

    def __getattr__(self, name: str) -> Any:
        """What the search has, such as ``generate``."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self._search is None:
            with of_validations():
                self._search = self._build()
        return getattr(self._search, name)
