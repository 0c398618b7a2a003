"""A part of ``make fuzz``, with the damage that once was not told in a sentence."""

import mmap
import os
import signal

import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab.store import States, StateStore
from tests.faults import fuzz, kill

#: Seeds that ended a reader with a bare traceback, or not at all.
FOUND = {
    "model": [0, 3, 12, 62, 1017, 1037, 1417],
    "heads": [2, 9, 11, 16, 20, 22, 186, 625, 1041],
    "drafter": [9, 12, 15, 60, 1044, 500311],
    "average": [13, 1014, 1027],
    "dictionary": [0, 2, 5, 9],
    "states": [0, 3, 7, 8, 9, 13, 20],
    "journal": [0, 5, 8, 9, 10, 23],
    "shard": [10],
    "import": [8, 122, 466, 500126, 500488],
}
SLOW = ("import",)  # which imports transformers


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in fuzz.READERS],
)
def test_damaged_files_are_read_or_refused(name, tmp_path):
    target = fuzz.Target(name, tmp_path / "files")
    seen = [(seed, target.case(seed)) for seed in [*FOUND.get(name, []), *range(2000, 2006)]]
    wrong = [(seed, each) for seed, each in seen if each.what not in fuzz.OUTCOMES.values()]
    assert not wrong
    assert all(each.told for _, each in seen if each.what == "refused")


@pytest.mark.parametrize(
    ("work", "what"),
    [
        (lambda: None, "read"),
        (lambda: (_ for _ in ()).throw(PluginError("no")), "refused"),
        (lambda: {}["no"], "fails without a sentence"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crashes with SIGSEGV"),
        (lambda: bytearray(4 << 30), "fails without a sentence"),
    ],
)
def test_the_fuzzer_tells_how_a_process_ended(work, what, tmp_path):
    assert fuzz.run(work, tmp_path, wild=1 << 30).what == what


def test_the_fuzzer_measures_memory_and_time(tmp_path, monkeypatch):
    def take() -> None:
        with mmap.mmap(-1, 64 << 20) as memory:  # not what an earlier test has left in the heap
            for page in range(0, len(memory), mmap.PAGESIZE):
                memory[page] = 1

    assert fuzz.run(take, tmp_path).peak >= 60 << 20
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    assert fuzz.run(signal.pause, tmp_path).what == "hangs"


DAMAGED = r"are damaged or incomplete\. Remove the folder"


def test_states_without_the_end_of_their_last_batch(tmp_path):
    store = StateStore(str(tmp_path), {}, 4, 2)
    store.append(torch.zeros(5, 4), torch.zeros(5, 2))
    store.append(torch.ones(3, 4), torch.ones(3, 2))
    os.truncate(tmp_path / "states", 8 * 4 * 2 - 11)
    with pytest.raises(PluginError, match=DAMAGED):
        States([str(tmp_path)])
    again = StateStore(str(tmp_path), {}, 4, 2)
    assert (again.count, again.batches) == (5, 1)
    again.append(torch.ones(3, 4), torch.ones(3, 2))
    states = torch.cat([torch.tensor(chunk) for chunk, _ in States([str(tmp_path)]).chunks()])
    assert states.sum(1).tolist() == [0] * 5 + [4] * 3


def test_states_without_more_than_that(tmp_path):
    store = StateStore(str(tmp_path), {}, 4, 2)
    for _ in range(2):
        store.append(torch.zeros(5, 4), torch.zeros(5, 2))
    os.truncate(tmp_path / "states", 11)
    for use in (lambda: States([str(tmp_path)]), lambda: StateStore(str(tmp_path), {}, 4, 2)):
        with pytest.raises(PluginError, match=DAMAGED):
            use()


@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("lost", ["its end", "all of it"])
def test_states_without_their_newest_note(tmp_path, batches, lost):
    store = StateStore(str(tmp_path), {}, 4, 2)
    for _ in range(batches):
        store.append(torch.zeros(5, 4), torch.zeros(5, 2))
    note = tmp_path / "progress.json"
    if lost == "its end":
        os.truncate(note, note.stat().st_size - 3)
    else:
        note.unlink()
    again = StateStore(str(tmp_path), {}, 4, 2)
    assert again.batches == max(0, batches - 1)
    again.append(torch.zeros(5, 4), torch.zeros(5, 2))
    assert len(States([str(tmp_path)])) == 5 * again.batches


@pytest.mark.slow
@pytest.mark.parametrize("program", kill.PROGRAMS)
def test_killed_programs_resume(program):
    with pytest.raises(SystemExit) as ended:
        kill.main(["--kills", "2", "--program", program])
    assert not ended.value.code
