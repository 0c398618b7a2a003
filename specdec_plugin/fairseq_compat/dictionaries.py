"""Reading dictionaries, with a sentence where one is missing or damaged."""

from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask

from ..errors import PluginError


class DictionaryMixin(FairseqTask):
    """Explains the errors of fairseq's reader of ``dict.LANG.txt``."""

    @classmethod
    def load_dictionary(cls, filename: str) -> Any:
        """Read a dictionary.

        Raises:
            PluginError: there is none, or it is damaged.
        """
        return read_dictionary(filename)


def read_dictionary(path: str) -> Dictionary:
    """See :meth:`DictionaryMixin.load_dictionary`."""
    try:
        return Dictionary.load(path)
    except OSError as error:
        raise PluginError(
            f"The dictionary {path} cannot be read ({error.strerror}). Name a folder that "
            "fairseq-preprocess wrote, and its languages (--source-lang, --target-lang)."
        ) from error
    except Exception as error:  # of that type itself, where a line is not UTF-8
        told = " ".join(str(error).split())[:120] or "one of its lines is empty"
        raise PluginError(
            f"{path} is damaged, or is no dictionary of fairseq: {told}. Each line has a symbol "
            "and a count. Copy it again, or make it with fairseq-preprocess."
        ) from None
