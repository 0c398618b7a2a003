"""A method of one's own is one file: fairseq-generate runs it, specdec-bench times it."""

import textwrap

import pytest

from specdec_plugin.methods.registry import Method, methods, register_method
from tests.support.command_lines import generate_args, hypotheses, run_cli

#: The whole method: it drafts the newest token again, k times.
METHOD = """
from dataclasses import dataclass

import torch

from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.state import Draft
from specdec_plugin.methods.options import BlockSizeOptions, Range, VerifierOptions, option
from specdec_plugin.methods.registry import Method, register_method


class Repeater(Drafter):
    def __init__(self, count, skipped):
        self.count, self.skipped, self.accepted = count, skipped, 0

    def propose(self, rows):
        return Draft(rows.last().repeat(1, self.count), torch.full_like(rows.lengths, self.count))

    def accept(self, rows, outcome):
        self.accepted += sum(outcome.kept)


@dataclass
class RepeatOptions(VerifierOptions, BlockSizeOptions):
    repeat_first: int = option(0, "an option of this method alone", Range(0, "give 0 or more"))


@register_method("repeat-last")
class RepeatLast(Method):
    summary = "drafts the newest token again, k times"
    Config = RepeatOptions

    @classmethod
    def build(cls, setup):
        return Repeater(setup.cfg.block_size or 2, setup.cfg.repeat_first)
"""


@pytest.fixture
def user_dir(tmp_path):
    folder = tmp_path / "repeat_last"
    folder.mkdir()
    (folder / "__init__.py").write_text(textwrap.dedent(METHOD), "utf-8")
    return folder


def replaced(args, folder):
    """The command line with another user-dir."""
    place = args.index("--user-dir") + 1
    return [*args[:place], str(folder), *args[place + 1 :]]


def test_generate_runs_it_and_is_lossless(user_dir, corpus, tiny_verifier):
    plain = run_cli(generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy"))
    more = ["--decoding", "repeat-last", "--block-size", 3, "--repeat-first", 1]
    more += ["--batch-size", 1]  # drafts are tried after the first sentence
    own = replaced(generate_args(corpus.data_dir, tiny_verifier, *more), user_dir)
    found = run_cli(own)
    assert hypotheses(found.stdout) == hypotheses(plain.stdout)
    assert "accepted by position in the block: 1:" in found.stderr + found.stdout


def test_its_options_are_checked_like_others(user_dir, corpus, tiny_verifier):
    more = ["--decoding", "repeat-last", "--repeat-first", -1]
    own = replaced(generate_args(corpus.data_dir, tiny_verifier, *more), user_dir)
    done = run_cli(own, check=False)
    assert done.returncode == 1 and "--repeat-first -1: give 0 or more." in done.stderr
    more = ["--decoding", "repeat-last", "--top-beta", 2]
    own = replaced(generate_args(corpus.data_dir, tiny_verifier, *more), user_dir)
    done = run_cli(own, check=False)
    assert done.returncode == 1 and "--top-beta 2 would have no effect" in done.stderr


def test_bench_times_it(user_dir, corpus, tiny_verifier, tmp_path):
    args = ["specdec-bench", corpus.data_dir, "-s", "en", "-t", "es", "--path", tiny_verifier]
    args += ["--user-dir", user_dir, "--methods", "greedy,repeat-last", "--max-len-b", 20]
    args += [
        "--sentences",
        4,
        "--threads",
        1,
        "--post-process",
        "none",
        "--output",
        tmp_path / "out",
    ]
    run_cli(args)
    table = (tmp_path / "out" / "results.md").read_text("utf-8")
    assert "repeat-last" in table


def test_another_declaration_of_a_flag_is_an_error(user_dir, corpus, tiny_verifier):
    text = METHOD.replace("repeat_first: int", "top_beta: int")
    (user_dir / "__init__.py").write_text(textwrap.dedent(text), "utf-8")
    own = replaced(generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy"), user_dir)
    done = run_cli(own, check=False)
    assert done.returncode != 0
    assert "declares --top-beta differently than another method" in done.stderr


def test_a_method_that_would_do_nothing_is_refused():
    """Such as one whose build() is misspelt, which would decode greedily under another name."""

    class Misspelt(Method):
        summary = "drafts nothing"

        @classmethod
        def built(cls, setup):
            raise AssertionError("nobody calls it")

    before = methods()
    with pytest.raises(ValueError, match=r"--decoding idle: Misspelt has no build\(\) and no loop"):
        register_method("idle")(Misspelt)
    assert methods() == before
