"""What two sequences have in common."""

import itertools
import operator
from typing import Any, Sequence


def common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many elements both begin with."""
    return len([*itertools.takewhile(bool, map(operator.eq, one, other))])
