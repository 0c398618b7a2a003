"""Loading splits of the data, with a sentence where there is none, or a damaged one."""

import glob
import os
import struct
from typing import Any, List, Optional, Sequence, Tuple

from fairseq import utils
from fairseq.tasks import FairseqTask

from ..errors import PluginError
from .options import task_options

#: A source and a target language.
Direction = Tuple[str, str]
_SIDES = ("source", "target")
#: With which an index of ``--dataset-impl mmap`` begins, fairseq's default.
_MAGIC = b"MMIDIDX\x00\x00"
#: Behind it: the version, a code of the numbers' type, and how many sentences there are.
_HEADER = struct.Struct("<QBQ")
#: Bytes of a number by that code; others have 8.
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 8: 2, 9: 4}

#: Values of ``--dataset-impl`` that read files of the names that all others have.
_OTHER_READERS = ("lazy", "cached", "fasta")


class SplitMixin(FairseqTask):
    """Explains the errors of fairseq's readers of data."""

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            PluginError: the data folder has none of this name, or of these languages; a file of it
                is damaged, or of another kind than ``--dataset-impl`` names.
        """
        options = task_options(self)
        for folder in utils.split_paths(options.data):
            check_whole(folder, split, _directions_of(self))
        try:
            super().load_dataset(split, *args, **kwargs)
        except (FileNotFoundError, KeyError) as error:
            raise PluginError(
                f"The data have no split {split} ({error}). Name a folder that fairseq-preprocess "
                "wrote, and a split of it (--gen-subset, --train-subset, --valid-subset)."
            ) from error
        except (AssertionError, TypeError) as error:
            kind = str(getattr(options, "dataset_impl", None))
            if kind not in _OTHER_READERS:
                raise
            raise PluginError(
                f"--dataset-impl {kind} cannot read the split {split}: leave it out, or name data "
                "that were binarised with it."
            ) from error


def _directions_of(task: Any) -> List[Direction]:
    """The directions whose splits a task reads; none: any."""
    several = getattr(getattr(task, "data_manager", None), "lang_pairs", None)
    if several:
        return [(each.split("-")[0], each.split("-")[-1]) for each in several]
    source, target = (getattr(task_options(task), f"{side}_lang", None) for side in _SIDES)
    return [] if None in (source, target) else [(str(source), str(target))]


def _indices(folder: str, split: str, directions: Sequence[Direction]) -> List[str]:
    """The files that tell of the split's sentences, of these directions where there are any."""
    found = glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(split)}.*.idx"))
    if not directions:
        return found
    read: List[str] = []
    for source, target in directions:
        # fairseq takes the data of the other direction where there are none of this one.
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            begin = os.path.join(folder, f"{split}.{pair}.")
            if f"{begin}{source}.idx" in found:
                read += [each for each in found if each.startswith(begin)]
                break
    return read


def check_whole(folder: str, split: str, directions: Sequence[Direction] = ()) -> None:
    """Refuse binarised data that are empty, or not as long as they say.

    Args:
        folder: of the data.
        split: its name.
        directions: source and target languages of which data are read; none: of any.

    Raises:
        PluginError: it names the file.
    """
    for index in _indices(folder, split, directions):
        data = index.removesuffix("idx") + "bin"
        with open(index, "rb") as file:
            start = file.read(len(_MAGIC) + _HEADER.size)
            if not start.startswith(_MAGIC[: len(start)]):
                continue  # of another --dataset-impl
            size = _size_of_data(file, start)
        if size == 0:
            raise PluginError(
                f"{data} has no sentence. Name another split, or binarise a text that has some."
            )
        if size is None or (os.path.isfile(data) and os.path.getsize(data) < size):
            raise PluginError(
                f"{index if size is None else data} is damaged. Copy it again, or binarise the "
                "text again."
            )


def _size_of_data(file: Any, start: bytes) -> Optional[int]:
    """The bytes that an index with this start tells of; None where it is cut off itself."""
    if len(start) < len(_MAGIC) + _HEADER.size:
        return None
    _, code, count = _HEADER.unpack(start[len(_MAGIC) :])
    whole = len(start) + count * 12  # sizes in 4 bytes, addresses in 8
    if os.fstat(file.fileno()).st_size < whole:
        return None
    if count == 0:
        return 0
    file.seek(len(start) + 4 * (count - 1))
    (last,) = struct.unpack("<i", file.read(4))
    file.seek(whole - 8)
    (address,) = struct.unpack("<q", file.read(8))
    return int(address) + int(last) * _BYTES.get(code, 8)
