"""Numbers of symbols are checked before kernels look them up, which read any memory they are told.

Data that were binarised with another dictionary have numbers that the model's one lacks.
"""

from typing import Sequence

from ..errors import PluginError


def check_symbols(numbers: Sequence[int], count: int, where: str, option: str) -> None:
    """Refuse symbols that a dictionary lacks.

    Args:
        numbers: of the symbols.
        count: symbols of the model's dictionary.
        where: what has them, such as "The source".
        option: of fairseq-preprocess, which takes the dictionary.

    Raises:
        PluginError: a number is negative, or too great.
    """
    # For the few numbers of a batch a list is sooner looked through than a tensor.
    least, greatest = min(numbers, default=0), max(numbers, default=0)
    if least < 0 or greatest >= count:
        raise PluginError(
            f"{where} has symbol number {least if least < 0 else greatest}, but the model's "
            f"dictionary has the numbers 0 to {count - 1}: the text was binarised with another "
            f"dictionary. Give fairseq-preprocess the model's own one ({option})."
        )
