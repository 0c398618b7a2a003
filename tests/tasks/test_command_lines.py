"""The plugin's task through fairseq's real command lines."""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from specdec_plugin.fairseq_compat.checkpoints import load_weights
from tests.support.command_lines import (
    PLUGIN,
    TRACEBACK,
    drafter_train_args,
    generate_args,
    hypotheses,
    run_cli,
    scored,
)


class Hostile:
    """An object whose unpickling makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def specdec(corpus, tiny_verifier, tiny_drafter, *more):
    flags = ["--decoding", "specdec", "--drafter-path", tiny_drafter]
    if "nat" not in more:
        flags += ["--draft-rows", 0]  # in batches too
    return generate_args(corpus.data_dir, tiny_verifier, *flags, *more)


@pytest.fixture(scope="module")
def plain(corpus, tiny_verifier):
    """fairseq's own greedy search on the test set, in batches of 5."""
    args = generate_args(corpus.data_dir, tiny_verifier, "--batch-size", 5)
    args[args.index("specdec_translation")] = "translation"
    return scored(run_cli([*args, "--required-batch-size-multiple", 1]).stdout)


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize(
    "method", [["greedy"], ["specdec", "self"], ["specdec"], ["specdec", "--top-beta", 1]]
)
def test_same_hypotheses_and_scores_as_fairseq(
    plain, corpus, tiny_verifier, tiny_drafter, method, batch_size
):
    more = ["--decoding", *(word for word in method if word != "self")]
    if method[0] == "specdec":
        more += ["--draft-rows", 0]
        more += [] if "self" in method else ["--drafter-path", tiny_drafter]
    more += ["--batch-size", batch_size]
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more))
    found = scored(done.stdout)
    assert found.keys() == plain.keys() and len(found) == 21
    for name, (score, text) in plain.items():
        assert found[name][1] == text
        assert abs(found[name][0] - score) < 1e-4


@pytest.mark.parametrize("decoding", ["greedy", "specdec"])
def test_references_are_scored_as_by_fairseq(corpus, tiny_verifier, tiny_drafter, decoding):
    flags = ["--score-reference", "--batch-size", 5]
    args = generate_args(corpus.data_dir, tiny_verifier, *flags)
    args[args.index("specdec_translation")] = "translation"
    plain = scored(run_cli([*args, "--required-batch-size-multiple", 1]).stdout)
    more = [*flags, "--decoding", decoding, "--unkpen", 3, "--max-len-b", 1, "--lenpen", 2]
    more += ["--drafter-path", tiny_drafter] if decoding == "specdec" else []
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more))
    found = scored(done.stdout)
    assert found.keys() == plain.keys() and len(found) == 21
    for name, (score, text) in plain.items():
        assert found[name] == (pytest.approx(score, abs=1e-4), text)
    assert re.search(r"21 targets, \d+ tokens$", done.stderr, re.MULTILINE), done.stderr
    assert "accepted tokens" not in done.stderr


def test_alignments_of_references_are_fairseqs(corpus, tiny_verifier):
    flags = ["--score-reference", "--batch-size", 5, "--print-alignment", "hard"]
    outs = [
        run_cli(generate_args(corpus.data_dir, tiny_verifier, *flags, *more)).stdout
        for more in ([], ["--decoding", "greedy"])
    ]
    aligned = [[line for line in out.splitlines() if line.startswith("A-")] for out in outs]
    assert aligned[0] == aligned[1] and len(aligned[0]) == 21


def test_statistics_steps_and_history(corpus, tiny_verifier, tiny_drafter):
    more = ["--print-step", "--retain-iter-history", "--batch-size", 4, "--draft-rows", 0]
    more += ["--draft-confidence", 1e-9]
    done = run_cli(specdec(corpus, tiny_verifier, tiny_drafter, *more))
    steps = {
        name: int(count)
        for name, count in re.findall(r"^I-(\d+)\t(\d+)$", done.stdout, re.MULTILINE)
    }
    assert len(steps) == 21
    drafts_and_outcomes = re.findall(r"^E-(\d+)_(\d+)\t", done.stdout, re.MULTILINE)
    assert len(drafts_and_outcomes) == 2 * sum(steps.values())
    summary = re.search(
        r"21 sentences, ([\d,]+) tokens, ([\d,]+) iterations: ([\d.]+) accepted", done.stderr
    )
    assert summary is not None, done.stderr
    assert int(summary[2].replace(",", "")) == sum(steps.values())
    assert float(summary[3]) > 1.0
    assert re.search(r"accepted by position in the block: 1:\d+% 2:\d+% 3:\d+% 4:\d+%", done.stderr)
    parts = re.search(
        r"encoder (\d+)%, drafter (\d+)%, verifier (\d+)%, projection (\d+)%, rest (\d+)%",
        done.stderr,
    )
    assert parts is not None and 97 <= sum(map(int, parts.groups())) <= 103


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_printed_alignments_are_fairseqs(corpus, tiny_verifier, kind):
    def printed(*more):
        args = generate_args(corpus.data_dir, tiny_verifier, "--print-alignment", kind, *more)
        lines = (line.split("\t") for line in run_cli(args).stdout.splitlines())
        return {line[0]: re.split("[ ,-]", line[1]) for line in lines if line[0].startswith("A-")}

    theirs = printed("--batch-size", 5)
    assert len(theirs) == 21 and all(numbers != [""] for numbers in theirs.values())
    for batch_size in (1, 5):
        ours = printed("--batch-size", batch_size, "--decoding", "jacobi", "--draft-rows", 0)
        if kind == "hard":
            assert ours == theirs
        else:  # printed with six decimals
            assert ours.keys() == theirs.keys()
            for name, weights in theirs.items():
                assert [*map(float, ours[name])] == pytest.approx([*map(float, weights)], abs=2e-6)


def test_relaxed_acceptance_accepts_more(corpus, tiny_verifier, tiny_drafter):
    def accepted(*more):
        done = run_cli(specdec(corpus, tiny_verifier, tiny_drafter, *more))
        assert len(hypotheses(done.stdout)) == 21
        found = re.search(r"([\d.]+) accepted tokens an iteration", done.stderr)
        return float(found[1])

    assert accepted("--top-beta", 20) > accepted()


def test_drafter_alone_and_ensembles(corpus, tiny_verifier, tiny_drafter):
    done = run_cli(specdec(corpus, tiny_verifier, tiny_drafter, "--decoding", "nat"))
    assert len(hypotheses(done.stdout)) == 21
    both = f"{tiny_verifier}:{tiny_verifier}"
    done = run_cli(specdec(corpus, both, tiny_drafter))
    alone = run_cli(generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy"))
    assert hypotheses(done.stdout) == hypotheses(alone.stdout)


SIZES = (1, 7, 8, 9, 21)


@pytest.fixture(scope="module")
def splits(corpus, tmp_path_factory):
    """Test sets of several sizes; each has one source over the limit of 12 tokens."""
    folder = tmp_path_factory.mktemp("sizes")
    for size in SIZES:
        for language in ("en", "es"):
            lines = (corpus.lines("test", language) + corpus.lines("valid", language))[:size]
            lines[size // 2] = " ".join(lines[size // 2].split() * 9)
            (folder / f"{size}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    dictionary = Path(corpus.data_dir) / "dict.en.txt"
    run_cli(
        ["fairseq-preprocess", "-s", "en", "-t", "es", "--srcdict", dictionary]
        + ["--joined-dictionary", "--destdir", folder / "bin", "--workers", 1]
        + ["--testpref", ",".join(str(folder / str(size)) for size in SIZES)]
    )
    return str(folder / "bin")


class TestEveryLine:
    """As many hypotheses as lines, with fairseq's default flags."""

    @pytest.mark.parametrize("index, size", list(enumerate(SIZES)))
    def test_sizes(self, splits, tiny_verifier, tiny_drafter, index, size):
        subset = f"test{index or ''}"
        done = run_cli(
            generate_args(splits, tiny_verifier, "--gen-subset", subset)
            + ["--decoding", "specdec", "--drafter-path", tiny_drafter]
            + ["--max-source-positions", "12", "--max-tokens", "60"]
        )
        assert len(hypotheses(done.stdout)) == size
        assert f"line {size // 2 + 1}: the source has" in done.stderr

    def test_without_decoding_nothing_is_lost_either(self, splits, tiny_verifier):
        done = run_cli(generate_args(splits, tiny_verifier, "--gen-subset", "test4"))
        assert len(hypotheses(done.stdout)) == 21

    @pytest.mark.parametrize("method", [None, "greedy", "specdec", "nat"])
    def test_interactive(self, corpus, tiny_verifier, tiny_drafter, method):
        """Empty, blank, too long and unknown lines, and an ordinary one."""
        lines = ["one two", "", "   ", "one " * 40, "qqq zzz", "nine minus two"]
        drafter = ["--drafter-path", tiny_drafter] if method in ("specdec", "nat") else []
        method = ["--decoding", method, *drafter] if method else []
        args = generate_args(corpus.data_dir, tiny_verifier, "--buffer-size", 6, *method)
        args[0] = "fairseq-interactive"
        done = run_cli([*args, "--max-source-positions", 12], input="\n".join(lines) + "\n")
        assert len(hypotheses(done.stdout)) == len(lines)
        assert "line 4: the source has" in done.stderr


@pytest.fixture(scope="module")
def other_drafter(tiny_drafter, tmp_path_factory):
    """A drafter of a dictionary of the same size with other symbols."""
    path = tmp_path_factory.mktemp("other") / "drafter.pt"
    state = load_weights(tiny_drafter)
    state["model"]["source_symbols"] += 1
    torch.save(state, path)
    return path


class TestBadInput:
    """One sentence that says what is wrong and what to do; no traceback."""

    def refused(self, args, *words, **environment):
        done = run_cli(args, check=False, **environment)
        assert done.returncode != 0
        assert TRACEBACK not in done.stderr
        last = done.stderr.strip().splitlines()[-1]
        for word in words:
            assert word in last, last
        assert "H-" not in done.stdout

    def test_no_drafter(self, corpus, tiny_verifier):
        args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "nat")
        self.refused(args, "--decoding nat needs a drafter", "--drafter-path")

    def test_no_drafter_and_no_kernels(self, corpus, tiny_verifier):
        args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "specdec")
        self.refused(args, "C++ compiler", "--drafter-path", env={"SPECDEC_NATIVE": "0"})

    def test_drafter_without_decoding(self, corpus, tiny_verifier, tiny_drafter):
        args = generate_args(corpus.data_dir, tiny_verifier, "--drafter-path", tiny_drafter)
        self.refused(args, "without --decoding", "--decoding specdec")

    def test_missing_drafter(self, corpus, tiny_verifier):
        args = specdec(corpus, tiny_verifier, "nowhere/drafter.pt")
        self.refused(args, "nowhere/drafter.pt", "not found")

    def test_drafter_of_another_dictionary(self, corpus, tiny_verifier, other_drafter):
        args = specdec(corpus, tiny_verifier, other_drafter)
        self.refused(args, str(other_drafter), "another source dictionary")

    def test_drafter_of_another_size(self, corpus, tiny_verifier, tiny_drafter, tmp_path):
        shutil.copytree(corpus.data_dir, tmp_path / "bin")
        for language in ("en", "es"):
            with open(tmp_path / "bin" / f"dict.{language}.txt", "a", encoding="utf-8") as file:
                file.write("new 1\n")
        args = specdec(corpus, tiny_verifier, tiny_drafter)
        args[1] = str(tmp_path / "bin")
        self.refused(args, "symbols", "dictionary")

    def test_missing_dictionary(self, corpus, tiny_verifier, tiny_drafter, tmp_path):
        args = specdec(corpus, tiny_verifier, tiny_drafter)
        args[1] = str(tmp_path)
        args += ["--source-lang", "en", "--target-lang", "es"]
        self.refused(args, str(tmp_path / "dict.en.txt"), "cannot be read", "--source-lang")

    def test_a_verifier_is_no_drafter(self, corpus, tiny_verifier):
        args = specdec(corpus, tiny_verifier, tiny_verifier)
        self.refused(args, "is not a drafter")

    @pytest.mark.parametrize("more", [[], ["--decoding", "greedy"], ["--decoding", "specdec"]])
    def test_a_drafter_is_no_verifier(self, corpus, tiny_drafter, more):
        args = generate_args(corpus.data_dir, tiny_drafter, *more)
        self.refused(args, "--path names a drafter", "as --drafter-path")

    @pytest.mark.parametrize(
        "flags, words",
        [
            (["--block-size", 9], ["--block-size 9", "trained with 4"]),
            (["--min-len", 30], ["--min-len 30", "length limit"]),
            (["--tolerance", 1], ["--tolerance 1", "add --top-beta"]),
            (["--decoding", "greedy"], ["would have no effect with --decoding greedy"]),
            (["--decoding", "nat", "--top-beta", 3], ["--top-beta 3", "with --decoding nat"]),
        ],
    )
    def test_flags(self, corpus, tiny_verifier, tiny_drafter, flags, words):
        self.refused(specdec(corpus, tiny_verifier, tiny_drafter, *flags), *words)

    def test_truncated(self, corpus, tiny_verifier, tiny_drafter, tmp_path):
        path = tmp_path / "half.pt"
        for whole, args in (
            (tiny_drafter, specdec(corpus, tiny_verifier, path)),
            (tiny_verifier, specdec(corpus, path, tiny_drafter)),
        ):
            content = Path(whole).read_bytes()
            path.write_bytes(content[: len(content) // 2])
            self.refused(args, str(path), "truncated")

    @pytest.mark.parametrize("name, size", [("bin", 30), ("bin", 0), ("idx", 40), ("idx", 5)])
    def test_truncated_data(self, corpus, tiny_verifier, tmp_path, name, size):
        data = tmp_path / "data"
        shutil.copytree(corpus.data_dir, data)
        path = data / f"test.en-es.es.{name}"
        path.write_bytes(path.read_bytes()[:size])
        self.refused(generate_args(data, tiny_verifier), f"{path} is damaged. Copy it again, or")

    def test_hostile_pickle(self, corpus, tiny_verifier, tiny_drafter, tmp_path):
        path, trace = tmp_path / "hostile.pt", tmp_path / "it-ran"
        torch.save({"model": {}, "args": Hostile(str(trace))}, path)
        for args in (specdec(corpus, tiny_verifier, path), specdec(corpus, path, tiny_drafter)):
            self.refused(args, str(path), "refused", "Nothing in it was run")
        assert not trace.exists()


def test_training_a_shared_drafter_needs_the_verifier(corpus, tmp_path):
    args = ["fairseq-train", corpus.data_dir, "--user-dir", PLUGIN, "--cpu", "--max-update", 1]
    args += ["--task", "block_nat_translation", "--arch", "block_nat", "--share-encoder"]
    args += ["--criterion", "glancing_block_loss", "--optimizer", "adam", "--max-tokens", 100]
    done = run_cli([*args, "--save-dir", tmp_path], check=False)
    assert done.returncode != 0 and TRACEBACK not in done.stderr
    assert "--verifier-path" in done.stderr.strip().splitlines()[-1]


def test_training_without_an_architecture(corpus, tmp_path):
    args = ["fairseq-train", corpus.data_dir, "--user-dir", PLUGIN, "--cpu", "--max-update", 1]
    args += ["--task", "block_nat_translation", "--save-dir", tmp_path, "--max-tokens", 100]
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = "--arch is missing. Give the options that specdec-init-drafter printed"
    assert done.stderr.strip().splitlines()[-1].startswith(told)


@pytest.mark.parametrize(
    "task", ["specdec_translation", "block_nat_translation", "blockwise_speech_to_text"]
)
@pytest.mark.parametrize("program", [["fairseq-train"], ["fairseq-validate", "--path", "m.pt"]])
def test_batches_need_a_size(corpus, task, program):
    """fairseq has an assertion, before it looks for anything."""
    args = [program[0], corpus.data_dir, "--user-dir", PLUGIN, "--task", task, *program[1:]]
    args += ["--arch", "transformer"] if program[0] == "fairseq-train" else []
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("Batches need a size: give --max-tokens")


def test_training_from_a_checkpoint_of_another_shape(corpus, tiny_verifier, tmp_path):
    init = tmp_path / "init.pt"
    run_cli(
        ["specdec-init-drafter", corpus.data_dir, "-s", "en", "-t", "es", "--share-encoder"]
        + ["--verifier", tiny_verifier, "--output", init, "--block-size", 6]
    )
    more = ["--finetune-from-model", init, "--max-update", 1]
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, *more)
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("The checkpoint to start from is of another shape than the options")
    assert "size mismatch for " in last and "specdec-init-drafter printed" in last


def test_the_loss_of_drafters_with_another_task(corpus, tmp_path):
    args = ["fairseq-train", corpus.data_dir, "--user-dir", PLUGIN, "--cpu", "--max-update", 1]
    args += ["--arch", "transformer", "--criterion", "glancing_block_loss", "--max-tokens", 100]
    done = run_cli([*args, "--save-dir", tmp_path], check=False)
    assert done.returncode != 0 and TRACEBACK not in done.stderr
    told = "add --arch block_nat --task block_nat_translation"
    assert told in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "more, told",
    [
        (["--criterion", "cross_entropy"], "trains by --criterion glancing_block_loss"),
        (["--left-pad-target"], "--left-pad-target cannot be kept"),
        (["--eval-bleu"], "--eval-bleu would decode with a drafter alone"),
        (["--no-cross-attention"], "leave --no-cross-attention out"),
    ],
)
def test_drafters_that_cannot_be_trained(corpus, tiny_verifier, tmp_path, more, told):
    args = drafter_train_args(corpus.data_dir, tmp_path, tiny_verifier, "--max-update", 1)
    if more[0] in args:
        args[args.index(more[0]) + 1] = more[1]
    else:
        args += more
    done = run_cli(args, check=False)
    assert done.returncode != 0 and TRACEBACK not in done.stderr
    assert told in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("task", ["specdec_translation", "blockwise_translation"])
@pytest.mark.parametrize(
    ("folder", "languages", "told"),
    [
        ("empty", ["-s", "en", "-t", "es"], "empty/dict.en.txt cannot be read"),
        ("empty", [], "empty tells the languages. Give --source-lang and --target-lang"),
        ("nowhere", [], "There is no data folder"),
    ],
)
def test_training_needs_dictionaries(task, folder, languages, told, tmp_path):
    (tmp_path / "empty").mkdir()
    args = ["fairseq-train", tmp_path / folder, "--user-dir", PLUGIN, "--cpu", "--max-update", 1]
    args += ["--task", task, "--arch", "transformer", "--max-tokens", 100, *languages]
    done = run_cli(args, check=False)
    assert done.returncode != 0 and TRACEBACK not in done.stderr
    assert told in done.stderr.strip().splitlines()[-1]
