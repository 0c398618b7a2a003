"""Keeps libraries quiet that would log on every start.

fairseq lets every logger speak. Then hydra would name its variables, matplotlib its fonts, and the
plugin the causes of its sentences, which are tracebacks (``LOGLEVEL=DEBUG`` keeps them). A
task of fairseq, which makes speech, asks for tensorboardX, which the plugin has no use for.
It asks while fairseq is imported, so this module is imported before. fairseq also notes settings of
each iterator over data, which would be lines for each call from Python.
"""

import logging
import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator

#: A notice that nobody needs, and its logger.
_NOTICE, _LOGGER = "Please install tensorboardX", "fairseq.tasks.text_to_speech"


#: The logger of notes of iterators, and whether this thread leaves them out.
_ITERATORS = "fairseq.tasks.fairseq_task"
_WITHOUT_NOTES: ContextVar[bool] = ContextVar("_WITHOUT_NOTES", default=False)


@contextmanager
def without_notes() -> Iterator[None]:
    """Leave out fairseq's notes of iterators, in this thread."""
    token = _WITHOUT_NOTES.set(True)
    try:
        yield
    finally:
        _WITHOUT_NOTES.reset(token)


def _is_worth_noting(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _WITHOUT_NOTES.get()


def _is_wanted(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOTICE)


if os.environ.get("LOGLEVEL", "").upper() != "DEBUG":  # fairseq's own variable
    logging.getLogger(__name__.partition(".")[0]).setLevel(logging.INFO)
logging.getLogger("hydra").setLevel(logging.WARNING)
logging.getLogger("matplotlib").setLevel(logging.WARNING)
logging.getLogger(_LOGGER).addFilter(_is_wanted)
logging.getLogger(_ITERATORS).addFilter(_is_worth_noting)
