"""``--decoding greedy``: one token an iteration."""

from ..registry import Method, register_method


@register_method("greedy")
class Greedy(Method):
    """The verifier alone, whose drafts are empty."""

    summary = "one token an iteration"
