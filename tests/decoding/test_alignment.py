"""Alignments are those of fairseq's ``--print-alignment``."""

import pytest
import torch
from fairseq.models.transformer_align import TransformerAlignModel
from fairseq.sequence_generator import SequenceGeneratorWithAlignment

from specdec_plugin.errors import PluginError
from specdec_plugin.methods.build import build_generator
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.architectures import build_model

#: Whose hypotheses differ in length.
SEED = 13
SYMBOLS, MORE_SYMBOLS = tiny.dictionary(), tiny.dictionary(19)


def aligned(full_context):
    return tiny.model(
        SEED, TransformerAlignModel, alignment_heads=1, alignment_layer=0,
        full_context_alignment=full_context,
    )  # fmt: skip


MODELS = {
    "transformer": [tiny.model(SEED)],
    "ensemble": [tiny.model(SEED), tiny.model(1)],
    "alignment heads": [aligned(False)],
    "full context": [aligned(True)],
    "ensemble with full context": [tiny.model(1), aligned(True)],
}
#: fairseq's length options, for sentences that differ in length.
LENGTHS = {"max_len_a": 1.2, "max_len_b": 3}


def hypotheses(models, sample, kind, decoding, symbols=None, **more):
    task = tiny.task(symbols)
    task.cfg = config_class()(decoding=decoding, **more)
    options = tiny.Namespace(beam=1, print_alignment=kind, **LENGTHS)
    generator = build_generator(task, models, options)
    return [row[0] for row in generator.generate(models, sample)]


@pytest.mark.parametrize("lengths", [[6], [9, 2, 5, 7, 3, 4, 8]])
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("decoding", ["greedy", "jacobi"])
def test_alignments_are_fairseqs(name, kind, lengths, decoding):
    models, sample = MODELS[name], tiny.sample(lengths, 3)
    theirs = SequenceGeneratorWithAlignment(
        models, SYMBOLS, print_alignment=kind, beam_size=1, **LENGTHS
    )
    flags = {"draft_rows": 0} if decoding == "jacobi" else {}
    found = hypotheses(models, sample, kind, decoding, **flags)
    expected = [row[0] for row in theirs.generate(models, sample)]
    for mine, other in zip(found, expected, strict=True):
        assert mine["tokens"].tolist() == other["tokens"].tolist()
        if kind == "hard":
            assert mine["alignment"] == other["alignment"] != []
        else:  # printed with six decimals
            weights = (torch.tensor([[*map(float, row)] for row in each["alignment"]])
                       for each in (mine, other))  # fmt: skip
            torch.testing.assert_close(*weights, rtol=0, atol=1.1e-6)


@pytest.mark.parametrize("arch", ["lstm", "fconv"])
def test_other_architectures(arch):
    torch.manual_seed(0)
    models = [build_model(arch)]
    sample = tiny.sample([7, 4, 2], 5)
    theirs = SequenceGeneratorWithAlignment(models, MORE_SYMBOLS, beam_size=1, **LENGTHS)
    found = hypotheses(models, sample, "hard", "greedy", MORE_SYMBOLS)
    for mine, (other,) in zip(found, theirs.generate(models, sample), strict=True):
        assert mine["alignment"] == other["alignment"]


def test_outputs_shorter_than_dynamic_convolutions():
    """fairseq's search applies the whole filters from the first token on."""
    torch.manual_seed(0)
    kernels = {"decoder_conv_type": "dynamic", "decoder_kernel_size_list": [3, 31]}
    models = [build_model("lightconv", **kernels)]
    sample = tiny.sample([7, 4, 2], 5)
    theirs = SequenceGeneratorWithAlignment(
        models, MORE_SYMBOLS, print_alignment="soft", beam_size=1, **LENGTHS
    )
    found = hypotheses(models, sample, "soft", "greedy", MORE_SYMBOLS)
    for mine, (other,) in zip(found, theirs.generate(models, sample), strict=True):
        weights = (torch.tensor([[*map(float, row)] for row in each["alignment"]])
                   for each in (mine, other))  # fmt: skip
        torch.testing.assert_close(*weights, rtol=0, atol=1.1e-6)


def test_a_model_without_attention_is_refused():
    torch.manual_seed(0)
    model = build_model("lstm", decoder_attention="0")
    with pytest.raises(PluginError, match="does not give: leave it out"):
        hypotheses([model], tiny.sample([3]), "hard", "greedy", MORE_SYMBOLS)
