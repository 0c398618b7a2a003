"""A decoding flag is used by the method, or refused; none is ignored."""

import math
from dataclasses import fields

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.methods.checks import check_method_flags
from specdec_plugin.methods.registry import config_class, names, readers

READERS = readers()
DecodingConfig = config_class()

METHODS = [None, *names()]
VALUES = {
    "drafter_path": "drafter.pt",
    "block_size": 3,
    "draft_confidence": 0.3,
    "draft_rows": 2,
    "fallback": "ngram",
    "copy_bias": 0.5,
    "hybrid_length": 40,
    "jacobi_init": "source",
    "jacobi_window": "sliding",
    "jacobi_pool": 7,
    "jacobi_known_length": True,
    "top_beta": 3,
    "tolerance": 1.0,
    "acceptance": "distance",
    "epsilon": 1.0,
    "min_block": 2,
    "sentence_offset": 100,
    "decoding_workers": 2,
    "verifier_dtype": "bfloat16",
    "drafter_dtype": "int8",
    "vocab_clusters": "clusters.pt",
    "certified_projection": True,
    "approximate_scores": True,
    "keep_packed_weights": True,
    "drafter_vocab_clusters": "clusters.pt",
}
#: What input-guided decoding reads of a drafter that is its fallback.
OF_A_FALLBACK = ("drafter_path", "draft_confidence", "drafter_dtype", "drafter_vocab_clusters")
#: The rules that read a flag of blockwise decoding.
RULES = {"top_beta": "top-k", "epsilon": "distance"}


def test_every_flag_has_its_readers():
    names = {item.name for item in fields(DecodingConfig)} - {"_name", "decoding"}
    assert names == READERS.keys() == VALUES.keys()


@pytest.mark.parametrize("method", METHODS)
def test_defaults_pass(method):
    check_method_flags(DecodingConfig(decoding=method))
    explicit = {"block_size": 0, "draft_confidence": 0.0, "top_beta": 1, "tolerance": math.inf}
    check_method_flags(DecodingConfig(decoding=method, **explicit))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", VALUES)
def test_read_or_refused(method, name):
    cfg = DecodingConfig(decoding=method, **{name: VALUES[name]})
    if name in OF_A_FALLBACK and method == "input-guided":
        cfg.fallback, cfg.drafter_path = "nat", "drafter.pt"
    if method in ("specdec", "auto") and name == "draft_confidence":
        cfg.drafter_path = "drafter.pt"
    if method == "blockwise" and name in RULES:
        cfg.acceptance = RULES[name]
    if name == "approximate_scores":
        cfg.certified_projection = method in READERS[name]
    if name == "tolerance":
        cfg.top_beta = 1 if method != "specdec" else 3
    if method in READERS[name] or (method is None and name == "vocab_clusters"):
        check_method_flags(cfg)
        return
    with pytest.raises(PluginError) as error:
        check_method_flags(cfg)
    text = str(error.value)
    value = "" if VALUES[name] is True else f"{VALUES[name]} "
    assert text.startswith(f"--{name.replace('_', '-')} {value}")
    assert ("without --decoding" if method is None else f"with --decoding {method}") in text
    assert "leave" in text and f"--decoding {READERS[name][0]}" in text


@pytest.mark.parametrize(
    "flags, words",
    [
        ({"top_beta": 3}, "--top-beta 3 would have no effect .* add --acceptance top-k"),
        ({"epsilon": 1.0}, r"--epsilon 1\.0 would have no effect .* add --acceptance distance"),
        ({"epsilon": 1.0, "acceptance": "top-k", "top_beta": 2}, "add --acceptance distance"),
        ({"acceptance": "top-k"}, "--acceptance top-k .* add --top-beta"),
        ({"acceptance": "distance", "epsilon": -1.0}, r"--epsilon -1\.0"),
        ({"acceptance": "distance", "epsilon": math.nan}, "--epsilon nan"),
        ({"min_block": 0}, "--min-block 0"),
    ],
)
def test_rules_of_blockwise_decoding(flags, words):
    with pytest.raises(PluginError, match=words):
        check_method_flags(DecodingConfig(decoding="blockwise", **flags))


@pytest.mark.parametrize(
    "flags",
    [
        {"decoding": "specdec", "top_beta": 3},
        {"decoding": "greedy", "vocab_clusters": "clusters.pt"},
        {"decoding": "greedy", "verifier_dtype": "bfloat16"},
    ],
)
def test_what_cannot_be_certified(flags):
    with pytest.raises(PluginError, match=r"--certified-projection .* (leave|give) (it|one)"):
        check_method_flags(DecodingConfig(certified_projection=True, **flags))
    check_method_flags(
        DecodingConfig(decoding="greedy", certified_projection=True, verifier_dtype="float32")
    )


def test_scores_may_be_approximate_where_the_projection_is_certified():
    with pytest.raises(PluginError, match=r"--approximate-scores .* add --certified-projection"):
        check_method_flags(DecodingConfig(decoding="specdec", approximate_scores=True))
    check_method_flags(DecodingConfig(decoding="auto", approximate_scores=True))


def test_a_tolerance_needs_candidates():
    with pytest.raises(PluginError, match=r"--tolerance 1\.0 .* add --top-beta"):
        check_method_flags(DecodingConfig(decoding="specdec", tolerance=1.0))


@pytest.mark.parametrize(
    "flags",
    [
        {"draft_confidence": 1.0},
        {"draft_confidence": -0.1},
        {"draft_confidence": math.nan},
        {"top_beta": 0},
        {"top_beta": 3, "tolerance": -1.0},
        {"draft_rows": -7},
        {"top_beta": 3, "tolerance": math.nan},
    ],
)
def test_values_out_of_range(flags):
    with pytest.raises(PluginError, match="--" + list(flags)[-1].replace("_", "-")):
        check_method_flags(DecodingConfig(decoding="specdec", drafter_path="drafter.pt", **flags))
