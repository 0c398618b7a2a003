"""Options of fairseq-generate and fairseq-interactive that would end in fairseq's own tracebacks.

Most of those come after it has loaded data and models.
"""

import ast
import importlib.util
import os
import sys
from typing import Any, Optional
from urllib.parse import urlparse

from fairseq.data.data_utils import post_process
from fairseq.utils import split_paths
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from ..errors import PluginError
from ..subwords import load_sentencepiece
from .input_lines import read_every_line
from .options import flag_of

#: By option: the least and the largest value that has a meaning.
_NUMBERS = {
    **dict.fromkeys(["batch_size", "max_tokens"], (1, 2**31 - 1)),
    **dict.fromkeys(["max_source_positions", "max_target_positions"], (1, sys.maxsize)),
    "num_workers": (0, sys.maxsize),
    "required_seq_len_multiple": (1, sys.maxsize),
    "checkpoint_shard_count": (1, sys.maxsize),
    "seed": (0, 2**32 - 1),  # NumPy's
}
#: By option and value: the package that it needs, and what pip installs.
_PACKAGES = {
    ("tokenizer", "moses"): ("sacremoses", "'specdec-plugin[moses]'"),
    ("tokenizer", "nltk"): ("nltk", "nltk"),
    ("bpe", "fastbpe"): ("fastBPE", "fastBPE"),
    ("bpe", "subword_nmt"): ("subword_nmt", "subword-nmt"),
    ("bpe", "gpt2"): ("regex", "regex"),
    ("bpe", "hf_byte_bpe"): ("tokenizers", "tokenizers"),
    ("bpe", "bert"): ("transformers", "transformers"),
    ("scoring", "wer"): ("editdistance", "editdistance"),
    ("scoring", "bert_score"): ("bert_score", "bert-score"),
    ("scoring", "meteor"): ("nltk", "nltk"),
}
#: Tokenizers of sacrebleu that need a package.
_SACREBLEU = {"ja-mecab": "MeCab", "ko-mecab": "mecab_ko"}
#: By ``--bpe``: the options that name its files.
_FILES = {
    "sentencepiece": ["sentencepiece_model"],
    "byte_bpe": ["sentencepiece_model_path"],
    "subword_nmt": ["bpe_codes"],
    "fastbpe": ["bpe_codes"],
    "hf_byte_bpe": ["bpe_vocab", "bpe_merges"],
    "gpt2": ["gpt2_encoder_json", "gpt2_vocab_bpe"],
}


def check_program(options: Any) -> None:
    """Refuse what the program that parsed ``options`` could not do.

    Raises:
        PluginError: names the option, and the cure.
    """
    interactive = hasattr(options, "buffer_size")
    _check_path(options.path)
    _check_numbers(options)
    _check_direction(options)
    _check_configurations(options)
    _check_packages(options, interactive)
    _check_files(options)
    _check_texts(options)
    _check_replacements(options.replace_unk)
    if interactive:
        _check_interactive(options)
        read_every_line()
        return
    _check_scoring(options)
    _check_constraints(options)
    _check_unknown_words(options)
    _check_language_model(options)
    if options.results_path is not None:
        _check_results(options)


def _check_path(path: Optional[str]) -> None:
    """The models are named."""
    if path is None:
        raise PluginError("--path is missing: name the model's checkpoint, such as model.pt.")
    if not all(split_paths(path)):
        raise PluginError(
            f"--path {path} names a file without a name. Leave out the {os.pathsep} beside it."
        )


def _check_numbers(options: Any) -> None:
    """Numbers that libraries refuse, each in an error of its own."""
    for name, (least, most) in _NUMBERS.items():
        number = getattr(options, name, None)
        if number is not None and not least <= number <= most:
            upto = "" if most == sys.maxsize else f", up to {most}"
            raise PluginError(f"{flag_of(name)} {number}: give {least} or more{upto}.")


def _check_direction(options: Any) -> None:
    """Tasks of many languages would take the data for those of a training."""
    if hasattr(options, "lang_pairs") and None in (options.source_lang, options.target_lang):
        raise PluginError(
            f"--task {options.task} decodes one direction: give --source-lang and --target-lang."
        )


def _check_configurations(options: Any) -> None:
    """fairseq declares no options for some kinds of subwords, and hydra fails without them."""
    known = ConfigStore.instance().repo.get("bpe", {})
    if options.bpe is not None and f"{options.bpe}.yaml" not in known:
        raise PluginError(
            f"--bpe {options.bpe} has no configuration in this fairseq: leave it out, and split "
            "the lines before."
        )


def _check_packages(options: Any, interactive: bool) -> None:
    """Packages are there; fairseq-interactive scores nothing."""
    for name in dict.fromkeys(name for name, _ in _PACKAGES):
        if name != "scoring" or not interactive:
            check_package(flag_of(name), name, getattr(options, name))


def check_package(flag: str, kind: str, value: Any) -> None:
    """Refuse what needs a package that is missing.

    Args:
        flag: that the user gave.
        kind: ``tokenizer``, ``bpe`` or ``scoring``.
        value: one of fairseq's.

    Raises:
        PluginError: it names the package.
    """
    package, install = _PACKAGES.get((kind, value), ("", ""))
    if package and importlib.util.find_spec(package) is None:
        raise PluginError(f"{flag} {value} needs the package {package}: pip install {install}.")


def _check_files(options: Any) -> None:
    """Files of subwords are there, or have addresses from which fairseq loads them."""
    for name in _FILES.get(options.bpe, ()):
        path = getattr(options, name)
        if path in (None, MISSING):
            raise PluginError(
                f"--bpe {options.bpe} needs {flag_of(name)}: name the file that the data were "
                "split with."
            )
        scheme = urlparse(path).scheme
        if scheme.startswith("http"):
            _check_download(name, path)
        if scheme:
            continue
        if not os.path.isfile(path):
            raise PluginError(
                f"{flag_of(name)} {path} is not a file. Name the one that the data were split with."
            )
        if name.startswith("sentencepiece"):
            load_sentencepiece(path)


def _check_download(name: str, address: str) -> None:
    """fairseq loads a file from its address with a package that it does not install."""
    if importlib.util.find_spec("requests") is None:
        raise PluginError(
            f"{flag_of(name)} {address} is loaded with the package requests: pip install requests,"
            " or name a file."
        )


def _check_texts(options: Any) -> None:
    """Values that fairseq reads late."""
    check_subwords("--post-process", options.post_process)
    try:
        overrides = ast.literal_eval(options.model_overrides)
    except (ValueError, SyntaxError):
        overrides = None
    if not isinstance(overrides, dict):
        raise PluginError(
            f"--model-overrides {options.model_overrides} is not a dictionary of Python: give one "
            "such as \"{'dropout': 0.1}\"."
        )


def check_subwords(flag: str, value: Optional[str]) -> None:
    """Refuse a kind of subwords that fairseq cannot join.

    Raises:
        PluginError: names the flag and others.
    """
    try:
        post_process("", value)
    except NotImplementedError:
        raise PluginError(
            f"{flag} {value} is unknown: give sentencepiece, subword_nmt, wordpiece, letter or "
            "none."
        ) from None


def _check_interactive(options: Any) -> None:
    """What fairseq-interactive reads, and how much at a time."""
    if options.score_reference:
        raise PluginError(
            "fairseq-interactive reads no references: leave out --score-reference, or use "
            "fairseq-generate."
        )
    size, room = options.batch_size, max(options.buffer_size, 1)
    if size is not None and size > room:
        raise PluginError(
            f"--batch-size {size} is more than --buffer-size {room}: give --buffer-size {size} or "
            "more."
        )
    _check_tokenizer(options)
    path = options.input
    if path != "-" and (os.path.isdir(path) or not os.access(path, os.R_OK)):  # or else a pipe
        raise PluginError(f"--input {path} is not a file that can be read. Check the path.")


def _check_tokenizer(options: Any) -> None:
    """nltk tells of missing data at the first line, at length."""
    if options.tokenizer != "nltk":
        return
    try:
        importlib.import_module("nltk.tokenize").word_tokenize("a")
    except LookupError:
        raise PluginError(
            "--tokenizer nltk needs data of nltk: python -m nltk.downloader punkt punkt_tab."
        ) from None


def _check_scoring(options: Any) -> None:
    """What scorers lack, which fairseq would find out after it has loaded models, or at the end."""
    kind = str(getattr(options, f"{options.scoring}_tokenizer", "none"))
    if kind in _SACREBLEU and importlib.util.find_spec(_SACREBLEU[kind]) is None:
        raise PluginError(
            f"--{options.scoring}-tokenizer {kind} needs the package {_SACREBLEU[kind]}: pip "
            f"install 'sacrebleu[{kind[:2]}]', or give another one."
        )
    if options.scoring != "meteor":
        return
    score = importlib.import_module("nltk.translate.meteor_score").single_meteor_score
    try:
        score("a", "b")
    except TypeError:
        raise PluginError(
            "--scoring meteor gives text to nltk, and the nltk that is installed takes lists of "
            "words: give another --scoring, such as sacrebleu."
        ) from None
    except LookupError:
        raise PluginError(
            "--scoring meteor needs WordNet: python -m nltk.downloader wordnet omw-1.4, or give "
            "another --scoring."
        ) from None


def _check_constraints(options: Any) -> None:
    """Data of fairseq-generate have none, for which its search has no words."""
    if options.constraints is not None:
        raise PluginError(
            "fairseq-generate reads no constraints: leave out --constraints, or use "
            "fairseq-interactive, where they follow a line behind tabs."
        )


def _check_replacements(path: Optional[str]) -> None:
    """Without a value, fairseq takes the name of a kind of subwords for a file."""
    if path and not os.path.isfile(path):
        raise PluginError(
            f"--replace-unk {path} is not a file of words and their translations: name one, or "
            "give --replace-unk '' to copy words."
        )


def _check_unknown_words(options: Any) -> None:
    """fairseq-generate replaces unknown words by those of raw text alone."""
    if options.replace_unk is not None and options.dataset_impl != "raw":
        raise PluginError(
            "--replace-unk copies words of raw text: give a folder with such text and "
            "--dataset-impl raw, or leave it out."
        )


def _check_language_model(options: Any) -> None:
    """fairseq reads the language model's dictionary in the data folder, after all models."""
    if options.lm_path is None:
        return
    folder = split_paths(options.data)[0]
    if not os.path.isfile(os.path.join(folder, "dict.txt")):
        raise PluginError(
            f"--lm-path {options.lm_path} needs the language model's dictionary as "
            f"{os.path.join(folder, 'dict.txt')}: copy it there, or leave --lm-path out."
        )


def _check_results(options: Any) -> None:
    """Open the file that fairseq-generate will write; it is empty where there was none."""
    folder = options.results_path
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"generate-{options.gen_subset}.txt"), "a"):
            pass
    except OSError as error:
        raise PluginError(
            f"--results-path {folder} cannot be written ({error.strerror}). Name another folder."
        ) from error
