"""data_scripts/searches_speed.py: both programs search for the same sentences and phrases."""

import json

import pytest
import searches_speed
import torch

from specdec_plugin.errors import PluginError


@pytest.mark.usefixtures("threads_again")
def test_the_table(packed, corpus, tmp_path, capsys) -> None:
    output = tmp_path / "searches.json"
    texts = {name: tmp_path / name for name in ("input", "references")}
    for path, language in zip(texts.values(), ("en", "es"), strict=True):
        path.write_text("\n".join([*corpus.lines("test", language), ""]), "utf-8")
    flags = [f"--{name}={path}" for name, path in texts.items()]
    sizes = ["--batch-sizes", "1", "4", "--batches", "3", "2"]
    searches_speed.main([str(packed), *flags, *sizes, "--output", str(output)])
    found = json.loads(output.read_text())
    assert {"machine", "date", "command", "commit"} <= found.keys()
    assert [row["search"] for row in found["rows"]] == [*searches_speed.SEARCHES] * 2
    for row in found["rows"]:
        count = 3 if row["batch"] == 1 else 2
        assert [len(each) for each in row["seconds"].values()] == [count, count]
        assert row["sentences"] == row["equal"] == row["batch"] * count
    assert capsys.readouterr().out.count("\n| ") == 8 and torch.get_num_threads() > 0
    with pytest.raises(PluginError, match="--batches has another length than --batch-sizes"):
        searches_speed.main([str(packed), *flags, "--batches", "1", "--output", str(output)])
    with pytest.raises(PluginError, match=r"input has 21 lines, fewer than a batch of 32: give a"):
        searches_speed.main([str(packed), *flags, "--output", str(output)])


def test_phrases_are_words_of_the_references(tmp_path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n", "utf-8")
    (tmp_path / "b").write_text("uno dos tres cuatro cinco\nuno dos tres\n", "utf-8")
    found = searches_speed.read_texts(str(tmp_path / "a"), str(tmp_path / "b"))
    assert found.lines == ["one", "two"] and found.phrases == [["tres cuatro"], []]
    (tmp_path / "b").write_text("uno\n", "utf-8")
    with pytest.raises(PluginError, match=r"a has 2 lines and .*b has 1: they do not"):
        searches_speed.read_texts(str(tmp_path / "a"), str(tmp_path / "b"))
