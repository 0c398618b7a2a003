"""``fairseq-hydra-train``: options of models that are no dataclasses, and errors in a sentence.

Its options of our models are in a mapping, which argparse has not checked. fairseq ignores those
that a model lacks. Of a mapping, its Transformer takes only its own options.
"""

from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY
from hydra._internal import utils
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..errors import PluginError

#: Options of a Transformer that fairseq-hydra-train may have in a mapping of their own.
_GROUPS = ("encoder", "decoder", "quant_noise")


def as_arguments(cfg: Any) -> Any:
    """The options of a model as fairseq-train has them, wherever they are from."""
    if not OmegaConf.is_config(cfg):
        return cfg
    options: Any = OmegaConf.to_container(cfg)
    return Namespace(**options)


def settle_names(cfg: Any, model: type) -> None:
    """Write groups of options, such as ``encoder``, as single options.

    Args:
        cfg: the options of a model; fairseq-train's stay as they are.
        model: its class, with ``add_args``; nothing is done if ``cfg`` is of another.

    Raises:
        PluginError: the model lacks an option.
    """
    if not OmegaConf.is_config(cfg):
        return
    found = ARCH_MODEL_REGISTRY.get(cfg.get("_name"), object)
    if not issubclass(found, model):
        return
    for group in _GROUPS:
        if OmegaConf.is_config(cfg.get(group)):
            cfg.update({f"{group}_{name}": value for name, value in cfg.pop(group).items()})
    parser = ArgumentParser(add_help=False)
    found.add_args(parser)
    unknown = {*cfg} - {"_name"} - {action.dest for action in parser._actions}
    if unknown:
        raise PluginError(
            f"model.{min(unknown)}: {cfg._name} has no such option. Take the names that "
            "fairseq-train has, with _ for each -, or leave it out."
        )


def checked(cfg: Any, name: str, value: Any, defaults: Any) -> Any:
    """A value as argparse would give it; fairseq-train's stays as it is.

    Args:
        cfg: the options of a model.
        name: an option of the dataclass ``defaults``.
        value: its value.
        defaults: tells which values there are.

    Raises:
        PluginError: it is none of them.
    """
    if not OmegaConf.is_config(cfg):
        return value
    try:
        found = OmegaConf.merge(OmegaConf.structured(defaults), {name: value})
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise PluginError(
            f"model.{name} {value}: {reason}. Give another value, or leave it out."
        ) from None
    values: Any = OmegaConf.to_container(found, enum_to_str=True)
    return values[name]


def tell_in_a_sentence() -> None:
    """Let Hydra print a PluginError as its own errors, without a traceback (idempotent)."""
    vars(utils)["CompactHydraException"] = (CompactHydraException, PluginError)
