"""No line is lost in generation, of whatever subset; training and validation stay fairseq's."""

import copy
import gc
import logging
import re
import weakref
from argparse import Namespace

import numpy as np
import pytest
import torch

from specdec_plugin.fairseq_compat.every_line import keep_every_line
from specdec_plugin.tasks.parallel_decoding import SpecdecTranslationTask, translation_config
from tests.support.command_lines import generate_args, hypotheses, run_cli, train_args

LIMITS = (6, 6)  # less than some sources and references of the tiny corpus


@pytest.fixture
def task(corpus):
    cfg = translation_config()(data=corpus.data_dir, source_lang="en", target_lang="es")
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", None, 1
    task = SpecdecTranslationTask.setup_task(cfg)
    for subset in ("train", "valid", "test"):
        task.load_dataset(subset)
    return task


def lines(task, subset, skip=True, **more):
    """Which lines the batches hold, as fairseq's programs ask for them."""
    iterator = task.get_batch_iterator(
        dataset=task.dataset(subset),
        max_sentences=5,
        max_positions=LIMITS,
        ignore_invalid_inputs=skip,
        required_batch_size_multiple=8,
        **more,
    )
    batches = iterator.next_epoch_itr(shuffle=False)
    return sorted(number for batch in batches for number in batch["id"].tolist())


def short(task, subset):
    """The lines whose source and reference are within the limits."""
    data = task.dataset(subset)
    return {
        number
        for number in range(len(data))
        if data.src_sizes[number] <= LIMITS[0] and data.tgt_sizes[number] <= LIMITS[1]
    }


@pytest.mark.parametrize("subset", ["train", "valid", "test"])
@pytest.mark.parametrize("skip", [False, True])
def test_generation_has_every_line(task, subset, skip, caplog):
    """The option that leaves long lines out has no effect, which is told once."""
    for _ in range(2):
        assert lines(task, subset, skip) == list(range(len(task.dataset(subset))))
    assert caplog.text.count("--skip-invalid-size-inputs-valid-test leaves out no line") == skip


@pytest.mark.parametrize("subset", ["train", "valid", "test"])
def test_where_losses_are_computed_nothing_too_long_is_read(task, subset):
    """fairseq-train, its validation, and fairseq-validate, which passes what generation does."""
    task.build_criterion(Namespace(_name="cross_entropy", sentence_avg=False))
    for more in ({"epoch": 1}, {}):
        found = set(lines(task, subset, **more))
        assert found and found <= short(task, subset)
        with pytest.raises(Exception, match=r"[Ss]ize of sample"):
            lines(task, subset, skip=False, disable_iterator_cache=True, **more)


def test_validation_leaves_out_references_beyond_learned_positions(corpus, tmp_path):
    args = train_args(corpus.data_dir, tmp_path, "--max-update", 1, "--decoder-learned-pos")
    args += ["--max-target-positions", "6", "--skip-invalid-size-inputs-valid-test"]
    args += ["--validate-interval-updates", "1"]
    args.remove("--disable-validation")
    done = run_cli(args)
    assert "valid on 'valid' subset" in done.stderr + done.stdout


def test_generating_the_training_set(corpus, tiny_verifier):
    more = ["--gen-subset", "train", "--max-source-positions", 6, "--batch-size", 7]
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more, "--decoding", "greedy"))
    assert len(hypotheses(done.stdout)) == 240
    assert "the rest is cut off" in done.stderr


@pytest.mark.parametrize("length", [3, 9])
def test_lines_are_forgotten_when_they_are_decoded(task, length):
    """9 tokens are cut, so that fairseq reads a view of the data set."""
    tokens = [torch.full((length,), 5)]
    kept = weakref.ref(tokens[0])
    dataset = task.build_dataset_for_inference(tokens, [length])
    batches = task.get_batch_iterator(dataset, max_positions=LIMITS).next_epoch_itr(shuffle=False)
    assert len(list(batches)) == 1
    del batches, dataset, tokens
    gc.collect()
    assert kept() is None and not task.dataset_to_epoch_iter


def test_batches_of_training_are_made_once(task):
    task._measures_loss = True
    iterators = [task.get_batch_iterator(task.dataset("train"), max_sentences=5) for _ in range(2)]
    assert iterators[0] is iterators[1]


def test_longer_references_keep_fairseqs_order(task):
    """The model's limit is one of sources; ``--max-tokens`` is one of both sides."""
    dataset = copy.copy(task.dataset("test"))
    most = int(dataset.src_sizes.max())
    dataset.tgt_sizes = dataset.tgt_sizes + np.int32(most)
    dataset.sizes = np.stack([dataset.src_sizes, dataset.tgt_sizes], 1)
    for max_tokens in (None, int(dataset.tgt_sizes.max())):
        assert keep_every_line(dataset, most, max_tokens) is dataset
    cut = keep_every_line(dataset, most - 1, None)
    assert cut.src_sizes.max() == most - 1
    assert np.array_equal(cut.tgt_sizes, dataset.tgt_sizes)


class TestLineNumbers:
    """Warnings name the line of the input, whatever it is read in."""

    def inference(self, task, lengths):
        tokens = [torch.full((length,), 5) for length in lengths]
        return task.build_dataset_for_inference(tokens, lengths)

    def test_buffers_are_counted_on(self, task, caplog):
        with caplog.at_level(logging.WARNING):
            for lengths in ([2, 9, 3], [8], [4, 4, 7]):
                dataset = self.inference(task, lengths)
                task.get_batch_iterator(dataset, max_positions=LIMITS)
        found = [int(number) for number in re.findall(r"line (\d+): the source", caplog.text)]
        assert found == [2, 4, 7]

    def test_a_data_set_that_nobody_counted_begins_with_line_1(self, task, caplog):
        with caplog.at_level(logging.WARNING):
            keep_every_line(task.dataset("test"), 6, None)
        sizes = task.dataset("test").src_sizes
        wanted = [line + 1 for line, size in enumerate(sizes) if size > 6]
        found = [int(number) for number in re.findall(r"line (\d+): the source", caplog.text)]
        assert wanted and found == wanted

    def test_interactive(self, corpus, tiny_verifier):
        text = "\n".join(["one two", "nine", "six", "one " * 9, "two", "two " * 9]) + "\n"
        args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy")
        args += ["--buffer-size", "2", "--max-source-positions", "6"]
        done = run_cli(["fairseq-interactive", *args[1:]], input=text)
        assert len(hypotheses(done.stdout)) == 6
        assert re.findall(r"line (\d+): the source", done.stderr) == ["4", "6"]


class TestUnknownSymbols:
    """Raw text in place of pieces is told once."""

    def told(self, task, caplog, *buffers):
        """What is told of buffers of lines, each a word for a known symbol or one that is not."""
        task._symbols_given = task._unknown_given = task._told_unknown = 0
        words = task.source_dictionary
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for lines in buffers:
                tokens = [words.encode_line(line, add_if_not_exist=False) for line in lines]
                task.build_dataset_for_inference(tokens, [len(each) for each in tokens])
        return re.findall(r"(\d+ of \d+) symbols of the source are unknown", caplog.text)

    def test_most_of_them(self, task, caplog):
        raw = "The cat sat."
        assert self.told(task, caplog, ["one two", raw, raw], [raw], [raw]) == ["6 of 8"]
        assert self.told(task, caplog, [raw], [raw], [raw]) == ["6 of 6"]
        assert "--bpe; in Python subwords=" in caplog.text

    def test_few_of_them(self, task, caplog):
        assert self.told(task, caplog, ["Maya", "", "Noam"], ["one two three"]) == []

    def test_interactive(self, corpus, tiny_verifier):
        args = generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy")
        done = run_cli(["fairseq-interactive", *args[1:]], input="The cat sat.\n" * 3)
        assert done.stderr.count("symbols of the source are unknown to its dictionary.") == 1
