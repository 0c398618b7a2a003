"""Drafters, heads, clusters, the bench and the page for mBART and for many languages."""

import json
import re

import pytest

import specdec_plugin
from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench import __main__ as bench
from specdec_plugin.lab.viz import __main__ as viz
from tests.support.command_lines import hypotheses, run_cli, scored
from tests.support.multilingual import SETTINGS, drafter_of, heads_of, trained
from tests.support.pages import data_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:\\s*'config' is validated"),  # of hydra, in our name
    pytest.mark.filterwarnings("ignore:.*'pin_memory' argument"),
]


@pytest.fixture(params=list(SETTINGS))
def name(request):
    return request.param


@pytest.fixture
def setting(name):
    return SETTINGS[name]


@pytest.fixture
def verifier(corpus, name, tmp_path_factory):
    return trained(corpus, name, tmp_path_factory)


@pytest.fixture
def drafter(corpus, name, tmp_path_factory):
    return drafter_of(corpus, name, tmp_path_factory)


@pytest.fixture
def heads(corpus, name, tmp_path_factory):
    return heads_of(corpus, name, tmp_path_factory)


@pytest.fixture
def drafting(drafter, heads):
    """The flags of each way to draft with what was trained."""
    shared = ["--draft-rows", "0"]
    return {
        "specdec": ["--decoding", "specdec", "--drafter-path", drafter, *shared],
        "blockwise": ["--decoding", "blockwise", "--drafter-path", heads, *shared],
    }


def by_fairseq(corpus, name, setting, verifier, *more):
    """Scored hypotheses of fairseq's own beam 1; its own task for mBART does not run."""
    prefix = "specdec_" if name == "mbart" else ""
    args = setting.generate(corpus, verifier, "--batch-size", 5, *more, prefix=prefix)
    return scored(run_cli([*args, "--required-batch-size-multiple", "1"]).stdout)


def accepted(done):
    return float(re.search(r"([\d.]+) accepted tokens an iteration", done.stderr)[1])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["specdec", "blockwise"])
def test_trained_drafts_are_lossless(corpus, name, setting, verifier, drafting, method, tmp_path):
    """By fairseq-generate and fairseq-interactive; most drafts begin as the verifier decodes."""
    expected = by_fairseq(corpus, name, setting, verifier)
    done = run_cli(setting.generate(corpus, verifier, "--batch-size", 5, *drafting[method]))
    found = scored(done.stdout)
    assert found.keys() == expected.keys() and len(found) == 21
    for key, (score, text) in expected.items():
        assert found[key][1] == text
        assert abs(found[key][0] - score) < 1e-4
    assert accepted(done) > 1.05

    lines = corpus.lines("test", "en")
    args = setting.generate(corpus, verifier, "--buffer-size", "8", *drafting[method])
    done = run_cli(["fairseq-interactive", *args[1:]], input="\n".join(lines) + "\n")
    assert hypotheses(done.stdout) == [text for _, (_, text) in sorted(expected.items())]


def program(main, corpus, setting, verifier, *more):
    """Run a program of the lab in this process."""
    fixed = [corpus.data_dir, *setting.flags, "--path", verifier, "--max-len-b", 20]
    main([*map(str, [*fixed, *more])])


def rows_of(folder):
    return json.loads((folder / "results.json").read_text("utf-8"))["rows"]


@pytest.mark.slow
def test_bench(corpus, name, setting, verifier, drafter, heads, tmp_path):
    names = ["fairseq beam 5", "fairseq beam 1", "greedy", "specdec", "specdec self", "blockwise"]
    more = ["-s", "en", "-t", "es", "--methods", ",".join(names), "--threads", 1]
    more += ["--drafter-path", drafter, "--heads-path", heads, "--output", tmp_path]
    more += ["--draft-rows", 0, "--reference", f"{corpus.raw_dir}/test.{{target}}"]
    program(bench.main, corpus, setting, verifier, *more)
    rows = rows_of(tmp_path)
    assert [row["method"] for row in rows] == names
    assert {row["equal to fairseq greedy"] for row in rows[1:]} == {21}
    assert all(row["accepted tokens"] > 1.05 for row in rows[3:])
    assert len({row["bleu"] for row in rows[1:]}) == 1


@pytest.mark.slow
def test_page(corpus, name, setting, verifier, drafter, tmp_path):
    expected = [
        text for _, (_, text) in sorted(by_fairseq(corpus, name, setting, verifier).items())
    ]
    drafts = ["--decoding", "specdec", "--drafter-path", drafter]
    for folder, flags in ((tmp_path / "jacobi", []), (tmp_path / "drafts", drafts)):
        more = ["-s", "en", "-t", "es", "--ids", "3,1", "--output", folder, *flags]
        program(viz.main, corpus, setting, verifier, *more)
        charts = data_of((folder / "index.html").read_text("utf-8"))["charts"]
        assert [chart["output"] for chart in charts] == [expected[3], expected[1]]
        assert all(chart["columns"][-1] == "⏎" or chart["edges"] is None for chart in charts)


@pytest.mark.slow
def test_clusters(corpus, name, setting, verifier, tmp_path):
    """Those of drafts change no output; with those of the model, every line is decoded."""
    args = setting.generate(
        corpus, verifier, "--gen-subset", "train", "--output", tmp_path / "c.pt"
    )
    own = ["--clusters", "5", "--top-k", "2", "--neighbours", "2", "--states", "400"]
    args = ["specdec-cluster-vocab", *args[1:], *own]
    run_cli(args)
    expected = by_fairseq(corpus, name, setting, verifier)
    flags = ["--decoding", "specdec", "--drafter-vocab-clusters", str(tmp_path / "c.pt")]
    flags += ["--draft-rows", "0", "--batch-size", "5"]
    found = scored(run_cli(setting.generate(corpus, verifier, *flags)).stdout)
    assert {key: text for key, (_, text) in found.items()} == {
        key: text for key, (_, text) in expected.items()
    }
    flags = ["--decoding", "greedy", "--vocab-clusters", str(tmp_path / "c.pt")]
    assert len(scored(run_cli(setting.generate(corpus, verifier, *flags)).stdout)) == 21


@pytest.mark.slow
def test_many_directions_in_one_table(corpus, tmp_path_factory, tmp_path, capsys):
    """As Table 7 of Santilli et al. (2023) has them."""
    verifier, setting = trained(corpus, "prefix", tmp_path_factory), SETTINGS["prefix"]
    more = ["--sweep", "directions", "--methods", "fairseq beam 1,greedy,jacobi", "--threads", 1]
    more += ["--reference", f"{corpus.raw_dir}/test.{{target}}", "--output", tmp_path]
    program(bench.main, corpus, setting, verifier, *more)
    rows = rows_of(tmp_path)
    assert [row["direction"] for row in rows] == ["en-es"] * 3 + ["es-en"] * 3
    assert {row["equal to fairseq greedy"] for row in rows} == {21}
    first, *_ = capsys.readouterr().out.splitlines()
    head = "× fairseq beam 1 / iterations a sentence / BLEU"
    assert first == f"| {head} | en-es | es-en |"
    journals = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    assert journals == ["journal-en-es.jsonl", "journal-es-en.jsonl"]


def test_python(corpus, name, setting, verifier):
    """The same text as fairseq's command line prints."""
    options = {
        "mbart": {"langs": "en,es"},
        "prefix": {"lang_pairs": "en-es,es-en", "encoder_langtok": "src", "decoder_langtok": True},
    }
    own = options.get(name) or {**options["prefix"], "lang_tok_replacing_bos_eos": True}
    translator = specdec_plugin.load(
        verifier, corpus.data_dir, source_lang="en", target_lang="es", max_len_b=20,
        task=f"specdec_{setting.task}", task_options=own,
    )  # fmt: skip
    found = translator.translate_pieces(corpus.lines("test", "en"), batch_size=5)
    expected = by_fairseq(corpus, name, setting, verifier)
    assert [each.text for each in found] == [text for _, (_, text) in sorted(expected.items())]


@pytest.mark.parametrize(
    "task, options, words",
    [
        ("multi_simple_epoch", {"lang_pairs": "en-es", "langs": "en,fr"}, "not in the language"),
        ("multi_simple_epoch", {}, "lang_pairs is required"),
        ("multi_simple_epoch", {"lang_pairs": "en-es", "encoder_langtok": "no"}, "invalid choice"),
        ("multi_simple_epoch", {"lang_pairs": "en-es", "source_lang": None}, "give source_lang"),
        ("from_pretrained_bart", {}, "langs is missing"),
        (
            "from_pretrained_bart",
            {"langs": "en,es", "decoder_langtok": True},
            "option decoder_langtok",
        ),
        (
            "from_pretrained_bart",
            {"langs": "en,es", "lang_pairs": "en-es"},
            "no option lang_pairs",
        ),
        ("of_the_moon", {}, "no task specdec_translation_of_the_moon"),
    ],
)
def test_options_of_tasks_that_are_refused(corpus, task, options, words):
    options = {"source_lang": "en", "target_lang": "es", **options}
    languages = {name: options.pop(name) for name in ("source_lang", "target_lang")}
    with pytest.raises(PluginError, match=words):
        specdec_plugin.load_session(
            __file__, corpus.data_dir, **languages, task=f"specdec_translation_{task}",
            task_options=options,
        )  # fmt: skip
