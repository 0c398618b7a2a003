"""The decoding flags reach every task, and no flag hides another of the same name."""

from argparse import Namespace
from dataclasses import fields

import pytest
import torch
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.tasks import TASK_REGISTRY

from specdec_plugin.fairseq_compat import autocast
from specdec_plugin.fairseq_compat.autocast import AutocastConfig, AutocastMixin
from specdec_plugin.methods.registry import config_class, decoding_config
from tests.support.command_lines import PLUGIN

DecodingConfig = config_class()
ParallelDecodingConfig = config_class("ParallelDecodingConfig", AutocastConfig)

TASKS = [
    "speech_to_text",
    "translation",
    "translation_from_pretrained_bart",
    "translation_multi_simple_epoch",
]
PARSERS = {
    "train": (options.get_training_parser, ["--optimizer", "adam"]),
    "generate": (options.get_generation_parser, ["--path", "model.pt"]),
    "interactive": (options.get_interactive_generation_parser, ["--path", "model.pt"]),
}


def flags(task, program, arch):
    """What each flag of a complete command line means: its place and its help text."""
    build, more = PARSERS[program]
    parser = build()
    args = ["data", "--user-dir", PLUGIN, "--task", task, *more]
    if program == "train":
        args += ["--arch", arch, "--batch-size", "1"]
    elif not task.endswith("speech_to_text"):
        args += ["-s", "en", "-t", "es"]
    options.parse_args_and_arch(parser, args)
    return {
        flag: (action.dest, action.help, str(action.default))
        for action in parser._actions
        for flag in action.option_strings
    }


def ours():
    """The same of the plugin's flags alone."""
    config = ParallelDecodingConfig()
    return {
        "--" + item.name.replace("_", "-"): (item.name, config._get_help(item.name))
        for item in fields(ParallelDecodingConfig)
        if item.name != "_name"
    }


@pytest.mark.parametrize("arch", ["transformer", "mbart_base"])
@pytest.mark.parametrize("program", PARSERS)
@pytest.mark.parametrize("task", TASKS)
def test_no_flag_hides_another(task, program, arch):
    """argparse raises for clashing names, and fairseq swallows that."""
    if task == "speech_to_text":  # whose flags clash with those of models of text
        arch = "s2t_transformer"
    theirs, found = flags(task, program, arch), flags(f"specdec_{task}", program, arch)
    assert {flag: meaning[:2] for flag, meaning in found.items() if flag in ours()} == ours()
    assert {flag: meaning for flag, meaning in found.items() if flag not in ours()} == theirs


def test_no_option_of_fairseq_takes_a_value_of_ours():
    """fairseq fills its configuration by the names of flags, whoever declared them."""
    config = FairseqConfig()
    theirs = {
        name
        for group in fields(FairseqConfig)
        for name in getattr(getattr(config, group.name), "__dataclass_fields__", {})
    }
    assert "beam" in theirs
    assert not theirs & {item.name for item in fields(ParallelDecodingConfig)} - {"_name"}


def test_every_task_has_all_flags():
    mixed = [name for name in TASK_REGISTRY if name.startswith("specdec_")]
    assert sorted(mixed) == sorted(f"specdec_{task}" for task in TASKS)


@pytest.fixture
def processor(monkeypatch):
    """Lets it multiply bfloat16, or not."""

    def multiplies(able):
        autocast.multiplies_bfloat16.cache_clear()
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: able)

    yield multiplies
    autocast.multiplies_bfloat16.cache_clear()


class TestWhereFlagsAre:
    """In ``args`` of legacy tasks and in ``cfg`` of others; absent ones have their defaults."""

    def test_config_and_namespace(self):
        given = {"decoding": "greedy", "verifier_dtype": "bfloat16"}
        expected = DecodingConfig(**given)
        namespace = Namespace(data="data-bin", **given)
        assert decoding_config(Namespace(cfg=expected)) is expected
        assert decoding_config(Namespace(cfg=namespace)) == expected
        assert decoding_config(Namespace(cfg=None, args=namespace)) == expected

    @pytest.mark.parametrize("wanted", ["none", "bfloat16"])
    @pytest.mark.parametrize("able", [True, False])
    def test_mixed_precision(self, wanted, able, processor, caplog):
        processor(able)
        task = AutocastMixin.__new__(AutocastMixin)
        options = AutocastConfig(cpu_autocast=wanted)
        for task.cfg, task.args in ((options, None), (None, options)):
            with task._autocast({}):
                assert torch.is_autocast_enabled("cpu") == (able and wanted == "bfloat16")
            assert not torch.is_autocast_enabled("cpu")
        warnings = ["has no effect" in record.getMessage() for record in caplog.records]
        assert warnings == [True] * (wanted == "bfloat16" and not able)

    def test_pytorch_without_onednn_has_no_products_of_bfloat16(self, processor, monkeypatch):
        processor(True)
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        monkeypatch.delattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
        assert not autocast.multiplies_bfloat16()

    @pytest.mark.parametrize(
        "source, target, device, fused",
        [
            (9, 9, "cpu", False),
            (999, 9, "cpu", True),
            (9, 999, "cpu", True),
            (9, 9, "meta", True),  # a GPU's is fast
        ],
    )
    def test_short_sentences_have_attention_of_plain_products(
        self, source, target, device, fused, processor
    ):
        processor(True)
        task = AutocastMixin.__new__(AutocastMixin)
        inputs = {
            "src_tokens": torch.zeros(2, source, device=device),
            "src_lengths": torch.zeros(2, device=device),
            "prev_output_tokens": torch.zeros(2, target, device=device),
        }
        for wanted, expected in (("none", True), ("bfloat16", fused)):
            task.cfg = AutocastConfig(cpu_autocast=wanted)
            with task._autocast({"net_input": inputs}):
                assert torch.backends.cuda.flash_sdp_enabled() == expected
            assert torch.backends.cuda.flash_sdp_enabled()
