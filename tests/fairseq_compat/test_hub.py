"""fairseq's hub decodes as asked, or refuses like the command line."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerModel
from fairseq.tasks.translation import TranslationConfig

from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights

LINES = ["one two three", "nine and two"]
TASK = "specdec_translation"


@pytest.fixture(scope="module", params=["cfg", "args"])
def checkpoint(request, tiny_verifier, tmp_path_factory):
    """A checkpoint of fairseq's own task, with the configuration of its day."""
    path = tmp_path_factory.mktemp(request.param) / "model.pt"
    state = load_weights(tiny_verifier)
    if request.param == "args":
        state.update(args=state["cfg"]["model"], cfg=None)
        state["args"].task = "translation"
        del state["args"].decoding
    else:
        known = {item.name for item in fields(TranslationConfig)}
        task = {key: value for key, value in state["cfg"]["task"].items() if key in known}
        state["cfg"]["task"] = {**task, "_name": "translation"}
    torch.save(state, path)
    return path


@pytest.fixture
def load(corpus, checkpoint):
    def load(**options):
        folder, name = Path(checkpoint).parent, Path(checkpoint).name
        return TransformerModel.from_pretrained(str(folder), name, corpus.data_dir, **options)

    return load


def test_it_decodes_with_the_method_that_was_asked_for(load, tiny_drafter, monkeypatch):
    expected = load().translate(LINES, beam=1)
    batches = []
    generate = ParallelGenerator.generate

    def counted(self, *args, **kwargs):
        batches.append(getattr(self.loop, "drafter", None))
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(ParallelGenerator, "generate", counted)
    hub = load(task=TASK, decoding="specdec", drafter_path=tiny_drafter)
    assert hub.translate(LINES, beam=1) == expected
    assert hub.sample(LINES) == expected
    assert len(batches) == 2 and None not in batches
    assert load(task=TASK).translate(LINES, beam=1) == expected
    assert len(batches) == 2


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({}, r"^beam=5 cannot be kept with decoding='greedy': .*; pass beam=1\.$"),
        ({"sampling": True, "nbest": 2}, "^nbest=2 beside beam=5: both are the number of samples"),
        ({"sampling_topk": 5, "beam": 1}, "^sampling_topk=5 cannot be kept .* add --sampling"),
        ({"beam": 1, "nbest": 2}, "^nbest=2 cannot be kept"),
        ({"beam": 1, "prefix_allowed_tokens_fn": max}, "^prefix_allowed_tokens_fn cannot be kept"),
        ({"beam": 1, "decoding": "jacobi"}, "^decoding='jacobi' is an option of the task"),
    ],
)
def test_it_refuses_what_cannot_be_kept(load, options, sentence):
    hub = load(task=TASK, decoding="greedy")
    with pytest.raises(PluginError, match=sentence):
        hub.translate(LINES, **options)


@pytest.mark.parametrize("decoding", ["auto", "beam"])
@pytest.mark.parametrize("beam", [1, 3])
def test_it_keeps_to_tokens_that_are_allowed(load, decoding, beam):
    """As fairseq does, by the number of a sentence and the tokens so far."""
    plain, ours = load(), load(task=TASK, decoding=decoding)
    encoded = [plain.encode(line) for line in LINES]
    end = plain.tgt_dict.eos()

    def allowed(number, tokens):
        return [5 + number, 7, 9] if len(tokens) < 4 + number else [end]

    def found(hub):
        lists = hub.generate(encoded, beam=beam, prefix_allowed_tokens_fn=allowed)
        return [[each["tokens"].tolist() for each in hypotheses] for hypotheses in lists]

    assert found(ours) == found(plain)
    assert [len(hypotheses[0]) for hypotheses in found(ours)] == [4, 5]


def test_it_draws_samples(load):
    hub = load(task=TASK, decoding="greedy")
    encoded = [hub.encode(line) for line in LINES]

    def draw(hub, **options):
        found = hub.generate(encoded, beam=6, sampling=True, **options)
        assert [len(samples) for samples in found] == [6, 6]
        return [[each["tokens"].tolist() for each in samples] for samples in found]

    first = draw(hub, seed=7)
    assert draw(hub, seed=7) == draw(load(task=TASK, decoding="specdec"), seed=7) == first
    assert draw(hub, seed=8) != first
    assert draw(hub) == draw(hub)
    assert draw(load(task=TASK, decoding="greedy", seed=7)) == first
    shifted = load(task=TASK, decoding="greedy", seed=7, sentence_offset=1)
    assert draw(shifted) != first


def test_it_refuses_before_models_are_built(load):
    with pytest.raises(PluginError, match="--block-size 3 would have no effect"):
        load(task=TASK, decoding="greedy", block_size=3)
    with pytest.raises(PluginError, match=r"has no effect with task='translation'.*: pass task="):
        load(decoding="greedy")
