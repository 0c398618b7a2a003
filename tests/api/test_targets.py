"""What is known of targets: how they begin, or all of them, which is scored."""

import asyncio
import gc
import io
import logging
import weakref
from unittest import mock

import pytest
import sentencepiece
import torch

import specdec_plugin
from specdec_plugin.api.texts import Texts
from specdec_plugin.errors import PluginError
from tests.support import tiny
from tests.support.command_lines import generate_args, run_cli, scored
from tests.support.multilingual import SETTINGS, trained

LANGUAGES = {"source_lang": "en", "target_lang": "es"}
PREFIXES = ["ocho", "", "uno dos tres", "siete", ""]
#: Methods by their beams.
METHODS = {1: ["greedy", "specdec", "auto", "hybrid-jacobi"], 3: ["auto", "specdec", "beam"]}


@pytest.fixture(scope="module")
def session(corpus, tiny_verifier):
    return specdec_plugin.load_session(tiny_verifier, corpus.data_dir, **LANGUAGES)


@pytest.fixture(scope="module")
def lines(corpus):
    return corpus.lines("test", "en")[:5]


@pytest.fixture(scope="module", params=list(SETTINGS))
def multilingual(request, corpus, tmp_path_factory):
    """The name of a setting, its model, and a session."""
    path = trained(corpus, request.param, tmp_path_factory)
    setting = SETTINGS[request.param]
    options = {"langs": "en,es"}
    if request.param != "mbart":
        options = {"lang_pairs": "en-es,es-en", "encoder_langtok": "src", "decoder_langtok": True}
        options["lang_tok_replacing_bos_eos"] = request.param == "replacing"
    session = specdec_plugin.load_session(
        path, corpus.data_dir, **LANGUAGES, task=f"specdec_{setting.task}", task_options=options
    )
    return request.param, path, session


def told(hypotheses):
    return [(each.tokens.tolist(), pytest.approx(each.score, abs=1e-4)) for each in hypotheses]


class TestPrefixes:
    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_every_method_continues_as_fairseq(self, session, lines, batch_size):
        for beam, names in METHODS.items():
            fairseqs = session.translator(None, beam=beam, max_len_b=20)
            expected = fairseqs.translate_pieces(lines, batch_size, prefixes=PREFIXES)
            for prefix, each in zip(PREFIXES, expected, strict=True):
                assert each.pieces.startswith(prefix)
            for name in names:
                translator = session.translator(name, beam=beam, max_len_b=20)
                found = translator.translate_pieces(lines, batch_size, prefixes=PREFIXES)
                assert told(found) == told(expected)

    def test_none_changes_nothing(self, session, lines):
        translator = session.translator("greedy", max_len_b=20)
        expected = translator.translate_pieces(lines, 2)
        assert told(translator.translate_pieces(lines, 2, prefixes=[""] * 5)) == told(expected)
        assert told(translator.translate_pieces(lines, 2, prefixes=PREFIXES)) != told(expected)

    def test_what_it_writes_itself_changes_nothing(self, session, lines):
        translator = session.translator("specdec", draft_rows=0, max_len_b=20)
        whole = translator.translate_pieces(lines)
        halves = [" ".join(each.pieces.split()[: len(each.tokens) // 2]) for each in whole]
        again = translator.translate_pieces(lines, prefixes=halves)
        assert told(again) == told(whole)
        # The beginning is verified in one iteration.
        assert sum(each.iterations for each in again) < sum(len(each.tokens) for each in whole)

    def test_a_sentence_alone_takes_one_pass_for_its_prefix(self, session):
        translator = session.translator("greedy", max_len_b=20)
        for prefix, passes in (("uno dos tres", 3), ("uno dos tres cuatro ocho uno", 1)):
            (found,) = translator.translate_pieces(["one two three"], prefixes=[prefix])
            written = len(found.tokens) - len(prefix.split())
            # The pass over the prefix chooses the token behind it, too.
            assert found.iterations == written - 1 + (1 if passes == 1 else passes + 1)

    def test_text(self, packed):
        translator = specdec_plugin.load(str(packed))
        lines, prefixes = ["one two", "nine"], ["ocho uno", ""]
        found = translator.translate(lines, prefixes=prefixes)
        assert found[0].text.startswith("ocho uno")
        assert found[1].text == translator.translate(["nine"])[0].text
        given = (iter(f"{each}\n" for each in texts) for texts in (lines, prefixes))
        streamed = list(translator.translate_iter(next(given), ahead=1, prefixes=next(given)))
        later = asyncio.run(translator.translate_async(lines, prefixes=prefixes))
        assert [each.text for each in streamed] == [each.text for each in found]
        assert [each.text for each in later] == [each.text for each in found]

    def test_the_language_stays_before_it(self, multilingual, lines):
        name, _, session = multilingual
        words = session.task.target_dictionary
        for method in ("greedy", "beam", "fairseq"):
            translator = session.translator(method, max_len_b=20)
            for found in translator.translate_pieces(lines, 5, prefixes=["siete ocho"] * 5):
                begun = [words[each] for each in found.tokens[:3]]
                own = ["__es__"] if name == "prefix" else []
                assert begun[: len(own) + 2] == [*own, "siete", "ocho"]
                assert found.text.startswith("siete ocho")

    @pytest.mark.parametrize("decoding, beam", [("greedy", 1), ("beam", 4), (None, 4), ("auto", 4)])
    @pytest.mark.parametrize("least", [1, 5])
    def test_a_line_does_not_depend_on_the_prefixes_of_others(self, session, decoding, beam, least):
        """A minimum of length holds behind a line's own prefix."""
        translator = session.translator(decoding, beam=beam, max_len_b=20, min_len=least)
        lines = ["one", "two", "three four", "nine", "zero one"]
        prefixes = ["", "uno dos tres cuatro ocho uno dos", "ocho", "", "uno dos tres"]
        alone = translator.translate_pieces(lines, 1, nbest=beam, prefixes=prefixes)
        together = translator.translate_pieces(lines, 5, nbest=beam, prefixes=prefixes)
        for one, other in zip(alone, together, strict=True):
            assert told(one.nbest or [one]) == told(other.nbest or [other])
        without = translator.translate_pieces(lines[3:4], nbest=beam)
        assert told(without) == told(together[3:4])

    def test_symbols_that_no_text_has(self, session, caplog):
        translator = session.translator("greedy", max_len_b=20)
        for symbol in ("</s>", "<pad>"):
            with pytest.raises(PluginError, match="prefix of line 2 has a symbol that ends or"):
                translator.translate_pieces(["one", "two"], prefixes=["", f"uno {symbol} dos"])
        with caplog.at_level(logging.WARNING):
            (found,) = translator.translate_pieces(["one"], prefixes=["quince uno"])
        assert "line 1: the prefix has symbols that are unknown" in caplog.text
        assert found.pieces.startswith("<unk> uno")

    def test_a_prefix_that_the_limit_cuts(self, session, caplog):
        translator = session.translator("greedy", max_len_b=3)
        with caplog.at_level(logging.WARNING):
            found = translator.translate_pieces(
                ["one", "two"], 2, prefixes=["uno dos", "uno dos tres cuatro ocho"]
            )
        assert [each.pieces for each in found][1] == "uno dos tres"
        assert caplog.text.count("limit of length") == 1
        assert (
            "line 2: the prefix has 5 symbols, and the limit of length cuts it to 3" in caplog.text
        )

    def test_references_and_prefixes(self, corpus, tiny_verifier, session, lines):
        """References may begin hypotheses, and prefixes do the same."""
        own = specdec_plugin.load_session(
            tiny_verifier, corpus.data_dir, **LANGUAGES, prefix_size=1
        )
        translator = own.translator("greedy", max_len_b=20)
        dataset = own.split("test")
        batch = dataset.collater([dataset[number] for number in range(5)])
        ids = batch["id"].tolist()
        expected = dict(zip(ids, (each[0] for each in translator.decode(batch)), strict=True))
        firsts = [corpus.lines("test", "es")[number].split()[0] for number in range(5)]
        plain = session.translator("greedy", max_len_b=20)
        found = plain.translate_pieces(lines, 5, prefixes=firsts)
        for number, each in enumerate(found):
            assert torch.equal(each.tokens, expected[number]["tokens"])
        with pytest.raises(PluginError, match="prefix_size 1 takes the first tokens of references"):
            translator.translate_pieces(lines, prefixes=firsts)

    def test_iterators(self, packed):
        translator = specdec_plugin.load(str(packed))
        lines, prefixes = ["one two", "nine"], ["ocho uno", ""]
        expected = [each.text for each in translator.translate(lines, prefixes=prefixes)]
        found = translator.translate(iter(lines), prefixes=iter(prefixes))
        assert [each.text for each in found] == expected
        assert len(translator.translate(iter(lines))) == 2
        scores = translator.session.score(lines, ["uno", "dos"])
        assert told(translator.session.score(iter(lines), iter(["uno", "dos"]))) == told(scores)

    @pytest.mark.parametrize(
        "prefixes, words",
        [
            (["a"], "There are 1 prefixes for 2 lines: give one for each line"),
            ("ab", "Give a list of lines"),
            ([1, 2], "1 is no line of text"),
        ],
    )
    def test_refusals(self, session, prefixes, words):
        with pytest.raises(PluginError, match=words):
            session.translator("greedy").translate_pieces(["one", "two"], prefixes=prefixes)

    def test_another_number_of_lines_of_a_file(self, packed):
        translator = specdec_plugin.load(str(packed))
        with pytest.raises(PluginError, match="There are 1 prefixes, and more lines: give one"):
            list(translator.translate_iter(["one"] * 3, ahead=1, prefixes=iter(["a"])))
        with pytest.raises(PluginError, match="Give a list of lines"):
            list(translator.translate_iter(["one"] * 3, prefixes="abc"))
        with pytest.raises(PluginError, match="There are more prefixes than the 3 lines"):
            list(translator.translate_iter(["one"] * 3, ahead=1, prefixes=["", "uno", "", ""]))


class TestScores:
    def test_targets_are_those_of_the_data(self, multilingual, corpus):
        """With the symbols that the task writes around the words."""
        name, _, session = multilingual
        # fairseq's multilingual task has no --prepend-bos.
        for prepends in (False, True) if name == "mbart" else (False,):
            session.task.args.prepend_bos = prepends
            dataset = session.split("test")
            found = session.targets(corpus.lines("test", "es"))
            session.task.args.prepend_bos = False
            for number, each in enumerate(found):
                (target,) = dataset.collater([dataset[number]])["target"]
                assert each.tolist() == target.tolist()

    def test_targets_have_as_many_symbols_as_the_model_takes(self, multilingual, caplog):
        """Those around the words included; a warning tells of words that are cut alone."""
        name, _, session = multilingual
        most = min(model.max_positions()[1] for model in session.models)
        for prepends in (False, True) if name == "mbart" else (False,):
            session.task.args.prepend_bos = prepends
            around = len(session.targets([""])[0])
            whole = " ".join(["uno"] * (most - around))
            with caplog.at_level(logging.WARNING):
                (exact,) = session.targets([whole])
                assert caplog.text == ""
                (cut,) = session.targets([f"{whole} uno"])
            session.task.args.prepend_bos = False
            assert "line 1: the translation has" in caplog.text
            caplog.clear()
            assert len(exact) == most and exact.tolist() == cut.tolist()

    def test_all_symbols_are_printed_of_no_generators_hypothesis(self, multilingual):
        _, _, session = multilingual
        assert session.left_out(None) == set()

    def test_sources_and_targets_have_limits_of_their_own(self):
        models = [tiny.model(0, max_source_positions=20, max_target_positions=10)]
        texts = Texts(tiny.task(), models)
        (found,) = texts.targets(["w1 " * 30])
        assert len(found) == 10 and texts.room == 20

    def test_the_symbol_that_ends_targets_is_in_none(self, multilingual):
        name, _, session = multilingual
        end = "[es]" if name == "mbart" else "</s>"
        for symbol in (end, "<pad>"):
            with pytest.raises(PluginError, match="has a symbol that ends or fills sentences"):
                session.targets([f"uno {symbol} dos"])

    def test_a_file_of_pairs(self, packed, caplog):
        session = specdec_plugin.load_session(str(packed))
        texts = [("one two", "ocho uno dos"), ("nine", ""), ("two", "uno")] * 7
        found = session.score_iter(iter(texts), batch_size=1)
        assert told(found) == told(session.score(*zip(*texts, strict=True), batch_size=4))
        long = " ".join(["uno"] * 2000)
        with caplog.at_level(logging.WARNING):
            assert len([*session.score_iter([*texts, ("one", long)], batch_size=1)]) == 22
        assert "line 22: the translation has 2,000 symbols" in caplog.text

    def test_a_model_that_splits_sources_alone(self, packed):
        """Its pieces of a translation would be others than those of the training."""
        session = specdec_plugin.load_session(str(packed))
        words = " ".join(f"word{number}" for number in range(40))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([words] * 2), model_writer=model, model_type="word",
            vocab_size=43, minloglevel=2,
        )  # fmt: skip
        session.subwords = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        for call in (session.score, session.translator().constrained):
            with pytest.raises(PluginError, match="among the symbols of the target dictionary"):
                call(["one"], ["uno"] if call == session.score else [["uno"]])

    def test_subwords_of_a_programs_own(self, packed):
        """They need no more than encode and decode."""

        class Words:
            def encode(self, line, out_type):
                return [f"▁{word}" for word in line.split()]

            def decode(self, pieces):
                return "".join(pieces).replace("▁", " ").strip()

        session = specdec_plugin.load_session(str(packed))
        expected = session.score(["one two"], ["ocho uno dos"])
        session = specdec_plugin.load_session(str(packed))
        session.subwords = Words()
        assert told(session.score(["one two"], ["ocho uno dos"])) == told(expected)
        (found,) = session.translator().translate(["one two"], prefixes=["ocho uno"])
        assert found.text.startswith("ocho uno")

    def test_models_go_with_their_session(self, packed):
        """A program that loads another one has no room for both."""
        session = specdec_plugin.load_session(str(packed))
        model = weakref.ref(session.models[0])
        gc.collect()
        gc.disable()
        try:
            del session
            assert model() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("pair", ["ab", ("one",), ("one", "uno", "dos"), 3])
    def test_what_is_no_pair(self, packed, pair):
        session = specdec_plugin.load_session(str(packed))
        with pytest.raises(PluginError, match=r"is no pair\. Give pairs such as"):
            list(session.score_iter([pair]))
        with pytest.raises(PluginError, match=r"^None is no pair\. Give pairs such as"):
            list(session.score_iter(None))

    def test_options_have_the_names_of_python(self, packed, monkeypatch):
        session = specdec_plugin.load_session(str(packed))
        pairs = ["one", "uno"]
        for call in (
            lambda: session.score(*([each] for each in pairs)),
            lambda: list(session.score_iter([pairs])),
        ):
            refused = PluginError("--min-len 3: give less.")
            monkeypatch.setattr(session, "targets", mock.Mock(side_effect=refused))
            with pytest.raises(PluginError, match=r"^min_len 3: give less\.$"):
                call()

    def test_the_types_of_a_folder(self, packed, monkeypatch):
        """A folder may keep weights in another type, which scores have then too."""
        session = specdec_plugin.load_session(str(packed))
        exact = session.score(["one two"], ["ocho uno dos"])[0].score
        session = specdec_plugin.load_session(str(packed))
        session.folder.options["verifier_dtype"] = "bfloat16"
        rounded = session.score(["one two"], ["ocho uno dos"])[0].score
        assert rounded != exact and rounded == pytest.approx(exact, abs=0.3)

    @pytest.mark.parametrize("batch_size", [1, 4, 30])
    def test_they_are_those_of_score_reference(self, session, corpus, tiny_verifier, batch_size):
        flags = ["--score-reference", "--batch-size", 5, "--required-batch-size-multiple", 1]
        done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *flags))
        pairs = corpus.lines("test", "en"), corpus.lines("test", "es")
        found = session.score_pieces(*pairs, batch_size)
        expected = scored(done.stdout)
        for number, (each, target) in enumerate(zip(found, pairs[1], strict=True)):
            # fairseq prints logarithms to the base 2.
            assert each.score == pytest.approx(expected[number][0] * 0.6931472, abs=1e-4)
            assert each.pieces == target and each.iterations is None
            assert each.score == pytest.approx(float(each.positional_scores.mean()), abs=1e-5)

    def test_of_a_translation_they_are_its_own(self, session, lines):
        for method in ("greedy", "beam"):
            found = session.translator(method, max_len_b=20).translate_pieces(lines)
            again = session.score_pieces(lines, [each.pieces for each in found], 2)
            ended = [each for each in found if len(each.tokens) <= 20]
            assert ended and told(again) == told(found)

    def test_no_option_of_a_translator_counts(self, packed):
        plain, odd = (
            specdec_plugin.load(str(packed), decoding="beam", beam=4, **more)
            for more in ({}, {"lenpen": 2.0, "max_len_b": 1, "unkpen": 3.0, "temperature": 4.0})
        )
        texts = ["one two", "nine"], ["ocho uno dos", ""]
        assert told(odd.score(*texts)) == told(plain.score(*texts))
        assert [each.text for each in plain.score(*texts)] == ["ocho uno dos", ""]

    def test_languages(self, multilingual, corpus):
        name, path, session = multilingual
        flags = ["--score-reference", "--batch-size", 5, "--decoding", "greedy"]
        done = run_cli(SETTINGS[name].generate(corpus, path, *flags))
        found = session.score_pieces(corpus.lines("test", "en"), corpus.lines("test", "es"), 4)
        expected = scored(done.stdout)
        for number, each in enumerate(found):
            score, text = expected[number]
            assert each.score == pytest.approx(score * 0.6931472, abs=1e-4)
            assert each.text == text.removeprefix("__es__ ")  # which fairseq prints here
        if name != "mbart":
            back = session.between("es", "en")
            pairs = corpus.lines("test", "es"), corpus.lines("test", "en")
            found = back.score_pieces(*pairs)
            assert found[0].text == pairs[1][0] and back._root._scorer is session._scorer
            greedy = back.translator("greedy", max_len_b=20).translate_pieces(pairs[0], 5)
            again = back.score_pieces(pairs[0], [each.text for each in greedy])
            # The tiny model writes the language twice, and it is never printed.
            printed = [len(each.text.split()) for each in greedy]
            own = 2 if name == "prefix" else 1
            kept = [row for row, one in enumerate(greedy) if len(one.tokens) == printed[row] + own]
            assert kept
            for row in kept:
                assert told([again[row]]) == told([greedy[row]])

    def test_a_target_longer_than_the_model_takes(self, session, caplog):
        long = " ".join(["uno"] * 3000)
        with caplog.at_level(logging.WARNING):
            first, second = session.score_pieces(["one", "two"], ["dos", long])
        assert "line 2: the translation has 3,000 symbols and the model takes 1,023" in caplog.text
        assert len(second.tokens) == 1024 and len(first.tokens) == 2
        assert torch.isfinite(second.positional_scores).all()

    @pytest.mark.parametrize(
        "translations, words",
        [
            (["a"], "There are 1 translations for 2 lines: give one for each line"),
            (
                ["uno", "dos </s> tres"],
                "translation of line 2 has a symbol that ends or fills",
            ),
            ("ab", "Give a list of lines"),
        ],
    )
    def test_refusals(self, session, translations, words):
        with pytest.raises(PluginError, match=words):
            session.score_pieces(["one", "two"], translations)
        with pytest.raises(PluginError, match="Raw text needs a subword model"):
            session.score(["one"], ["uno"])

    def test_nothing(self, session):
        assert session.score_pieces([], []) == []
