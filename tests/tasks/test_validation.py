"""``--eval-bleu`` beside ``--decoding``: our search decodes the validations of a training."""

import importlib.util
import os
import re
from argparse import Namespace

import pytest
from fairseq.models.transformer import TransformerModel

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.options import with_own_options
from specdec_plugin.tasks.validation import LateGenerator, check_bleu
from tests.support.command_lines import (
    PLUGIN,
    TRACEBACK,
    generate_args,
    hypotheses,
    run_cli,
    train_args,
)

LISTS = '{"beam": 3, "max_len_a": 1.2, "max_len_b": 10}'


def training(corpus, folder, *more):
    """A training whose validations find BLEU: at the ends of epochs, and between them."""
    args = train_args(corpus.data_dir, folder, "--max-update", 90, *more)
    args.remove("--disable-validation")
    args += ["--eval-bleu", "--eval-tokenized-bleu", "--validate-interval-updates", "30"]
    return args


def scores(done):
    """BLEU of each validation."""
    lines = [line for line in done.stdout.splitlines() if "valid on 'valid' subset" in line]
    return [float(re.search(r"\| bleu ([\d.]+) ", line)[1]) for line in lines]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """The checkpoint of fairseq's own validations, and their BLEU, by ``--eval-bleu-args``."""
    found = {}
    for number, lists in enumerate((LISTS, "{}")):
        folder = tmp_path_factory.mktemp(f"trained{number}")
        done = run_cli(training(corpus, folder, "--eval-bleu-args", lists))
        found[lists] = str(folder / "checkpoint_last.pt"), scores(done)
    return found


@pytest.mark.parametrize("decoding, lists", [("beam", LISTS), ("auto", LISTS), ("beam", "{}")])
def test_each_validation_has_fairseqs_bleu(corpus, trained, tmp_path, decoding, lists):
    """The weights change between them; without a number of beams, fairseq has five."""
    more = ["--eval-bleu-args", lists, "--decoding", decoding]
    found = scores(run_cli(training(corpus, tmp_path, *more)))
    assert found == trained[lists][1]
    assert len(found) >= 3 and max(found) > 1


def test_contradictions_end_before_the_training(corpus, tmp_path):
    more = ["--eval-bleu-args", LISTS, "--decoding", "greedy"]
    done = run_cli(training(corpus, tmp_path, *more), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = "The search of --eval-bleu: beam=3 cannot be kept with decoding='greedy'"
    assert done.stderr.strip().splitlines()[-1].startswith(told)


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--eval-bleu-args", "{beam: 5}"], "--eval-bleu-args {beam: 5} is no object of JSON"),
        (["--eval-bleu-args", "[1]"], "--eval-bleu-args [1] is no object of JSON: give one such"),
        (["--eval-bleu-args", '{"beem": 3}'], "--eval-bleu-args has beem, which is no option of"),
        (
            ["--eval-bleu-args", '{"beam": "x"}'],
            "The search of --eval-bleu: beam='x': give a w",
        ),
        (
            ["--eval-bleu-args", '{"lenpen": "0.6"}'],
            "The search of --eval-bleu: lenpen='0.6': give a number.",
        ),
        (
            ["--eval-bleu-args", '{"temperature": 0}'],
            "The search of --eval-bleu: temperature=0: give more than 0",
        ),
        (["--eval-bleu-detok", "nothing"], "--eval-bleu-detok nothing is unknown: give one of"),
        (["--eval-bleu-detok-args", "x"], "--eval-bleu-detok-args x is no object of JSON"),
        (["--eval-bleu-remove-bpe", "no"], "--eval-bleu-remove-bpe no is unknown: give sentence"),
    ],
)
@pytest.mark.parametrize("task", ["specdec_translation", "blockwise_translation"])
def test_what_fairseq_cannot_do(corpus, tmp_path, task, more, sentence):
    """It ignores names of no option, and tells of the rest in a traceback."""
    args = [*training(corpus, tmp_path, *more), "--task", task]
    if task == "blockwise_translation":
        args += ["--arch", "blockwise_transformer", "--criterion", "blockwise_cross_entropy"]
    done = run_cli(args, check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(sentence)


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    given = Namespace(
        eval_bleu=True, eval_bleu_args="{}", eval_bleu_detok="moses", eval_bleu_detok_args="{}"
    )
    with pytest.raises(PluginError, match=r"^--eval-bleu-detok moses needs the package sacremoses"):
        check_bleu(given)


def test_fairseqs_five_beams_are_counted_on_where_none_are_given():
    given = Namespace(
        eval_bleu=True, eval_bleu_args='{"diverse_beam_groups": 5}', eval_bleu_detok="space",
        eval_bleu_detok_args="{}", eval_bleu_remove_bpe=None,
    )  # fmt: skip
    check_bleu(given)
    given.eval_bleu_args = '{"diverse_beam_groups": 2}'
    with pytest.raises(PluginError, match=r"^The search of --eval-bleu: diverse_beam_groups=2"):
        check_bleu(given)


@pytest.mark.parametrize("lists", [LISTS, "{}"])
def test_the_hub_loads_what_such_a_training_left(corpus, trained, lists):
    """It asks for BLEU, so that fairseq builds a search beside a model that has no weights yet."""
    hub = [
        TransformerModel.from_pretrained(
            *os.path.split(trained[lists][0]),
            data_name_or_path=corpus.data_dir,
            user_dir=PLUGIN,
            task="specdec_translation",
            decoding=decoding,
        )
        for decoding in (None, "auto", "greedy")
    ]
    lines = corpus.lines("test", "en")[:3]
    fairseqs, ours = (each.translate(lines, beam=3) for each in hub[:2])
    assert ours == fairseqs
    # The beams are those of validations, of which there are none here.
    assert hub[2].translate(lines, beam=1) == hub[0].translate(lines, beam=1)


def test_a_later_validation_names_the_option(corpus, trained):
    """fairseq-validate loads a model that others might decode with."""
    args = ["fairseq-validate", corpus.data_dir, "--user-dir", PLUGIN, "--path", trained[LISTS][0]]
    args += ["--task", "specdec_translation", "--batch-size", 8, "--cpu", "--eval-bleu"]
    args += ["--eval-bleu-args", LISTS, "--decoding"]
    done = run_cli([*args, "greedy"], check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = "The search of --eval-bleu: beam=3 cannot be kept with decoding='greedy'"
    assert done.stderr.strip().splitlines()[-1].startswith(told)
    assert " bleu " in run_cli([*args, "beam"]).stdout


def test_generate_with_an_option_of_the_training(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "auto")
    plain, beside = (run_cli([*args, *more]) for more in ([], ["--eval-bleu"]))
    assert hypotheses(beside.stdout) == hypotheses(plain.stdout)


@pytest.mark.parametrize("flag", ["--drafter-path", "--vocab-clusters"])
def test_files_are_missed_before_the_training(corpus, tmp_path, flag):
    more = ["--eval-bleu-args", '{"beam": 1}', "--decoding", "specdec", flag, "none.pt"]
    done = run_cli(training(corpus, tmp_path, *more), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = f"The search of --eval-bleu: {flag} none.pt is not there. Check the path."
    assert done.stderr.strip().splitlines()[-1] == told


def test_tokens_that_may_follow_are_kept(corpus, tiny_verifier):
    """A task of the user's own may build a search of its own beside the model."""
    session = specdec_plugin.load_session(
        tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es"
    )
    task, asked = with_own_options(session.task), []
    task.cfg.decoding, task._builds_model = "beam", True

    def allowed(number, tokens):
        asked.append(number)
        return [4, task.target_dictionary.eos()]

    given = Namespace(beam=2, max_len_b=5)
    late = task.build_generator(session.models, given, prefix_allowed_tokens_fn=allowed)
    task._builds_model = False
    (batch,) = session.batches(session.dataset(["one"]), 1)
    assert not asked and {*late.generate(session.models, batch)[0][0]["tokens"].tolist()} <= {2, 4}
    assert asked and late.eos == 2  # other attributes are those of the search


def test_a_search_is_built_once_and_late():
    built = []

    class Search:
        """Gives what it is given."""

        def generate(self, *args, **kwargs):
            return args, kwargs

    def build():
        built.append(Search())
        return built[-1]

    generator = LateGenerator(build)
    assert built == []
    for number in range(2):
        assert generator.generate(number, prefix_tokens=None) == (
            (number,),
            {"prefix_tokens": None},
        )
    assert len(built) == 1
