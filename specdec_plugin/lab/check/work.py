"""Decode and compare batch by batch, and keep what is done."""

import argparse
import os
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import fairseq
import torch
from fairseq import utils

from ...api import Session, Translator
from ...outputs import told_if_unwritable
from ...progress import Progress
from ..records import Records, code_state, file_state
from .explain import Explainer
from .programs import Program, decodable
from .text import Text

#: What results depend on, besides options.
_TEXT = "the text"
#: What a program did with a batch.
Line = Dict[str, Any]


class Outcome(NamedTuple):
    """What was found about a method.

    Attributes:
        label: of the method.
        reference: of the program that it was compared with.
        lines: one for each batch: ``sentences``, ``tokens``, ``iterations``,
            ``score_difference``, ``differences``.
    """

    label: str
    reference: str
    lines: List[Line]

    @property
    def accepted(self) -> Optional[float]:
        """Accepted tokens, of batches of earlier runs, too; None where none were counted."""
        tokens, iterations = (
            sum(line[name] for line in self.lines) for name in ("tokens", "iterations")
        )
        return tokens / iterations if iterations else None


class Folder:
    """Files of results, one for each program and shard.

    Args:
        options: the command line.
        text: what is checked.
    """

    def __init__(self, options: argparse.Namespace, text: Text) -> None:
        self._options, self._folder = options, options.output
        self._shared = {
            _TEXT: text.describe(),
            "--batch-size": options.batch_size,
            "--device": options.device,
            "PyTorch": torch.__version__,
            "fairseq": fairseq.__version__,
            **{path: file_state(path) for path in utils.split_paths(options.path)},
        }
        self._code = code_state(options.user_dir)

    def _path(self, program: Program, shard: int) -> str:
        name = re.sub(r"[^\w+]+", "-", program.label)
        if self._options.shards > 1:
            name += f".{shard}-of-{self._options.shards}"
        return os.path.join(self._folder, f"{name}.jsonl")

    def begun(self, program: Program) -> bool:
        """Whether a program has a file already."""
        paths = (self._path(program, shard) for shard in range(self._options.shards))
        return any(map(os.path.exists, paths))

    def records(self, program: Program, shard: int) -> Records:
        """The file of a program and a shard.

        Raises:
            PluginError: it depends on something else, or cannot be made.
        """
        with told_if_unwritable(self._folder):
            os.makedirs(self._folder, exist_ok=True)
        facts = {**self._shared, **program.facts()}
        if program.entry is not None:
            facts["the plugin's code"] = self._code
        path = self._path(program, shard)
        causes = {_TEXT: " (--sentences, --gen-subset and --input choose it)"}
        return Records(path, facts, again="name another --output", fields=["batch"], causes=causes)


class Task:
    """A program and a shard: the batches that are done, and those that are not.

    Args:
        records: where they are stored.
        batches: indices of the shard's batches.
    """

    def __init__(self, records: Records, batches: Sequence[int]) -> None:
        self._records = records
        self._done = {line["batch"]: line for line in records.lines}
        self.batches = batches

    @property
    def finished(self) -> List[int]:
        """The batches that are done."""
        return [index for index in self.batches if index in self._done]

    def finish(self, make: Callable[[int], Line], text: Text, bar: Progress) -> List[Line]:
        """Do what is left with ``make``; the lines of all batches."""
        for index in self.batches:
            if index not in self._done:
                line = {"batch": index, **make(index)}
                self._records.add([line])
                self._done[index] = line
                bar.update(text.size([index]))
        return [self._done[index] for index in self.batches]


class Decoder:
    """Decodes batches with a program, which is built when it is first needed."""

    def __init__(self, session: Session, text: Text, program: Program) -> None:
        self._session, self._text, self._program = session, text, program
        self._translator: Optional[Translator] = None

    def decode(self, batch: Any) -> List[List[Any]]:
        """The hypotheses of each sentence, best first: their tokens and scores."""
        if self._translator is None:
            self._translator = self._program.build(self._session)
        return [
            [(each["tokens"].tolist(), float(each["score"])) for each in hypotheses]
            for hypotheses in self._translator.decode(batch)
        ]

    def line(self, index: int) -> Line:
        """What to store of a batch."""
        batch = self._text.batch(index)
        return {"numbers": batch["id"].tolist(), "hypotheses": self.decode(batch)}

    @property
    def counted(self) -> Tuple[int, int]:
        """Tokens and iterations so far; zeros if nothing was decoded, or with several beams."""
        found = None if self._translator is None else self._translator.statistics
        if found is None or self._program.beam > 1:
            return 0, 0
        return found.tokens, found.iterations


class Comparison:
    """Compares what a program finds with what another one found.

    Args:
        session: what is loaded.
        text: what is checked.
        program: the method.
        reference: by batch, the lines of the other program.
    """

    def __init__(
        self, session: Session, text: Text, program: Program, reference: Mapping[int, Line]
    ) -> None:
        self._text, self._reference = text, reference
        self.decoder = Decoder(session, text, program)
        self._explainer = Explainer(session, text, program)

    def line(self, index: int) -> Line:
        """What to store of a batch: see :class:`Outcome`."""
        tokens, iterations = self.decoder.counted
        batch, before = self._text.batch(index), self._reference[index]
        expected = dict(zip(before["numbers"], before["hypotheses"]))
        width = batch["net_input"]["src_tokens"].size(1)
        farthest, differences = 0.0, []
        for number, found in zip(batch["id"].tolist(), self.decoder.decode(batch)):
            wanted = expected[number]
            mine, theirs = ([tokens for tokens, _ in each] for each in (found, wanted))
            if mine != theirs:
                differences.append(self._explainer.explain(number, width, mine, theirs))
                continue
            apart = [abs(one - other) for (_, one), (_, other) in zip(found, wanted)]
            farthest = max([farthest, *apart])
        counted = self.decoder.counted
        return {
            "sentences": len(expected),
            "tokens": counted[0] - tokens,
            "iterations": counted[1] - iterations,
            "score_difference": farthest,
            "differences": differences,
        }


def check(
    session: Session,
    text: Text,
    options: argparse.Namespace,
    pairs: Sequence[Tuple[Program, Program]],
) -> List[Outcome]:
    """Check methods on the shards that the command line names.

    Args:
        session: what is loaded.
        text: what is checked.
        options: the command line.
        pairs: of :func:`.programs.line_up`.
    """
    folder, count = Folder(options, text), options.shards
    pairs = decodable(session, pairs, options.methods is None, folder.begun)
    shards = range(count) if options.shard is None else [options.shard]
    references = {reference.label: reference for _, reference in pairs}

    def tasks_of(program: Program) -> List[Task]:
        batches = range(len(text.groups))
        return [Task(folder.records(program, each), batches[each::count]) for each in shards]

    programs = [*references.values(), *(program for program, _ in pairs)]
    tasks = {program.label: tasks_of(program) for program in programs}
    every = [task for each in tasks.values() for task in each]
    lines: Dict[str, List[Line]] = {}
    outcomes = []
    with Progress(
        desc="check",
        unit="sentence",
        total=sum(text.size(task.batches) for task in every),
        initial=sum(text.size(task.finished) for task in every),
    ) as bar:
        for label, program in references.items():
            decoder = Decoder(session, text, program)
            lines[label] = _finish(tasks[label], decoder.line, text, bar)
        for program, reference in pairs:
            before = {line["batch"]: line for line in lines[reference.label]}
            comparison = Comparison(session, text, program, before)
            found = _finish(tasks[program.label], comparison.line, text, bar)
            outcomes.append(Outcome(program.label, reference.label, found))
    return outcomes


def _finish(
    tasks: Sequence[Task], make: Callable[[int], Line], text: Text, bar: Progress
) -> List[Line]:
    return [line for task in tasks for line in task.finish(make, text, bar)]
