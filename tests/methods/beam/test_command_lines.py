"""``--decoding beam`` on the command lines, in Python and on fairseq's hub."""

from pathlib import Path

import pytest
from fairseq.models.transformer import TransformerModel

import specdec_plugin
from tests.support.command_lines import generate_args, hypothesis_lines, run_cli

BEAMS = ["--beam", 4, "--nbest", 4]


@pytest.fixture(scope="module")
def expected(corpus, tiny_verifier):
    """What fairseq's own search prints."""
    args = generate_args(corpus.data_dir, tiny_verifier, *BEAMS, "--batch-size", 8)
    return hypothesis_lines(run_cli(args).stdout)


@pytest.mark.parametrize("size", [1, 8, 30])
def test_generate_prints_fairseqs_lists(corpus, tiny_verifier, expected, size):
    more = [*BEAMS, "--decoding", "beam", "--batch-size", size]
    found = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more))
    assert hypothesis_lines(found.stdout) == expected
    assert len(expected) == 4 * 21


def test_the_default_is_fairseqs_beam(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier)
    at = args.index("--beam")
    del args[at : at + 2]
    plain, ours = run_cli(args), run_cli([*args, "--decoding", "beam"])
    assert hypothesis_lines(ours.stdout) == hypothesis_lines(plain.stdout)


@pytest.mark.parametrize("method", ["beam", "specdec", "auto"])
def test_alignments_of_several_beams_are_fairseqs(corpus, tiny_verifier, method):
    more = "--beam", 3, "--nbest", 3, "--print-alignment"
    args = generate_args(corpus.data_dir, tiny_verifier, *more)
    plain, ours = run_cli(args), run_cli([*args, "--decoding", method])
    assert hypothesis_lines(ours.stdout) == hypothesis_lines(plain.stdout)
    aligned = [
        [line for line in each.stdout.splitlines() if line.startswith("A-")]
        for each in (plain, ours)
    ]
    assert aligned[0] == aligned[1] and len(aligned[0]) == 3 * 21
    assert "decoding.generator:21 sentences" in ours.stderr


@pytest.mark.parametrize("method", ["beam", "auto"])
def test_ngrams_are_blocked_beside_alignments(corpus, tiny_verifier, method):
    """In both, which fairseq's own search does with its CUDA extension alone."""
    more = [*BEAMS, "--decoding", method, "--no-repeat-ngram-size", 2]
    args = generate_args(corpus.data_dir, tiny_verifier, *more)
    blocked, aligned = run_cli(args), run_cli([*args, "--print-alignment"])
    assert hypothesis_lines(aligned.stdout) == hypothesis_lines(blocked.stdout)
    for _, _, text in hypothesis_lines(aligned.stdout):
        pairs = [*zip(text.split(), text.split()[1:], strict=False)]
        assert len(pairs) == len(set(pairs))


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--nbest", 3, "--beam", 2], "--nbest 3 with --beam 2: a search finds as many"),
        (["--beam", 0], "--beam 0: give 1 or more."),
        (["--beam", 500], "Give --beam "),
        (["--sampling"], "--sampling cannot be kept with --decoding beam"),
        (["--diverse-beam-groups", 2, "--beam", 5], "--diverse-beam-groups 2 cannot share --bea"),
        (["--diversity-rate", 1, "--beam", 20], "--beam 20: this search compares 40 symbols, and"),
        (["--lm-weight", 0.5], "--lm-weight 0.5 would have no effect without a language model"),
        (["--certified-projection"], "--certified-projection would have no effect"),
    ],
)
def test_refusals(corpus, tiny_verifier, more, sentence):
    args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "beam", *more)
    done = run_cli(args, check=False)
    assert done.returncode == 1 and sentence in done.stderr
    assert "Traceback" not in done.stderr


DIVERSE = [["--diverse-beam-groups", 2, "--diverse-beam-strength", 1.5], ["--diversity-rate", 0.8]]


@pytest.mark.parametrize("flags", DIVERSE)
@pytest.mark.parametrize("method", ["beam", "auto"])
def test_diverse_lists(corpus, tiny_verifier, flags, method):
    """They differ from those of plain beam search."""
    args = generate_args(corpus.data_dir, tiny_verifier, *BEAMS, "--batch-size", 4)
    plain, theirs = (run_cli([*args, *more]).stdout for more in ([], flags))
    ours = run_cli([*args, *flags, "--decoding", method]).stdout
    assert hypothesis_lines(ours) == hypothesis_lines(theirs) != hypothesis_lines(plain)
    assert len(hypothesis_lines(ours)) == 4 * 21


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("method", ["beam", "auto"])
def test_phrases_follow_a_line(corpus, tiny_verifier, order, method):
    """Behind tabs. An empty one asks for nothing; fairseq fails there."""
    lines = "one two\tdos uno\t\tseis\nthree\t\t\nnine and two\nminus one\tmenos cinco\n"
    args = ["fairseq-interactive", *generate_args(corpus.data_dir, tiny_verifier)[1:]]
    args += ["--beam", 6, "--constraints", order, "--buffer-size", 3, "--batch-size", 2]
    theirs = run_cli(args, input=lines).stdout
    ours = run_cli([*args, "--decoding", method], input=lines).stdout
    kept = [
        [line.split("\t") for line in out.splitlines() if line[:2] in ("C-", "D-")]
        for out in (ours, theirs)
    ]
    assert [(line[0], line[-1]) for line in kept[0]] == [(line[0], line[-1]) for line in kept[1]]
    texts = {line[0]: line[-1] for line in kept[0] if line[0][0] == "D"}
    assert "dos uno" in texts["D-0"] and "seis" in texts["D-0"] and "menos cinco" in texts["D-3"]
    assert [line[1] for line in kept[0] if line[0][0] == "C"] == ["dos uno", "seis", "menos cinco"]


def test_unknown_words_of_phrases(corpus, tiny_verifier):
    args = ["fairseq-interactive", *generate_args(corpus.data_dir, tiny_verifier)[1:]]
    args += ["--constraints", "--decoding", "auto", "--buffer-size", 2]
    done = run_cli(args, input="one\ntwo\ndos\nthree\tqqq\n")
    assert "line 4: a phrase of --constraints has symbols that are unknown" in done.stderr
    assert done.stderr.count("unknown to the target dictionary") == 1
    assert "<unk>" in done.stdout


@pytest.mark.parametrize("phrases", ["tres </s>", "<pad> tres", "<s> cinco\tseis", "<s> tres"])
def test_symbols_that_no_output_contains(corpus, tiny_verifier, phrases):
    """fairseq takes the first one for a separator, and drops what follows."""
    args = ["fairseq-interactive", *generate_args(corpus.data_dir, tiny_verifier)[1:]]
    args += ["--constraints", "--decoding", "auto", "--buffer-size", 2]
    done = run_cli(args, input=f"one\tuno\ntwo\t{phrases}\n", check=False)
    assert "line 2: a phrase of --constraints has a symbol that no output contains" in done.stderr
    assert done.returncode == 1 and "Traceback" not in done.stderr


def test_python_and_hub(corpus, tiny_verifier):
    lines = ["one two three", "nine and two"]
    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es"
    )
    plain, ours = session.translator(None, beam=3), session.translator("beam", beam=3)
    for batch in session.batches(session.dataset(lines), 2):
        for mine, theirs in zip(ours.decode(batch), plain.decode(batch), strict=True):
            assert [each["tokens"].tolist() for each in mine] == [
                each["tokens"].tolist() for each in theirs
            ]
    folder, name = Path(tiny_verifier).parent, Path(tiny_verifier).name
    given = str(folder), name, corpus.data_dir
    hub = TransformerModel.from_pretrained(*given, task="specdec_translation", decoding="beam")
    assert hub.translate(lines) == TransformerModel.from_pretrained(*given).translate(lines)
