"""The page: nothing breaks out of its data, and in a browser it steps through the iterations."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.lab.viz.kinds import Kind
from specdec_plugin.lab.viz.page import embedded, page
from tests.support.charts import jacobi, speculation
from tests.support.pages import Elements, data_of

HOSTILE = "</script><script>document.title='broken'</script><!--<img src=x onerror=alert(1)>&amp;"


def test_hostile_text_stays_data():
    plain = Elements(page([jacobi(["▁uno"])]))
    elements = Elements(page([jacobi([f"▁{HOSTILE}", "▁{{DATA}}"], source=(HOSTILE,))]))
    assert elements.tags == plain.tags  # not an element more
    assert elements.scripts[1:] == plain.scripts[1:]
    (chart,) = json.loads(elements.scripts[0])["charts"]
    assert chart["source"] == HOSTILE
    assert chart["columns"] == [f"␣{HOSTILE}", "␣{{DATA}}", "⏎"]


@given(st.recursive(st.text() | st.integers() | st.none(), lambda each: st.lists(each)))
def test_data_round_trip(data):
    text = embedded(data)
    assert json.loads(text) == data
    assert not {*"<>&"} & {*text}


def test_nothing_of_a_chart_is_lost():
    for chart in (jacobi(["▁uno", "▁dos", "▁tr", "es"]), speculation()):
        (found,) = data_of(page([chart]))["charts"]
        for name in ("name", "source", "output", "summary", "columns", "settled", "parallel"):
            assert found[name] == getattr(chart, name)
        edges = None if chart.edges is None else [[*edge] for edge in chart.edges]
        assert found["edges"] == edges
        assert len(found["lines"]) == len(chart.lines)
        for line, shown in zip(chart.lines, found["lines"], strict=True):
            assert (shown["iteration"], shown["label"]) == (line.iteration, line.label)
            assert len(shown["cells"]) == len(line.cells)
            for cell, plain in zip(line.cells, shown["cells"], strict=True):
                assert (cell is None) == (plain is None)
                if cell is not None:
                    assert plain[:2] == [cell.text, cell.kind.value]
                    assert plain[2] == pytest.approx(cell.probability, abs=1e-4)


def test_it_needs_no_network_and_can_be_used_without_a_mouse():
    source = page([jacobi(["▁uno"]), speculation()])
    elements = Elements(source)
    policy = next(tag["content"] for name, tag in elements.tags if name == "meta"
                  and tag.get("http-equiv") == "Content-Security-Policy")  # fmt: skip
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", source)
    assert not [tag for name, tag in elements.tags if "src" in tag or "onclick" in tag]
    buttons = [tag for name, tag in elements.tags if name == "button"]
    assert len(buttons) == 5 and all(tag["title"] for tag in buttons)
    labelled = {tag["for"] for name, tag in elements.tags if name == "label"}
    assert "sentence" in labelled
    assert all(f".{kind.value}" in source for kind in Kind)


# In a browser

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

#: Presses buttons and keys, and writes what the page then shows into it.
DRIVER = """<script>
const seen = [];
addEventListener("error", event => seen.push("error: " + event.message));
addEventListener("securitypolicyviolation", event => seen.push("blocked: " + event.blockedURI));
const press = key =>
  document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const look = () => seen.push({
  status: at("status").textContent,
  now: [...at("now").children].map(token => [token.textContent, token.className]),
  current: [...document.querySelectorAll("tr.current th")].map(head => head.textContent),
  hidden: document.querySelectorAll("tr.later").length,
  arcs: document.querySelectorAll("path.edge:not(.later)").length,
  next: at("next").disabled, back: at("back").disabled, direction: at("now").dir,
  source: at("source").textContent, hash: location.hash, title: document.title,
});
const ACTIONS;
for (const action of actions) { action(); look(); }
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>"""


def browse(folder, charts, actions, fragment=""):
    """What the page shows after each of some actions, in JavaScript."""
    functions = ", ".join(f"() => {{{each}}}" for each in actions)
    driver = DRIVER.replace("ACTIONS", f"actions = [{functions}]")
    path = folder / "page.html"
    path.write_text(page(charts).replace("</body>", driver + "</body>"), "utf-8")
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri() + fragment],
        capture_output=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    found = re.search('<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    parser = HTMLParser()
    texts = []
    parser.handle_data = texts.append
    parser.feed(found[1])
    parser.close()
    return json.loads("".join(texts))


@needs_browser
def test_stepping_through_jacobi_iterations(tmp_path):
    chart = jacobi(["▁uno", "▁dos", "▁tr", "es"])
    slide = 'at("step").value = 2; at("step").dispatchEvent(new Event("input"))'
    steps = ["", 'at("next").click()', 'press("ArrowRight")', 'press("ArrowLeft")']
    steps += ['at("last").click()', 'press("Home")', slide, "go(9)"]
    seen = browse(tmp_path, [chart], steps)
    assert [step["current"] for step in seen] == [[each] for each in "12323123"]
    assert [step["hidden"] for step in seen] == [3 - int(step["current"][0]) for step in seen]
    for step in seen:
        line = chart.lines[int(step["current"][0]) - 1]
        assert step["now"] == [[cell.text, cell.kind.value] for cell in line.cells]
        assert step["hash"] == f"#sentence-0/{line.iteration}"
        assert step["arcs"] == sum(chart.settled[to] <= line.iteration for _, to in chart.edges)
        assert step["next"] == (line.iteration == 3) and step["back"] == (line.iteration == 1)
    words = "tokens equal the final output;"
    assert seen[0]["status"] == f"Iteration 1 of 3: 1 of 5 {words} 1 settles now."
    assert seen[1]["status"] == f"Iteration 2 of 3: 3 of 5 {words} 2 settle now, in parallel."


@needs_browser
def test_drafts_and_the_choice_of_sentences(tmp_path):
    charts = [jacobi(["▁uno"]), speculation()]
    choose = 'at("sentence").value = "0"; at("sentence").dispatchEvent(new Event("change"))'
    seen = browse(tmp_path, charts, ["", 'at("back").click()', choose], "#sentence-1/2")
    assert (
        seen[0]["status"] == "Iteration 2 of 2: 1 of 3 drafted tokens accepted; the sentence ends."
    )
    assert seen[1]["status"] == (
        "Iteration 1 of 2: 2 of 4 drafted tokens accepted (1 of them though not the verifier’s "
        "best), then the verifier’s own."
    )
    assert seen[1]["current"] == ["1 draft", "1 verifier"]
    assert [kind for _, kind in seen[1]["now"]] == [
        "accepted", "top-beta", "bifurcation", "discarded", "verifier"
    ]  # fmt: skip
    assert seen[2]["hash"] == "#sentence-0/1" and seen[2]["source"] == "one"


@needs_browser
def test_hostile_and_right_to_left_text_in_the_browser(tmp_path):
    hebrew = jacobi(["▁של", "ום"], name="sentence-1")
    charts = [jacobi([f"▁{HOSTILE}"], source=(HOSTILE,)), hebrew]
    seen = browse(tmp_path, charts, ["", "show(1); go(1)"])
    assert seen[0]["title"] == "Parallel decoding, step by step"
    assert seen[0]["source"] == HOSTILE and seen[0]["now"][0][0] == f"␣{HOSTILE}"
    assert [step["direction"] for step in seen] == ["ltr", "rtl"]


@needs_browser
def test_playing_and_pointing_at_a_token(tmp_path):
    chart = jacobi(["▁uno", "▁dos", "▁tr", "es"])
    count = "document.querySelectorAll('{}').length"
    seen = browse(
        tmp_path,
        [chart],
        [
            'at("play").click(); seen.push([at("play").textContent, at("play").ariaPressed])',
            'press(" "); seen.push([at("play").textContent, at("play").ariaPressed])',
            f"ask(4); seen.push([{count.format('th.needed')}, {count.format('path.asked')}])",
            f"ask(null); seen.push([{count.format('th.needed')}, {count.format('path.asked')}])",
        ],
    )
    found = [each for each in seen if isinstance(each, list)]
    assert found == [["Pause", "true"], ["Play", "false"], [3, 2], [0, 0]]
