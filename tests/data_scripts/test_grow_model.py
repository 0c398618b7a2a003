"""data_scripts/grow_model.py: a larger model that computes the same."""

from argparse import Namespace
from pathlib import Path
from typing import Any, List

import grow_model
import pytest
import torch
from fairseq.models.transformer import TransformerModel, base_architecture

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights, save_untrained, save_whole
from specdec_plugin.fairseq_compat.pairing import load_model
from tests.support import tiny

SYMBOLS = tiny.dictionary(40)


def write(folder: Path, **options: Any) -> str:
    """A small random model that can grow."""
    shape = dict(
        encoder_layers=1, decoder_layers=2, encoder_embed_dim=8, decoder_embed_dim=8,
        encoder_ffn_embed_dim=12, decoder_ffn_embed_dim=12, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_normalize_before=True, decoder_normalize_before=True,
        encoder_learned_pos=True, decoder_learned_pos=True, share_all_embeddings=True,
        max_source_positions=30, max_target_positions=30,
    )  # fmt: skip
    arguments = Namespace(arch="transformer", _name="transformer", **{**shape, **options})
    base_architecture(arguments)
    torch.manual_seed(3)
    model = TransformerModel.build_model(arguments, tiny.task(SYMBOLS))
    for name, value in model.named_parameters():  # fairseq begins with zeros and ones
        if name.endswith("bias") or "layer_norm" in name:
            torch.nn.init.uniform_(value, 0.5, 1.5)
    path = str(folder / "small.pt")
    save_untrained(model.state_dict(), arguments, path)
    return path


def grow(small: str, *flags: str) -> str:
    output = small.replace("small", "large")
    grow_model.main([small, "--output", output, *flags])
    return output


@torch.no_grad()
def scores(path: str, symbols: Any = SYMBOLS) -> torch.Tensor:
    """(2, 6, vocabulary) log-probabilities."""
    model = load_model(path, symbols, symbols)
    source = torch.tensor([[5, 9, 12, 30, 2], [1, 1, 8, 7, 2]])
    target = torch.tensor([[2, 4, 5, 6, 7, 8], [2, 20, 21, 1, 1, 1]])
    out = model(source, torch.tensor([5, 3]), target)
    return model.get_normalized_probs(out, log_probs=True)


@pytest.mark.parametrize(
    "flags",
    [["--width", "3"], ["--width", "2", "--layers", "5"], ["--layers", "2"]],
    ids=" ".join,
)
def test_the_same_scores(tmp_path: Path, flags: List[str]) -> None:
    small = write(tmp_path)
    torch.testing.assert_close(scores(grow(small, *flags)), scores(small), atol=1e-4, rtol=0)


def test_computed_positions_become_learned_ones(tmp_path: Path) -> None:
    small = write(tmp_path, encoder_learned_pos=False, decoder_learned_pos=False)
    large = grow(small, "--width", "2", "--layers", "3")
    torch.testing.assert_close(scores(large), scores(small), atol=1e-4, rtol=0)


def test_a_wider_model_that_normalises_outputs(tmp_path: Path) -> None:
    small = write(tmp_path, encoder_normalize_before=False, decoder_normalize_before=False)
    large = grow(small, "--width", "2")
    torch.testing.assert_close(scores(large), scores(small), atol=1e-4, rtol=0)


def test_a_deeper_model_that_normalises_outputs(tmp_path: Path) -> None:
    """It is the same where all units of a norm have the same scale and shift."""
    small = write(tmp_path, encoder_normalize_before=False, decoder_normalize_before=False)
    state = load_weights(small)
    for name, value in state["model"].items():
        if "layer_norm" in name:
            value.fill_(1.5 if name.endswith("weight") else 0.5)
    save_whole(state, small)
    large = grow(small, "--width", "2", "--layers", "4")
    torch.testing.assert_close(scores(large), scores(small), atol=1e-4, rtol=0)


def test_new_symbols_leave_the_old_ones_order(tmp_path: Path) -> None:
    small = write(tmp_path)
    more = tiny.dictionary(60)
    large = grow(small, "--width", "2", "--symbols", str(len(more)))
    wanted, found = scores(small), scores(large, more)
    assert found.size(2) == len(more)
    difference = found[..., : len(SYMBOLS)] - wanted  # that of the normalisers
    same = difference[..., :1].expand_as(difference)
    torch.testing.assert_close(difference, same, atol=1e-4, rtol=0)


def test_noise_tells_equal_units_apart_and_spares_zeros(tmp_path: Path) -> None:
    model = load_model(
        grow(write(tmp_path), "--width", "2", "--layers", "3", "--noise", "0.01"), SYMBOLS, SYMBOLS
    )
    weight = model.decoder.layers[0].fc1.weight
    assert not torch.equal(weight[:12], weight[12:])
    assert not model.decoder.layers[2].fc2.weight.any()
    assert not model.decoder.embed_tokens.weight[SYMBOLS.pad()].any()


@pytest.mark.parametrize(
    "options, flags, part",
    [
        ({"share_all_embeddings": False}, ["--width", "2"], "without --share-all-embeddings"),
        ({}, ["--layers", "1"], "can only grow: give --layers 2 or more"),
        ({}, ["--layers", "0"], "give --layers 2 or more"),
        ({"encoder_layers": 4, "decoder_layers": 1}, ["--layers", "2"], "give --layers 4 or more"),
        ({}, ["--symbols", str(len(SYMBOLS) - 1)], f"give --symbols {len(SYMBOLS)} or more"),
        ({}, ["--width", "0"], "give --width 1 or more"),
    ],
)
def test_refusals(tmp_path: Path, options: Any, flags: List[str], part: str) -> None:
    small = write(tmp_path, **options)
    with pytest.raises(PluginError, match=part):
        grow(small, *flags)


def test_a_drafter_does_not_grow(tmp_path: Path) -> None:
    """It shares embeddings of its verifier, so that its file has none."""
    small = write(tmp_path)
    state = load_weights(small)
    del state["model"]["encoder.embed_tokens.weight"]
    save_whole(state, small)
    with pytest.raises(PluginError, match=r"small\.pt has no encoder\.embed_tokens\.weight, as dr"):
        grow(small, "--width", "2")


def test_a_model_of_marian_does_not_grow(tmp_path: Path) -> None:
    small = write(tmp_path)
    state = load_weights(small)
    state["model"]["decoder.output_projection.bias"] = torch.zeros(len(SYMBOLS))
    save_whole(state, small)
    with pytest.raises(PluginError, match=r"small\.pt has a bias of its output, as Marian's"):
        grow(small, "--width", "2")


def test_the_model_itself_is_not_written_over(tmp_path: Path) -> None:
    small = write(tmp_path)
    (tmp_path / "link.pt").symlink_to("small.pt")
    with pytest.raises(PluginError, match=r"link\.pt is the model itself\. Name another file"):
        grow_model.main([small, "--output", str(tmp_path / "link.pt"), "--width", "2"])
