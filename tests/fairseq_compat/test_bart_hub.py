"""BART's own hub interface decodes with the methods that are asked for."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.bart import BARTModel

from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from tests.support import tiny

LINES = ["w1 w2 w3 w4 w5", "w9", "w7 w7 w2", "w3 w0 w8 w8 w11 w6 w4"]
MASKED = ["w1 <mask> w3", "w5 w6 <mask> w2 w9 w9 w1"]
TASK = "specdec_translation"


def arguments():
    found = Namespace(
        arch="bart_base", _name="bart_base", task="denoising", encoder_layers=1, decoder_layers=2,
        encoder_embed_dim=16, encoder_ffn_embed_dim=24, encoder_attention_heads=2,
        decoder_attention_heads=2, max_source_positions=64, max_target_positions=64,
    )  # fmt: skip
    ARCH_CONFIG_REGISTRY["bart_base"](found)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random BART with a row for ``<mask>``, and dictionaries with that symbol and without."""
    folder = tmp_path_factory.mktemp("bart")
    symbols = tiny.dictionary()
    for name in ("bare", "masked"):
        (folder / name).mkdir()
        if name == "masked":
            symbols.add_symbol("<mask>")
        for language in ("src", "tgt"):
            symbols.save(str(folder / name / f"dict.{language}.txt"))
    model = tiny.model(23, BARTModel, symbols, **vars(arguments()))
    torch.manual_seed(23)
    with torch.no_grad():  # so that sentences differ
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight), alpha=0.3)
            elif "embed" not in name:
                weight.mul_(4.0)
    save_untrained(model.state_dict(), arguments(), str(folder / "model.pt"))
    merges = [*(f"w {digit}</w>" for digit in range(10)), "w 1", "w1 0</w>", "w1 1</w>"]
    codes = "".join(f"{merge}\n" for merge in ["#version: 0.2", *merges])  # words stay whole
    (folder / "bpecodes").write_text(codes, "utf-8")
    return folder


@pytest.fixture
def load(folder):
    def load(dictionary="masked", **options):
        languages = {"source_lang": "src", "target_lang": "tgt", "bpe": "subword_nmt"}
        data = str(folder / dictionary)
        return BARTModel.from_pretrained(str(folder), "model.pt", data, **languages, **options)

    return load


@pytest.fixture
def drafters(monkeypatch):
    """Those of all batches that the plugin decodes."""
    found = []
    generate = ParallelGenerator.generate

    def counted(self, *args, **kwargs):
        found.append(type(getattr(self.loop, "drafter", None)).__name__)
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(ParallelGenerator, "generate", counted)
    return found


@pytest.mark.parametrize(
    "dictionary, decoding, beam, drafter",
    [
        ("bare", "greedy", 1, "NoneType"),
        ("masked", "specdec", 1, "SelfDrafter"),
        ("bare", "input-guided", 1, "InputGuidedDrafter"),
        ("masked", "beam", 4, "NoneType"),
    ],
)
def test_it_gives_the_sentences_of_fairseq(load, drafters, dictionary, decoding, beam, drafter):
    options = {"beam": beam, "max_len_b": 12}
    expected = load(dictionary, task="translation").sample(LINES, **options)
    assert len({*expected}) > 1 and not drafters
    hub = load(dictionary, task=TASK, decoding=decoding)
    assert hub.sample(LINES, **options) == expected
    assert hub.sample(LINES[3], **options) == expected[3]
    assert {*drafters} == {drafter}


def test_it_fills_masks_with_beam_search(load, drafters):
    def filled(hub):
        found = hub.fill_mask(MASKED, topk=3, beam=3)
        return [[(text, pytest.approx(float(score), abs=1e-4)) for text, score in each]
                for each in found]  # fmt: skip

    expected = filled(load(task="translation"))
    assert [len({text for text, _ in each}) for each in expected] == [3, 3] and not drafters
    assert filled(load(task=TASK, decoding="beam")) == expected
    assert drafters


def test_what_a_drafting_method_cannot_keep_is_refused(load):
    hub = load(task=TASK, decoding="input-guided")
    with pytest.raises(PluginError, match="match_source_len=True cannot be kept"):
        hub.fill_mask(MASKED, topk=1, beam=1)


def test_a_search_does_not_depend_on_the_one_before_it(load):
    """A search with beams leaves BART's attention set to them."""
    hub = load(task=TASK, decoding="beam")
    hub.sample(LINES, beam=4, max_len_b=12)
    again = hub.sample(LINES, beam=2, max_len_b=12)
    assert again == load(task="translation").sample(LINES, beam=2, max_len_b=12)
