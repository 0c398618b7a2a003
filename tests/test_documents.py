"""What documents name exists, they name every method and option, and they are short."""

import ast
import re
from pathlib import Path

import pytest

from specdec_plugin.cli.options import main
from specdec_plugin.methods.registry import names

ROOT = Path(__file__).resolve().parent.parent
#: No results of tests or virtual environments that lie beside.
FOLDERS = ("", "checkpoints", "data_scripts", "docs", "examples")
DOCUMENTS = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).glob("*.md" if folder in ("", "docs") else "**/README.md")
)
PAGES = sorted((ROOT / "docs").glob("*.md"))
#: Documents that a user reads from beginning to end.
READ = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
LINES, WORDS, SENTENCE = 150, 1800, 25


def name_of(path):
    return str(path.relative_to(ROOT))


def without_code(text):
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """What a link may name behind ``#``, as GitHub and MkDocs make it of headings."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text("utf-8")), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"\s", "-", heading) for heading in plain}


def paragraphs(text):
    """Words of each sentence, by paragraph: no code, tables, headings or links' addresses."""
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", without_code(text), flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. |> |\||#))", text)
    for block in blocks:
        if re.match(r"\s*(?:\||#|:::|> )", block):
            continue
        parts = re.split(r"(?<=[.?!:;])[\s*_]+", re.sub(r"`[^`]*`", "code", block))
        counts = [len(re.findall(r"\w[\w'’-]*", part)) for part in parts]
        if any(counts):
            yield [count for count in counts if count]


def test_the_readme_names_every_method():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert not set(names()) - set(re.findall(r"[\w-]+", readme))


def test_the_readme_is_short_and_names_the_two_commands():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= LINES
    assert any(line.startswith("make demo") for line in lines)
    assert any(line.startswith("make test") for line in lines)


def test_the_table_of_options_is_that_of_the_methods(capsys):
    main([])
    # Else: python -m specdec_plugin.cli.options >docs/options.md
    assert (ROOT / "docs" / "options.md").read_text("utf-8") == capsys.readouterr().out


def test_the_site_lists_every_page_once():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    assert sorted(re.findall(r": (\S+\.md)$", nav, re.MULTILINE)) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_read_in_ten_minutes(page):
    assert len(page.read_text("utf-8").split()) <= WORDS


@pytest.mark.parametrize("document", READ, ids=name_of)
def test_sentences_are_short(document):
    found = list(paragraphs(document.read_text("utf-8")))
    long = [counts for counts in found if sum(counts) > SENTENCE * len(counts)]
    assert not long, "Words of each sentence, of paragraphs with long ones."


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_and_programs_that_a_document_names_exist(document):
    text = document.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", text):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
    own = re.findall(r"\b(?:data_scripts|examples|specdec_plugin)/[\w./-]*\w", text)
    assert all((ROOT / path).exists() for path in own)
    programs = set(re.findall(r"^(?:\.venv/bin/)?(specdec-[\w-]+)", text, re.MULTILINE))
    setup = (ROOT / "setup.py").read_text("utf-8")
    assert all(f'"{program} = ' in setup for program in programs)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_python_in_a_document_compiles(document):
    text = document.read_text("utf-8")
    for code in re.findall(r"^```python[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        compile(code, name_of(document), "exec")


def test_python_of_the_page_on_python_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for code in blocks:
        exec(compile(code, "python.md", "exec"), {})
    assert capsys.readouterr().out.count("El archivo") == 6


def texts_of_the_code():
    """The strings of each file, one behind the other, as the compiler joins them."""
    for path in (ROOT / "specdec_plugin").glob("**/*.py"):
        strings = [
            node
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, (ast.Constant, ast.JoinedStr))
        ]
        for node in strings:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            yield "…".join(
                each.value if isinstance(each, ast.Constant) else ""
                for each in parts
                if not isinstance(each, ast.Constant) or isinstance(each.value, str)
            )


def test_quoted_messages_are_those_of_the_code():
    pages = [page.read_text("utf-8") for page in PAGES if page.name.startswith("messages")]
    quoted = re.findall(r"^\| `([^`]+)` \|", "\n".join(pages), re.MULTILINE)
    assert len(quoted) > 150
    code = "\n".join(texts_of_the_code())
    parts = [part.strip() for message in quoted for part in message.split("…")]
    assert not [part for part in parts if part not in code]


def test_the_papers_are_cited_alike():
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    citation = (ROOT / "CITATION.cff").read_text("utf-8").split("references:")[1]
    titles = re.findall(r"^    title: \"?(.*?)\"?$", citation, re.MULTILINE)
    assert len(titles) == 5
    assert all(title in readme for title in titles)
