"""The import of fairseq, which needs a mended line of fairseq on Python 3.14 and newer."""

import importlib


def import_fairseq() -> None:
    """Import fairseq.

    Raises:
        ImportError: this version of Python needs a mend of fairseq. fairseq's own error names an
            argument's type, and neither cause nor cure.
    """
    try:
        importlib.import_module("fairseq")
    except TypeError as error:
        if "| None is not callable" not in str(error):
            raise
        raise ImportError(
            "fairseq does not import on this version of Python, because it knows types by how "
            "older versions print them. Run data_scripts/mend_fairseq.sh of the plugin's "
            "repository with the path of this Python, or take Python 3.13."
        ) from None
