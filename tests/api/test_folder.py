"""A folder that is loaded by its name: methods, n-best lists, samples, streams and threads."""

import asyncio
import json
import logging
import shutil

import pytest
import torch

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.registry import suited
from tests.support.servers import at_once


@pytest.fixture(scope="module")
def session(packed):
    return specdec_plugin.load_session(str(packed))


@pytest.fixture
def translator(session):
    return session.translator()


def texts(found):
    return [each.text for each in found]


def test_it_is_what_its_files_are(packed, translator, sentencepieces, tiny_verifier, corpus):
    plain = specdec_plugin.load(
        tiny_verifier, str(sentencepieces), source_lang="en", target_lang="es", decoding="auto",
        max_len_b=20, subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    lines = corpus.lines("test", "en")
    assert translator.method == plain.method == "auto"
    assert texts(translator.translate(lines)) == texts(plain.translate(lines))
    changed = specdec_plugin.load(str(packed), decoding="greedy", max_len_b=2)
    assert changed.method == "greedy"
    assert all(len(each.tokens) <= 3 for each in changed.translate(lines))


def test_what_a_folder_tells_is_not_given_twice(packed, tiny_verifier):
    for more in ({"data": "x"}, {"source_lang": "en"}, {"subwords": "x"}, {"task": "x"}):
        with pytest.raises(PluginError, match=r"specdec\.json tells the data, languages"):
            specdec_plugin.load(str(packed), **more)


def test_another_method(translator, session, corpus):
    lines = corpus.lines("test", "en")[:6]
    greedy = texts(translator.translate(lines))
    for method in ("specdec", "jacobi", "greedy"):
        translator.method = method
        assert translator.method == method and texts(translator.translate(lines)) == greedy
        assert translator.statistics.sentences == len(lines)
    translator.method = "beam"
    beams = texts(translator.translate(lines))
    assert beams == texts(session.translator("beam", beam=5).translate(lines))
    translator.method = None
    assert translator.method == "fairseq" and translator.statistics is None
    assert texts(translator.translate(lines)) == beams
    with pytest.raises(PluginError, match="'fast': choose one of"):
        translator.method = "fast"
    assert translator.method == "fairseq"


def test_options_stay_where_they_are_read(session):
    translator = session.translator("beam", beam=3, max_len_b=4)
    translator.method = "greedy"  # which takes one beam
    assert len(translator.translate(["one two three four five six"])[0].tokens) <= 5
    translator.method = "beam"
    assert len(translator.translate(["one"], nbest=3)[0].nbest) == 3
    flags = {"beam": 3, "block_size": 4, "max_len_b": 9, "vocab_clusters": "x", "epsilon": 1.0}
    assert suited(flags, "beam").keys() >= {"beam", "max_len_b"}
    assert not suited(flags, "beam").keys() & {"block_size", "epsilon"}
    assert suited(flags, "greedy").keys() & {"beam", "block_size"} == set()
    assert suited({**flags, "sampling": True}, "greedy")["beam"] == 3
    assert suited(flags, None) == {"beam": 3, "max_len_b": 9, "vocab_clusters": "x"}
    assert suited(flags, "specdec")["block_size"] == 4
    clusters = {"drafter_vocab_clusters": "x"}
    assert suited(clusters, "auto") == suited(clusters, "specdec", {"beam": 1}) == clusters
    assert suited(clusters, "auto", {"beam": 5}) == suited(clusters, "specdec", {"beam": 5}) == {}
    assert suited(clusters, "auto", {"match_source_len": True}) == {}
    assert suited(clusters, "auto", {"beam": 5, "sampling": True}) == clusters


def test_lists_of_the_best(session, corpus):
    translator = session.translator("beam", beam=4)
    lines = corpus.lines("test", "en")[:5]
    found = translator.translate(lines, batch_size=2, nbest=3)
    generator = translator.generator
    for line, best in zip(lines, found, strict=True):
        (decoded,) = translator.decode(session.batch(session.pieces([line])))
        assert len(best.nbest) == 3 and best.nbest[0].text == best.text
        scores = [each.score for each in best.nbest]
        assert scores == sorted(scores, reverse=True)
        wanted = [session.hypothesis(each, generator).text for each in decoded[:3]]
        assert texts(best.nbest) == wanted
    with pytest.raises(PluginError, match="nbest=3: this search has 1 hypotheses"):
        session.translator("greedy").translate(lines, nbest=3)
    with pytest.raises(PluginError, match="nbest 0: give at least 1"):
        translator.translate(lines, nbest=0)


def test_samples(session, corpus):
    lines = corpus.lines("test", "en")[:4]
    translator = session.translator("greedy")
    found = translator.sample(lines, samples=3, seed=5, temperature=2.0)
    assert [len(each.nbest) for each in found] == [3] * 4
    assert [each.nbest[0].score for each in found] == [each.score for each in found]
    drawn = {text for each in found for text in texts(each.nbest)}
    assert len(drawn) > 4
    again = translator.sample(lines, samples=3, seed=5, temperature=2.0, batch_size=4)
    assert [texts(each.nbest) for each in again] == [texts(each.nbest) for each in found]
    other = translator.sample(lines, samples=3, seed=6, temperature=2.0)
    assert [texts(each.nbest) for each in other] != [texts(each.nbest) for each in found]
    assert translator.method == "greedy" and translator.translate(lines)[0].nbest == ()


def test_plain_types_and_statistics(session):
    greedy, fairseq = session.translator("greedy"), session.translator("fairseq")
    (found,) = greedy.translate(["one two"])
    plain = found.plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["pieces"] == found.pieces.split() and plain["text"] == found.text
    assert plain["token_scores"] == found.positional_scores.tolist()
    assert plain["iterations"] == len(found.tokens) and plain["accepted_tokens"] == 1.0
    assert 0 < plain["seconds"] < 60
    (other,) = fairseq.translate(["one two"], nbest=2)
    assert other.accepted_tokens is None and other.iterations is None
    assert [each["text"] for each in other.plain()["nbest"]] == texts(other.nbest)


def test_a_stream_reads_no_more_than_it_needs(translator, corpus):
    lines = corpus.lines("train", "en")[:50]
    read = []

    def reading():
        for line in lines:
            read.append(line)
            yield line + "\n"

    stream = translator.translate_iter(reading(), batch_size=3, ahead=7)
    assert read == []
    first = next(stream)
    assert len(read) == 7
    found = [first, *stream]
    assert texts(found) == texts(translator.translate(lines, batch_size=3))
    assert list(translator.translate_iter([])) == []


def test_warnings_of_a_stream_count_all_its_lines(translator, caplog):
    lines = [*["one"] * 40, "one two " * 1100]
    with caplog.at_level(logging.WARNING):
        assert len(list(translator.translate_iter(lines, batch_size=1))) == 41
    assert "line 41: the source has " in caplog.text


def test_a_stream_draws_other_samples_than_its_first_lines(session):
    translator = session.translator("greedy", sampling=True, temperature=2.0)
    whole = texts(translator.translate(["one two three"] * 6))
    assert texts(translator.translate_iter(["one two three"] * 6, ahead=2)) == whole
    assert len({*whole}) > 1


def test_a_stream_shows_its_progress(translator, capsys):
    assert len(list(translator.translate_iter(["one"] * 3, progress=True))) == 3
    list(translator.translate_iter(["one"] * 3))
    with pytest.raises(PluginError, match="Give a list of lines"):
        next(translator.translate_iter("one"))
    with pytest.raises(PluginError, match="batch_size 0"):
        next(translator.translate_iter(["one"], batch_size=0))
    with pytest.raises(PluginError, match="ahead -1: give at least 0"):
        next(translator.translate_iter(["one"], ahead=-1))
    with pytest.raises(PluginError, match=r"b'one\\n' is no line of text\. .*decode bytes"):
        next(translator.translate_iter([b"one\n"]))


@pytest.mark.parametrize(
    "lines, words",
    [([1, 2], "^1 is no line of text"), (["one", None], "^None is no line of text"),
     (["bad \udcff"], r"'bad \\udcff' has half of a surrogate pair")],
)  # fmt: skip
def test_what_is_no_text(translator, lines, words):
    for call in (translator.translate, lambda lines: list(translator.translate_iter(lines))):
        with pytest.raises(PluginError, match=words):
            call(lines)


@pytest.fixture
def with_options(packed, tmp_path):
    """Loads a folder that has these options."""

    def load(options, **others):
        folder = shutil.copytree(packed, tmp_path / "with options", dirs_exist_ok=True)
        content = json.loads((folder / "specdec.json").read_text("utf-8"))
        content.update(options={**content.get("options", {}), **options}, **others)
        (folder / "specdec.json").write_text(json.dumps(content), "utf-8")
        return specdec_plugin.load_session(str(folder))

    return load


@pytest.mark.parametrize(
    "options, told",
    [
        ({"max_len_b": "9"}, "max_len_b='9': give a whole number"),
        ({"beam": "5"}, "beam='5': give a whole number"),
        ({"beam": None}, "beam=None: give a whole number"),
        ({"verifier_dtype": "float7"}, "verifier_dtype='float7': choose one of"),
        ({"block_size": "8"}, "block_size='8': give a whole number"),  # which auto does not read
        ({"no_such": 1}, "There is no option no_such"),
    ],
)
def test_an_option_of_another_type_in_a_folder(with_options, options, told):
    with pytest.raises(PluginError, match=told):
        with_options(options)


@pytest.mark.parametrize("decoding", [None, "beam"])
def test_a_folder_whose_search_takes_phrases(with_options, decoding):
    session = with_options({"constraints": "ordered", "beam": 3}, decoding=decoding)
    translator = session.translator()
    assert len(translator.translate(["one", "two"], 2)) == 2
    phrases = [["menos", "siete"]]
    (found,) = translator.translate(["one"], phrases=phrases)
    assert found.text.index("menos") < found.text.index("siete")
    assert texts(translator.translate(["one"])) != [found.text]


def test_a_path_with_a_colon(packed, tiny_verifier, tmp_path):
    """At which fairseq splits paths, as at those of an ensemble."""
    (tmp_path / "a:b").mkdir()
    for path in packed.iterdir():
        (tmp_path / "a:b" / path.name).symlink_to(path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a:b")
    content = json.loads((packed / "specdec.json").read_text("utf-8"))
    for given in (tmp_path / "a:b", tmp_path / "a:b" / content["model"][0]):
        with pytest.raises(PluginError, match=r"a:b.* holds a :, at which fairseq splits paths"):
            specdec_plugin.load(str(given), source_lang=None)
    content["model"] = ["model:1.pt"]
    (link / "model:1.pt").symlink_to(tiny_verifier)
    (link / "specdec.json").unlink()
    (link / "specdec.json").write_text(json.dumps(content), "utf-8")
    assert specdec_plugin.load(str(link)).translate(["A dog."])


def test_threads_share_a_translator(session, translator, corpus):
    """Each gets what it would get alone, whatever the others do to the method."""
    lines = corpus.lines("test", "en")
    wanted = texts(translator.translate(lines))
    own = session.translator("specdec")
    threads = torch.get_num_threads()

    def translate(number):
        assert torch.get_num_threads() == threads
        if number % 2:
            own.method = ("greedy", "specdec")[number // 2 % 2]
        used = own if number % 2 else translator
        return texts(used.translate(lines[number:], batch_size=1 + number % 3))

    found = at_once([lambda n=n: translate(n) for n in range(8)])
    assert found == [wanted[number:] for number in range(8)]


def test_asyncio_goes_on_meanwhile(translator, corpus):
    lines = corpus.lines("test", "en")
    wanted = texts(translator.translate(lines))
    session = translator.session

    async def work():
        session.lock.acquire()  # as if another thread decoded
        tasks = [asyncio.create_task(translator.translate_async(lines, 4)) for _ in range(3)]
        for _ in range(20):  # the loop is free while they wait
            await asyncio.sleep(0.001)
        assert not any(task.done() for task in tasks)
        session.lock.release()
        return [texts(found) for found in await asyncio.gather(*tasks)]

    assert asyncio.run(work()) == [wanted] * 3


def test_a_mistake_ends_no_loop(translator, corpus):
    async def work():
        calls = (translator.translate_async(["one"], nbest=0), translator.translate_async(["one"]))
        return await asyncio.gather(*map(asyncio.create_task, calls), return_exceptions=True)

    mistake, found = asyncio.run(work())
    assert type(mistake) is ValueError and str(mistake) == "nbest 0: give at least 1."
    assert texts(found) == texts(translator.translate(["one"]))


def test_options_of_the_folder_are_those_of_a_search_for_phrases(with_options, packed):
    session = with_options({"beam": 7, "constraints": "ordered"})
    assert session.for_phrases("beam", {}) == {"beam": 7, "constraints": "ordered"}
    assert session.for_phrases("fairseq", {"beam": 3}) == {"beam": 3, "constraints": "ordered"}
    assert session.for_phrases("greedy", {}) == {"constraints": "ordered"}  # which it refuses
    plain = specdec_plugin.load_session(str(packed))
    assert plain.for_phrases("auto", {}) == {"beam": 5, "constraints": "unordered"}
    (found,) = session.translator().translate(["one"], phrases=[["menos", "siete"]])
    assert found.text.index("menos") < found.text.index("siete")
