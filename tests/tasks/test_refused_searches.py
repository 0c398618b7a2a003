"""Options of a search that contradict each other are one sentence, not a traceback."""

import pytest

from tests.support.command_lines import TRACEBACK, generate_args, run_cli, train_args

SAMPLES = ["--decoding", "specdec", "--sampling"]
SPECULATIVE = ["--decoding", "specdec", "--beam"]


@pytest.mark.parametrize(
    "flags, sentence",
    [
        ([*SPECULATIVE, 2, "--nbest", 3], "--nbest 3 with --beam 2: a search finds as many"),
        (
            ["--decoding", "auto", "--nbest", 3],
            "--nbest 3 with --beam 1, the method's default: a search finds as many hypotheses as "
            "it has beams. Give --beam 3 or more",
        ),
        ([*SPECULATIVE, 32], "--beam 32: the target dictionary has 32 symbols, so that at most 31"),
        (
            [*SPECULATIVE, 2, "--top-beta", 3],
            "--top-beta 3 would have no effect in the beam search that --beam or another option of "
            "fairseq asks for, such as --match-source-len, --no-repeat-ngram-size or --lm-path: "
            "leave one of them out.",
        ),
        ([*SPECULATIVE, 2, "--draft-rows", 4], "--draft-rows 4 would have no effect in the beam"),
        (
            [*SPECULATIVE, 2, "--max-len-a", "nan"],
            "--max-len-a nan: give a finite number, up",
        ),
        ([*SAMPLES, "--top-beta", 3], "--top-beta 3 accepts tokens that were not drawn: leave one"),
        (
            [*SAMPLES, "--sampling-topk", 5, "--sampling-topp", 0.5],
            "--sampling-topk 5 and --sampling-topp 0.5 both tell which symbols are drawn from",
        ),
        (
            [*SAMPLES, "--beam", 4, "--nbest", 3],
            "--nbest 3 beside --beam 4: both are the number of samples.",
        ),
        (
            ["--decoding", "greedy", "--min-len", 2000, "--max-len-b", 3000],
            "--min-len 2000 is more than the length limit 1023. Lower it: a model has no more",
        ),
        (
            ["--decoding", "beam", "--match-source-len", "--min-len", 30],
            "Lower it, or leave out --match-source-len.",
        ),
        (
            ["--decoding", "beam", "--sampling"],
            "--sampling cannot be kept with --decoding beam: the method draws no samples; leave",
        ),
    ],
)
def test_one_sentence(corpus, tiny_verifier, flags, sentence):
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *flags), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    (told,) = [line for line in done.stderr.splitlines() if sentence in line]
    assert told.endswith(".")


@pytest.mark.parametrize("more", [[], ["--decoding", "greedy"]])
def test_alignments_need_attention_to_the_source(corpus, tmp_path, more):
    run_cli(train_args(corpus.data_dir, tmp_path, "--no-cross-attention", "--max-update", 1))
    model = tmp_path / "checkpoint_last.pt"
    done = run_cli(generate_args(corpus.data_dir, model, "--print-alignment", *more), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = done.stderr.strip().splitlines()[-1]
    assert told.startswith("--print-alignment shows attention to the source") and told[-1] == "."
