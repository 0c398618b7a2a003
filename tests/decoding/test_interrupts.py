"""Ctrl-C while the kernels decode a whole batch in one call."""

import os
import signal
import threading
import time

import pytest

from specdec_plugin.engine import NativeBackend
from tests.support import methods as ways
from tests.support import tiny

#: So large and so long that a batch takes several seconds.
LARGE = {"decoder_layers": 4, "decoder_embed_dim": 256, "decoder_ffn_embed_dim": 1024}
LARGE |= {"encoder_embed_dim": 256, "max_target_positions": 1200}
#: Seconds after which Ctrl-C is pressed, and in which the call has to end.
PRESSED, MOST = 0.5, 1.0


@pytest.fixture(scope="module")
def model():
    return ways.verifier("greedy", **LARGE)


@pytest.fixture(autouse=True)
def pythons_own_handler():
    """A shell lets what it starts in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("sentences, workers", [(32, 1), (32, 2), (8, 1)])
@pytest.mark.parametrize("method, beam", [("greedy", 1), ("beam", 2)])
def test_it_ends_within_a_second(model, method, beam, sentences, workers):
    def generator(**lengths):
        options = {"beam": beam, **lengths}
        return ways.generator(method, model, NativeBackend(), options, decoding_workers=workers)

    sample, short = tiny.sample([5] * sentences, 1), tiny.sample([5, 3, 4], 2)
    long = generator(min_len=1000, max_len_b=1100)
    press = threading.Timer(PRESSED, os.kill, [os.getpid(), signal.SIGINT])
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        press.start()
        long.generate([], sample)
    assert PRESSED <= time.perf_counter() - begin < PRESSED + MOST
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Nothing is left of it.
    for each in (generator(max_len_b=9), generator(max_len_b=9)):
        first = [[one["tokens"].tolist() for one in row] for row in each.generate([], short)]
        again = [[one["tokens"].tolist() for one in row] for row in each.generate([], short)]
        assert first == again and all(row[0][-1] == 2 for row in first)
