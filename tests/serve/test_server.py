"""``specdec-serve``, a real process, asked over HTTP."""

import gzip
import http.client
import itertools
import json

import pytest

import specdec_plugin
from specdec_plugin.folder import read_folder
from specdec_plugin.serve.decoding import offered
from tests.support.pages import data_of
from tests.support.servers import at_once


@pytest.fixture(scope="module")
def lines(corpus):
    return [*corpus.lines("test", "en"), "one", "nine eight seven six five four three two"]


@pytest.fixture(scope="module")
def wanted(packed, lines):
    """What a batch of all lines gives."""
    found = specdec_plugin.load(str(packed)).translate(lines, batch_size=len(lines))
    return dict(zip(lines, (each.text for each in found), strict=True))


def test_a_text_and_a_list(server, lines, wanted):
    answer = server.translate("\n\n".join(lines[:3]))
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json() == {"translatedText": "\n\n".join(wanted[each] for each in lines[:3])}
    answer = server.translate([*lines[:2], "", " "], source="auto").json()
    assert answer["translatedText"] == [*(wanted[each] for each in lines[:2]), "", " "]
    assert answer["detectedLanguage"][0] == {"confidence": 0, "language": "en"}
    assert server.translate([]).json() == {"translatedText": []}


def test_a_line_without_words_stays(server, lines, wanted):
    """The subword model leaves out a zero-width space, and of nothing a model invents text."""
    answer = server.translate(f"\u200b\n{lines[0]}\n \ufeff ").json()
    assert answer == {"translatedText": f"\u200b\n{wanted[lines[0]]}\n \ufeff "}
    answer = server.post("/stream", {"q": "\u200b"})
    assert answer.status == 400 and "q has 0 lines" in answer.json()["error"]


def test_a_form_and_markup(server, lines, wanted):
    body = f"q={lines[0].replace(' ', '+')}&source=en&target=es".encode()
    answer = server.ask("POST", "/translate", body, "application/x-www-form-urlencoded")
    assert answer.json() == {"translatedText": wanted[lines[0]]}
    answer = server.translate(f"<p>{lines[0]}</p>", format="html").json()
    assert answer == {"translatedText": f"<p>{wanted[lines[0]]}</p>"}


def test_sixteen_clients_at_once_get_what_a_batch_gives(server, lines, wanted):
    before = server.metric('specdec_requests_total{path="/translate",status="200"}')
    batches = server.metric("specdec_batch_sentences_count")

    def client(number):
        chosen = [lines[(number + step) % len(lines)] for step in range(8)]
        return chosen, [server.translate(each) for each in chosen]

    for chosen, answers in at_once([lambda n=n: client(n) for n in range(16)]):
        assert [each.status for each in answers] == [200] * 8
        found = [each.json()["translatedText"] for each in answers]
        assert found == [wanted[each] for each in chosen]
    after = server.metric('specdec_requests_total{path="/translate",status="200"}')
    assert after - before == 128
    assert server.metric("specdec_batch_sentences_count") - batches < 128  # some were together


@pytest.mark.parametrize("method", ["greedy", "specdec", "beam", "fairseq"])
def test_each_method_gives_its_own_translation(server, packed, lines, method):
    translator = specdec_plugin.load(str(packed), decoding=method)
    found = [server.translate(each, method=method).json()["translatedText"] for each in lines[:3]]
    assert found == [each.text for each in translator.translate(lines[:3])]


def test_other_translations(server, packed, lines):
    (best,) = specdec_plugin.load(str(packed), decoding="beam").translate(lines[:1], nbest=3)
    answer = server.translate(lines[0], alternatives=2).json()
    found = [answer["translatedText"], *answer["alternatives"]]
    assert found == [each.text for each in best.nbest] and len({*found}) > 1


def test_a_given_beginning(server, packed, lines):
    translator = specdec_plugin.load(str(packed), decoding="greedy")
    given = [(line, prefix) for line in lines[:3] for prefix in ("ocho uno", "siete")]
    (texts, prefixes) = zip(*given, strict=True)
    wanted = [each.text for each in translator.translate(texts, prefixes=prefixes)]

    def ask(line, prefix):
        answer = server.translate(line, prefix=prefix, method="greedy")
        return answer.json()["translatedText"]

    assert at_once([lambda pair=pair: ask(*pair) for pair in given]) == wanted
    events = server.events(q=texts[0], prefix="ocho uno", method="greedy")
    assert events[-1][1]["text"] == wanted[0] and wanted[0].startswith("ocho uno")
    query = f"/steps?method=specdec&q={texts[0]}&prefix=ocho uno".replace(" ", "%20")
    (chart,) = data_of(server.get(query).body.decode())["charts"]
    assert chart["output"] == wanted[0]


def test_phrases_of_a_glossary(server, packed, lines):
    """In the translation, behind a given beginning, and among other translations."""
    translator = specdec_plugin.load(str(packed))
    (wanted,) = translator.constrained(lines[:1], [["siete", "menos"]], prefixes=["ocho"])
    given = {"phrases": ["siete", "menos"], "prefix": "ocho"}
    answer = server.translate(lines[0], **given)
    assert answer.json() == {"translatedText": wanted.text}
    found = [
        wanted.text,
        *server.translate(lines[0], **given, alternatives=2).json()["alternatives"],
    ]
    for text in found:
        assert text.startswith("ocho") and "siete" in text and "menos" in text
    name, done = server.events(q=lines[0], **given)[-1]
    assert name == "done" and done["text"] == wanted.text and not done["steps"]
    for method in ("beam", "fairseq"):
        answer = server.translate(lines[0], method=method, phrases=["siete"])
        assert answer.status == 200 and "siete" in answer.json()["translatedText"]
    form = f"q={lines[0]}&source=en&target=es&phrases=siete&phrases=menos".replace(" ", "+")
    answer = server.ask("POST", "/translate", form.encode(), "application/x-www-form-urlencoded")
    assert all(phrase in answer.json()["translatedText"] for phrase in ("siete", "menos"))
    answer = server.get("/steps?q=one&phrases=siete")
    assert answer.status == 400 and "has no steps to show" in answer.json()["error"]
    answer = server.translate(lines[0], phrases=["\u4e2d"])
    assert answer.status == 400 and "target dictionary does not have" in answer.json()["error"]
    assert server.translate(lines[0], method="greedy", phrases=["siete"]).status == 400
    answer = server.translate(lines[0], method="fairseq", phrases=["siete"] * 30)
    assert answer.status == 400 and "can end within the length limit" in answer.json()["error"]


def test_tokens_as_they_appear(server, lines, wanted):
    for method in ("greedy", "specdec"):
        events = server.events(q=lines[1], method=method)
        steps = [content for name, content in events[:-1]]
        assert {name for name, _ in events[:-1]} == {"step"}
        name, done = events[-1]
        assert name == "done" and done["text"] == wanted[lines[1]] == steps[-1]["text"]
        added = [token for step in steps for token in step["added"]]
        assert len(added) == done["tokens"] and added[-1] == "⏎"
        assert len(steps) == done["iterations"] and done["steps"] and done["seconds"] > 0
        texts = [step["text"] for step in steps]
        assert all(later.startswith(text) for text, later in itertools.pairwise(texts))
        for step in steps:
            assert step["draft"][: step["kept"]] == step["added"][: step["kept"]]
    name, done = server.events(q=lines[1], method="beam")[-1]
    assert name == "done" and not done["steps"]


def test_the_steps_of_a_sentence(server, lines, wanted):
    query, counted = lines[1].replace(" ", "%20"), server.metric("specdec_tokens_total")
    answer = server.get(f"/steps?method=specdec&q={query}")
    assert server.metric("specdec_tokens_total") == counted
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    (chart,) = data_of(answer.body.decode())["charts"]
    assert (chart["source"], chart["output"]) == (lines[1], wanted[lines[1]])
    answer = server.get(f"/steps?method=beam&q={query}")
    assert answer.status == 400 and "no steps to show" in answer.json()["error"]


def test_what_the_server_is(server, packed):
    assert server.get("/health").json() == {"status": "ok", "waiting": 0}
    assert server.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["es"]},
        {"code": "es", "name": "es", "targets": []},
    ]
    methods = server.get("/methods").json()
    assert methods == [each._asdict() for each in offered(read_folder(str(packed)))]
    names = [each["name"] for each in methods]
    assert names[0] == "auto" and "fairseq" in names
    assert "nat" not in names and "blockwise" not in names  # it has no drafter and no heads


def test_metrics(server, packed, lines):
    (greedy,) = specdec_plugin.load(str(packed), decoding="greedy").translate(lines[:1])
    before = [server.metric(f"specdec_{name}_total") for name in ("tokens", "iterations")]
    server.translate(lines[0], method="greedy")
    server.events(q=lines[0], method="greedy")
    answer = server.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert text.endswith("\n") and "# TYPE specdec_request_seconds histogram" in text
    after = [server.metric(f"specdec_{name}_total") for name in ("tokens", "iterations")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [2 * len(greedy.tokens)] * 2
    assert server.metric("specdec_waiting") == 0
    assert server.metric("specdec_open_requests") == 1  # the one that asks
    assert server.metric('specdec_request_seconds_count{path="/translate"}') > 0


LONG = "one " * 1030
#: JSON that can be read here, and hardly be written again.
DEEP = b'{"q": "one", "target": "es", "source": ' + b"[" * 960 + b"]" * 960 + b"}"


@pytest.mark.parametrize(
    "status, words, request_",
    [
        (400, "not JSON", ("POST", "/translate", b"{")),
        (400, "not UTF-8", ("POST", "/translate", b"\xff")),
        (400, "not an object", ("POST", "/translate", b"3")),
        (415, "does not read text/plain", ("POST", "/translate", b"one", "text/plain")),
        (400, "q is missing", ("POST", "/translate", b"{}")),
        (400, "neither a text nor a list", {"q": {}}),
        (400, "no source language de", {"source": "de"}),
        (400, "no target language fr", {"target": "fr"}),
        (400, "format pdf is unknown", {"format": "pdf"}),
        (400, "format (an object) is unknown", {"format": {}}),
        (400, "no source language (a list)", ("POST", "/translate", DEEP)),
        (400, "alternatives is (a list)", {"alternatives": [1]}),
        (400, "method nat is not offered", {"method": "nat"}),
        (400, "alternatives is -1", {"alternatives": -1}),
        (413, "has 6,000 characters", {"q": "a" * 6000}),
        (413, "has more than 1,048,576 bytes", ("POST", "/translate", b" " * 1_100_000)),
        (413, "A line has 1,031 tokens, and the model takes 1,024", {"q": LONG}),
        (405, "/translate does not take GET. Use POST", ("GET", "/translate")),
        (405, "/health does not take POST. Use GET", ("POST", "/health", b"")),
        (405, "/health does not take PUT. Use GET", ("PUT", "/health", b"")),
        (405, "/translate does not take PUT. Use POST", ("PUT", "/translate", b"")),
        (404, "nothing at /detect. Ask /translate", ("POST", "/detect", b"")),
        (404, "nothing at /translate/. Ask /translate", ("POST", "/translate/", b"{}")),
        (400, "q has 2 lines. Give one", ("POST", "/stream", b'{"q": "a\\nb"}')),
        (400, "q is a list. Give one", ("POST", "/stream", b'{"q": ["a"]}')),
        (400, "Leave format and", ("POST", "/stream", b'{"q": "a", "format": "html"}')),
        (400, "Leave format and", ("POST", "/stream", b'{"q": "a", "alternatives": 1}')),
        (400, "not UTF-8", ("GET", "/steps?q=%ff")),
        (400, "q has 0 lines. Give one", ("GET", "/steps?q=")),
        (400, "method x is not offered", ("GET", "/steps?q=one&method=x")),
    ],
)
def test_bad_requests_get_a_sentence(server, status, words, request_):
    if isinstance(request_, dict):
        given = {"q": "one", "source": "en", "target": "es", **request_}
        request_ = ("POST", "/translate", json.dumps(given).encode())
    answer = server.ask(*request_)
    assert answer.status == status
    assert [*answer.json()] == ["error"]
    assert words in answer.json()["error"] and answer.json()["error"].endswith(".")


def test_a_wrong_method_is_told_the_right_ones(server):
    assert server.ask("OPTIONS", "/translate").headers["allow"] == "POST"
    assert "GET" in server.ask("POST", "/").headers["allow"]


def test_a_packed_request_is_told_so(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    connection.request("POST", "/translate", gzip.compress(b'{"q": "one"}'), headers)
    answer = connection.getresponse()
    sentence = "The server does not unpack gzip. Send it plain."
    assert (answer.status, json.loads(answer.read())) == (415, {"error": sentence})
    connection.close()


def test_it_survives_them(server, lines, wanted):
    assert server.translate(lines[0]).json() == {"translatedText": wanted[lines[0]]}
