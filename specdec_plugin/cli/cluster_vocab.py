"""``specdec-cluster-vocab``: clusters of decoder states, for ``--vocab-clusters``."""

import argparse
import ast
import itertools
import os
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence

import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from .. import api
from ..checksum import checksum
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..fairseq_compat.options import configuration_of
from ..fairseq_compat.pairing import fingerprint_of_dictionary, fingerprint_of_module
from ..outputs import check_output
from ..progress import Progress
from ..tasks.parallel_decoding import ParallelDecodingMixin
from ..textfiles import opened, read_lines
from ..vocab.active import build_clusters
from ..vocab.cluster_file import made_for, save_clusters
from ..vocab.kmeans import cluster, clusterer
from ..vocab.states import StateReader
from ..vocab.store import States, open_store

DESCRIPTION = """\
Record the states of a model's decoder right before the vocabulary projection, cluster them, and
write which tokens are likely in each cluster: the file of --vocab-clusters. All other options are
those of fairseq-generate, such as --path, --task, --gen-subset, --max-tokens or --cpu."""

EXAMPLE = """\
examples:
  specdec-cluster-vocab data-bin -s en -t es --path model.pt --gen-subset train --cpu \\
      --output clusters.en-es.pt
  specdec-cluster-vocab data-bin -s en -t es --path model.pt --cpu --input pieces.en \\
      --top-k 1 --neighbours 16 --output clusters-for-drafts.en-es.pt

The same command resumes an interrupted run. With the states that are recorded already,
--clusters, --top-k and --neighbours can be changed at little cost."""

#: Tokens that are recorded for each state, so that K can be changed afterwards.
RECORDED = 5
#: Lines of text that are read at once.
LINES = 4096

#: A batch of fairseq's.
Batch = Dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """The program's own options."""
    parser = argparse.ArgumentParser(
        prog="specdec-cluster-vocab",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the clusters")
    _add_states(parser)
    _add_clusters(parser)
    parser.add_argument("--note", help="what to call the states; default: languages and split")
    return parser


def _add_states(parser: argparse.ArgumentParser) -> None:
    """Which states are clustered."""
    parser.add_argument(
        "--input",
        metavar="TEXT",
        help="decode the lines of this text, in subword pieces as in the binarised data (default: "
        "--gen-subset of the data)",
    )
    parser.add_argument(
        "--decode",
        action="store_true",
        help="let the model decode the targets greedily, though the split has some. By default "
        "the split's targets are fed to the model, which is faster. --input is always decoded",
    )
    parser.add_argument(
        "--states", type=int, default=1_000_000, metavar="N", help="at most (default: %(default)s)"
    )
    parser.add_argument(
        "--states-dir",
        metavar="FOLDER",
        help="where the states are recorded, some 2 bytes for each of their numbers "
        "(default: --output with .states)",
    )
    parser.add_argument(
        "--more-states",
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="also cluster the states in these --states-dir, such as those of other source "
        "languages into the same target language",
    )


def _add_clusters(parser: argparse.ArgumentParser) -> None:
    """How they are clustered."""
    parser.add_argument(
        "--clusters", type=int, default=500, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--top-k",
        type=int,
        default=5,
        metavar="K",
        help=f"the likeliest tokens of each state that become active in its cluster, 1 to "
        f"{RECORDED} (default: %(default)s)",
    )
    parser.add_argument(
        "--neighbours",
        type=int,
        default=64,
        metavar="M",
        help="make them active in the M clusters nearest to the state; 1: in its own alone. At "
        "the same number of active tokens, this keeps more of the output than fewer clusters or a "
        "larger K (default: %(default)s)",
    )


class RecordingSession(api.Session):
    """Task, its target dictionary, one model, and the options of fairseq-generate."""

    def __init__(self, cfg: Any, task: Any, model: Any) -> None:
        super().__init__(task, [model])
        self.cfg, self.model, self.dictionary = cfg, model, task.target_dictionary

    def batches_of(self, dataset: Any, shuffle: bool) -> Iterator[Batch]:
        """Batches of a data set, in random order or not."""
        options, seed = self.cfg.dataset, self.cfg.common.seed
        iterator = self.iterator(dataset, options.batch_size, options.max_tokens, seed)
        return iter(iterator.next_epoch_itr(shuffle=shuffle))


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    own, rest = build_parser().parse_known_args(argv)
    own.decode |= own.input is not None
    folder = own.states_dir or own.output + ".states"
    _check(own, folder)
    session = open_session(rest, own.decode)
    always = always_active(session)
    recorded = record(session, own, folder)
    states = States([folder, *own.more_states], own.states)
    hidden = session.cfg.common.no_progress_bar
    clusters = build_clusters(
        states,
        cluster(states, own.clusters, session.cfg.common.seed, hidden),
        own.top_k,
        session.model.decoder.output_projection.out_features,
        always,
        session.dictionary.pad(),
        own.neighbours,
        hidden,
    )
    note = f"{own.note or recorded}, {len(states):,} states"
    decoder = session.model.decoder
    file = made_for(clusters, own.top_k, decoder, session.dictionary, note, own.neighbours)
    save_clusters(file, own.output)
    print(
        f"{own.output}: {clusters.size:,} clusters of {len(states):,} states; on average "
        f"{100 * clusters.active_share:.2f}% of {clusters.vocabulary:,} symbols are active, at "
        f"most {100 * clusters.largest / clusters.vocabulary:.2f}%; "
        f"{os.path.getsize(own.output):,} bytes"
    )


def _check(own: argparse.Namespace, folder: str) -> None:
    """Refuse what the clustering could not use, before states are recorded for hours.

    Args:
        own: the program's own options.
        folder: where states are recorded.
    """
    if not 1 <= own.top_k <= RECORDED:
        raise PluginError(f"--top-k {own.top_k}: give 1 to {RECORDED}.")
    for name in ("neighbours", "clusters", "states"):
        if getattr(own, name) < 1:
            raise PluginError(f"--{name} {getattr(own, name)}: give 1 or more.")
    check_output(own.output)
    check_output(folder, folder=True, option="--states-dir")
    more = len(States(own.more_states)) if own.more_states else 0
    if own.clusters > own.states + more:
        raise PluginError(
            f"--clusters {own.clusters:,} of at most {own.states + more:,} states cannot be made. "
            "Ask for fewer, or raise --states."
        )
    clusterer()


def open_session(rest: List[str], decodes: bool) -> RecordingSession:
    """Task and model as fairseq-generate loads them from its options ``rest``.

    Args:
        rest: the options.
        decodes: whether the model decodes the targets.
    """
    parser = options.get_generation_parser(default_task="specdec_translation")
    parser.set_defaults(max_tokens=4096, beam=1)
    if decodes:
        rest = [*rest, "--decoding", "greedy"]
    args = options.parse_args_and_arch(parser, rest)
    cfg = configuration_of(args)
    paths = utils.split_paths(cfg.common_eval.path or "")
    if len(paths) != 1:
        raise PluginError("Clusters belong to one checkpoint: give one as --path.")
    task = tasks.setup_task(cfg.task)
    overrides = ast.literal_eval(cfg.common_eval.model_overrides)
    (model,), _ = checkpoint_utils.load_model_ensemble(paths, overrides, task)
    model.float().eval().prepare_for_inference_(cfg)
    if torch.cuda.is_available() and not cfg.common.cpu:
        model.cuda()
    return RecordingSession(cfg, task, model)


def always_active(session: RecordingSession) -> List[int]:
    """Ends of sentences, unknown, and symbols such as languages that a task may force."""
    dictionary, task = session.dictionary, session.task
    language = getattr(session.cfg.task, "target_lang", None)
    forms = [f"[{language}]", f"__{language}__"]
    forced = [dictionary.index(form) for form in forms if form in dictionary.indices]
    if isinstance(task, ParallelDecodingMixin):
        forced.append(task.end_of_sentence(session.cfg.generation))
    return sorted({dictionary.eos(), dictionary.unk(), *forced})


def record(session: RecordingSession, own: argparse.Namespace, folder: str) -> str:
    """Record states until there are enough or the data end.

    Returns:
        what they were recorded from, such as ``en-es train``.
    """
    cfg, model = session.cfg, session.model
    reader = StateReader(model, RECORDED, session.dictionary.pad())
    what = os.path.basename(own.input) if own.input else cfg.dataset.gen_subset
    if own.input is None:
        session.task.load_dataset(cfg.dataset.gen_subset)
    identity = _identity(session, own, what)
    if own.more_states:  # refuses those of other models
        States(own.more_states, identity=({**identity, "dim": reader.dim}, cfg.common_eval.path))
    batches = _of_text(session, own.input) if own.input else _of_split(session)
    feed = _Decoded(session) if own.decode else _fed
    with (
        open_store(folder, identity, reader.dim, reader.top_k) as store,
        Progress(
            desc="states",
            unit="state",
            total=own.states,
            initial=min(store.count, own.states),
            disable=cfg.common.no_progress_bar,
        ) as bar,
    ):
        for batch in itertools.islice(batches, store.batches, None):
            if store.count >= own.states:
                break
            if model.decoder.output_projection.weight.is_cuda:
                batch = utils.move_to_cuda(batch)
            fed = feed(batch)[:, : model.max_decoder_positions()]
            states, tokens = reader.read(batch["net_input"], fed)
            room = own.states - store.count
            rest = slice(store.begun, store.begun + room)  # another run may have begun the batch
            whole = len(states) <= rest.stop
            store.append(states[rest], tokens[rest], whole)
            bar.update(len(states[rest]))
    pair = [getattr(cfg.task, name, None) for name in ("source_lang", "target_lang")]
    return f"{'-'.join(map(str, pair))} {what}"


def _identity(session: RecordingSession, own: argparse.Namespace, what: str) -> Dict[str, Any]:
    """All that the states depend on; see :class:`..vocab.store.StateStore`."""
    cfg = session.cfg
    batches = f"of {cfg.dataset.max_tokens} tokens, {cfg.dataset.batch_size} sentences"
    if cfg.dataset.num_shards > 1:
        batches += f", shard {cfg.dataset.shard_id} of {cfg.dataset.num_shards}"
    return {
        "decoder": int(fingerprint_of_module(session.model.decoder)),
        "dictionary": int(fingerprint_of_dictionary(session.dictionary)),
        "data": f"{what}, {'decoded' if own.decode else 'fed'}",
        "text": _checksum(session, own.input),
        "seed": cfg.common.seed,
        "batches": batches,
    }


def _fed(batch: Batch) -> Tensor:
    """(rows, length) the decoder's inputs in training: the shifted targets."""
    fed = batch["net_input"].get("prev_output_tokens")
    if fed is None or batch.get("target") is None:
        raise PluginError(
            "The split has no targets to feed to the model: add --decode, so that the model makes "
            "them."
        )
    return torch.as_tensor(fed)


class _Decoded:
    """The decoder's inputs in greedy decoding. For the task it is a generator of fairseq."""

    def __init__(self, session: RecordingSession) -> None:
        self._session = session
        self._generator = session.task.build_generator([session.model], session.cfg.generation)
        self._fed = torch.empty(0)

    def __call__(self, batch: Batch) -> Tensor:
        self._session.task.inference_step(self, [self._session.model], batch)
        return self._fed

    def generate(
        self, models: Any, sample: Batch, bos_token: Optional[int] = None, **rest: Any
    ) -> Any:
        """fairseq's hypotheses; keeps what the decoder was fed."""
        found = self._generator.generate(models, sample, bos_token=bos_token, **rest)
        first = self._generator.eos if bos_token is None else bos_token
        rows = [row[0]["tokens"] for row in found]
        fed = [torch.cat([row.new_tensor([first]), row[:-1]]) for row in rows]
        device = sample["net_input"]["src_tokens"].device  # Hypotheses may be on the CPU.
        self._fed = collate_tokens(fed, self._session.dictionary.pad()).to(device)
        return found


def _checksum(session: RecordingSession, path: Optional[str]) -> str:
    """Tells texts apart: that of a file, or the loaded split by the lengths of its sentences."""
    if path == "-":
        return "standard input"  # which can be read only once
    if path is not None:
        with opened(path) as file:
            return checksum(file)
    dataset = session.task.dataset(session.cfg.dataset.gen_subset)
    lengths = [int(dataset.num_tokens(number)) for number in range(len(dataset))]
    return checksum([repr(lengths).encode()])


def _of_split(session: RecordingSession) -> Iterator[Batch]:
    """Batches of the loaded split in random order, so that the first ones are a sample of all."""
    dataset = session.task.dataset(session.cfg.dataset.gen_subset)
    yield from session.batches_of(dataset, True)


def _of_text(session: RecordingSession, path: str) -> Iterator[Batch]:
    """Batches of some lines of a text, then of the next."""
    task, lines = session.task, read_lines(path)
    while some := list(itertools.islice(lines, LINES)):
        tokens, lengths = task.get_interactive_tokens_and_lengths(some, lambda line: line)
        dataset = task.build_dataset_for_inference(tokens, lengths)
        yield from session.batches_of(dataset, False)


if __name__ == "__main__":
    main(sys.argv[1:])
