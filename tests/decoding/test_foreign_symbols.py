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


@pytest.mark.parametrize("prefix", [torch.tensor([5, 6]), torch.tensor([[5.7], [6.0]])])
@pytest.mark.parametrize("way", WAYS)
def test_a_prefix_of_another_form(way, prefix):
    """Nothing is read as the symbols that it might mean."""
    with pytest.raises(
        PluginError, match=r"^prefix_tokens has the shape .* Give integers in a row"
    ):
        decode(way, tiny.sample([4, 2]), prefix_tokens=prefix)


@pytest.mark.parametrize(
    "phrases, words",
    [
        (torch.tensor([1, 5, 0]), "^constraints has the shape"),
        (torch.tensor([[-1, 5, 0], [1, 6, 0]]), "^constraints has a row of -1 phrases"),
        (torch.tensor([[3, 5, 0], [1, 6, 0]]), "^constraints are not packed"),
    ],
)
def test_phrases_of_another_form(phrases, words):
    model, options = methods.verifier("beam"), {"beam": 2, "constraints": "ordered"}
    ours = methods.generator("beam", model, options=options)
    with pytest.raises(PluginError, match=words):
        ours.generate([model], tiny.sample([4, 2]), constraints=phrases)


@pytest.mark.parametrize("sizes", [[4], [4, 2, 7]])
def test_short_integers_are_read(sizes):
    model, sample = methods.verifier("greedy"), tiny.sample(sizes)
    expected = reference([model], sample, max_len_b=12)
    inputs = sample["net_input"]
    short = {**sample, "net_input": {**inputs, "src_tokens": inputs["src_tokens"].int()}}
    assert_same([row[0] for row in decode("greedy", short)], expected)
