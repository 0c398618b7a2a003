"""The plugin's tasks for mBART and for many languages, with tiny models trained under each."""

import contextlib
import functools
import io
import logging
import re
import shutil
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import SampledMultiDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq_cli import generate, interactive

from specdec_plugin.errors import PluginError
from tests.support import language_models, tiny
from tests.support.command_lines import PLUGIN, TRACEBACK, hypotheses, run_cli, scored, train_args
from tests.support.files import some
from tests.support.multilingual import SETTINGS, trained

pytestmark = [
    pytest.mark.filterwarnings("ignore:\\s*'config' is validated"),  # of hydra, in our name
    pytest.mark.filterwarnings("ignore:.*'pin_memory' argument"),
]


#: With what makes them draft in batches too.
METHODS = {
    "greedy": [],
    "specdec": ["--draft-rows", "0"],
    "gs-jacobi": ["--draft-rows", "0", "--jacobi-window", "sliding"],
    "hybrid-jacobi": ["--hybrid-length", "6"],
    "jacobi": ["--jacobi-init", "source", "--jacobi-pool", "0"],
}


@pytest.fixture(params=list(SETTINGS))
def name(request):
    return request.param


@pytest.fixture
def setting(name):
    return SETTINGS[name]


@pytest.fixture
def verifier(corpus, name, tmp_path_factory):
    return trained(corpus, name, tmp_path_factory)


def parsed(args):
    """The options of a command line."""
    parser = options.get_generation_parser(interactive=args[0] == "fairseq-interactive")
    return options.parse_args_and_arch(parser, args[1:])


def configured(args):
    """fairseq's configuration for a command line, which takes it 0.2 s to make."""
    return convert_namespace_to_omegaconf(parsed(args))


def set_up(args):
    """The task of a command line with its test set."""
    task = tasks.setup_task(configured(args).task)
    task.load_dataset("test")
    return task


def printed(args):
    """What fairseq's programs print for a command line, without the cost of a new process."""
    main = {"fairseq-generate": generate.main, "fairseq-interactive": interactive.main}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main[args[0]](configured(args))
    return out.getvalue()


@functools.cache
def printed_once(*args):
    """The same, of a command line that several tests ask for."""
    return printed(args)


def batches(task, dataset, **more):
    """As fairseq's programs ask for them."""
    iterator = task.get_batch_iterator(dataset, required_batch_size_multiple=8, **more)
    return list(iterator.next_epoch_itr(shuffle=False))


class TestSameAsFairseq:
    """Tokens, scores and printed lines."""

    #: Batch size, and options of the search.
    SEARCH = [
        (1, []),
        (5, []),
        (5, ["--max-len-a", "0.5", "--max-len-b", "2", "--unkpen", "-3", "--lenpen", "0.5"]),
        (5, ["--prefix-size", "3", "--min-len", "6", "--temperature", "0.7", "--unnormalized"]),
    ]

    def reference(self, setting, task, models, asked):
        """fairseq's generator, called directly: its own task for mBART does not run."""
        names = "max_len_a max_len_b min_len temperature".split()
        named = {name: getattr(asked, name) for name in names}
        return SequenceGenerator(
            models,
            task.target_dictionary,
            beam_size=1,
            **named,
            normalize_scores=not asked.unnormalized,
            len_penalty=asked.lenpen,
            unk_penalty=asked.unkpen,
            eos=task.target_dictionary.index("[es]") if "bart" in setting.task else None,
        )

    @pytest.mark.parametrize("method", METHODS)
    def test_tokens_and_scores(self, corpus, setting, verifier, method):
        args = setting.generate(corpus, verifier, "--decoding", method, *METHODS[method])
        task = set_up(args)
        models, _ = checkpoint_utils.load_model_ensemble([verifier], task=task)
        for size, search in self.SEARCH:
            asked = parsed([*args, *search])
            ours = task.build_generator(models, asked)
            theirs = self.reference(setting, task, models, asked)
            assert ours.eos == theirs.eos
            said = []
            for sample in batches(task, task.dataset("test"), max_sentences=size):
                prefix = sample["target"][:, : asked.prefix_size] if asked.prefix_size else None
                mine, expected = (
                    task.inference_step(each, models, sample, prefix_tokens=prefix)
                    for each in (ours, theirs)
                )
                for (own,), (wanted,) in zip(mine, expected, strict=True):
                    said.append(tuple(own["tokens"].tolist()))
                    assert said[-1] == tuple(wanted["tokens"].tolist())
                    for scores in ("positional_scores", "score"):
                        assert torch.allclose(own[scores], wanted[scores], atol=1e-4)
            assert len(said) == 21 and len(set(said)) > 8

    @pytest.mark.parametrize("method", METHODS)
    def test_printed_lines(self, corpus, name, setting, verifier, method):
        """Of every sentence, with fairseq's default ``--required-batch-size-multiple``, 8."""
        args = setting.generate(corpus, verifier, "--batch-size", 5)
        found = scored(printed([*args, "--decoding", method, *METHODS[method]]))
        if name == "mbart":  # fairseq's own generator in our task
            expected = scored(printed_once(*args))
        else:
            args = setting.generate(corpus, verifier, "--batch-size", 5, prefix="")
            expected = scored(printed_once(*args, "--required-batch-size-multiple", "1"))
        assert found.keys() == expected.keys() and len(found) == 21
        for key, (score, text) in expected.items():
            assert found[key][1] == text
            assert abs(found[key][0] - score) < 1e-4
            assert set(text.split()).isdisjoint({"[es]", "__es__", "</s>"})

    def test_scoring_references(self, corpus, name, setting, verifier):
        more = ["--score-reference", "--batch-size", "5"]
        found = scored(printed(setting.generate(corpus, verifier, *more, "--decoding", "greedy")))
        assert len(found) == 21
        if name != "mbart":
            more += ["--required-batch-size-multiple", "1"]
            expected = scored(printed(setting.generate(corpus, verifier, *more, prefix="")))
            assert found.keys() == expected.keys()
            for key, (score, text) in expected.items():
                assert found[key] == (pytest.approx(score, abs=1e-4), text)


class TestEveryLine:
    """No sentence is lost, and what is cut keeps its language."""

    LIMITS = (6, 6)

    def cut(self, name, task, sample):
        """Check a batch's sources; which of them are as long as the limit."""
        source, symbol = sample["net_input"]["src_tokens"], task.source_dictionary.index
        assert source.size(1) <= self.LIMITS[0]
        if name == "mbart":
            assert source[:, -2:].unique(dim=0).tolist() == [[symbol("</s>"), symbol("[en]")]]
        else:
            last = symbol("__en__" if name == "replacing" else "</s>")
            assert source[:, -1].unique().tolist() == [last]
        if name == "prefix":
            first = source.gather(1, source.eq(task.source_dictionary.pad()).sum(1, keepdim=True))
            assert first.unique().tolist() == [symbol("__en__")]

    @pytest.mark.parametrize("references", [True, False])
    @pytest.mark.parametrize("skip", [True, False])
    def test_batches(self, corpus, name, setting, references, skip, tmp_path, caplog):
        args = setting.generate(corpus, "none.pt")
        if not references:
            shutil.copytree(corpus.data_dir, tmp_path / "bin")
            for file in some((tmp_path / "bin").glob("test.en-es.es.*")):
                file.unlink()
            args[1] = str(tmp_path / "bin")
        task = set_up(args)
        more = dict(max_positions=self.LIMITS, ignore_invalid_inputs=skip, max_tokens=20)
        with caplog.at_level(logging.WARNING):
            found = batches(task, task.dataset("test"), max_sentences=5, **more)
        assert sorted(line for batch in found for line in batch["id"].tolist()) == list(range(21))
        for batch in found:
            self.cut(name, task, batch)
        added = 1 if name == "replacing" else 2  # the end of sentence and the language
        lengths = [len(line.split()) + added for line in corpus.lines("test", "en")]
        long = [str(line + 1) for line, length in enumerate(lengths) if length > self.LIMITS[0]]
        assert long and re.findall(r"line (\d+): the source", caplog.text) == long

    def test_where_losses_are_computed_nothing_too_long_is_read(self, corpus, setting):
        task = set_up(setting.generate(corpus, "none.pt"))
        task.build_criterion(Namespace(_name="cross_entropy", sentence_avg=False))
        more = dict(max_positions=self.LIMITS, max_sentences=5)
        found = batches(task, task.dataset("test"), ignore_invalid_inputs=True, **more)
        assert 0 < sum(batch["nsentences"] for batch in found) < 21
        with pytest.raises(Exception, match=r"[Ss]ize of sample"):
            batches(task, task.dataset("test"), disable_iterator_cache=True, **more)

    def test_several_data_sets_at_once(self, corpus):
        """As ``--extra-data`` gives where the training set is decoded."""
        task = set_up(SETTINGS["replacing"].generate(corpus, "none.pt"))
        parts = task.dataset("test").datasets * 2
        dataset = SampledMultiDataset(OrderedDict(enumerate(parts)))
        assert dataset.sizes.max() > self.LIMITS[0]
        found = batches(task, dataset, max_positions=self.LIMITS, max_tokens=20)
        assert sum(batch["nsentences"] for batch in found) == 2 * 21
        for batch in found:
            self.cut("replacing", task, batch)

    @pytest.mark.parametrize("method", METHODS)
    def test_interactive(self, corpus, name, setting, verifier, method, tmp_path_factory, caplog):
        """Empty, blank, too long and unknown lines, one at the limit, and ordinary ones."""
        fits = " ".join(["one"] * (7 if name == "replacing" else 6))
        lines = ["one two", "", "   ", fits, fits + " two", "qqq zzz", "nine minus two"]
        path = tmp_path_factory.getbasetemp() / f"{name}.lines"
        path.write_text("\n".join(lines) + "\n", "utf-8")
        args = setting.generate(corpus, verifier, "--buffer-size", "4", "--batch-size", "3")
        args = ["fairseq-interactive", *args[1:], "--input", str(path)]
        args += ["--max-source-positions", "8"]
        expected = hypotheses(printed_once(*args))
        with caplog.at_level(logging.WARNING):
            found = hypotheses(printed([*args, "--decoding", method, *METHODS[method]]))
        assert len(found) == len(lines) and found == expected
        assert set(re.findall(r"line (\d+): the source has (\d+)", caplog.text)) == {("5", "9")}


def test_phrases_that_outputs_must_contain(corpus, setting, verifier, tmp_path):
    """Behind the symbol of a language; fairseq's own tasks for many languages take no phrases."""
    path = tmp_path / "lines"
    path.write_text("one two\tseis siete\nnine\nthree\tocho\tdos\n", "utf-8")
    args = ["fairseq-interactive", *setting.generate(corpus, verifier)[1:], "--input", str(path)]
    args += ["--buffer-size", "3", "--batch-size", "3", "--constraints", "--beam", "5"]
    first, second, third = hypotheses(printed([*args, "--decoding", "auto"]))
    assert "seis siete" in first and "ocho" in third and "dos" in third
    plain = [*args[: args.index("--constraints")], "--beam", "5", "--decoding", "auto"]
    path.write_text("one two\nnine\nthree\n", "utf-8")
    assert hypotheses(printed(plain))[1] == second


@pytest.mark.parametrize("name", ["prefix", "replacing"])
def test_the_hub_asks_for_a_direction(corpus, name, setting, verifier):
    """A checkpoint of many directions does not tell which one is meant."""
    task = set_up(setting.generate(corpus, verifier))
    task.args.source_lang = task.args.target_lang = None
    spec = task.args.langtoks["main"]
    task.args.langtoks["main"] = (None, None)  # many languages into one need no symbol
    assert task.build_generator([tiny.model()], Namespace(beam=1)) is not None
    task.args.langtoks["main"] = spec
    with pytest.raises(PluginError, match=r"^The symbol of a language is missing, which --"):
        task.build_generator([], Namespace(beam=1))


def test_a_language_model(corpus, setting, verifier, tmp_path):
    """fairseq's task of mBART leaves it out without a word, and fairseq-interactive always does."""
    path = tmp_path / "lines"
    path.write_text("one two\nnine\nthree\n", "utf-8")
    args = setting.generate(corpus, verifier, "--beam", "3")
    beside = language_models.save(tmp_path / "lm.pt", set_up(args).target_dictionary)
    args += ["--input", str(path), "--buffer-size", "3", "--batch-size", "3"]
    args[0], more = "fairseq-interactive", ["--lm-path", beside, "--lm-weight", "0.6"]
    plain, ours = (printed([*args, *each, "--decoding", "auto"]) for each in ([], more))
    assert hypotheses(ours) != hypotheses(plain)
    if setting.task == "translation_from_pretrained_bart":
        with pytest.raises(PluginError, match=r"^--lm-path with this --task needs our search: add"):
            printed([*args, *more])
    else:
        assert hypotheses(printed([*args, *more])) == hypotheses(ours)


@pytest.mark.parametrize("shards", [2, 4])
def test_shards_are_every_line_once(corpus, setting, verifier, shards):
    """With fairseq's ``--required-batch-size-multiple``, 8, which would drop the last batch."""
    args = setting.generate(corpus, verifier, "--decoding", "greedy", "--batch-size", "4")
    found = {}
    for shard in range(shards):
        more = ["--num-shards", str(shards), "--shard-id", str(shard)]
        part = scored(printed([*args, *more]))
        assert part and found.keys().isdisjoint(part)
        found.update(part)
    assert found == scored(printed(args)) and len(found) == 21


def test_program(corpus, tmp_path_factory):
    """In a process of its own, as users run it."""
    verifier = trained(corpus, "mbart", tmp_path_factory)
    args = SETTINGS["mbart"].generate(corpus, verifier, "--decoding", "specdec")
    text = "\n".join(corpus.lines("test", "en")) + "\n"
    done = run_cli(["fairseq-interactive", *args[1:]], input=text, fresh=True)
    assert hypotheses(done.stdout) == hypotheses(printed(args))


@pytest.mark.parametrize("flags", [[], ["--decoding", "greedy"]])
def test_language_symbols_are_kept_where_asked(corpus, flags, tmp_path_factory):
    verifier = trained(corpus, "prefix", tmp_path_factory)
    args = SETTINGS["prefix"].generate(corpus, verifier, *flags)
    kept = hypotheses(printed([*args, "--keep-inference-langtok"]))
    assert kept == [f"__es__ {text}".strip() for text in hypotheses(printed(args))]


def test_hub(corpus, setting, verifier):
    path = Path(verifier)
    said = []
    for flags in ({"decoding": "greedy"}, {"decoding": "specdec"}):
        hub = TransformerModel.from_pretrained(
            str(path.parent), path.name, corpus.data_dir, source_lang="en", target_lang="es",
            task=f"specdec_{setting.task}", **flags,
        )  # fmt: skip
        said.append(hub.translate(["one two three", "nine and two"], beam=1))
    assert said[0] == said[1] and all(said[0])


class TestBadInput:
    """One sentence that says what is wrong and what to do."""

    def test_a_drafter_of_another_dictionary(self, corpus, setting, verifier, tiny_drafter):
        args = setting.generate(corpus, verifier, "--decoding", "specdec")
        cfg = configured([*args, "--drafter-path", tiny_drafter])
        task = tasks.setup_task(cfg.task)
        models, _ = checkpoint_utils.load_model_ensemble([verifier], task=task)
        with pytest.raises(PluginError, match=r"has .* symbols.*the task's own.*Use"):
            task.build_generator(models, cfg.generation)

    @pytest.mark.parametrize("langs, words", [(None, "--langs is missing"), ("en,fr", "lacks es")])
    def test_mbart_needs_its_languages(self, corpus, langs, words):
        args = SETTINGS["mbart"].generate(corpus, "none.pt")
        index = args.index("--langs")
        args[index : index + 2] = [] if langs is None else ["--langs", langs]
        with pytest.raises(PluginError, match=f"{words}.*give all languages"):
            set_up(args)

    def test_phrases_without_decoding(self, corpus, setting, verifier, tmp_path):
        """fairseq's own tasks raise an error without a cure."""
        path = tmp_path / "lines"
        path.write_text("one two\tseis\n", "utf-8")
        args = setting.generate(corpus, verifier, "--constraints", "--input", str(path))
        args[0] = "fairseq-interactive"
        with pytest.raises(PluginError, match=r"^--constraints with this --task need our se"):
            printed(args)

    def test_flags_without_decoding(self, corpus, setting, verifier):
        with pytest.raises(PluginError, match="--block-size 3 is given without --decoding"):
            set_up(setting.generate(corpus, verifier, "--block-size", "3"))


@pytest.mark.parametrize("task", ["translation", "translation_multi_simple_epoch"])
def test_models_of_each_pair_are_refused(corpus, tmp_path, task):
    """fairseq has an assertion without words, in a traceback."""
    more = ["--task", f"specdec_{task}", "--arch", "multilingual_transformer_iwslt_de_en"]
    more += ["--lang-pairs", "en-es"] if task != "translation" else []
    done = run_cli(train_args(corpus.data_dir, tmp_path, *more), check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    told = done.stderr.strip().splitlines()[-1]
    assert told.startswith("The architecture multilingual_transformer_iwslt_de_en has an encoder")
    assert "use fairseq's --task multilingual_translation" in told


@pytest.mark.parametrize(
    "more, told",
    [
        (["--lang-pairs", "en-es"], "decodes one direction: give --source-lang and --target-lang."),
        (["-s", "en", "-t", "es"], "--lang-pairs is required"),
        (["-s", "en", "-t", "fr", "--lang-pairs", "en-es"], "that are not in the language dictio"),
    ],
)
def test_directions_that_are_missing_or_unknown(corpus, tiny_verifier, more, told):
    args = ["fairseq-generate", corpus.data_dir, "--path", tiny_verifier, "--user-dir", PLUGIN]
    args += ["--task", "specdec_translation_multi_simple_epoch", "--cpu", "--decoding", "auto"]
    done = run_cli([*args, *more], check=False)
    assert done.returncode == 1 and TRACEBACK not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("--task specdec_translation_multi_simple_epoch") and told in last
