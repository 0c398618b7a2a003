"""Mistakes that fairseq's programs would tell in a traceback, most of them after loading models."""

import os
import shutil
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from fairseq import options
from fairseq.data.indexed_dataset import make_builder

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.splits import check_whole
from tests.support.command_lines import PLUGIN, TRACEBACK, generate_args, run_cli


def parse(*more, interactive=False, data="data", decoding=("--decoding", "greedy")):
    parser = options.get_generation_parser(interactive)
    args = [data, "--user-dir", PLUGIN, "--task", "specdec_translation", "--path", "model.pt"]
    return options.parse_args_and_arch(parser, [*map(str, (*args, *decoding, *more))])


@pytest.mark.parametrize("interactive", [False, True])
def test_models_are_named(interactive):
    parser = options.get_generation_parser(interactive)
    args = ["data", "--user-dir", PLUGIN, "--task", "specdec_translation"]
    with pytest.raises(PluginError, match=r"^--path is missing: name the "):
        options.parse_args_and_arch(parser, args)
    for path in ("model.pt:", ":model.pt", ""):
        with pytest.raises(PluginError, match=f"^--path {path} names a file without a name. Leav"):
            parse("--path", path, interactive=interactive)


#: What nltk scores with.
METEOR = "nltk.translate.meteor_score"
#: Options with files, by the subwords that need them.
FILES = {
    **dict.fromkeys(["fastbpe", "subword_nmt"], ("--bpe-codes", __file__)),
    "gpt2": ("--gpt2-encoder-json", __file__, "--gpt2-vocab-bpe", __file__),
    "hf_byte_bpe": ("--bpe-vocab", __file__, "--bpe-merges", __file__),
}


def there(monkeypatch, package):
    """Pretend that a package is installed."""
    found = ModuleType(package)
    found.__spec__ = ModuleSpec(package, None)
    monkeypatch.setitem(sys.modules, package, found)
    return found


@pytest.mark.parametrize(
    "flag, value, package, told",
    [
        ("--tokenizer", "moses", "sacremoses", r"'specdec-plugin\[moses\]'"),
        ("--tokenizer", "nltk", "nltk", "nltk"),
        ("--bpe", "fastbpe", "fastBPE", "fastBPE"),
        ("--scoring", "wer", "editdistance", "editdistance"),
        ("--scoring", "bert_score", "bert_score", "bert-score"),
        ("--scoring", "meteor", "nltk", "nltk"),
        ("--bpe", "subword_nmt", "subword_nmt", "subword-nmt"),
        ("--bpe", "gpt2", "regex", "regex"),
        ("--bpe", "hf_byte_bpe", "tokenizers", "tokenizers"),
        ("--bpe", "bert", "transformers", "transformers"),
    ],
)
def test_packages(monkeypatch, flag, value, package, told):
    there(monkeypatch, package)
    there(monkeypatch, METEOR).single_meteor_score = min
    parse(flag, value, *FILES.get(value, ()))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PluginError, match=f"^{flag} {value} .* {package}: pip install {told}\\.$"):
        parse(flag, value)
    if flag == "--scoring":
        parse(flag, value, interactive=True)  # which scores nothing


@pytest.mark.parametrize("interactive", [True, False])
@pytest.mark.parametrize(
    "kind, flag",
    [
        ("sentencepiece", "--sentencepiece-model"),
        ("byte_bpe", "--sentencepiece-model-path"),
        ("subword_nmt", "--bpe-codes"),
        ("hf_byte_bpe", "--bpe-vocab"),
    ],
)
def test_files_of_subwords(kind, flag, interactive, sentencepieces, monkeypatch):
    there(monkeypatch, "requests")
    more = ["--bpe-merges", __file__] if kind == "hf_byte_bpe" else []
    reads_pieces = flag.startswith("--sentencepiece")
    good = str(sentencepieces / "spm.model") if reads_pieces else __file__
    for path in (good, "https://example.org/a"):
        parse("--bpe", kind, flag, path, *more, interactive=interactive)
    if reads_pieces:
        with pytest.raises(PluginError, match=r"test_programs\.py is not a SentencePiece model\. "):
            parse("--bpe", kind, flag, __file__, *more, interactive=interactive)
    with pytest.raises(PluginError, match=f"^--bpe {kind} needs {flag}: name the file that"):
        parse("--bpe", kind, *more, interactive=interactive)
    with pytest.raises(PluginError, match=f"^{flag} nowhere is not a file"):
        parse("--bpe", kind, flag, "nowhere", *more, interactive=interactive)


@pytest.mark.parametrize("flag", ["--gpt2-encoder-json", "--gpt2-vocab-bpe"])
def test_files_of_subwords_that_fairseq_downloads(flag, monkeypatch):
    there(monkeypatch, "requests")
    parse("--bpe", "gpt2")
    with pytest.raises(PluginError, match=f"^{flag} nowhere is not a file"):
        parse("--bpe", "gpt2", flag, "nowhere")
    monkeypatch.setitem(sys.modules, "requests", None)
    parse("--bpe", "gpt2", *FILES["gpt2"])
    with pytest.raises(PluginError, match=f"^{flag} https://.* is loaded with the package reques"):
        parse("--bpe", "gpt2", *FILES["gpt2"], flag, "https://example.org/a")


@pytest.mark.parametrize(
    "error, sentence",
    [
        (TypeError, "^--scoring meteor gives text to nltk, and the nltk that is installed takes"),
        (LookupError, "^--scoring meteor needs WordNet: python -m nltk.downloader wordnet"),
    ],
)
def test_meteor_cannot_score(error, sentence, monkeypatch):
    """fairseq would tell after it has decoded everything."""

    def score(reference, hypothesis):
        raise error(reference)

    there(monkeypatch, "nltk")
    there(monkeypatch, METEOR).single_meteor_score = score
    with pytest.raises(PluginError, match=sentence):
        parse("--scoring", "meteor")
    parse("--scoring", "meteor", interactive=True)


@pytest.mark.parametrize("scoring", ["sacrebleu", "wer"])
@pytest.mark.parametrize(
    "kind, package, told",
    [("ja-mecab", "MeCab", r"'sacrebleu\[ja\]'"), ("ko-mecab", "mecab_ko", r"'sacrebleu\[ko\]'")],
)
def test_packages_of_tokenizers(monkeypatch, scoring, kind, package, told):
    for name in ("editdistance", package):
        there(monkeypatch, name)
    flags = ("--scoring", scoring, f"--{scoring}-tokenizer", kind)
    parse(*flags)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PluginError, match=f"^--{scoring}-tok.* {package}: pip install {told}, or"):
        parse(*flags)
    parse(*flags, interactive=True)  # which scores nothing


@pytest.mark.parametrize("interactive", [True, False])
@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_subwords_without_a_configuration(kind, interactive):
    with pytest.raises(PluginError, match=f"^--bpe {kind} has no configuration in this fairseq: l"):
        parse("--bpe", kind, interactive=interactive)


def test_the_tokenizer_of_nltk_needs_data(monkeypatch):
    def word_tokenize(line):
        raise LookupError(line)

    there(monkeypatch, "nltk")
    nltk = there(monkeypatch, "nltk.tokenize")
    nltk.word_tokenize = word_tokenize
    with pytest.raises(PluginError, match=r"^--tokenizer nltk needs data of nltk: python -m nltk"):
        parse("--tokenizer", "nltk", interactive=True)
    parse("--tokenizer", "nltk")  # which makes no tokens
    nltk.word_tokenize = str.split
    parse("--tokenizer", "nltk", interactive=True)


def test_constraints_are_read_from_lines():
    parse("--constraints", interactive=True, decoding=())
    with pytest.raises(PluginError, match=r"^fairseq-generate reads no constraints: leave out --"):
        parse("--constraints", decoding=())


def test_unknown_words_are_replaced_by_those_of_raw_text():
    for path in (__file__, ""):
        parse("--replace-unk", path, "--dataset-impl", "raw", decoding=())
        parse("--replace-unk", path, interactive=True, decoding=())
        with pytest.raises(PluginError, match=r"^--replace-unk copies words of raw text: give a "):
            parse("--replace-unk", path, decoding=())
    for interactive in (True, False):  # fairseq takes "@@ " for the path
        with pytest.raises(PluginError, match=r"^--replace-unk @@  is not a file of words and th"):
            parse("--replace-unk", interactive=interactive, decoding=())


def test_the_dictionary_of_a_language_model(tmp_path):
    lm = ("--lm-path", "lm.pt")
    with pytest.raises(
        PluginError, match=r"^--lm-path lm\.pt needs .* as .*dict\.txt: copy it the"
    ):
        parse(*lm, data=tmp_path, decoding=())
    parse(*lm, data=tmp_path, interactive=True, decoding=())  # which does not read it
    (tmp_path / "dict.txt").touch()
    parse(*lm, data=tmp_path, decoding=())


def test_post_process():
    for kind in ("sentencepiece", "subword_nmt", "@@ ", "wordpiece", "letter", "none"):
        assert parse("--post-process", kind).post_process == kind
    assert parse("--remove-bpe").post_process == "subword_nmt"
    with pytest.raises(PluginError, match=r"^--post-process nosuch is unknown: give sentencepiece"):
        parse("--post-process", "nosuch")


@pytest.mark.parametrize("value", ["nonsense", "{'dropout'", "[1]", ""])
def test_model_overrides(value):
    parse("--model-overrides", "{'dropout': 0.1}")
    with pytest.raises(PluginError, match=r"^--model-overrides .* is not a dictionary of Python"):
        parse("--model-overrides", value)


class TestResults:
    def test_a_folder_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(PluginError, match=r"^--results-path .* cannot be written \(Not a dir"):
            parse("--results-path", tmp_path / "file" / "folder")

    def test_a_file_that_cannot_be_written(self, tmp_path):
        (tmp_path / "generate-valid.txt").mkdir()
        with pytest.raises(PluginError, match=r"^--results-path .* cannot be written \(Is a dir"):
            parse("--results-path", tmp_path, "--gen-subset", "valid")

    def test_what_is_there_stays_until_fairseq_writes(self, tmp_path):
        (tmp_path / "generate-test.txt").write_text("before")
        parse("--results-path", tmp_path)
        assert (tmp_path / "generate-test.txt").read_text() == "before"

    def test_fairseq_interactive_writes_none(self, tmp_path):
        parse("--results-path", tmp_path / "results", interactive=True)
        assert not os.listdir(tmp_path)


class TestInteractive:
    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--buffer-size", 2, "--batch-size", 5], "^--batch-size 5 is more than --buffer-size"),
            (["--batch-size", 2], "^--batch-size 2 is more than --buffer-size 1: give --buffer-s"),
            (["--input", "nowhere"], "^--input nowhere is not a file that can be read"),
            (["--input", os.sep], "^--input / is not a file that can be read"),
            (["--score-reference"], "^fairseq-interactive reads no references: leave out --score"),
        ],
    )
    def test_refusals(self, flags, sentence):
        with pytest.raises(PluginError, match=sentence):
            parse(*flags, interactive=True)

    def test_what_it_takes(self):
        parse("--buffer-size", 5, "--batch-size", 5, "--input", __file__, interactive=True)
        parse("--batch-size", 1, "--input", "-", interactive=True)
        parse("--batch-size", 5)


def test_a_command_line_ends_in_the_sentence():
    """Neither the data nor the model exists, and nothing tells so."""
    args = generate_args("nowhere", "nowhere.pt", "--decoding", "greedy", "--post-process", "no")
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("--post-process no is unknown")


def test_a_split_without_a_sentence(tmp_path):
    for side in ("en", "es"):
        path = f"{tmp_path}/test.en-es.{side}"
        make_builder(f"{path}.bin", "mmap", vocab_size=9).finalize(f"{path}.idx")
    with pytest.raises(PluginError, match=r"test\.en-es\.e.\.bin has no sentence\. Name another"):
        check_whole(str(tmp_path), "test")
    check_whole(str(tmp_path), "valid")


def test_data_of_other_languages_are_not_checked(tmp_path):
    for name in ("test.en-es.en", "test.en-es.es"):
        with_one = make_builder(f"{tmp_path}/{name}.bin", "mmap", vocab_size=9)
        with_one.add_item(torch.tensor([4, 2]))
        with_one.finalize(f"{tmp_path}/{name}.idx")
    for name in ("test.en-fr.fr", "test.es-en.es", "test.es-en.en"):
        make_builder(f"{tmp_path}/{name}.bin", "mmap", vocab_size=9).finalize(
            f"{tmp_path}/{name}.idx"
        )
    check_whole(str(tmp_path), "test", [("en", "es")])
    for directions in ([], [("es", "en")], [("en", "es"), ("es", "en")]):
        with pytest.raises(PluginError, match="has no sentence"):
            check_whole(str(tmp_path), "test", directions)
    with pytest.raises(PluginError, match=r"test\.en-fr\.fr\.bin has no sentence"):
        check_whole(str(tmp_path), "test", [("fr", "en")])


def test_an_empty_split_of_other_languages(corpus, tiny_verifier, tmp_path):
    shutil.copytree(corpus.data_dir, tmp_path / "data")
    (tmp_path / "data" / "test.en-fr.fr.idx").write_bytes(b"MMIDIDX\0")
    run_cli(generate_args(tmp_path / "data", tiny_verifier, "--decoding", "greedy"))


@pytest.mark.parametrize(
    "flags, split", [(["--gen-subset", "nowhere"], "nowhere"), (["-s", "en", "-t", "en"], "test")]
)
def test_a_split_that_is_not_there(corpus, tiny_verifier, flags, split):
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *flags), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = done.stderr.strip().splitlines()[-1]
    assert told.startswith(f"The data have no split {split} (") and "--gen-subset" in told


@pytest.mark.parametrize("kind", ["lazy", "cached", "fasta"])
def test_a_split_of_another_kind(corpus, tiny_verifier, kind):
    args = generate_args(corpus.data_dir, tiny_verifier, "--dataset-impl", kind)
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = done.stderr.strip().splitlines()[-1]
    assert told.startswith(f"--dataset-impl {kind} cannot read the split test: leave it out")
