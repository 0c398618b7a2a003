"""Peak memory, start and speed of fairseq-generate with a large model."""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from example_results import write_results
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from process_memory import memory_of

import specdec_plugin
from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights, save_untrained
from specdec_plugin.fairseq_compat.dictionaries import read_dictionary
from specdec_plugin.lab.bench.timing import spread
from specdec_plugin.progress import Progress
from specdec_plugin.textfiles import read_lines

DESCRIPTION = """\
Make a checkpoint with random float32 weights, by default of the shape of NLLB-600M, and
random sentences, and decode them with fairseq and with the plugin, each in a process of its
own. Scores of random weights are alike, unlike a trained model's. With --model, a model that
grow_model.py made of a trained one decodes real sentences. Print each process's peak resident
memory, mapped pages included, the seconds that it takes to translate one sentence to one token
from its start to its end, and its speed. Greedy decoding reads all of the decoder's weights for
each token: of its steps alone, print the share of the memory's bandwidth too."""

EXAMPLE = """\
example:
  OMP_NUM_THREADS=2 python data_scripts/large_model.py --folder large --output large.json"""

PLUGIN = str(Path(specdec_plugin.__file__).parent)
#: Flags of fairseq-generate for each way to decode.
WAYS = {
    "fairseq beam 1": ["--beam", "1"],
    "fairseq beam 5": ["--beam", "5"],
    "greedy": ["--decoding", "greedy"],
    "greedy certified": ["--decoding", "greedy", "--certified-projection"],
    "specdec": ["--decoding", "specdec"],
    "beam 5": ["--decoding", "beam", "--beam", "5"],
    "auto": ["--decoding", "auto"],
}
#: With packed weights that an earlier process kept. They come last: others would read them too.
KEPT = {f"{name}, kept": [*WAYS[name], "--keep-packed-weights"] for name in ("greedy", "specdec")}
WAYS |= KEPT
LANGUAGES = ("src", "tgt")
#: Matrices that a step reads, and of these, those that are read once a sentence.
READ = re.compile(r"decoder\.(layers|output_projection)\.")
BEFORE = re.compile(r"encoder_attn\.[kv]_proj")
#: Of the array that is read to measure the bandwidth: larger than any cache.
ARRAY = 1 << 30
#: Seconds between two looks at a process.
PAUSE = 0.02
#: Options of the shape of a model that is made.
SHAPE = ("dim", "ffn", "heads", "layers")
#: Tokens of each source.
SOURCE = 20


class Run(NamedTuple):
    """One process.

    Attributes:
        peak: resident bytes at most.
        seconds: from its start to its end.
        tokens_a_second: of decoding, by fairseq's own timer.
        steps_a_second: tokens of the plugin's steps alone, without the encoder; None for fairseq.
    """

    peak: int
    seconds: float
    tokens_a_second: float
    steps_a_second: Optional[float] = None


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="large_model.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, shown = parser.add_argument, "default: %(default)s"
    add("--dim", type=int, default=1024, help=shown)
    add("--ffn", type=int, default=4096, help=shown)
    add("--heads", type=int, default=16, help=shown)
    add("--layers", type=int, default=12, help="of the encoder and of the decoder (%(default)s)")
    add("--symbols", type=int, default=256_206, help=shown)
    add("--sentences", type=int, default=8, help=shown)
    add("--length", type=int, default=20, help="tokens of an output (default: %(default)s)")
    add("--model", metavar="CHECKPOINT", help="decode with it instead of random weights")
    add("--dictionary", metavar="FILE", help="of --model, without the symbols that it has grown")
    add(
        "--text",
        metavar="FILE",
        help="for --model: subwords of its source language, a sentence a line",
    )
    add(
        "--ways",
        nargs="*",
        default=list(WAYS),
        choices=list(WAYS),
        help="default: all; with none, a model is made only",
    )
    add("--folder", required=True, help="for the model and the sentences; reused if it has them")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    options = get_parser().parse_args(argv)
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder, options)
    if not options.ways:
        return
    weights = (folder / "model.pt").stat().st_size
    shutil.rmtree(folder / "model.pt.packed", ignore_errors=True)
    found: Dict[str, Dict[str, Any]] = {}
    speeds = [bandwidth()]
    for name in Progress(options.ways, unit="way"):
        if name in KEPT:
            run(folder, "one", [*WAYS[name], "--max-len-b", "1"])
        whole = run(folder, "test", [*WAYS[name], "--max-len-b", str(options.length)])
        start = run(folder, "one", [*WAYS[name], "--max-len-b", "1"])
        found[name] = {**whole._asdict(), "start": start.seconds}
        if name == "greedy":
            speeds.append(bandwidth())
    told = told_options(options)
    written: Dict[str, Any] = {"options": told, "bytes of weights": weights, "ways": found}
    print(table(written))
    read = bytes_of_a_step(folder / "model.pt")
    written |= {"bytes of a step": read, "bandwidth": max(speeds)}
    if steps := found.get("greedy", {}).get("steps_a_second"):
        written["greedy's share of the bandwidth"] = share = read * steps / max(speeds)
        print(
            f"greedy: {share:.2f} of {max(speeds) / 1e9:.1f} GB/s, in steps of {read / 1e9:.2f} GB"
        )
    write_results(options.output, written)


def told_options(options: Namespace) -> Dict[str, Any]:
    """What the results tell of the command line; a model that is given has sizes of its own."""
    told = vars(options)
    return {name: told[name] for name in told if not (options.model and name in SHAPE)}


def prepare(folder: Path, options: Namespace) -> None:
    """Write dictionaries, sentences, and the model unless it is there.

    Raises:
        PluginError: of --model, --dictionary and --text, one is missing.
    """
    given = [options.model, options.dictionary, options.text]
    if any(given) and not all(given):
        raise PluginError("Give --model, --dictionary and --text together, or none of them.")
    words = dictionary(options.symbols, options.dictionary)
    for language in LANGUAGES:
        words.save(str(folder / f"dict.{language}.txt"))
    if options.model:
        shutil.copyfile(options.model, folder / "model.pt")
        write_text(folder, spread([*read_lines(options.text)], options.sentences))
        return
    choose = random.Random(1)
    few = [" ".join(choose.choices(words.symbols[4:], k=SOURCE)) for _ in range(options.sentences)]
    write_text(folder, few)
    sizes = {name: getattr(options, name) for name in (*SHAPE, "symbols")}
    made, kept = folder / "model.pt", folder / "sizes.json"
    if made.exists() and (not kept.exists() or json.loads(kept.read_text("utf-8")) != sizes):
        raise PluginError(f"{made} has other sizes. Remove it, or name another folder.")
    kept.write_text(json.dumps(sizes) + "\n", "utf-8")
    if not made.exists():
        make_model(folder, words, options)


def dictionary(symbols: int, known: Optional[str] = None) -> Dictionary:
    """A dictionary, filled up with words without a meaning; the special symbols count, too.

    Args:
        symbols: how many.
        known: file of those that come first.
    """
    words = read_dictionary(known) if known else Dictionary()
    for number in range(symbols - len(words)):
        words.add_symbol(f"w{number}")
    return words


def write_text(folder: Path, lines: List[str]) -> None:
    """The sentences, and in ``one`` the first of them. References are not read."""
    for split, kept in (("test", lines), ("one", lines[:1])):
        for language in LANGUAGES:
            path = folder / f"{split}.src-tgt.{language}"
            path.write_text("".join(f"{line}\n" for line in kept), "utf-8")


def make_model(folder: Path, words: Dictionary, options: Namespace) -> None:
    """A model that never ends a sentence by itself."""
    sizes: Dict[str, Any] = {"arch": "transformer", "_name": "transformer", "activation_fn": "relu"}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_embed_dim": options.dim, f"{side}_ffn_embed_dim": options.ffn}
        sizes |= {f"{side}_layers": options.layers, f"{side}_attention_heads": options.heads}
        sizes[f"{side}_normalize_before"] = True
    arguments = Namespace(share_all_embeddings=True, **sizes)
    base_architecture(arguments)
    task = TranslationTask(TranslationConfig(), words, words)
    model: Any = TransformerModel.build_model(arguments, task)
    model.decoder.output_projection.weight.data[words.eos()] = 0.0
    save_untrained(model.state_dict(), arguments, str(folder / "model.pt"))


def bandwidth() -> float:
    """Bytes a second that all threads of PyTorch read together: the best of several times."""
    array = torch.ones(ARRAY // 4)
    seconds = []
    for _ in range(9):
        begin = time.perf_counter()
        array.sum()
        seconds.append(time.perf_counter() - begin)
    return ARRAY / min(seconds)


def bytes_of_a_step(model: Path) -> int:
    """Weights that a greedy step of one sentence reads: the decoder's layers and the projection.

    Keys and values of the source are computed before, so that two of the eight square matrices of
    a layer's attention are not read.
    """
    weights = load_weights(str(model))["model"]
    return sum(
        bytes_of(value)
        for name, value in weights.items()
        if READ.match(name) and not BEFORE.search(name) and value.dim() == 2
    )


def bytes_of(matrix: torch.Tensor) -> int:
    """What the kernels keep of a matrix."""
    return matrix.numel() * NativeLinear([matrix], None, torch.float32).bits // 8


def run(folder: Path, split: str, flags: List[str]) -> Run:
    """Decode a split, one sentence at a time.

    Raises:
        PluginError: the process failed.
    """
    program = str(Path(sys.executable).parent / "fairseq-generate")
    command = [program, str(folder), "--user-dir", PLUGIN, "--task", "specdec_translation"]
    command += ["-s", LANGUAGES[0], "-t", LANGUAGES[1], "--path", str(folder / "model.pt")]
    command += ["--gen-subset", split, "--dataset-impl", "raw", "--batch-size", "1", "--cpu"]
    command += ["--required-batch-size-multiple", "1", "--no-progress-bar", "--num-workers", "0"]
    begin, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        process = subprocess.Popen([*command, *flags], stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid).peak)
            time.sleep(PAUSE)
        seconds = time.perf_counter() - begin
        log.seek(0)
        printed = log.read()
    speed = re.search(r"([0-9.]+) tokens/s", printed)
    if process.returncode != 0 or speed is None:
        raise PluginError(f"fairseq-generate {' '.join(flags)} failed:\n{printed[-2000:]}")
    return Run(peak, seconds, float(speed[1]), steps_a_second(printed))


def steps_a_second(printed: str) -> Optional[float]:
    """Tokens for each second of verifier and projection, from the plugin's closing lines.

    None without such lines, or where the time is too short to be told there.
    """
    tokens = re.search(r"sentences, ([0-9,]+) tokens", printed)
    spent = re.search(r"time ([0-9.]+) s: .*?verifier (\d+)%, projection (\d+)%", printed)
    if tokens is None or spent is None:
        return None
    seconds = float(spent[1]) * (int(spent[2]) + int(spent[3])) / 100
    return int(tokens[1].replace(",", "")) / seconds if seconds > 0 else None


def table(result: Mapping[str, Any]) -> str:
    """The figures of a file of results, in Markdown."""
    heads = [
        "decoding",
        "peak memory, GB",
        "÷ weights",
        "start to first token, s",
        "tokens a second",
        "× fairseq",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    ways, weights = result["ways"], result["bytes of weights"]
    base = ways.get("fairseq beam 1", {}).get("tokens_a_second")
    for name, each in ways.items():
        faster = f"{each['tokens_a_second'] / base:.1f}" if base else ""
        lines.append(
            f"| {name} | {each['peak'] / 1e9:.2f} | {each['peak'] / weights:.2f} | "
            f"{each['start']:.1f} | {each['tokens_a_second']:.1f} | {faster} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
