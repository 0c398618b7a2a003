"""What is timed: fairseq's own search and the plugin's methods, over the same loaded models."""

from typing import Any, Dict, FrozenSet, Mapping, NamedTuple, Optional, Sequence, Type

from ...api import Session, Translator
from ...decoding.statistics import Statistics
from ...methods import registry

#: fairseq's own search with these beams.
BASELINES = {"fairseq beam 5": 5, "fairseq beam 1": 1}
#: Greedy decoding: the first that was timed has the hypotheses that others are compared with.
GREEDY = ("fairseq beam 1", "greedy")
#: Behind a method's name: the same with one more flag, to be timed beside that without.
CLUSTERED, CERTIFIED, CLUSTERED_DRAFTS = " clustered", " certified", " clustered drafts"
SUFFIXES = {
    CLUSTERED: "vocab_clusters",
    CERTIFIED: "certified_projection",
    CLUSTERED_DRAFTS: "drafter_vocab_clusters",
}
#: Flags that a method's name decides.
OF_THE_NAME = ("decoding", "certified_projection")
#: Names the proposal heads of ``blockwise``, so that a drafter may be timed beside them.
HEADS = "heads_path"


class Entry(NamedTuple):
    """What a name of ``--methods`` means.

    Attributes:
        method: the registered method.
        without: flags that keep their defaults.
        beam: fairseq's ``--beam``.
        suffixes: the :data:`SUFFIXES` of the name.
    """

    method: Type[registry.Method]
    without: FrozenSet[str] = frozenset()
    beam: int = 1
    suffixes: FrozenSet[str] = frozenset()

    def reads(self, flag: str, flags: Mapping[str, Any]) -> bool:
        """Whether output or speed depend on a flag.

        Args:
            flag: its field.
            flags: the values of all flags that are given, some of which decide it.
        """
        suffixes = {of_it: suffix for suffix, of_it in SUFFIXES.items()}
        if flag in suffixes:
            return suffixes[flag] in self.suffixes
        if flag in self.without or flag not in registry.flags_of(self.method):
            return False
        if flag == "approximate_scores":  # of a projection that is certified
            return CERTIFIED in self.suffixes or self.method.certifies
        if flag == "drafter_path" and self.method.name == "blockwise":
            return False  # HEADS replaces it
        need = self.method.needs.get(flag)
        if need is None or str(flags.get(need.flag, self._default(need.flag))) == need.value:
            return True
        # What no other method reads is refused where it has no effect.
        return len(registry.readers()[flag]) == 1

    def _default(self, flag: str) -> Any:
        return registry.flags_of(self.method)[flag].default

    def options(self, flags: Mapping[str, Any]) -> Dict[str, Any]:
        """Of all flags, those that the method is built with."""
        given = {flag: value for flag, value in flags.items() if self.reads(flag, flags)}
        if CERTIFIED in self.suffixes:
            given["certified_projection"] = True
        if self.method.name == "blockwise":
            given["drafter_path"] = flags.get(HEADS)
        return given

    def translator(
        self, session: Session, flags: Mapping[str, Any], generation: Mapping[str, Any]
    ) -> Translator:
        """Build what decodes.

        Args:
            session: what is loaded.
            flags: decoding flags, and :data:`HEADS`.
            generation: fairseq's generation options.
        """
        options = {**self.options(flags), **generation, "beam": self.beam}
        return session.translator(self.method.name, **options)


def entries() -> Dict[str, Entry]:
    """What ``--methods`` can name besides :data:`BASELINES`, from the registered methods."""
    found: Dict[str, Entry] = {}
    for method in registry.methods():
        variants = method.variants or (registry.Variant(method.name),)
        found.update({each.name: Entry(method, each.without, each.beam) for each in variants})
    for suffix, flag in SUFFIXES.items():
        for name, entry in list(found.items()):
            if flag in registry.flags_of(entry.method) and _takes(entry, suffix):
                found[name + suffix] = entry._replace(suffixes=entry.suffixes | {suffix})
    return found


def _takes(entry: Entry, suffix: str) -> bool:
    """Whether an entry may have one more suffix.

    Drafts may be clustered where the projection is certified. What is certified is the best
    token, which other methods than SpecDec++ accept alone.
    """
    relaxed = entry.reads("top_beta", {})
    if SUFFIXES[suffix] in entry.without:
        return False
    return CLUSTERED not in entry.suffixes and not (suffix == CERTIFIED and relaxed)


class Method(NamedTuple):
    """One way to decode, ready to be timed.

    Attributes:
        name: as in the report.
        generator: has fairseq's ``generate``.
        statistics: iterations and acceptance; None for fairseq's own search.
        partial: whether it scores only a part of the vocabulary somewhere, depending on states.
        method: the registered method; None for other engines.
        equal_to: the methods with whose hypotheses its own are compared; the first that was timed.
    """

    name: str
    generator: Any
    statistics: Optional[Statistics]
    partial: bool = False
    method: Optional[Type[registry.Method]] = None
    equal_to: Sequence[str] = GREEDY


def beam_of(name: str) -> int:
    """fairseq's ``--beam`` of a name of ``--methods``."""
    return BASELINES[name] if name in BASELINES else entries()[name].beam


def equals_of(beam: int, sampling: bool = False) -> Sequence[str]:
    """The methods with whose hypotheses another's are compared.

    Args:
        beam: its beams.
        sampling: it draws samples, which are not fairseq's, but the same for each method.
    """
    if sampling:
        return GREEDY[1:]
    return GREEDY if beam == 1 else (f"fairseq beam {beam}", "beam")


def build_method(
    session: Session,
    name: str,
    flags: Dict[str, Any],
    generation: Dict[str, Any],
    label: Optional[str] = None,
) -> Method:
    """Build one generator.

    Args:
        session: what is loaded.
        name: a key of :data:`BASELINES` or :func:`entries`.
        flags: decoding flags, and :data:`HEADS`; each method gets those that it reads.
        generation: fairseq's generation options, the same for all.
        label: its name in the report, if it is another.
    """
    if name in BASELINES:
        plain = session.translator(None, beam=BASELINES[name], **generation)
        # Beam search is compared with greedy decoding too; samples are fairseq's own.
        compared: Sequence[str] = () if "sampling" in generation else GREEDY
        return Method(label or name, plain.generator, None, equal_to=compared)
    entry = entries()[name]
    built = entry.translator(session, flags, generation)
    equals = equals_of(entry.beam, "sampling" in generation)
    return Method(
        label or name,
        built.generator,
        built.statistics,
        bool(entry.suffixes),
        built.method_class,
        equals,
    )


def reads(name: str, flag: str, flags: Optional[Mapping[str, Any]] = None) -> bool:
    """Whether what a name of ``--methods`` means depends on a flag; see :meth:`Entry.reads`."""
    known = entries()
    return name in known and flag != HEADS and known[name].reads(flag, flags or {})
