"""Every method × backend × acceptance rule × batch size, against fairseq's model.

With exact acceptance the output is that of fairseq's own search. With a relaxed rule it is what
the rule makes of the drafts, one token at a time. Nothing else may depend on a drafter.
"""

import copy
import functools
import gc
import itertools
from pathlib import Path
from random import Random

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch.multiprocessing.reductions import StorageWeakRef

from specdec_plugin.decoding.acceptance import Rule, TopBeta
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.checks import check_method_flags
from specdec_plugin.methods.registry import flags_of, method_of, methods
from tests.support import methods as ways
from tests.support import tiny
from tests.support.conformance import LENGTHS, PLAIN, SETTINGS, model_of
from tests.support.drafters import one_by_one
from tests.support.hostile import HOSTILE, Interrupted
from tests.support.methods import DRAFTERS, METHODS, DecodingConfig, drafter_for
from tests.support.naive import alone, assert_follows, assert_same_but_for_ties

#: The flags of each acceptance rule.
RULES = {
    "exact": {},
    "top-beta": {"top_beta": 3},
    "tolerance": {"top_beta": 5, "tolerance": 0.7},
    "top-k": {"acceptance": "top-k", "top_beta": 3},
    "distance": {"acceptance": "distance", "epsilon": 6.0},
    "min-block": {"min_block": 3},
    "min-block top-k": {"acceptance": "top-k", "top_beta": 2, "min_block": 4},
    "min-block distance": {"acceptance": "distance", "epsilon": 3.0, "min_block": 2},
}
LIMITED = SETTINGS["limited"]

#: Their drafts are the output: no rule judges them.
UNVERIFIED = {"nat"}
#: They decode on the native kernels or by a GPU's graphs only, and say so elsewhere.
NATIVE = {"self-draft"}
#: How far their scores may be from fairseq's: those of the symbols that were ruled out are rounded.
ROUNDED = {"certified": 0.05}


def config(way, **flags):
    path = "drafter.pt" if way in DRAFTERS else None
    return DecodingConfig(**{**METHODS[way], "drafter_path": path, **flags})


def one_hypothesis(method):
    """Whether the method gives one hypothesis a sentence, as fairseq's beam 1."""
    return method.default_beam == 1


def takes(way, rule):
    """Whether a way to decode has the flags of a rule."""
    try:
        check_method_flags(config(way, **RULES[rule]))
    except PluginError:
        return False
    return set(RULES[rule]) <= set(flags_of(method_of(config(way))))


def _ways():
    """Those of one hypothesis, whose flags leave the rule open."""
    of_rules = {flag for flags in RULES.values() for flag in flags}
    return [
        way
        for way, flags in METHODS.items()
        if not of_rules & set(flags) and one_hypothesis(method_of(config(way)))
    ]


WAYS = [way for way in _ways() if method_of(config(way)).verifies]
DRAFTING = [way for way in _ways() if not method_of(config(way)).verifies]
RELAXED = [(way, rule) for way in WAYS for rule in RULES if rule != "exact" and takes(way, rule)]


def test_every_method_is_decoded_with():
    """One that gives several hypotheses has a module of its own here."""
    covered = {method_of(config(way)) for way in [*WAYS, *DRAFTING]}
    for method in methods():
        if not method.__module__.startswith("specdec_plugin."):
            continue  # another test's own
        if one_hypothesis(method):
            assert method in covered, (
                f"--decoding {method.name} ({method.__name__}) is compared with nothing: add it to "
                "METHODS in tests/support/methods.py."
            )
            continue
        own = f"test_{method.name.replace('-', '_')}.py"
        assert Path(__file__).with_name(own).exists(), (
            f"--decoding {method.name} gives several hypotheses, and tests/conformance/{own}, "
            "which compares them with fairseq's, is missing."
        )


def test_only_these_methods_are_not_verified():
    found = {method.name for method in methods() if not method.verifies}
    assert found == UNVERIFIED, "A method without verification is not lossless: is it meant?"


def test_every_rule_decides():
    """Of the package's rules, and of the flags that choose one."""
    seen = set()
    for way, name in [(way, "exact") for way in WAYS] + RELAXED:
        built = build(way, None, rule=name)
        seen.add(type(built.loop.step.rule))
        assert (name == "exact") == is_exact(built.loop.step.rule), (way, name)
    for rule in Rule.__subclasses__():
        if rule.__module__.startswith("specdec_plugin."):
            assert rule in seen, f"No entry of RULES leads to {rule.__name__}: add one."


def is_exact(rule):
    return isinstance(rule, TopBeta) and rule.beta == 1


def build(way, backend, setting=PLAIN, rule="exact"):
    options = {"retain_iter_history": True, **setting.options()}
    return ways.generator(way, model_of(way, setting), backend, options, **RULES[rule])


def built_or_refused(way, backend, setting=PLAIN, rule="exact"):
    """A generator; None where a method of ``NATIVE`` tells that it needs the kernels."""
    if way in NATIVE and not ways.can_draft_for_itself(backend):
        with pytest.raises(PluginError, match="only the native kernels can run"):
            build(way, backend, setting, rule)
        return None
    return build(way, backend, setting, rule)


def decode(ours, sample):
    return [row[0] for row in ours.generate([], sample)]


@functools.cache
def fairseqs(model, size, seed, setting):
    """A batch, and what fairseq's search gives for it with beam 1; do not change them."""
    sample = tiny.sample(LENGTHS[size], seed, setting.words)
    options = {"max_len_b": setting.max_len, "min_len": setting.min_len}
    search = SequenceGenerator(
        [model], model.decoder.dictionary, 1, len_penalty=setting.lenpen, **options
    )
    return sample, [row[0] for row in search.generate([model], sample)]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("way", WAYS)
def test_exact_acceptance_is_fairseqs_search(way, size, setting, backend):
    """Batch after batch, with what a drafter has learned."""
    ours = built_or_refused(way, backend, setting)
    if ours is None:
        return
    model, within = model_of(way, setting), ROUNDED.get(way, 1e-4)
    for seed in (1, 2, 1):
        sample, expected = fairseqs(model, size, seed, setting)
        found = decode(ours, sample)
        assert_same_but_for_ties(model, sample, found, expected, within, **setting.limits())
        assert all(row["steps"] <= len(row["tokens"]) for row in found)
    drafted = max(ours.statistics.draft_lengths)
    assert (drafted > 0) == (ours.loop.drafter is not None)


class Switching:
    """A gate that opens and closes at any time.

    Args:
        drafts: whether to draft, asked in each iteration.
    """

    def __init__(self, drafts):
        self._drafts = drafts

    def see(self, length):
        pass

    def begin(self):
        pass

    def choose(self, rows, tokens, drafts=True):
        return self._drafts()

    def ahead(self):
        return 0

    def skip(self, iterations):
        assert iterations == 0

    def end(self, tokens):
        pass

    def rests(self, rows):
        return False


def gates():
    """By name, gates that open and close."""
    turns, random = itertools.count(), Random(1)
    return {
        "never": lambda: 0,
        "half": lambda: next(turns) // 2 % 2,
        "mostly": lambda: next(turns) % 5 > 0,
        "random": lambda: random.random() < 0.8,
    }


@pytest.mark.parametrize("gate", gates())
@pytest.mark.parametrize("way", WAYS)
def test_switching_drafts_on_and_off_changes_nothing(way, gate, backend):
    """The drafter starts again and again, with the rows that are left."""
    ours = built_or_refused(way, backend)
    if ours is None:
        return
    model, within = model_of(way, PLAIN), ROUNDED.get(way, 1e-4)
    ours.loop.gate = Switching(gates()[gate])
    for size, seed in [(8, 1), (1, 2), (3, 3), (8, 4)]:
        sample, expected = fairseqs(model, size, seed, PLAIN)
        found = decode(ours, sample)
        assert_same_but_for_ties(model, sample, found, expected, within, **PLAIN.limits())
    drafted = max(ours.statistics.draft_lengths) > 0
    assert drafted == (ours.loop.drafter is not None and gate != "never")


@pytest.mark.parametrize("way", [*WAYS, *DRAFTING])
def test_encoder_outputs_are_freed_with_their_batch(way, backend):
    """They are most of what a batch of many sentences takes."""
    ours = built_or_refused(way, backend)
    if ours is None:
        return
    made = []

    def noted(encode):
        def run(net_input):
            out = encode(net_input)
            made.append(StorageWeakRef(out["encoder_out"][0].untyped_storage()))
            return out

        return run

    ours._encoders = [noted(each) for each in ours._encoders]
    for size in (8, 1):
        decode(ours, tiny.sample(LENGTHS[size], 1))
    assert [each.expired() for each in made] == [True, True]
    del ours
    gc.collect()  # a generator that is left logs its summary when pytest has closed its output


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("way", WAYS)
def test_hostile_drafts_change_nothing(way, kind, backend):
    ours = built_or_refused(way, backend)
    if ours is None:
        return
    model, within = model_of(way, PLAIN), ROUNDED.get(way, 1e-4)
    drafter, saved = ours.loop.drafter, 0
    for size, seed in [(3, 1), (8, 2), (1, 3)]:
        sample, expected = fairseqs(model, size, seed, PLAIN)
        truth = [row["tokens"].tolist() for row in expected]
        ours.loop.drafter = Interrupted(drafter, kind, truth, seed)
        found = decode(ours, sample)
        assert_same_but_for_ties(model, sample, found, expected, within, **PLAIN.limits())
        saved += sum(len(row["tokens"]) - row["steps"] for row in found)
    assert saved > 0 or kind == "garbage"


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("way, rule", RELAXED)
def test_relaxed_acceptance_is_the_rule_token_by_token(way, rule, size, backend):
    ours = built_or_refused(way, backend, PLAIN, rule)
    if ours is None:
        return
    model, judge = model_of(way, PLAIN), ours.loop.step.rule
    for seed in (1, 2):
        sample = tiny.sample(LENGTHS[size], seed)
        for row, hypothesis in enumerate(decode(ours, sample)):
            assert_follows(model, alone(sample, row), hypothesis, judge, **PLAIN.limits())
    assert max(ours.statistics.draft_lengths) > 0


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("way, rule", RELAXED)
def test_rules_judge_hostile_drafts(way, rule, kind, backend):
    ours = built_or_refused(way, backend, LIMITED, rule)
    if ours is None:
        return
    model, judge, drafter = model_of(way, LIMITED), ours.loop.step.rule, ours.loop.drafter
    for size, seed in [(3, 1), (1, 2)]:
        sample, expected = fairseqs(model, size, seed, LIMITED)
        truth = [row["tokens"].tolist() for row in expected]
        ours.loop.drafter = Interrupted(drafter, kind, truth, seed)
        for row, hypothesis in enumerate(decode(ours, sample)):
            assert_follows(model, alone(sample, row), hypothesis, judge, **LIMITED.limits())


@pytest.mark.parametrize("way, rule", RELAXED)
def test_relaxed_output_does_not_depend_on_company(way, rule, backend):
    ours = built_or_refused(way, backend, PLAIN, rule)
    if ours is None:
        return
    sample = tiny.sample(LENGTHS[8], 4)
    for row, hypothesis in enumerate(decode(ours, sample)):
        (by_itself,) = decode(ours, alone(sample, row))
        assert by_itself["tokens"].tolist() == hypothesis["tokens"].tolist()


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("way", DRAFTING)
def test_unverified_drafts_are_the_drafters_blocks(way, size, backend):
    ours, drafter = build(way, backend), drafter_for(way, model_of(way, PLAIN))
    sample = tiny.sample(LENGTHS[size], 3)
    encoded = drafter.encoder.forward_torchscript(sample["net_input"])
    for row, hypothesis in enumerate(decode(ours, sample)):
        tokens, scores = [], []
        while 2 not in tokens and len(tokens) <= PLAIN.max_len:
            block, said = one_by_one(drafter, encoded, row, tokens)
            tokens, scores = [*tokens, *block], [*scores, *said.tolist()]
        tokens = [*tokens[: PLAIN.max_len], 2]
        tokens = tokens[: tokens.index(2) + 1]
        assert hypothesis["tokens"].tolist() == tokens
        # Behind the limit it is a forced end of sentence that is scored.
        chosen = min(len(tokens), PLAIN.max_len)
        said = hypothesis["positional_scores"][:chosen]
        torch.testing.assert_close(said, torch.tensor(scores[:chosen]), atol=1e-4, rtol=0)


class TestExcuse:
    """A difference is excused where fairseq's two scores are equal, and nowhere else."""

    def differing(self, apart):
        """fairseq's hypothesis, and one with a symbol whose score is ``apart`` less."""
        model = copy.deepcopy(model_of("greedy", PLAIN))
        sample, (expected,) = fairseqs(model, 1, 1, PLAIN)
        tokens = expected["tokens"].clone()
        first = int(tokens[0])
        twin = 4 if first != 4 else 5
        with torch.no_grad():
            weight, state = model.decoder.output_projection.weight, first_state(model, sample)
            weight[twin] = weight[first] - apart * state / state.square().sum()
        tokens[0] = twin
        return model, sample, [{**expected, "tokens": tokens}], [expected]

    def test_a_tie_is(self, capsys):
        assert_same_but_for_ties(*self.differing(5e-5), **PLAIN.limits())
        assert capsys.readouterr().out.count(" has -") == 2

    def test_a_lesser_score_is_not(self):
        with pytest.raises(AssertionError, match="in fairseq, and"):
            assert_same_but_for_ties(*self.differing(1e-3), **PLAIN.limits())


def first_state(model, sample):
    """(dim,) what fairseq's decoder projects for the first token."""
    encoded = model.encoder.forward_torchscript(sample["net_input"])
    fed = torch.tensor([[2]])
    return model.decoder.extract_features(fed, encoder_out=encoded)[0][0, 0]
