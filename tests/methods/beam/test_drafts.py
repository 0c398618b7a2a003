"""Speculative beam search: whoever searches ahead, the lists stay fairseq's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import CachedDecoder
from specdec_plugin.methods.beam.guard import ALL, TRIAL, BatchGuard
from specdec_plugin.methods.beam.native import StepDrafter
from tests.support import methods, tiny
from tests.support.command_lines import generate_args, run_cli
from tests.support.nbest import assert_fairseqs_lists, assert_same_lists, ours, reference
from tests.support.search import MODELS

DTYPES = [torch.float32, torch.int8, torch.int4]


@pytest.fixture
def always(monkeypatch):
    """Draft in every batch, however slow."""
    monkeypatch.setattr(BatchGuard, "drafts", lambda self: ALL)


@pytest.mark.usefixtures("always")
@given(
    st.integers(0, 2),
    st.sampled_from(DTYPES),
    st.integers(1, 9),
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.integers(0, 99),
    st.integers(1, 6),
    st.fixed_dictionaries(
        {
            "max_len_b": st.integers(2, 40),
            "min_len": st.integers(0, 2),
            "unk_penalty": st.sampled_from([0.0, 1.5]),
            "len_penalty": st.sampled_from([0.6, 1.0, 1.4]),
            "no_repeat_ngram_size": st.sampled_from([0, 2]),
        }
    ),
)
@settings(max_examples=80)
def test_any_drafter(other, dtype, block, lengths, seed, beams, options):
    """Weights of the model itself, rounded or not, or of another one."""
    sample = tiny.sample(lengths, seed)
    drafter = StepDrafter(CachedDecoder(MODELS[other].decoder, dtype), block)
    found = ours(MODELS[:1], sample, beams, ahead=drafter, **options)
    assert_fairseqs_lists(found, MODELS[:1], sample, beams, **options)


@pytest.mark.usefixtures("always")
@given(st.integers(0, 99), st.integers(1, 5), st.lists(st.integers(4, 15), max_size=4))
@settings(max_examples=30)
def test_behind_a_prefix(seed, beams, line):
    sample, prefix = tiny.sample([5], seed), torch.tensor([line]) if line else None
    drafter = StepDrafter(CachedDecoder(MODELS[0].decoder, torch.int8), 4)
    found = ours(MODELS[:1], sample, beams, prefix, ahead=drafter, max_len_b=12)
    assert_fairseqs_lists(found, MODELS[:1], sample, beams, prefix, max_len_b=12)


@pytest.mark.usefixtures("always")
def test_beyond_the_first_room_of_the_cache():
    model = tiny.model(3, max_target_positions=400)
    sample, options = tiny.sample([5], 1), dict(max_len_b=300, min_len=280)
    drafter = StepDrafter(CachedDecoder(model.decoder, torch.int8), 8)
    expected = reference([model], sample, 3, **options)
    assert_same_lists(ours([model], sample, 3, ahead=drafter, **options), expected)


STEPS = 24


def search(guard, cost, gain):
    """A sentence of 24 steps; the time that it takes in steps, and whether all was drafted.

    Args:
        guard: is asked, and told.
        cost: of a draft and its verification, in steps.
        gain: steps that they save.
    """
    passes = min(guard.drafts(), STEPS // gain)
    steps = [STEPS - passes * gain, passes * gain]
    seconds = [float(steps[0]), passes * float(cost)]
    guard.record(seconds, steps)
    return sum(seconds), steps[0] == 0


@pytest.mark.parametrize("cost", [1.1, 2, 7, 20])
def test_slow_drafts_cost_little(cost):
    """However slow: a trial may lose the time of some steps, and then a two-hundredth of all."""
    guard = BatchGuard()
    spent = sum(search(guard, cost, 1)[0] for _ in range(1000))
    assert spent - 1000 * STEPS <= TRIAL * (cost - 1) + 32 + 0.0051 * spent


def test_what_loses_nothing_is_tried_now_and_then():
    guard = BatchGuard()
    drafts = []
    for _ in range(320):
        passes = min(guard.drafts(), STEPS)
        drafts.append(passes)
        guard.record([float(STEPS - passes), float(passes)], [STEPS - passes, passes])
    assert 10 <= sum(map(bool, drafts)) <= 12 and set(drafts) == {0, TRIAL}


def test_fast_drafts_are_settled_on():
    guard = BatchGuard()
    drafted = [search(guard, 2, 4)[1] for _ in range(200)]
    assert sum(drafted) >= 190 and drafted[40:60] == [True] * 20


@pytest.mark.parametrize("before, after", [((2, 4), (6, 3)), ((6, 3), (2, 4))])
def test_the_guard_notices_a_change(before, after):
    guard = BatchGuard()
    first = [search(guard, *before)[1] for _ in range(200)]
    second = [search(guard, *after)[1] for _ in range(400)][-200:]
    slow, fast = (second, first) if before == (2, 4) else (first, second)
    assert sum(fast) >= 190 and sum(slow) == 0


def test_the_guard_forgets():
    guard = BatchGuard()
    for _ in range(50):
        search(guard, 2, 4)
    guard.forget()
    assert [guard.drafts() for _ in range(2)] == [0, TRIAL]


def test_a_search_forgets_what_its_guard_measured():
    model = methods.verifier("self-draft")
    search = methods.generator("self-draft", model, options={"beam": 2}, draft_rows=-1)
    search.forget()  # nothing was decoded
    search.generate([model], tiny.sample([5]))
    guard = search.loop._native.guard
    assert guard.spent > 0
    search.forget()
    assert guard.spent == 0


def test_the_guard_learns_from_batches_alone_in_which_it_chose():
    """Several workers share the threads, so that a step of one takes longer."""
    model = methods.verifier("self-draft")
    flags = {"options": {"beam": 2}, "decoding_workers": 2, "draft_rows": -1}
    search = methods.generator("self-draft", model, **flags)
    search.generate([model], tiny.sample([5, 4, 3, 6] * 4))
    guard = search.loop._native.guard
    assert guard.spent == 0
    search.generate([model], tiny.sample([5]))
    assert guard.spent > 0


def test_command_lines(corpus, tiny_verifier):
    beams = ["--beam", 3, "--nbest", 3, "--batch-size", 1]
    plain = run_cli(generate_args(corpus.data_dir, tiny_verifier, *beams, "--decoding", "beam"))
    found = run_cli(generate_args(corpus.data_dir, tiny_verifier, *beams, "--decoding", "specdec"))

    def lists(printed):
        return [line for line in printed.splitlines() if line.startswith("H-")]

    assert lists(found.stdout) == lists(plain.stdout)
    assert "speculative beam search: " in found.stderr


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--top-beta", 3], "--top-beta 3 would have no effect in the beam search"),
        (["--certified-projection"], "--certified-projection would have no effect in the beam"),
        (["--nbest", 4], "--nbest 4 with --beam 2"),
    ],
)
def test_refusals(corpus, tiny_verifier, more, sentence):
    more = ["--decoding", "specdec", "--beam", 2, *more]
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more), check=False)
    assert done.returncode == 1 and sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trained_drafter_has_no_beams(corpus, tiny_verifier, tiny_drafter):
    more = ["--decoding", "specdec", "--drafter-path", tiny_drafter, "--beam", 3]
    done = run_cli(generate_args(corpus.data_dir, tiny_verifier, *more), check=False)
    assert done.returncode == 1 and "--beam 3 cannot be kept with --decoding specdec" in done.stderr
