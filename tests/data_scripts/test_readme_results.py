"""data_scripts/readme_results.py: the README's table and figure are those of committed results."""

import json
import re

import pytest
import readme_results

from specdec_plugin.errors import PluginError
from tests.support.files import some


def test_the_readme_has_the_present_table():
    readme = (readme_results.ROOT / "README.md").read_text("utf-8")
    # Else: python data_scripts/readme_results.py
    assert readme_results.with_table(readme) == readme


#: By page: tables that a program makes.
TABLES = {
    "benchmarks": 1,
    "choosing": 1,
    "corpora": 2,
    "half-precision": 2,
    "models": 3,
    "never-slower": 6,
}
PAGES = [page for page in readme_results.PAGES if page.stem in TABLES]


@pytest.mark.parametrize("page", readme_results.PAGES)
def test_the_pages_have_the_present_tables(page):
    text = page.read_text("utf-8")
    assert readme_results.with_made_tables(text) == text
    assert len(readme_results.MADE.findall(text)) == TABLES.get(page.stem, 0)


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_digit_in_a_page_is_found(page):
    text = page.read_text("utf-8")
    found = readme_results.MADE.search(text)
    number = re.compile(r"\d\.\d+").search(text, found.end("begin"))
    assert number.end() < found.end()
    changed = f"{text[: number.start()]}7.77{text[number.end() :]}"
    assert readme_results.with_made_tables(changed) == text


def test_the_readme_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    (tmp_path / "README.md").write_text("old\n", "utf-8")
    monkeypatch.setattr(readme_results, "ROOT", tmp_path)
    monkeypatch.setattr(readme_results, "with_table", lambda readme: "new \ud800")
    with pytest.raises(UnicodeEncodeError):
        readme_results.main([])
    assert (tmp_path / "README.md").read_text("utf-8") == "old\n"


def test_a_line_has_the_figures_of_its_file():
    rows = readme_results.rows_of("2026-11-30-beam-batch-8")
    (line,) = [each for each in readme_results.table().splitlines() if "| 8 |" in each]
    assert f"{rows['fairseq beam 5']['p50_ms']:.1f}" in line
    assert f"**{rows['beam']['median speed-up over fairseq beam 5']:.1f}**" in line
    assert "160 of 160" in line


def test_few_batches_share_the_time_of_the_whole_set():
    rows = readme_results.rows_of("2026-11-30-queue-batch-512")
    greedy, beam = [each for each in readme_results.table().splitlines() if "| 512 |" in each]
    for line, method, theirs in ((greedy, "greedy", 1), (beam, "beam", 5)):
        ours, other = rows[method], rows[f"fairseq beam {theirs}"]
        assert f"| {1000 * ours['seconds'] / 4:,.1f} |" in line
        assert f"**{other['seconds'] / ours['seconds']:.1f}**" in line
        assert "1,975 of 1,975" in line


def test_the_figure_is_written_the_same_again(tmp_path):
    paths = [tmp_path / name for name in ("one.svg", "two.svg")]
    for path in paths:
        readme_results.save(readme_results.figure(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    text = paths[0].read_text("utf-8")
    assert all(name in text for name in readme_results.BARS.values())


def test_every_result_names_its_machine_command_and_date():
    for path in some(readme_results.RESULTS.glob("*.json")):
        result = json.loads(path.read_text("utf-8"))
        assert {"machine", "command", "date", "rows"} <= result.keys()


def test_a_readme_without_the_markers_is_refused():
    with pytest.raises(PluginError, match="Put them back"):
        readme_results.with_table("# Nothing\n")
