"""Tables of GLEU by ``--copy-bias``, with a tiny model."""

from argparse import Namespace
from pathlib import Path
from typing import List

import choose_bias
import pytest
import sentencepiece
from fairseq.data import Dictionary

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from tests.support import tiny
from tests.support.clean_text import sentences

LINES = sentences(12)
SHAPE = dict(
    encoder_layers=1, decoder_layers=1, encoder_embed_dim=16, decoder_embed_dim=16,
    encoder_ffn_embed_dim=24, decoder_ffn_embed_dim=24, encoder_attention_heads=2,
    decoder_attention_heads=2, share_all_embeddings=True,
)  # fmt: skip


@pytest.fixture()
def folder(tmp_path: Path) -> Path:
    """A model with random weights, its subwords and dictionaries, and some sentences."""
    model = tmp_path / "spm.model"
    with open(model, "wb") as written:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences(200)),
            model_writer=written,
            model_type="bpe",
            vocab_size=90,
            minloglevel=2,
        )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    symbols = Dictionary()
    for piece in range(3, pieces.vocab_size()):
        symbols.add_symbol(pieces.id_to_piece(piece))
    for language in ("err", "cor"):
        symbols.save(str(tmp_path / f"dict.{language}.txt"))
    shape = {"max_source_positions": 512, "max_target_positions": 512}
    weights = tiny.model(1, symbols=symbols, **SHAPE, **shape).state_dict()
    args = Namespace(arch="transformer", task="translation", **SHAPE, **shape)
    save_untrained(weights, args, str(tmp_path / "model.pt"))
    for name in ("src", "ref", "clean"):
        (tmp_path / name).write_text("".join(line + "\n" for line in LINES), "utf-8")
    return tmp_path


def table(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> List[List[str]]:
    files = ["--source", str(folder / "src"), "--references", str(folder / "ref")]
    choose_bias.main([str(folder), *files, "--samples", "10", *more])
    lines = capsys.readouterr().out.splitlines()
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_a_row_for_each_bias(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--clean", str(folder / "clean"), "--biases", "0", "99", "--lines", "odd"]
    plain, copied = table(capsys, folder, *more)
    assert plain[0] == "0" and plain[3] == "12 of 12"
    assert copied == ["99", "100.00", "+0.00 (+0.00 to +0.00)", "0 of 12"]
    assert [len(row) for row in table(capsys, folder, "--biases", "99")] == [3]


def test_files_that_do_not_belong_together(folder: Path) -> None:
    (folder / "ref").write_text("one line\n", "utf-8")
    with pytest.raises(PluginError, match="do not belong together line by line"):
        choose_bias.read_learners(str(folder / "src"), [str(folder / "ref")], "all")
