"""What docstrings refer to, such as :meth:`.Drafter.propose`, exists."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("specdec_plugin", "data_scripts")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
ROLE = re.compile(r":(meth|func|class|mod|data|attr|exc):`(?:[^`<]*<)?~?\.*([\w.\s]+)>?`")
#: Packages of others, whose names are not looked up.
OTHERS = {"concurrent", "fairseq", "torch", "triton"}


def add_names(node, owner, found):
    """Note what a piece of code defines, with its class ('' for none)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            found[child.name].add("")
            add_names(child, child.name, found)
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[child.name].add(owner)
        elif isinstance(child, (ast.Name, ast.Attribute)) and isinstance(child.ctx, ast.Store):
            found[child.id if isinstance(child, ast.Name) else child.attr].add(owner)
        add_names(child, owner, found)


@pytest.fixture(scope="module")
def names():
    """The classes that define a name."""
    found = defaultdict(set)
    for path in FILES:
        found[path.stem].add("")
        found[path.parent.name].add("")
        add_names(ast.parse(path.read_text("utf-8")), "", found)
    return found


def is_near(name, tree, line, names):
    """Whether the innermost class around a line, if there is one, or its base has a name."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.lineno <= line <= node.end_lineno
    ]
    if not around:
        return True
    own = max(around, key=lambda node: node.lineno)
    if {base.id for base in own.bases if isinstance(base, ast.Name)} & names[name]:
        return True
    inside = [*ast.walk(own)]
    found = {node.id for node in inside if isinstance(node, ast.Name)}
    found |= {node.attr for node in inside if isinstance(node, ast.Attribute)}
    return name in found | {node.name for node in inside if isinstance(node, ast.FunctionDef)}


def missing(text, names):
    """The references of a file that lead nowhere."""
    tree, told = ast.parse(text), []
    for each in ROLE.finditer(text):
        *before, last = re.sub(r"\s", "", each[2]).split(".")
        if before and before[0] in OTHERS:
            continue
        known = last in names
        if before and before[-1][:1].isupper():
            known = before[-1] in names.get(last, ())
        elif not before and each[1] in ("meth", "attr"):
            line = text.count("\n", 0, each.start()) + 1
            known = known and is_near(last, tree, line, names)
        if not known:
            told.append(each[2])
    return told


def test_references_of_docstrings_exist(names):
    told = {str(path.relative_to(ROOT)): missing(path.read_text("utf-8"), names) for path in FILES}
    assert not {path: found for path, found in told.items() if found}


def test_one_that_leads_nowhere_is_found():
    text = '''
class A:
    """{}"""
    def one(self):
        self.two = 1

def three():
    pass
'''
    names = defaultdict(set)
    add_names(ast.parse(text), "", names)
    right = ":meth:`.A.one`, :attr:`see <.A.two>`, :func:`..three`, :class:`.A`, :meth:`one`"
    assert missing(text.format(right), names) == []
    wrong = ":meth:`.A.three`, :func:`four`, :meth:`three`"
    assert missing(text.format(wrong), names) == ["A.three", "four", "three"]
