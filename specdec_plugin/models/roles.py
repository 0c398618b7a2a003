"""Which models translate, and which only draft for one that does."""

from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, FairseqMultiModel

from ..errors import PluginError
from .block_nat import BlockNATModel
from .blockwise_transformer import BlockwiseTransformerModel


def check_whole_model(model: Any, where: str, more: str = "") -> None:
    """Refuse a drafter, and heads without a model, where one that translates is needed.

    Args:
        model: fairseq's.
        where: it was named, such as "--teacher-path drafter.pt".
        more: what to do with it instead, if anything.

    Raises:
        PluginError: says what it is, and what to give.
    """
    if isinstance(model, BlockNATModel):
        what = "a drafter, which translates badly by itself"
    elif isinstance(model, BlockwiseTransformerModel) and model.alone:
        what = "a file of proposal heads alone"
    else:
        return
    raise PluginError(f"{where} names {what}: give the model that it was trained for{more}.")


def check_one_model(cfg: Any) -> None:
    """Refuse the options of a model that has an encoder and a decoder for each pair of languages.

    Args:
        cfg: fairseq's options of the model.

    Raises:
        PluginError: names the architecture, and the task that decodes it.
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    model = ARCH_MODEL_REGISTRY.get(name)
    if model is not None and issubclass(model, FairseqMultiModel):
        raise PluginError(
            f"The architecture {name} has an encoder and a decoder for each pair of languages: "
            "use fairseq's --task multilingual_translation, and leave out --decoding."
        )
