"""Every field of fairseq's generation options is honoured or refused, never ignored."""

from argparse import Namespace
from dataclasses import fields

import pytest
from fairseq.dataclass.configs import GenerationConfig

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.generation import HONOURED, REFUSED, check_generation


def names():
    return {item.name for item in fields(GenerationConfig)} - {"_name"}


#: Read by fairseq's iterative refinement or its simultaneous decoding, not by greedy search.
NO_SEARCH = {"decoding_format", "no_seed_provided", "eos_token"}


def test_no_field_is_forgotten_and_none_is_on_both_lists():
    assert names() == (HONOURED | set(REFUSED) | NO_SEARCH) & names()
    assert not HONOURED & set(REFUSED)
    assert (HONOURED | set(REFUSED)) <= names()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_fields_raise_one_sentence(name):
    default = {item.name: item.default for item in fields(GenerationConfig)}[name]
    value = 5 if name == "beam" else {bool: True}.get(type(default), 7)
    with pytest.raises(PluginError) as error:
        check_generation(Namespace(**{"beam": 1, name: value}), "greedy")
    assert str(error.value).startswith("--" + name.replace("_", "-"))
    assert len(str(error.value)) > 60


def test_defaults_with_beam_one_pass():
    options = GenerationConfig()
    options.beam = 1
    check_generation(options, "specdec")
