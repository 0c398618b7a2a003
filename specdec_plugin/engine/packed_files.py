"""Packed weights that stay in a folder beside a large checkpoint, where later runs map them.

To pack the weights of a large model takes seconds, and the memory for them is touched for the first
time. A mapped file has neither cost. The folder is the checkpoint's path and ``.packed``. It is
written where ``--keep-packed-weights`` asks for it, and read wherever it fits the checkpoint and
the kernels. Each linear map has a file, which is complete or absent.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from torch import Tensor, nn

from ..fairseq_compat.mapping import Source, source_of, sources_of, version_of
from ..outputs import written_whole
from .native import identity

logger = logging.getLogger(__name__)

#: The file that tells what the others belong to.
KEY = "key.json"
#: Parts of a checkpoint whose bytes tell it from others of the same size and time, and their size.
_SAMPLES, _SAMPLE = 64, 1 << 16


class PackedFolder:
    """The folder of one checkpoint.

    Args:
        checkpoint: its path.
        version: of the file that was mapped; another one may have its name now.

    Attributes:
        path: of the folder.
        key: differs with the checkpoint's content and with the kernels.
        written: whether files may be added.
    """

    def __init__(self, checkpoint: str, version: Tuple[int, ...]) -> None:
        self.path, self._checkpoint = Path(f"{checkpoint}.packed"), checkpoint
        self.key, self.written, self._current, self._fits = "", False, False, False
        with contextlib.suppress(OSError):  # The checkpoint may have been removed since.
            self.key = json.dumps(_key(checkpoint))
            self._current = version_of(checkpoint) == version
            self._fits = self._current and self._read_key() == self.key and self._trusted()

    def keep(self) -> None:
        """Add files from now on; those of another checkpoint or of other kernels are removed."""
        self.written = self._current
        if self._fits or not self._current:
            return
        try:
            if self.path.is_dir() and (self.path / KEY).exists():  # or else it is not ours
                shutil.rmtree(self.path)
            self.path.mkdir(mode=0o755)
            self.write(KEY, lambda file: os.write(file, self.key.encode()) > 0)
            self._fits = self._read_key() == self.key
        except OSError as error:
            self._give_up(error)

    def read(self, name: str, use: Callable[[int], Any]) -> Any:
        """What ``use`` makes of an open file; None where there is none."""
        if not self._fits:
            return None
        try:
            file = os.open(self.path / name, os.O_RDONLY)
        except OSError:
            return None
        try:
            return use(file)
        finally:
            os.close(file)

    def write(self, name: str, fill: Callable[[int], bool]) -> None:
        """Let ``fill`` write a file; without room for it, nothing more is written."""
        if not self.written:
            return
        try:
            # Other users may read the checkpoint, too. None of them may write there.
            with (
                written_whole(str(self.path / name), mode=0o644) as unfinished,
                open(unfinished, "wb") as file,
            ):
                if not fill(file.fileno()):
                    raise OSError("it cannot be written to")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.written = False
        logger.warning(
            f"packed weights are not kept in {self.path}, because {error}. The output is the same. "
            "Make room, let this user write there, or leave --keep-packed-weights out."
        )

    def _read_key(self) -> Optional[str]:
        try:
            return (self.path / KEY).read_text("utf-8")
        except (OSError, ValueError):
            return None

    def _trusted(self) -> bool:
        """Whether nobody could have written there who could not write the checkpoint."""
        folder, owner = os.stat(self.path), os.stat(self._checkpoint).st_uid
        if folder.st_uid in (os.getuid(), owner) and not folder.st_mode & 0o022:
            return True
        logger.warning(
            f"packed weights in {self.path} are not read, because others can write there. Remove "
            "the folder, or take that right from others."
        )
        return False


def _key(checkpoint: str) -> Dict[str, Any]:
    """Differs with a checkpoint's content and with the kernels."""
    found, digest = os.stat(checkpoint), hashlib.sha256()
    with open(checkpoint, "rb") as file:
        for number in range(_SAMPLES):
            file.seek(max(0, found.st_size - _SAMPLE) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    return {
        "size": found.st_size,
        "changed": found.st_mtime_ns,
        "samples": digest.hexdigest(),
        "kernels": identity(),
    }


_folders: Dict[Tuple[str, Tuple[int, ...]], PackedFolder] = {}


def _folder_of(source: Source) -> PackedFolder:
    place = source.path, source.version
    if place not in _folders:
        _folders[place] = PackedFolder(*place)
    return _folders[place]


def keep(models: Sequence[nn.Module]) -> None:
    """Keep what will be packed of models, where their checkpoints are mapped."""
    if identity() is None:
        logger.warning(
            "--keep-packed-weights has no effect without native kernels. What is kept already "
            "stays, for runs that have them."
        )
        return
    paths = {source.path: source for model in models for source in sources_of(model)}
    for source in paths.values():
        _folder_of(source).keep()
    if not paths:
        logger.warning(
            "--keep-packed-weights has no effect here, because no checkpoint is mapped. Leave it "
            "out, or use it with a checkpoint of 1 GiB or more."
        )


class Place(NamedTuple):
    """Where something that follows from some weights is kept.

    Attributes:
        folder: of their checkpoint.
        name: of the file.
    """

    folder: PackedFolder
    name: str

    @classmethod
    def of(cls, tensors: Sequence[Tensor], form: str) -> "Optional[Place]":
        """That of tensors that view one mapped checkpoint; None for others.

        Args:
            tensors: weights as they are in the file.
            form: what is made of them.
        """
        sources: List[Source] = []
        for tensor in tensors:
            source = source_of(tensor)
            if source is None or (sources and source[1:3] != sources[0][1:3]):
                return None
            sources.append(source)
        parts = [[source.offset, *tensor.shape] for source, tensor in zip(sources, tensors)]
        folder = _folder_of(sources[0])
        # A process with other kernels may write to the folder, too, so that the names differ.
        name = hashlib.sha256(json.dumps([folder.key, form, parts]).encode()).hexdigest()[:24]
        return cls(folder, name)

    def read(self, use: Callable[[int], Any]) -> Any:
        """See :meth:`PackedFolder.read`."""
        return self.folder.read(self.name, use)

    def write(self, fill: Callable[[int], bool]) -> None:
        """See :meth:`PackedFolder.write`."""
        self.folder.write(self.name, fill)
