"""Data folders and their dictionaries, with a sentence where one is missing or damaged."""

import os
from typing import Any, Callable, List, Optional

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from ..errors import PluginError
from .odd_values import reason_of, shortened


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

    def build_bpe(self, args: Any) -> Any:
        """Build what makes subwords.

        Raises:
            PluginError: its files cannot be loaded, from where fairseq or transformers keep them.
        """
        try:
            return super().build_bpe(args)
        except OSError as error:
            raise PluginError(
                f"Files of --bpe cannot be loaded ({reason_of(error)}). Give the options that name "
                "its files, with paths of yours."
            ) from error


def check_data_folder(cfg: Any, pair: bool) -> None:
    """Refuse a data folder that is missing, which fairseq would tell in a traceback.

    Args:
        cfg: options of the task.
        pair: whether the task needs two languages, given or in the names of the files.

    Raises:
        PluginError: there is none, or it is of unknown languages.
    """
    check_unsplit(cfg.data)
    folder = utils.split_paths(cfg.data)[0]
    if "://" not in folder and not os.path.isdir(folder):
        raise PluginError(f"There is no data folder {folder}. Check the path.")
    unknown = pair and None in (cfg.source_lang, cfg.target_lang)
    if unknown and None in infer_language_pair(folder):
        raise PluginError(
            f"No file in {folder} tells the languages. Give --source-lang and --target-lang, "
            "or name a folder that fairseq-preprocess wrote."
        )


def check_unsplit(path: str) -> None:
    """Refuse a file or folder whose name fairseq takes for several; PluginError names it."""
    if len(utils.split_paths(path)) > 1 and os.path.exists(path):
        raise PluginError(
            f"{path} holds a {os.pathsep}, at which fairseq splits paths. Rename it, or name a "
            "link whose path has none."
        )


def unreadable(path: str, error: OSError) -> PluginError:
    """What to raise where a dictionary cannot be read."""
    return PluginError(
        f"The dictionary {path} cannot be read ({error.strerror}). Name a folder that "
        "fairseq-preprocess wrote, and its languages (--source-lang, --target-lang)."
    )


class QuickDictionary(Dictionary):
    """fairseq's dictionary, without its loops over the numbers of a tensor.

    PyTorch makes an object of each number, which takes longer than all else that is done with it.
    """

    def string(self, tensor: Any, *args: Any, **kwargs: Any) -> str:
        """See fairseq; of (length,) numbers, or of some lines of them."""
        if torch.is_tensor(tensor) and tensor.dim() == 1:
            tensor = tensor.tolist()
        return str(super().string(tensor, *args, **kwargs))

    def encode_line(
        self,
        line: str,
        line_tokenizer: Callable[[str], List[str]] = tokenize_line,
        add_if_not_exist: bool = True,
        consumer: Optional[Callable[[str, int], Any]] = None,
        append_eos: bool = True,
        reverse_order: bool = False,
    ) -> Tensor:
        """See fairseq.

        Returns:
            (length,) int32.
        """
        words, number_of = line_tokenizer(line), self.add_symbol if add_if_not_exist else self.index
        numbers: List[int] = []
        for word in reversed(words) if reverse_order else words:
            numbers.append(number_of(word))
            if consumer is not None:
                consumer(word, numbers[-1])
        return torch.tensor([*numbers, self.eos_index] if append_eos else numbers, dtype=torch.int)


def read_dictionary(path: str) -> Dictionary:
    """See :meth:`DictionaryMixin.load_dictionary`."""
    try:
        return QuickDictionary.load(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # of that type itself, where a line is not UTF-8
        reason = shortened(str(error), 120) or "one of its lines is empty"
        raise PluginError(
            f"{path} is damaged, or is no dictionary of fairseq: {reason}. Each line has a symbol "
            "and a count. Copy it again, or make it with fairseq-preprocess."
        ) from None
