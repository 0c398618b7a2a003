"""The criterion without logits against fairseq's own, and what it cannot be used for."""

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from specdec_plugin.criterions.projected_cross_entropy import ProjectedCrossEntropy
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from tests.support import tiny
from tests.support.command_lines import run_cli, train_args
from tests.support.training import training_sample

TASK = SimpleNamespace(target_dictionary=tiny.dictionary())
MODEL = tiny.model(3, dropout=0.0)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("sentence_avg, prefix", [(False, 0), (True, 2)])
def test_it_is_fairseqs(shared, training, sentence_avg, prefix):
    model = MODEL if shared else tiny.model(4, dropout=0.0, share_all_embeddings=False)
    sample, found = training_sample(), []
    for criterion in (LabelSmoothedCrossEntropyCriterion, ProjectedCrossEntropy):
        used = copy.deepcopy(model).train(training)
        loss, size, log = criterion(TASK, sentence_avg, 0.1, prefix)(used, sample)
        loss.backward()
        gradients = {name: weight.grad for name, weight in used.named_parameters()}
        found.append((loss.detach(), gradients))
        assert size == (3 if sentence_avg else 15)
        assert log["sample_size"] == size and log["ntokens"] == 15 and log["nsentences"] == 3
        found[-1] += (log["nll_loss"],)
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("change", ["bias", "adaptive"])
def test_projections_that_do_more(change):
    model = copy.deepcopy(MODEL)
    if change == "bias":
        model.decoder.output_projection = torch.nn.Linear(16, 16)
    else:
        model.decoder.output_projection = None
    with pytest.raises(PluginError, match="--criterion label_smoothed_cross_entropy for this"):
        ProjectedCrossEntropy(TASK, False, 0.1)(model, training_sample())


def test_accuracy_needs_logits():
    with pytest.raises(PluginError, match="--report-accuracy needs all logits"):
        ProjectedCrossEntropy(TASK, False, 0.1, report_accuracy=True)


def test_training_is_fairseqs(corpus, tmp_path):
    """The same weights come of it, and of both criteria's logs the same loss."""
    models = []
    for name in ("label_smoothed_cross_entropy", "projected_cross_entropy"):
        more = ("--criterion", name, "--label-smoothing", 0.1, "--max-update", 6)
        run_cli(train_args(corpus.data_dir, tmp_path / name, *more))
        models.append(load_weights(str(tmp_path / name / "checkpoint_last.pt"))["model"])
    assert models[0].keys() == models[1].keys()
    for name, weight in models[0].items():
        torch.testing.assert_close(weight, models[1][name], rtol=1e-2, atol=2e-3)
