"""The package as pip and fairseq see it."""

import os
import re
import shutil
from argparse import Namespace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import setuptools  # noqa: F401  (gives distutils where Python no longer has it)
import torch
from packaging.requirements import Requirement

from specdec_plugin import fairseq_compat
from specdec_plugin.fairseq_compat.user_dir import FOLDER, PluginPath
from tests.support.command_lines import PLUGIN, ROOT, TRACEBACK, generate_args, run_cli


@pytest.fixture(scope="module")
def declared() -> Any:
    """The distribution that ``setup.py`` declares."""
    from distutils.core import run_setup

    before = os.getcwd()
    os.chdir(ROOT)
    try:
        return run_setup("setup.py", stop_after="init")
    finally:
        os.chdir(before)


# What importing it changes


def test_the_list_of_changes_has_those_of_the_import() -> None:
    """And of the processes, which another module of it changes."""
    entry = Path(PLUGIN, "__init__.py").read_text("utf-8")
    listed = fairseq_compat.__doc__ or ""
    changing = re.findall(r"from \.fairseq_compat\.(\w+) import", entry)
    assert {"checkpoints", "numpy_names", "plain_values"} <= {*changing}
    for module in {*changing, "workers"} - {"importing"}:
        assert f":mod:`.{module}`" in listed, module


# Packaging


def test_every_module_is_packaged(declared: Any) -> None:
    folders = {path.parent.relative_to(ROOT) for path in Path(PLUGIN).rglob("*.py")}
    assert {".".join(folder.parts) for folder in folders} == set(declared.packages)


def test_pythons_are_those_that_its_fairseq_runs_on(declared: Any) -> None:
    wanted = [Requirement(line) for line in declared.install_requires]
    (fairseq,) = [one for one in wanted if one.name.startswith("fairseq")]
    assert str(fairseq) == "fairseq-fixed==0.12.3.1"  # published for Python 3.11 and newer
    assert declared.python_requires == ">=3.11"


def test_the_matrix_has_the_declared_pythons_and_the_oldest_torch(declared: Any) -> None:
    makefile = (Path(ROOT) / "Makefile").read_text().replace("\\\n", "")
    (line,) = re.findall(r"^MATRIX \?= (.+)$", makefile, re.MULTILINE)
    entries = {tuple(entry.split("/")) for entry in line.split()}
    named = "Programming Language :: Python :: 3."
    pythons = {
        one.removeprefix(named) for one in declared.get_classifiers() if one.startswith(named)
    }
    (torch,) = [Requirement(one) for one in declared.install_requires if one.startswith("torch")]
    oldest = f"{torch.specifier}".removeprefix(">=")
    for python in pythons:
        tested = {(torch, numpy) for version, torch, numpy in entries if version == f"3.{python}"}
        assert ("newest", "newest") in tested
        assert len(tested) == 2
    # PyTorch and NumPy 1 have no older builds for later Pythons.
    for python in ("11", "12"):
        assert ("3." + python, f"{oldest}.0", "1.26.4") in entries


def test_every_console_program_has_help_with_an_example(declared: Any) -> None:
    programs = declared.entry_points["console_scripts"]
    assert programs
    for line in programs:
        name, _, value = (part.strip() for part in line.partition("="))
        assert callable(EntryPoint(name, value, "console_scripts").load())
        printed = run_cli([name, "--help"]).stdout
        assert "example" in printed.lower(), name
        assert printed.count(name) >= 2, f"{name} --help: the example does not call the program"


# --user-dir


def test_running_the_package_prints_the_folder_to_use(tmp_path: Path) -> None:
    printed = run_cli(["python", "-m", "specdec_plugin"], cwd=tmp_path).stdout
    assert printed == PLUGIN + "\n" == FOLDER + "\n"
    assert os.path.isfile(os.path.join(FOLDER, "__init__.py"))


IMPORT_TWICE = """
import sys
from argparse import Namespace
from fairseq.utils import import_user_module
from fairseq.tasks import TASK_REGISTRY

for folder in sys.argv[1:]:
    if folder == "package":
        import specdec_plugin
    else:
        import_user_module(Namespace(user_dir=folder))

import specdec_plugin.tasks.parallel_decoding as ours
assert TASK_REGISTRY["specdec_translation"] is ours.SpecdecTranslationTask
print(specdec_plugin.__path__[0])
"""


def test_any_copy_stands_for_the_one_that_is_loaded(tmp_path: Path) -> None:
    copy, link = (str(tmp_path / name / "specdec_plugin") for name in ("copy", "link"))
    shutil.copytree(PLUGIN, copy)
    os.mkdir(os.path.dirname(link))
    os.symlink(PLUGIN, link)
    for order in (["package", copy, link, PLUGIN], [copy, PLUGIN, "package"]):
        done = run_cli(["python", "-c", IMPORT_TWICE, *order], cwd=tmp_path)
        loaded = PLUGIN if order[0] == "package" else copy
        assert done.stdout.splitlines()[-1] == loaded
        other = PLUGIN if loaded == copy else copy
        assert f"{loaded} is loaded already and serves for --user-dir {other}" in done.stderr
        assert f"--user-dir {link}" not in done.stderr  # the same folder: nothing to tell


def test_a_user_dir_that_only_shares_the_name_is_another(tmp_path: Path) -> None:
    stranger = tmp_path / "specdec_plugin"
    stranger.mkdir()
    (stranger / "__init__.py").touch()
    path = PluginPath([PLUGIN])
    assert str(stranger) not in path
    assert str(tmp_path / "missing") not in path
    assert 3 not in path
    assert PLUGIN in path
    assert list(path) == [PLUGIN]


# Logging


@pytest.mark.parametrize("library", ["hydra.core.utils", "matplotlib.font_manager"])
def test_libraries_are_quiet_where_fairseq_lets_every_logger_speak(library: str) -> None:
    code = (
        "import logging, specdec_plugin; logging.getLogger().setLevel(logging.NOTSET); "
        f"print(logging.getLogger({library!r}).isEnabledFor(logging.DEBUG))"
    )
    done = run_cli(["python", "-c", code], fresh=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_no_program_starts_with_a_notice_about_speech() -> None:
    other = "import logging; logging.getLogger('fairseq.tasks.text_to_speech').info('another')"
    done = run_cli(["python", "-c", f"import specdec_plugin; {other}"], fresh=True)
    assert "tensorboardX" not in done.stderr and "another" in done.stderr


@pytest.mark.parametrize("level, shown", [("", False), ("info", False), ("debug", True)])
def test_causes_are_told_only_to_those_who_ask(level: str, shown: bool) -> None:
    """They are tracebacks, and a module of fairseq lets the log show them."""
    cause = "import logging; logging.getLogger('specdec_plugin.a.b').debug('a cause')"
    code = f"import specdec_plugin, fairseq_cli.generate; {cause}"
    done = run_cli(["python", "-c", code], fresh=True, env={"LOGLEVEL": level} if level else {})
    assert ("a cause" in done.stderr) == shown


def test_a_refusal_in_a_program_has_no_traceback(corpus: Any, tmp_path: Path) -> None:
    torch.save(
        {"model": {}, "args": Namespace(arch="transformer", encoder_layers="x")}, tmp_path / "a.pt"
    )
    done = run_cli(generate_args(corpus.data_dir, tmp_path / "a.pt"), fresh=True, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert "its options describe no model" in done.stderr.splitlines()[-1]
