"""``--sampling`` through fairseq's command lines."""

from pathlib import Path

import pytest

import specdec_plugin
from tests.support.command_lines import PLUGIN, generate_args, run_cli

SAMPLES = 3


def args_of(data_dir, model, *more):
    """fairseq-generate with samples; ``--beam`` is left out."""
    args = generate_args(data_dir, model, "--sampling", "--nbest", SAMPLES, "--seed", 3, *more)
    at = args.index("--beam")
    del args[at : at + 2]
    return args


def samples_of(printed, offset=0):
    """By sentence, scores to 1e-3 and texts of its samples as they were printed."""
    found = {}
    for line in printed.splitlines():
        if line.startswith("H-"):
            name, score, text = line.split("\t")
            found.setdefault(int(name[2:]) + offset, []).append((round(float(score), 3), text))
    return found


@pytest.fixture(scope="module")
def whole(corpus, tiny_verifier):
    args = args_of(corpus.data_dir, tiny_verifier, "--decoding", "greedy", "--batch-size", 8)
    return samples_of(run_cli(args).stdout)


def test_samples_are_printed_the_best_first(whole):
    assert [*sorted(whole)] == [*range(21)]
    for samples in whole.values():
        assert len(samples) == SAMPLES
        assert samples == sorted(samples, key=lambda each: -each[0])
    assert len({text for samples in whole.values() for _, text in samples}) > 40


@pytest.mark.parametrize("size", [1, 5, 30])
@pytest.mark.parametrize("method", ["greedy", "specdec", "drafter", "hybrid-jacobi"])
def test_they_depend_on_neither_batch_nor_drafter(
    corpus, tiny_verifier, tiny_drafter, whole, method, size
):
    more = ["--decoding", "specdec" if method == "drafter" else method, "--batch-size", size]
    more += [] if method == "greedy" else ["--draft-rows", 0]
    more += ["--drafter-path", tiny_drafter] if method == "drafter" else []
    found = run_cli(args_of(corpus.data_dir, tiny_verifier, *more))
    assert samples_of(found.stdout) == whole


def test_other_seeds_draw_other_samples(corpus, tiny_verifier, whole):
    args = args_of(corpus.data_dir, tiny_verifier, "--decoding", "greedy", "--batch-size", 8)
    args[args.index("--seed") + 1] = "4"
    assert samples_of(run_cli(args).stdout) != whole


@pytest.fixture(scope="module")
def parts(corpus, tmp_path_factory):
    """The test set in two, binarised: the folders and the lines before each."""
    folder = tmp_path_factory.mktemp("parts")
    made = []
    for number, (first, end) in enumerate([(0, 8), (8, 21)]):
        for language in ("en", "es"):
            lines = corpus.lines("test", language)[first:end]
            (folder / f"{number}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
        dictionary = Path(corpus.data_dir) / "dict.en.txt"
        run_cli(
            ["fairseq-preprocess", "-s", "en", "-t", "es", "--srcdict", dictionary]
            + ["--joined-dictionary", "--workers", 1, "--testpref", folder / str(number)]
            + ["--destdir", folder / f"bin{number}"]
        )
        made.append((folder / f"bin{number}", first))
    return made


def test_parts_of_a_corpus_draw_what_the_whole_draws(tiny_verifier, whole, parts):
    found = {}
    for folder, before in parts:
        more = ["--decoding", "specdec", "--draft-rows", 0, "--sentence-offset", before]
        found.update(samples_of(run_cli(args_of(folder, tiny_verifier, *more)).stdout, before))
    assert found == whole


def test_interactive_counts_across_buffers(corpus, tiny_verifier, whole):
    args = ["fairseq-interactive", corpus.data_dir, "-s", "en", "-t", "es", "--cpu", "--path"]
    args += [tiny_verifier, "--user-dir", PLUGIN, "--task", "specdec_translation"]
    args += ["--decoding", "greedy", "--sampling", "--nbest", SAMPLES, "--seed", 3]
    args += ["--max-len-b", 20, "--buffer-size", 4, "--batch-size", 3]
    lines = "".join(line + "\n" for line in corpus.lines("test", "en"))
    assert samples_of(run_cli(args, input=lines).stdout) == whole


def test_programs(corpus, tiny_verifier, whole):
    pair = {"source_lang": "en", "target_lang": "es"}
    session = specdec_plugin.load_session(tiny_verifier, corpus.data_dir, **pair)
    wanted = {"sampling": True, "beam": SAMPLES, "seed": 3, "max_len_b": 20}
    translator = session.translator("specdec", draft_rows=0, **wanted)
    lines = corpus.lines("test", "en")
    best = [each.pieces for each in translator.translate_pieces(lines, batch_size=4)]
    assert best == [whole[number][0][1] for number in range(21)]


def test_a_certificate_has_no_effect_and_says_so(corpus, tiny_verifier, whole):
    more = ["--decoding", "greedy", "--certified-projection"]
    done = run_cli(args_of(corpus.data_dir, tiny_verifier, *more))
    assert samples_of(done.stdout) == whole
    assert "has no effect here, because samples are drawn from all symbols" in done.stderr


def test_alignments_of_all_samples(corpus, tiny_verifier, whole):
    more = ["--decoding", "greedy", "--print-alignment"]
    done = run_cli(args_of(corpus.data_dir, tiny_verifier, *more))
    assert samples_of(done.stdout) == whole
    aligned = [line for line in done.stdout.splitlines() if line.startswith("A-")]
    assert len(aligned) == SAMPLES * 21
