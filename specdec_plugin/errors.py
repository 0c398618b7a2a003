"""The one exception that a user is meant to read."""

from contextvars import ContextVar

#: Whether a command line runs, whose messages name options as they are typed.
FLAGS_ARE_TYPED: ContextVar[bool] = ContextVar("FLAGS_ARE_TYPED", default=False)


class PluginError(SystemExit, ValueError):
    """A mistake that the user can mend, told in one sentence: the cause, then the cure.

    It is a ``ValueError`` for programs that call us as a library, and a
    ``SystemExit`` for fairseq's command lines, which would otherwise print a
    traceback above the sentence: Python prints the message and exits with 1.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message

    def __str__(self) -> str:
        return str(self.code)
