"""``specdec-ddgviz``: figures and a page that show how sentences are decoded in parallel."""

import argparse
import os
from typing import Any, List, Optional, Sequence

from ...api import Session, Translator
from ...fairseq_compat.interrupts import console_program
from ...outputs import check_output, told_if_unwritable
from ...progress import Progress
from ..options import open_session
from . import record, speculation
from .chart import Chart, Reader, jacobi_chart, speculation_chart
from .command_line import build_parser, check_options, decoding_flags
from .draw import draw
from .observe import ObservingLoop
from .page import page
from .sentences import Sentence, read_sentences


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    check_options(options)
    check_output(options.output, folder=True)
    flags = decoding_flags(options)
    session = open_session(options, options.prefix_size)
    sentences = read_sentences(session, options)
    translator = build(session, options, flags)
    with told_if_unwritable(options.output):
        os.makedirs(options.output, exist_ok=True)
    generator = translator.generator
    reader = Reader(
        session.task.source_dictionary,
        session.task.target_dictionary,
        generator.symbols_to_strip_from_output,
        generator.eos,
    )
    charts: List[Chart] = []
    for sentence in Progress(sentences, unit="sentence"):
        charts.append(chart_of(translator, sentence, reader))
        draw(charts[-1], options.output)
    # Else greedy decoding's counters would be logged as those of Jacobi iterations.
    assert translator.statistics is not None
    translator.statistics.reset()
    path = os.path.join(options.output, "index.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(charts))
    print(f"Open {path} in a browser; the figures are beside it.")


def build(session: Session, options: argparse.Namespace, flags: Any) -> Translator:
    """The decoding method, which also observes what is drawn."""
    flags = {"max_len_a": options.max_len_a, "max_len_b": options.max_len_b, **flags}
    if options.decoding == "jacobi":
        observe: Any = record.observe
        translator = session.translator("greedy", **flags)
    else:
        translator = session.translator("specdec", retain_iter_history=True, **flags)
        observe = speculation.observe
    translator.generator.loop = ObservingLoop(translator.generator.loop, observe)
    return translator


def chart_of(translator: Translator, sentence: Sentence, reader: Reader) -> Chart:
    """Decode a sentence, and make of it what is shown."""
    ((hypothesis,),) = translator.decode(sentence.batch)
    name, observed = f"sentence-{sentence.number}", hypothesis["observed"]
    if isinstance(observed, record.Recording):
        return jacobi_chart(name, sentence.source, observed, reader)
    return speculation_chart(name, sentence.source, observed, reader)


if __name__ == "__main__":
    main()
