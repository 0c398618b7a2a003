"""Data of speech, with a sentence where a configuration, a list of sounds or a sound is damaged."""

import csv
import functools
from pathlib import Path
from typing import Any, Callable

from fairseq.data.audio import speech_to_text_dataset
from fairseq.data.audio.data_cfg import S2TDataConfig
from fairseq.tasks import speech_to_text
from fairseq.tasks.speech_to_text import SpeechToTextTask

from ..errors import PluginError
from .dictionaries import read_dictionary
from .odd_values import ODD_VALUES, reason_of, shortened

#: Characters of an error with a path in it.
_LONG = 300


class UnreadableSoundError(PluginError):
    """A sound of the data cannot be read.

    PyTorch raises an error of a process that reads data once more, with a traceback as its message.
    The sentence is the end of it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rsplit(f"{type(self).__name__}: ", 1)[-1].strip())


def explain_sounds() -> None:
    """Let fairseq tell in a sentence which sound it cannot read (idempotent)."""
    for module in (speech_to_text_dataset, speech_to_text):
        if not hasattr(module.get_features_or_waveform, "__wrapped__"):
            module.get_features_or_waveform = _explained(module.get_features_or_waveform)


def _explained(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def read_or_tell(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(path, *args, **kwargs)
        except Exception as error:  # of NumPy, soundfile, or a package that is missing
            raise UnreadableSoundError(
                f"The sound {path} cannot be read ({reason_of(error)}). Check the path and the "
                "file, or make the features again."
            ) from None

    return read_or_tell


class SpeechDataTask(SpeechToTextTask):
    """fairseq's ``speech_to_text``, which explains what it would tell in a traceback."""

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Any:
        """Read the configuration of the data, and the dictionary that it names.

        Raises:
            PluginError: one of them is missing or damaged.
        """
        try:
            return super().setup_task(cfg, **kwargs)
        except FileNotFoundError as error:
            raise _unreadable(cfg, str(error)) from error
        except Exception:
            _check_files(cfg)
            raise

    def load_dataset(self, split: str, *args: Any, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            PluginError: its list of sounds is damaged, or does not fit the configuration.
        """
        try:
            super().load_dataset(split, *args, **kwargs)
        except (*ODD_VALUES, csv.Error) as error:
            raise PluginError(
                f"The split {split} of the speech data in {self.args.data} cannot be read "
                f"({reason_of(error)}). Check {split}.tsv, which needs the columns id, audio, "
                "n_frames and tgt_text, and the file of --config-yaml."
            ) from error


def _check_files(cfg: Any) -> None:
    """Refuse a configuration, or a dictionary, that is damaged."""
    folder = Path(cfg.data)
    try:
        config = S2TDataConfig(folder / cfg.config_yaml)
    except Exception as error:  # of that type itself, where it is no YAML
        raise _unreadable(cfg, str(error)) from error
    if not isinstance(config.config, dict):
        raise _unreadable(cfg, f"{cfg.config_yaml} has no lines such as vocab_filename: dict.txt")
    read_dictionary(str(folder / config.vocab_filename))


def _unreadable(cfg: Any, reason: str) -> PluginError:
    return PluginError(
        f"The speech data in {cfg.data} cannot be read ({shortened(reason, _LONG)}). Check the "
        "folder, --config-yaml, and the dictionary that this file names."
    )
