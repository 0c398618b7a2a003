"""What specdec-bench left in its ``--output`` folder."""

import json
import os
from typing import Any, Dict

from specdec_plugin.errors import PluginError


def read_run(folder: str) -> Dict[str, Dict[str, Any]]:
    """The rows of figures of a finished run, by method.

    Raises:
        PluginError: there is none.
    """
    path = os.path.join(folder, "results.json")
    try:
        with open(path, encoding="utf-8") as lines:
            return {row["method"]: row for row in json.load(lines)["rows"]}
    except (OSError, ValueError, KeyError):
        raise PluginError(
            f"{path} is no report of specdec-bench. Name the folder that it was given as --output, "
            "and let it finish."
        ) from None
