"""The models, batches and options that every method is compared with fairseq on."""

import functools
from typing import NamedTuple

from . import methods as ways
from .heads import numbered

#: Source lengths of a batch, by its size.
LENGTHS = {1: [5], 3: [4, 7, 1], 8: [3, 6, 0, 2, 7, 5, 1, 4]}


class Setting(NamedTuple):
    """A model and fairseq's options.

    Attributes:
        seed: of the model. The outputs have many words and many lengths.
        min_len: tokens before an end of sentence may come.
        max_len: tokens after which a sentence ends.
        lenpen: fairseq's exponent of the length.
        words: of the vocabulary.
        width: of the model. The kernels have other ways for many words and for wide heads.
    """

    seed: int
    min_len: int = 1
    max_len: int = 20
    lenpen: float = 1.0
    words: int = 12
    width: int = 16

    def options(self):
        return {"min_len": self.min_len, "max_len_b": self.max_len, "lenpen": self.lenpen}

    def limits(self):
        return {"min_len": self.min_len, "max_len": self.max_len}


PLAIN = Setting(13)
SETTINGS = {
    "plain": PLAIN,
    "limited": Setting(7, min_len=4, max_len=9, lenpen=0.6),
    "wide": Setting(0, words=700, width=64),
}


def model_of(way, setting):
    """The verifier, which ways without heads share; do not change it."""
    return _model_of(way if way.endswith(" heads") else "greedy", setting)


@functools.cache
def _model_of(way, setting):
    shape = {"share_all_embeddings": False, "share_decoder_input_output_embed": False}
    width = {"encoder_embed_dim": setting.width, "decoder_embed_dim": setting.width}
    symbols = numbered(setting.words)
    return ways.verifier(
        way, setting.seed, symbols, **shape, **width, decoder_normalize_before=True
    )
