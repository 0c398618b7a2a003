"""A resumed training has the batches of one that nobody interrupted."""

import pytest

from specdec_plugin.tasks.parallel_decoding import SpecdecTranslationTask, translation_config
from tests.support.command_lines import Corpus


def batches(corpus: Corpus, first: int, epochs: int, renewed: bool = False):
    """The batches of so many epochs, for a process that begins in the epoch ``first``."""
    cfg = translation_config()(data=corpus.data_dir, source_lang="en", target_lang="es")
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", None, 1
    task = SpecdecTranslationTask.setup_task(cfg)
    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"), max_tokens=60, seed=1, epoch=first, disable_iterator_cache=renewed
    )
    iterator.epoch = first  # as where fairseq resumes
    return [[batch["id"].tolist() for batch in iterator.next_epoch_itr()] for _ in range(epochs)]


def test_batches_do_not_depend_on_the_epoch_in_which_a_process_begins(corpus):
    _, second, third = batches(corpus, 1, 3)
    assert batches(corpus, 2, 2) == [second, third]
    assert second != third


@pytest.mark.parametrize("first", [2, 3])
def test_batches_that_are_made_anew_for_each_epoch_do(corpus, first):
    present = batches(corpus, 1, first, renewed=True)[-1]
    assert batches(corpus, first, 1, renewed=True) != [present]
