"""The plugin's folder, and fairseq's check that it is imported once.

fairseq imports ``--user-dir`` as a package named after the folder. When a
package of that name is loaded already, the folder must be listed in the
package's ``__path__``. Otherwise fairseq stops with "not globally unique", so
``--user-dir ./specdec_plugin`` would fail beside an installed plugin. Another
copy of the plugin is no reason to stop: the loaded one serves.
"""

import argparse
import logging
import os
from typing import List, Optional, Sequence

from fairseq.utils import import_user_module

from ..errors import PluginError

logger = logging.getLogger(__name__)

#: What to hand to ``--user-dir``.
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class PluginPath(List[str]):
    """A package's ``__path__`` that answers for every copy of the plugin, or link to it."""

    def __contains__(self, folder: object) -> bool:
        if super().__contains__(folder):
            return True
        if not isinstance(folder, str) or not _is_plugin(folder):
            return False
        if not any(os.path.samefile(folder, loaded) for loaded in self):
            logger.warning("%s is loaded already and serves for --user-dir %s", self[0], folder)
        return True


def import_user_dir(argv: Optional[Sequence[str]]) -> None:
    """Import ``--user-dir`` of a command line before its parser is made, which may depend on it.

    Args:
        argv: the arguments; None for those of this process.

    Raises:
        PluginError: there is no such folder.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    options, _ = parser.parse_known_args(argv)
    try:
        import_user_module(options)
    except FileNotFoundError:
        raise PluginError(
            f"--user-dir {options.user_dir} does not exist. Name the folder of a plugin."
        ) from None


def _is_plugin(folder: str) -> bool:
    """Whether the folder holds a plugin like this one: its entry and this module."""
    return all(
        os.path.isfile(os.path.join(folder, name))
        for name in ("__init__.py", os.path.relpath(__file__, FOLDER))
    )
