"""Sentences as they were decoded: what was drafted, and what the verifier chose itself.

After Table 2 of Ge et al. (2022), for every method that drafts.
"""

import html
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

from ...api import Session
from ...decoding.gate import FixedGate
from ..history import Step, steps_of
from .edits import indices_by_bin
from .methods import Method
from .report import Row, speed_ups, table
from .timing import Timing, decode

#: Speed-ups of sentences are over the first of these that was timed, as in the paper.
_BASES = ("greedy", "fairseq beam 1")
#: Stands for the end of a sentence.
END = "⏎"


class Segment(NamedTuple):
    """The text that one iteration added to the output.

    Attributes:
        drafted: of drafted tokens that were kept.
        own: of the one that the verifier chose itself, if any.
    """

    drafted: str
    own: str


def chosen(ratios: Sequence[float], count: int) -> List[int]:
    """Which sentences are shown: equally many of each bin of edit ratios, where it has enough.

    Args:
        ratios: of each sentence.
        count: how many are wanted.

    Returns:
        their indices, in the order of their ratios.
    """
    indices = indices_by_bin(ratios).values()
    bins = [sorted(each, key=lambda index: ratios[index]) for each in indices]
    shares = [0] * len(bins)
    wanted = min(count, len(ratios))
    while sum(shares) < wanted:
        for number, each in enumerate(bins):
            shares[number] += int(shares[number] < len(each) and sum(shares) < wanted)
    return [
        each[(2 * turn + 1) * len(each) // (2 * share)]
        for each, share in zip(bins, shares)
        for turn in range(share)
    ]


def drafting(methods: Sequence[Method]) -> List[Method]:
    """Those that drafted anything while they were timed."""
    return [
        each
        for each in methods
        if each.statistics is not None and any(each.statistics.draft_lengths)
    ]


def example_rows(
    session: Session,
    methods: Sequence[Method],
    batches: Sequence[Any],
    timings: Mapping[str, Timing],
    ratios: Sequence[float],
    indices: Sequence[int],
    post_process: str,
) -> List[Row]:
    """Decode sentences once more, and list what each iteration added.

    Args:
        session: what is loaded.
        methods: those that draft.
        batches: fairseq's, of one sentence each.
        timings: by method, for the speed-up of each sentence.
        ratios: edit ratios of all sentences.
        indices: of the sentences.
        post_process: of subwords, as in fairseq-generate.
    """
    base = next(name for name in _BASES if name in timings)
    rows = []
    for method in methods:
        ups = speed_ups(timings[base].seconds, timings[method.name].seconds)
        for index in indices:
            steps = decoded_again(session, method, batches[index])
            shown = segments(steps, _reader(session.task.target_dictionary, post_process))
            rows.append(
                {
                    "method": method.name,
                    "sentence": int(batches[index]["id"]),
                    "edit ratio": ratios[index],
                    f"speed-up over {base}": ups[index],
                    "iterations": len(steps),
                    "source": _source(session, batches[index], post_process),
                    "output": [segment._asdict() for segment in shown],
                }
            )
    return rows


def decoded_again(session: Session, method: Method, batch: Any) -> List[Step]:
    """The iterations of a sentence, decoded as if it were the first, with drafts in all of them."""
    loop = method.generator.loop
    kept = loop.keep_history, loop.gate
    method.generator.forget()
    loop.keep_history, loop.gate = True, FixedGate()
    try:
        ((hypothesis,),) = decode(session, method, batch)
    finally:
        loop.keep_history, loop.gate = kept
    return steps_of([each["tokens"] for each in hypothesis["history"]])


def segments(steps: Sequence[Step], read: Callable[[List[int]], str]) -> List[Segment]:
    """What each iteration added, as text.

    Args:
        steps: of one sentence.
        read: the text of the first tokens of the output; each is the beginning of the next.
    """
    found: List[Segment] = []
    tokens: List[int] = []
    before = ""
    for step in steps:
        texts = []
        for more in (step.added[: step.kept], step.added[step.kept :]):
            tokens += more
            text = read(tokens)
            texts.append(text[len(before) :])
            before = text
        found.append(Segment(*texts))
    return found


def _reader(dictionary: Any, post_process: str) -> Callable[[List[int]], str]:
    def read(tokens: List[int]) -> str:
        text = str(dictionary.string(tokens, post_process))
        return f"{text} {END}" if tokens[-1:] == [dictionary.eos()] else text

    return read


def _source(session: Session, batch: Any, post_process: str) -> str:
    dictionary = session.task.source_dictionary
    (row,) = batch["net_input"]["src_tokens"]
    return str(dictionary.string(row[row.ne(dictionary.pad())], post_process))


def examples_tables(rows: Sequence[Row]) -> str:
    """A table for each method, and the meaning of its marks."""
    by_method: Dict[str, List[Row]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    parts = []
    for name, own in by_method.items():
        base = next(each for each in _BASES if f"speed-up over {each}" in own[0])
        head = [f"× {base}", "edit ratio", "iterations", "source", f"output of {name}"]
        parts.append(table(head, [_cells(row, base) for row in own], texts=(3, 4)))
    return "\n\n".join([*parts, EXAMPLES_NOTE])


def _cells(row: Row, base: str) -> List[str]:
    figures = [f"{row[f'speed-up over {base}']:.1f}", f"{row['edit ratio']:.2f}"]
    shown = marked([Segment(**each) for each in row["output"]])
    return [*figures, str(row["iterations"]), _escaped(row["source"]), shown]


EXAMPLES_NOTE = (
    "Each [segment] is what one iteration added, numbered from 0. Bold tokens were drafted and "
    f"accepted, in parallel; the others the verifier chose itself. {END} ends a sentence. The "
    "sentences were decoded once more for this, each as if it were the first."
)

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def marked(output: Sequence[Segment]) -> str:
    """The output in Markdown, in brackets with the number of the iteration."""
    text = ""
    for number, (drafted, own) in enumerate(output):
        shown = _bold(drafted) + _escaped(own)
        space = " " if shown.startswith(" ") else ""
        text += f"{space}[{shown.lstrip(' ')}]" + str(number).translate(_SUBSCRIPTS)
    return text.strip(" ")


def _bold(text: str) -> str:
    """Bold by a tag, since asterisks fail within a word or beside punctuation."""
    bare = text.lstrip(" ")
    return f"{text[: len(text) - len(bare)]}<b>{_escaped(bare)}</b>" if bare else text


def _escaped(text: str) -> str:
    """Text without meaning in Markdown, which does not end a cell."""
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(text, quote=False))
