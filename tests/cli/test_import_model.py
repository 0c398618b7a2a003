"""``specdec-import``: logits and greedy output of transformers itself, and what it refuses."""

import errno
import importlib
import io
import json
import os
import random
import re
from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens

from specdec_plugin import load, load_session
from specdec_plugin.cli.import_model.__main__ import main
from specdec_plugin.cli.import_model.languages import with_languages
from specdec_plugin.cli.import_model.symbols import Symbols, read_symbols
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.folder import read_folder
from tests.support.command_lines import ROOT
from tests.support.hugging_face import hide_torchaudio

hide_torchaudio()
transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

WORDS = [f"▁w{number}" for number in range(30)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LANGUAGES = ["__en__", "__fr__"]
#: Of mBART-50 and NLLB, whose symbols get the names that fairseq writes.
WITH_COUNTRIES = ["en_XX", "fr_XX"]
WITH_SCRIPTS = ["eng_Latn", "fra_Latn"]
SMALL = dict(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=64,
)  # fmt: skip
#: The subwords of another project.
OTHER = (Path(ROOT) / "checkpoints" / "gec-en" / "spm.model").read_bytes()
#: Without the first token. The last is the end of the sentence, unless it is cut there.
LONGEST = 16


def write_json(folder, name, value):
    (folder / name).write_text(json.dumps(value), "utf-8")


def numbered(symbols):
    return {symbol: number for number, symbol in enumerate(symbols)}


class Case:
    """A kind of model with a vocabulary in the files that its tokenizer has."""

    def __init__(self, config, model, symbols, forced=None, **settings):
        self.config, self.model, self.symbols = config, model, symbols
        self.forced, self.settings = forced, settings

    def write_vocabulary(self, folder):
        write_json(folder, "vocab.json", numbered(self.symbols))

    def make(self, folder):
        """A random model in ``folder``, whose weights are large enough for varied output."""
        torch.manual_seed(3)
        kwargs = {**SMALL, "vocab_size": len(self.symbols), **self.settings}
        model = getattr(transformers, self.model)(getattr(transformers, self.config)(**kwargs))
        spread = 0.6 if self.model == "MarianMTModel" else 0.3  # its positions are large
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.requires_grad:
                    table = "embed" in name or "shared" in name
                    reads_source = "encoder_attn." in name  # with large weights: varied output
                    wide = spread if table else 1.0 if reads_source else 0.5
                    weight.normal_(std=0.1 if weight.dim() == 1 else wide)
                    weight += "norm.weight" in name or "layernorm_embedding.weight" in name
        self.finish(model)
        model.eval().save_pretrained(folder)
        self.write_vocabulary(folder)
        return model

    def finish(self, model):
        pass


class Biased(Case):
    """Its output has a bias."""

    def finish(self, model):
        model.final_logits_bias.normal_()


class M2M(Case):
    """Languages are listed beside the vocabulary."""

    def write_vocabulary(self, folder):
        base = [symbol for symbol in self.symbols if symbol not in LANGUAGES]
        write_json(folder, "vocab.json", numbered(base))
        write_json(folder, "special_tokens_map.json", {"additional_special_tokens": LANGUAGES})


class FastTokenizer(Case):
    """The vocabulary of tokenizer.json, with languages and mask added."""

    def write_vocabulary(self, folder):
        later = (*WITH_COUNTRIES, *WITH_SCRIPTS, "<mask>")
        base = [[symbol, -1.0] for symbol in self.symbols if symbol not in later]
        added = [
            {"id": number, "content": symbol}
            for number, symbol in enumerate(self.symbols)
            if number >= len(base)
        ]
        model = {"type": "Unigram", "vocab": base}
        write_json(folder, "tokenizer.json", {"model": model, "added_tokens": added})


class Separate(Biased):
    """Each language has its own vocabulary, and all tables are their own."""

    def write_vocabulary(self, folder):
        super().write_vocabulary(folder)
        write_json(folder, "target_vocab.json", numbered(TARGET))


BASE = [*SPECIAL, *WORDS]
MARIAN = ["</s>", "<unk>", *WORDS, "<pad>"]
TARGET = ["</s>", "<unk>", *reversed(WORDS), "<pad>"]
SINGLE = dict(pad_token_id=len(MARIAN) - 1, eos_token_id=0, decoder_start_token_id=len(MARIAN) - 1)
FREE = "MarianConfig", "MarianMTModel", MARIAN
CASES = {
    "bart": Case("BartConfig", "BartForConditionalGeneration", [*BASE, "<mask>"]),
    "bart with a bias": Biased(
        "BartConfig", "BartForConditionalGeneration", [*BASE, "<mask>"], forced="<s>",
    ),
    "mbart-50": FastTokenizer(
        "MBartConfig", "MBartForConditionalGeneration", [*BASE, *WITH_COUNTRIES, "<mask>"],
        "[fr_XX]", decoder_start_token_id=2, scale_embedding=True,
    ),
    "m2m-100": M2M(
        "M2M100Config", "M2M100ForConditionalGeneration", [*BASE, *LANGUAGES], "__fr__",
    ),
    "m2m-100, another padding": Case(
        "M2M100Config", "M2M100ForConditionalGeneration", ["<pad>", "<s>", *BASE[2:], *LANGUAGES],
        "__fr__", pad_token_id=0, bos_token_id=1,
    ),
    "nllb": FastTokenizer(
        "M2M100Config", "M2M100ForConditionalGeneration", [*BASE, *WITH_SCRIPTS, "<mask>"],
        "__eng_Latn__", activation_function="silu",
    ),
    "marian": Biased(*FREE, activation_function="swish", scale_embedding=True, **SINGLE),
    "marian without a bias": Case(*FREE, scale_embedding=True, **SINGLE),
    "marian, two vocabularies": Separate(
        *FREE, **SINGLE, decoder_vocab_size=len(TARGET), share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False, scale_embedding=True,
    ),
}  # fmt: skip


class Pair:
    """A model of transformers, and what was imported from it."""

    def __init__(self, case, root):
        self.case, self.folder, self.output = case, root / "given", root / "imported"
        self.model = case.make(self.folder)
        self.folder, self.output = str(self.folder), str(self.output)
        main([self.folder, "--from", "transformers", "--output", self.output, "-s", "a", "-t", "b"])
        self.session = load_session(f"{self.output}/model.pt", source_lang="a", target_lang="b")
        size, kind = self.model.config.vocab_size, self.model.config.model_type
        self.source, self.languages = with_languages(read_symbols(self.folder, size), kind)
        separate = isinstance(case, Separate)
        self.target = read_symbols(self.folder, len(TARGET), True) if separate else self.source
        self.end = self.target.dictionary.eos()
        self.start = self.model.config.decoder_start_token_id

    def lines(self, count):
        choose = random.Random(5)
        return [" ".join(choose.choices(WORDS, k=choose.randint(1, 12))) for _ in range(count)]

    def given(self, lines):
        """The lines as transformers takes them: ids and mask."""
        index, pad = self.source.dictionary.index, self.source.ids[1]
        rows = [[*map(index, line.split()), 2] for line in lines]
        ids = [torch.tensor([self.source.ids[each] for each in row]) for row in rows]
        ids = collate_tokens(ids, pad)
        return {"input_ids": ids, "attention_mask": ids.ne(pad).long()}


@pytest.fixture(scope="module", params=list(CASES))
def pair(request, tmp_path_factory):
    return Pair(CASES[request.param], tmp_path_factory.mktemp("pair"))


def test_logits_are_those_of_transformers(pair, record_property):
    lines, choose = pair.lines(20), random.Random(8)
    greatest = 0.0
    known = [row for row, number in enumerate(pair.target.ids) if number >= 0]
    ids = [pair.target.ids[row] for row in known]
    dataset = pair.session.dataset(lines)
    for number, line in enumerate(lines):
        batch = dataset.collater([dataset[number]])["net_input"]
        rest = [choose.randrange(4, len(pair.target.ids)) for _ in range(15)]
        fed = torch.tensor([[pair.end, *rest]])
        theirs = torch.tensor([[pair.start, *(pair.target.ids[each] for each in rest)]])
        with torch.no_grad():
            mine, _ = pair.session.models[0](batch["src_tokens"], batch["src_lengths"], fed)
            wanted = pair.model(**pair.given([line]), decoder_input_ids=theirs).logits
        greatest = max(greatest, (mine[..., known] - wanted[..., ids]).abs().max().item())
    record_property("greatest difference", greatest)
    print("greatest difference of logits:", greatest)
    assert greatest <= 1e-4


@pytest.fixture(scope="module")
def greedy(pair):
    """What transformers generates of 50 lines: symbols up to the end of the sentence."""
    ids, forced = pair.target.ids, pair.case.forced
    end, pad = ids[pair.end], ids[pair.target.dictionary.pad()]
    rows = pair.model.generate(
        **pair.given(pair.lines(50)), num_beams=1, do_sample=False,
        max_length=LONGEST + 2, min_new_tokens=1,
        forced_eos_token_id=end, bad_words_ids=[[pad]],
        forced_bos_token_id=None if forced is None else ids[pair.target.dictionary.index(forced)],
    )  # fmt: skip
    rows = [row[1:].tolist() for row in rows]
    return [[ids.index(each) for each in row[: row.index(end) + 1]] for row in rows]


@pytest.mark.parametrize("decoding", [None, "greedy", "specdec"])
def test_greedy_output_is_that_of_transformers(pair, greedy, decoding):
    translator = pair.session.translator(decoding, beam=1, max_len_a=0, max_len_b=LONGEST)
    found = {}
    for batch in pair.session.batches(pair.session.dataset(pair.lines(50)), 4):
        prefix = None
        if pair.case.forced is not None:
            first = pair.target.dictionary.index(pair.case.forced)
            prefix = torch.full((len(batch["id"]), 1), first)
        hypotheses = pair.session.task.inference_step(
            translator.generator, pair.session.models, batch, prefix_tokens=prefix
        )
        for number, (best, *_) in zip(batch["id"].tolist(), hypotheses, strict=True):
            found[number] = best["tokens"].tolist()
    assert len({tuple(row) for row in greedy}) > 2  # not one output for all
    assert [found[number] for number in range(50)] == greedy


@pytest.mark.parametrize(
    "kind, languages, style",
    [
        ("m2m-100", LANGUAGES, "multilingual"),
        ("nllb", WITH_SCRIPTS, "multilingual"),
        ("mbart-50", WITH_COUNTRIES, "mbart"),
    ],
)
def test_every_direction_of_raw_pieces(kind, languages, style, tmp_path, capsys):
    """fairseq's task writes the symbols of languages, and one loaded model has every direction."""
    case, codes = CASES[kind], [each.strip("_") for each in languages]
    model, output = case.make(tmp_path / "given"), str(tmp_path / "imported")
    run(tmp_path / "given", output, "-s", codes[0], "-t", codes[1])
    flags = capsys.readouterr().out.splitlines()[-1]
    given = f"-s {codes[0]} -t {codes[1]} --task specdec_translation_multi_simple_epoch"
    assert flags.startswith(f"The model has 2 languages. Decode with {given} ")
    assert f"--lang-pairs {codes[0]}-{codes[1]} --encoder-langtok src --decoder-langtok" in flags
    assert f"--lang-tok-style {style}." in flags
    translator = load(
        f"{output}/model.pt", source_lang=codes[0], target_lang=codes[1],
        task="specdec_translation_multi_simple_epoch", max_len_a=0, max_len_b=LONGEST,
        task_options={
            "lang_pairs": "-".join(codes), "lang_dict": f"{output}/langs.txt",
            "encoder_langtok": "src", "decoder_langtok": True, "lang_tok_style": style,
        },
    )  # fmt: skip
    assert translator.session.languages == codes
    symbol_of = dict(zip(codes, languages, strict=True)).get
    dictionary = translator.session.task.target_dictionary
    # Of other lines, two symbols tie: -1.494248 and -1.494243.
    choose, ids, all_output = random.Random(6), numbered(case.symbols), set()
    lines = [" ".join(choose.choices(WORDS, k=choose.randint(1, 9))) for _ in range(12)]
    for source, target in (codes, codes[::-1]):
        found = translator.between(source, target).translate_pieces(lines, 4)
        for line, each in zip(lines, found, strict=True):
            given = [symbol_of(source), *line.split(), "</s>"]
            row = model.generate(
                torch.tensor([[*map(ids.get, given)]]), num_beams=1, do_sample=False,
                max_length=LONGEST + 2, min_new_tokens=1,
                forced_bos_token_id=ids[symbol_of(target)], forced_eos_token_id=ids["</s>"],
                bad_words_ids=[[ids["<pad>"]]],
            )  # fmt: skip
            words = [as_written(case.symbols[number], style) for number in row[0, 1:].tolist()]
            words = words[: words.index("</s>") + 1]
            assert [dictionary[number] for number in each.tokens] == words
            assert words[0] == as_written(symbol_of(target), style) not in each.pieces.split()
            all_output.add(each.pieces)
    assert len(all_output) > 4


@pytest.mark.parametrize(
    "kind, symbol, code",
    [
        ("m2m_100", "__ast__", "ast"),
        ("m2m_100", "_____", None),
        ("m2m_100", "kas_Deva", "kas_Deva"),
        ("m2m_100", "▁the", None),
        ("mbart", "zh_CN", "zh_CN"),
        ("mbart", "__en__", None),
        ("bart", "__en__", None),
    ],
)
def test_what_a_language_looks_like(kind, symbol, code):
    dictionary = Dictionary()
    for each in (symbol, "<mask>"):
        dictionary.add_symbol(each)
    found, languages = with_languages(Symbols(dictionary, [0, 1, 2, 3, 4, 5]), kind)
    assert languages.codes == ([] if code is None else [code])
    assert found.dictionary[4] == (symbol if code is None else as_written(symbol, languages.style))


def test_languages_in_fairseqs_style_need_a_mask():
    """Which fairseq's task would add to the dictionary behind the model's symbols."""
    dictionary = Dictionary()
    dictionary.add_symbol("zh_CN")
    found, languages = with_languages(Symbols(dictionary, [0, 1, 2, 3, 4]), "mbart")
    assert languages.codes == [] and found.dictionary[4] == "zh_CN"


@pytest.fixture
def words_model():
    """A SentencePiece model of the words, in bytes."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(word.strip("▁") for word in WORDS)] * 2),
        model_writer=trained,
        model_type="word",
        vocab_size=len(WORDS) + 3,
        minloglevel=2,
    )
    return trained.getvalue()


class TestRawText:
    """A folder with a subword model is one of specdec-pack, unless symbols are missing."""

    def imported(self, kind, words_model, tmp_path, *languages, file="sentencepiece.bpe.model"):
        if not (tmp_path / "given").exists():
            CASES[kind].make(tmp_path / "given")
        (tmp_path / "given" / file).write_bytes(words_model)
        run(tmp_path / "given", tmp_path / "out", "-s", languages[0], "-t", languages[1])
        return str(tmp_path / "out")

    @pytest.mark.parametrize(
        "kind, languages",
        [("m2m-100", ("en", "fr")), ("nllb", WITH_SCRIPTS), ("mbart-50", WITH_COUNTRIES)],
    )
    def test_every_direction(self, kind, languages, words_model, tmp_path, capsys):
        output = self.imported(kind, words_model, tmp_path, *languages)
        assert f"It takes raw text: specdec-serve {output}" in capsys.readouterr().out
        there = load(output, max_len_b=LONGEST)
        assert there.session.languages == [*languages] and there.method == "auto"
        texts, pieces = ["w1 w22 w3", "w7"], ["▁w1 ▁w22 ▁w3", "▁w7"]
        found = []
        for translator in (there, there.between(*reversed(languages))):
            found.append([each.pieces for each in translator.translate(texts)])
            assert found[-1] == [each.pieces for each in translator.translate_pieces(pieces)]
        assert found[0] != found[1]

    def test_two_languages(self, words_model, tmp_path, capsys):
        output = self.imported("marian", words_model, tmp_path, "en", "es", file="source.spm")
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith("Targets begin freely")
        (found,) = load(output, max_len_b=LONGEST).translate(["w1 w22"])
        (same,) = load(output, max_len_b=LONGEST).translate_pieces(["▁w1 ▁w22"])
        assert found.pieces == same.pieces and len(found.tokens) > 1

    @pytest.mark.parametrize("content", [None, b"damaged", OTHER])
    def test_targets_with_a_model_of_their_own(self, content, words_model, tmp_path):
        """It splits prefixes and translations; what does not belong to the target is left out."""
        CASES["marian"].make(tmp_path / "given")
        (tmp_path / "given" / "target.spm").write_bytes(content or words_model)
        output = self.imported("marian", words_model, tmp_path, "en", "es", file="source.spm")
        subwords = read_folder(output).subwords
        assert subwords["file"] == "source.spm"
        assert subwords.get("target_file") == (None if content else "target.spm")
        session = load_session(output)
        assert session.target_pieces(["w1 w22"]) == ["▁w1 ▁w22"]

    @pytest.mark.parametrize(
        "kind, languages", [("m2m-100", ("a", "b")), ("bart with a bias", ("en", "fr"))]
    )
    def test_symbols_that_nobody_would_write(self, kind, languages, words_model, tmp_path, capsys):
        if kind.startswith("bart"):
            CASES[kind].make(tmp_path / "given")
            write_json(tmp_path / "given", "generation_config.json", {"forced_bos_token_id": 0})
        output = self.imported(kind, words_model, tmp_path, *languages)
        last = capsys.readouterr().out.splitlines()[-1]
        assert not os.path.exists(f"{output}/specdec.json") and "--prefix-size 1" in last
        assert ("name languages of the model in -s and -t, such as en" in last) == (kind[0] == "m")

    def test_several_targets_of_marian(self, words_model, tmp_path, capsys):
        CASES["marian"].make(tmp_path / "given")
        named = numbered(MARIAN)
        named[">>zh-Hans<<"] = named.pop("▁w29")
        write_json(tmp_path / "given", "vocab.json", named)
        output = self.imported("marian", words_model, tmp_path, "en", "x", file="source.spm")
        assert not os.path.exists(f"{output}/specdec.json")
        last = capsys.readouterr().out.splitlines()[-1]
        assert "symbol of a target language, such as >>zh-Hans<<: write it." in last

    @pytest.mark.parametrize(
        "file, content", [("target.spm", None), ("source.spm", b"damaged"), ("source.spm", OTHER)]
    )
    def test_subwords_that_do_not_split_the_source(self, file, content, words_model, tmp_path):
        content = words_model if content is None else content
        output = self.imported("marian", content, tmp_path, "en", "es", file=file)
        assert os.path.exists(f"{output}/{file}")
        assert not os.path.exists(f"{output}/specdec.json")

    def test_a_kind_of_several_languages_without_any(self, words_model, tmp_path, capsys):
        CASES["nllb"].make(tmp_path / "given")
        named = [f"word{number}" for number in range(len(CASES["nllb"].symbols) - 4)]
        write_json(tmp_path / "given", "tokenizer.json", {})
        write_json(tmp_path / "given", "vocab.json", numbered([*SPECIAL, *named]))
        output = self.imported("nllb", words_model, tmp_path, "en", "fr")
        assert "The files name no languages." in capsys.readouterr().out
        assert not os.path.exists(f"{output}/specdec.json")


def as_written(symbol, style):
    """A symbol of transformers as fairseq calls it."""
    if not re.fullmatch("[a-z]+_[A-Z][A-Za-z]+", symbol):
        return symbol
    return f"[{symbol}]" if style == "mbart" else f"__{symbol}__"


def run(folder, output, *more):
    main([str(folder), "--from", "transformers", "--output", str(output), *more])


@pytest.fixture
def given(tmp_path):
    """A folder with a BART that is imported as it is."""
    CASES["bart"].make(tmp_path / "given")
    return tmp_path / "given"


#: Of config.json: transformers knows what they are in each kind of model.
DEFAULTS = ("activation_function", "scale_embedding")


class TestFiles:
    """What is read, and what is written."""

    def test_dictionaries_have_the_ids_of_the_model(self, given, tmp_path):
        run(given, tmp_path / "out", "-s", "en", "-t", "es")
        for language in ("en", "es"):
            symbols = Dictionary.load(str(tmp_path / "out" / f"dict.{language}.txt")).symbols
            assert symbols == CASES["bart"].symbols

    def test_how_targets_begin_is_told(self, given, tmp_path, capsys):
        run(given, tmp_path / "out")
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith("Targets begin freely: no symbol") and "--prefix-size" in last

    def test_what_config_does_not_tell_is_as_in_transformers(self, tmp_path):
        CASES["m2m-100"].make(tmp_path / "given")
        run(tmp_path / "given", tmp_path / "out")
        told = json.loads((tmp_path / "given" / "config.json").read_text("utf-8"))
        told = {key: value for key, value in told.items() if key not in DEFAULTS}
        write_json(tmp_path / "given", "config.json", told)
        run(tmp_path / "given", tmp_path / "again")
        first, second = (
            load_weights(str(tmp_path / name / "model.pt"))["cfg"] for name in ("out", "again")
        )
        assert first == second

    def test_tied_embeddings_stay_tied(self, given, tmp_path):
        run(given, tmp_path / "out")
        saved = load_weights(str(tmp_path / "out" / "model.pt"))
        assert saved["cfg"]["model"].arch == "transformer"
        assert saved["cfg"]["model"].share_all_embeddings
        names = ["encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"]
        assert len({saved["model"][f"{name}.weight"].data_ptr() for name in names}) == 1

    @pytest.mark.parametrize("form", ["shards", "pickled", "pickled shards"])
    def test_weights_may_be_stored_in_other_ways(self, given, tmp_path, form):
        run(given, tmp_path / "out")
        model = transformers.BartForConditionalGeneration.from_pretrained(given)
        os.remove(given / "model.safetensors")
        if form == "shards":
            model.save_pretrained(given, max_shard_size="20KB")
            assert (given / "model.safetensors.index.json").exists()
        elif form == "pickled":
            torch.save(model.state_dict(), given / "pytorch_model.bin")
        else:
            names = list(model.state_dict())
            for part in (0, 1):
                some = {name: model.state_dict()[name] for name in names[part::2]}
                torch.save(some, given / f"part{part}.bin")
            where = {name: f"part{number % 2}.bin" for number, name in enumerate(names)}
            write_json(given, "pytorch_model.bin.index.json", {"weight_map": where})
        run(given, tmp_path / "again")
        first, second = (
            load_weights(str(tmp_path / name / "model.pt"))["model"] for name in ("out", "again")
        )
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)

    def test_a_full_disk_is_no_fault_of_the_model(self, given, tmp_path, monkeypatch):
        def full(state, file):
            try:
                raise OSError(errno.ENOSPC, "No space left")
            except OSError:  # as PyTorch does
                raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904

        (tmp_path / "empty").mkdir()
        with monkeypatch.context() as patch:
            patch.setattr(torch, "save", full)
            for output in ("out", "empty"):
                told = rf"{output}/model\.pt cannot be written \(No space left"
                with pytest.raises(PluginError, match=told):
                    run(given, tmp_path / output)
        assert not (tmp_path / "out").exists() and not [*(tmp_path / "empty").iterdir()]
        run(given, tmp_path / "empty")

    def test_a_subword_model_is_copied_and_gives_the_symbols(self, given, tmp_path):
        trained = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["the file is closed", "a block ends here"] * 20),
            model_writer=trained,
            vocab_size=22,
            minloglevel=2,
        )
        os.remove(given / "vocab.json")
        (given / "sentencepiece.bpe.model").write_bytes(trained.getvalue())
        listed = {"additional_special_tokens": LANGUAGES, "mask_token": {"content": "<mask>"}}
        write_json(given, "special_tokens_map.json", listed)
        run(given, tmp_path / "out", "-s", "en", "-t", "es")
        copied = tmp_path / "out" / "sentencepiece.bpe.model"
        assert copied.read_bytes() == trained.getvalue()
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(copied))
        rest = [pieces.id_to_piece(number) for number in range(3, len(pieces))]
        symbols = Dictionary.load(str(tmp_path / "out" / "dict.en.txt")).symbols
        named = [*SPECIAL, *rest, *LANGUAGES, "<mask>"]
        unnamed = range(len(named), len(CASES["bart"].symbols))
        assert symbols == [*named, *(f"<id:{number}>" for number in unnamed)]

    def test_symbols_that_no_line_holds_are_named_after_their_ids(self, tmp_path):
        write_json(
            tmp_path, "vocab.json", numbered([*SPECIAL, "a b", "c", "\u3000", "\n", "\ud800"])
        )
        found = read_symbols(str(tmp_path), 10)
        assert found.ids == list(range(10))
        wanted = ["<id:4>", "c", "<id:6>", "<id:7>", "<id:8>", "<id:9>"]
        assert found.dictionary.symbols == [*SPECIAL, *wanted]

    def test_a_mask_without_a_row_is_left_out(self, tmp_path):
        write_json(tmp_path, "vocab.json", numbered([*BASE, "<mask>"]))
        assert read_symbols(str(tmp_path), len(BASE)).dictionary.symbols == BASE

    @pytest.mark.parametrize("codes", ["m2m100", "wmt21"])
    def test_languages_that_a_folder_does_not_list_are_known(self, tmp_path, codes):
        known = importlib.import_module("transformers.models.m2m_100.tokenization_m2m_100")
        languages = [f"__{code}__" for code in known.FAIRSEQ_LANGUAGE_CODES[codes]]
        write_json(tmp_path, "vocab.json", numbered(BASE))
        write_json(tmp_path, "tokenizer_config.json", {"language_codes": codes})
        found = read_symbols(str(tmp_path), len(BASE) + len(languages))
        assert found.dictionary.symbols == [*BASE, *languages]


class TestRefusals:
    """A sentence with the cause and the cure."""

    def refused(self, given, tmp_path, *parts):
        with pytest.raises(PluginError) as caught:
            run(given, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert all(part in str(caught.value) for part in parts), caught.value

    def change(self, given, **values):
        config = json.loads((given / "config.json").read_text("utf-8"))
        write_json(given, "config.json", {**config, **values})

    def test_no_folder(self, tmp_path):
        self.refused(tmp_path / "none", tmp_path, "is not a folder", "config.json")

    @pytest.mark.parametrize(
        "file, part",
        [
            ("config.json", "no config.json"),
            ("model.safetensors", "neither model.safetensors nor pytorch_model.bin"),
            ("vocab.json", "none of vocab.json, tokenizer.json"),
        ],
    )
    def test_a_missing_file(self, given, tmp_path, file, part):
        os.remove(given / file)
        self.refused(given, tmp_path, part, str(given))

    @pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
    def test_a_damaged_file(self, given, tmp_path, file):
        os.truncate(given / file, 100)
        self.refused(given, tmp_path, file, "Copy")

    def test_another_kind(self, given, tmp_path):
        self.change(given, model_type="t5")
        self.refused(given, tmp_path, "type t5", "bart, m2m_100, marian, mbart")

    @pytest.mark.parametrize(
        "change, part",
        [
            ({"d_model": 16}, "has the shape"),
            ({"encoder_layers": 3}, "lack encoder.layers.2."),
            ({"encoder_layers": 10**30}, "lack encoder.layers.2."),
            ({"decoder_layers": 1}, "have decoder.layers.1."),
            ({"vocab_size": 50}, "no table of 50 symbols"),
            ({"vocab_size": 10**30}, "no table of 1000"),
            ({"decoder_attention_heads": 1.5}, "contradict each other"),
            ({"encoder_ffn_dim": -116}, "negative dimension -116"),
            ({"vocab_size": 20}, "have 20 rows"),
        ],
    )
    def test_weights_of_another_shape(self, given, tmp_path, change, part):
        self.change(given, **change)
        self.refused(given, tmp_path, part, "Copy")

    def test_an_unknown_activation(self, given, tmp_path):
        self.change(given, activation_function="mish")
        self.refused(given, tmp_path, "mish", "relu, gelu")

    def test_a_forced_symbol_that_is_none(self, given, tmp_path):
        write_json(given, "generation_config.json", {"forced_bos_token_id": 999})
        self.refused(given, tmp_path, "999")

    def test_another_first_symbol(self, given, tmp_path):
        self.change(given, model_type="mbart", decoder_start_token_id=7)
        os.remove(given / "generation_config.json")
        self.refused(given, tmp_path, "starts with the symbol 7", "mBART-50")

    def test_an_output_folder_with_files(self, given):
        with pytest.raises(PluginError, match="not an empty folder"):
            run(given, given)

    def test_one_name_for_both_languages(self, given, tmp_path):
        with pytest.raises(PluginError, match="-s and -t are both en"):
            run(given, tmp_path / "out", "-s", "en", "-t", "en")
