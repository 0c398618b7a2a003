"""Text of pieces -> the binary data of ``fairseq-preprocess``, all of it or nothing."""

import contextlib
import os
import shutil
from typing import Callable, Iterator, Sequence

from fairseq import options
from fairseq_cli import preprocess


def binarise(
    arguments: Sequence[str], folder: str, check: Callable[[str], None] = lambda folder: None
) -> None:
    """Write ``folder``, in place of one that exists, which stays until the new one is whole.

    Args:
        arguments: of ``fairseq-preprocess``, without ``--destdir``.
        folder: is written under ``folder.tmp`` and renamed at the end. After an error it is what
            it was; after a killed process too, or else it is ``folder.replaced`` until the next
            call.
        check: looks through the finished data before they get their name, and
            raises where something is wrong.
    """
    folder = os.path.realpath(folder)  # a link may stand for it
    temporary, before = folder + ".tmp", folder + ".replaced"
    if os.path.exists(before) and not os.path.exists(folder):
        os.replace(before, folder)  # a process was killed between the two renames
    shutil.rmtree(temporary, ignore_errors=True)
    command = [*arguments, "--destdir", temporary]
    with _without_lasting_log():
        preprocess.main(options.get_preprocessing_parser().parse_args(command))
    check(temporary)
    shutil.rmtree(before, ignore_errors=True)
    if os.path.exists(folder):
        os.replace(folder, before)
    os.replace(temporary, folder)
    shutil.rmtree(before, ignore_errors=True)


@contextlib.contextmanager
def _without_lasting_log() -> Iterator[None]:
    """Take away the log file that ``fairseq-preprocess`` leaves with its logger.

    A second run in this process would write to the file of the first as well,
    and fail once its folder has been renamed.
    """
    before = list(preprocess.logger.handlers)
    try:
        yield
    finally:
        for handler in preprocess.logger.handlers[:]:
            if handler not in before:
                preprocess.logger.removeHandler(handler)
                handler.close()
