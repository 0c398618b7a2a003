"""LibreTranslate's requests: what they ask for, and what is answered."""

import functools
import gzip
import json
from types import SimpleNamespace

import pytest

from specdec_plugin.serve.decoding import Key
from specdec_plugin.serve.questions import Limits, Offer, fields_of, parameters, question
from specdec_plugin.serve.refusal import RefusalError

OFFER = Offer("en", "es", ["auto", "beam"])
LIMITS = Limits(characters=50, sentences=4)
GOOD = {"q": "one\ntwo", "source": "en", "target": "es"}
JSON = "application/json; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
#: A list that is too deep to be written as JSON.
DEEP = functools.reduce(lambda inner, _: [inner], range(5000), [])


def asked(**change):
    given = {**GOOD, **change}
    return question({key: each for key, each in given.items() if each is not ...}, OFFER, LIMITS)


def hypothesis(text, *others):
    nbest = tuple(hypothesis(each) for each in (text, *others)) if others else ()
    return SimpleNamespace(text=text, nbest=nbest)


def test_a_text():
    found = asked()
    assert found.sentences == ["one", "two"] and found.key == Key("auto")
    answer = found.answer([hypothesis("uno"), hypothesis("dos")], OFFER)
    assert answer == {"translatedText": "uno\ndos"}


def test_many_languages():
    offer = Offer("en", "es", ["auto"], ["de", "en", "es", "fr"])
    assert offer.targets["fr"] == ["en", "es", "de"]
    given = {"q": "one", "source": "fr", "target": "de"}
    assert question(given, offer, LIMITS).key == Key("auto", direction=("fr", "de"))
    assert question({**given, "source": "auto"}, offer, LIMITS).key.direction == ("en", "de")
    assert question({"q": "one", "source": "en", "target": "es"}, offer, LIMITS).key == Key("auto")
    with pytest.raises(RefusalError, match=r"source language it\. Give one of those at /lang"):
        question({**given, "source": "it"}, offer, LIMITS)


def test_a_list_of_an_open_language():
    found = asked(q=["one", "", "two"], source="auto", method="beam")
    assert found.sentences == ["one", "two"] and found.key == Key("beam")
    one = {"confidence": 0, "language": "en"}
    assert found.answer([hypothesis("uno"), hypothesis("dos")], OFFER) == {
        "translatedText": ["uno", "", "dos"], "detectedLanguage": [one, one, one]
    }  # fmt: skip


def test_other_translations():
    found = asked(alternatives=2)
    assert found.key == Key("beam", 3)
    results = [hypothesis("uno", "un"), hypothesis("dos", "2", "ii")]
    expected = {"translatedText": "uno\ndos", "alternatives": ["un\n2", "un\nii"]}
    assert found.answer(results, OFFER) == expected
    found = asked(q=["one", "two"], alternatives="2")
    expected = {"translatedText": ["uno", "dos"], "alternatives": [["un", "un"], ["2", "ii"]]}
    assert found.answer(results, OFFER) == expected


def test_a_prefix():
    assert asked(q="one\n", prefix=" uno ").key == Key("auto", prefix="uno")
    assert asked(q=["one"], prefix="uno", alternatives=2).key == Key("beam", 3, prefix="uno")
    assert asked(q="one\ntwo", prefix=" ").key == Key("auto")


def test_phrases():
    """Of a method that keeps them, where none is named."""
    assert asked(q="one", phrases=[" uno ", ""]).key == Key("auto", phrases=("uno",))
    assert asked(q=["one"], phrases="uno dos").key == Key("auto", phrases=("uno dos",))
    expected = Key("beam", 3, prefix="tres", phrases=("uno", "dos"))
    given = {"phrases": ["uno", "dos"], "prefix": "tres"}
    assert asked(q="one", alternatives=2, **given).key == expected
    assert asked(phrases=[" "], q="one\ntwo", method="beam").key == Key("beam")
    given = {**GOOD, "q": "one", "phrases": ["uno"]}
    offer = Offer("en", "es", ["greedy", "fairseq"])
    assert question(given, offer, LIMITS).key == Key("fairseq", phrases=("uno",))
    with pytest.raises(RefusalError, match="method greedy keeps no phrases"):
        question({**given, "method": "greedy"}, offer, LIMITS)
    with pytest.raises(RefusalError, match="No method of the server keeps phrases"):
        question(given, Offer("en", "es", ["greedy"]), LIMITS)


def test_markup():
    found = asked(q="<b>one</b> &amp;", format="html")
    assert found.sentences == ["one", "&"]
    answer = found.answer([hypothesis("<uno>"), hypothesis("y")], OFFER)
    assert answer == {"translatedText": "<b>&lt;uno&gt;</b> y"}


def test_bodies():
    assert parameters(json.dumps(GOOD).encode(), JSON) == GOOD
    assert parameters(json.dumps(GOOD).encode(), "") == GOOD
    form = b"q=one+%C3%A9&source=en&target="
    expected = {"q": "one é", "source": "en", "target": ""}
    assert parameters(form, "application/x-www-form-urlencoded") == expected


def test_bodies_that_are_packed():
    body = json.dumps(GOOD).encode()
    assert parameters(body, JSON, "identity") == GOOD
    with pytest.raises(RefusalError, match=r"^The server does not unpack GZip\. Send") as caught:
        parameters(gzip.compress(body), JSON, "GZip")
    assert caught.value.status == 415


@pytest.mark.parametrize("form", ["q=%ff%fe", "q=a&source=%E9"])
def test_a_form_that_encodes_something_else(form):
    for call in (fields_of, lambda text: parameters(text.encode(), FORM)):
        with pytest.raises(RefusalError, match="The request is not UTF-8"):
            call(form)
    assert parameters(b"q=a", f"{FORM}; charset=UTF-8") == {"q": "a"}
    for kind in (FORM, "application/json"):
        with pytest.raises(RefusalError, match="The server does not read latin-1") as caught:
            parameters(b"{}", f'{kind}; charset="Latin-1"')
        assert caught.value.status == 415


@pytest.mark.parametrize(
    "status, words, change",
    [
        (400, "q is missing", {"q": ...}),
        (400, "neither a text nor a list", {"q": 3}),
        (400, "neither a text nor a list", {"q": ["one", None]}),
        (400, "half of a surrogate pair", {"q": "\ud800"}),
        (400, "source is missing. Give en", {"source": ...}),
        (400, "no source language de. Give en or auto", {"source": "de"}),
        (400, r"no source language \(a list\)", {"source": ["en"]}),
        (400, r"no source language \(a list\)", {"source": DEEP}),
        (400, "target is missing. Give es", {"target": ...}),
        (400, "no target language en. Give es", {"target": "en"}),
        (400, r"no target language \?. Give es", {"target": "\ud800"}),
        (400, "format pdf is unknown. Give text or html", {"format": "pdf"}),
        (400, r"format \(an object\) is unknown", {"format": {}}),
        (400, "method x+… is not offered. Give auto, beam", {"method": "x" * 99}),
        (400, "alternatives is -1. Give a number from 0 to 9", {"alternatives": -1}),
        (400, "alternatives is true", {"alternatives": True}),
        (400, "alternatives is 1.5", {"alternatives": 1.5}),
        (400, "alternatives is many", {"alternatives": "many"}),
        (400, "by the method beam, and method is auto", {"alternatives": 1, "method": "auto"}),
        (400, "prefix is no line of text", {"prefix": 3}),
        (400, "prefix is no line of text", {"prefix": "a\nb"}),
        (400, "prefix has half of a surrogate pair", {"prefix": "\ud800"}),
        (400, "prefix goes with one line of text", {"prefix": "a", "q": "one\ntwo"}),
        (400, "prefix goes with one line of text", {"prefix": "a", "q": ["one", "two"]}),
        (400, "prefix goes with one line of text", {"prefix": "a", "q": ""}),
        (400, "prefix goes with one line of text", {"prefix": "a", "format": "html"}),
        (413, "has 57 characters, and the server takes 50", {"prefix": "a" * 50}),
        (400, "phrases is no list of lines of text", {"phrases": 3}),
        (400, "phrases is no list of lines of text", {"phrases": ["a", 3]}),
        (400, "phrases is no list of lines of text", {"phrases": "a\nb"}),
        (400, "phrases has half of a surrogate pair", {"phrases": ["a", "\ud800"]}),
        (400, "phrases goes with one line of text", {"phrases": ["a"], "q": ["one", "two"]}),
        (413, "has 58 characters, and the server takes 50", {"phrases": ["a" * 50, "b"]}),
        (413, "has 60 characters, and the server takes 50", {"q": ["a" * 30, "b" * 30]}),
        (413, "has 5 texts or lines, and the server takes 4", {"q": "a\nb\nc\nd\ne"}),
        (413, "has 5 texts or lines", {"q": [""] * 5}),
    ],
)
def test_what_is_refused(status, words, change):
    with pytest.raises(RefusalError, match=words) as caught:
        asked(**change)
    assert caught.value.status == status and str(caught.value).endswith(".")


def test_alternatives_where_no_beam_is_offered():
    given = {**GOOD, "alternatives": 1}
    with pytest.raises(RefusalError, match="alternatives need the method beam, which the server"):
        question(given, Offer("en", "es", ["auto"]), LIMITS)
    assert asked(alternatives=1, method="beam").key == Key("beam", 2)
    assert asked(alternatives=0, method="auto").key == Key("auto")


@pytest.mark.parametrize(
    "status, words, body, kind",
    [
        (
            415,
            "does not read multipart/form-data. Send application/json, or application/x-www",
            b"--x",
            "multipart/form-data; boundary=x",
        ),
        (415, "does not read text/xml", b"<q/>", "text/xml"),
        (400, "not UTF-8", b"\xff", JSON),
        (400, "not JSON", b"{", JSON),
        (400, "not JSON", b"[" * 100_000, JSON),
        (400, "not an object", b"[]", JSON),
    ],
)
def test_bodies_that_are_refused(status, words, body, kind):
    with pytest.raises(RefusalError, match=words) as caught:
        parameters(body, kind)
    assert caught.value.status == status and str(caught.value)[-1] == "."
