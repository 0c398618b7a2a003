"""Where samples get their seed and the numbers of their sentences from."""

from argparse import Namespace

import pytest
import torch
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from specdec_plugin.fairseq_compat.common_options import seed_of, shows_progress
from specdec_plugin.fairseq_compat.sentence_numbers import SentenceNumbersMixin

OPTIONS = Namespace(sampling=True)


def task(cfg=None, args=None):
    return Namespace(cfg=cfg, args=args)


@pytest.mark.parametrize(
    "found, seed",
    [
        (task(OmegaConf.create({"seed": 5})), 5),
        (task(Namespace(seed="${common.seed}")), 1),  # of a configuration that a program made
        (task(Namespace()), 1),
        (task(args=Namespace(seed=9)), 9),  # a legacy task
    ],
)
def test_the_seed(found, seed):
    assert seed_of(found, OPTIONS) == seed
    assert seed_of(found, Namespace(seed=77)) == 77
    assert seed_of(found, Namespace(seed=None)) == seed


def test_progress_is_shown_by_command_lines_alone():
    assert shows_progress(task(OmegaConf.create({"no_progress_bar": False})))
    assert shows_progress(task(args=Namespace(no_progress_bar=False)))
    assert not shows_progress(task(args=Namespace(no_progress_bar=True)))
    assert not shows_progress(task(Namespace(no_progress_bar="${common.no_progress_bar}")))
    assert not shows_progress(task(Namespace()))


class Generator:
    """Keeps the batches that it is given."""

    def generate(self, models, sample, **others):
        return sample.get("id")


class Base(FairseqTask):
    """What fairseq's task does."""

    def get_batch_iterator(self, dataset, *args, **kwargs):
        return Namespace(next_epoch_itr=lambda shuffle=True: iter(dataset.batches))

    def inference_step(self, generator, models, sample):
        return generator.generate(models, sample)


class Task(SentenceNumbersMixin, Base):
    def __init__(self):
        pass


def test_batches_without_numbers_get_those_that_were_handed_out():
    made, generator = Task(), Generator()
    assert made.inference_step(generator, [], {}) is None
    batches = [{"id": torch.tensor([2, 0])}, {"id": torch.tensor([1])}]
    for before in (0, 3):  # two buffers of a text
        dataset = Namespace(batches=batches, lines_before=before)
        iterator = made.get_batch_iterator(dataset).next_epoch_itr(shuffle=False)
        for batch in iterator:
            found = made.inference_step(generator, [], {"net_input": None})
            assert found.tolist() == (batch["id"] + before).tolist()
            given = {"id": torch.tensor([40])}
            assert made.inference_step(generator, [], given).tolist() == [40]


def test_the_numbers_of_other_data_sets_are_theirs():
    made = Task()
    iterator = made.get_batch_iterator(Namespace(batches=[{"id": torch.tensor([6])}]))
    assert [batch["id"].tolist() for batch in iterator.next_epoch_itr()] == [[6]]
    assert made.inference_step(Generator(), [], {}) is None
