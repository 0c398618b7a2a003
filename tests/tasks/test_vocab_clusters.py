"""``--vocab-clusters`` through fairseq's own programs."""

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import generate

from specdec_plugin.errors import PluginError
from tests.support import made
from tests.support.command_lines import generate_args, hypotheses

pytestmark = [
    pytest.mark.filterwarnings("ignore:\\s*'config' is validated"),  # of hydra, in our name
    pytest.mark.filterwarnings("ignore:.*'pin_memory' argument"),
]


@pytest.fixture
def decode(corpus, tiny_verifier, capsys):
    """Hypotheses of fairseq-generate, without the cost of a new process."""

    def run(*more, checkpoint=tiny_verifier):
        args = generate_args(corpus.data_dir, checkpoint, "--batch-size", 5, *more)[1:]
        parsed = options.parse_args_and_arch(options.get_generation_parser(), args)
        capsys.readouterr()
        generate.main(convert_namespace_to_omegaconf(parsed))
        return hypotheses(capsys.readouterr().out)

    return run


@pytest.fixture
def some(corpus, tiny_verifier, tmp_path):
    return made.file_for(corpus, tiny_verifier, tmp_path / "some.pt", share=0.4)


METHODS = (
    [],
    ["--decoding", "greedy"],
    ["--decoding", "specdec", "--draft-rows", 0],
    ["--decoding", "hybrid-jacobi", "--draft-rows", 0],
    ["--decoding", "input-guided"],
)


def test_all_methods_and_fairseqs_own_search_say_the_same(decode, some):
    full = decode("--decoding", "greedy")
    found = [decode(*method, "--vocab-clusters", some) for method in METHODS]
    assert all(each == found[0] for each in found)
    assert len(full) == len(found[0]) and found[0] != full


def test_clusters_that_leave_nothing_out_change_nothing(decode, corpus, tiny_verifier, tmp_path):
    path = made.file_for(corpus, tiny_verifier, tmp_path / "all.pt", share=1.0)
    for flags in (["--beam", 3], ["--decoding", "greedy"]):
        assert decode(*flags, "--vocab-clusters", path) == decode(*flags)


def test_refusals(decode, some, corpus, tiny_blockwise, tiny_verifier):
    with pytest.raises(PluginError, match="references cannot be scored"):
        decode("--vocab-clusters", some, "--score-reference")
    with pytest.raises(PluginError, match="made for another checkpoint"):
        decode("--vocab-clusters", some, checkpoint=tiny_blockwise)
    with pytest.raises(PluginError, match="--path names 2"):
        decode("--vocab-clusters", some, checkpoint=f"{tiny_verifier}:{tiny_verifier}")
    with pytest.raises(PluginError, match="Cluster file not found"):
        decode("--vocab-clusters", some + "x", "--decoding", "greedy")
