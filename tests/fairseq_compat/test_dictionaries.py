"""A quick dictionary does what fairseq's does, and what cannot be loaded is told."""

from argparse import Namespace

import pytest
import torch
from fairseq import file_utils
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.dictionaries import QuickDictionary, read_dictionary
from specdec_plugin.tasks.parallel_decoding import SpecdecTranslationTask

SYMBOLS = ["▁the", "▁a", "b@@", "c", "▁"]


def both():
    """A quick dictionary, and fairseq's, of the same symbols."""
    pair = QuickDictionary(), Dictionary()
    for each in pair:
        for symbol in SYMBOLS:
            each.add_symbol(symbol)
    return pair


numbers = st.lists(st.integers(0, 4 + len(SYMBOLS) - 1), max_size=12)


@given(
    numbers,
    st.sampled_from([torch.long, torch.int, None]),
    st.sampled_from([None, "sentencepiece", "subword_nmt", "@@ "]),
    st.fixed_dictionaries(
        {},
        optional={
            "escape_unk": st.booleans(),
            "extra_symbols_to_ignore": st.lists(st.integers(0, 8), max_size=3),
            "unk_string": st.sampled_from(["?", ""]),
            "include_eos": st.booleans(),
            "separator": st.sampled_from(["", " ", "|"]),
        },
    ),
)
def test_lines_of_numbers(line, dtype, subwords, options):
    quick, slow = both()
    given = line if dtype is None else torch.tensor(line, dtype=dtype)
    assert quick.string(given, subwords, **options) == slow.string(given, subwords, **options)


def test_several_lines():
    quick, slow = both()
    lines = torch.tensor([[4, 5, 2], [6, 3, 1]])
    assert quick.string(lines, "@@ ") == slow.string(lines, "@@ ")


@given(
    st.lists(st.sampled_from([*SYMBOLS, "new", "newer", "<unk>"]), max_size=9),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_numbers_of_lines(words, added, ended, reversed_):
    """And what is told, and added to the dictionary."""
    found = []
    for each in both():
        told = []
        line = each.encode_line(
            " ".join(words),
            add_if_not_exist=added,
            consumer=lambda word, number, told=told: told.append((word, number)),
            append_eos=ended,
            reverse_order=reversed_,
        )
        found.append((line.dtype, line.tolist(), told, each.symbols, each.count))
    assert found[0] == found[1]


def test_another_tokenizer():
    quick, slow = both()
    assert quick.encode_line("c c", list).tolist() == slow.encode_line("c c", list).tolist()


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_it_is_what_tasks_read(tmp_path, symbol):
    path = tmp_path / "dict.en.txt"
    path.write_text("".join(f"{each} 3\n" for each in SYMBOLS), encoding="utf-8")
    found = read_dictionary(str(path))
    assert isinstance(found, QuickDictionary) and found.index(symbol) == 4 + SYMBOLS.index(symbol)


def test_subwords_that_cannot_be_downloaded(monkeypatch):
    """Named files are looked for while options are parsed; see test_programs.py."""

    def cached_path(address):
        raise OSError(f"no route to {address}")

    monkeypatch.setattr(file_utils, "cached_path", cached_path)
    task = SpecdecTranslationTask.__new__(SpecdecTranslationTask)
    with pytest.raises(PluginError, match=r"^Files of --bpe cannot be loaded \(OSError: no route"):
        task.build_bpe(Namespace(bpe="gpt2"))
