"""The noise program: what it promises of its output, whatever text and workers it gets."""

import doctest
import gzip
import io
import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import confusion
import draws
import english
import make_errors
import noise
import prepare_subwords
import pytest
from error_types import PUNCTUATION, Sentence
from hypothesis import example, given
from hypothesis import strategies as st
from linestreams import clean
from make_errors import chunks, main, make_pairs, map_in_order, parse_mix, start_worker
from noise import Noise

from specdec_plugin.errors import PluginError
from tests.support.clean_text import sentences
from tests.support.command_lines import SCRIPTS, run_cli
from tests.support.prefixes import common_prefix

LEXICON = confusion.make_lexicon(confusion.count_words(sentences(500), 2, 1000))
MIX = english.ENGLISH.mix


def make_noise(mix: Dict[str, float] = MIX, rate: float = 0.2, clean: float = 0.0) -> Noise:
    return Noise(LEXICON, mix, rate, clean, seed=1)


def read(path: Path) -> List[str]:
    return path.read_bytes().decode("utf-8").split("\n")[:-1]


def made(text: Path, folder: str, *more: Any) -> Tuple[List[str], List[str]]:
    """Both files of a run of the program in this process."""
    output = text.parent / folder
    main([str(arg) for arg in (text, "--output", output, *more)])
    return read(output.with_suffix(".err")), read(output.with_suffix(".cor"))


# --- the same errors, however they are made ---------------------------------------------


def test_same_at_any_number_of_workers_and_chunk_size(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = made(text, "once")
    for workers, chunk in ((1, 7), (2, 50), (3, 11)):
        monkeypatch.setattr(make_errors.chunks, "__defaults__", (chunk,))
        assert made(text, f"of{workers}", "--workers", workers) == once
    assert once[1] == read(text)


def test_seeds_and_copies_differ(text: Path) -> None:
    wrong, right = made(text, "first")
    others, _ = made(text, "second", "--seed", 2)
    copied, clean_twice = made(text, "copies", "--copies", 2)
    assert clean_twice == right * 2
    assert copied[:300] == wrong
    for other in (others, copied[300:]):
        assert sum(map(str.__eq__, wrong, other)) < 120  # those that got no error in either


def test_numbers_depend_on_every_part_of_the_key() -> None:
    sequence = draws.Draws()

    def first(*key: int) -> List[float]:
        sequence.restart(*key)
        return [sequence.uniform() for _ in range(3)]

    keys = list(itertools.product((0, 1, 12), (0, 1, 21), (0, 1, 2)))
    assert len({tuple(first(*key)) for key in keys}) == len(keys)
    assert first(1, 2, 3) == first(1, 2, 3)
    # Files made long ago, elsewhere, are made again.
    assert first(1, 0, 0) == [0.0197977435255553, 0.8999634035433237, 0.05077587247988369]


# --- lines ------------------------------------------------------------------------------

#: Text of all kinds: ordinary words, markup, and what ends a line for some program.
LINES = st.lists(
    st.one_of(
        st.sampled_from([*LEXICON.counts][:60]),
        st.sampled_from(["The", "Their,", "a", "``x``", ":ref:`a b`", "don't", "3.5", ".", "I."]),
        st.text(max_size=6),
        st.sampled_from(["\u2028", "\x0b", "\x85", "\r", "\x00", "\t", "\x1c", ""]),
    ),
    max_size=25,
).map(" ".join)


@given(LINES, st.integers(0, 2**70))
@example("the the the", 6267)
def test_no_line_is_lost_or_split(line: str, number: int) -> None:
    pair = make_noise(rate=0.45).pair(0, number, line)
    assert pair.right == clean(line)
    assert bool(pair.wrong) == bool(pair.right)
    for side in (pair.wrong, pair.right):
        assert len(side.splitlines()) <= 1 and "\x00" not in side
        assert side == " ".join(side.split())
    assert bool(pair.errors) == (pair.wrong != pair.right)


def test_markup_is_left_alone() -> None:
    marked = ["``code``", ":class:`x`", "snake_case", "HTTP", "TypeError", "/etc/hosts", "3.11"]
    line = " and the ".join(marked)
    for number in range(200):
        wrong = make_noise(rate=0.5).pair(0, number, line).wrong.split()
        assert [word for word in wrong if word in marked] == marked


# --- kinds of errors --------------------------------------------------------------------


def one_error(kind: str, number: int) -> Tuple[List[str], List[str]]:
    """Words of a line with errors of one kind only, and of the right one."""
    line = sentences(1, seed=number)[0]
    pair = make_noise({kind: 1.0}, rate=0.08).pair(0, number, line)
    assert set(pair.errors) <= {kind}
    return pair.wrong.split(), pair.right.split()


def replaced(wrong: List[str], right: List[str]) -> Iterator[Tuple[str, str]]:
    """Words that stand for others, in sentences of equal length, lower case, bare."""
    assert len(wrong) == len(right)
    for new, old in zip(wrong, right, strict=True):
        if new != old:
            yield new.strip(".,").lower(), old.strip(".,").lower()


@given(st.integers(0, 10**6))
def test_spelling_and_lists_replace_by_what_they_say(number: int) -> None:
    for new, old in replaced(*one_error("spelling", number)):
        assert new in LEXICON.confusions[old]
    for new, old in replaced(*one_error("real-word", number)):
        assert new in english.REAL_WORDS[old]
    for new, old in replaced(*one_error("agreement", number)):
        assert new in english.AGREEMENT[old]
    for new, old in replaced(*one_error("number", number)):
        assert new in english.noun_forms(old, LEXICON.counts)
    for new, old in replaced(*one_error("verb", number)):
        assert new in english.verb_forms(old, LEXICON.counts)
    for new, _ in replaced(*one_error("misspelling", number)):
        assert new not in LEXICON.counts
    for new, old in replaced(*one_error("ending", number)):
        assert new in english.regular_endings(old) and new not in LEXICON.counts
    for new, old in replaced(*one_error("derivation", number)):
        assert new in LEXICON.families[old] and confusion.stem(new) == confusion.stem(old)


@given(st.integers(0, 10**6))
def test_typo_is_a_slip_at_one_place(number: int) -> None:
    for new, old in replaced(*one_error("typo", number)):
        assert abs(len(new) - len(old)) <= 1
        same = common_prefix(new, old)
        tail = common_prefix(new[::-1], old[::-1])
        assert same + tail >= len(old) - 2  # all but one or two neighbouring letters


@given(st.integers(0, 10**6))
def test_words_come_go_and_change_places(number: int) -> None:
    wrong, right = one_error("swap", number)
    assert Counter(" ".join(wrong).lower().replace(" ", "")) == Counter(
        " ".join(right).lower().replace(" ", "")
    )
    assert len(wrong) == len(right)
    wrong, right = one_error("deletion", number)
    assert is_within(wrong, right)
    wrong, right = one_error("insertion", number)
    assert is_within(right, wrong)
    wrong, right = one_error("spacing", number)
    assert "".join(wrong) == "".join(right)
    for kind, small in (("article", english.ARTICLES), ("preposition", english.PREPOSITIONS)):
        wrong, right = one_error(kind, number)
        assert [word.lower() for word in wrong if word.lower() not in small] == [
            word.lower() for word in right if word.lower() not in small
        ]


def is_within(less: List[str], more: List[str]) -> bool:
    """Whether the words are some of the others, in order, capitals aside."""
    rest = iter(word.lower() for word in more)
    return all(word.lower() in rest for word in less)


@given(st.integers(0, 10**6))
def test_case_and_punctuation_leave_the_letters(number: int) -> None:
    wrong, right = one_error("case", number)
    assert [word.lower() for word in wrong] == [word.lower() for word in right]
    wrong, right = one_error("punctuation", number)
    marks = str.maketrans("", "", "".join(PUNCTUATION) + "'")
    assert [word.translate(marks) for word in wrong] == [word.translate(marks) for word in right]


@pytest.mark.parametrize("kind", MIX)
def test_each_kind_is_made_where_it_can_be(kind: str) -> None:
    pairs = [one_error(kind, number) for number in range(80)]
    assert sum(wrong != right for wrong, right in pairs) > 10


def test_punctuation_stands_alone_in_tokenised_text() -> None:
    maker = make_noise({"punctuation": 1.0}, rate=0.3)
    line = "The file opens , and the server stops ."
    for number in range(100):
        wrong = maker.pair(0, number, line).wrong.split()
        assert all(word in PUNCTUATION or word.isalpha() for word in wrong)


def test_commas_come_and_go() -> None:
    maker = make_noise({"comma": 1.0}, rate=0.3)
    line = "The file opens , and the server stops because it is full ."
    made = {maker.pair(0, number, line).wrong for number in range(400)}
    assert line.replace(" ,", "") in made
    assert any(wrong.count(",") == 2 for wrong in made)
    assert all(wrong.replace(" ,", "") == line.replace(" ,", "") for wrong in made)


def test_names_and_unknown_words_are_not_misspelt() -> None:
    line = "The server of Server and serverless"
    for kind in ("misspelling", "typo", "ending"):
        for number in range(200):
            wrong = make_noise({kind: 1.0}, rate=0.5).pair(0, number, line).wrong.split()
            assert wrong[3:] == ["Server", "and", "serverless"] or kind != "ending"
            assert wrong[3] == "Server" and wrong[5] == "serverless"


def test_capital_of_a_sentence_stays_at_its_beginning() -> None:
    for kind in ("article", "deletion", "swap", "spelling"):
        for number in range(100):
            wrong = make_noise({kind: 1.0}).pair(0, number, "The file opens a copy").wrong
            assert wrong[0].isupper() and wrong[1:].islower()


def test_sentence_parts() -> None:
    sentence = Sentence('("Their files," he read ``x`` at HTTP.')
    assert sentence.lower == ["their", "files", "he", "read", "", "at", ""]
    assert sentence.put(0, "there") == '("There' and sentence.put(1, "file") == 'file,"'


# --- how many ---------------------------------------------------------------------------


@pytest.mark.parametrize("rate, clean", [(0.05, 0.0), (0.15, 0.1), (0.3, 0.3)])
def test_error_rate_and_clean_share_are_those_of_the_options(rate: float, clean: float) -> None:
    maker = make_noise(rate=rate, clean=clean)
    pairs = [maker.pair(0, number, line) for number, line in enumerate(sentences(3000))]
    words = sum(pair.words for pair in pairs)
    errors = sum(sum(pair.errors.values()) for pair in pairs)
    assert errors / words == pytest.approx(rate, rel=0.1)
    untouched = sum(not pair.errors for pair in pairs) / len(pairs)
    assert clean - 0.03 <= untouched <= clean + (1 - clean) * 0.45


def test_mix_decides_the_kinds() -> None:
    maker = make_noise({"article": 3.0, "case": 1.0})
    errors: Counter = Counter()
    for number, line in enumerate(sentences(1500)):
        errors.update(maker.pair(0, number, line).errors)
    assert set(errors) == {"article", "case"}
    assert errors["article"] / errors["case"] == pytest.approx(3.0, rel=0.2)


def test_no_errors_at_rate_zero(text: Path) -> None:
    wrong, right = made(text, "none", "--error-rate", 0)
    assert wrong == right


# --- streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("workers, ahead", [(1, 1), (2, 2 * make_errors.AHEAD)])
def test_reads_only_a_little_ahead(workers: int, ahead: int) -> None:
    given_out = 0

    def endless() -> Iterator[str]:
        nonlocal given_out
        for line in itertools.cycle(sentences(20)):
            given_out += 1
            yield line

    work = chunks(endless, copies=1, size=10)
    results = map_in_order(make_pairs, work, make_noise(), workers)
    for done in range(1, 30):
        assert next(results).lines == 10
        assert given_out <= (done + ahead) * 10
    results.close()  # type: ignore[attr-defined]


def kill_yourself(chunk: Any) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_worker_is_told_of() -> None:
    with pytest.raises(PluginError, match="killed"):
        list(map_in_order(kill_yourself, range(4), make_noise(), 2))


# --- confusion sets ---------------------------------------------------------------------


def within_one_edit(first: str, second: str) -> bool:
    """By trying all edits (Damerau, one edit)."""
    cuts = [(first[:place], first[place:]) for place in range(len(first) + 1)]
    edits = {a + b[1:] for a, b in cuts} | {a + b[1:2] + b[:1] + b[2:] for a, b in cuts}
    edits |= {a + c + b for a, b in cuts for c in "ab"}
    edits |= {a + c + b[1:] for a, b in cuts if b for c in "ab"}
    return second in edits


@given(st.sets(st.text("ab", min_size=1, max_size=5), max_size=12))
def test_one_edit_apart_finds_all_and_no_more(words: Any) -> None:
    found = confusion.one_edit_apart(sorted(words))
    for first, second in itertools.permutations(sorted(words), 2):
        assert (second in found.get(first, ())) == within_one_edit(first, second)


def test_confusion_sets_of_likely_words() -> None:
    words = "their there weather whether piece peace file quick quiet quite form from".split()
    sets = confusion.confusion_sets(dict.fromkeys(words, 5))
    for first, second in zip(words[0:6:2], words[1:6:2], strict=True):
        assert second in sets[first] and first in sets[second]
    assert set(sets["quiet"]) == {"quite"} and set(sets["form"]) == {"from"}
    assert "file" not in sets


def test_vocabulary_file(tmp_path: Path) -> None:
    path = str(tmp_path / "words")
    counts = confusion.count_words(["The the THE file", "file don't ``the`` rare"], 2, 10)
    assert counts == {"file": 2, "the": 2}
    confusion.write_vocabulary(path, counts)
    assert list(confusion.read_vocabulary(path).items()) == [("file", 2), ("the", 2)]
    (tmp_path / "words").write_text("the 2\nfile\n", "utf-8")
    with pytest.raises(PluginError, match="Line 2 of"):
        confusion.read_vocabulary(path)


def test_families_have_one_stem() -> None:
    words = "different difference differently develop development cat".split()
    found = confusion.families(dict.fromkeys(words, 5))
    assert found["different"] == ("difference", "differently")
    assert found["develop"] == ("development",) and "cat" not in found


# --- command line -----------------------------------------------------------------------


def test_standard_input_needs_a_vocabulary(
    text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = text.parent / "words"
    from_file = made(text, "file", "--vocabulary", words)
    assert "300 lines" in capsys.readouterr().out
    output = text.parent / "stdin"
    arguments = ["-", "--output", str(output), "--vocabulary", str(words)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))
    main(arguments)
    assert (read(output.with_suffix(".err")), read(output.with_suffix(".cor"))) == from_file
    with pytest.raises(PluginError, match="once only"):
        main([*arguments, "--copies", "2"])
    words.unlink()
    with pytest.raises(PluginError, match="counted first"):
        main(arguments)


def test_a_pipe_needs_a_vocabulary(text: Path) -> None:
    """Its lines would be counted, and those that are counted would be lost."""
    from_file = made(text, "file", "--vocabulary", text.parent / "words")
    pipe = text.parent / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(PluginError, match=r"pipe can be read once only, .* counted first"):
        made(pipe, "out")
    assert not (text.parent / "out.err").exists()
    vocabulary = ("--vocabulary", text.parent / "words")
    with pytest.raises(PluginError, match=r"pipe can be read once only\. Leave --copies out"):
        made(pipe, "out", *vocabulary, "--copies", 2)
    writer = threading.Thread(target=pipe.write_bytes, args=(text.read_bytes(),))
    writer.start()
    assert made(pipe, "out", *vocabulary) == from_file
    writer.join()


def test_from_packed_text_to_binary_data(text: Path, tmp_path: Path) -> None:
    packed = tmp_path / "clean.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    program = SCRIPTS / "gec" / "make_errors.py"
    out = tmp_path / "pairs" / "train"
    run_cli(["python", program, packed, "--output", out, "--workers", 2, "--suffixes", "a", "b"])
    # Another process hashes strings otherwise, which must not matter.
    both = read(tmp_path / "pairs" / "train.a"), read(tmp_path / "pairs" / "train.b")
    assert both == made(text, "here")
    arguments = ["-s", "a", "-t", "b", "--train", out, "--output", tmp_path / "data"]
    prepare_subwords.main([str(arg) for arg in (*arguments, "--size", 90)])
    folder = tmp_path / "data" / "bin"
    assert (folder / "dict.a.txt").read_bytes() == (folder / "dict.b.txt").read_bytes()
    assert len(read(tmp_path / "data" / "pieces" / "train.a")) == 300


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--error-rate", "0.6"], "Choose a lower one"),
        (["--error-rate", "0.3", "--clean-share", "0.5"], "from 0 to 0.25"),
        (["--clean-share", "1"], "--clean-share"),
        (["--mix", "grammar=1"], "no kind of error"),
        (["--mix", "article"], "has no weight"),
        (["--mix", "article=0"], "not all of them 0"),
        (["--mix", "article=nan"], "weights from 0 up"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--suffixes", "x", "x"], "twice"),
        (["--suffixes", "txt", "cor"], "written over"),
    ],
)
def test_refuses_with_a_sentence(text: Path, arguments: List[str], told: str) -> None:
    before = text.read_bytes()
    with pytest.raises(PluginError) as caught:
        main([str(text), "--output", str(text.with_suffix("")), *arguments])
    assert told in str(caught.value)
    assert text.read_bytes() == before


def test_unreadable_text(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"one\ncaf\xe9\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "plain.gz").write_bytes(b"one\n")
    for name, told in (
        ("latin", "Line 2 of .* is not UTF-8"),
        ("empty", "holds no line"),
        ("plain.gz", "no gzip file"),
        ("none", "not found"),
        ("", "folder"),
    ):
        with pytest.raises(PluginError, match=told):
            main([str(tmp_path / name), "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out.err").exists()


def test_worker_without_pool_and_examples_in_the_documentation() -> None:
    start_worker(make_noise())
    assert parse_mix("swap=0,article=1") == {"article": 1.0}
    for module in (confusion, english, make_errors, noise):
        assert doctest.testmod(module).failed == 0
