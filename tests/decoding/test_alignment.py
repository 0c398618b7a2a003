"""Alignments are those of fairseq's ``--print-alignment``."""

import pytest
import torch
from fairseq.models.transformer_align import TransformerAlignModel
from fairseq.sequence_generator import SequenceGeneratorWithAlignment

from specdec_plugin.decoding import alignment
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
    "one of two without attention": [tiny.model(SEED), tiny.model(1, no_cross_attention=True)],
    "alignment heads": [aligned(False)],
    "full context": [aligned(True)],
    "ensemble with full context": [tiny.model(1), aligned(True)],
}
#: fairseq's length options, for sentences that differ in length.
LENGTHS = {"max_len_a": 1.2, "max_len_b": 3}


def lists(models, sample, kind, decoding, symbols=None, beam=1, backend=None, **more):
    """For each sentence its hypotheses."""
    task = tiny.task(symbols)
    task.cfg = config_class()(decoding=decoding, **more)
    options = tiny.Namespace(beam=beam, print_alignment=kind, **LENGTHS)
    return build_generator(task, models, options, backend=backend).generate(models, sample)


def hypotheses(models, sample, kind, decoding, symbols=None, **more):
    """The hypothesis of each sentence."""
    return [row[0] for row in lists(models, sample, kind, decoding, symbols, **more)]


def same(mine, other, kind, full_context=False):
    """Whether a hypothesis has fairseq's tokens, alignment and attention."""
    assert mine["tokens"].tolist() == other["tokens"].tolist()
    if not full_context:  # with it, a model attends again, to align
        torch.testing.assert_close(mine["attention"], other["attention"], rtol=0, atol=1e-5)
    if kind == "hard":
        assert mine["alignment"] == other["alignment"] != []
    else:  # printed with six decimals
        weights = (torch.tensor([[*map(float, row)] for row in each["alignment"]])
                   for each in (mine, other))  # fmt: skip
        torch.testing.assert_close(*weights, rtol=0, atol=1.1e-6)


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
        same(mine, other, kind, "full" in name)


@pytest.mark.parametrize("lengths", [[6], [9, 2, 5, 7, 3, 4, 8]])
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("decoding", ["beam", "specdec"])
def test_each_hypothesis_of_a_beam_search_is_aligned(name, kind, lengths, decoding):
    models, sample = MODELS[name], tiny.sample(lengths, 3)
    theirs = SequenceGeneratorWithAlignment(
        models, SYMBOLS, print_alignment=kind, beam_size=4, **LENGTHS
    )
    found = lists(models, sample, kind, decoding, beam=4)
    for ours, expected in zip(found, theirs.generate(models, sample), strict=True):
        assert len(ours) == 4
        for mine, other in zip(ours, expected, strict=True):
            same(mine, other, kind, "full" in name)


def test_many_hypotheses_are_aligned_in_parts(monkeypatch):
    """A decoder scores all symbols at all positions, which would fill the memory."""
    models, sample = MODELS["ensemble"], tiny.sample([9, 2, 5, 7, 3, 4, 8], 3)
    for decoding, beam in (("beam", 4), ("greedy", 1)):
        whole = lists(models, sample, "hard", decoding, beam=beam)
        fed, moved, attention, cpu = [], [], alignment.Aligner._attention, torch.Tensor.cpu

        def noted(self, batch, previous, fed=fed, attention=attention):
            fed.append(previous.shape)
            return attention(self, batch, previous)

        def counted(self, moved=moved, cpu=cpu):
            moved.append(self)
            return cpu(self)

        with monkeypatch.context() as patch:
            patch.setattr(alignment, "_LOGITS", 500)
            patch.setattr(torch.Tensor, "cpu", counted)
            patch.setattr(alignment.Aligner, "_attention", noted)
            parts = lists(models, sample, "hard", decoding, beam=beam)
        assert len(moved) < len(fed) + 6  # one for each part, and few for the batch
        assert len(fed) > 2 and all(rows * length * 16 <= 500 for rows, length in fed)
        for mine, other in zip(parts, whole, strict=True):
            assert [each["alignment"] for each in mine] == [each["alignment"] for each in other]


def test_beams_on_every_backend(backend):
    """Encoders' outputs differ in form, and the last batch is smaller than those before it."""
    models = MODELS["transformer"]
    theirs = SequenceGeneratorWithAlignment(models, SYMBOLS, beam_size=4, **LENGTHS)
    for lengths in ([9, 2, 5, 7, 3, 4, 8], [6, 3]):
        sample = tiny.sample(lengths, 3)
        found = lists(models, sample, "hard", "beam", beam=4, backend=backend)
        for ours, expected in zip(found, theirs.generate(models, sample), strict=True):
            for mine, other in zip(ours, expected, strict=True):
                same(mine, other, "hard")


@pytest.mark.parametrize("arch", ["lstm", "fconv"])
@pytest.mark.parametrize("beam", [1, 3])
def test_other_architectures(arch, beam):
    torch.manual_seed(0)
    models = [build_model(arch)]
    sample = tiny.sample([7, 4, 2], 5)
    theirs = SequenceGeneratorWithAlignment(models, MORE_SYMBOLS, beam_size=beam, **LENGTHS)
    decoding = "greedy" if beam == 1 else "beam"
    found = lists(models, sample, "hard", decoding, MORE_SYMBOLS, beam)
    for ours, expected in zip(found, theirs.generate(models, sample), strict=True):
        assert [each["alignment"] for each in ours] == [each["alignment"] for each in expected]


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
