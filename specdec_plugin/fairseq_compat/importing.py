"""The import of fairseq: faster, and with a sentence where this version of Python refuses it."""

import builtins
import importlib
import pkgutil
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Optional, Sequence

#: Modules of fairseq that judge classifiers, and what they import for their metrics alone. No
#: program of ours classifies, and the two libraries take a quarter of the time of all imports.
_CLASSIFIERS = ("fairseq.tasks.audio_classification", "fairseq.criterions.sentence_prediction")
_OF_METRICS = ("sklearn", "sklearn.metrics", "scipy.stats")


class _Later:
    """Stands for a module, or for a function of it, until the function is called.

    Args:
        name: with dots.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> "_Later":
        if name.startswith("__"):  # Python asks for those of any object
            raise AttributeError(name)
        return _Later(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return pkgutil.resolve_name(self._name)(*arguments, **named)


@contextmanager
def _metrics_imported_later() -> Iterator[None]:
    """Let the modules of :data:`_CLASSIFIERS` import metrics when they first use them."""
    original = builtins.__import__

    def without_metrics(
        name: str,
        globals: Optional[Mapping[str, Any]] = None,
        locals: Optional[Mapping[str, Any]] = None,
        fromlist: Optional[Sequence[str]] = (),
        level: int = 0,
    ) -> Any:
        importer = (globals or {}).get("__name__")
        if importer in _CLASSIFIERS and name in _OF_METRICS and fromlist:
            return _Later(name)
        return original(name, globals, locals, fromlist or (), level)

    builtins.__import__ = without_metrics
    try:
        yield
    finally:
        if builtins.__import__ is without_metrics:
            builtins.__import__ = original


def import_fairseq() -> None:
    """Import fairseq.

    Raises:
        ImportError: this version of Python needs a mend of fairseq. fairseq's own error names an
            argument's type, and neither cause nor cure.
    """
    try:
        with _metrics_imported_later():
            importlib.import_module("fairseq")
    except TypeError as error:
        if "| None is not callable" not in str(error):
            raise
        raise ImportError(
            "fairseq does not import on this version of Python, because it knows types by how "
            "older versions print them. Run data_scripts/mend_fairseq.sh of the plugin's "
            "repository with the path of this Python, or take Python 3.13."
        ) from None
