"""How much of a sentence is changed, and how fast it is decoded (Ge et al., 2022, Figure 5).

The edit ratio is the edit distance between a source and its greedy output, divided by the length
of the source. Both are counted in the model's tokens, without ends of sentences. (The paper counts
words, as its Table 2 shows.) A source token that the target dictionary lacks counts as a change.
"""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

from ...api import Session
from ...decoding.symbols import Symbols
from ..gec.maxmatch import levenshtein
from . import counters
from .methods import GREEDY, Method
from .report import ACCEPTED, MEDIAN, METHOD, SPEED_UPS, Column, Row, speed, table_of
from .timing import Timing


class Bin(NamedTuple):
    """Edit ratios that share a line of the table.

    Attributes:
        name: as an interval.
        holds: whether a ratio is one of them.
    """

    name: str
    holds: Callable[[float], bool]


#: From no correction to a rewritten sentence. Learners' sentences are in the third bin.
BINS = (
    Bin("0", lambda ratio: ratio == 0),
    Bin("(0, 0.07)", lambda ratio: 0 < ratio < 0.07),
    Bin("[0.07, 0.13]", lambda ratio: 0.07 <= ratio <= 0.13),
    Bin("(0.13, 0.3]", lambda ratio: 0.13 < ratio <= 0.3),
    Bin("> 0.3", lambda ratio: ratio > 0.3),
)


class Edits(NamedTuple):
    """What a run measures about edits.

    Attributes:
        ratios: of each batch of one sentence.
        rows: figures by edit ratio and method; none without ``--edit-ratio``.
        examples: see :mod:`.examples`; none without ``--examples``.
    """

    ratios: List[float]
    rows: List[Row]
    examples: List[Row]


def edit_ratio(source: Sequence[int], output: Sequence[int]) -> float:
    """Insertions, deletions and substitutions that make the output, a token of the source."""
    return levenshtein(source, output, substitution=1)[-1][-1] / max(1, len(source))


def edit_ratios(
    session: Session, batches: Sequence[Any], timings: Mapping[str, Timing]
) -> List[float]:
    """The edit ratio of each sentence.

    Args:
        session: has the dictionaries.
        batches: fairseq's, of one sentence each.
        timings: by method, with the hypotheses of ``fairseq beam 1`` or of ``greedy``.
    """
    greedy = next(timings[name].hypotheses for name in GREEDY if name in timings)
    source, target = session.task.source_dictionary, session.task.target_dictionary
    symbols = Symbols.of(source, target, target.eos())
    ratios = []
    for batch in batches:
        (row,), (number,) = batch["net_input"]["src_tokens"], batch["id"].tolist()
        text = row[row.ne(source.pad()) & row.ne(source.eos())]
        output = greedy[number]["tokens"].tolist()[:-1]
        ratios.append(edit_ratio(symbols.source(text).tolist(), output))
    return ratios


def indices_by_bin(ratios: Sequence[float]) -> Dict[str, List[int]]:
    """Which sentences are in each of :data:`BINS` that has any, by its name."""
    found = {
        each.name: [index for index, ratio in enumerate(ratios) if each.holds(ratio)]
        for each in BINS
    }
    return {name: indices for name, indices in found.items() if indices}


def ratio_rows(
    ratios: Sequence[float], methods: Sequence[Method], timings: Mapping[str, Timing]
) -> List[Row]:
    """Figures by edit ratio and method.

    Args:
        ratios: of each batch of one sentence.
        methods: what was timed.
        timings: by method.
    """
    rows = []
    for name, indices in indices_by_bin(ratios).items():
        parts = {method.name: _part(timings[method.name], indices) for method in methods}
        for method in methods:
            part = parts[method.name]
            row: Row = {"edit ratio": name, "method": method.name, "sentences": len(indices)}
            row.update(speed(part, parts))
            if method.statistics is not None:
                row["accepted tokens"] = counters.total(part.statistics).accepted_tokens
            rows.append(row)
    return rows


def _part(timing: Timing, indices: Sequence[int]) -> Timing:
    """Some batches of a timing, without their hypotheses."""
    return Timing(
        [timing.seconds[index] for index in indices],
        statistics=[timing.statistics[index] for index in indices],
    )


_COLUMNS: List[Column] = [
    ("edit ratio", lambda row: str(row["edit ratio"])),
    METHOD,
    ("sentences", lambda row: f"{row['sentences']:,}"),
    MEDIAN,
    *SPEED_UPS,
    ACCEPTED,
]


def ratio_table(rows: Sequence[Row]) -> str:
    """Figures by edit ratio and method, with what the ratio is."""
    return table_of(_COLUMNS, rows, texts=(0, 1)) + "\n\n" + RATIO_NOTE


RATIO_NOTE = (
    "Edit ratio: the edit distance between source and greedy output, in the model's tokens without "
    "ends of sentences, divided by the length of the source. × is the median over the sentences "
    "with such a ratio."
)
