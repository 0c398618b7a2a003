"""Numbers of symbols that the model lacks: a sentence, where kernels would read other memory."""

import pytest
import torch

from specdec_plugin.errors import PluginError
from tests.support import methods, tiny
from tests.support.search import assert_same, reference

WAYS = ["greedy", "certified", "beam", "self-draft", "hybrid-jacobi"]
SYMBOLS = len(tiny.dictionary())
WRONG = [SYMBOLS, 10**9, -1, -(10**9)]


def decode(way, sample, **given):
    model = methods.verifier(way)
    return methods.generator(way, model).generate([model], sample, **given)


@pytest.mark.parametrize("number", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_in_a_source(way, number):
    sample = tiny.sample([4, 2])
    sample["net_input"]["src_tokens"][0, 1] = number
    with pytest.raises(PluginError, match=rf"^The source has symbol number {number}, .*--srcdict"):
        decode(way, sample)


@pytest.mark.parametrize("number", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_in_a_prefix(way, number):
    prefix = torch.tensor([[5, 6], [5, number]])
    words = rf"^prefix_tokens has symbol number {number}, .* 0 to {SYMBOLS - 1}: .*--tgtdict"
    with pytest.raises(PluginError, match=words):
        decode(way, tiny.sample([4, 2]), prefix_tokens=prefix)


@pytest.mark.parametrize("number", WRONG)
@pytest.mark.parametrize("way", WAYS)
def test_as_the_first_token(way, number):
    with pytest.raises(
        PluginError, match=rf"^bos_token {number}: give a symbol from 0 to {SYMBOLS - 1}"
    ):
        decode(way, tiny.sample([4, 2]), bos_token=number)


@pytest.mark.parametrize("given", ["prefix_tokens", "bos_token"])
@pytest.mark.parametrize("way", WAYS)
def test_of_a_dictionary_that_has_grown_since(way, given):
    """The model has no vectors of its new symbols."""
    symbols = tiny.dictionary()
    model = methods.verifier(way, symbols=symbols)
    symbols.add_symbol("new")
    number = {"prefix_tokens": torch.tensor([[5], [SYMBOLS]]), "bos_token": SYMBOLS}[given]
    ours = methods.generator(way, model)
    with pytest.raises(PluginError, match=rf"{SYMBOLS}.* 0 to {SYMBOLS - 1}"):
        ours.generate([model], tiny.sample([4, 2]), **{given: number})


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_prefix_of_another_number_of_rows(way, rows):
    with pytest.raises(PluginError, match=rf"^prefix_tokens has {rows} rows for 2 sentences"):
        decode(way, tiny.sample([4, 2]), prefix_tokens=torch.full((rows, 2), 5))


@pytest.mark.parametrize("sizes", [[4], [4, 2, 7]])
def test_short_integers_are_read(sizes):
    model, sample = methods.verifier("greedy"), tiny.sample(sizes)
    expected = reference([model], sample, max_len_b=12)
    inputs = sample["net_input"]
    short = {**sample, "net_input": {**inputs, "src_tokens": inputs["src_tokens"].int()}}
    assert_same([row[0] for row in decode("greedy", short)], expected)
