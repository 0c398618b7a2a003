"""Options in a checkpoint with which fairseq would build no model, and their names."""

from argparse import Namespace
from typing import Any, Dict, Mapping, MutableMapping, Optional

from ..errors import PluginError


def check_options(path: str, state: Dict[str, Any]) -> None:
    """Refuse or mend options with which fairseq would build no model.

    It would build more layers than there are weights, for hours. It would read embeddings from the
    file with which training began, which may be gone; the checkpoint holds them.
    """
    config = state.get("cfg")
    # fairseq makes the second of the first, and then reads the first.
    model = config.get("model") if isinstance(config, MutableMapping) else None
    for options in (state.get("args"), model):
        values = (
            options if isinstance(options, MutableMapping) else getattr(options, "__dict__", {})
        )
        for side in ("encoder", "decoder"):
            count = values.get(f"{side}_layers")
            if isinstance(count, (int, float)) and not count <= len(state["model"]):
                raise PluginError(
                    f"{path} is damaged: its options tell of {count} {side} layers, and it "
                    "holds fewer weights. Copy it again."
                )
            if values.get(f"{side}_embed_path") is not None:
                values[f"{side}_embed_path"] = None


def name_of_option(state: Mapping[str, Any], text: str) -> Optional[str]:
    """The name of an option of a checkpoint with this text, also of one inside an option."""
    inside, seen = [state.get("args"), state.get("cfg")], set()
    while inside:
        options = inside.pop()
        if id(options) in seen:  # A pickle may hold itself.
            continue
        seen.add(id(options))
        values = vars(options) if isinstance(options, Namespace) else options
        if not isinstance(values, Mapping):
            continue
        for name, value in values.items():
            if isinstance(value, str) and value == text:
                return str(name)
            inside.append(value)
    return None
