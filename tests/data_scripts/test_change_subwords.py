"""A model with other subwords: embeddings that stay, and those that are put together."""

from pathlib import Path
from typing import Any, List

import change_subwords
import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary

from specdec_plugin.errors import PluginError

TEXT = [f"the house of {name} and the horse of {name}" for name in ("anna", "otto", "ada")] * 20


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """A checkpoint of an old vocabulary, its subwords and dictionaries old and new."""
    with open(tmp_path / "spm.model", "wb") as written:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT),
            model_writer=written,
            model_type="bpe",
            vocab_size=40,
            minloglevel=2,
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))
    old, new = Dictionary(), Dictionary()
    for piece in range(3, model.vocab_size()):
        old.add_symbol(model.id_to_piece(piece))
    for symbol in ("▁the", "▁houses", "rse", "§"):
        new.add_symbol(symbol)
    old.save(str(tmp_path / "old.txt"))
    new.save(str(tmp_path / "new.txt"))
    torch.manual_seed(1)
    shared = torch.randn(len(old), 4)
    weights = {
        "encoder.embed_tokens.weight": shared,
        "decoder.embed_tokens.weight": shared,
        # As many units as the old dictionary has symbols.
        "decoder.layers.0.fc1.weight": torch.randn(len(old), 4),
        "decoder.layers.0.fc1.bias": torch.randn(len(old)),
        # Of Marian's models.
        "decoder.output_projection.bias": torch.randn(len(old)),
    }
    torch.save({"model": weights, "args": None}, tmp_path / "model.pt")
    return tmp_path


def change(folder: Path, dictionary: str = "old.txt") -> Any:
    arguments: List[str] = [str(folder / "model.pt")]
    for flag, name in (
        ("--subword-model", "spm.model"),
        ("--dictionary", dictionary),
        ("--new-dictionary", "new.txt"),
        ("--output", "out.pt"),
    ):
        arguments += [flag, str(folder / name)]
    change_subwords.main(arguments)
    return torch.load(folder / "out.pt", weights_only=True)["model"]


def test_embeddings(folder: Path) -> None:
    before = torch.load(folder / "model.pt", weights_only=True)["model"]
    after = change(folder)
    old = Dictionary.load(str(folder / "old.txt"))
    new = Dictionary.load(str(folder / "new.txt"))
    table, made = before["encoder.embed_tokens.weight"], after["encoder.embed_tokens.weight"]
    assert made.shape == (len(new), 4)
    assert torch.equal(made[: old.nspecial], table[: old.nspecial])
    assert torch.equal(made[new.index("▁the")], table[old.index("▁the")])
    assert torch.equal(made[new.index("§")], table[old.unk()])
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    pieces = model.encode("houses", out_type=str)
    assert len(pieces) > 1 and pieces[0].startswith("▁")
    mean = torch.stack([table[old.index(piece)] for piece in pieces]).mean(0)
    torch.testing.assert_close(made[new.index("▁houses")], mean)
    for piece in change_subwords.pieces_of("rse", model):
        assert not piece.startswith("▁")
    for part in ("weight", "bias"):
        name = f"decoder.layers.0.fc1.{part}"
        assert torch.equal(after[name], before[name])
    name = "decoder.output_projection.bias"
    assert after[name].shape == (len(new),)
    assert after[name][new.index("▁the")] == before[name][old.index("▁the")]
    mean = torch.stack([before[name][old.index(piece)] for piece in pieces]).mean()
    torch.testing.assert_close(after[name][new.index("▁houses")], mean)
    assert (
        after["decoder.embed_tokens.weight"].data_ptr()
        == after["encoder.embed_tokens.weight"].data_ptr()
    )


def test_a_dictionary_of_another_model(folder: Path) -> None:
    with pytest.raises(PluginError, match="Give the dictionary of this model"):
        change(folder, "new.txt")


def test_the_model_itself_is_not_written_over(folder: Path) -> None:
    (folder / "out.pt").symlink_to("model.pt")
    with pytest.raises(PluginError, match=r"out\.pt is the model itself\. Name another file"):
        change(folder)


def test_another_file_than_the_subword_model(folder: Path) -> None:
    (folder / "spm.model").write_text("the 1\n")
    with pytest.raises(PluginError, match=r"spm\.model is not a SentencePiece model\. Give"):
        change(folder)
    (folder / "spm.model").unlink()
    with pytest.raises(PluginError, match=r"spm\.model is not a file\. Check the path"):
        change(folder)
