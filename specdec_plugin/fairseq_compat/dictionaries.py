"""Data folders and their dictionaries, with a sentence where one is missing or damaged."""

import os
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ..errors import PluginError


class DictionaryMixin(FairseqTask):
    """Explains what fairseq would tell in a traceback of a data folder and its dictionaries."""

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Set up the task, with its dictionaries.

        Raises:
            PluginError: the data folder is not there, or is of unknown languages; or a dictionary
                cannot be read.
        """
        # Tasks of many languages need not know one pair.
        check_data_folder(cfg, issubclass(cls, TranslationTask))
        return super().setup_task(cfg, **kwargs)

    @classmethod
    def load_dictionary(cls, filename: str) -> Any:
        """Read a dictionary.

        Raises:
            PluginError: there is none, or it is damaged.
        """
        return read_dictionary(filename)


def check_data_folder(cfg: Any, pair: bool) -> None:
    """Refuse a data folder that is missing, which fairseq would tell in a traceback.

    Args:
        cfg: options of the task.
        pair: whether the task needs two languages, given or in the names of the files.

    Raises:
        PluginError: there is none, or it is of unknown languages.
    """
    folder = utils.split_paths(cfg.data)[0]
    if "://" not in folder and not os.path.isdir(folder):
        raise PluginError(f"There is no data folder {folder}. Check the path.")
    unknown = pair and None in (cfg.source_lang, cfg.target_lang)
    if unknown and None in infer_language_pair(folder):
        raise PluginError(
            f"No file in {folder} tells the languages. Give --source-lang and --target-lang, "
            "or name a folder that fairseq-preprocess wrote."
        )


def unreadable(path: str, error: OSError) -> PluginError:
    """What to raise where a dictionary cannot be read."""
    return PluginError(
        f"The dictionary {path} cannot be read ({error.strerror}). Name a folder that "
        "fairseq-preprocess wrote, and its languages (--source-lang, --target-lang)."
    )


def read_dictionary(path: str) -> Dictionary:
    """See :meth:`DictionaryMixin.load_dictionary`."""
    try:
        return Dictionary.load(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # of that type itself, where a line is not UTF-8
        reason = " ".join(str(error).split())[:120] or "one of its lines is empty"
        raise PluginError(
            f"{path} is damaged, or is no dictionary of fairseq: {reason}. Each line has a symbol "
            "and a count. Copy it again, or make it with fairseq-preprocess."
        ) from None
