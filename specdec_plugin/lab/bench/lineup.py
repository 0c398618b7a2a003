"""What is timed, built one after another so that each one's memory is seen."""

import argparse
import functools
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ...api import Session
from ...methods.registry import readers
from . import sweeps
from .command_line import generation_of
from .memory import Memory, growth, peak_growth, weight_bytes
from .methods import HEADS, Method, beam_of, build_method
from .peers import PEERS, build_peer
from .report import Row
from .sweeps import Setting
from .timing import decode

#: Batches with the longest sources, on which memory is measured.
MEMORY_BATCHES = 3


class Built(NamedTuple):
    """What is timed.

    Attributes:
        methods: the settings' methods, then the peers.
        kept: by name: bytes that the method keeps; None where the system hides it.
        swept: by name: what belongs into its row besides figures.
    """

    methods: List[Method]
    kept: Dict[str, Optional[int]]
    swept: Dict[str, Row]


def build(session: Session, options: argparse.Namespace, names: Sequence[str], batch: Any) -> Built:
    """Build what is timed one by one, and note how memory grows.

    Args:
        session: what is loaded.
        options: the command line.
        names: methods.
        batch: one of fairseq's batches, for methods that allocate when they decode first.
    """
    generation = generation_of(options)
    named = [*readers(), HEADS]
    flags = {name: getattr(options, name) for name in named if hasattr(options, name)}
    settings = sweeps.settings(
        names, flags, options.sweep, options.block_sizes, options.betas, options.tolerances
    )
    for peer in dict.fromkeys(options.peer):
        for beam in sorted({beam_of(name) for name in names}):
            label = peer if beam == 1 else f"{peer} beam {beam}"
            settings.append(Setting(label, peer, {"beam": beam}, {}))
    # What PyTorch allocates once, for all methods, is no method's.
    decode(session, build_method(session, "fairseq beam 1", {}, generation), batch)
    built = Built([], {}, {})
    for setting in settings:
        method, kept = growth(
            functools.partial(_make, session, setting, generation, batch), session.device
        )
        built.methods.append(method)
        built.kept[setting.label] = kept
        built.swept[setting.label] = {"base method": setting.method, **setting.swept}
    return built


def _make(session: Session, setting: Setting, generation: Dict[str, Any], batch: Any) -> Method:
    """Build a method and let it decode a batch."""
    if setting.method in PEERS:
        method = build_peer(session, setting.method, generation, setting.flags["beam"])
        method = method._replace(name=setting.label)
    else:
        args = setting.method, setting.flags, generation, setting.label
        method = build_method(session, *args)
    decode(session, method, batch)
    return method


def measure_memory(session: Session, built: Built, batches: Sequence[Any]) -> Dict[str, Memory]:
    """The memory of each method; see :mod:`.memory`. None of those whose part is hidden."""
    longest = sorted(batches, key=lambda batch: -batch["net_input"]["src_tokens"].numel())
    verifier = weight_bytes(session.models)
    memory = {}
    for method in built.methods:
        kept = built.kept[method.name]
        if kept is None:
            continue
        drafter = weight_bytes(method.generator, besides=session.models)
        decoding = [
            peak_growth(functools.partial(decode, session, method, batch), session.device)
            for batch in longest[:MEMORY_BATCHES]
        ]
        memory[method.name] = Memory(
            verifier=0 if built.swept[method.name]["base method"] in PEERS else verifier,
            drafter=drafter,
            packed=max(0, kept - drafter),
            decoding=max(decoding),
        )
    return memory
