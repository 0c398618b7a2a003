"""Batches of a tiny data set."""

import itertools
import random

import numpy as np
import pytest
import torch

from specdec_plugin.api import load_session
from specdec_plugin.lab.bench.methods import HEADS, SUFFIXES, beam_of, entries, reads
from specdec_plugin.lab.bench.timing import batches_by_size, seed_everything, spread
from specdec_plugin.methods.registry import names


@pytest.fixture(scope="module")
def session(corpus, tiny_verifier):
    found = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    found.split("test")
    return found


def numbers(batches):
    return [sorted(batch["id"].tolist()) for batch in batches]


def test_all_sentences_in_batches_of_each_size(session):
    dataset = session.task.dataset("test")
    found = batches_by_size(session, dataset, [1, 4, 8])
    for size, batches in found.items():
        assert numbers(batches) == numbers(session.batches(dataset, size))
    assert len(found[1]) == 21 and len(found[8]) == 3


def test_the_same_sentences_in_each_size(session):
    found = batches_by_size(session, session.task.dataset("test"), [1, 2, 4], sentences=9)
    same = [sorted(n for batch in numbers(each) for n in batch) for each in found.values()]
    assert same[0] == same[1] == same[2] and len(same[0]) == 9


def test_whole_batches_where_they_spread_over_all_lengths(session):
    dataset = session.task.dataset("test")
    drawn = numbers(batches_by_size(session, dataset, [2], sentences=9)[2])
    assert len(drawn) == 4
    assert all(batch in numbers(session.batches(dataset, 2)) for batch in drawn)


def test_full_batches_are_as_many_sentences_as_asked_for(session):
    found = batches_by_size(session, session.task.dataset("test"), [4], sentences=20)
    assert [len(batch) for batch in numbers(found[4])] == [4, 4, 4, 4, 4]


def test_no_batch_is_lost_where_all_sentences_are_asked_for(session):
    dataset = session.task.dataset("test")
    found = batches_by_size(session, dataset, [4], sentences=21)
    assert numbers(found[4]) == numbers(session.batches(dataset, 4))


@pytest.mark.parametrize("size", [4, 8, 512])
def test_a_large_batch_has_sentences_of_all_lengths(session, size):
    dataset = session.task.dataset("test")
    ordered = [n for batch in session.batches(dataset, 1) for n in batch["id"].tolist()]
    drawn = numbers(batches_by_size(session, dataset, [size], sentences=8)[size])
    ranks = sorted(ordered.index(n) for batch in drawn for n in batch)
    assert len(ranks) == 8 and all(2 <= b - a <= 3 for a, b in itertools.pairwise(ranks))
    assert ranks[0] <= 1 and ranks[-1] >= 19


@pytest.mark.parametrize("sentences, batches", [(1, 1), (10, 10), (15, 15), (1000, 21)])
def test_as_many_sentences_as_asked_for(session, sentences, batches):
    found = batches_by_size(session, session.task.dataset("test"), [1], sentences)
    assert len(found[1]) == batches


def test_items_are_equally_far_apart():
    assert spread(range(9), 3) == [1, 4, 7] and spread(range(9), 2) == [2, 6]
    assert spread(range(4), 9) == [0, 1, 2, 3] and spread("abc", 0) == ["b"] and spread([], 2) == []


def test_seeds():
    def drawn():
        seed_everything(5)
        return random.random(), np.random.rand(), torch.rand(1).item()

    assert drawn() == drawn()


def test_every_decoding_method_can_be_timed():
    assert {*names()} < {*entries()}
    assert reads("specdec", "block_size") and not reads("specdec", "top_beta")
    assert reads("specdec++", "top_beta") and not reads("fairseq beam 5", "block_size")


def test_blockwise_decoding_reads_what_belongs_to_its_rule_and_its_own_heads():
    assert reads("blockwise", "block_size") and reads("blockwise", "acceptance")
    assert not reads("blockwise", "drafter_path") and not reads("blockwise", "tolerance")
    assert not reads("blockwise", "top_beta") and not reads("blockwise", HEADS)
    assert reads("blockwise", "top_beta", {"acceptance": "top-k"})


def test_clusters_are_read_where_the_name_says_so():
    for name in ("greedy", "specdec self", "specdec++", "blockwise"):
        assert reads(f"{name} clustered", "vocab_clusters") and not reads(name, "vocab_clusters")
    for flag in ("drafter_path", "block_size", "top_beta"):
        for name in ("specdec", "specdec self", "specdec++", "blockwise"):
            assert reads(f"{name} clustered", flag) == reads(name, flag)
    assert "nat clustered" not in entries()


def test_certified_methods_read_what_the_others_do():
    for flag in ("drafter_path", "block_size", "top_beta"):
        for name in ("specdec", "specdec self", "blockwise", "greedy"):
            assert reads(f"{name} certified", flag) == reads(name, flag)
    never = {"nat certified", "specdec++ certified", "greedy clustered certified"}
    assert not {*never, "specdec clustered clustered drafts"} & {*entries()}


def test_scores_are_approximate_where_the_projection_is_certified():
    for name in ("specdec self certified", "greedy certified", "auto"):
        assert reads(name, "approximate_scores")
    assert not any(reads(name, "approximate_scores") for name in ("specdec self", "greedy", "beam"))


def test_drafts_of_what_is_certified_may_be_clustered():
    for flag in ("certified_projection", "drafter_vocab_clusters"):
        assert reads("specdec self certified clustered drafts", flag)
    assert not reads("specdec self certified", "drafter_vocab_clusters")
    assert not reads("specdec self clustered drafts", "certified_projection")


def test_methods_with_several_beams():
    beams = {name: beam_of(name) for name in ("greedy", "beam", "specdec beam", "fairseq beam 5")}
    assert beams == {"greedy": 1, "beam": 5, "specdec beam": 5, "fairseq beam 5": 5}
    for flag in ("top_beta", "tolerance", "certified_projection", "drafter_vocab_clusters"):
        assert not reads("specdec beam", flag)
    assert not {"specdec beam certified", "specdec beam clustered drafts"} & {*entries()}


@pytest.mark.parametrize("suffix, flag", SUFFIXES.items())
def test_the_flag_of_a_variant_is_read_by_it_alone(suffix, flag):
    assert reads(f"blockwise{suffix}", flag) and not reads("blockwise", flag)
    assert not any(reads(f"blockwise{other}", flag) for other in {*SUFFIXES} - {suffix})


@pytest.mark.parametrize("flag", ["drafter_path", "draft_confidence", "drafter_dtype"])
def test_input_guided_reads_a_drafter_that_is_its_fallback(flag):
    assert not reads("input-guided", flag)
    assert not reads("input-guided", flag, {"fallback": "ngram"})
    assert reads("input-guided", flag, {"fallback": "nat"})
    assert reads("specdec", flag, {"fallback": "nat"}) and reads("specdec", flag)
    assert reads("input-guided", "block_size") and reads("input-guided", "fallback")
    assert not reads("specdec", "fallback") and not reads("specdec self", flag)
