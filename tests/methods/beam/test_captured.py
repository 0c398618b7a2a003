"""A GPU's beam search, on a CPU: its steps may be captured, and its lists are fairseq's."""

import gc
import random
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import GraphBackend, build_engine
from specdec_plugin.engine.graphs import tensors as module
from specdec_plugin.engine.graphs.capture import CAPTURED_AT, Replayed
from specdec_plugin.methods.beam import search as searches
from specdec_plugin.methods.beam.captured import CapturedBeamSearch
from specdec_plugin.methods.beam.search import BeamSearch
from tests.support import tiny
from tests.support.nbest import assert_same_lists, reference
from tests.support.search import MODELS, SYMBOLS

SEVERAL = [3, 6, 0, 2, 7, 5, 1, 4, 9, 2, 8]
#: A model whose sentences end at many lengths.
UNEVEN = tiny.model(
    28,
    share_all_embeddings=False,
    share_decoder_input_output_embed=False,
    decoder_normalize_before=True,
)


class Ours:
    """A generator of one model that stays, as that of a command line does."""

    def __init__(self, model, beams, **lengths):
        self.models, self.statistics = [model], Statistics()
        options = Lengths(max_positions=model.max_decoder_positions(), **lengths)
        self.engine = build_engine(model, backend=GraphBackend())
        self.verifier = Verifier([self.engine], self.statistics)
        search = BeamSearch(self.verifier, self.statistics, options, beams)
        self._generator = ParallelGenerator(
            self.models, SYMBOLS, search, self.statistics, options, backend=GraphBackend()
        )

    def __call__(self, sample, prefix=None):
        return self._generator.generate(self.models, sample, prefix_tokens=prefix)


@pytest.fixture(autouse=True)
def never_the_other(monkeypatch):
    """Fail where PyTorch's operators search one by one."""
    monkeypatch.setattr(searches, "TorchBeamSearch", None)


@pytest.fixture
def replayed(monkeypatch):
    """Works that were captured, by size; a replay does what the captured call did, as a GPU's."""
    works = []

    def call(self, work):
        self._runs += 1
        if self._runs == CAPTURED_AT:
            works.append(work)
            self._graph = work
        (self._graph or work)()

    monkeypatch.setattr(Replayed, "__call__", call)
    return works


class Shapes(TorchDispatchMode):
    """Refuses operators whose result's size or value the host would have to wait for."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero"}, name
        indices = args[1] if name in {"index", "index_put_"} else ()
        assert all(each is None or each.dtype != torch.bool for each in indices), name
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 8, 24, 64])
def test_replays_of_batches_one_after_another(size, beams, replayed):
    choose = random.Random(size)
    lengths = dict(max_len_b=30, min_len=2, unk_penalty=0.5, len_penalty=0.8)
    found = Ours(UNEVEN, beams, **lengths)
    for seed in range(3):
        sample = tiny.sample([choose.randint(0, 9) for _ in range(size)], seed)
        assert_same_lists(found(sample), reference([UNEVEN], sample, beams, **lengths))
    assert replayed


@pytest.mark.usefixtures("replayed")
def test_limits_of_batches_one_after_another():
    """The limit of a batch is no part of what is captured."""
    options = dict(max_len_a=0.8, max_len_b=2, min_len=0)
    found = Ours(UNEVEN, 3, **options)
    for length in (9, 3, 6, 1):
        sample = tiny.sample([length, 1], length)
        assert_same_lists(found(sample), reference([UNEVEN], sample, 3, **options))


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("learned", [False, True])
def test_growing_tensors(learned, monkeypatch):
    """Behind the first room of the caches, and behind the first table of positions."""
    model = tiny.model(3, max_target_positions=400, decoder_learned_pos=learned)
    options = dict(max_len_b=370, min_len=330)
    found = Ours(model, 3, **options)
    for seed in (1, 2):
        sample = tiny.sample([5, 2, 4], seed)
        assert_same_lists(found(sample), reference([model], sample, 3, **options))


def test_learned_positions_that_end():
    model = tiny.model(3, max_target_positions=20, decoder_learned_pos=True)
    options = dict(max_len_b=100, min_len=15)
    sample = tiny.sample([5, 2, 4], 1)
    found = Ours(model, 4, **options)(sample)
    assert_same_lists(found, reference([model], sample, 4, max_len_b=19, min_len=15))


def test_steps_wait_for_nothing(monkeypatch):
    call = Replayed.__call__

    def checked(self, work):
        with Shapes():
            call(self, work)

    monkeypatch.setattr(Replayed, "__call__", checked)
    lengths = dict(max_len_b=30, min_len=2, unk_penalty=0.5)
    sample = tiny.sample(SEVERAL, 1)
    assert_same_lists(Ours(UNEVEN, 4, **lengths)(sample), reference([UNEVEN], sample, 4, **lengths))


def test_done_sentences_leave(monkeypatch):
    """Where half of them are done, and not before."""
    left = []
    leave = CapturedBeamSearch._leave

    def noted(self, rows):
        left.append((len(rows), len(self._order)))
        leave(self, rows)

    monkeypatch.setattr(CapturedBeamSearch, "_leave", noted)
    sample = tiny.sample(SEVERAL * 3, 2)
    Ours(UNEVEN, 2, max_len_b=40)(sample)
    assert len(left) > 1 and all(2 * some <= every for some, every in left)
    assert left[0][1] == len(SEVERAL) * 3
    assert [some for some, _ in left[:-1]] == [every for _, every in left[1:]]


class ChosenError(Exception):
    """The other search was chosen."""


def test_what_is_not_captured(monkeypatch):
    """Forced prefixes, n-grams, and lengths of the source."""
    sample = tiny.sample([3, 5], 1)
    batches = []

    class Other:
        def __init__(self, verifier, lengths, beams, batch):
            batches.append(batch)
            self.batch = batch

        def run(self):
            raise ChosenError

    monkeypatch.setattr(searches, "TorchBeamSearch", Other)
    for options, prefix, beams in (
        ({}, torch.tensor([[5], [6]]), 2),
        ({"no_repeat_ngram_size": 2}, None, 2),
        ({"match_source_len": True}, None, 2),
        ({}, None, 8),
    ):
        with pytest.raises(ChosenError):
            Ours(MODELS[0], beams, max_len_b=6, **options)(sample, prefix)
    assert len(batches) == 4


def test_changed_weights():
    model = tiny.model(2)
    found, sample = Ours(model, 3, max_len_b=9), tiny.sample([3, 5], 1)
    for _ in range(3):
        assert_same_lists(found(sample), reference([model], sample, 3, max_len_b=9))
        with torch.no_grad():
            model.decoder.embed_tokens.weight.mul_(1.2)


def test_what_is_dropped_is_freed_at_once(monkeypatch):
    """Memory of a GPU does not wait for Python's collector."""
    monkeypatch.setattr(module, "_KEPT", 1)
    found, dropped = Ours(MODELS[0], 2, max_len_b=9), []
    start = found.verifier.start

    def noted(*arguments):
        start(*arguments)
        dropped.append(weakref.ref(found.verifier.states[0]._lease.tensors))

    monkeypatch.setattr(found.verifier, "start", noted)
    gc.collect()
    gc.disable()
    try:
        for size in (1, 5, 9):
            found(tiny.sample([3] * size, 1))
        assert [each() is None for each in dropped] == [True, True, False]
    finally:
        gc.enable()
