"""Who imports whom in a package, read from its source."""

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


class Import(NamedTuple):
    """An import of one file of the package by another.

    Attributes:
        file: that imports, as a path from the package's folder.
        line: of the statement.
        target: the imported file, likewise.
    """

    file: str
    line: int
    target: str


def imports_of(package: Path) -> List[Import]:
    """All imports inside a package: those of its modules, and the includes of its headers.

    Args:
        package: its folder. Imports that a function makes are among them; those whose name is made
            at run time are not.
    """
    found = []
    for path in sorted(package.rglob("*.py")):
        for line, name in _imported(path, package):
            target = _file_of(name, package)
            if target is not None:
                found.append(Import(str(path.relative_to(package)), line, target))
    for path in sorted(package.rglob("*.h")):
        text = path.read_text("utf-8")
        for match in _INCLUDE.finditer(text):
            if (package / match[1]).exists():
                line = text.count("\n", 0, match.start()) + 1
                found.append(Import(str(path.relative_to(package)), line, match[1]))
    return found


def _imported(path: Path, package: Path) -> Iterator["tuple[int, str]"]:
    """Line and full name of everything that a module imports."""
    own = [package.name, *path.relative_to(package).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) + 1 - node.level] if node.level else []
            for alias in node.names:
                parts = [*base, *(node.module.split(".") if node.module else []), alias.name]
                yield node.lineno, ".".join(parts)


def _file_of(name: str, package: Path) -> Optional[str]:
    """The module that holds a name, which is a module or something in one; None for others."""
    first, *parts = name.split(".")
    if first != package.name:
        return None
    for count in range(len(parts), -1, -1):
        place = package.joinpath(*parts[:count])
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.exists() and path.parent != package.parent:
                return str(path.relative_to(package))
    return None


def room_of(file: str) -> str:
    """The folder or module at the top of the package that a file belongs to."""
    return Path(file).parts[0].removesuffix(".py")


def faults(imports: Sequence[Import], levels: Sequence[Sequence[str]]) -> List[str]:
    """A sentence for each import between rooms that does not go down, and for each circle.

    Args:
        imports: of the package.
        levels: its rooms from the top to the bottom. Those of one level know nothing of each other.
    """
    level = {room: number for number, rooms in enumerate(levels) for room in rooms}
    told = []
    for each in imports:
        above, below = room_of(each.file), room_of(each.target)
        unknown = [room for room in (above, below) if room not in level]
        if unknown:
            told.append(f"{each.file} belongs to or imports {unknown[0]}, which has no level.")
        elif above != below and level[above] >= level[below]:
            stands = "beside" if level[above] == level[below] else "below"
            told.append(
                f"{each.file}, line {each.line}, imports {each.target}, but {above} stands "
                f"{stands} {below}."
            )
    circle = circle_of(imports)
    if circle:
        told.append(f"These import each other in a circle: {' → '.join(circle)}.")
    return told


def circle_of(imports: Sequence[Import]) -> List[str]:
    """Files that import each other, the first also at the end; none if there are none."""
    targets: Dict[str, Set[str]] = {}
    for each in imports:
        if each.file != each.target:
            targets.setdefault(each.file, set()).add(each.target)
    done: Set[str] = set()

    def visit(file: str, path: List[str]) -> List[str]:
        if file in path:
            return [*path[path.index(file) :], file]
        if file in done:
            return []
        for target in sorted(targets.get(file, ())):
            found = visit(target, [*path, file])
            if found:
                return found
        done.add(file)
        return []

    return next((found for file in sorted(targets) if (found := visit(file, []))), [])
