"""Decoding from Python."""

import asyncio
import json
import logging
import threading
import time
from pathlib import Path

import pytest
import torch

import specdec_plugin
from specdec_plugin.api.batches import _moved
from specdec_plugin.api.session import Session
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.interrupts import console_program
from specdec_plugin.fairseq_compat.late_input import is_long, on_host
from specdec_plugin.fairseq_compat.quiet import without_notes
from tests.support.command_lines import generate_args, hypotheses, run_cli
from tests.support.files import some

LANGUAGES = {"source_lang": "en", "target_lang": "es"}


@pytest.fixture(scope="module")
def session(corpus, tiny_verifier):
    return specdec_plugin.load_session(tiny_verifier, corpus.data_dir, **LANGUAGES)


def texts(found):
    return [each.text for each in found]


def decoded_by_fairseq(corpus, verifier, *more):
    args = generate_args(corpus.data_dir, verifier, *more)
    return hypotheses(run_cli(args).stdout)


@pytest.mark.parametrize("decoding", [None, "greedy"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_pieces_are_decoded_as_by_the_command_line(
    session, corpus, tiny_verifier, decoding, batch_size
):
    """A hypothesis for every line, in order."""
    translator = session.translator(decoding, beam=1, max_len_b=20)
    found = translator.translate_pieces(corpus.lines("test", "en"), batch_size)
    wanted = decoded_by_fairseq(corpus, tiny_verifier, "--batch-size", batch_size)
    assert texts(found) == wanted and len(wanted) == 21
    assert [each.pieces for each in found] == texts(found)


@pytest.mark.parametrize("decoding, beam", [("greedy", 1), ("beam", 4)])
def test_a_hypothesis_keeps_no_memory_of_its_batch(session, corpus, decoding, beam):
    """A million of them may be kept."""
    translator = session.translator(decoding, beam=beam)
    for found in translator.translate_pieces(corpus.lines("test", "en"), batch_size=8):
        for each in (found.tokens, found.positional_scores):
            assert each.untyped_storage().nbytes() == each.numel() * each.element_size()


def test_a_drafter_changes_nothing_but_the_iterations(session, corpus, tiny_drafter):
    lines = corpus.lines("test", "en")
    greedy = session.translator("greedy", max_len_b=20)
    drafted = session.translator("specdec", drafter_path=tiny_drafter, draft_rows=0, max_len_b=20)
    pairs = list(zip(greedy.translate_pieces(lines), drafted.translate_pieces(lines), strict=True))
    assert len(pairs) == len(lines)
    for one, other in pairs:
        assert torch.equal(one.tokens, other.tokens)
        assert one.positional_scores.shape == one.tokens.shape == (one.iterations,)
        assert torch.allclose(one.positional_scores, other.positional_scores, atol=1e-4)
        assert one.score == pytest.approx(float(one.positional_scores.mean()), abs=1e-5)
    steps = [each.iterations for _, each in pairs]
    assert drafted.statistics.iterations == sum(steps) < greedy.statistics.iterations
    assert drafted.statistics.accepted_tokens > 1 == greedy.statistics.accepted_tokens


def test_notes_of_iterators_are_left_out_in_one_thread_only(session, caplog):
    notes = logging.getLogger("fairseq.tasks.fairseq_task")

    with caplog.at_level(logging.INFO):
        with without_notes():
            notes.info("this thread's")
            other = threading.Thread(target=notes.info, args=["another's"])
            other.start()
            other.join()
        session.batches(session.split("test"), 5)
        notes.info("afterwards")
    assert [each.message for each in caplog.records if each.name == notes.name] == [
        "another's",
        "afterwards",
    ]


def test_a_batch_gives_fairseqs_hypotheses(session, corpus):
    translator = session.translator("greedy", max_len_b=20)
    found = translator.translate_pieces(corpus.lines("test", "en"))
    dataset = session.split("test")
    batch = dataset.collater([dataset[number] for number in (3, 1)])
    rows = translator.decode(batch)
    for number, (best,) in zip(batch["id"].tolist(), rows, strict=True):
        assert torch.equal(best["tokens"], found[number].tokens)
        assert session.hypothesis(best).pieces == found[number].pieces


def test_references_begin_hypotheses(corpus, tiny_verifier):
    """As with ``--prefix-size``, for every method."""
    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, **LANGUAGES, prefix_size=2
    )
    said = []
    for translator in (session.translator(None, beam=1), session.translator("greedy")):
        for batch in session.batches(session.split("test"), 5):
            for (best, *_), wanted in zip(translator.decode(batch), batch["target"], strict=True):
                assert torch.equal(best["tokens"][:2], wanted[:2])
                said.append(best["tokens"].tolist())
    assert len(said) == 42 and said[:21] == said[21:]
    with pytest.raises(PluginError, match="prefix_size 2 takes the first tokens of references"):
        session.translator().translate_pieces(["one"])


def test_a_beam_search_gives_the_best_hypothesis(session, corpus):
    translator = session.translator(None, max_len_b=20)
    ((best, *others),) = [translator.decode(batch)[0] for batch in session.batches(
        session.dataset(["one two"]), 1)]  # fmt: skip
    (found,) = translator.translate_pieces(["one two"])
    assert len(others) == 4 and found.score == float(best["score"])
    assert translator.statistics is None and found.iterations is None


@pytest.mark.parametrize("method", ["auto", "beam", "fairseq"])
@pytest.mark.parametrize("ordered", [True, False])
def test_phrases_of_a_glossary(corpus, tiny_verifier, sentencepieces, method, ordered):
    """In the text of their line, in order where asked for, as fairseq finds them."""
    translator = specdec_plugin.load(
        tiny_verifier, str(sentencepieces), **LANGUAGES, max_len_b=20, decoding=method,
        subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    lines, phrases = ["one two", "nine", "three and"], [["ocho uno"], [], ["siete", "menos"]]
    found = translator.constrained(lines, phrases, ordered, batch_size=2, nbest=2, beam=6)
    assert "ocho uno" in found[0].text and len(found[0].nbest) == 2
    order = found[2].text.index("siete"), found[2].text.index("menos")
    assert not ordered or order[0] < order[1]
    plain = specdec_plugin.load_session(
        tiny_verifier, str(sentencepieces), **LANGUAGES,
        subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    fairseqs = plain.translator("fairseq", max_len_b=20)
    expected = fairseqs.constrained(lines, phrases, ordered, batch_size=3, beam=6)
    assert [each.text for each in found] == [each.text for each in expected]


def test_phrases_of_every_call(packed):
    """They are those of ``constrained``, behind prefixes of any lengths."""
    translator = specdec_plugin.load(str(packed))
    lines, phrases = ["one two", "nine", "three and"], [["ocho uno"], [], ["siete", "menos"]]
    prefixes = ["", "dos", "cuatro uno"]
    for given in ({}, {"prefixes": prefixes}):
        begin = given.get("prefixes", [""] * 3)
        expected = [
            translator.constrained([line], [each], prefixes=[prefix])[0].text
            for line, each, prefix in zip(lines, phrases, begin, strict=True)
        ]
        for each, text in zip(phrases, expected, strict=True):
            assert all(phrase in text for phrase in each)
        found = translator.translate(lines, 3, phrases=phrases, **given)
        streamed = translator.translate_iter(lines, 2, phrases=iter(phrases), **given)
        later = asyncio.run(translator.translate_async(lines, 3, phrases=phrases, **given))
        for several in (found, streamed, later):
            assert [each.text for each in several] == expected
        begun = [text.startswith(prefix) for text, prefix in zip(expected, prefixes, strict=True)]
        assert all(begun) == bool(given)
    for method in ("auto", "fairseq"):
        loaded = specdec_plugin.load(str(packed), decoding=method, constraints="ordered", beam=5)
        assert loaded.translate(["one"])[0].text  # without any
    ordered = specdec_plugin.load(str(packed), constraints="ordered", beam=5)
    text = ordered.translate(["one"], phrases=[["menos", "siete"]])[0].text
    assert text.index("menos") < text.index("siete")
    with pytest.raises(PluginError, match="There are more lists of phrases than the 3 lines"):
        list(translator.translate_iter(lines, phrases=[*phrases, []]))
    with pytest.raises(PluginError, match="There are 2 lists of phrases, and more lines"):
        list(translator.translate_iter(lines, phrases=phrases[:2]))
    with pytest.raises(PluginError, match=r"^constraints='unordered' cannot be kept with decod"):
        specdec_plugin.load(str(packed), decoding="greedy").translate(lines, phrases=phrases)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_alignments(session, corpus, kind):
    """Of each hypothesis, as fairseq aligns it; JSON has them too."""
    lines, found = corpus.lines("test", "en")[:4], []
    for decoding, beam in (("fairseq", 3), ("beam", 3), ("auto", 3), ("greedy", 1)):
        translator = session.translator(decoding, beam=beam, print_alignment=kind, max_len_b=20)
        lists = translator.translate_pieces(lines, nbest=beam)
        found.append([each for best in lists for each in best.nbest or (best,)])
    assert session.translator("auto").translate_pieces(lines)[0].alignment is None
    for theirs, *ours in zip(*found[:3], strict=True):
        for mine in ours:
            assert mine.pieces == theirs.pieces and len(mine.alignment) > 0
            for pair, other in zip(mine.alignment, theirs.alignment, strict=True):
                assert pair == pytest.approx(other, abs=1.1e-6)
    best = found[3][0]
    assert json.loads(json.dumps(best.plain()))["alignment"] == [*map(list, best.alignment)]
    if kind == "hard":
        length = len(best.pieces.split())
        assert [output for _, output in best.alignment] == [*range(length)]
    else:
        assert sum(best.alignment[0]) == pytest.approx(1, abs=1e-4)


def test_the_time_includes_alignments(session, corpus, monkeypatch):
    translator = session.translator("greedy", print_alignment="hard", max_len_b=20)
    aligner = translator.generator._aligner
    align = aligner.align
    monkeypatch.setattr(aligner, "align", lambda *given: (time.sleep(0.2), align(*given)))
    translator.translate_pieces(corpus.lines("test", "en")[:1])
    assert translator.statistics.seconds["total"] > 0.2


def test_searches_of_other_kinds_are_kept(corpus, tiny_verifier, sentencepieces, monkeypatch):
    """To build a search takes longer than a sentence, and a glossary comes with each text."""
    session = specdec_plugin.load_session(
        tiny_verifier, str(sentencepieces), **LANGUAGES,
        subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    translator, built = session.translator("auto", max_len_b=20), []
    build = session.translator
    monkeypatch.setattr(session, "translator", lambda *a, **k: built.append(k) or build(*a, **k))
    first = translator.constrained(["one two"], [["ocho"]])[0].text
    assert translator.constrained(["one two"], [["ocho"]])[0].text == first
    assert len(built) == 1
    ordered = translator.constrained(["one"], [["ocho", "siete"]], ordered=True)[0].text
    assert len(built) == 2 and ordered.index("ocho") < ordered.index("siete")
    samples = [translator.sample(["one two"], seed=seed)[0].text for seed in (1, 2, 3, 4, 5, 1)]
    assert samples[0] == samples[-1] and len(built) == 8  # the first one was given up meanwhile
    translator.method = "beam"
    assert "ocho" in translator.constrained(["one two"], [["ocho"]])[0].text
    assert built[-1]["constraints"] == "unordered" and len(built) == 10


def test_phrases_that_are_refused(corpus, tiny_verifier, sentencepieces):
    session = specdec_plugin.load_session(
        tiny_verifier, str(sentencepieces), **LANGUAGES,
        subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    translator = session.translator("auto")
    for phrases, words in (
        ([[]], "^There are 1 lists of phrases for 2 lines: give one for each line"),
        ([[], ["\u4e2d"]], "^The phrase '\u4e2d' is .* in subword pieces, which the target dict"),
        ([[], [""]], "^The phrase '' is '' in subword pieces"),
        ([[], [5]], "^5 is no line of text"),
        ([[], "uno"], "^Give a list of lines, such as"),
        ("ab", "^Give a list of lines, such as"),
        (None, "^lines=None: give a list of texts"),
        (iter([[]]), "^There are 1 lists of phrases for 2 lines"),
    ):
        with pytest.raises(PluginError, match=words):
            translator.constrained(["one", "two"], phrases)
    with pytest.raises(PluginError, match=r"^constraints='unordered' cannot be kept with decod"):
        session.translator("greedy").constrained(["one"], [["uno"]])
    for method in ("beam", "fairseq"):  # whose own search has an assertion
        with pytest.raises(PluginError, match=r"can end within the length limit\. Raise max_len_b"):
            session.translator(method, max_len_b=20).constrained(["one"], [["uno"] * 30])
    with pytest.raises(PluginError, match=r"^This search keeps no constraints: give constraints"):
        batch = session.batches(session.dataset(["one"], phrases=session.phrases([["uno"]])), 1)
        translator.decode(batch[0])


def test_lines_of_a_later_part_are_counted_from_the_first_part(session, caplog):
    with caplog.at_level(logging.WARNING):
        session.batches(session.dataset(["one", "one " * 1100], 70), 2)
    assert "line 72: the source has 1,101 tokens" in caplog.text


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<pad>", "<unk>"])
def test_symbols_that_no_phrase_has(corpus, tiny_verifier, symbol):
    """Which subwords of a program's own may give."""

    class Words:
        def encode(self, line, out_type):
            return line.split()

        def decode(self, pieces):
            return " ".join(pieces)

    session = specdec_plugin.load_session(tiny_verifier, corpus.data_dir, **LANGUAGES)
    session.subwords = Words()
    assert session.phrases([["uno dos"]]) is not None
    with pytest.raises(PluginError, match="in subword pieces, which the target dictionary does"):
        session.phrases([[f"uno {symbol}"]])


def test_raw_text(session, sentencepieces, corpus, tiny_verifier):
    translator = specdec_plugin.load(
        tiny_verifier, str(sentencepieces), **LANGUAGES, max_len_b=20,
        subwords=str(sentencepieces / "spm.model"),
    )  # fmt: skip
    lines = [*corpus.lines("test", "en")[:5], "", "  nine   eight "]
    found = translator.translate(lines, batch_size=2)
    plain = [*lines[:-1], "nine eight"]
    wanted = session.translator(max_len_b=20).translate_pieces(plain)
    assert texts(found) == texts(wanted)
    assert [each.pieces.replace("▁", "") for each in found] == texts(wanted)
    assert translator.translate([]) == []


def test_the_dictionaries_are_beside_the_checkpoint(corpus, tiny_verifier, tmp_path):
    for path in (Path(tiny_verifier), *some(Path(corpus.data_dir).glob("dict.*"))):
        (tmp_path / path.name).symlink_to(path)
    path = str(tmp_path / Path(tiny_verifier).name)
    found = specdec_plugin.load(path, **LANGUAGES, max_len_b=20).translate_pieces(["one two"])
    assert len(found) == 1
    both = specdec_plugin.load(f"{path}:{path}", **LANGUAGES, max_len_b=20)
    assert len(both.session.models) == 2
    assert texts(both.translate_pieces(["one two"])) == texts(found)


def test_a_call_prints_nothing(session, corpus, caplog, recwarn):
    translator = session.translator("greedy")
    translator.translate_pieces(corpus.lines("test", "en")[:1])  # the first one loads the kernels
    caplog.clear()
    recwarn.clear()
    with caplog.at_level(logging.INFO):
        translator.translate_pieces(corpus.lines("test", "en")[:3], batch_size=2)
    assert caplog.text == "" and not recwarn.list


def test_a_long_line_is_cut_with_a_warning(session, caplog):
    lines = ["one", "one " * 1100]
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert len(session.translator(max_len_b=5).translate_pieces(lines)) == 2
        assert "line 2: the source has 1,101 tokens" in caplog.text


@pytest.mark.parametrize(
    "flags, words",
    [
        ({"decoding": "fast"}, "decoding='fast': choose one of greedy"),
        ({"decoding": "specdec", "drafter_dtype": "int2"}, "drafter_dtype='int2': choose"),
        ({"bloc_size": 3}, "no option bloc_size"),
        ({"prefix_size": 3}, "no option prefix_size"),
        ({"top_beta": 3}, "top_beta 3 would have no effect with decoding greedy: leave it out"),
        ({"approximate_scores": True}, "approximate_scores would have no effect"),
        ({"block_size": 0.5, "decoding": "specdec"}, "block_size=0.5: give a whole number"),
        ({"keep_packed_weights": 1}, "keep_packed_weights=1: give True or False"),
        ({"beam": "5", "decoding": "beam"}, "beam='5': give a whole number"),
        ({"beam": True, "decoding": "beam"}, "beam=True: give a whole number"),
        ({"max_len_b": None}, "max_len_b=None: give a whole number"),
        ({"lenpen": "1"}, "lenpen='1': give a number"),
        ({"beam": 5}, "beam"),
        ({"decoding": "nat"}, "drafter"),
    ],
)
def test_options_that_are_refused(session, flags, words):
    with pytest.raises(PluginError, match=words) as caught:
        session.translator(**flags)
    assert str(caught.value).endswith(".")


def test_a_folder_may_be_a_path(corpus, tiny_verifier):
    path = Path(corpus.data_dir)
    found = specdec_plugin.load(Path(tiny_verifier), path, **LANGUAGES, max_len_b=20)
    assert found.translate_pieces(["one"])[0].pieces


def test_other_types_are_refused(session, corpus):
    """In a sentence, and before anything is decoded."""
    translator = session.translator()
    for call, words in (
        (lambda: translator.translate_pieces(["a"], nbest=1.5), "nbest 1.5: give a whole number"),
        (lambda: translator.translate_pieces(["a"], "4"), "batch_size '4': give a whole number"),
        (lambda: translator.translate_pieces(5), "lines=5: give a list of texts"),
        (lambda: translator.sample(["a"], samples=0), "samples 0: give at least 1"),
        (lambda: specdec_plugin.load(7), "path 7: name a folder, or the checkpoint"),
        (lambda: specdec_plugin.load("a", 7), "data 7: name the folder of the dictionaries"),
        (lambda: specdec_plugin.load("a", device=1.5), "There is no device 1.5. Give cpu, cuda"),
        (lambda: specdec_plugin.load("a", task_options="a"), "task_options='a': give a dictionary"),
        (lambda: specdec_plugin.load_session("a", prefix_size="2"), "prefix_size '2': give a whol"),
        (lambda: list(translator.translate_iter(["a"], ahead="2")), "ahead '2': give a whole num"),
        (lambda: list(translator.translate_iter(["a"], ahead=2.5)), "ahead 2.5: give a whole num"),
        (lambda: translator.sample(["a"], beam=7), "beam=7 is set by the call: give samples."),
        (lambda: translator.sample(["a"], sampling=False), "sampling=False is set by the call"),
        (
            lambda: translator.constrained(["a"], [[]], constraints="ordered"),
            "constraints='ordered' is set by the call: give ordered.",
        ),
    ):
        with pytest.raises(PluginError, match=words) as caught:
            call()
        assert str(caught.value).endswith(".")


def test_lines_may_be_any_iterable(session):
    translator = session.translator()
    wanted = [each.pieces for each in translator.translate_pieces(["one", "two"])]
    for lines in ((each for each in ("one", "two")), {"one": 1, "two": 2}):
        assert [each.pieces for each in translator.translate_pieces(lines)] == wanted


def test_files_and_lines_that_are_refused(session, corpus, tiny_verifier, tmp_path):
    def load(path=tiny_verifier, data=corpus.data_dir, languages=LANGUAGES, **more):
        specdec_plugin.load_session(path, data, **languages, **more)

    for path in ("none", str(tmp_path / "none.pt"), f"{tiny_verifier}:none.pt"):
        with pytest.raises(
            PluginError, match=r"^There is no folder or checkpoint .*none[.pt]*\. C"
        ):
            load(path=path, data=None, languages={})
    with pytest.raises(PluginError, match=r"Give source_lang and target_lang"):
        load(data=str(tmp_path), languages={})
    with pytest.raises(PluginError, match=r"dict\.de\.txt.* Name a folder"):
        load(languages={"source_lang": "de", "target_lang": "es"})
    with pytest.raises(PluginError, match="lang_pairs is an option of the task: give it as task_o"):
        specdec_plugin.load(tiny_verifier, corpus.data_dir, **LANGUAGES, lang_pairs="en-es")
    with pytest.raises(PluginError, match=r"none\.model is not a file"):
        load(subwords="none.model")
    with pytest.raises(PluginError, match="not a SentencePiece model"):
        load(subwords=tiny_verifier)
    with pytest.raises(PluginError, match="nowhere"):
        session.split("nowhere")
    with pytest.raises(PluginError, match="needs a subword model"):
        session.translator().translate(["one"])
    for lines in ([1, 2], [b"one"]):
        with pytest.raises(PluginError, match="is no line of text"):
            session.translator().translate_pieces(lines)
    with pytest.raises(PluginError, match="Give a list of lines"):
        session.translator().translate_pieces("one")
    with pytest.raises(PluginError, match="batch_size 0"):
        session.translator().translate_pieces(["one"], batch_size=0)


@pytest.mark.parametrize(
    "inputs",
    [
        {"src_tokens": torch.arange(12).view(3, 4), "src_lengths": torch.tensor([4, 2, 1])},
        {"src_tokens": torch.rand(2, 5, 3), "src_lengths": torch.tensor([5, 2])},
        {"src_tokens": torch.rand(2, 5, 3), "more": [torch.tensor([7])], "none": None},
    ],
)
def test_what_a_generator_reads_moves_in_few_copies(inputs):
    """Numbers move together; our generators read no inputs of a decoder in training."""
    batch = {"id": torch.tensor([3]), "net_input": {**inputs, "prev_output_tokens": torch.ones(1)}}
    moved = _moved(batch, torch.device("cpu"), ours=True)
    found = moved["net_input"]
    assert all(on_host(found)[name] is each for name, each in inputs.items())
    assert moved["id"] is batch["id"] and "prev_output_tokens" not in found
    assert found.keys() == inputs.keys() and "prev_output_tokens" in batch["net_input"]
    torch.testing.assert_close({**found}, inputs)
    storages = {each.untyped_storage().data_ptr() for each in found.values() if is_long(each)}
    assert len(storages) <= 1


def test_the_device_is_that_of_the_first_parameter_that_is_left():
    linear = torch.nn.Linear(2, 2)
    session = Session(None, [torch.nn.Sequential(torch.nn.ReLU(), linear)])
    assert session.device.type == "cpu"
    del linear.weight  # as pruning does
    assert session.device.type == "cpu"
    linear.to("meta")
    assert session.device.type == "meta"


@pytest.mark.parametrize(
    "device, words",
    [
        ("foo", "There is no device foo. Give cpu, cuda"),
        ("meta", "There is no device meta. Give cpu, cuda"),
        ("cuda:77", "The device cuda:77 cannot be"),
    ],
)
def test_devices_that_are_refused(corpus, tiny_verifier, device, words):
    for path in (tiny_verifier, "none.pt"):  # before anything is loaded
        with pytest.raises(PluginError, match=words) as caught:
            specdec_plugin.load(path, corpus.data_dir, **LANGUAGES, device=device)
        assert str(caught.value).endswith(".")


def test_messages_name_options_as_they_were_given(session):
    """Those of a command line are flags; see :mod:`tests.cli.test_refused_places` for these."""
    with pytest.raises(PluginError) as caught:
        session.translator(min_len=300).translate_pieces(["one"])
    assert str(caught.value) == (
        "min_len 300 is more than the length limit 200. Lower it, or raise max_len_a or max_len_b."
    )
    assert caught.value.code == caught.value.args[0] == str(caught.value)

    @console_program
    def main(argv):
        session.translator(top_beta=3)

    with pytest.raises(PluginError, match=r"^--top-beta 3 .* with --decoding greedy"):
        main()
    with pytest.raises(PluginError, match=r"^top_beta 3 .* with decoding greedy"):
        session.translator(top_beta=3)


def test_flags_of_programs_are_named_as_they_are(session, monkeypatch):
    def refuse(*told):
        raise PluginError("Write it with specdec-pack --subword-nmt, or give --max-len-b 3.")

    monkeypatch.setattr("specdec_plugin.api.session.build_search", refuse)
    with pytest.raises(PluginError, match="specdec-pack --subword-nmt, or give max_len_b 3"):
        session.translator()
