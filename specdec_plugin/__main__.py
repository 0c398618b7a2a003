"""``python -m specdec_plugin`` prints the folder to hand to ``--user-dir``.

Example: ``fairseq-generate DATA --user-dir "$(python -m specdec_plugin)" …``

With ``--help`` it lists the decoding options, which ``fairseq-generate --help`` cannot.
"""

import sys

from .cli.generate import build_parser
from .errors import PluginError
from .fairseq_compat.interrupts import end_in_a_line
from .fairseq_compat.user_dir import FOLDER


def main() -> None:
    """Print the folder, alone on its line, or the options."""
    end_in_a_line()
    arguments = sys.argv[1:]
    if not arguments:
        sys.stdout.write(FOLDER + "\n")
    elif arguments in (["--help"], ["-h"]):
        build_parser().print_help()
    else:
        raise PluginError(
            f"python -m specdec_plugin takes no {arguments[0]}: give nothing for the folder, "
            "--help for the options, or use specdec-generate."
        )


if __name__ == "__main__":
    main()
