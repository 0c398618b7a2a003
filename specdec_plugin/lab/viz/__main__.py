"""``specdec-ddgviz``: figures and a page that show how sentences are decoded in parallel."""

import argparse
import os
from typing import Any, List, Optional, Sequence

from tqdm import tqdm

from ...errors import PluginError
from ..bench.methods import Session, build_method, open_session
from ..bench.timing import decode
from . import record, speculation
from .chart import Chart, Reader, jacobi_chart, speculation_chart
from .command_line import build_parser, check_options, decoding_flags
from .draw import draw
from .observe import ObservingLoop
from .page import page
from .sentences import Sentence, read_sentences


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    check_options(options)
    flags = decoding_flags(options)
    session = load(options)
    sentences = read_sentences(session, options)
    method = build(session, options, flags)
    try:
        os.makedirs(options.output, exist_ok=True)
    except FileExistsError:
        raise PluginError(f"--output {options.output} is a file. Name a folder.") from None
    reader = Reader(session.task.source_dictionary, session.task.target_dictionary)
    charts: List[Chart] = []
    for sentence in tqdm(sentences, unit="sentence"):
        charts.append(chart_of(session, method, sentence, reader))
        draw(charts[-1], options.output)
    # Else its counters would be logged, which are not those of Jacobi iterations.
    method.statistics.reset()
    path = os.path.join(options.output, "index.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(charts))
    print(f"Open {path} in a browser; the figures are beside it.")


def load(options: argparse.Namespace) -> Session:
    """Dictionaries and models; PluginError where files are missing."""
    try:
        return open_session(
            options.data, options.source_lang, options.target_lang, options.path, options.device
        )
    except FileNotFoundError as error:
        raise PluginError(
            f"{error}. Name a folder with the dictionaries that the model was trained with."
        ) from error


def build(session: Session, options: argparse.Namespace, flags: Any) -> Any:
    """The decoding method, which also observes what is drawn."""
    generation = {"max_len_a": options.max_len_a, "max_len_b": options.max_len_b}
    if options.decoding == "jacobi":
        method = build_method(session, "greedy", flags, generation)
        observe: Any = record.observe
    else:
        # In the benchmark's words: the method that reads β and τ too, whose defaults are exact.
        generation["retain_iter_history"] = True
        method = build_method(session, "specdec++", flags, generation)
        observe = speculation.observe
    method.generator.loop = ObservingLoop(method.generator.loop, observe)
    return method


def chart_of(session: Session, method: Any, sentence: Sentence, reader: Reader) -> Chart:
    """Decode a sentence, and make of it what is shown."""
    ((hypothesis,),) = decode(session, method, sentence.batch)
    name, observed = f"sentence-{sentence.number}", hypothesis["observed"]
    if isinstance(observed, record.Recording):
        return jacobi_chart(name, sentence.source, observed, reader)
    return speculation_chart(name, sentence.source, observed, reader)


if __name__ == "__main__":
    main()
