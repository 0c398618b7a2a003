"""Errors in languages other than English: those of their tables, and no English ones."""

import difflib
from pathlib import Path
from typing import Dict, List, Set, Tuple

import confusion
import make_errors
import pytest
from draws import Draws
from english import ENGLISH
from error_types import ERROR_TYPES
from language import Language
from noise import Noise
from spelling import misspelt
from ukrainian import UKRAINIAN

from specdec_plugin.errors import PluginError

WORDS = (
    "читає читати читають книга книгу книги дорога дороги дорогою новий нова нову вже все".split()
)
LINE = "Вона — добра людина , яка вже читає нову книгу в саду і все знає про дороги ."
LEXICON = confusion.make_lexicon(dict.fromkeys([*WORDS, *LINE.lower().split()], 5), UKRAINIAN)


def edits(mix: Dict[str, float], lines: int = 300) -> Set[Tuple[str, str]]:
    """What errors of these kinds put where, in many copies of a line."""
    noise = Noise(LEXICON, mix, 0.2, 0.0, seed=1)
    right = LINE.split()
    found = set()
    for number in range(lines):
        wrong = noise.pair(0, number, LINE).wrong.split()
        for kind, i, j, k, end in difflib.SequenceMatcher(
            None, right, wrong, autojunk=False
        ).get_opcodes():
            if kind != "equal":
                found.add((" ".join(right[i:j]), " ".join(wrong[k:end])))
    return found


@pytest.mark.parametrize("language", [ENGLISH, UKRAINIAN])
def test_tables_agree_with_themselves(language: Language) -> None:
    assert {*language.mix} <= {*ERROR_TYPES} and min(language.mix.values()) > 0
    letters = {*language.keyboard}
    assert {*"".join(language.keyboard.values())} <= letters
    assert all(key not in beside for key, beside in language.keyboard.items())
    assert {*language.vowels} <= {*language.heard} <= letters
    for table in (language.real_words, language.prepositions):
        assert all(word not in others for word, others in table.items())
    assert all(old != new for old, new in language.misspellings)
    assert [*map(len, language.endings)] == sorted(map(len, language.endings), reverse=True)
    assert all(word == word.lower() for word in [*language.real_words, *language.function_words])


def test_inflected_words_are_a_family() -> None:
    assert {*LEXICON.families["книга"]} == {"книгу", "книги"}
    assert {*LEXICON.families["дорога"]} >= {"дороги", "дорогою"}
    assert {*LEXICON.families["читає"]} == {"читати", "читають"}
    assert confusion.phonetic_key("книга", UKRAINIAN) == confusion.phonetic_key("кныха", UKRAINIAN)


def test_errors_of_ukrainian() -> None:
    assert {("—", "-"), ("—", "–"), ("—", "")} == edits({"mark": 1.0})
    assert edits({"derivation": 1.0}) >= {("книгу", "книга"), ("читає", "читати")}
    assert edits({"real-word": 1.0}) >= {("вже", "уже"), ("в", "у"), ("все", "усе")}
    assert (",", "") in edits({"comma": 1.0})
    assert ("про", "о") in edits({"preposition": 1.0})
    whole = edits(UKRAINIAN.mix)
    assert len(whole) > 100
    assert not any(set(wrong) & set("abcdefghijklmnopqrstuvwxyz") for _, wrong in whole)


def test_misspelt_words_keep_the_alphabet() -> None:
    chosen = Draws()
    chosen.restart(1)
    made: List[str] = [misspelt("зупинитися", chosen, UKRAINIAN) for _ in range(1000)]
    assert len({*made}) > 100
    assert {*"".join(made)} <= {*UKRAINIAN.keyboard, "ы", "ъ", "ґ"}


def test_the_program_makes_them(tmp_path: Path) -> None:
    text, vocabulary = tmp_path / "text.uk", tmp_path / "words.txt"
    text.write_text(f"{LINE}\n" * 50, "utf-8")
    arguments = [str(text), "--output", str(tmp_path / "pairs"), "--vocabulary", str(vocabulary)]
    make_errors.main([*arguments, "--language", "uk"])
    wrong, right = [(tmp_path / f"pairs.{side}").read_text("utf-8") for side in ("err", "cor")]
    assert right == f"{LINE}\n" * 50 != wrong
    assert wrong.count("\n") == 50 and " - " in wrong and "the" not in wrong


def test_kinds_of_another_language_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PluginError, match=r"'article', which is no kind .* --language uk\. Choose"):
        make_errors.parse_mix("article=1", "uk")
    with pytest.raises(PluginError, match="'mark', which is no kind of error of --language en"):
        make_errors.parse_mix("mark=1")
    with pytest.raises(SystemExit):
        make_errors.main(["--help"])
    printed = capsys.readouterr().out
    assert "(en, uk)" in printed and all(kind in printed for kind in ERROR_TYPES)
