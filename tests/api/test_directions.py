"""Directions of a multilingual model that is loaded once."""

import pytest

from specdec_plugin import load_session
from specdec_plugin.errors import PluginError
from specdec_plugin.folder import Folder
from tests.support import tiny
from tests.support.multilingual import MULTI, drafter_of, heads_of, trained

OPTIONS = {"lang_pairs": "en-es,es-en", "encoder_langtok": "src", "decoder_langtok": True}
METHODS = ["greedy", "specdec", "hybrid-jacobi", "beam", None]


@pytest.fixture(scope="module", params=["prefix", "replacing"])
def session_of(request, corpus, tmp_path_factory):
    """Loads a model for a direction; it writes languages before targets, or feeds them first."""
    path = trained(corpus, request.param, tmp_path_factory)
    options = {**OPTIONS, "lang_tok_replacing_bos_eos": request.param == "replacing"}

    def build(source, target, **more):
        return load_session(
            path, corpus.data_dir, source_lang=source, target_lang=target,
            task=f"specdec_{MULTI}", task_options={**options, **more},
        )  # fmt: skip

    return build


def told(hypotheses):
    """What two translators may not differ in."""
    return [(each.tokens.tolist(), each.text, round(each.score, 4)) for each in hypotheses]


@pytest.mark.parametrize("method", METHODS)
def test_each_has_the_output_of_its_own_session(session_of, corpus, method):
    spanish, english = corpus.lines("test", "es")[:9], corpus.lines("test", "en")[:9]
    there = session_of("en", "es").translator(method, max_len_b=20)
    back = there.between("es", "en")
    own = session_of("es", "en").translator(method, max_len_b=20)
    expected = told(own.translate_pieces(spanish, 4))
    assert told(back.translate_pieces(spanish, 4)) == expected
    first = told(there.translate_pieces(english, 4))
    assert told(back.translate_pieces(spanish, 4)) == expected
    assert told(there.translate_pieces(english, 4)) == first != expected
    assert back.generator is there.generator


@pytest.mark.parametrize(
    "decoding, trained_for", [("specdec", drafter_of), ("blockwise", heads_of)]
)
def test_trained_drafters(session_of, corpus, tmp_path_factory, decoding, trained_for):
    """They draft as in a session of the direction alone, and the output is the model's."""
    session = session_of("en", "es")
    replacing = session.task.args.lang_tok_replacing_bos_eos
    path = trained_for(corpus, "replacing" if replacing else "prefix", tmp_path_factory)
    flags = {"drafter_path": path, "max_len_b": 20, "draft_rows": 0}
    back = session.translator(decoding, **flags).between("es", "en")
    own = session_of("es", "en").translator(decoding, **flags)
    spanish = corpus.lines("test", "es")[:9]
    found, expected = (each.translate_pieces(spanish, 4) for each in (back, own))
    assert told(found) == told(expected)
    assert [each.iterations for each in found] == [each.iterations for each in expected]
    assert sum(each.iterations for each in found) < sum(len(each.tokens) for each in found)


def test_the_language_is_not_printed(session_of, corpus):
    there = session_of("en", "es").translator()
    for pair in (("es", "en"), ("en", "es"), ("en", "en")):
        (found,) = there.between(*pair).translate_pieces(["one two"])
        assert f"__{pair[1]}__" not in found.text
    kept = session_of("en", "es", keep_inference_langtok=True).translator(max_len_b=20)
    (found,) = kept.between("es", "en").translate_pieces(["uno dos"])
    begins = found.text.startswith("__en__")
    assert begins == (not kept.session.task.args.lang_tok_replacing_bos_eos)


def test_another_method_and_samples_stay_in_the_direction(session_of, corpus):
    spanish = corpus.lines("test", "es")[:3]
    back = session_of("en", "es").translator().between("es", "en")
    back.method = "beam"
    own = session_of("es", "en").translator("beam")
    assert told(back.translate_pieces(spanish)) == told(own.translate_pieces(spanish))
    there = back.between("en", "es")
    assert there.method == "beam" and there.session.languages == ["en", "es"]


def test_a_session_is_kept(session_of):
    session = session_of("en", "es")
    assert session.between("es", "en") is session.between("es", "en")
    assert session.between("es", "en").models is session.models


def test_what_is_refused(session_of, corpus, tiny_verifier):
    there = session_of("en", "es").translator()
    with pytest.raises(PluginError, match=r"has no language fr\. It has en, es"):
        there.between("en", "fr")
    one = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    assert one.languages == []
    with pytest.raises(PluginError, match="has one direction"):
        one.translator().between("es", "en")


def test_clusters_of_one_target_language(session_of, tmp_path):
    there = session_of("en", "es").translator()
    there._flags["vocab_clusters"] = "clusters.pt"
    with pytest.raises(PluginError, match=r"clusters\.pt has the tokens of one target language"):
        there.between("es", "en")
    assert there.between("en", "es") is there


@pytest.mark.parametrize("decoding", ["auto", None])
def test_a_folder_with_clusters_has_one_direction(session_of, decoding):
    session = session_of("en", "es")
    session.folder = Folder("packed", [], [], clusters={"verifier": "clusters.pt"})
    assert session.languages == []
    with pytest.raises(PluginError, match=r"packed/clusters\.pt has the tokens of one target"):
        session.between("es", "en")


def test_one_language_with_two_dictionaries(session_of):
    task = session_of("en", "es").task
    task.target_dictionary.add_symbol("more")
    with pytest.raises(PluginError, match="have dictionaries of their own, so that en cannot be"):
        task.check_direction("en", "en")


@pytest.mark.parametrize("sides", [(["en"], ["es", "fr"]), (["es", "fr"], ["en"])])
def test_dictionaries_of_several_directions_are_compared(session_of, sides):
    task = session_of("en", "es").task
    own = task.target_dictionary
    task.check_dicts({"en": own, "es": own, "fr": own}, *sides)
    with pytest.raises(AssertionError):
        task.check_dicts({"en": own, "es": own, "fr": tiny.dictionary()}, *sides)


def test_a_language_that_is_no_text(session_of):
    with pytest.raises(PluginError, match="has no language"):
        session_of("en", "es").translator().between(["en"], "es")


def test_directions_are_kept_up_to_a_number(session_of, monkeypatch):
    monkeypatch.setattr("specdec_plugin.api.session._DIRECTIONS", 1)
    session = session_of("en", "es")
    first = session.between("es", "en")
    assert session.between("es", "es") is not first
    assert len(session._directions) == 1 and session.between("es", "en") is not first


def test_samples_of_all_directions_share_a_search(session_of, corpus):
    there = session_of("en", "es").translator()
    back = there.between("es", "en")
    lines = corpus.lines("test", "es")[:3]
    found = told(samples(back, lines))
    assert [len(each._others) for each in (there, back)] == [1, 0]
    samples(there, lines)
    assert len(there._others) == 1
    own = session_of("es", "en").translator()
    assert found == told(samples(own, lines)) != told(samples(there, lines))
    back.method = "specdec"
    assert found == told(samples(back, lines)) and len(back._others) == 1


def samples(translator, lines):
    """Those of lines of pieces, by the search that ``sample`` keeps."""
    given = {**translator._flags, "seed": 5, "sampling": True, "beam": 2}
    return translator._other(given).translate_pieces(lines, nbest=2)
