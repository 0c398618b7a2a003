"""Imports between the rooms of the package run one way."""

import re
from pathlib import Path

import pytest

import specdec_plugin
from tests.support.imports import Import, faults, imports_of

PACKAGE, TESTS = Path(specdec_plugin.__file__).parent, Path(__file__).parent
#: From the top to the bottom. Those of one level know nothing of each other.
LEVELS = [
    ["__init__", "__main__"],
    ["serve"],
    ["cli", "lab"],
    ["api"],
    ["tasks", "criterions"],
    ["methods"],
    ["decoding"],
    ["vocab"],
    ["engine"],
    ["models"],
    ["data", "fairseq_compat"],
    ["outputs", "textfiles", "progress", "folder", "subwords", "checksum"],
    ["errors"],
]


def test_imports_run_one_way():
    told = faults(imports_of(PACKAGE), LEVELS)
    assert not told, "\n".join(["Imports run one way, from the top to the bottom.", *told])


def test_every_room_has_a_level():
    rooms = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    rooms |= {path.stem for path in PACKAGE.glob("*.py")}
    assert rooms == {room for level in LEVELS for room in level}, "LEVELS lists other rooms."


def test_the_documented_order_is_this():
    text = (TESTS.parent / "docs" / "architecture.md").read_text("utf-8")
    (order,) = re.findall(r"Imports run one way:\n\n```text\n([^`]*)```", text)
    entries, *levels = LEVELS  # what imports everything has no place in the order
    assert entries == ["__init__", "__main__"]
    assert " ".join(order.split()) == " → ".join(", ".join(level) for level in levels)


def test_the_documented_packages_are_these():
    text = (TESTS.parent / "docs" / "architecture.md").read_text("utf-8")
    table = text.split("\n\n")[3]
    cells = re.findall(r"^\| (`[^|]*)", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)(?:/|\.py)`", cell)}
    assert named == {room for level in LEVELS for room in level} - {"__init__", "__main__"}


def test_every_package_has_its_tests():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    tested = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert packages - tested == set()


@pytest.fixture
def package(tmp_path):
    """Writes a package whose files have these texts, and tells its folder."""

    def write(**files):
        for name, text in {"__init__": "", **files}.items():
            path = tmp_path / "house" / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return tmp_path / "house"

    return write


ROOMS = [["__init__"], ["top", "other"], ["cellar"]]


class TestTheCheckItself:
    """On made-up packages."""

    @pytest.mark.parametrize(
        "line, text",
        [
            (1, "from ..top.roof import tile"),
            (1, "from ..top import roof"),
            (1, "import house.top.roof"),
            (1, "from house.top.roof import tile as other"),
            (2, "def late():\n    from ..top import roof"),
            (2, "try:\n    import house.top.roof\nexcept ImportError:\n    pass"),
        ],
    )
    def test_an_import_upwards_is_named(self, package, line, text):
        house = package(top__in__roof="tile = 1", cellar__in__coal=text)
        (told,) = faults(imports_of(house), ROOMS)
        wanted = f"cellar/coal.py, line {line}, imports top/roof.py, but cellar stands below top."
        assert told == wanted

    def test_one_downwards_is_none(self, package):
        text = "import os\nfrom fairseq import tasks\nfrom ..cellar.coal import lump\n"
        house = package(top__in__roof=text, cellar__in__coal="lump = 1")
        assert imports_of(house) == [Import("top/roof.py", 3, "cellar/coal.py")]
        assert faults(imports_of(house), ROOMS) == []

    def test_one_between_neighbours_is_named(self, package):
        house = package(top__in__roof="from ..other import door", other__in__door="")
        (told,) = faults(imports_of(house), ROOMS)
        assert told == "top/roof.py, line 1, imports other/door.py, but top stands beside other."

    def test_a_circle_inside_a_room_is_named(self, package):
        files = {"a": "from .b import x", "b": "from . import c", "c": "from .a import y"}
        house = package(**{f"cellar__in__{name}": text for name, text in files.items()})
        (told,) = faults(imports_of(house), ROOMS)
        circle = "cellar/a.py → cellar/b.py → cellar/c.py → cellar/a.py"
        assert told == f"These import each other in a circle: {circle}."

    def test_an_include_upwards_is_named(self, package):
        house = package(top__in__roof="")
        (house / "cellar").mkdir()
        (house / "top" / "roof.h").touch()
        (house / "cellar" / "coal.h").write_text('#pragma once\n#include "top/roof.h"\n', "utf-8")
        (told,) = faults(imports_of(house), ROOMS)
        assert told == "cellar/coal.h, line 2, imports top/roof.h, but cellar stands below top."

    def test_a_room_without_a_level_is_named(self, package):
        house = package(attic__in__box="from ..cellar.coal import lump", cellar__in__coal="")
        (told,) = faults(imports_of(house), ROOMS)
        assert "attic, which has no level" in told
