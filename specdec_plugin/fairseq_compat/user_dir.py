"""The plugin's folder, and fairseq's check that it is imported once.

fairseq imports ``--user-dir`` as a package named after the folder. When a
package of that name is loaded already, the folder must be listed in the
package's ``__path__``. Otherwise fairseq stops with "not globally unique", so
``--user-dir ./specdec_plugin`` would fail beside an installed plugin. Another
copy of the plugin is no reason to stop: the loaded one serves.
"""

import logging
import os
from typing import List

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


def _is_plugin(folder: str) -> bool:
    """Whether the folder holds a plugin like this one: its entry and this module."""
    return all(
        os.path.isfile(os.path.join(folder, name))
        for name in ("__init__.py", os.path.relpath(__file__, FOLDER))
    )
