"""fairseq's generation options beside ``--decoding``: honoured or refused, never ignored."""

from argparse import Namespace
from dataclasses import fields

import pytest
from fairseq import options
from fairseq.dataclass.configs import GenerationConfig

from specdec_plugin.engine import threads
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.generation import (
    REFUSED,
    check_call,
    check_generation,
)
from specdec_plugin.methods.auto.method import Auto
from specdec_plugin.methods.greedy.method import Greedy
from specdec_plugin.methods.registry import config_class
from tests.support.command_lines import PLUGIN, TRACEBACK, run_cli

#: Options of fairseq that keep their meaning, or have none for any greedy search.
HONOURED = frozenset(
    [
        "max_len_a", "max_len_b", "min_len", "unnormalized", "lenpen", "unkpen", "prefix_size",
        "temperature", "print_step", "print_alignment", "retain_iter_history", "sacrebleu",
        "score_reference", "no_early_stop", "no_beamable_mm", "no_seed_provided",
    ]
)  # fmt: skip
DEFAULTS = {item.name: item.default for item in fields(GenerationConfig) if item.name != "_name"}


def test_no_option_is_forgotten_and_none_is_on_both_lists():
    assert {*DEFAULTS} == HONOURED | {*REFUSED}
    assert not HONOURED & {*REFUSED}


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_options_raise_one_sentence(name, typed):
    value = 5 if name == "beam" else {bool: True}.get(type(DEFAULTS[name]), 7)
    with pytest.raises(PluginError) as error:
        check_generation(Namespace(**{"beam": 1, name: value}), "greedy", typed=typed)
    begin = "--" + name.replace("_", "-") + " " if typed else f"{name}={value}"
    assert str(error.value).startswith(begin)
    assert len(str(error.value)) > 60
    assert "{" not in str(error.value)


def test_defaults_with_beam_one_pass():
    options = GenerationConfig()
    options.beam = 1
    check_generation(options, "specdec")


def test_a_method_with_a_beam_takes_any():
    check_generation(Namespace(beam=7), "greedy", beam=None)


class TestParsing:
    """fairseq's parsers refuse at once, and take the method's beam where none is typed."""

    @pytest.fixture(params=["", "_from_pretrained_bart", "_multi_simple_epoch"])
    def parse(self, request):
        def parse(*more, interactive=False):
            parser = options.get_generation_parser(interactive)
            args = ["data", "-s", "en", "-t", "es", "--user-dir", PLUGIN, "--path", "model.pt"]
            args += ["--task", "specdec_translation" + request.param, *more]
            found = options.parse_args_and_arch(parser, args)
            assert parser.get_default("beam") == 5
            return found

        return parse

    def test_beam(self, parse, monkeypatch):
        assert parse().beam == 5
        assert parse("--beam", "3").beam == 3
        assert parse("--decoding", "greedy").beam == 1
        assert parse("--decoding", "greedy", "--beam", "1").beam == 1
        monkeypatch.setattr(Greedy, "default_beam", None)
        assert parse("--decoding", "greedy").beam == 5
        assert parse("--decoding", "greedy", "--beam", "4").beam == 4

    @pytest.mark.parametrize(
        "flags, processors, wanted",
        [
            (["--decoding", "greedy", "--cpu"], 1, 0),
            (["--decoding", "greedy", "--cpu"], 64, 1),
            (["--decoding", "greedy", "--cpu", "--num-workers", "1"], 1, 1),
            (["--decoding", "greedy", "--cpu", "--num-workers", "3"], 1, 3),
            (["--cpu"], 1, 1),
        ],
    )
    def test_no_process_reads_data_where_threads_need_all_processors(
        self, parse, monkeypatch, flags, processors, wanted
    ):
        monkeypatch.setattr(threads, "processors", lambda: processors)
        assert parse(*flags).num_workers == wanted

    def test_outputs_that_no_length_limit_lets_be(self, parse):
        """Before data and models are loaded, unless the limit is known with the sources only."""
        with pytest.raises(PluginError, match=r"^--min-len 1 is more than the length limit 0\."):
            parse("--decoding", "greedy", "--max-len-b", "0")
        parse("--decoding", "greedy", "--max-len-b", "0", "--max-len-a", "1")
        parse("--decoding", "beam", "--max-len-b", "0", "--match-source-len")

    @pytest.mark.parametrize("flags", [["--match-source-len"], ["--no-repeat-ngram-size", "2"]])
    def test_what_another_method_keeps(self, parse, flags):
        with pytest.raises(PluginError, match=r"with --decoding greedy: use --decoding auto, or"):
            parse("--decoding", "greedy", *flags)
        parse("--decoding", "auto", *flags)

    def test_samples(self, parse):
        """fairseq's programs want as many hypotheses printed as there are beams."""
        greedy = ("--decoding", "greedy", "--sampling")
        assert parse(*greedy).beam == 1
        for more in (["--nbest", "7"], ["--beam", "7", "--nbest", "7"]):
            found = parse(*greedy, *more)
            assert (found.beam, found.nbest) == (7, 7)
        assert parse("--sampling", "--nbest", "3").beam == 3

    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--beam", "3"], "^--nbest 1 beside --beam 3: both are the number of samples"),
            (["--beam", "0", "--nbest", "0"], "^--beam 0: give 1 or more samples"),
            (["--sampling-topk", "0"], "^--sampling-topk 0: give 1 or more symbols"),
            (["--sampling-topp", "1.5"], "^--sampling-topp 1.5: give a probability above 0"),
            (
                ["--sampling-topk", "9", "--sampling-topp", "0.5"],
                "^--sampling-topk 9 and --sampling-topp 0.5 both tell which symbols",
            ),
            (["--temperature", "0"], "^--temperature 0.0: give more than 0"),
            (["--decoding", "beam"], "^--sampling cannot be kept with --decoding beam: .* draws"),
            (
                ["--decoding", "nat", "--drafter-path", "d.pt"],
                "^--sampling cannot be kept with --decoding nat",
            ),
            (
                ["--decoding", "specdec", "--top-beta", "3"],
                "^--sampling draws .* --top-beta 3 accepts tokens that were not drawn: leave one",
            ),
            (
                ["--decoding", "specdec", "--top-beta", "3", "--tolerance", "0.5"],
                "^--sampling draws .* --top-beta 3 accepts",
            ),
            (
                ["--decoding", "blockwise", "--acceptance", "distance"],
                "^--sampling draws .* --acceptance distance accepts",
            ),
            (["--decoding", "blockwise", "--min-block", "2"], "^--sampling .* --min-block 2 acc"),
            (["--vocab-clusters", "c.pt"], "^--sampling .* --vocab-clusters c.pt leaves out most"),
        ],
    )
    def test_what_cannot_be_drawn(self, parse, flags, sentence):
        with pytest.raises(PluginError, match=sentence):
            parse("--decoding", "greedy", "--sampling", *flags)

    @pytest.mark.parametrize("method", ["auto", "beam"])
    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--diverse-beam-groups", "2"], "^--diverse-beam-groups 2 cannot share --beam 5 eve"),
            (["--diverse-beam-strength", "2"], "^--diverse-beam-strength 2.0 would have no effect"),
            (
                ["--diverse-beam-groups", "5", "--diversity-rate", "1"],
                "^--diverse-beam-groups and --diversity-rate both tell how a search chooses",
            ),
            (
                ["--diversity-rate", "0", "--match-source-len"],
                "^--diversity-rate and --match-source-len both tell how",
            ),
        ],
    )
    def test_strategies_that_cannot_be_kept(self, parse, method, flags, sentence):
        with pytest.raises(PluginError, match=sentence):
            parse("--decoding", method, "--beam", "5", *flags)

    def test_clusters_leave_out_what_phrases_want(self, parse):
        flags = ["--decoding", "auto", "--beam", "5", "--vocab-clusters", "c.pt"]
        with pytest.raises(PluginError, match=r"^--vocab-clusters c\.pt leaves .* --constraints"):
            parse(*flags, "--constraints", interactive=True)
        assert parse(*flags, "--diverse-beam-groups", "5").beam == 5

    def test_strategies(self, parse):
        for flags in (["--diverse-beam-groups", "5"], ["--diversity-rate", "0.5"]):
            assert parse("--decoding", "auto", "--beam", "5", *flags).beam == 5
        interactive = ["--decoding", "auto", "--beam", "5", "--constraints", "ordered"]
        assert str(parse(*interactive, interactive=True).constraints) == "ordered"
        with pytest.raises(PluginError, match=r"^--constraints cannot be kept with --sampling: l"):
            parse("--decoding", "auto", "--sampling", "--constraints")

    def test_an_offset_needs_samples(self, parse):
        flags = ["--decoding", "greedy", "--sentence-offset", "5"]
        assert parse(*flags, "--sampling").sentence_offset == 5
        with pytest.raises(PluginError, match=r"^--sentence-offset 5 would have no effect without"):
            parse(*flags)

    def test_scores_of_references_are_fairseqs(self, parse):
        assert parse("--decoding", "greedy", "--score-reference", "--beam", "2").beam == 2

    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--beam", "5"], r"^--beam 5 cannot .* --decoding greedy: .*; give --beam 1\.$"),
            (["--sampling-topk", "5"], "^--sampling-topk 5 cannot be kept .* add --sampling"),
            (["--constraints"], r"^--constraints cannot .* greedy: use --decoding auto, or leave"),
            (["--diverse-beam-groups", "2"], "^--diverse-beam-groups 2 cannot .* --decoding auto"),
            (["--diverse-beam-groups", "-2"], "^--diverse-beam-groups -2: give 1 or more groups"),
            (["--diverse-beam-strength", "nan"], "^--diverse-beam-strength nan: give a finite"),
            (["--diversity-rate", "inf"], "^--diversity-rate inf: give a finite number"),
            (["--diversity-rate", "-3"], "^--diversity-rate -3.0: give a finite number"),
            (["--nbest", "2"], "^--nbest 2 cannot be kept"),
            (["--temperature", "0"], "^--temperature 0.0: give more than 0"),
            (["--temperature", "nan"], "^--temperature nan: give more than 0"),
            (["--lenpen", "nan"], "^--lenpen nan: give a number from -10 to 10, such as 1"),
            (["--lenpen", "inf"], "^--lenpen inf: give a number from -10 to 10"),
            (["--lenpen", "1000"], "^--lenpen 1000.0: give a number from -10 to 10"),
            (["--lm-weight", "1e38"], r"^--lm-weight 1e\+38: give a number such as 0\.3"),
            (["--unkpen", "nan"], "^--unkpen nan: give a number"),
            (["--prefix-size", "-1"], "^--prefix-size -1: give 0 or more"),
            (["--decoding", "beam", "--nbest", "0"], "^--nbest 0: give 1 or more"),
        ],
    )
    @pytest.mark.parametrize("interactive", [True, False])
    def test_refusals_name_flags_as_typed(self, parse, flags, sentence, interactive):
        with pytest.raises(PluginError, match=sentence):
            parse("--decoding", "greedy", *flags, interactive=interactive)

    @pytest.mark.parametrize("flag", ["--print-step", "--retain-iter-history"])
    def test_fairseqs_own_code_counts_no_steps(self, parse, flag):
        parse("--decoding", "beam", "--beam", "5", "--print-alignment", flag)
        told = f"^{flag} finds no steps, because "
        with pytest.raises(PluginError, match=told + "--score-reference is given"):
            parse("--decoding", "greedy", "--score-reference", flag)
        with pytest.raises(PluginError, match=told + "--decoding is not given: add --decoding"):
            parse(flag)
        parse(flag, "--quiet")  # which prints none
        parse(flag, interactive=True)  # likewise

    def test_dropout_while_references_are_scored(self, parse):
        flags = ["--score-reference", "--retain-dropout"]
        assert parse(*flags).retain_dropout
        with pytest.raises(PluginError, match=r"^--retain-dropout beside --score-reference draws"):
            parse(*flags, "--decoding", "auto")

    def test_numbers_of_fairseqs_own_samples(self, parse):
        """fairseq has an assertion, of the same meaning."""
        assert parse("--sampling", "--beam", "3", "--nbest", "3").beam == 3
        for interactive in (True, False):
            with pytest.raises(PluginError, match=r"^--nbest 1 beside --beam 3: both are the num"):
                parse("--sampling", "--beam", "3", interactive=interactive)

    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--beam", "0"], "^--beam 0: give 1 or more"),
            (["--nbest", "0"], "^--nbest 0: give 1 or more"),
            (["--temperature", "0"], "^--temperature 0.0: give more than 0"),
            (["--max-len-a", "nan"], "^--max-len-a nan: give a finite number"),
            (["--min-len", "300"], "^--min-len 300 is more than the length limit 200"),
            (["--lenpen", "400"], "^--lenpen 400.0: give a number from -10 to 10"),
            (["--unkpen", "nan"], "^--unkpen nan: give a number"),
            (["--sampling-topk", "5"], "^--sampling-topk 5 tells which symbols --sampling draws"),
            (["--sampling-topp", "0.5"], "^--sampling-topp 0.5 tells which symbols --sampling dr"),
            (["--diverse-beam-groups", "2"], "^--diverse-beam-groups 2 cannot share --beam 5 eve"),
            (
                ["--diverse-beam-groups", "5", "--diversity-rate", "0.5"],
                "^--diverse-beam-groups and --diversity-rate both tell how a search chooses",
            ),
            (
                ["--sampling", "--beam", "5", "--nbest", "5", "--match-source-len"],
                "^--sampling and --match-source-len both tell how",
            ),
        ],
    )
    @pytest.mark.parametrize("interactive", [True, False])
    def test_fairseqs_own_search(self, parse, flags, sentence, interactive):
        """Most of these end in a traceback of fairseq's."""
        with pytest.raises(PluginError, match=sentence):
            parse(*flags, interactive=interactive)

    def test_what_fairseqs_own_search_takes(self, parse):
        """Some of it has no effect there, which is fairseq's affair."""
        for flags in (
            ["--lm-weight", "0.4"], ["--diverse-beam-strength", "0.3"], ["--nbest", "9"],
            ["--sampling", "--sampling-topk", "5"], ["--diverse-beam-groups", "5"],
            ["--match-source-len", "--max-len-b", "0"], ["--constraints"],
            ["--no-repeat-ngram-size", "1"], ["--prefix-size", "-1"], ["--diversity-rate", "0"],
        ):  # fmt: skip
            parse(*flags, interactive=True)

    @pytest.mark.parametrize(
        "flags, sentence",
        [
            (["--num-workers", "-1"], "^--num-workers -1: give 0 or more"),
            (["--required-seq-len-multiple", "0"], "^--required-seq-len-multiple 0: give 1 or m"),
            (["--checkpoint-shard-count", "0"], "^--checkpoint-shard-count 0: give 1 or more"),
            (["--seed", "-1"], "^--seed -1: give 0 or more, up to 4294967295"),
            (["--seed", "4294967296"], "^--seed 4294967296: give 0 or more, up to"),
        ],
    )
    @pytest.mark.parametrize("more", [[], ["--decoding", "auto"]])
    def test_numbers_of_programs(self, parse, flags, sentence, more):
        with pytest.raises(PluginError, match=sentence):
            parse(*flags, *more)

    def test_soft_alignments_cannot_be_printed_interactively(self, parse):
        flags = ["--decoding", "greedy", "--print-alignment"]
        assert parse(*flags, "soft").print_alignment == "soft"
        assert parse(*flags, interactive=True).print_alignment == "hard"
        with pytest.raises(PluginError, match="fairseq-interactive cannot print soft alignments"):
            parse(*flags, "soft", interactive=True)
        with pytest.raises(PluginError, match="fairseq-interactive cannot print soft alignments"):
            parse("--print-alignment", "soft", interactive=True)

    def test_references_have_no_soft_alignments(self, parse):
        for flags in (["--decoding", "greedy"], []):
            both = ["--score-reference", *flags, "--print-alignment"]
            assert parse(*both).print_alignment == "hard"
            assert parse(*both, "soft", "--quiet").quiet  # which prints none
            with pytest.raises(PluginError, match=r"^--score-reference finds hard alignments alo"):
                parse(*both, "soft")


@pytest.mark.parametrize("program", ["fairseq-generate", "fairseq-interactive"])
@pytest.mark.parametrize(
    "flags, sentence",
    [
        (["--decoding", "greedy", "--beam", 5], "--beam 5 cannot be kept with --decoding greedy"),
        (["--drafter-path", "drafter.pt"], "without --decoding"),
    ],
)
def test_command_lines_refuse_before_they_load(program, flags, sentence):
    """Neither the data nor the model exists, and nothing tells so."""
    args = [program, "nowhere", "-s", "en", "-t", "es", "--user-dir", PLUGIN, "--cpu"]
    args += ["--task", "specdec_translation", "--path", "nowhere.pt", *flags]
    done = run_cli(args, check=False)
    assert done.returncode != 0 and TRACEBACK not in done.stderr
    assert sentence in done.stderr.strip().splitlines()[-1]


class TestCalls:
    """What a program gives to ``build_generator``."""

    config = config_class()(decoding="greedy")

    def test_arguments(self):
        check_call(Namespace(), {"seq_gen_cls": None}, self.config)
        with pytest.raises(PluginError, match=r"^seq_gen_cls cannot be kept with decoding='gr"):
            check_call(Namespace(), {"seq_gen_cls": max}, self.config)

    def test_other_arguments_of_fairseqs_generators(self):
        """``fairseq-generate`` hands over a language model, or None."""
        extra = {"lm_model": None, "lm_weight": 0.0, "symbols_to_strip_from_output": {7}}
        check_call(Namespace(), {"extra_gen_cls_kwargs": extra}, self.config)
        with pytest.raises(PluginError, match=r"^extra_gen_cls_kwargs\['max_len'\] cannot be kept"):
            check_call(Namespace(), {"extra_gen_cls_kwargs": {"max_len": 9}}, self.config)

    def test_tokens_that_may_follow(self):
        """A beam search keeps them; samples and greedy methods do not."""
        given = Namespace(beam=1, nbest=1, prefix_allowed_tokens_fn=max)
        check_generation(given, "auto", honours=Auto.honours)
        with pytest.raises(PluginError, match=r"cannot be kept with decoding='greedy': it tells a"):
            check_generation(given, "greedy", honours=Greedy.honours)
        given.sampling = True
        with pytest.raises(PluginError, match=r"cannot be kept with sampling=True: it tells"):
            check_generation(given, "auto", honours=Auto.honours)

    def test_decoding_options_among_those_of_the_search(self):
        check_call(Namespace(beam=1, decoding="greedy", top_beta=1), {}, self.config)
        with pytest.raises(PluginError, match=r"^block_size=4 is an option of the task"):
            check_call(Namespace(block_size=4), {}, self.config)
