"""The page to try a model on: what it holds, and what it does in a browser."""

import re
from pathlib import Path

import pytest

import specdec_plugin
import specdec_plugin.serve
from tests.support.pages import Elements

SOURCE = (Path(specdec_plugin.serve.__file__).parent / "page.html").read_text("utf-8")
HOSTILE = "</script><img src=x onerror=\"document.title='broken'\"> & <b>one</b>"


def test_it_needs_nothing_but_its_server(server):
    answer = server.get("/")
    assert answer.status == 200 and answer.body.decode() == SOURCE
    assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"
    elements = Elements(SOURCE)
    policy = next(tag["content"] for name, tag in elements.tags if name == "meta"
                  and tag.get("http-equiv") == "Content-Security-Policy")  # fmt: skip
    assert policy.startswith("default-src 'none'") and "connect-src 'self'" in policy
    assert not re.search(r"https?://", SOURCE)
    assert not [tag for name, tag in elements.tags if "src" in tag or "onclick" in tag]


def test_it_can_be_used_without_a_mouse_or_a_screen():
    elements = Elements(SOURCE)
    labelled = {tag["for"] for name, tag in elements.tags if name == "label"}
    fields = {tag["id"] for name, tag in elements.tags if name in ("textarea", "input", "select")}
    assert fields == labelled == {"text", "prefix", "phrases", "source", "target"}
    names = [name for name, _ in elements.tags]
    assert {"main", "h1", "legend", "caption", "noscript"} <= {*names}
    assert any(tag.get("role") == "status" for _, tag in elements.tags)
    assert all(tag.get("title") for name, tag in elements.tags if name == "iframe")
    assert 'lang="en"' in SOURCE and "prefers-color-scheme: dark" in SOURCE


# In a browser


@pytest.fixture
def refusals():
    """The statuses of the answers that a test asks to be refused with."""
    return []


@pytest.fixture
def page(browser, server, refusals):
    """The page, which must neither fail nor ask anybody else."""
    page = browser.new_page()
    page.set_default_timeout(60_000)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    address = f"http://127.0.0.1:{server.port}/"
    page.goto(address)
    page.wait_for_selector("#methods input")
    yield page
    page.close()
    assert [re.sub(r".* status of (\d+) .*", r"\1", fault) for fault in faults] == refusals
    assert [url for url in asked if not url.startswith((address, "data:"))] == []


def finished(page):
    # Not by a function: the page forbids to evaluate one again, if it is not true at once.
    page.wait_for_selector("#go:enabled")
    return page.inner_text("#status")


def choose(page, *methods):
    for box in page.query_selector_all("#methods input"):
        box.set_checked(box.get_attribute("value") in methods)


def test_it_translates_by_keyboard(page, server):
    assert page.title() == page.inner_text("h1") == "English → es"
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("one two\n\u200b\nthree")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#rows tr")
    assert re.fullmatch(r"Done: auto \d+\.\d ms\.", finished(page))
    found = texts_of(page)
    assert "\n\n".join(found) == server.translate("one two\n\nthree").json()["translatedText"]
    page.fill("#text", "\u200b")
    page.click("#go")
    assert finished(page).startswith("There is nothing to translate")


def test_methods_side_by_side(page, server):
    choose(page, "greedy", "specdec", "fairseq")
    page.fill("#text", "one two three four five")
    page.click("#go")
    page.wait_for_selector("#rows tr:nth-child(3)")
    assert finished(page).startswith("Done: greedy ")
    rows = page.eval_on_selector_all(
        "#rows tr", "rows => rows.map(r => [...r.children].map(c => c.innerText))"
    )
    assert [row[0] for row in rows] == ["greedy", "specdec", "fairseq"]
    assert rows[0][2] == "1.00" and rows[2][4] == "–"
    assert rows[0][6] == rows[1][6] == "yes" and rows[0][3] == rows[1][3]
    for row, method in zip(rows[:2], ("greedy", "specdec"), strict=True):
        events = server.events(q="one two three four five", method=method)
        assert row[3] == str(events[-1][1]["tokens"])
        shown = page.eval_on_selector_all(
            f"section[aria-label={method}] bdi", "all => all.map(e => [e.innerText, e.className])"
        )
        assert [text for text, _ in shown] == [
            token for _, step in events[:-1] for token in step["added"]
        ]
        kinds = {kind for _, kind in shown}
        assert kinds == {"own"} if method == "greedy" else kinds <= {"own", "accepted", "corrected"}


def texts_of(page):
    return page.eval_on_selector_all("#results p:not(.tokens)", "all => all.map(e => e.innerText)")


def test_words_that_are_prescribed(page, server, refusals):
    def translated(**more):
        return server.translate("one two", **more).json()["translatedText"]

    choose(page, "auto", "beam")
    page.fill("#text", "one two")
    page.click("summary")
    page.fill("#prefix", " ocho ")
    page.fill("#phrases", "siete\n\n menos")
    page.click("#go")
    page.wait_for_selector("#rows tr:nth-child(2)")
    assert finished(page).startswith("Done: auto ")
    expected = translated(prefix="ocho", phrases=["siete", "menos"])
    assert expected.startswith("ocho") and "siete" in expected and "menos" in expected
    assert texts_of(page) == [expected] * 2

    page.fill("#phrases", "")
    choose(page, "specdec")
    page.click("#go")
    page.wait_for_selector("#rows tr:only-child")
    finished(page)
    assert texts_of(page) == [translated(method="specdec", prefix="ocho")]
    page.click("text=Show the steps")
    page.frame_locator("#frame").locator("#next").wait_for()

    refusals.append("400")
    page.fill("#phrases", "siete")
    page.click("#go")
    page.wait_for_selector("#status.wrong")
    assert "specdec keeps no phrases" in finished(page)


def test_accepted_and_corrected_tokens(page):
    """Of made-up events, since a tiny model's drafts are nearly always right."""
    page.evaluate(
        """() => {
          const tokens = document.createElement("p");
          tokens.id = "made";
          document.body.append(tokens);
          showStep(tokens, {draft: ["a", "b", "x"], added: ["a", "b", "c"], kept: 2});
          showStep(tokens, {draft: [], added: ["d"], kept: 0});
          showStep(tokens, {draft: ["e"], added: ["e", "f"], kept: 1});
        }"""
    )
    shown = page.eval_on_selector_all(
        "#made bdi", "all => all.map(e => [e.innerText, e.className, e.ariaLabel])"
    )
    assert shown == [
        ["a", "accepted", None], ["b", "accepted", None],
        ["c", "corrected", "c, corrected; drafted was x"],
        ["d", "own", None], ["e", "accepted", None], ["f", "own", None],
    ]  # fmt: skip


def test_the_steps_of_a_sentence(page):
    choose(page, "greedy")
    page.fill("#text", "one two three")
    page.click("#go")
    button = page.wait_for_selector("section button:text('Show the steps')")
    finished(page)
    button.click()
    frame = page.frame_locator("#frame")
    frame.locator("#status").get_by_text("Iteration 1 of").wait_for()
    assert frame.locator("#source").inner_text() == "one two three"
    frame.locator("#next").click()
    frame.locator("#status").get_by_text("Iteration 2 of").wait_for()
    page.click("#close")
    assert not page.is_visible("#frame")
    assert page.evaluate("document.activeElement.innerText") == "Show the steps"


def test_mistakes_are_told_and_text_stays_text(page):
    page.click("#go")
    assert page.inner_text("#status").startswith("There is nothing to translate")
    page.fill("#text", HOSTILE)
    choose(page)
    page.click("#go")
    assert page.inner_text("#status").startswith("No method is chosen")
    choose(page, "specdec")
    page.click("#go")
    page.wait_for_selector("#rows tr")
    finished(page)
    assert page.title() == "English → es" and page.query_selector("img") is None


def test_a_refusal_is_told(page, refusals):
    refusals.append("413")
    page.fill("#text", "a" * 6000)
    with page.expect_response("**/stream") as answer:
        page.click("#go")
    assert answer.value.status == 413
    assert finished(page).startswith("The text has 6,000 characters")
