"""A server of a multilingual model: every language into every other."""

import pytest

import specdec_plugin
from specdec_plugin.cli import pack, translate
from tests.support.multilingual import MULTI, trained
from tests.support.pages import data_of
from tests.support.servers import Process, at_once

pytest.importorskip("specdec_plugin.serve.app")  # needs the extra serve


@pytest.fixture(scope="module")
def folder(corpus, sentencepieces, tmp_path_factory):
    """What specdec-pack makes of a model whose languages are in a file."""
    made = tmp_path_factory.mktemp("multilingual")
    (made / "langs.txt").write_text("en\nes\n", "utf-8")
    pack.main(
        ["--path", trained(corpus, "prefix", tmp_path_factory), "--data", str(sentencepieces)]
        + ["-s", "en", "-t", "es", "--task", f"specdec_{MULTI}", "--lang-pairs", "en-es"]
        + ["--lang-dict", str(made / "langs.txt"), "--encoder-langtok", "src"]
        + ["--decoder-langtok", "--sentencepiece", str(sentencepieces / "spm.model")]
        + ["--language-name", "es=Spanish", "--option", "max_len_b=20"]
        + ["--output", str(made / "packed")]
    )
    (made / "langs.txt").unlink()
    return str(made / "packed")


@pytest.fixture(scope="module")
def server(folder):
    process = Process(folder)
    yield process.ready()
    assert process.stop()[0] == 0 and "Traceback" not in process.errors


@pytest.fixture(scope="module")
def wanted(folder, corpus):
    """Translations of lines by direction."""
    there, found = specdec_plugin.load(folder), {}
    for source, target in (("en", "es"), ("es", "en")):
        lines = corpus.lines("test", source)[:6]
        texts = [each.text for each in there.between(source, target).translate(lines)]
        found[source, target] = dict(zip(lines, texts, strict=True))
    return found


def test_the_command_line(folder, wanted, tmp_path):
    lines = wanted["es", "en"]
    (tmp_path / "given").write_text("\n".join(lines), "utf-8")
    flags = ["--input", str(tmp_path / "given"), "--output", str(tmp_path / "out")]
    translate.main([folder, "-s", "es", "-t", "en", *flags])
    assert (tmp_path / "out").read_text("utf-8").splitlines() == [*lines.values()]


def test_languages(server):
    assert server.get("/languages").json() == [
        {"code": "en", "name": "en", "targets": ["es"]},
        {"code": "es", "name": "Spanish", "targets": ["en"]},
    ]


def test_directions_at_once(server, wanted):
    asked = [(*pair, line) for pair in wanted for line in wanted[pair]]

    def client(source, target, line):
        return server.translate(line, source=source, target=target).json()["translatedText"]

    found = at_once([lambda each=each: client(*each) for each in asked])
    assert found == [wanted[source, target][line] for source, target, line in asked]
    line = next(iter(wanted["en", "es"]))
    answer = server.translate(line, source="auto").json()
    assert answer["translatedText"] == wanted["en", "es"][line]


def test_tokens_and_steps_of_another_direction(server, wanted):
    line, text = next(iter(wanted["es", "en"].items()))
    events = server.events(q=line, source="es", target="en", method="specdec")
    assert events[-1][1]["text"] == text == events[-2][1]["text"]
    query = line.replace(" ", "%20")
    answer = server.get(f"/steps?method=specdec&q={query}&source=es&target=en")
    (chart,) = data_of(answer.body.decode())["charts"]
    assert (chart["source"], chart["output"]) == (f"__es__ {line}", text)


@pytest.mark.parametrize(
    "source, target, words",
    [
        ("fr", "es", "no source language fr. Give en or es or auto."),
        ("en", "fr", "no target language fr. Give es."),
        ("en", "en", "no target language en. Give es."),
        ("es", "es", "no target language es. Give en."),
    ],
)
def test_refusals(server, source, target, words):
    answer = server.translate("one", source=source, target=target)
    assert answer.status == 400 and words in answer.json()["error"]


def test_the_page(browser, server, wanted):
    page = browser.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("#methods input")
    assert page.title() == "en → Spanish" and page.is_visible("#source")
    page.select_option("#source", "es")
    assert page.title() == page.inner_text("h1") == "Spanish → en"
    line, text = next(iter(wanted["es", "en"].items()))
    page.fill("#text", line)
    page.click("#go")
    page.wait_for_selector("#rows tr")
    page.wait_for_selector("#go:enabled")
    assert page.inner_text("#results p:not(.tokens)") == text
    page.close()
