"""Raw text as pieces and back, by each kind of subwords."""

import io

import pytest
from sentencepiece import SentencePieceTrainer
from subword_nmt.learn_bpe import learn_bpe

from specdec_plugin.errors import PluginError
from specdec_plugin.subwords import check_pieces, joined, load_subwords, of_target

OTHERS = ["otra", "pala@@", "bra", "▁another", "▁word", "▁not", "▁of", "it", "▁these", "▁files"]
TEXT = "the lower tower, the newest flower; isn't it?"


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    path = tmp_path_factory.mktemp("codes") / "bpe.codes"
    with open(path, "w", encoding="utf-8") as file:
        learn_bpe(io.StringIO(f"{TEXT}\n" * 3), file, 12)
    return path


def test_sentencepiece(sentencepieces):
    described = {"kind": "sentencepiece", "file": str(sentencepieces / "spm.model")}
    subwords = load_subwords(described, "en", "es")
    assert subwords.encode("one  two", out_type=str) == ["▁one", "▁two"]
    assert joined(subwords, ["▁one", "▁two"]) == "one two"
    assert joined(subwords, ["▁Un", "▁hom", "bre", "▁two"]) == "Un hombre two"  # of another model


def test_subword_nmt(codes):
    subwords = load_subwords({"kind": "subword-nmt", "file": str(codes)}, "en", "es")
    pieces = subwords.encode(TEXT)
    assert any(piece.endswith("@@") for piece in pieces) and len(pieces) > len(TEXT.split())
    assert "".join(pieces).replace("@@", "") == TEXT.replace(" ", "")
    assert subwords.decode(pieces) == TEXT


def test_codes_and_dictionaries_of_one_project(codes):
    subwords = load_subwords({"kind": "subword-nmt", "file": str(codes)}, "en", "es")
    symbols = sorted({*subwords.encode(TEXT)})
    check_pieces(subwords, "bpe.codes", symbols)
    check_pieces(subwords, "bpe.codes", [])  # of single characters, for instance
    with pytest.raises(PluginError, match=r"^bpe\.codes does not belong to this model: 0 of its"):
        check_pieces(subwords, "bpe.codes", OTHERS)


@pytest.mark.parametrize(
    "pieces, fits",
    [("▁one ▁two ▁three", True), ("▁one ▁two ▁three ▁uno ▁dos", True), ("▁one ▁uno ▁dos", False)],
)
def test_a_dictionary_may_have_some_pieces_only(sentencepieces, pieces, fits):
    described = {"kind": "sentencepiece", "file": str(sentencepieces / "spm.model")}
    subwords = load_subwords(described, "en", "es")
    symbols = [*pieces.split(), "a", "▁b"]
    if not fits:
        symbols += OTHERS
        with pytest.raises(PluginError, match="does not belong"):
            check_pieces(subwords, "spm.model", symbols)
    else:
        check_pieces(subwords, "spm.model", symbols)


def test_a_small_model_and_its_dictionary(tmp_path):
    """Many pieces of few are only steps to longer ones, which the text has instead."""
    words = "zero one two three four five six seven eight nine ten eleven twelve and".split()
    text = tmp_path / "text"
    lines = [" ".join(words[i % 14] for i in range(k, k + 5)) for k in range(40)]
    text.write_text("\n".join(lines), encoding="utf-8")
    SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "spm"), vocab_size=60, model_type="bpe",
        minloglevel=2,
    )  # fmt: skip
    described = {"kind": "sentencepiece", "file": str(tmp_path / "spm.model")}
    subwords = load_subwords(described, "en", "es")
    symbols = {piece for line in lines for piece in subwords.encode(line, out_type=str)}
    check_pieces(subwords, "spm.model", [*symbols, *(f"madeupword{i:04}" for i in range(7))])


def test_moses(codes):
    pytest.importorskip("sacremoses")
    moses = load_subwords({"kind": "moses"}, "en", "es")
    assert moses.encode("isn't it?") == ["isn", "&apos;t", "it", "?"]
    described = {"kind": "subword-nmt", "file": str(codes), "moses": True}
    both = load_subwords(described, "en", "en")
    pieces = both.encode(TEXT)
    assert pieces[-1] == "?" and any(piece.endswith("@@") for piece in pieces)
    assert both.decode(pieces) == TEXT
    french = both.between("en", "fr")
    assert french.encode(TEXT) == pieces and french._steps[1] is both._steps[1]
    assert (french._steps[0].detok.lang, both._steps[0].detok.lang) == ("fr", "en")
    plain = load_subwords({"kind": "moses"}, "en", "fr")
    assert plain.encode("l'homme") == ["l", "&apos;homme"]
    assert of_target(plain).encode("l'homme") == ["l&apos;", "homme"]


def test_targets_that_have_a_model_of_their_own(tmp_path, codes):
    models = []
    for name, words in (("source", "one two three"), ("target", "uno dos tres")):
        models.append(tmp_path / name)
        with models[-1].open("wb") as file:
            SentencePieceTrainer.train(
                sentence_iterator=iter([words] * 3), model_writer=file, vocab_size=6,
                model_type="word", minloglevel=2,
            )  # fmt: skip
    described = {"kind": "sentencepiece", "file": str(models[0]), "target_file": str(models[1])}
    pair = load_subwords(described, "en", "es")
    assert pair.encode("one two", out_type=str) == ["▁one", "▁two"]
    assert pair.decode(["▁dos", "▁uno"]) == "dos uno"
    assert of_target(pair).encode("uno dos", out_type=str) == ["▁uno", "▁dos"]
    check_pieces(pair, "source", ["▁one", "▁two", "▁three"])
    check_pieces(of_target(pair), "target", ["▁uno", "▁dos", "▁tres"], "target")
    one = load_subwords({"kind": "sentencepiece", "file": str(models[0])}, "en", "es")
    assert of_target(one) is one
    bpe = load_subwords({"kind": "subword-nmt", "file": str(codes)}, "en", "es")
    assert of_target(bpe) is bpe


def test_what_is_refused(tmp_path):
    text = tmp_path / "text"
    text.write_text("no codes at all\n", "utf-8")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for kind in ("sentencepiece", "subword-nmt"):
        with pytest.raises(PluginError, match=r"none.* Check the path"):
            load_subwords({"kind": kind, "file": "none"}, "en", "es")
        for path in (text, binary):
            with pytest.raises(PluginError, match=r"Give the (one|file) that"):
                load_subwords({"kind": kind, "file": str(path)}, "en", "es")
