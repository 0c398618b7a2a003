"""``specdec.json``: what is written is read, and what is damaged is refused."""

import json

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.folder import NAME, Folder, read_folder

GOOD = {
    "format": 1,
    "model": ["model.pt"],
    "languages": {"source": "en", "target": "es", "names": {"en": "English"}},
    "dictionaries": ["dict.en.txt", "dict.es.txt"],
    "subwords": {"kind": "sentencepiece", "file": "spm.model"},
    "drafter": "drafter.pt",
    "clusters": {"drafter": "clusters.pt"},
    "options": {"max_len_b": 100},
    "decoding": "auto",
}


@pytest.fixture
def write(tmp_path):
    """Writes a specdec.json, beside files that it may name."""
    files = ["model.pt", "dict.en.txt", "dict.es.txt", "spm.model", "drafter.pt", "clusters.pt"]
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "dict.es.txt").touch()

    def written(text):
        text = text if isinstance(text, str) else json.dumps(text)
        (tmp_path / NAME).write_text(text, "utf-8")
        return str(tmp_path)

    return written


def test_a_folder_round_trip(write):
    folder = read_folder(write(GOOD))
    assert json.loads(folder.text()) == {**GOOD, "task": "specdec_translation"}
    assert read_folder(write(folder.text())) == folder
    assert read_folder(write(Folder(folder.path, ["model.pt"], ["dict.en.txt"]).text())).files == [
        "model.pt", "dict.en.txt"
    ]  # fmt: skip


def test_a_mark_of_utf_8_means_nothing(write):
    assert read_folder(write("\ufeff" + json.dumps(GOOD))) == read_folder(write(GOOD))


def test_fairseqs_search_is_kept(write):
    assert read_folder(write({**GOOD, "decoding": None})).decoding is None
    left = {key: value for key, value in GOOD.items() if key != "decoding"}
    assert read_folder(write(left)).decoding == "auto"


def test_who_gets_which_files(write):
    folder = read_folder(write({**GOOD, "heads": "model.pt"}))
    shared = {"max_len_b": 100, "drafter_vocab_clusters": folder.at("clusters.pt")}
    for decoding, drafter in [("specdec", "drafter.pt"), ("nat", "drafter.pt"),
                              ("blockwise", "model.pt")]:  # fmt: skip
        assert folder.flags(decoding) == {**shared, "drafter_path": folder.at(drafter)}
    for decoding in ("auto", "greedy", None):
        assert folder.flags(decoding) == shared
    named = read_folder(write({**GOOD, "options": {"drafter_path": "drafter.pt"}}))
    assert named.flags("auto")["drafter_path"] == named.at("drafter.pt")


def test_a_folder_without_one(tmp_path):
    with pytest.raises(PluginError, match=r"has no specdec\.json\. Write it with specdec-pack"):
        read_folder(str(tmp_path))
    with pytest.raises(PluginError, match=r"^There is no folder .*none\. Check the path\.$"):
        read_folder(str(tmp_path / "none"))
    (tmp_path / "model.pt").touch()
    with pytest.raises(
        PluginError, match=r"model\.pt is a file\. Name a folder with a specdec\.json"
    ):
        read_folder(str(tmp_path / "model.pt"))
    (tmp_path / NAME).mkdir()
    with pytest.raises(PluginError, match=r"specdec\.json cannot be read \(Is a directory\)"):
        read_folder(str(tmp_path))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"format": 2}, 'has no "format": 1'),
        ({"beams": 3}, "beams is unknown"),
        ({"model": "model.pt"}, "model is not a list of files"),
        ({"model": []}, "model is not a list of files"),
        ({"dictionaries": [3]}, "dictionaries is not a list of files"),
        ({"drafter": ["drafter.pt"]}, "drafter is not a text"),
        ({"options": []}, "options is not an object"),
        ({"clusters": {"drafter": 3}}, "clusters is not an object with the right values"),
        ({"clusters": {"other": "x"}}, "clusters has other keys than verifier and drafter"),
        ({"languages": {"from": "en"}}, "languages needs source, target and names"),
        ({"languages": {"source": 3}}, "languages needs source, target and names"),
        ({"languages": {"names": {"en": 3}}}, "languages needs source, target and names"),
        ({"subwords": {"kind": "wordpiece"}}, "subwords needs a kind, one of sentencepiece"),
        ({"subwords": {"kind": "sentencepiece"}}, "subwords needs a kind"),
        ({"subwords": {"kind": ["x"]}}, "subwords needs a kind"),
        ({"options": {"drafter_path": 5}}, "options has a drafter_path that is not a text"),
        ({"subwords": {"kind": "moses", "file": "x"}}, "subwords needs a kind"),
        ({"subwords": {"kind": "moses", "target_file": "x"}}, "subwords needs a kind"),
        (
            {"subwords": {"kind": "sentencepiece", "file": "spm.model", "target_file": 1}},
            "subwords needs a kind",
        ),
        ({"model": ["none.pt"]}, r"names 'none\.pt', and the folder has no such file"),
        ({"model": ["../model.pt"]}, r"names \.\./model\.pt, which is not inside the folder"),
        ({"model": ["/model.pt"]}, r"names /model\.pt, which is not inside the folder"),
        ({"options": {"drafter_path": "none.pt"}}, r"names 'none\.pt', and the folder has no such"),
        ({"options": {"drafter_path": "../drafter.pt"}}, r"names \.\./drafter\.pt, which is not"),
        ({"dictionaries": ["dict.en.txt", "other/dict.es.txt"]}, "in several folders"),
    ],
)
def test_a_damaged_one_is_refused(write, change, words):
    with pytest.raises(PluginError, match=words) as caught:
        read_folder(write({**GOOD, **change}))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"format": 1', "[" * 100_000])
def test_what_is_no_object_is_refused(write, text):
    with pytest.raises(PluginError, match=r"specdec\.json"):
        read_folder(write(text))
