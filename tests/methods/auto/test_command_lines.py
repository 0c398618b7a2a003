"""``--decoding auto`` on the command line: what it chooses, and that it changes nothing."""

import copy

import pytest
import torch

from specdec_plugin.decoding import native_verification
from specdec_plugin.engine import TorchBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.auto.drafter import OneOfDrafters
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from specdec_plugin.methods.blockwise.drafter import BlockwiseDrafter
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from tests.support import methods as ways
from tests.support import tiny
from tests.support.command_lines import generate_args, hypothesis_lines, run_cli
from tests.support.compiled import needs_kernels


@pytest.mark.parametrize("more", [["--batch-size", 1], ["--beam", 4, "--nbest", 4]], ids=len)
def test_it_prints_what_fairseqs_search_finds(corpus, tiny_verifier, more):
    args = generate_args(corpus.data_dir, tiny_verifier, *more)
    found = run_cli([*args, "--decoding", "auto"])
    assert hypothesis_lines(found.stdout) == hypothesis_lines(run_cli(args).stdout) != []


def test_a_given_drafter_drafts(corpus, tiny_verifier, tiny_drafter):
    args = generate_args(corpus.data_dir, tiny_verifier, "--batch-size", 1)
    found = run_cli([*args, "--decoding", "auto", "--drafter-path", tiny_drafter])
    assert hypothesis_lines(found.stdout) == hypothesis_lines(run_cli(args).stdout) != []


def test_samples_are_those_of_any_method(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier, "--sampling", "--beam", 3, "--nbest", 3)
    auto, greedy = (run_cli([*args, "--decoding", each]).stdout for each in ("auto", "greedy"))
    assert hypothesis_lines(auto) == hypothesis_lines(greedy) != []


def test_what_beam_search_alone_keeps_is_searched(corpus, tiny_verifier):
    args = generate_args(corpus.data_dir, tiny_verifier, "--no-repeat-ngram-size", 2)
    auto, beam = (run_cli([*args, "--decoding", each]).stdout for each in ("auto", "beam"))
    assert hypothesis_lines(auto) == hypothesis_lines(beam) != []


def few(sentence, tokens):
    """Symbols that may follow: of fairseq's ``prefix_allowed_tokens_fn``."""
    return [2, 5, 7, 9]


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 2},
        {"beam": 3},
        {"match_source_len": True},
        {"no_repeat_ngram_size": 2},
        {"prefix_allowed_tokens_fn": few},
    ],
    ids=lambda options: "-".join(options),
)
def test_it_finds_what_a_beam_search_finds(options, backend):
    """Where the model can draft for itself, and where it cannot."""
    model, sample = ways.verifier("auto", 2), tiny.sample([3, 6, 2, 5], 1)
    found, expected, plain = (
        [
            [hypothesis["tokens"].tolist() for hypothesis in row]
            for row in ways.generator("beam", model, backend, given, **flags).generate([], sample)
        ]
        for given, flags in ((options, {"decoding": "auto"}), (options, {}), ({}, {}))
    )
    assert found == expected != plain


@pytest.mark.parametrize("option", [{"no_repeat_ngram_size": 2}, {"match_source_len": True}])
def test_what_beam_search_alone_keeps_is_refused_beside_samples(option):
    with pytest.raises(PluginError, match=f"{next(iter(option))}=.* cannot be kept"):
        loop_of("auto", options={"sampling": True, **option})


def loop_of(way, backend=None, options=None, **flags):
    model = ways.verifier(way)
    return ways.generator(way, model, backend, options, **{"decoding": "auto", **flags}).loop


def test_the_model_drafts_for_itself_where_it_can(backend):
    drafter = loop_of("auto", backend).drafter
    assert isinstance(drafter, OneOfDrafters) == ways.can_draft_for_itself(backend)


@needs_kernels
def test_a_large_projection_is_certified_and_a_small_one_where_it_is_asked_for(monkeypatch):
    assert not loop_of("auto").step.verifier.certified
    assert loop_of("auto", certified_projection=True).step.verifier.certified
    monkeypatch.setattr(native_verification, "_SMALL", 100)
    assert loop_of("auto").step.verifier.certified


@needs_kernels
@pytest.mark.parametrize("small, certified", [(100, True), (1000, False)])
def test_a_projection_of_16_bits_is_certified_where_it_is_large_or_nobody_reads_scores(
    monkeypatch, small, certified
):
    monkeypatch.setattr(native_verification, "_SMALL", 100)
    monkeypatch.setattr(native_verification, "_SMALL_HALF", small)
    model = copy.deepcopy(ways.verifier("auto"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    made = ways.generator("auto", model, None, decoding="auto")
    verifier = made.loop.step.verifier
    assert verifier.certified == certified and verifier.scored
    made.forgo_scores()
    assert verifier.certified and not verifier.scored


TRAINED = {"chain": NATDrafter, "joint heads": BlockwiseDrafter}


@pytest.mark.parametrize("kind", TRAINED)
def test_a_trained_drafter_is_one_of_several(kind, monkeypatch, backend):
    monkeypatch.setitem(ways.DRAFTERS, "auto", lambda **more: trained(kind, **more))
    drafter = loop_of("auto", backend, draft_rows=-1).drafter
    if backend.unsupported() is None:
        drafter, *others = drafter.drafters
        assert isinstance(others[-1], SelfDrafter)
    assert isinstance(drafter, TRAINED[kind])


@pytest.mark.parametrize("kind", TRAINED)
@pytest.mark.parametrize(
    "flags", [{"block_size": 2}, {"draft_confidence": 0.3}, {"draft_rows": 2}], ids=str
)
def test_flags_about_a_trained_drafter_leave_it_alone(kind, flags, monkeypatch):
    monkeypatch.setitem(ways.DRAFTERS, "auto", lambda **more: trained(kind, **more))
    drafter = loop_of("auto", **{"draft_rows": -1, **flags}).drafter
    assert isinstance(drafter, TRAINED[kind])


def trained(kind, **arguments):
    """A drafter or heads for the model of :func:`loop_of`."""
    if kind in ways.DRAFTERS:
        return ways.DRAFTERS[kind](**arguments)
    return ways.verifier(kind)


def test_flags_of_drafts_that_nobody_can_make_are_refused():
    with pytest.raises(PluginError, match="only the native kernels can run"):
        loop_of("auto", TorchBackend(), drafter_dtype="int8")


def test_a_confidence_without_a_trained_drafter_is_refused():
    with pytest.raises(PluginError, match=r"^--draft-confidence 0\.3 would have no effect with"):
        loop_of("auto", draft_confidence=0.3)


def test_flags_of_drafts_are_refused_where_nothing_drafts():
    with pytest.raises(PluginError, match="block-size 3 would have no effect in the beam search"):
        loop_of("auto", options={"no_repeat_ngram_size": 2}, block_size=3)


@pytest.mark.parametrize("flags", [{"drafter_path": "drafter.pt"}, {"certified_projection": True}])
def test_flags_that_a_beam_search_ignores_are_refused(flags):
    with pytest.raises(PluginError, match="would have no effect in the beam search"):
        loop_of("auto", options={"beam": 3}, **flags)
