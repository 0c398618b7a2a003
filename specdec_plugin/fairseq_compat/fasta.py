"""Names of FASTA files, which fairseq hands to a shell.

A checkpoint, or the names of files in a data folder, tell the languages and so these names.
"""

import functools
import re
from typing import Any

from fairseq.data import FastaDataset

from ..errors import PluginError

#: What a shell may take for more than a part of a name. Letters are those of any language.
_UNSAFE = re.compile(r"[^\w@%+=:,./-]")


def refuse_commands_in_names() -> None:
    """Let fairseq read no FASTA file whose name a shell would run in part (idempotent)."""
    build = FastaDataset._build_index
    if hasattr(build, "__wrapped__"):
        return

    @functools.wraps(build)
    def _build_index(self: Any, path: str) -> Any:
        if _UNSAFE.search(path):
            raise PluginError(
                f"{path}.fasta was refused: fairseq hands its name to a shell, to which some "
                "characters of it are no name. Nothing of it was run. Rename the file."
            )
        return build(self, path)

    FastaDataset._build_index = _build_index
