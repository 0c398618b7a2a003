"""A module borrowed from another model: it is read, but neither trained nor stored."""

from typing import Any, List

from torch import nn

from ..errors import PluginError


class Attached(nn.Module):
    """Base class of stand-ins for a module of the verifier or base model."""

    #: The error when no module is attached.
    MISSING = "The verifier is missing."

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # A list hides the module from PyTorch. It is in no state dict, it has no trained
        # parameters, and train() does not switch its dropout on.
        self._attached: List[Any] = []

    def attach(self, module: Any) -> None:
        """Use ``module`` from now on, without gradient and without dropout."""
        module.eval()
        module.requires_grad_(False)
        self._attached = [module]

    @property
    def attached(self) -> Any:
        """The module; PluginError when there is none."""
        if not self._attached:
            raise PluginError(self.MISSING)
        return self._attached[0]

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """Device and type moves reach the hidden module too."""
        for module in self._attached:
            module._apply(fn, *args, **kwargs)
        return super()._apply(fn, *args, **kwargs)
