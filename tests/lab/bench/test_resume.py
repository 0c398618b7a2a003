"""The journal: what it keeps, what it refuses, and what an interrupted run resumes with."""

import json

import pytest
import torch

from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench import counters, timing
from specdec_plugin.lab.bench.methods import Method
from specdec_plugin.lab.bench.resume import Journal, Record
from specdec_plugin.lab.bench.timing import run_interleaved

OPTIONS = {"--block-size": 6, "--tolerance": float("inf"), "--betas": [1, 3]}


def statistics_of(drafted, kept, emitted, seconds=0.0):
    counted = Statistics()
    counted.count(drafted, kept, emitted)
    counted.sentences = len(emitted)
    counted.seconds["total"] = seconds
    return counted


def record(seconds, *tokens):
    counted = statistics_of([4], [2], [3], seconds)
    return Record(seconds, {7: torch.tensor(tokens), 9: torch.tensor([2])}, counted)


def test_statistics_are_stored_and_added_up():
    one, two = statistics_of([4, 4], [4, 1], [5, 2], 0.5), statistics_of([4], [0], [1], 0.25)
    both = counters.total([one, two])
    assert (both.sentences, both.tokens, both.iterations) == (3, 8, 3)
    assert both.draft_lengths == {4: 3} and both.kept_lengths == {4: 1, 1: 1, 0: 1}
    assert both.seconds["total"] == 0.75
    assert counters.from_json(json.loads(json.dumps(counters.to_json(both)))) == both
    assert one.tokens == 7  # the parts are left as they were


def test_a_journal_is_read_back(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    journal = Journal(path, OPTIONS)
    journal.add(0, {"greedy": record(0.5, 4, 5, 2), "beam": Record(1.0, {}, Statistics())})
    again = Journal(path, OPTIONS, resume=True).finished
    assert list(again) == [0] and again[0]["beam"] == Record(1.0, {}, Statistics())
    stored = again[0]["greedy"]
    assert stored.seconds == 0.5 and stored.tokens[7].tolist() == [4, 5, 2]
    assert stored.statistics == record(0.5).statistics


def test_a_line_that_was_being_written_is_dropped(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(str(path), OPTIONS)
    journal.add(0, {"greedy": record(0.5, 2), "beam": record(0.6, 2)})
    journal.add(1, {"greedy": record(0.7, 2), "beam": record(0.8, 2)})
    path.write_bytes(path.read_bytes()[:-9])
    journal = Journal(str(path), OPTIONS, resume=True)
    assert {*journal.finished} == {0, 1}
    assert {*journal.complete(["greedy", "beam"])} == {0}
    journal.add(1, {"greedy": record(0.9, 2), "beam": record(1.0, 2)})
    again = Journal(str(path), OPTIONS, resume=True).complete(["greedy", "beam"])
    assert again[1]["greedy"].seconds == 0.9


def test_without_resume_it_begins_anew(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    Journal(path, OPTIONS).add(0, {"greedy": record(0.5, 2)})
    assert Journal(path, {}).finished == {}
    assert Journal(path, {}, resume=True).finished == {}
    assert Journal(str(tmp_path / "new"), {}, resume=True).finished == {}


def test_other_options_are_refused(tmp_path):
    path = str(tmp_path / "journal.jsonl")
    Journal(path, OPTIONS)
    Journal(path, dict(OPTIONS), resume=True)
    for other in ({**OPTIONS, "--block-size": 4}, {**OPTIONS, "--seed": 1}):
        with pytest.raises(PluginError, match="leave --resume out"):
            Journal(path, other, resume=True)
    with pytest.raises(PluginError, match="--block-size 6, but now it is 4"):
        Journal(path, {**OPTIONS, "--block-size": 4}, resume=True)


def test_damage_inside_is_told(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(str(path), OPTIONS)
    with open(path, "ab") as file:
        file.write(b'{"batch": 0, "met\n{"batch": 1}\n')
    with pytest.raises(PluginError, match="Line 2 of"):
        Journal(str(path), OPTIONS, resume=True)


class Decoded:
    """Stands for decoding: counts an iteration and says which batches it was asked for."""

    def __init__(self, monkeypatch):
        self.asked = []
        monkeypatch.setattr(timing, "decode", self.decode)

    def decode(self, session, method, batch):
        self.asked.append((method.name, batch["number"]))
        if method.statistics is not None:
            method.statistics.count([1], [1], [2])
        return [[{"tokens": torch.tensor([batch["number"], 2])}]]


@pytest.fixture
def run(monkeypatch):
    decoded = Decoded(monkeypatch)
    batches = [{"number": n, "id": torch.tensor([10 + n])} for n in range(4)]

    def again(journal, **kwargs):
        decoded.asked.clear()
        methods = [Method("beam", None, None), Method("greedy", None, Statistics())]
        timings = run_interleaved(None, methods, batches, progress=False, journal=journal, **kwargs)
        return timings, methods[1].statistics, list(decoded.asked)

    return again


def test_an_interrupted_run_goes_on(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    whole, counted, _ = run(Journal(str(path), OPTIONS))
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:20], "utf-8")  # two batches and a half
    resumed, resumed_counts, asked = run(Journal(str(path), OPTIONS, resume=True), warm_up=1)
    assert resumed["beam"].seconds[:2] == whole["beam"].seconds[:2]
    assert [len(timing.seconds) for timing in resumed.values()] == [4, 4]
    assert sorted(resumed["greedy"].hypotheses) == [10, 11, 12, 13]
    assert resumed_counts.iterations == counted.iterations == 4
    assert [number for name, number in asked if name == "beam"] == [0, 2, 3]  # 0 to warm up
    finished, _, asked = run(Journal(str(path), OPTIONS, resume=True))
    assert asked == [] and finished["beam"].seconds == resumed["beam"].seconds


def test_repeats_count_once_and_the_first_place_rotates(run):
    _, counted, asked = run(None, repeats=2, warm_up=0, turn=3)
    assert counted.iterations == 4 and counted.tokens == 8
    turns = [("beam", [0, 1, 2]), ("greedy", [0, 1, 2]), ("greedy", [3]), ("beam", [3])]
    assert asked == [(name, number) for name, numbers in 2 * turns for number in numbers]


def test_a_pause_comes_before_each_batch_and_does_not_count(run, monkeypatch):
    slept = []
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: slept.append(seconds))
    timings, *_ = run(None, warm_up=1, pause=60.0)
    assert slept == [60.0] * 8
    assert sum(timings["beam"].seconds) < 60
    run(None)
    assert len(slept) == 8


def test_what_fairseq_did_is_told_by_its_longest_hypothesis():
    rows = [[{"tokens": torch.ones(length)} for length in lengths] for lengths in ([3, 5], [2])]
    counted = timing._searched(rows)
    assert (counted.sentences, counted.tokens, counted.iterations) == (2, 7, 7)


class Forgetful:
    """A generator that notes when it is to forget."""

    def __init__(self, asked):
        self.asked = asked

    def forget(self):
        self.asked.append("forget")


def test_nobody_knows_the_sentences_from_the_pass_before(monkeypatch):
    decoded = Decoded(monkeypatch)
    batches = [{"number": n, "id": torch.tensor([10 + n])} for n in range(3)]
    methods = [
        Method("jacobi", Forgetful(decoded.asked), Statistics()),
        Method("beam", object(), None),
    ]
    run_interleaved(None, methods, batches, repeats=2, warm_up=1, turn=2, progress=False)
    asked = [each if each == "forget" else each[1] for each in decoded.asked]
    assert asked[:2] == [0, 0]  # to warm up
    once = ["forget", 0, 1, 0, 1, 2, 2]
    assert asked[2:] == 2 * once


def test_the_fastest_repeat_counts(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    timings, *_ = run(Journal(str(path), OPTIONS), repeats=3, turn=2)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]
    assert len(lines) == 3 * 4 * 2
    for name, found in timings.items():
        for batch, seconds in enumerate(found.seconds):
            each = [x for x in lines if x["method"] == name and x["batch"] % 4 == batch]
            assert len(each) == 3 and seconds == min(x["seconds"] for x in each)


def test_an_interrupted_repeat_goes_on(run, tmp_path):
    path = tmp_path / "journal.jsonl"
    run(Journal(str(path), OPTIONS), repeats=2)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[: 1 + 2 * 5]), "utf-8")  # a pass, and a batch of the second
    _, counted, asked = run(Journal(str(path), OPTIONS, resume=True), repeats=2, warm_up=0, turn=2)
    assert counted.iterations == 4
    assert [number for name, number in asked if name == "beam"] == [1, 2, 3]
