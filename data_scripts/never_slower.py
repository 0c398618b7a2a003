"""Whether drafting is ever slower than greedy decoding, in a table of models and batch sizes."""

import argparse
import shlex
import statistics
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from example_results import origin_of, read_json, write_results
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import specdec_plugin
from specdec_plugin.api import Session, Translator
from specdec_plugin.cli import init_drafter
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from specdec_plugin.fairseq_compat.pairing import load_model
from specdec_plugin.fairseq_compat.tasks import TASK, set_up_task
from specdec_plugin.lab.bench.timing import spread
from specdec_plugin.models.blockwise_transformer import (
    BlockwiseTransformerModel,
    blockwise_transformer,
)
from specdec_plugin.models.shape import arguments_of
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Decode the same sentences with greedy decoding and with each method, taking turns,
each pass with everything to be measured anew. Print the median over the passes of a
method's time divided by greedy decoding's, for each model and batch size. A + names a trained
drafter, or certified projection, which greedy decoding beside it does not have. Drafters and
proposal heads that are not given are made, untrained. Rows that --output has are kept,
so the same command resumes after an interruption."""

EXAMPLE = """\
example:
  python data_scripts/never_slower.py --threads 2 --output slower.json \\
      --model en-es checkpoints/pydocs-en-es/verifier.pt data-bin en es \\
      --drafter en-es checkpoints/pydocs-en-es/drafter.pt --heads en-es heads.pt \\
      --random tiny 40 2 40 200 --random base 512 6 8000 30"""

METHODS = {
    "specdec": {"decoding": "specdec"},
    "specdec+drafter": {"decoding": "specdec", "drafter_path": "drafter"},
    "hybrid-jacobi": {"decoding": "hybrid-jacobi"},
    "gs-jacobi": {"decoding": "gs-jacobi"},
    "input-guided": {"decoding": "input-guided"},
    "blockwise": {"decoding": "blockwise", "drafter_path": "heads"},
    "auto": {"decoding": "auto"},
    "greedy+certified": {"decoding": "greedy", "certified_projection": True},
    "specdec+certified": {"decoding": "specdec", "certified_projection": True},
}
#: Sentences that a method decodes before the next one's turn, in whole batches.
TURN = 16
#: k of untrained proposal heads.
HEADS = 4
#: Tokens of random sources.
SOURCE = 20


class Case(NamedTuple):
    """A model and what it decodes.

    Attributes:
        name: in the table.
        path: of the checkpoint.
        data: folder with dictionaries, and data unless ``length`` is given.
        source, target: languages.
        length: tokens of each output, from random sources; None: those of the test set.
    """

    name: str
    path: str
    data: str
    source: str
    target: str
    length: Optional[int] = None


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="never_slower.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    several: Dict[str, Any] = {"action": "append", "default": []}
    trained = ("NAME", "PATH", "DATA", "SOURCE", "TARGET")
    add("--model", nargs=5, metavar=trained, help="a checkpoint and its data", **several)
    untrained = ("NAME", "DIM", "LAYERS", "SYMBOLS", "LENGTH")
    add("--random", nargs=5, metavar=untrained, help="an untrained model to make", **several)
    add("--drafter", nargs=2, metavar=("NAME", "PATH"), help="of a model", **several)
    add("--heads", nargs=2, metavar=("NAME", "PATH"), help="of a model", **several)
    add("--methods", default=",".join(METHODS), help="that are timed (default: %(default)s)")
    add("--batch-sizes", default="1,8,64", help="sentences a batch (default: %(default)s)")
    add("--sentences", type=int, default=400, help="of the split (default: %(default)s)")
    add("--passes", type=int, default=7, help="over all sentences (default: %(default)s)")
    add("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    add("--subset", default="test", help="split of the data (default: %(default)s)")
    add("--folder", default="never_slower", help="for what is made (default: %(default)s)")
    add("--output", required=True, help="file for all times, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    names = split(options.methods)
    for name in names:
        if name not in METHODS:
            raise PluginError(f"There is no method {name}. Methods are {', '.join(METHODS)}.")
    torch.set_num_threads(options.threads)
    folder = Path(options.folder)
    cases = [Case(*each) for each in options.model]
    cases += [random_case(folder, name, *map(int, rest)) for name, *rest in options.random]
    given = {"drafter": dict(options.drafter), "heads": dict(options.heads)}
    origin = origin_of(shlex.join(["never_slower.py", *argv]), [])
    # Wherever the models that are made lie, they are the same.
    places = ("output", "folder")
    origin["settings"] = {key: vars(options)[key] for key in vars(options) if key not in places}
    rows = measured_before(Path(options.output), origin)
    done = {(row["model"], row["batch"]) for row in rows}
    sizes = [int(size) for size in split(options.batch_sizes)]
    for case in cases:
        missing = [size for size in sizes if (case.name, size) not in done]
        if not missing:
            continue
        paths = {
            kind: given[kind].get(case.name) or make(case, folder)
            for kind, make in (("drafter", untrained_drafter), ("heads", untrained_heads))
        }
        session = specdec_plugin.load_session(
            case.path, case.data, source_lang=case.source, target_lang=case.target
        )
        for size in missing:
            batches = batches_of(session, case, size, options)
            seconds = timed(session, case, batches, names, paths, options.passes)
            rows.append({"model": case.name, "batch": size, "seconds": seconds})
            print(table(rows[-1:]), flush=True)
            write_results(options.output, {**origin, "rows": rows})
    print(table(rows))


def measured_before(output: Path, origin: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The rows of an interrupted run.

    Args:
        output: its file.
        origin: of this run, which the file names from now on.

    Raises:
        PluginError: the other run had another origin.
    """
    if not output.exists():
        return []
    before: Dict[str, Any] = read_json(output)
    then, now = (
        {**run.get("settings", {}), "machine": run.get("machine"), "commit": run.get("commit")}
        for run in (before, origin)
    )
    for name, value in now.items():
        if then.get(name) != value:
            raise PluginError(
                f"The rows in {output} were measured with {name} {then.get(name)}, but now it is "
                f"{value}. Keep it, or name another --output."
            )
    rows: List[Dict[str, Any]] = before["rows"]
    return rows


def split(text: str) -> List[str]:
    """The items of a list with commas."""
    return [each.strip() for each in text.split(",")]


def random_case(folder: Path, name: str, dim: int, layers: int, symbols: int, length: int) -> Case:
    """A model with random weights that never ends a sentence by itself."""
    data = folder / name
    data.mkdir(parents=True, exist_ok=True)
    dictionary = Dictionary()
    for number in range(symbols - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    for language in ("src", "tgt"):
        dictionary.save(str(data / f"dict.{language}.txt"))
    arguments = Namespace(
        arch="transformer",
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_embed_dim=dim,
        decoder_embed_dim=dim,
        encoder_ffn_embed_dim=4 * dim,
        decoder_ffn_embed_dim=4 * dim,
        encoder_attention_heads=dim // min(dim // 2, 64),
        decoder_attention_heads=dim // min(dim // 2, 64),
        share_all_embeddings=True,
    )
    path = str(data / "model.pt")
    save_heads(arguments, dictionary, dictionary, None, path)
    return Case(name, path, str(data), "src", "tgt", length)


def save_heads(
    arguments: Namespace, source: Any, target: Any, base: Optional[Any], path: str
) -> None:
    """Save a model with untrained proposal heads; without ``base``, all of it is random."""
    arguments.arch = arguments._name = "blockwise_transformer"
    arguments.block_size = arguments.trained_block_size = HEADS
    blockwise_transformer(arguments)
    torch.manual_seed(1)
    task = TranslationTask(TranslationConfig(), source, target)
    model: Any = BlockwiseTransformerModel.build_model(arguments, task)
    if base is not None:
        model.load_state_dict({**model.state_dict(), **base.state_dict()})
    else:
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.mul_(2.0)  # else it repeats one token
            model.decoder.output_projection.weight[target.eos()] = 0.0
    save_untrained(model.state_dict(), arguments, path)


def dictionaries(case: Case) -> List[Any]:
    """Of the source and the target."""
    languages = {"source_lang": case.source, "target_lang": case.target}
    task = set_up_task(TASK, case.data, languages)
    return [task.source_dictionary, task.target_dictionary]


def untrained_heads(case: Case, folder: Path) -> str:
    """The path of the model with random proposal heads."""
    if case.length is not None:
        return case.path
    path = folder / f"{case.name}.heads.pt"
    folder.mkdir(parents=True, exist_ok=True)
    base = load_model(case.path, *dictionaries(case))
    arguments = Namespace(**arguments_of(case.path, base, "heads are for a Transformer"))
    save_heads(arguments, *dictionaries(case), base, str(path))
    return str(path)


def untrained_drafter(case: Case, folder: Path) -> str:
    """The path of a drafter that has only its verifier's weights."""
    path = folder / f"{case.name}.drafter.pt"
    folder.mkdir(parents=True, exist_ok=True)
    languages = ["-s", case.source, "-t", case.target]
    form = ["--decoder-layers", "2", "--block-size", "10", "--prefix-attention", "causal"]
    form += ["--share-encoder", "--chain-units", "64"]
    files = ["--verifier", case.path, "--output", str(path)]
    init_drafter.main([case.data, *languages, *files, *form])
    return str(path)


def batches_of(session: Session, case: Case, size: int, options: Namespace) -> List[Any]:
    """Batches of so many sentences, spread over the split."""
    if case.length is None:
        dataset = session.split(options.subset)
        items = [dataset[number] for number in spread(range(len(dataset)), options.sentences)]
        items.sort(key=lambda item: len(item["source"]))
    else:
        symbols = len(session.task.source_dictionary)
        drawn = torch.randint(
            4, symbols, (options.sentences, SOURCE), generator=torch.Generator().manual_seed(1)
        )
        words = session.task.source_dictionary
        dataset = session.dataset([" ".join(words[each] for each in line) for line in drawn])
        items = [dataset[number] for number in range(len(dataset))]
    return [dataset.collater(items[first : first + size]) for first in range(0, len(items), size)]


def timed(
    session: Session,
    case: Case,
    batches: Sequence[Any],
    names: Sequence[str],
    paths: Dict[str, str],
    passes: int,
) -> Dict[str, List[float]]:
    """By method, the seconds of each pass."""
    translators = {name: translator(session, case, name, paths) for name in ("greedy", *names)}
    for each in translators.values():
        each.decode(batches[0])
    size = max(1, TURN // len(batches[0]["id"]))
    turns = [batches[first : first + size] for first in range(0, len(batches), size)]
    spent = [
        one_pass(translators, turns, number)
        for number in Progress(range(passes), unit="pass", leave=False)
    ]
    return {name: [each[name] for each in spent] for name in translators}


def translator(session: Session, case: Case, name: str, paths: Dict[str, str]) -> Translator:
    """What decodes by a method, or greedily.

    Args:
        session: of the model.
        case: the same model.
        name: of :data:`METHODS`, or ``greedy``.
        paths: of the model's drafter and heads.
    """
    flags: Dict[str, Any] = {"decoding": "greedy", **METHODS.get(name, {})}
    if "drafter_path" in flags:
        flags["drafter_path"] = paths[flags["drafter_path"]]
    if flags.get("drafter_path") == case.path:
        del flags["drafter_path"]
    return session.translator(**flags, **limit(case))


def one_pass(
    translators: Dict[str, Translator], turns: Sequence[Sequence[Any]], number: int
) -> Dict[str, float]:
    """By method, the seconds of a pass over all batches. The order of methods rotates.

    Args:
        translators: by method.
        turns: batches that a method decodes before the next one's turn.
        number: of the pass.
    """
    names, spent = list(translators), dict.fromkeys(translators, 0.0)
    for each in translators.values():
        each.generator.forget()
    for index, batches in enumerate(turns):
        first = (number + index) % len(names)
        for name in names[first:] + names[:first]:
            begin = time.perf_counter()
            for batch in batches:
                translators[name].decode(batch)
            spent[name] += time.perf_counter() - begin
    return spent


def limit(case: Case) -> Dict[str, int]:
    """fairseq's length options."""
    return {"max_len_b": 200 if case.length is None else case.length}


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """Median ratios of each cell to greedy decoding, as a table of Markdown."""
    names = [name for name in rows[0]["seconds"] if name != "greedy"]
    heads = ["model", "batch", "greedy, s", *names]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        greedy = row["seconds"]["greedy"]
        ratios = [
            statistics.median(one / other for one, other in zip(row["seconds"][name], greedy))
            for name in names
        ]
        shown = " | ".join(f"{ratio:.3f}" for ratio in ratios)
        lines.append(
            f"| {row['model']} | {row['batch']} | {statistics.median(greedy):.2f} | {shown} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
