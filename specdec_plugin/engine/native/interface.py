"""What crosses from Python to the kernels, declared once, in Python.

The owner of a C++ header declares beside it what crosses: structures, objects that live in C++,
and numbers that both sides need. Types are written as C++ spells them. From these declarations
:func:`header_text` makes ``interface.h``, which the C++ headers include, and :func:`unit_text` the
one translation unit. The compiler then checks every size and offset. The signatures of functions
are read from the headers that define them.

Where memory is full, a function without a result raises ``MemoryError``, and one that makes an
object returns None: see :func:`made`. Threads that wait for one another take little room while they
compute, and must find it: else the process ends.

A kernel of one's own works alike: its module declares a :class:`Header` before the library is
first used, and that header is compiled with the others.
"""

import ctypes
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type, Union

#: The package: its headers are included by their paths in it.
ROOT = Path(__file__).resolve().parents[2]
_NUMBERS: Dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint16_t": ctypes.c_uint16,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class _Field(NamedTuple):
    spelling: str
    comment: str


class Function(NamedTuple):
    """An ``extern "C"`` function: the types of result and arguments, as C++ spells them."""

    result: str
    name: str
    arguments: Tuple[Tuple[str, str], ...]

    @classmethod
    def parse(cls, prototype: str) -> "Function":
        """Of ``result name(type argument, …)``, on any number of lines."""
        head, listed = " ".join(prototype.split()).rstrip(")").split("(")
        arguments = [_typed(each) for each in listed.split(", ") if each]
        return cls(*_typed(head), tuple(arguments))

    def __str__(self) -> str:
        return f"{self.result} {self.name}({self._listed})"

    @property
    def _listed(self) -> str:
        return ", ".join(f"{spelling} {name}" for spelling, name in self.arguments)

    @property
    def guarded(self) -> bool:
        """Whether Python calls it by :attr:`guard`."""
        return self.result == "void" or self.result.endswith("*")

    @property
    def guard(self) -> str:
        """What Python calls instead of it, where :attr:`guarded`. An exception would end Python.

        It returns whether the call was completed; that of a function with a pointer, null or it.
        """
        result = "int" if self.result == "void" else self.result
        return f"{result} {_GUARD}{self.name}({self._listed})"

    @property
    def guard_body(self) -> str:
        """The definition of :attr:`guard`."""
        call = f"{self.name}({', '.join(name for _, name in self.arguments)})"
        if self.result == "void":
            return f"return completed([&] {{ {call}; }});"
        return f"{self.result} made = nullptr; completed([&] {{ made = {call}; }}); return made;"


#: How the name of a function's guard begins.
_GUARD = "guarded_"
#: The head of a function's definition at the beginning of a line.
_DEFINED = re.compile(r'^(?:extern "C")? ?(\w[\w ]*\*? \w+\([^)]*\)) \{', re.MULTILINE)

_headers: Dict[Path, "Header"] = {}
_structures: Dict[str, Tuple[Any, Dict[str, _Field]]] = {}
_constants: Dict[str, str] = {}  # and enumerations: their definitions
_enums: "set[str]" = set()


def field(spelling: str, comment: str = "") -> Any:
    """A field of a :func:`structure`: its type in C++, and a comment for the header."""
    return _Field(spelling, comment)


def structure(cls: Type[Any]) -> Type[Any]:
    """Declare a structure of C++: the class's :func:`field` attributes, in their order."""
    fields = {name: each for name, each in vars(cls).items() if isinstance(each, _Field)}
    cls._fields_ = [(name, _kind(each.spelling)) for name, each in fields.items()]
    _structures[cls.__name__] = cls, fields
    return cls


def enumeration(name: str, numbers: Dict[str, int]) -> None:
    """Declare an ``enum class``."""
    members = ", ".join(f"{member} = {number}" for member, number in numbers.items())
    _constants[name] = f"enum class {name} : int {{ {members} }};"
    _enums.add(name)


def constants(**numbers: Union[int, float]) -> None:
    """Declare numbers that have these names in C++."""
    for name, number in numbers.items():
        kind = "double" if isinstance(number, float) else "int64_t" if number >> 31 else "int"
        _constants[name] = f"constexpr {kind} {name} = {number};"


class Header:
    """A C++ header whose ``extern "C"`` functions, at its end, Python calls.

    Args:
        beside: ``__file__`` of the Python module that declares it.
        name: the header's, in the same folder.
        owned: constructors of classes of which Python holds objects, ``Class name(type argument,
            …)``. The functions ``name_new`` and ``name_free`` are made for them.
    """

    def __init__(self, beside: str, name: str, *owned: str) -> None:
        self.path = Path(beside).resolve().parent / name
        _, _, exported = self.path.read_text(encoding="utf-8").partition('extern "C"')
        self.functions = [Function.parse(each) for each in _DEFINED.findall(exported)]
        self.definitions: List[str] = []
        for each in owned:
            cls, own, arguments = Function.parse(each)
            new = Function(f"{cls}*", f"{own}_new", arguments)
            free = Function("void", f"{own}_free", ((f"{cls}*", "object"),))
            self.functions += [new, free]
            passed = ", ".join(argument for _, argument in arguments)
            self.definitions.append(f"{new} {{ return new {cls}({passed}); }}")
            self.definitions.append(f"{free} {{ delete object; }}")
        _headers[self.path] = self


def _typed(declared: str) -> Tuple[str, str]:
    spelling, name = declared.removeprefix("[[maybe_unused]] ").rsplit(" ", 1)
    return spelling, name


def _kind(spelling: str, pointed: bool = False) -> Any:
    """The type by which ctypes passes what C++ spells so.

    Args:
        spelling: of the type.
        pointed: whether pointers to structures must point to such ones; else, as in fields, any
            address will do.
    """
    base = spelling.replace("const", "").strip(" *")
    if spelling.endswith("*"):
        known = pointed and base in _structures
        return ctypes.POINTER(_structures[base][0]) if known else ctypes.c_void_p
    if spelling in _structures:
        return _structures[spelling][0]
    return ctypes.c_int if spelling in _enums else _NUMBERS[spelling]


def headers() -> List[Header]:
    """All that are declared, in the order of their paths."""
    return [_headers[path] for path in sorted(_headers)]


def _guarded() -> List[Function]:
    return [each for header in headers() for each in header.functions if each.guarded]


def bind(library: Any) -> None:
    """Tell the functions of a loaded library their types, and take their guards for them."""
    for function in [each for header in headers() for each in header.functions]:
        found = getattr(library, _GUARD * function.guarded + function.name)
        found.restype = _check if function.result == "void" else _kind(function.result)
        found.argtypes = [_kind(spelling, pointed=True) for spelling, _ in function.arguments]
        setattr(library, function.name, found)


def _check(completed: int) -> None:
    """Refuse what a call could not complete."""
    if not completed:
        raise MemoryError("there is no room for what a native kernel computes")


def made(handle: Optional[int]) -> int:
    """An object that a function made.

    Raises:
        MemoryError: it made none.
    """
    _check(handle is not None)
    assert handle is not None
    return handle


def header_text() -> str:
    """``interface.h``."""
    functions = [function for header in headers() for function in header.functions]
    structures: Dict[str, List[str]] = {}
    for name in sorted(_structures):
        _define(name, structures)
    lines = [*map(str, functions), *(line for each in structures.values() for line in each)]
    pointed = set(re.findall(r"([A-Z]\w*)\*", "\n".join(lines)))
    return "\n".join(
        [
            "// Made from the declarations in Python; see engine/native/interface.py.",
            "#pragma once",
            "#include <cstddef>",
            "#include <cstdint>",
            "namespace native {",
            *(f"{_key_of(name)} {name};" for name in sorted(pointed)),
            *(_constants[name] for name in sorted(_constants)),
            *(line for lines in structures.values() for line in lines),
            'extern "C" {',
            *(f"{function};" for function in functions),
            *(f"{each.guard};" for each in _guarded()),
            "}",
            "}  // namespace native",
            "",
        ]
    )


def _key_of(name: str) -> str:
    """The key word of a type's declaration."""
    return "struct" if name in _structures else "class"


def _define(name: str, written: Dict[str, List[str]]) -> None:
    """Write a structure and its checks, behind the structures that it holds."""
    if name in written:
        return
    cls, fields = _structures[name]
    for held in fields.values():
        if held.spelling in _structures:
            _define(held.spelling, written)
    checks = [f"static_assert(sizeof({name}) == {ctypes.sizeof(cls)});"]
    for each in fields:
        checks.append(f"static_assert(offsetof({name}, {each}) == {getattr(cls, each).offset});")
    written[name] = [
        f"struct {name} {{",
        *(f"  {each.spelling} {own};  // {each.comment}" for own, each in fields.items()),
        "};",
        *checks,
    ]


def unit_text() -> str:
    """The translation unit: the headers, and what is made for their classes."""
    paths = [header.path for header in headers()]
    included = [path.relative_to(ROOT) if ROOT in path.parents else path for path in paths]
    return "\n".join(
        [
            '#include "engine/native/full_memory.h"',
            *(f'#include "{path.as_posix()}"' for path in included),
            "namespace native {",
            'extern "C" {',
            *(definition for header in headers() for definition in header.definitions),
            *(f"{each.guard} {{ {each.guard_body} }}" for each in _guarded()),
            "}",
            "}  // namespace native",
            "",
        ]
    )
