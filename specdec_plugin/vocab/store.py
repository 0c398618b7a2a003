"""Decoder states and their likeliest tokens on disk, as many as there are."""

import contextlib
import json
import os
import shutil
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from torch import Tensor

from ..errors import PluginError
from ..outputs import alone, told_if_unwritable, write_text, written_whole

#: States that are handed out at once.
CHUNK = 16384
#: By file, the key of its width in the notes, and its type.
_FILES = {"states": ("dim", np.float16), "tokens": ("top_k", np.int32)}
#: What was noted after the last batch, and after the one before: a loss of power may cut off the
#: end of either the newest note or the newest states.
_NOTES = ("progress.json", "progress.before.json")


class StateStore:
    """A folder to which states are appended; an interrupted recording is resumed.

    Two processes would mix their states: :func:`open_store` opens it for one alone.

    Args:
        folder: where the files go.
        identity: what the states depend on, as plain values; with others, a folder cannot be
            resumed.
        dim: size of a state.
        top_k: tokens of each state.

    Attributes:
        count: states that are stored.
        batches: those of which all states are stored.
        begun: states that are stored of the batch behind these.

    Raises:
        PluginError: the folder was begun with another identity, or cannot be made.
    """

    def __init__(self, folder: str, identity: Dict[str, Any], dim: int, top_k: int) -> None:
        with told_if_unwritable(folder):
            os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._identity = {**identity, "dim": dim, "top_k": top_k}
        self.dim, self.top_k = dim, top_k
        self.count = self.batches = self.begun = 0
        known = read_progress(folder, resumed=True)
        if known is not None and known["count"] == known["batches"] == 0:
            known = None  # no state depends on its identity
        if known is not None:
            self._resume(known)
        for name in _FILES:  # behind that, a batch that was not finished
            with open(self._path(name), "ab") as file:
                file.truncate(self.count * self._bytes(name))
        self._note()  # The newest note is damaged where this went on from the one before.

    def _resume(self, known: Dict[str, Any]) -> None:
        for name, value in self._identity.items():
            if known["identity"].get(name) != value:
                raise PluginError(
                    f"{self._folder} holds states that were recorded with {name} "
                    f"{known['identity'].get(name)}, and now it is {value}. Give another "
                    "--states-dir, or the same options to resume."
                )
        self.count, self.batches = known["count"], known["batches"]
        self.begun = known.get("begun", 0)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _bytes(self, name: str) -> int:
        """Of a state, in one of the files."""
        width, dtype = _FILES[name]
        return int(getattr(self, width)) * np.dtype(dtype).itemsize

    def append(self, states: Tensor, tokens: Tensor, whole: bool = True) -> None:
        """Store the states of one more batch, or of the rest of one.

        Args:
            states: (new, dim).
            tokens: (new, top_k), the likeliest first.
            whole: whether these are all; else more of the batch may follow.
        """
        for name, values in (("states", states), ("tokens", tokens)):
            with open(self._path(name), "ab") as file:
                file.write(values.cpu().numpy().astype(_FILES[name][1]).tobytes())
                file.flush()
                os.fsync(file.fileno())  # before the note that tells of them
        self.count += len(states)
        self.batches += whole
        self.begun = 0 if whole else self.begun + len(states)
        newest, before = (self._path(name) for name in _NOTES)
        with written_whole(before) as unfinished:
            shutil.copyfile(newest, unfinished)
        self._note()

    def _note(self) -> None:
        """Note what is stored."""
        progress = {
            "identity": self._identity, "count": self.count, "batches": self.batches,
            "begun": self.begun,
        }  # fmt: skip
        write_text(self._path(_NOTES[0]), json.dumps(progress))


@contextlib.contextmanager
def open_store(folder: str, identity: Dict[str, Any], dim: int, top_k: int) -> Iterator[StateStore]:
    """A :class:`StateStore` that no other process appends to meanwhile.

    Raises:
        PluginError: another process does, or the store refuses the folder.
    """
    with alone(folder, "written"):
        yield StateStore(folder, identity, dim, top_k)


def read_progress(folder: str, resumed: bool = False) -> Optional[Dict[str, Any]]:
    """What a :class:`StateStore` noted; None where there is none.

    Args:
        folder: of the store.
        resumed: where power was lost, files may lack their ends. Then tell what there was before
            the last batch.

    Raises:
        PluginError: it is damaged, or files of states are shorter than it tells.
    """
    damaged = False
    for note in _NOTES if resumed else _NOTES[:1]:
        try:
            with open(os.path.join(folder, note), encoding="utf-8") as file:
                known = json.load(file)
            _check(folder, known)
            return dict(known)
        except FileNotFoundError:
            continue
        except (LookupError, OSError, TypeError, ValueError):
            damaged = True
    if damaged and not (resumed and _is_empty(folder)):
        raise PluginError(
            f"The states in {folder} are damaged or incomplete. Remove the folder, and record them "
            "again."
        )
    return None


def _is_empty(folder: str) -> bool:
    """Whether no states are stored, so that nothing can be lost."""
    paths = [os.path.join(folder, name) for name in _FILES]
    return not any(os.path.exists(path) and os.path.getsize(path) for path in paths)


def _check(folder: str, known: Dict[str, Any]) -> None:
    """Compare sizes with the files'; any error tells that they do not fit."""
    widths = {name: known["identity"][width] for name, (width, _) in _FILES.items()}
    counts = [known["count"], known["batches"], *widths.values()]
    if not all(type(each) is int and each >= 0 for each in counts) or 0 in widths.values():
        raise ValueError("numbers that are none")
    for name, (_, dtype) in _FILES.items():
        size = known["count"] * widths[name] * np.dtype(dtype).itemsize
        if size > 0 and os.path.getsize(os.path.join(folder, name)) < size:
            raise ValueError(f"{name} is too short")


class States:
    """The states of one or several folders, which stay on disk.

    Args:
        folders: of a :class:`StateStore` each.
        most: so many states of the first folder count, from its beginning; None: all.
        identity: of the model whose states they have to be, and its name; None: that of the first.

    Attributes:
        dim: size of a state.
        top_k: tokens that each state has at least.

    Raises:
        PluginError: a folder has no states, or of another model.
    """

    def __init__(
        self,
        folders: Sequence[str],
        most: Optional[int] = None,
        identity: Optional[Tuple[Dict[str, Any], str]] = None,
    ) -> None:
        self._parts: List[Tuple[np.ndarray, np.ndarray]] = []
        first, owner = identity or ({}, folders[0])
        for folder in folders:
            known = read_progress(folder)
            if known is None or known["count"] == 0:
                raise PluginError(f"{folder} holds no states. Record some there first.")
            own = known["identity"]
            first = first or own
            for name in ("dim", "decoder", "dictionary"):
                if own.get(name) != first.get(name):
                    raise PluginError(
                        f"{folder} holds states of another model than {owner} (its {name} "
                        "differs). Give states of one checkpoint and dictionary."
                    )
            states, tokens = (
                np.memmap(
                    os.path.join(folder, name), dtype, "r", shape=(known["count"], own[width])
                )
                for name, (width, dtype) in _FILES.items()
            )
            end = None if self._parts else most
            self._parts.append((states[:end], tokens[:end]))
        self.dim = first["dim"]
        self.top_k = min(tokens.shape[1] for _, tokens in self._parts)

    def __len__(self) -> int:
        return sum(len(states) for states, _ in self._parts)

    def chunks(
        self, seed: Optional[int] = None, size: int = CHUNK
    ) -> Iterator[Tuple[np.ndarray, np.ndarray]]:
        """All states and tokens: ((n, dim) float32, (n, top_k) int32), n at most ``size``.

        Args:
            seed: of the order of chunks; None is that in which they were recorded.
            size: the most states at once.
        """
        starts = [
            (part, start)
            for part, (states, _) in enumerate(self._parts)
            for start in range(0, len(states), size)
        ]
        if seed is not None:
            np.random.default_rng(seed).shuffle(starts)
        for part, start in starts:
            states, tokens = (each[start : start + size] for each in self._parts[part])
            yield np.asarray(states, np.float32), np.asarray(tokens[:, : self.top_k])

    def sample(self, count: int, seed: int) -> np.ndarray:
        """(``count`` or all, dim) float32, drawn without repetition."""
        drawn = np.random.default_rng(seed).permutation(len(self))[:count]
        found = np.empty((len(drawn), self.dim), np.float32)
        end = before = 0
        for states, _ in self._parts:
            own = np.sort(drawn[(drawn >= before) & (drawn < before + len(states))]) - before
            for first in range(0, len(own), CHUNK):
                rows = own[first : first + CHUNK]
                found[end : end + len(rows)] = states[rows]
                end += len(rows)
            before += len(states)
        return found
