"""Levels of a processor's instructions: which libraries of kernels it can run.

A library is compiled for one level, and uses no instruction of a higher one. Before a library is
loaded, the instructions that the processor has are read from the system. So a library of another
machine is left alone where it cannot run.
"""

import os
import platform
from pathlib import Path
from typing import FrozenSet, List, NamedTuple, Optional, Tuple

import torch

from ...errors import PluginError

#: Names of machines that differ between systems.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class Level(NamedTuple):
    """A set of instructions.

    Attributes:
        name: as ``SPECDEC_KERNELS`` spells it.
        machine: the family of processors, as Linux spells it.
        features: instructions that the family's first processors lack, as Linux spells them.
    """

    name: str
    machine: str
    features: Tuple[str, ...]

    @property
    def flags(self) -> List[str]:
        """Options by which a compiler uses the features; without them it uses the family's."""
        return ["-m" + feature.replace("_", "") for feature in self.features]


_FMA = ("avx2", "fma")
_AVX2 = (*_FMA, "f16c")
_AVX512 = (*_FMA, "avx512f", "avx512bw", "avx512dq", "avx512vl")
_VNNI = (*_AVX512, "avx512_vnni")
#: From the least to the best of each family. Every processor of a family runs its first level.
LEVELS = (
    Level("sse2", "x86_64", ()),
    Level("avx2", "x86_64", _AVX2),
    Level("avx512", "x86_64", _AVX512),
    Level("avx512-vnni", "x86_64", _VNNI),
    Level("avx512-bf16", "x86_64", (*_VNNI, "avx512_bf16")),
    Level("neon", "aarch64", ()),
)
#: A library that is compiled here with all that the processor has, and stays here.
NATIVE = "native"
#: What PyTorch's name for a processor's instructions stands for.
_CAPABILITIES = {"AVX2": _AVX2, "AVX512": (*_AVX2, *_AVX512)}


def machine() -> str:
    """The family of this processor."""
    name = platform.machine().lower()
    return _MACHINES.get(name, name)


def cpuinfo() -> Optional[str]:
    """What Linux tells of the processors; None on other systems."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def features(text: Optional[str]) -> FrozenSet[str]:
    """The instructions that all processors have.

    Args:
        text: of ``/proc/cpuinfo``; None asks PyTorch, which knows less.
    """
    if text is None:
        return frozenset(_CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), ()))
    listed = [line.partition(":") for line in text.splitlines()]
    sets = [frozenset(rest.split()) for key, _, rest in listed if key.strip() in _LISTS]
    return frozenset.intersection(*sets) if sets else frozenset()


_LISTS = ("flags", "Features")  # x86, ARM


def of_machine(family: str) -> List[Level]:
    """The levels of a family of processors, from the least to the best."""
    return [level for level in LEVELS if level.machine == family]


def runnable() -> List[Level]:
    """The levels that this processor can run, from the least to the best."""
    here = features(cpuinfo())
    return [level for level in of_machine(machine()) if here.issuperset(level.features)]


def wanted() -> Optional[str]:
    """The name that ``SPECDEC_KERNELS`` gives; None for the best.

    Raises:
        PluginError: this processor cannot run it.
    """
    name = os.environ.get("SPECDEC_KERNELS", "").strip().lower()
    names = [level.name for level in runnable()]
    if name in ("", NATIVE, *names):
        return name or None
    known = next((level for level in LEVELS if level.name == name), None)
    lacking = "which is no level of kernels"
    if known is not None:
        missing = sorted(set(known.features) - features(cpuinfo())) or [known.machine]
        lacking = f"which this processor cannot run, because it lacks {', '.join(missing)}"
    raise PluginError(
        f"SPECDEC_KERNELS is {name}, {lacking}. Give one of {', '.join([*names, NATIVE])}, or "
        "leave it out for the best."
    )
