r"""The file of one distillation shard: what a run appends to and a merge proves whole.

One text file holds everything::

    {"format": 1, "first": 0, "end": 4498, "settings": {…}, …}      the manifest
    5d0ce7a1 {"lines": [17, 4], "texts": ["▁Hola", "▁sí"]}          one decoded batch
    …

Each further line is one batch, appended and flushed at once, with the CRC-32 of
what follows it: a kill at any moment leaves whole batches and at most one torn
line at the end, which is cut off when the shard is resumed.
"""

import contextlib
import glob
import json
import os
import re
import zlib
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from textfiles import read_bytes

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import hold, told_if_unwritable

FORMAT = 1


@dataclass
class Manifest:
    """What a shard is a part of, and which part."""

    #: Everything on which the hypotheses depend; equal in all shards of a merge.
    settings: Dict[str, Any]
    #: The lines of the source that are this shard's: first … end - 1.
    first: int
    end: int
    #: For the reader's information only (paths, versions, batch size).
    about: Dict[str, Any]

    def to_json(self) -> str:
        """The first line of the shard's file."""
        return json.dumps(
            {
                "format": FORMAT,
                "first": self.first,
                "end": self.end,
                "settings": self.settings,
                "about": self.about,
            },
            ensure_ascii=False,
            sort_keys=True,
        )


def shard_bounds(lines: int, shard: int, shards: int) -> Tuple[int, int]:
    """The slice of ``lines`` lines that shard ``shard`` (from 0) of ``shards`` decodes.

    >>> [shard_bounds(7, shard, 3) for shard in range(3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    return lines * shard // shards, lines * (shard + 1) // shards


def shard_path(folder: str, shard: int, shards: int) -> str:
    """The file of shard ``shard`` (from 0) of ``shards``."""
    return os.path.join(folder, f"shard-{shard:04d}-of-{shards:04d}.txt")


def paths_by_count(folder: str) -> Dict[int, List[str]]:
    """The files of shards in a folder, by the number of shards that the source was cut into."""
    found: Dict[int, List[str]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "shard-*-of-*.txt"))):
        count = re.fullmatch(r"shard-\d+-of-(\d+)\.txt", os.path.basename(path))
        if count:
            found.setdefault(int(count[1]), []).append(path)
    return found


def check_count(folder: str, shards: int) -> None:
    """Refuse to decode in a folder where another number of shards was begun.

    Raises:
        PluginError: it holds such shards, which a merge would find beside these.
    """
    others = sorted({*paths_by_count(folder)} - {shards})
    if others:
        raise PluginError(
            f"{folder} was begun with --shards {others[0]}, but now it is {shards}. Give "
            f"--shards {others[0]} to resume it, or remove it, or choose another folder."
        )


@dataclass
class ShardContent:
    """What was read from a shard's file."""

    path: str
    manifest: Manifest
    #: (line number, hypothesis) in the order of decoding, of the whole records.
    hypotheses: List[Tuple[int, str]]
    #: Bytes up to the end of the last whole record.
    whole_bytes: int
    #: Whether something follows them.
    torn: bool


def read_shard(path: str) -> ShardContent:
    """Read a shard's file up to the first record that is torn or damaged."""
    content = read_bytes(path)
    start = content.find(b"\n") + 1
    manifest = _parse_manifest(content[:start])
    if manifest is None:
        raise PluginError(
            f"{path} is not a file of distill_shard.py (no manifest in its first line). "
            "Move it out of the folder of the shards."
        )
    hypotheses: List[Tuple[int, str]] = []
    while start < len(content):
        end = content.find(b"\n", start) + 1
        batch = _parse_record(content[start:end]) if end else None
        if batch is None:
            return ShardContent(path, manifest, hypotheses, start, torn=True)
        hypotheses += batch
        start = end
    return ShardContent(path, manifest, hypotheses, start, torn=False)


def _parse_manifest(line: bytes) -> Optional[Manifest]:
    try:
        found = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    names = {"settings": dict, "first": int, "end": int, "about": dict}
    if not all(isinstance(found.get(name), kind) for name, kind in names.items()):
        return None
    return Manifest(*(found[name] for name in names))


def _record(lines: Sequence[int], texts: Sequence[str]) -> bytes:
    body = json.dumps({"lines": list(lines), "texts": list(texts)}, ensure_ascii=False)
    content = body.encode("utf-8")
    return b"%08x %s\n" % (zlib.crc32(content), content)


def _parse_record(line: bytes) -> Optional[List[Tuple[int, str]]]:
    """The batch of one record; ``None`` if it is torn or damaged."""
    checksum, _, content = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(content) or not content:
        return None
    batch = json.loads(content.decode("utf-8"))
    return list(zip(batch["lines"], batch["texts"]))


class ShardWriter:
    """Appends batches to the shard's file; made by :func:`open_shard`."""

    def __init__(self, descriptor: int, done: List[Tuple[int, str]]) -> None:
        self._descriptor = descriptor
        #: What an earlier run has already decoded.
        self.done = done

    def append(self, lines: Sequence[int], texts: Sequence[str]) -> None:
        """Store one batch for good before returning."""
        _write(self._descriptor, _record(lines, texts))


def _write(descriptor: int, content: bytes) -> None:
    """Write all of ``content``, onto the disk."""
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


@contextlib.contextmanager
def open_shard(path: str, manifest: Manifest, wait: bool = False) -> Iterator[ShardWriter]:
    """Begin or resume the file of a shard, with an exclusive lock on it.

    Args:
        path: the file.
        manifest: which shard it is.
        wait: for another process that is decoding it now, and resume where that ends.

    Raises:
        PluginError: the file was begun with other settings, or another process
            is decoding it now.
    """
    with told_if_unwritable(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        hold(descriptor, path, "decoded", wait)
        if b"\n" not in read_bytes(path):  # new, or killed while it was begun
            os.ftruncate(descriptor, 0)
            _write(descriptor, manifest.to_json().encode("utf-8") + b"\n")
        found = read_shard(path)
        if (found.manifest.first, found.manifest.end) != (manifest.first, manifest.end):
            different = "its range of lines"
        else:
            different = differences(found.manifest.settings, manifest.settings)
        if different:
            raise PluginError(
                f"{path} was begun with other settings: {different}. "
                "Remove it to start again, or choose another --output-dir."
            )
        if found.torn:
            os.ftruncate(descriptor, found.whole_bytes)
        yield ShardWriter(descriptor, found.hypotheses)
    finally:
        os.close(descriptor)


def differences(there: Dict[str, Any], here: Dict[str, Any], prefix: str = "") -> str:
    """The settings that differ, as ``beam 5 there, 4 here``; empty if none does.

    >>> differences({"beam": 5, "task": "t"}, {"beam": 4, "task": "t"})
    'beam 5 there, 4 here'
    """
    told = []
    for name in sorted(set(there) | set(here)):
        a, b = there.get(name), here.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            told.append(differences(a, b, f"{prefix}{name}."))
        elif a != b:
            told.append(f"{prefix}{name} {_short(a)} there, {_short(b)} here")
    return "; ".join(part for part in told if part)


def _short(value: Any) -> str:
    """A value for a message; long hashes are abbreviated."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    text = str(value)
    return text if len(text) <= 40 else text[:8] + "…"
