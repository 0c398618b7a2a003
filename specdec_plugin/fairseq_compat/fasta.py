"""Names of FASTA files, which fairseq hands to a shell.

A checkpoint, or the names of files in a data folder, tell the languages and so these names.
"""

import functools
import shlex
from typing import Any

from fairseq.data import FastaDataset

from ..errors import PluginError


def refuse_commands_in_names() -> None:
    """Let fairseq read no FASTA file whose name a shell would run in part (idempotent)."""
    build = FastaDataset._build_index
    if hasattr(build, "__wrapped__"):
        return

    @functools.wraps(build)
    def _build_index(self: Any, path: str) -> Any:
        if shlex.quote(path) != path:
            raise PluginError(
                f"{path}.fasta was refused: fairseq hands its name to a shell, to which some "
                "characters of it are no name. Nothing of it was run. Rename the file."
            )
        return build(self, path)

    FastaDataset._build_index = _build_index
