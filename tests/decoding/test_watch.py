"""A long native call tells how far it is, and ends at Ctrl-C."""

import os
import random
import signal
import sys
import time

import pytest

from specdec_plugin.decoding import queue, watch
from tests.support import methods, tiny
from tests.support.compiled import needs_kernels

pytestmark = needs_kernels

SENTENCES = 41
LENGTHS = [random.Random(3).randint(1, 9) for _ in range(SENTENCES)]
WAYS = {"greedy": {}, "beam": {"options": {"beam": 3}}}


class Bar:
    """Stands for the bar; ``when_told`` is called at each change."""

    made = []

    def __init__(self, total, **options):
        self.total, self.sentences, self.tokens, self.changes = total, 0, 0, 0
        self.closed = False
        Bar.made.append(self)

    def add(self, sentences, tokens):
        assert sentences >= 0 and tokens >= 0
        self.sentences += sentences
        self.tokens += tokens
        self.changes += 1
        Bar.when_told()

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch):
    monkeypatch.setattr(watch, "PAUSE", 0.0)
    monkeypatch.setattr(watch, "Progress", Bar)
    Bar.made, Bar.when_told = [], staticmethod(lambda: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def decoder(way, sentences=SENTENCES, **changes):
    """A generator that shows its progress, and a function that decodes with it."""
    model = methods.verifier(way)
    generator = methods.generator(way, model, **WAYS[way])
    generator.shows_progress = changes.get("shown", True)
    sample = tiny.sample(LENGTHS[:sentences])

    def decode():
        return [rows[0]["tokens"].tolist() for rows in generator.generate([model], sample)]

    return decode


@pytest.mark.parametrize("way", WAYS)
def test_the_bar_shows_what_is_done(way):
    found = decoder(way)()
    (bar,) = Bar.made
    assert bar.total == SENTENCES and bar.closed
    assert bar.changes > 3 and 0 < bar.sentences <= SENTENCES
    if way == "greedy":
        lengths = [*map(len, found)]
        assert min(lengths) > 1
        assert bar.sentences * min(lengths) <= bar.tokens <= sum(lengths)


@pytest.mark.parametrize("way", WAYS)
def test_a_bar_is_shown_where_it_is_wanted_and_for_many_sentences(way):
    decoder(way, shown=False)()
    decoder(way, sentences=watch.LEAST - 1)()
    assert not Bar.made


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_the_call_and_the_next_one_is_whole(way):
    decode = decoder(way)
    expected = decode()
    Bar.when_told = staticmethod(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        decode()
    interrupted = Bar.made[-1]
    assert interrupted.closed and interrupted.sentences < SENTENCES
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    Bar.when_told = staticmethod(lambda: None)
    assert decode() == expected


def test_after_ctrl_c_scores_of_the_next_batch_are_its_own(monkeypatch):
    """A certified verifier makes log-probabilities of scores some iterations later."""
    monkeypatch.setattr(queue, "rows_at_once", lambda engine, beams=1: 1)
    model, sample = methods.verifier("certified"), tiny.sample(LENGTHS)
    generator = methods.generator("certified", model)
    generator.shows_progress = True

    def interrupt(left):
        if left and left.pop():
            signal.raise_signal(signal.SIGINT)

    def scores():
        found = generator.generate([model], sample)
        return [best["positional_scores"].tolist() for best, *_ in found]

    expected = scores()
    for iteration in range(2, 6):  # within a sentence
        left = [signal.SIGINT, *[0] * iteration]
        Bar.when_told = staticmethod(lambda left=left: interrupt(left))
        with pytest.raises(KeyboardInterrupt):
            scores()
        Bar.when_told = staticmethod(lambda: None)
        assert scores() == expected


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def handle(request):
    """Sets a handler of a signal, which comes whenever something is told."""
    before = signal.getsignal(request.param)
    Bar.when_told = staticmethod(lambda: signal.raise_signal(request.param))
    yield lambda handler: signal.signal(request.param, handler)
    signal.signal(request.param, before)


def test_a_handler_of_the_program_stays(handle):
    noted = []
    handle(lambda number, frame: noted.append(number))
    assert len(decoder("greedy")()) == SENTENCES
    assert noted


def test_what_a_handler_of_the_program_raises_ends_the_call(handle):
    def end(number, frame):
        raise SystemExit(7)

    handle(end)
    with pytest.raises(SystemExit, match="7"):
        decoder("greedy")()
    assert Bar.made[-1].sentences < SENTENCES


def run_threads_on(processors):
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), processors)


@pytest.fixture(params=["all", "one"])
def processors(request):
    """All threads may run anywhere, or they share a processor and take turns there."""
    if request.param == "all":
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux lets a program choose its processors")
    before = os.sched_getaffinity(0)
    run_threads_on({min(before)})
    yield
    run_threads_on(before)


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_while_another_worker_has_the_last_sentence(way):
    model = methods.verifier(way, 7, max_target_positions=9000)

    def made(max_len):
        limit = {**WAYS[way].get("options", {}), "max_len_b": max_len}
        return methods.generator(way, model, options=limit, decoding_workers=2)

    sources = tiny.sample(LENGTHS)
    found = made(100).generate([model], sources)
    lengths = [max(len(each["tokens"]) for each in rows) for rows in found]
    assert min(lengths) < 50 and max(lengths) > 100
    shortest, longest = (lengths.index(most(lengths)) for most in (min, max))
    generator = made(8000)
    generator.shows_progress = True

    ended = []

    def interrupt():
        if Bar.made[-1].sentences:
            ended.append(time.monotonic())
        if ended and time.monotonic() > ended[0] + 0.01:  # the other worker is done since then
            signal.raise_signal(signal.SIGINT)

    Bar.when_told = staticmethod(interrupt)
    short = [shortest] * 15
    for chosen in ([*short, longest], [longest, *short]):  # either worker may have the long one
        inputs = {name: each[chosen] for name, each in sources["net_input"].items()}
        ended.clear()
        with pytest.raises(KeyboardInterrupt):
            generator.generate([model], {**sources, "net_input": inputs})


@pytest.fixture
def handled():
    """Two signals whose handlers tell their names; that of SIGUSR1 raises."""
    ran = []

    def tells(number, frame):
        ran.append(signal.Signals(number).name)
        if number == signal.SIGUSR1:
            raise InterruptedError

    numbers = signal.SIGUSR1, signal.SIGTERM
    before = [signal.signal(number, tells) for number in numbers]
    yield ran
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("told", [True, False])
def test_a_handler_that_raises_loses_no_other_signal(handled, told):
    with pytest.raises(InterruptedError), watch.Watch(1, False) as watched:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGTERM)
        if told:
            assert watched._told(0, 0) == 1
    assert handled == ["SIGUSR1", "SIGTERM"]


def test_ctrl_c_counts_more_than_what_another_handler_has_raised(handled):
    """A program that catches timeouts must not go on after it."""
    with pytest.raises(KeyboardInterrupt), watch.Watch(1, False) as watched:
        signal.raise_signal(signal.SIGUSR1)
        assert watched._told(0, 0) == 1
        signal.raise_signal(signal.SIGINT)
    assert handled == ["SIGUSR1"]


@pytest.mark.parametrize(
    "number, when, error",
    [
        (signal.SIGINT, "left", KeyboardInterrupt),
        (signal.SIGUSR1, "left", InterruptedError),
        (signal.SIGUSR1, "entered", InterruptedError),
    ],
)
def test_a_handler_that_raises_while_others_are_changed(handled, number, when, error, monkeypatch):
    """All handlers are those of before."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    before = [signal.getsignal(each) for each in numbers]
    change, raised = signal.signal, []

    def interrupted(each, handler):
        found = change(each, handler)
        changing = (handler in before) == (when == "left")
        if changing and not raised and signal.getsignal(number) in before:
            raised.append(each)
            signal.raise_signal(number)
        return found

    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(error), watch.Watch(1, False):
        pass
    monkeypatch.undo()
    assert raised and [signal.getsignal(each) for each in numbers] == before
