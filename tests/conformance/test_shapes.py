"""The architectures that fairseq's users have, in tiny: ours against fairseq's own search.

Each has the structure of the real one: norms, positions, activations, embeddings, numbers of
layers, sizes of heads. Only dimensions are small, and weights are random.
"""

import copy
import functools
from argparse import Namespace
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from specdec_plugin.engine import build_engine
from specdec_plugin.methods.self_draft.rounded_copy import CannotDraftError
from tests.support import methods as ways
from tests.support import tiny
from tests.support.nbest import assert_same_lists

SYMBOLS = tiny.dictionary(30)
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}
SHARED = {"share_all_embeddings": True}
LIMITS = {"max_len_a": 0.5, "max_len_b": 14}
#: Features of a frame of speech.
FEATURES = 80


def both(**options):
    """Options of the encoder and of the decoder."""
    sides = ("encoder", "decoder")
    return {f"{side}_{name}": value for side in sides for name, value in options.items()}


class Shape(NamedTuple):
    """One architecture.

    Attributes:
        arch: fairseq's name.
        options: that differ from those of all.
        kernels: whether the native kernels run its decoder.
        rounded: the type that holds each of its numbers.
    """

    arch: str
    options: dict
    kernels: bool = True
    rounded: torch.dtype = torch.float32


SHAPES = {
    "M2M-100 and NLLB": Shape("transformer_wmt_en_de_big", {**PRE_NORM, **SHARED}),
    "mBART-50": Shape("mbart_large", {**PRE_NORM, **SHARED, "layernorm_embedding": True}),
    "BART": Shape("bart_large", SHARED),
    "WMT19": Shape("transformer_wmt_en_de_big", {"encoder_ffn_embed_dim": 48}),
    "a deep encoder": Shape("transformer", both(layers=2) | {"encoder_layers": 12}),
    "IndicTrans2": Shape(
        "transformer",
        {**both(layers=18), **PRE_NORM, "activation_fn": "gelu", "layernorm_embedding": True},
    ),
    "shared target embeddings": Shape("transformer", {"share_decoder_input_output_embed": True}),
    "separate embeddings": Shape("transformer", {}),
    "learned positions": Shape("transformer", LEARNED),
    "a training in float16": Shape("transformer", {}, rounded=torch.float16),
    "a training in bfloat16": Shape("transformer", PRE_NORM, rounded=torch.bfloat16),
    "LayerDrop": Shape("transformer", both(layerdrop=0.5)),
    "s2t_transformer": Shape("s2t_transformer", {"conv_channels": 16}),
    "adaptive softmax": Shape("transformer", {"adaptive_softmax_cutoff": "9,18"}, False),
    "cross-self-attention": Shape("transformer", {"cross_self_attention": True}, False),
    **{
        f"heads of {size}": Shape("transformer", both(embed_dim=2 * size, attention_heads=2))
        for size in (5, 8, 40, 64, 80, 128)
    },
}


@functools.cache
def model_of(shape):
    """A random model whose words vary; do not change it."""
    torch.manual_seed(3)
    small = both(embed_dim=16, ffn_embed_dim=24, layers=2, attention_heads=2)
    limits = {"max_source_positions": 64, "max_target_positions": 64}
    args = Namespace(**{**small, **limits, **SHAPES[shape].options})
    arch = SHAPES[shape].arch
    ARCH_CONFIG_REGISTRY[arch](args)
    args.input_feat_per_channel, args.input_channels = FEATURES, 1
    task = SimpleNamespace(source_dictionary=SYMBOLS, target_dictionary=SYMBOLS)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0)
            else:  # fairseq starts biases at 0 and norms at 1, which would hide mistakes
                weight.add_(torch.randn_like(weight), alpha=0.2)
            weight.copy_(weight.to(SHAPES[shape].rounded))
    return model.eval()


def sample_of(shape, size):
    lengths = [6, 9, 4][:size]
    if SHAPES[shape].arch != "s2t_transformer":
        return tiny.sample(lengths, 1, words=30)
    frames = [40, 30, 17][:size]
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(size, max(frames), FEATURES, generator=generator)
    for row, count in enumerate(frames):
        features[row, count:] = 0
    net_input = {"src_tokens": features, "src_lengths": torch.tensor(frames)}
    return {"id": torch.arange(size), "net_input": net_input}


@functools.cache
def fairseqs(shape, beams, size):
    """The n-best lists of fairseq's search; do not change them."""
    own = copy.deepcopy(model_of(shape))  # the search leaves a number of beams in a BART
    search = SequenceGenerator([own], SYMBOLS, beams, **LIMITS)
    return search.generate([own], sample_of(shape, size))


def lists(shape, method, beams, size, backend):
    """Our n-best lists, and fairseq's."""
    options = {"beam": beams, **LIMITS}
    made = ways.generator(method, model_of(shape), backend, options)
    return made.generate([], sample_of(shape, size)), fairseqs(shape, beams, size)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 3])
class TestLists:
    def test_greedy(self, shape, size, backend):
        assert_same_lists(*lists(shape, "greedy", 1, size, backend))

    def test_beam(self, shape, size, backend):
        assert_same_lists(*lists(shape, "beam", 4, size, backend))

    def test_self_draft(self, shape, size, backend):
        try:
            found, expected = lists(shape, "self-draft", 1, size, backend)
        except CannotDraftError as error:
            own = backend.unsupported() is None and SHAPES[shape].kernels
            assert not own and "--decoding greedy" in str(error)
            return
        assert_same_lists(found, expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_run_what_they_should(shape):
    engine = build_engine(model_of(shape))
    on_torch = getattr(engine, "on_torch", "another engine")
    assert (on_torch is None) == SHAPES[shape].kernels, on_torch


def test_outputs_vary():
    """Or equal lists would show little."""
    seen = set()
    for shape in SHAPES:
        for best, *_ in fairseqs(shape, 1, 3):
            seen.add(tuple(best["tokens"].tolist()))
    assert len(seen) > len(SHAPES)
