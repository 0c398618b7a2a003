"""The named sizes of blockwise Transformers."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from specdec_plugin.models.blockwise_transformer import BlockwiseTransformerModel


@pytest.mark.parametrize(
    "name, dim, ffn, layers, heads, shared",
    [
        ("blockwise_transformer_small", 256, 1024, 3, 4, True),
        ("blockwise_transformer", 512, 2048, 6, 8, False),
        ("blockwise_transformer_base", 512, 2048, 6, 8, False),
        ("blockwise_transformer_big", 1024, 4096, 6, 16, False),
    ],
)
def test_sizes(name, dim, ffn, layers, heads, shared):
    assert ARCH_MODEL_REGISTRY[name] is BlockwiseTransformerModel
    args = Namespace()
    ARCH_CONFIG_REGISTRY[name](args)
    for side in ("encoder", "decoder"):
        found = [getattr(args, f"{side}_{item}") for item in ("embed_dim", "ffn_embed_dim")]
        found += [getattr(args, f"{side}_layers"), getattr(args, f"{side}_attention_heads")]
        assert found == [dim, ffn, layers, heads]
    assert args.share_all_embeddings == shared
    assert args.trained_block_size == args.block_size == 8
    assert args.decoder_output_dim == dim  # of the heads, too


def test_what_is_given_stays():
    args = Namespace(decoder_layers=1, block_size=3, share_all_embeddings=False)
    ARCH_CONFIG_REGISTRY["blockwise_transformer_small"](args)
    assert (args.decoder_layers, args.encoder_layers, args.block_size) == (1, 3, 3)
    assert args.trained_block_size == 3 and not args.share_all_embeddings
