import errno
import json
import os

import numpy as np
import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab import store
from specdec_plugin.vocab.store import States, StateStore, open_store

IDENTITY = {"decoder": 1, "dictionary": 2, "data": "train"}


def batch(number, size):
    states = torch.full((size, 4), float(number)) + torch.arange(size).unsqueeze(1) / 16
    return states, torch.full((size, 3), number)


def fill(folder, numbers, size=5, **identity):
    opened = StateStore(str(folder), {**IDENTITY, **identity}, 4, 3)
    for number in numbers[opened.batches :]:
        opened.append(*batch(number, size))
    return str(folder)


def test_the_rest_of_a_batch_that_was_begun(tmp_path):
    for size, whole in ((2, False), (2, False), (1, True)):
        opened = StateStore(str(tmp_path / "a"), IDENTITY, 4, 3)
        rest = slice(opened.begun, opened.begun + size)
        states, tokens = batch(1, 5)
        opened.append(states[rest], tokens[rest], whole)
    again = StateStore(str(tmp_path / "a"), IDENTITY, 4, 3)
    assert (again.count, again.batches, again.begun) == (5, 1, 0)
    ((found, _),) = States([str(tmp_path / "a")]).chunks()
    assert np.array_equal(found, batch(1, 5)[0].numpy())


def test_interrupted_recording_goes_on(tmp_path):
    folder = fill(tmp_path / "a", [1, 2])
    for name in ("states", "tokens"):  # killed in the middle of a batch
        with open(tmp_path / "a" / name, "ab") as file:
            file.write(b"rubbish" * 3)
    fill(tmp_path / "a", [1, 2, 3])
    states = States([folder])
    (found,) = list(states.chunks())
    assert np.array_equal(found[0], torch.cat([batch(n, 5)[0] for n in (1, 2, 3)]).numpy())
    assert np.array_equal(found[1], torch.cat([batch(n, 5)[1] for n in (1, 2, 3)]).numpy())


@pytest.mark.parametrize("where", ["json.dumps", "os.fsync", "os.replace"])
def test_an_error_in_the_middle_of_a_batch(tmp_path, monkeypatch, where):
    """What was recorded before stays, and the batch is recorded again."""
    folder = fill(tmp_path / "a", [1, 2])
    files = {path.name for path in (tmp_path / "a").iterdir()}
    opened = StateStore(folder, IDENTITY, 4, 3)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr(where, full)
        with pytest.raises(OSError, match="No space left"):
            opened.append(*batch(3, 5))
    assert {path.name for path in (tmp_path / "a").iterdir()} == files
    assert len(States([folder])) == 10
    states = States([fill(tmp_path / "a", [1, 2, 3])])
    (found,) = list(states.chunks())
    assert np.array_equal(found[1], torch.cat([batch(n, 5)[1] for n in (1, 2, 3)]).numpy())


def test_states_are_on_the_disk_before_the_note_that_tells_of_them(tmp_path, monkeypatch):
    opened, folder = StateStore(str(tmp_path / "a"), IDENTITY, 4, 3), tmp_path / "a"
    events, forced, replace = [], os.fsync, os.replace

    def noted(number):
        names = {path.stat().st_ino: path.name for path in folder.iterdir()}
        assert os.fstat(number).st_size > 0  # nothing waits in Python's own buffer
        events.append(names[os.fstat(number).st_ino])
        forced(number)

    def named(source, target):
        events.append(f"named {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", named)
    opened.append(*batch(1, 5))
    assert {"states", "tokens"} <= set(events[: events.index("named progress.json")])


@pytest.mark.parametrize("name", ["dim", "top_k"])
def test_a_note_of_states_without_numbers_is_damaged(name, tmp_path):
    folder = fill(tmp_path / "a", [1])
    note = tmp_path / "a" / "progress.json"
    known = json.loads(note.read_text("utf-8"))
    known["identity"][name] = 0
    note.write_text(json.dumps(known), "utf-8")
    with pytest.raises(PluginError, match="damaged or incomplete"):
        States([folder])


@pytest.mark.parametrize("name", ["count", "batches"])
def test_a_note_of_fewer_states_than_none_is_damaged(name, tmp_path):
    folder = fill(tmp_path / "a", [1])
    note = tmp_path / "a" / "progress.json"
    note.write_text(json.dumps({**json.loads(note.read_text("utf-8")), name: -1}), "utf-8")
    with pytest.raises(PluginError, match="damaged or incomplete"):
        States([folder])


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PluginError, match="file/states"):
        fill(tmp_path / "file" / "states", [1])


def test_one_process_appends_to_a_folder(tmp_path):
    given = str(tmp_path / "a"), IDENTITY, 4, 3
    refused = pytest.raises(PluginError, match="a is being written by another process")
    with open_store(*given) as opened:
        opened.append(*batch(1, 5))
        with refused, open_store(*given):
            pass
        opened.append(*batch(2, 5))
    with open_store(*given) as again:
        assert (again.count, again.batches) == (10, 2)


def test_a_system_that_locks_nothing(tmp_path, monkeypatch):
    def unable(*args):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unable)
    with open_store(str(tmp_path / "a"), IDENTITY, 4, 3) as opened:
        opened.append(*batch(1, 5))
    assert len(States([str(tmp_path / "a")])) == 5


def test_other_options_do_not_go_on(tmp_path):
    fill(tmp_path / "a", [1])
    with pytest.raises(PluginError, match="recorded with data train, and now it is valid"):
        fill(tmp_path / "a", [1, 2], data="valid")


def test_a_folder_without_states_takes_other_options(tmp_path):
    fill(tmp_path / "a", [])
    assert len(States([fill(tmp_path / "a", [1], data="valid")])) == 5


def test_after_a_loss_of_power_the_note_before_counts_where_recording_goes_on(tmp_path):
    folder = fill(tmp_path / "a", [1, 2])
    note = tmp_path / "a" / "progress.json"
    note.write_bytes(note.read_bytes()[:9])
    with pytest.raises(PluginError, match="damaged or incomplete"):
        States([folder])
    assert StateStore(folder, IDENTITY, 4, 3).batches == 1
    ((_, tokens),) = States([fill(tmp_path / "a", [1, 2, 3])]).chunks()
    assert np.array_equal(tokens, torch.cat([batch(n, 5)[1] for n in (1, 2, 3)]).numpy())


def test_a_kill_after_a_loss_of_power_loses_nothing(tmp_path, monkeypatch):
    folder = fill(tmp_path / "a", [1, 2])
    (tmp_path / "a" / "progress.json").write_bytes(b"{")
    opened = StateStore(folder, IDENTITY, 4, 3)
    assert len(States([folder])) == 5

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("json.dumps", killed)  # between the note before and the newest one
        with pytest.raises(KeyboardInterrupt):
            opened.append(*batch(2, 5))
    assert StateStore(folder, IDENTITY, 4, 3).batches == 1


@pytest.mark.parametrize("stored", [False, True])
def test_a_damaged_note_is_told_unless_nothing_can_be_lost(stored, tmp_path):
    fill(tmp_path / "a", [1] if stored else [])
    for note in (tmp_path / "a").glob("progress*"):
        note.write_bytes(b"{")
    if not stored:
        assert len(States([fill(tmp_path / "a", [1])])) == 5
        return
    with pytest.raises(PluginError, match="damaged or incomplete"):
        fill(tmp_path / "a", [1])


def test_several_folders_in_any_order_and_sampled(tmp_path):
    folders = [fill(tmp_path / name, [number], size=7) for name, number in (("a", 1), ("b", 5))]
    states = States(folders)
    assert (len(states), states.dim, states.top_k) == (14, 4, 3)
    whole = np.concatenate([each for each, _ in states.chunks()])
    for seed in range(3):
        chunks = list(states.chunks(seed, size=3))
        assert max(len(each) for each, _ in chunks) == 3
        mixed = np.concatenate([each for each, _ in chunks])
        assert np.array_equal(np.sort(mixed, axis=0), np.sort(whole, axis=0))
        for each, tokens in chunks:
            assert (tokens[:, 0] == each[:, 0].astype(int)).all()
        drawn = states.sample(6, seed)
        assert len(np.unique(drawn, axis=0)) == 6
        assert {tuple(row) for row in drawn} <= {tuple(row) for row in whole}
    assert len(states.sample(99, 0)) == 14


def test_of_folders_with_more_and_fewer_tokens_each_state_has_the_fewer(tmp_path):
    fewer = StateStore(str(tmp_path / "b"), IDENTITY, 4, 2)
    fewer.append(torch.ones(5, 4), torch.ones(5, 2))
    states = States([fill(tmp_path / "a", [1]), str(tmp_path / "b")])
    assert states.top_k == 2 and {tokens.shape for _, tokens in states.chunks()} == {(5, 2)}


def test_of_the_first_folder_so_many_states_count(tmp_path):
    folders = [fill(tmp_path / name, [number]) for name, number in (("a", 1), ("b", 5))]
    states = States(folders, 2)
    assert len(states) == 7 and len(States(folders, 9)) == 10
    whole = np.concatenate([tokens[:, 0] for _, tokens in states.chunks()])
    assert whole.tolist() == [1] * 2 + [5] * 5
    assert (states.sample(99, 0)[:, 0] < 2).sum() == 2


def test_samples_and_orders_of_many_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "CHUNK", 2)
    states = States([fill(tmp_path / "a", [1, 3])])
    whole = np.concatenate([each for each, _ in states.chunks()])
    assert np.array_equal(np.sort(states.sample(10, 0), axis=0), np.sort(whole, axis=0))
    recorded, mixed = ([each[0, 0] for each, _ in states.chunks(seed, 1)] for seed in (None, 1))
    assert mixed != recorded == sorted(mixed)


def test_folders_that_do_not_fit(tmp_path):
    one = fill(tmp_path / "a", [1])
    with pytest.raises(PluginError, match="holds no states"):
        States([one, str(tmp_path)])
    with pytest.raises(PluginError, match="holds no states"):
        States([fill(tmp_path / "begun", [])])
    for name in ("decoder", "dictionary"):
        other = fill(tmp_path / name, [1], **{name: 7})
        with pytest.raises(PluginError, match=rf"of another model .* {name}"):
            States([one, other])
    wider = StateStore(str(tmp_path / "wider"), IDENTITY, 5, 3)
    wider.append(torch.ones(2, 5), torch.ones(2, 3))
    with pytest.raises(PluginError, match=r"of another model .* dim"):
        States([one, str(tmp_path / "wider")])
