"""``--decoding greedy``: one token an iteration."""

from ..registry import Method, register_method
from ..setup import Setup


@register_method("greedy")
class Greedy(Method):
    """The verifier alone, whose drafts are empty."""

    summary = "one token an iteration"

    @classmethod
    def build(cls, setup: Setup) -> None:
        """Nothing is drafted."""
