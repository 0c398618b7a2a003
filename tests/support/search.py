"""fairseq's own greedy search, and the loop around any drafter."""

import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import TorchBackend, build_engine

from . import tiny
from .known import once

SYMBOLS = tiny.dictionary()
MODELS = [tiny.model(seed) for seed in range(3)]


@once
def reference(models, sample, prefix=None, **options):
    """fairseq's hypotheses with beam 1."""
    generator = SequenceGenerator(models, SYMBOLS, beam_size=1, **options)
    return [row[0] for row in generator.generate(models, sample, prefix_tokens=prefix)]


#: Who verifies a draft: whoever runs the decoder, or PyTorch's operators.
VERIFYING = st.sampled_from([None, TorchBackend()])


def ours(
    models,
    sample,
    drafter,
    rule,
    prefix=None,
    temperature=1.0,
    backend=None,
    verifying=None,
    preference=None,
    watcher=None,
    gate=None,
    **lengths,
):
    """Hypotheses, and what was counted.

    Args:
        backend: who computes.
        verifying: who verifies a draft.
        preference: which tokens are preferred.
        watcher: is told each iteration.
        gate: decides when to draft; None: always.
    """
    statistics = Statistics()
    engines = [build_engine(model, backend=backend) for model in models]
    step = VerifiedStep(Verifier(engines, statistics, temperature), rule, verifying, preference)
    loop = DecodingLoop(drafter, step, statistics, True, gate)
    loop.watcher = watcher
    positions = min(model.max_decoder_positions() for model in models)
    options = Lengths(max_positions=positions, **lengths)
    generator = ParallelGenerator(models, SYMBOLS, loop, statistics, options)
    return [row[0] for row in generator.generate(models, sample, prefix_tokens=prefix)], statistics


def self_drafting(models, drafter_of, rule=None, gate=None, backend=None, **lengths):
    """A generator whose first model drafts for itself, as ``drafter_of`` makes of the verifier."""
    statistics = Statistics()
    verifier = Verifier([build_engine(model, backend=backend) for model in models], statistics)
    step = VerifiedStep(verifier, rule or TopBeta())
    loop = DecodingLoop(drafter_of(verifier), step, statistics, True, gate)
    options = Lengths(max_positions=64, **lengths)
    return ParallelGenerator(models, SYMBOLS, loop, statistics, options, backend=backend)


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["tokens"].tolist() == theirs["tokens"].tolist()
        assert torch.allclose(mine["positional_scores"], theirs["positional_scores"], atol=1e-4)
        assert abs(float(mine["score"]) - float(theirs["score"])) < 1e-4


settings_of_search = st.fixed_dictionaries(
    {
        "max_len_a": st.sampled_from([0, 0.5, 1.3]),
        "max_len_b": st.integers(2, 14),
        "min_len": st.integers(0, 2),
        "unk_penalty": st.sampled_from([0.0, 1.5, -2.0]),
        "len_penalty": st.sampled_from([1.0, 0.6]),
        "temperature": st.sampled_from([1.0, 0.7]),
    }
)
