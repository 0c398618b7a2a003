"""A model with other subwords: its weights, and embeddings put together for the new symbols."""

import argparse
from typing import Dict, List, Optional

import sentencepiece
import torch
from fairseq.data import Dictionary
from grow_model import TABLES

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights, save_whole
from specdec_plugin.fairseq_compat.dictionaries import read_dictionary
from specdec_plugin.outputs import check_output, same_file
from specdec_plugin.subwords import check_pieces, load_sentencepiece

DESCRIPTION = """\
Write a checkpoint whose vocabulary is another dictionary, to train on from
(--finetune-from-model). A symbol that both dictionaries have keeps its embedding. Another
one gets the mean of the embeddings of the pieces that the old subword model makes of it.
All other weights stay. Source and target must share one dictionary."""

EXAMPLE = """\
example:
  python data_scripts/change_subwords.py checkpoints/gec-en/model.pt \\
      --subword-model checkpoints/gec-en/spm.model \\
      --dictionary checkpoints/gec-en/dict.err.txt \\
      --new-dictionary data/bin/dict.err.txt --output start.pt"""

#: Weights with a row, or a number, for each symbol; Marian's models have a bias of the output.
BY_SYMBOL = (*TABLES, "output_projection.bias")
#: What SentencePiece puts before a word.
WORD_START = "▁"


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="change_subwords.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", metavar="CHECKPOINT", help="the model to start from")
    parser.add_argument("--subword-model", required=True, metavar="FILE", help="its SentencePiece")
    parser.add_argument("--dictionary", required=True, metavar="FILE", help="its dictionary")
    parser.add_argument("--new-dictionary", required=True, metavar="FILE", help="the wanted one")
    parser.add_argument("--output", required=True, metavar="CHECKPOINT", help="to write")
    return parser


def pieces_of(symbol: str, subwords: sentencepiece.SentencePieceProcessor) -> List[str]:
    """What a subword model makes of a symbol; a symbol within a word starts none."""
    pieces: List[str] = subwords.encode(symbol.replace(WORD_START, " "), out_type=str)
    if pieces and not symbol.startswith(WORD_START):
        pieces[0] = pieces[0].removeprefix(WORD_START)
    return pieces


def rows_of(
    symbol: str, old: Dictionary, subwords: sentencepiece.SentencePieceProcessor
) -> List[int]:
    """The rows of the old embeddings whose mean a symbol starts from.

    Args:
        symbol: of the new dictionary.
        old: dictionary of the model.
        subwords: of the model; it cuts symbols that the model lacks.
    """
    if symbol in old.indices:
        return [old.indices[symbol]]
    pieces = pieces_of(symbol, subwords)
    return [old.indices[piece] for piece in pieces if piece in old.indices] or [old.unk()]


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    check_output(args.output)
    if same_file(args.model, args.output):
        raise PluginError(f"--output {args.output} is the model itself. Name another file.")
    old, new = read_dictionary(args.dictionary), read_dictionary(args.new_dictionary)
    subwords = load_sentencepiece(args.subword_model)
    check_pieces(subwords, args.subword_model, old.symbols[old.nspecial :])
    state = load_weights(args.model)
    tables = {name: each for name, each in state["model"].items() if name.endswith(BY_SYMBOL)}
    if {len(old)} != {len(each) for each in tables.values()}:
        raise PluginError(
            f"The embeddings of {args.model} have other numbers of rows than the {len(old):,} "
            f"symbols of {args.dictionary}. Give the dictionary of this model."
        )
    changed: Dict[int, torch.Tensor] = {}
    rows = [rows_of(symbol, old, subwords) for symbol in new.symbols]
    for name, value in tables.items():
        memory = value.data_ptr()
        if memory not in changed:
            changed[memory] = torch.stack([value[each].float().mean(0) for each in rows])
        state["model"][name] = changed[memory]
    save_whole(state, args.output)
    kept = sum(symbol in old.indices for symbol in new.symbols)
    print(f"{len(new):,} symbols, {kept:,} of them with the embeddings that they had.")


if __name__ == "__main__":
    main()
