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
    chosen = [
        [line for line in each.stdout.splitlines() if line[:2] in ("H-", "A-")]
        for each in (plain, ours)
    ]
    assert chosen[0] == chosen[1]
    assert "fairseq's own search decodes, because --print-alignment" in ours.stderr


@pytest.mark.parametrize("method", ["beam", "auto"])
def test_ngrams_are_blocked_beside_alignments(corpus, tiny_verifier, method):
    """By fairseq's own search, which blocks nothing without its CUDA extension."""
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
        (["--diverse-beam-groups", 2, "--beam", 4], "--diverse-beam-groups 2 cannot be kept"),
        (["--lm-path", "lm.pt"], "--lm-path cannot be kept"),
        (["--certified-projection"], "--certified-projection would have no effect"),
    ],
)
def test_refusals(corpus, tiny_verifier, more, sentence):
    args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "beam", *more)
    done = run_cli(args, check=False)
    assert done.returncode == 1 and sentence in done.stderr
    assert "Traceback" not in done.stderr


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
