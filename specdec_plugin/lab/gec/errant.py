"""Span-based correction scores with ERRANT's edits, where ERRANT is installed.

Christopher Bryant, Mariano Felice and Ted Briscoe (2017): Automatic Annotation and Evaluation
of Error Types for Grammatical Error Correction.  ERRANT aligns with the help of a spaCy
language model, which has to be installed besides and which package registries do not carry.
"""

import importlib
import importlib.util
from typing import Any, List, Sequence, Set, Tuple

import numpy as np

from ...errors import PluginError
from ...progress import Progress
from .annotators import Counts, EditCounts, precision_recall_f
from .m2 import Annotations

Tokens = Sequence[str]
Spans = Set[Tuple[int, int, str]]


def load_errant() -> Any:
    """ERRANT's annotator; PluginError where it, or its language model, is missing."""
    if importlib.util.find_spec("errant") is None:
        raise PluginError(
            "--errant needs ERRANT, which is not installed. Run 'pip install errant' and "
            "'python -m spacy download en_core_web_sm', or leave out --errant."
        )
    try:
        return importlib.import_module("errant").load("en")
    except OSError:
        raise PluginError(
            "ERRANT finds no language model. Run 'python -m spacy download en_core_web_sm', or "
            "leave out --errant."
        ) from None


def errant_preferences(counts: np.ndarray, beta: float) -> List[np.ndarray]:
    """How ERRANT chooses an annotator: F to four digits, then matches, then few edits."""
    matched, proposed, gold = np.moveaxis(counts, -1, 0)
    _, _, f_score = precision_recall_f(counts, beta)
    return [f_score.round(4), matched, -proposed, -gold]


def annotated_spans(annotations: Annotations) -> List[Spans]:
    """The edits of each annotator of an M2 file; ``UNK`` ones have no correction to compare."""
    return [
        {(edit.start, edit.end, edit.replacement) for edit in edits if edit.type != "UNK"}
        for _, edits in sorted((annotations or {0: []}).items())
    ]


def spans(annotator: Any, source: Any, corrected: Tokens) -> Spans:
    """ERRANT's edits from a parsed source to a corrected sentence."""
    edits = annotator.annotate(source, annotator.parse(" ".join(corrected)))
    return {
        (edit.o_start, edit.o_end, " ".join(token.text for token in edit.c_toks))
        for edit in edits
        if edit.type not in ("noop", "UNK")
    }


def errant_counts(
    annotator: Any,
    sources: Sequence[Tokens],
    hypotheses: Sequence[Tokens],
    gold: Sequence[Any],
    beta: float = 0.5,
) -> EditCounts:
    """Counts of every sentence.

    Args:
        annotator: :func:`load_errant`'s.
        gold: for each sentence its :data:`Annotations`, or the tokens of its references, to
            which ERRANT then finds the edits itself.
    """
    rows: List[List[Counts]] = []
    progress = Progress(
        zip(sources, hypotheses, gold),
        total=len(sources),
        unit="sentence",
        desc="ERRANT",
    )
    for source, hypothesis, wanted in progress:
        parsed = annotator.parse(" ".join(source))
        proposed = spans(annotator, parsed, hypothesis)
        if isinstance(wanted, dict):
            correct = annotated_spans(wanted)
        else:
            correct = [spans(annotator, parsed, reference) for reference in wanted]
        rows.append([(len(proposed & each), len(proposed), len(each)) for each in correct])
    return EditCounts.of(rows, beta, errant_preferences)
