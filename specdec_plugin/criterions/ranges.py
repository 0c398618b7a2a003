"""The values that options of losses may have."""

from typing import Any, Callable, NamedTuple

from ..errors import PluginError
from ..fairseq_compat.options import flag_of


class Values(NamedTuple):
    """Which numbers an option may have.

    Attributes:
        hold: whether a number is among them; NaN never is.
        cure: what to give instead of another.
    """

    hold: Callable[[float], bool]
    cure: str


SHARE = Values(lambda value: 0 <= value <= 1, "give 0 to 1")
SMOOTHING = Values(lambda value: 0 <= value < 1, "give 0 or more, and less than 1")
DECAY = Values(lambda value: 0 < value <= 1, "give a number above 0 and at most 1")
COUNT = Values(lambda value: value >= 0, "give 0 or more")


def check_values(cfg: Any, **values: Values) -> None:
    """Refuse options out of range.

    Args:
        cfg: has the options.
        values: those that each option may have, by its name.

    Raises:
        PluginError: it names the option and the cure.
    """
    for name, allowed in values.items():
        value = getattr(cfg, name)
        if not allowed.hold(value):
            raise PluginError(f"{flag_of(name)} {value}: {allowed.cure}.")
