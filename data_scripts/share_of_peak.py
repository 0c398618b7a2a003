"""How much of the machine's float32 speed decoding reaches, in the products with weights."""

import argparse
import shlex
import statistics
import sys
import time
from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from example_results import origin_of, write_results
from torch import Tensor, nn

import specdec_plugin
from specdec_plugin.api import Session, Translator
from specdec_plugin.engine.linear import Linear, NativeLinear
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Time the products of a model's weight matrices with as many states as they are fastest with, by
PyTorch and by our kernels, and decode a test set. Print how long its products would take at
that speed, and their share of the time of decoding. Attention, norms, the choice of tokens and
Python are no products with weights."""

EXAMPLE = """\
example:
  python data_scripts/share_of_peak.py data-bin -s en -t es --threads 2 --batch-size 512 \\
      --path checkpoints/pydocs-en-es/verifier.pt --output share.json"""

#: States in a product: the fastest number counts for each matrix.
ROWS = (32, 64, 128, 192, 256)
#: Operations of one sample of a product's speed.
SAMPLE = 4e8
#: Seconds in which PyTorch's threads stop spinning, which take processors from the kernels' own.
REST = 0.05

#: (outputs, inputs) of a matrix.
Shape = Tuple[int, int]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="share_of_peak.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", help="folder of fairseq-preprocess")
    add("-s", "--source-lang", required=True, help="of the data")
    add("-t", "--target-lang", required=True, help="of the data")
    add("--path", required=True, help="checkpoint of the model")
    add("--subset", default="test", help="split of the data (default: %(default)s)")
    add("--batch-size", type=int, default=512, help="sentences (default: %(default)s)")
    add("--beams", type=int, nargs="+", default=[1, 5], help="1: greedy (default: 1 5)")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--repeats", type=int, default=5, help="of either measurement (default: %(default)s)")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    session = specdec_plugin.load_session(
        options.path,
        options.data,
        source_lang=options.source_lang,
        target_lang=options.target_lang,
    )
    dataset = session.split(options.subset)
    items = sorted((dataset[i] for i in range(len(dataset))), key=lambda item: len(item["source"]))
    size = options.batch_size
    batches = [
        dataset.collater(items[first : first + size]) for first in range(0, len(items), size)
    ]
    sources = sum(len(item["source"]) for item in items)
    speeds, seconds, fed = measured(session, batches, options.beams, options.repeats)
    peaks = {shape: max(each) for shape, each in speeds.items()}
    rows = [
        row(beam, seconds[beam], shapes_of(session.models[0], sources, fed[beam]), peaks)
        for beam in options.beams
    ]
    print(f"{table_of_peaks(peaks)}\n\n{table(rows)}")
    kept = {f"{outputs} x {inputs}": each for (outputs, inputs), each in speeds.items()}
    origin = origin_of(shlex.join(["share_of_peak.py", *argv]), [])
    write_results(options.output, {**origin, "operations a second": kept, "rows": rows})


def measured(
    session: Session, batches: Sequence[Any], beams: Sequence[int], repeats: int
) -> Tuple[Dict[Shape, List[float]], Dict[int, List[float]], Dict[int, int]]:
    """Time products and decoding in turns, as many times.

    Returns:
        by shape, operations a second; by number of beams, seconds; and by number of beams, the
        tokens that the decoder is fed.
    """
    speeds: Dict[Shape, List[float]] = {shape: [] for shape in shapes_of(session.models[0], 0, 0)}
    seconds: Dict[int, List[float]] = {beam: [] for beam in beams}
    fed: Dict[int, int] = {}
    translators = {beam: translator(session, beam) for beam in beams}
    for each in translators.values():
        each.decode(batches[0])
    for _ in Progress(range(repeats), unit="repeat"):
        for shape, found in speeds.items():
            found.append(speed(shape))
        for beam, each in translators.items():
            seconds[beam].append(decode(each, batches))
            fed[beam] = each.statistics.iterations * beam
    return speeds, seconds, fed


def translator(session: Session, beam: int) -> Translator:
    """Decodes with so many beams, without drafts."""
    return session.translator("greedy") if beam == 1 else session.translator("beam", beam=beam)


def decode(decoder: Translator, batches: Sequence[Any]) -> float:
    """The seconds of all batches; the statistics are those of this run."""
    decoder.statistics.reset()
    begin = time.perf_counter()
    for batch in batches:
        decoder.decode(batch)
    return time.perf_counter() - begin


def shapes_of(model: Any, sources: int, fed: int) -> Dict[Shape, float]:
    """By shape, the operations of its products.

    Args:
        model: a fairseq Transformer.
        sources: tokens of all sources, which the encoder reads, and keys and values are made of.
        fed: tokens that the decoder is fed.
    """
    found: Counter[Shape] = Counter()
    for stack, inputs in ((model.encoder, sources), (model.decoder, fed)):
        for name, module in stack.named_modules():
            if isinstance(module, nn.Linear):
                shape = (module.out_features, module.in_features)
                of_source = name.endswith(("encoder_attn.k_proj", "encoder_attn.v_proj"))
                found[shape] += 2 * shape[0] * shape[1] * (sources if of_source else inputs)
    return dict(found)


def speed(shape: Shape) -> float:
    """The greatest operations a second of a product with such a matrix."""
    outputs, inputs = shape
    weight = torch.randn(shape)
    best = 0.0
    for way in (NativeLinear([weight], None, torch.float32), Linear(weight)):
        time.sleep(REST)
        for rows in ROWS:
            states, work = torch.randn(rows, inputs), 2.0 * rows * outputs * inputs
            best = max(best, work / seconds(way, states, round(SAMPLE / work) + 1))
    return best


def seconds(way: Any, states: Tensor, calls: int) -> float:
    """Of one call, on average."""
    way(states)
    begin = time.perf_counter()
    for _ in range(calls):
        way(states)
    return (time.perf_counter() - begin) / calls


def row(
    beam: int, times: Sequence[float], work: Dict[Shape, float], peaks: Dict[Shape, float]
) -> Dict[str, Any]:
    """The figures of one way to decode."""
    products = sum(operations / peaks[shape] for shape, operations in work.items())
    median = statistics.median(times)
    return {
        "beams": beam,
        "seconds": list(times),
        "GFLOP in products": sum(work.values()) / 1e9,
        "seconds of products": products,
        "share": products / median,
    }


def table_of_peaks(peaks: Dict[Shape, float]) -> str:
    """The speed of each shape, in Markdown."""
    lines = ["| matrix | GFLOP a second |", "|---|---:|"]
    lines += [f"| {n} x {m} | {peaks[n, m] / 1e9:.0f} |" for n, m in sorted(peaks)]
    return "\n".join(lines)


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """The figures of each way to decode, in Markdown."""
    lines = ["| beams | decoding, s | its products at best, s | share |", "|---:|---:|---:|---:|"]
    for each in rows:
        median = statistics.median(each["seconds"])
        products = each["seconds of products"]
        lines.append(f"| {each['beams']} | {median:.2f} | {products:.2f} | {each['share']:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
