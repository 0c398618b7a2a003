"""Makes the programs of ``data_scripts/superres`` importable."""

import sys

from tests.data_scripts.conftest import SCRIPTS

sys.path.insert(0, str(SCRIPTS / "superres"))
