"""The content of the figure and the page of a sentence, for both ways to decode it."""

from dataclasses import dataclass
from typing import Any, Container, Iterable, List, NamedTuple, Optional, Sequence

from ...decoding.statistics import counted
from .graph import Edge, drawn_edges, parallel, settling_iterations
from .kinds import Kind
from .record import Recording
from .speculation import Iteration
from .text import Marks, marks_of, readable, sentence


class Cell(NamedTuple):
    """A token in an iteration.

    Attributes:
        text: readable.
        kind: its fate.
        probability: the model's; None where it has no meaning.
    """

    text: str
    kind: Kind
    probability: Optional[float]


class Line(NamedTuple):
    """A line of the matrix.

    Attributes:
        iteration: counted from 1.
        label: the text before it.
        cells: one for each column; None is empty.
    """

    iteration: int
    label: str
    cells: List[Optional[Cell]]


@dataclass(frozen=True)
class Chart:
    """A sentence.

    Attributes:
        name: of its files.
        source: the text that was translated.
        output: the translation.
        columns: the output's tokens, readable; empty where drafts reach beyond its end.
        lines: of the matrix, in the order of iterations.
        settled: the iteration in which each output token settled or was accepted.
        edges: drawn edges of the dependency graph; None if there is no graph.
    """

    name: str
    source: str
    output: str
    columns: List[str]
    lines: List[Line]
    settled: List[int]
    edges: Optional[List[Edge]]

    @property
    def parallel(self) -> List[bool]:
        """Which output tokens share a colour with others; without a graph, none."""
        return [self.edges is not None and each for each in parallel(self.settled)]

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return self.lines[-1].iteration

    @property
    def summary(self) -> str:
        """Tokens, iterations and their ratio, in words."""
        tokens, iterations = len(self.settled), self.iterations
        counts = f"{counted(tokens, 'token')} in {counted(iterations, 'iteration')}"
        return f"{counts}: {tokens / iterations:.2f} an iteration"


class Reader:
    """Turns indices of the two dictionaries into symbols and sentences.

    Args:
        source: fairseq's dictionary; None for speech.
        target: likewise.
        languages: target symbols that are no text, such as those of languages.
        eos: the target symbol that ends a sentence; None: the dictionary's.
    """

    def __init__(
        self,
        source: Any,
        target: Any,
        languages: Iterable[int] = (),
        eos: Optional[int] = None,
    ) -> None:
        self._source, self._target = source, target
        self._marks = marks_of(target)
        self._silent = {*languages}
        self._end = target.eos_word if eos is None else target[eos]

    def tokens(self, indices: Sequence[int]) -> List[str]:
        """Readable symbols of the target."""
        return [readable(self._target[index], self._marks, self._end) for index in indices]

    def source_text(self, indices: Sequence[Any]) -> str:
        """The sentence that was translated; of speech, its length."""
        if self._source is None:
            return f"{len(indices):,} frames of speech"
        return _text(self._source, indices, marks_of(self._source))

    def text(self, indices: Sequence[int]) -> str:
        """The translation."""
        return _text(self._target, indices, self._marks, self._silent)


def _text(
    dictionary: Any, indices: Sequence[int], marks: Marks, others: Container[int] = ()
) -> str:
    silent = (dictionary.eos(), dictionary.pad())
    shown = [index for index in indices if index not in silent and index not in others]
    return sentence([dictionary[index] for index in shown], marks)


def jacobi_chart(name: str, source: Sequence[int], recording: Recording, reader: Reader) -> Chart:
    """The matrix and the graph of Figure 4.

    Args:
        name: of the sentence's files.
        source: the source's indices.
        recording: its iterations.
        reader: of the dictionaries.
    """
    settled = settling_iterations(recording.right)
    lines = []
    facts = zip(recording.tokens.tolist(), recording.probabilities.tolist(), recording.right)
    for iteration, (tokens, chances, right) in enumerate(facts, 1):
        kinds = [
            Kind.SETTLES if when == iteration else Kind.RIGHT if equal else Kind.WRONG
            for when, equal in zip(settled, right.tolist())
        ]
        cells = [Cell(*each) for each in zip(reader.tokens(tokens), kinds, chances)]
        lines.append(Line(iteration, str(iteration), [*cells]))
    output = recording.tokens[-1].tolist()
    return Chart(
        name,
        reader.source_text(source),
        reader.text(output),
        reader.tokens(output),
        lines,
        settled,
        drawn_edges(settled),
    )


def speculation_chart(
    name: str, source: Sequence[int], iterations: Sequence[Iteration], reader: Reader
) -> Chart:
    """Drafts and their fates, as in Table 19 of Xia et al. (2023).

    Args:
        name: of the sentence's files.
        source: the source's indices.
        iterations: of the sentence.
        reader: of the dictionaries.
    """
    output = [token for each in iterations for token in each.added]
    width = max(len(output), *(each.begin + len(each.draft) for each in iterations))
    columns = reader.tokens(output)
    lines = []
    for number, each in enumerate(iterations, 1):
        lines += _speculation_lines(number, each, columns, width, reader)
    return Chart(
        name,
        reader.source_text(source),
        reader.text(output),
        columns + [""] * (width - len(columns)),
        lines,
        [number for number, each in enumerate(iterations, 1) for _ in each.added],
        None,
    )


def _speculation_lines(
    number: int, each: Iteration, columns: Sequence[str], width: int, reader: Reader
) -> List[Line]:
    """The draft of an iteration behind the earlier output, and the verifier's own token below."""
    before = [Cell(text, Kind.BEFORE, None) for text in columns[: each.begin]]
    texts = reader.tokens([one.token for one in each.draft])
    drafted = [Cell(text, one.kind, one.probability) for text, one in zip(texts, each.draft)]
    behind = [None] * (width - len(before) - len(drafted))
    lines = [Line(number, f"{number} draft", [*before, *drafted, *behind])]
    if each.own is not None:
        own: List[Optional[Cell]] = [None] * width
        (text,) = reader.tokens(each.added[-1:])
        own[each.begin + each.kept] = Cell(text, Kind.VERIFIER, each.own)
        lines.append(Line(number, f"{number} verifier", own))
    return lines
