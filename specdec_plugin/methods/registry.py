"""The decoding methods: what ``--decoding`` names, and everything that follows from it.

A method is one class. Its flags, their ranges and conflicts, the choices of ``--decoding``, the
methods of ``specdec-bench`` and the table of options are derived from the registered classes.
A method of your own is one file for ``--user-dir``::

    from specdec_plugin.methods.registry import Method, register_method

    @register_method("my-method")
    class MyMethod(Method):
        ...
"""

import functools
from argparse import Namespace
from dataclasses import Field, field, fields, make_dataclass
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    FrozenSet,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
)

from fairseq.dataclass import ChoiceEnum, FairseqDataclass

from ..decoding.acceptance import Rule, TopBeta
from ..decoding.drafter import Drafter
from ..decoding.gate import FixedGate, Gate
from ..decoding.generator import Loop
from ..decoding.guard import Guard
from ..decoding.loop import DecodingLoop
from ..decoding.preference import Preference
from ..decoding.steps import Step, UnverifiedStep, VerifiedStep
from ..engine.graphs.capture import unusual_runs
from ..fairseq_compat.options import flag_of, task_options
from .options import VerifierOptions, option
from .setup import Setup

#: Rows up to which drafts are tried at once where they may pay with any number. On an H200, drafts
#: of the shipped drafter took 1.2 times the time of none with 32 rows, and 0.7 times with one.
_PROMISING = 4
#: The beams of methods that have several, in ``specdec-bench``.
BENCH_BEAM = 5
#: Flags that fairseq's own search, without ``--decoding``, reads too.
OF_ANY_SEARCH = ("vocab_clusters",)


class Variant(NamedTuple):
    """A method as ``specdec-bench`` times it.

    Attributes:
        name: the name there.
        without: flags of the method that keep their defaults there, though they are given.
        beam: fairseq's ``--beam`` there.
    """

    name: str
    without: FrozenSet[str] = frozenset()
    beam: int = 1


class Need(NamedTuple):
    """What a flag needs to have an effect.

    Attributes:
        flag: another flag.
        value: the value of the other flag.
    """

    flag: str
    value: str


class Method:
    """A way to decode: its flags, its drafter and its acceptance rule.

    Attributes:
        name: the value of ``--decoding``; set by :func:`register_method`. Several classes may
            share it when :meth:`applies` tells them apart.
        summary: what it does, for ``--help``.
        Config: a dataclass with its flags; see :func:`.options.option`.
        condition: the flag that :meth:`applies` asks for, as typed; "" for none.
        needs: flags that have an effect only beside another flag's value.
        certifies: whether the projection is certified, where this is faster, without the flag.
        chooses: whether it delegates to another method. The user then asked for no drafts, and
            gets no warning where they do not pay.
        verifies: whether the model in ``--path`` verifies drafts; else they are the output.
        default_beam: fairseq's ``--beam`` where it is not typed; None keeps fairseq's.
        honours: options of fairseq that this method keeps, though not all do.
        variants: the names of ``specdec-bench``; () means the method's name alone.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[Any] = VerifierOptions
    condition: ClassVar[str] = ""
    needs: ClassVar[Mapping[str, Need]] = {}
    certifies: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    verifies: ClassVar[bool] = True
    default_beam: ClassVar[Optional[int]] = 1
    honours: ClassVar[FrozenSet[str]] = frozenset(["sampling"])
    variants: ClassVar[Sequence[Variant]] = ()

    @classmethod
    def applies(cls, cfg: Any) -> bool:
        """Whether it is this class that ``--decoding`` means, of those that share its name."""
        return True

    @classmethod
    def check(cls, cfg: Any) -> None:
        """Refuse flags that contradict each other, with a :class:`..errors.PluginError`."""

    @classmethod
    def check_search(cls, generation: Any) -> None:
        """Refuse fairseq's generation options that contradict each other, likewise."""

    @classmethod
    def unread(cls, generation: Any) -> FrozenSet[str]:
        """Flags that have no effect beside these options of fairseq."""
        return frozenset()

    @classmethod
    def build(cls, setup: Setup) -> Optional[Drafter]:
        """Build the drafter; None where nothing is drafted.

        A method without it has a :meth:`loop` of its own; :func:`register_method` sees to that.
        """
        return None

    @classmethod
    def loop(cls, setup: Setup) -> Loop:
        """Build what decodes batches; see :class:`..decoding.generator.ParallelGenerator`."""
        step: Step = UnverifiedStep()
        if cls.verifies:
            rule, preference = cls.rule(setup), cls.preference(setup)
            workers = setup.cfg.decoding_workers
            step = VerifiedStep(setup.verifier, rule, None, preference, workers)
        history = bool(getattr(setup.generation, "retain_iter_history", False))
        drafter = cls.build(setup)
        gate = cls.gate(setup, step, drafter)
        return DecodingLoop(drafter, step, setup.statistics, history, gate)

    @classmethod
    def gate(cls, setup: Setup, step: Step, drafter: Optional[Drafter]) -> Gate:
        """Build what decides when to draft.

        It is measured where the user leaves it open, and where the output cannot depend on it.
        """
        rows = cls.max_rows(setup)
        given = getattr(setup.cfg, "draft_rows", -1) >= 0
        measured = step.exact and not given
        if drafter is None or not measured:
            return FixedGate(rows)
        promising = _PROMISING if rows is None else rows
        if drafter.promising is not None:
            promising = min(promising, drafter.promising)
        return Guard(
            promising, len(drafter.lengths) or 1, unusual=unusual_runs, patient=step.captured
        )

    @classmethod
    def rule(cls, setup: Setup) -> Rule:
        """Which drafted tokens are accepted; the default accepts what greedy decoding chooses."""
        return TopBeta()

    @classmethod
    def preference(cls, setup: Setup) -> Optional[Preference]:
        """Which tokens are preferred to more probable ones; the default is none."""
        return None

    @classmethod
    def max_rows(cls, setup: Setup) -> Optional[int]:
        """Unfinished rows up to which drafts are made, or tried first; None: any number."""
        return setup.draft_rows(setup.usual_rows) if "draft_rows" in flags_of(cls) else None


#: What makes a method one; it has one of them at least.
_MADE = ("build", "loop")
_METHODS: List[Type[Method]] = []
_LISTENERS: List[Callable[[], None]] = []


def register_method(name: str) -> Callable[[Type[Method]], Type[Method]]:
    """Class decorator: make a method known under the name that ``--decoding`` takes.

    Raises:
        ValueError: another method declares one of its flags differently, or it would do nothing.
    """

    def register(method: Type[Method]) -> Type[Method]:
        inherited = (getattr(getattr(method, each), "__func__", None) for each in _MADE)
        if all(own is vars(Method)[each].__func__ for own, each in zip(inherited, _MADE)):
            raise ValueError(f"--decoding {name}: {method.__name__} has no build() and no loop().")
        known = all_flags()
        for flag, declared in flags_of(method).items():
            if flag in known and _facts(known[flag]) != _facts(declared):
                raise ValueError(
                    f"--decoding {name} declares {flag_of(flag)} differently than another "
                    "method: take the shared declaration from methods/options.py."
                )
        method.name = name
        _METHODS.append(method)
        config_class.cache_clear()
        for listener in _LISTENERS:
            listener()
        return method

    return register


def when_registered(listener: Callable[[], None]) -> None:
    """Call ``listener`` now, and again whenever another method is registered."""
    _LISTENERS.append(listener)
    listener()


def methods() -> Tuple[Type[Method], ...]:
    """All methods, in the order of registration."""
    return tuple(_METHODS)


def names() -> List[str]:
    """The values of ``--decoding``."""
    return list(dict.fromkeys(method.name for method in _METHODS))


def suited(
    flags: Mapping[str, Any], decoding: Optional[str], given: Optional[Mapping[str, Any]] = None
) -> Dict[str, Any]:
    """Those of some options that a method reads.

    Args:
        flags: of decoding and of the search, by name.
        decoding: the method; None: fairseq's own search.
        given: other options, which count more.
    """
    named = [each for each in _METHODS if each.name == decoding]
    any_beam = not named or any(
        each.default_beam is None or "beam" in each.honours for each in named
    )
    known = readers()
    kept = {
        name: value for name, value in flags.items()
        if name not in known
        or decoding in known[name]
        or (decoding is None and name in OF_ANY_SEARCH)
    }  # fmt: skip
    if not any_beam and not kept.get("sampling"):
        kept.pop("beam", None)
    search = Namespace(**{"beam": 1, **kept, **(given or {})})
    unread = frozenset().union(*(each.unread(search) for each in named))
    return {name: value for name, value in kept.items() if name not in unread}


def _facts(declared: "Field[Any]") -> Tuple[Any, ...]:
    return str(declared.type), declared.default, dict(declared.metadata)


def flags_of(method: Type[Method]) -> Dict[str, "Field[Any]"]:
    """The fields of a method's ``Config``, by name."""
    return {each.name: each for each in fields(method.Config) if each.name != "_name"}


def all_flags() -> Dict[str, "Field[Any]"]:
    """The fields of all methods."""
    found: Dict[str, Field[Any]] = {}
    for method in _METHODS:
        found.update({name: each for name, each in flags_of(method).items() if name not in found})
    return found


def readers() -> Dict[str, Tuple[str, ...]]:
    """By flag, the values of ``--decoding`` that read it."""
    return {
        flag: tuple(dict.fromkeys(each.name for each in _METHODS if flag in flags_of(each)))
        for flag in all_flags()
    }


@functools.cache
def config_class(name: str = "DecodingConfig", *bases: type) -> Any:
    """A dataclass with ``decoding`` and the flags of all methods registered so far.

    Args:
        name: of the class.
        bases: other dataclasses whose fields it also has.
    """
    summaries = "; ".join(f"{each.name}: {each.summary}" for each in _METHODS if each.summary)
    choices: Any = ChoiceEnum(names())
    choice = option(None, f"{summaries}. Default: fairseq's own beam search")
    declared: List[Any] = [("decoding", Optional[choices], choice)]
    for flag, each in all_flags().items():
        declared.append((flag, each.type, field(default=each.default, metadata=each.metadata)))
    made = make_dataclass(name, declared, bases=(*bases, FairseqDataclass))
    made.__module__ = __name__
    return made


def decoding_config(task: Any) -> Any:
    """The decoding flags of a task; those that its options lack have their defaults.

    A legacy task may have been set up with the options of a checkpoint that
    fairseq's own task wrote, which know nothing of these flags.
    """
    return config_class().from_namespace(task_options(task))


def method_of(cfg: Any) -> Type[Method]:
    """The method that ``cfg.decoding`` and the other flags name."""
    return next(each for each in _METHODS if each.name == str(cfg.decoding) and each.applies(cfg))


def given_flags(cfg: Any) -> Dict[str, Any]:
    """The flags that do not have their defaults, and their values."""
    return {
        flag: getattr(cfg, flag, each.default)
        for flag, each in all_flags().items()
        if getattr(cfg, flag, each.default) != each.default
    }
