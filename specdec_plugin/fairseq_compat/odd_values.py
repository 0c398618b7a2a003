"""Errors of odd values in files, such as checkpoints and dictionaries, told in a few words."""

#: What Python raises where a value in a file is of another kind or size than it is taken for.
ODD_VALUES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip


def shortened(text: str, most: int = 150) -> str:
    """The beginning of a text, in one line."""
    return " ".join(text.split())[:most]


def reason_of(error: Exception) -> str:
    """The kind of an error and the beginning of its message, for a sentence to the user."""
    return shortened(f"{type(error).__name__}: {error}")
