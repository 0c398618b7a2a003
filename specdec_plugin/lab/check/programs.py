"""Who decodes: the plugin's methods, and what each is compared with."""

import argparse
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...api import Session, Translator
from ...fairseq_compat.options import flag_of
from ...methods.registry import readers
from ...methods.self_draft.rounded_copy import CannotDraftError
from ..bench.command_line import generation_of
from ..bench.methods import HEADS, Entry, entries
from ..records import file_state


class Program(NamedTuple):
    """One way to decode.

    Attributes:
        label: its name in results.
        entry: the plugin's method; None for fairseq's own search.
        beam: hypotheses of each sentence.
        flags: of decoding, those of other methods among them.
        generation: fairseq's generation options.
    """

    label: str
    entry: Optional[Entry]
    beam: int
    flags: Mapping[str, Any]
    generation: Mapping[str, Any]

    @property
    def sampling(self) -> bool:
        """Whether it draws samples."""
        return "sampling" in self.generation

    def build(self, session: Session) -> Translator:
        """Build what decodes."""
        if self.entry is None:
            return session.translator(None, beam=self.beam, **self.generation)
        return self.entry.translator(session, self.flags, self.generation)

    def facts(self) -> Dict[str, Any]:
        """What its output may depend on, besides models and text; with the states of files."""
        given: Dict[str, Any] = {**self.generation, "beam": self.beam}
        if self.entry is not None:
            given.update(decoding=self.entry.method.name, **self.entry.options(self.flags))
        paths = [each for each in given.values() if isinstance(each, str) and os.path.isfile(each)]
        states = {path: file_state(path) for path in paths}
        return {**{flag_of(name): value for name, value in given.items()}, **states}


def line_up(options: argparse.Namespace, names: Sequence[str]) -> List[Tuple[Program, Program]]:
    """Methods, each with the program whose output it has to have.

    fairseq's search is that of all methods but samples. They are compared with those of greedy
    decoding, which fairseq draws from other random numbers.

    Args:
        options: the command line.
        names: keys of :func:`..bench.methods.entries`.
    """
    generation = generation_of(options)
    flags = {name: getattr(options, name) for name in [*readers(), HEADS] if hasattr(options, name)}
    pairs = []
    for name in names:
        entry = entries()[name]
        beam = 1 if entry.beam == 1 else options.beam
        entry = entry._replace(beam=beam)
        label = f"{name} samples" if options.sampling else name
        label = label if beam == entries()[name].beam else f"{name} with {beam} beams"
        program = Program(label, entry, beam, flags, generation)
        pairs.append((program, _reference(program)))
    return pairs


def decodable(
    session: Session,
    pairs: Sequence[Tuple[Program, Program]],
    optional: bool,
    begun: Callable[[Program], bool],
) -> List[Tuple[Program, Program]]:
    """Those that decode with the models, before anything is stored for the others.

    Args:
        session: of the models.
        pairs: of :func:`line_up`.
        optional: whether a self-draft of models that cannot have one is left out, with a line.
        begun: whether an earlier run has decoded with a program.

    Raises:
        PluginError: options of a program are refused.
    """
    # What is built is not kept: fairseq notes a search's number of beams in some models.
    for reference in {reference.label: reference for _, reference in pairs}.values():
        if not begun(reference):
            reference.build(session)
    found = []
    for program, reference in pairs:
        try:
            if not begun(program):
                program.build(session)
        except CannotDraftError as error:
            if not optional:
                raise
            print(f"{program.label} is not checked. {error.cause}")
        else:
            found.append((program, reference))
    return found


def _reference(program: Program) -> Program:
    if program.sampling:
        return program._replace(label="greedy samples", entry=entries()["greedy"])
    return program._replace(label=f"fairseq beam {program.beam}", entry=None)
