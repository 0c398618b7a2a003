"""``--lm-path``: a language model beside the model, on the command lines and in Python."""

import os
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

import specdec_plugin
from specdec_plugin.fairseq_compat import language_models as loading
from specdec_plugin.fairseq_compat.options import with_own_options
from tests.support import language_models, tiny
from tests.support.command_lines import generate_args, hypothesis_lines, run_cli

LINES = ["one two three", "nine and two", "minus one"]


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    """The data folder with the dictionary of the language model, where fairseq reads it."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(corpus.data_dir, folder, dirs_exist_ok=True)
    shutil.copy(folder / "dict.es.txt", folder / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def beside(data):
    """The path of a language model of the target."""
    return language_models.save(data / "lm.pt", Dictionary.load(str(data / "dict.txt")))


@pytest.mark.parametrize("beams", [["--beam", 4, "--nbest", 4], ["--beam", 1]])
def test_generate_prints_fairseqs_lists(data, tiny_verifier, beside, beams):
    """With one beam too, and what fairseq prints differs from what it prints without."""
    args = generate_args(data, tiny_verifier, *beams, "--batch-size", 4)
    more = ["--lm-path", beside, "--lm-weight", 0.4]
    plain, theirs = (hypothesis_lines(run_cli([*args, *each]).stdout) for each in ([], more))
    assert theirs != plain
    for method in ("beam", "auto"):
        ours = run_cli([*args, *more, "--decoding", method])
        assert hypothesis_lines(ours.stdout) == theirs


def test_a_weight_of_0(data, tiny_verifier, beside):
    """It is one of a grid that somebody tries: the language model has no say."""
    args = generate_args(data, tiny_verifier, "--beam", 3)
    more = ["--decoding", "auto", "--lm-path", beside]
    plain, found = (run_cli([*args, *each]).stdout for each in ([], more))
    assert hypothesis_lines(found) == hypothesis_lines(plain)


def test_interactive_hears_it(corpus, data, tiny_verifier, beside):
    """fairseq's own program reads no language model; the task does, with its search and with ours.

    Then the folder needs no dictionary of the language model.
    """
    given = ["--beam", 4, "--lm-path", beside, "--lm-weight", 0.4]
    printed = hypothesis_lines(run_cli(generate_args(data, tiny_verifier, *given)).stdout)
    args = generate_args(corpus.data_dir, tiny_verifier, *given, "-s", "en", "-t", "es")[1:]
    lines = "\n".join(corpus.lines("test", "en")) + "\n"
    for more in ([], ["--decoding", "auto"]):
        found = run_cli(["fairseq-interactive", *args, *more], input=lines).stdout
        assert [text for _, _, text in hypothesis_lines(found)] == [text for *_, text in printed]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--lm-weight", 0.3], "--lm-weight 0.3 would have no effect without a language model: a"),
        (["--lm-path", "LM", "--lm-weight", "nan"], "--lm-weight nan: give a number such as 0.3."),
        (["--lm-path", "no.pt", "--lm-weight", 1], "no.pt"),
        (["--lm-path", "TRANSLATION", "--lm-weight", 1], "names a TransformerModel, which is no"),
        (
            ["--lm-path", "LARGER", "--lm-weight", 1],
            "has 44 target symbols, but the target diction",
        ),
        (
            ["--lm-path", "LM", "--lm-weight", 1, "--sampling"],
            "cannot be kept with --sampling: lea",
        ),
        (
            ["--lm-path", "LM", "--lm-weight", 1, "--draft-rows", 1],
            "would have no effect in the be",
        ),
    ],
)
def test_refusals(corpus, data, tiny_verifier, beside, tmp_path, more, sentence):
    """In a sentence, by the program that loads no language model itself."""
    larger = language_models.save(tmp_path / "larger.pt", tiny.dictionary(40))
    paths = {"LM": beside, "TRANSLATION": tiny_verifier, "LARGER": larger}
    args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "auto", "-s", "en")[1:]
    args += ["-t", "es", *(paths.get(str(each), each) for each in more)]
    done = run_cli(["fairseq-interactive", *args], input="one\n", check=False)
    assert done.returncode == 1 and sentence in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_other_symbols(data, tiny_verifier, beside, tmp_path):
    """fairseq reads the language model's dictionary in the folder; another order is nonsense."""
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    lines = (tmp_path / "dict.txt").read_text().splitlines(keepends=True)
    (tmp_path / "dict.txt").write_text("".join([*lines[1:], lines[0]]))
    more = ["--decoding", "beam", "--beam", 3, "--lm-path", beside, "--lm-weight", 0.4]
    done = run_cli(generate_args(tmp_path, tiny_verifier, *more), check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "has other symbols than the target, in number or order" in done.stderr


def test_other_sizes(data, tiny_verifier, tmp_path):
    """Fewer positions than outputs may have, and fewer symbols in the output than in the input."""
    symbols = Dictionary.load(str(data / "dict.txt"))
    args = [*generate_args(data, tiny_verifier, "--beam", 2), "--lm-weight", "0.4"]
    short = language_models.save(tmp_path / "short.pt", symbols, "learned", max_target_positions=6)
    found = []
    for more in (["--decoding", "auto"], []):
        done = run_cli([*args, "--lm-path", short, *more])
        assert "--lm-path has 6 positions: no output has more tokens than that" in done.stderr
        found.append(hypothesis_lines(done.stdout))
    assert found[0] == found[1]
    assert max(len(text.split()) for _, _, text in found[0]) <= 6
    done = run_cli([*args, "--lm-path", short, "--match-source-len"], check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "--match-source-len may ask for longer outputs: leave one" in done.stderr
    args += ["--decoding", "auto"]
    for kind in ("learned", "adaptive"):
        path = language_models.save(
            tmp_path / f"{kind}.pt", symbols, kind, decoder_learned_pos=True, max_target_positions=4
        )
        done = run_cli([*args, "--lm-path", path, "--match-source-len"], check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert " positions, and " in done.stderr.strip().splitlines()[-1]
    few = {"output_dictionary_size": 12, "share_decoder_input_output_embed": False}
    path = language_models.save(tmp_path / "few.pt", symbols, **few)
    done = run_cli([*args, "--lm-path", path], check=False)
    assert "has other symbols than the target, in number or order" in done.stderr
    assert done.returncode == 1 and "Traceback" not in done.stderr


@pytest.mark.parametrize("weight", ["nan", "inf", "1e+38"])
def test_weights_without_a_meaning(data, tiny_verifier, beside, weight):
    """fairseq's own search ends in a traceback."""
    more = ["--beam", 3, "--lm-path", beside, "--lm-weight", weight]
    done = run_cli(generate_args(data, tiny_verifier, *more), check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"--lm-weight {weight}: give a number such as 0.3." in done.stderr


def test_greedy_methods_refuse_it(data, tiny_verifier, beside):
    more = ["--decoding", "greedy", "--lm-path", beside, "--lm-weight", 0.4]
    done = run_cli(generate_args(data, tiny_verifier, *more), check=False)
    assert "cannot be kept with --decoding greedy: use --decoding auto, or" in done.stderr


def test_python(corpus, tiny_verifier, beside):
    """As text and as a path."""
    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es"
    )
    given = {"beam": 3, "lm_path": beside, "lm_weight": 0.4}
    found = []
    for decoding, kind in (("fairseq", str), ("beam", Path), ("auto", str)):
        translator = session.translator(decoding, **{**given, "lm_path": kind(beside)})
        lists = translator.translate_pieces(LINES)
        found.append([each.pieces for each in lists])
    assert found[0] == found[1] == found[2]
    plain = session.translator("beam", beam=3).translate_pieces(LINES)
    assert [each.pieces for each in plain] != found[0]


def test_the_hub_loads_it_once(corpus, tiny_verifier, tmp_path, monkeypatch):
    """It builds a search for each call; a file that has changed is loaded again."""
    symbols = Dictionary.load(os.path.join(corpus.data_dir, "dict.es.txt"))
    path, other = (
        language_models.save(tmp_path / f"{seed}.pt", symbols, seed=seed) for seed in (0, 1)
    )
    hub = TransformerModel.from_pretrained(
        *os.path.split(tiny_verifier),
        data_name_or_path=corpus.data_dir,
        task="specdec_translation",
        decoding="auto",
    )
    loaded, load = [], loading.load_model
    monkeypatch.setattr(loading, "load_model", lambda *args: loaded.append(args) or load(*args))
    given = {"beam": 3, "lm_path": path, "lm_weight": 2.0}
    first, again = (hub.translate(LINES, **given) for _ in range(2))
    assert first == again and len(loaded) == 1
    os.replace(other, path)
    assert hub.translate(LINES, **given) != first and len(loaded) == 2
    hub.half()
    hub.translate(LINES, **given)
    assert len(loaded) == 3


def test_a_program_hands_one_over(corpus, tiny_verifier):
    """As ``fairseq-generate`` does; there is no path then."""
    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es"
    )
    model = language_models.model(symbols=session.task.target_dictionary)
    found = []
    for decoding, weight in ((None, 0.4), ("beam", 0.4), ("beam", 0.0)):
        task = with_own_options(session.task)
        task.cfg.decoding = decoding
        generator = task.build_generator(
            session.models,
            Namespace(beam=3),
            extra_gen_cls_kwargs={"lm_model": model, "lm_weight": weight},
        )
        (batch,) = session.batches(session.dataset(LINES), 3)
        lists = generator.generate(session.models, batch)
        found.append([[each["tokens"].tolist() for each in sentence] for sentence in lists])
    assert found[0] == found[1] != found[2]


def test_fairseqs_own_search_takes_any_model(corpus, tiny_verifier):
    """It asks for a call and for log-probabilities alone; a limit that was given stays."""

    class Even(torch.nn.Module):
        """All symbols are as probable."""

        def forward(self, tokens):
            return torch.zeros(*tokens.shape, symbols)

        def get_normalized_probs(self, output, log_probs, sample):
            return output.log_softmax(-1)

    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es"
    )
    symbols = len(session.task.target_dictionary)
    (batch,) = session.batches(session.dataset(LINES), 3)
    found = []
    for extra in ({}, {"lm_model": Even(), "lm_weight": 0.4, "max_len": 3}):
        task = with_own_options(session.task)
        task.cfg.decoding = None
        search = task.build_generator(session.models, Namespace(beam=1), extra_gen_cls_kwargs=extra)
        lists = search.generate(session.models, batch)
        found.append([best["tokens"][:2].tolist() for best, *_ in lists])
    assert found[0] == found[1] and search.max_len == 3
