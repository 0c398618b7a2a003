"""``python -m specdec_plugin`` prints the folder to hand to ``--user-dir``.

Example: ``fairseq-generate DATA --user-dir "$(python -m specdec_plugin)" …``
"""

import sys

from .fairseq_compat.user_dir import FOLDER


def main() -> None:
    """Print the folder, alone on its line."""
    sys.stdout.write(FOLDER + "\n")


if __name__ == "__main__":
    main()
