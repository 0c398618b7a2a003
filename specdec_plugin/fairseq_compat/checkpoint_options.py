"""Options in a checkpoint with which fairseq would run code, or build no model."""

import re
from typing import Any, Dict, Mapping, MutableMapping

from ..errors import PluginError

#: Options that fairseq's models evaluate as Python, such as ``[(512, 3)] * 20``. They need numbers,
#: and lists that are repeated.
_EVALUATED = (
    "adaptive_input_cutoff", "adaptive_softmax_cutoff", "character_filters",
    "conv_aggregator_layers", "conv_feature_layers", "conv_layers", "decoder_attention",
    "decoder_layers", "downsample", "encoder_attention", "encoder_layers", "gated_attention",
    "input_layers", "pretrained", "project_input", "self_attention",
)  # fmt: skip
_HARMLESS = re.compile(r"(True|False|None|\]\s*\*\s*\d{1,3}(?!\d)|[\d\s()\[\],.+-])*")


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
        _refuse_code(path, values)
        for side in ("encoder", "decoder"):
            count = values.get(f"{side}_layers")
            if isinstance(count, (int, float)) and not count <= len(state["model"]):
                raise PluginError(
                    f"{path} is damaged: its options tell of {count} {side} layers, and it "
                    "holds fewer weights. Copy it again."
                )
            if values.get(f"{side}_embed_path") is not None:
                values[f"{side}_embed_path"] = None


def _refuse_code(path: str, options: Mapping[str, Any]) -> None:
    """Refuse options that would run code where fairseq evaluates them."""
    for name in _EVALUATED:
        value = options.get(name)
        if isinstance(value, str) and not _HARMLESS.fullmatch(value):
            raise PluginError(
                f"{path} was refused: fairseq would run its option {name} as code, and it holds "
                f"more than numbers ({value[:60]!r}). Nothing in it was run. Save the checkpoint "
                "again with numbers there."
            )
