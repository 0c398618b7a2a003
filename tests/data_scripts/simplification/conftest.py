"""Makes the programs of ``data_scripts/simplification`` importable."""

import sys

from tests.support.command_lines import SCRIPTS

sys.path.insert(0, str(SCRIPTS / "simplification"))
