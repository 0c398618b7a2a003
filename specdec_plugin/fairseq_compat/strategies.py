"""fairseq's search strategies: which candidates of a beam search are compared, and how."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from fairseq.search import (
    DiverseBeamSearch,
    DiverseSiblingsSearch,
    PrefixConstrainedBeamSearch,
    Search,
)
from fairseq.token_generation_constraints import pack_constraints, unpack_constraints
from torch import Tensor

from ..errors import PluginError
from .phrase_search import PhraseSearch

#: The argument of a program, and the attribute of options, that names the tokens that may follow.
ALLOWED = "prefix_allowed_tokens_fn"
#: fairseq's options of strategies, which a beam search keeps.
OF_STRATEGIES = frozenset(
    ["constraints", "diverse_beam_groups", "diverse_beam_strength", "diversity_rate"]
)
#: By option: whether a value asks for a strategy.
_ASKS: Dict[str, Callable[[Any], bool]] = {
    "diverse_beam_groups": lambda value: value > 0,
    "diversity_rate": lambda value: value > -1,
    "constraints": bool,
    ALLOWED: lambda value: value is not None,
}


def strategies_given(options: Any) -> List[str]:
    """The options, among fairseq's, that ask for a strategy of their own."""
    given = ((name, getattr(options, name, None)) for name in _ASKS)
    return [name for name, value in given if value is not None and _ASKS[name](value)]


def strategy_of(dictionary: Any, eos: int, options: Any) -> Optional[Search]:
    """The strategy that fairseq's options ask for; None: plain beam search, or lengths alone.

    Args:
        dictionary: of the target.
        eos: the symbol that ends a sentence, which mBART has another one for.
        options: fairseq's generation options, of which :func:`..generation.check_generation` has
            allowed one strategy.
    """
    given = strategies_given(options)
    if not given:
        return None
    build: Dict[str, Callable[[Any], Search]] = {
        "diverse_beam_groups": lambda groups: DiverseBeamSearch(
            dictionary, groups, getattr(options, "diverse_beam_strength", 0.5)
        ),
        "diversity_rate": lambda rate: DiverseSiblingsSearch(dictionary, rate),
        "constraints": lambda order: PhraseSearch(dictionary, str(order)),
        ALLOWED: lambda function: PrefixConstrainedBeamSearch(dictionary, function),
    }
    (name,) = given
    strategy = build[name](getattr(options, name))
    strategy.eos = eos
    return strategy


class Penalties(NamedTuple):
    """A strategy that lowers totals of candidates, and compares them as plain beam search does.

    Attributes:
        groups: of beams, which choose in turn; 0: all beams choose at once.
        strength: what a group pays for a symbol that an earlier one chose.
        rate: what a continuation pays for its rank among those of its beam, from 1.
    """

    groups: int = 0
    strength: float = 0.0
    rate: float = 0.0


def penalties_of(strategy: Optional[Search]) -> Optional[Penalties]:
    """What a strategy is to the kernels; None: they cannot choose by it."""
    if strategy is None:
        return Penalties()
    if isinstance(strategy, DiverseSiblingsSearch):
        return Penalties(rate=strategy.diversity_rate)
    # With a bonus instead of a penalty, a symbol that is not among a beam's best may be chosen.
    if isinstance(strategy, DiverseBeamSearch) and strategy.diversity_strength <= 0:
        return Penalties(strategy.num_groups, -strategy.diversity_strength)
    return None


def without_empty(constraints: Tensor) -> Tensor:
    """Packed phrases without empty ones, at which fairseq fails.

    There is one between two tabs that follow each other.

    Args:
        constraints: (lines, width) long, as fairseq's ``pack_constraints`` gives.
    """
    return pack_constraints(
        [[phrase for phrase in unpack_constraints(row) if len(phrase)] for row in constraints]
    )


def are_packed(constraints: Optional[Tensor]) -> bool:
    """Whether constraints, (rows, width) long, are packed phrases, none of which is empty."""
    if constraints is None:
        return False
    try:
        return all(len(phrase) for row in constraints for phrase in unpack_constraints(row))
    except (ValueError, IndexError):
        return False


def begin_constraints(strategy: Search, constraints: Tensor, beams: int) -> None:
    """Give a strategy the phrases of a batch, (rows, width) long, packed.

    Raises:
        PluginError: they are not packed.
    """
    try:
        strategy.init_constraints(constraints, beams)
    except (ValueError, IndexError, AssertionError):
        raise PluginError(
            "constraints are not packed: give what pack_constraints of "
            "fairseq.token_generation_constraints makes of lists of phrases."
        ) from None
