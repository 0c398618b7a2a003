"""What documents name exists, and they name every decoding method and option."""

import re
from pathlib import Path

import pytest

from specdec_plugin.cli.options import main
from specdec_plugin.methods.registry import names

ROOT = Path(__file__).resolve().parent.parent
#: No results of tests or virtual environments that lie beside.
FOLDERS = ("", "checkpoints", "data_scripts", "examples")
DOCUMENTS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).glob("**/README.md" if folder else "*.md")
)


def test_the_readme_names_every_method():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert not set(names()) - set(re.findall(r"[\w-]+", readme))


def test_the_table_of_options_is_that_of_the_methods(capsys):
    main([])
    # Else: python -m specdec_plugin.cli.options >docs/options.md
    assert (ROOT / "docs" / "options.md").read_text("utf-8") == capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_programs_that_a_document_names_exist(document):
    text = document.read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    local = [link for link in links if not link.startswith("http")]
    assert all((document.parent / link).exists() for link in local)
    own = re.findall(r"\b(?:data_scripts|examples|specdec_plugin)/[\w./]*\w", text)
    assert all((ROOT / path).exists() for path in own)
    programs = set(re.findall(r"^(?:\.venv/bin/)?(specdec-[\w-]+)", text, re.MULTILINE))
    setup = (ROOT / "setup.py").read_text("utf-8")
    assert all(f'"{program} = ' in setup for program in programs)
