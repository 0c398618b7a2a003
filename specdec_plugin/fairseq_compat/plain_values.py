"""What fairseq evaluates as Python code, which a checkpoint can hold: plain values alone pass here.

fairseq calls ``eval`` for options such as ``[(512, 3)] * 20``, at any depth of a checkpoint's
options. So each of its modules gets an ``eval`` of ours. It knows values and their arithmetic.
"""

import ast
import functools
import importlib.abc
import importlib.machinery
import operator
import os
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Type

import fairseq

from ..errors import PluginError

_OPERATIONS: Dict[Type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COLLECTIONS: Dict[Type[ast.AST], Callable[..., Any]] = {
    ast.Tuple: tuple,
    ast.List: list,
    ast.Set: set,
}
#: Items of the longest sequence that arithmetic makes. A short text could fill the memory.
_LONGEST = 1000
#: The name in a module of fairseq that tells it from others; ``import *`` leaves it out.
_MARK = "_evaluates_plain_values"
_PYTHONS = eval
#: What Python raises where a text is no expression, or its operands do not fit.
_FAILURES = (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError)


class CodeRefusedError(PluginError):
    """A text that fairseq would run as code holds more than plain values.

    Attributes:
        text: that fairseq would run.
    """

    def __init__(self, text: str) -> None:
        super().__init__(
            f"fairseq would run {text[:60]!r} as code, and it holds more than plain values. "
            "Nothing in it was run. Give numbers, strings, lists or dictionaries of them there."
        )
        self.text = text


def guarded_eval(text: Any, *scopes: Any) -> Any:
    """What fairseq's modules call as ``eval``: :func:`plain_value`.

    Modules that got it by ``import *`` from one of fairseq's have Python's own.
    """
    caller = sys._getframe(1)
    if _MARK in caller.f_globals:
        return plain_value(text)
    return _PYTHONS(text, *(scopes or (caller.f_globals, caller.f_locals)))


def plain_value(text: Any) -> Any:
    """The value of literals and of their arithmetic.

    Raises:
        CodeRefusedError: the text holds anything else, such as a name or a call.
        TypeError: it is no text. fairseq's ``eval_bool`` takes its default then.
    """
    if not isinstance(text, str):
        raise TypeError(f"eval() takes a text here, not {type(text).__name__}")
    try:
        return _value(ast.parse(text.lstrip(" \t"), mode="eval").body)
    except _FAILURES:
        raise CodeRefusedError(text) from None


def _value(node: Optional[ast.expr]) -> Any:
    """The value of a node; ValueError if it is not plain."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return _COLLECTIONS[type(node)](map(_value, node.elts))
    if isinstance(node, ast.Dict):
        return dict(zip(map(_value, node.keys), map(_value, node.values)))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left), _value(node.right)
        if _length(node.op, left, right) > _LONGEST:
            raise ValueError
        return _OPERATIONS[type(node.op)](left, right)
    raise ValueError


def _length(operation: ast.operator, left: Any, right: Any) -> int:
    """How many items the result has, before it is made; 0 of a number."""
    sequences = [each for each in (left, right) if hasattr(each, "__len__")]
    times = [each for each in (left, right) if isinstance(each, int)]
    factor = times[0] if times and isinstance(operation, ast.Mult) else 1
    return factor * sum(map(len, sequences))


class _Guard(importlib.abc.MetaPathFinder):
    """Finds modules of fairseq that are imported later, which get our ``eval`` before they run."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """As Python calls it; None for modules of others."""
        if not name.startswith("fairseq.") and not any(map(_is_fairseqs, path or ())):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec and spec.loader
        if isinstance(loader, importlib.machinery.SourceFileLoader):
            # The loader stays of its class, which others ask for sources and resources.
            vars(loader)["exec_module"] = functools.partial(_run, loader.exec_module)
        return spec


def _run(exec_module: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Run a module that has our ``eval``."""
    _give(module)
    exec_module(module)


def _give(module: ModuleType) -> None:
    vars(module).setdefault("eval", guarded_eval)
    vars(module)[_MARK] = True


@functools.cache
def _folders() -> List[str]:
    """fairseq's folder, and that of its examples, which may be a link out of it."""
    folder = os.path.dirname(os.path.abspath(str(fairseq.__file__)))
    return [folder, os.path.realpath(folder), os.path.realpath(os.path.join(folder, "examples"))]


def _is_fairseqs(path: Any) -> bool:
    """Whether a file or a folder lies in fairseq's, as the code of its examples does."""
    return isinstance(path, str) and any(
        path == folder or path.startswith(folder + os.sep) for folder in _folders()
    )


def _fairseqs_modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            file = vars(module).get("__file__")
            if name.partition(".")[0] == "fairseq" or _is_fairseqs(file):
                yield module


def install_plain_values() -> None:
    """Let no module of fairseq evaluate more than plain values (idempotent)."""
    for module in _fairseqs_modules():
        _give(module)
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Guard())
