"""Every method in every type on each backend: hypotheses, or a sentence that says what to do."""

import pytest
import torch

from specdec_plugin.errors import PluginError
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.methods import METHODS, generator, verifier
from tests.support.search import assert_same, reference

LOW = ["bfloat16", "float16"]


def refusal(method, dtype, backend):
    """What is said where the method cannot draft; None where it decodes."""
    if method not in ("self-draft", "relaxed") or backend.static:
        return None
    if backend.unsupported() is not None:
        return r"only the native kernels can run .* Add --drafter-path DRAFTER\.pt"
    if dtype == "float16":
        return r"cannot be shared in float16: leave out --fp16 and --verifier-dtype float16"
    return None


def decode(method, model, dtype, backend, **flags):
    """Hypotheses of a small batch; None where they are refused as expected."""
    sample, words = tiny.sample([5, 3, 6], 2), refusal(method, dtype, backend)
    if words is not None:
        with pytest.raises(PluginError, match=words):
            generator(method, model, backend, **flags)
        return None
    return [row[0] for row in generator(method, model, backend, **flags).generate([model], sample)]


@pytest.mark.parametrize("method", METHODS)
def test_float32(method, backend):
    model = verifier(method)
    found = decode(method, model, "float32", backend)
    if found is not None and method not in ("relaxed", "nat", "certified"):
        assert_same(found, reference([model], tiny.sample([5, 3, 6], 2), max_len_b=12))


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_this_type(method, dtype, backend):
    model = verifier(method).to(getattr(torch, dtype))
    found = decode(method, model, dtype, backend)
    assert found is None or all(len(row["tokens"]) > 0 for row in found)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("method", [each for each in METHODS if each not in ("nat", "certified")])
def test_a_verifier_of_this_type(method, dtype, backend):
    found = decode(method, verifier(method), dtype, backend, verifier_dtype=dtype)
    assert found is None or all(len(row["tokens"]) > 0 for row in found)


@needs_kernels
def test_beams_that_cannot_be_drafted_have_a_cure_with_beams():
    """A trained drafter is refused with beams, and greedy has one hypothesis."""
    with pytest.raises(PluginError, match=r"cannot be shared in float16.* Use --decoding beam\.$"):
        generator("self-draft", verifier("self-draft").half(), options={"beam": 4}, draft_rows=-1)


@pytest.mark.parametrize("change", ["half", "double"])
def test_a_model_that_changes_its_type_after_the_drafter_was_built(change):
    """The cache that the self-draft shares is another one then."""
    model = verifier("self-draft")
    ours, sample = generator("self-draft", model), tiny.sample([5], 2)
    ours.generate([model], sample)
    getattr(model, change)()
    with pytest.raises(PluginError, match=r"[Aa]dd --drafter-path DRAFTER\.pt"):
        ours.generate([model], sample)


@pytest.mark.parametrize(
    "dtype, words",
    [
        ("float16", "the weights are float16 and not float32"),
        ("bfloat16", "the weights are bfloat16 and not float32"),
    ],
)
def test_what_is_not_certified_says_why(dtype, words, caplog):
    generator("certified", verifier("certified").to(getattr(torch, dtype)))
    assert f"--certified-projection has no effect here, because {words}" in caplog.text
