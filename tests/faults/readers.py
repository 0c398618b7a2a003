"""What the project reads from files: an intact file of each kind, and its reader."""

import gzip
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple

import sentencepiece
import torch
from fairseq.models.transformer import base_architecture

from specdec_plugin.cli.average_checkpoints import average
from specdec_plugin.cli.import_model.__main__ import main as import_model
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.engine.native import build
from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from specdec_plugin.fairseq_compat.pairing import load_model
from specdec_plugin.lab.bench.resume import Journal, Record
from specdec_plugin.lab.gec.m2 import read_m2_file
from specdec_plugin.models.block_nat import block_nat
from specdec_plugin.models.blockwise_transformer import blockwise_transformer
from specdec_plugin.subwords import load_sentencepiece
from specdec_plugin.tasks.parallel_decoding import SpecdecTranslationTask
from specdec_plugin.textfiles import read_lines
from specdec_plugin.vocab.cluster_file import ClusterFile, load_clusters, save_clusters
from specdec_plugin.vocab.store import States, StateStore
from tests.support import heads, made, tiny
from tests.support.command_lines import SCRIPTS
from tests.support.drafters import drafter_model
from tests.support.hugging_face import hide_torchaudio

sys.path.insert(0, str(SCRIPTS))
import shardfile


class Reader(NamedTuple):
    """A kind of file.

    Attributes:
        name: the file's, in a folder of its own; of several files, a pattern.
        make: fills the folder.
        read: reads the file, or the folder with several files.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]


SYMBOLS = tiny.dictionary()
#: Of the tiny models, for their checkpoints.
SHAPE = dict(
    encoder_layers=1, decoder_layers=2, encoder_embed_dim=16, decoder_embed_dim=16,
    encoder_ffn_embed_dim=24, encoder_attention_heads=2, decoder_attention_heads=2,
    max_source_positions=64, max_target_positions=64, dropout=0.0,
)  # fmt: skip
M2 = """S This are a sentence .
A 1 2|||R:VERB:SVA|||is|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S Ça va ?
A 0 1|||R:ORTH|||Ca||ca|||REQUIRED|||-NONE-|||0
"""


def _write_clusters(folder: Path) -> None:
    clusters = made.random_clusters(9, 16, 40, 0.3)
    one = torch.ones(1, dtype=torch.int64)
    save_clusters(ClusterFile(clusters, 2, 3, one, one, "test"), str(folder / "clusters.pt"))


def _write_model(path: Path) -> None:
    options = Namespace(arch="transformer", _name="transformer", share_all_embeddings=True, **SHAPE)
    base_architecture(options)
    save_untrained(tiny.model(symbols=SYMBOLS).state_dict(), options, str(path))


def _write_drafter(path: Path) -> None:
    more = dict(block_size=4, prefix_attention="full", share_encoder=False)
    options = Namespace(arch="block_nat", _name="block_nat", **more, **SHAPE)
    block_nat(options)
    save_untrained(drafter_model("full", symbols=SYMBOLS).state_dict(), options, str(path))


def _write_heads(path: Path) -> None:
    name = "blockwise_transformer"
    more = dict(block_size=4, heads="joint", share_all_embeddings=True)
    options = Namespace(arch=name, _name=name, **more, **SHAPE)
    blockwise_transformer(options)
    save_untrained(heads.blockwise_model(1, "joint", 4, SYMBOLS).state_dict(), options, str(path))


def _load(path: Path) -> None:
    load_model(str(path), SYMBOLS, SYMBOLS)


def _write_states(folder: Path) -> None:
    store = StateStore(str(folder), {"decoder": 1, "dictionary": 2}, 8, 3)
    for number in range(2):
        store.append(torch.randn(50, 8), torch.full((50, 3), number))


def _read_states(folder: Path) -> None:
    states = States([str(folder)])
    for _ in states.chunks():
        pass
    store = StateStore(str(folder), {"decoder": 1, "dictionary": 2}, 8, 3)
    store.append(torch.randn(5, 8), torch.zeros(5, 3))


def _write_shard(folder: Path) -> None:
    manifest = shardfile.Manifest({"beam": 5, "source": {"lines": 4}}, 0, 4, {"shard": 0})
    with shardfile.open_shard(str(folder / "shard.txt"), manifest) as writer:
        writer.append([0, 2], ["▁uno", "▁dos ▁tres"])
        writer.append([1, 3], ["", "▁cuatro"])


def _write_journal(folder: Path) -> None:
    journal = Journal(str(folder / "journal.jsonl"), {"--beam": 1})
    for number in range(3):
        tokens, counted = {number: torch.tensor([4, 5, 2])}, Statistics(sentences=1, tokens=3)
        journal.add(number, {"greedy": Record(0.5, tokens, counted)})


def _write_import(folder: Path) -> None:
    hide_torchaudio()
    from safetensors.torch import save_file
    from transformers import BartConfig, BartForConditionalGeneration

    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(20))]
    config = BartConfig(
        vocab_size=len(symbols), d_model=16, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24,
        decoder_ffn_dim=24, max_position_embeddings=32, forced_eos_token_id=None,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    weights = {name: each.clone() for name, each in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_dict()), "utf-8")
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    added = {"additional_special_tokens": ["w3"], "mask_token": {"content": "w4"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(added), "utf-8")


def _import(folder: Path) -> None:
    import_model([str(folder), "--from", "transformers", "--output", str(folder / "out")])


def _write_subwords(folder: Path) -> None:
    lines = [" ".join(SYMBOLS.symbols[4:]) + f" {number}" for number in range(30)]
    with open(folder / "spm.model", "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, vocab_size=20, minloglevel=2
        )


def _read_library(path: Path) -> None:
    found = build.stored_library(path.parent, "native")
    assert found is None or found.read_bytes() == b"\x7fELF" + 4000 * b"kernel"


def _write_library(folder: Path) -> None:
    (folder / "library.so").write_bytes(b"\x7fELF" + 4000 * b"kernel")
    build.store(folder / "library.so", folder, "native")
    (folder / "library.so").unlink()


def _text(name: str, text: str, read: Callable[[Path], Any]) -> Reader:
    return Reader(name, lambda folder: _put(folder / name, text), read)


def _put(path: Path, text: str) -> None:
    opening: Any = gzip.open if path.suffix == ".gz" else open
    with opening(path, "wb") as file:
        file.write(text.encode())


def _one(name: str, write: Callable[[Path], None], read: Callable[[Path], Any]) -> Reader:
    return Reader(name, lambda folder: write(folder / name), read)


_LINES = "".join(f"{symbol} {count}\n" for count, symbol in enumerate(SYMBOLS.symbols[4:], 1))
READERS: Dict[str, Reader] = {
    "clusters": Reader("clusters.pt", _write_clusters, lambda path: load_clusters(str(path))),
    "model": _one("model.pt", _write_model, _load),
    "drafter": _one("drafter.pt", _write_drafter, _load),
    "heads": _one("heads.pt", _write_heads, _load),
    "average": _one("model.pt", _write_model, lambda path: average([str(path)])),
    "m2": _text("gold.m2", M2, lambda path: list(read_m2_file(str(path)))),
    "packed m2": _text("gold.m2.gz", M2, lambda path: list(read_m2_file(str(path)))),
    "text": _text("lines.txt.gz", _LINES, lambda path: list(read_lines(str(path)))),
    "dictionary": _text(
        "dict.txt", _LINES, lambda path: SpecdecTranslationTask.load_dictionary(str(path))
    ),
    "states": Reader("*", _write_states, _read_states),
    "shard": Reader("shard.txt", _write_shard, lambda path: shardfile.read_shard(str(path))),
    "journal": Reader(
        "journal.jsonl", _write_journal, lambda path: Journal(str(path), {"--beam": 1}, True)
    ),
    "import": Reader("*", _write_import, _import),
    "subwords": Reader("spm.model", _write_subwords, lambda path: load_sentencepiece(str(path))),
    "kernels": Reader("native-*.so", _write_library, _read_library),
}
