"""What fairseq's model and the acceptance rules say, one sentence and one token at a time."""

import math

import torch

from specdec_plugin.decoding.acceptance import MinBlock, TopBeta

from .heads import NUMBERS
from .observed import EOS, full_pass
from .prefixes import common_prefix

#: Scores that are nearer than this may be ordered either way.
TIE = 1e-4


def alone(sample, row):
    """A batch with one row of a batch, without its padding."""
    net_input = sample["net_input"]
    length = net_input["src_lengths"][row : row + 1]
    tokens = net_input["src_tokens"][row : row + 1, -int(length) :]
    return {"net_input": {**net_input, "src_tokens": tokens, "src_lengths": length}}


def stands(scores, token, rule, place):
    """Whether a rule accepts a drafted token.

    Args:
        scores: (vocabulary,) masked log-probabilities.
        token: drafted.
        rule: an acceptance rule.
        place: how many tokens were drafted before it.
    """
    best = int(scores.argmax())
    if token == best:
        return True
    if not math.isfinite(scores[token]):
        return False
    if isinstance(rule, MinBlock):
        if place < rule.min_block - 1 and EOS not in (token, best):
            return True
        rule = rule.rule
    if isinstance(rule, TopBeta):
        near = float(scores[best] - scores[token]) <= rule.tolerance
        return rule.beta > 1 and near and int((scores > scores[token]).sum()) < rule.beta
    return abs(float(NUMBERS[token] - NUMBERS[best])) <= rule.epsilon


def judged(draft, scores, rule):
    """What an iteration adds: the accepted start of a draft and the next best token.

    Args:
        draft: a list of tokens.
        scores: (tokens, vocabulary) masked log-probabilities of this and the following tokens, if
            what is accepted is what was decoded.
        rule: an acceptance rule.
    """
    added = []
    for place, said in enumerate(scores):
        if place < len(draft) and stands(said, draft[place], rule, place):
            added.append(draft[place])
            if added[-1] == EOS:
                break
            continue
        added.append(int(said.argmax()))
        break
    return added


def assert_follows(model, sample, hypothesis, rule, min_len, max_len):
    """A hypothesis with its history is what a rule makes of its drafts, token by token.

    Args:
        model: the verifier.
        sample: a batch of one.
        hypothesis: with ``history``: the draft and the added tokens of each iteration.
        rule: an acceptance rule.
        min_len: tokens before an end of sentence may come.
        max_len: tokens after which the sentence ends.
    """
    tokens = hypothesis["tokens"].tolist()
    lprobs, masked = full_pass([model], sample, tokens, min_len, max_len)
    chosen = lprobs[range(len(tokens)), tokens]
    torch.testing.assert_close(hypothesis["positional_scores"], chosen, atol=1e-4, rtol=0)
    history = [step["tokens"].tolist() for step in hypothesis["history"]]
    begin = 0
    for draft, added in zip(history[::2], history[1::2], strict=True):
        assert judged(draft, masked[begin:], rule) == added, (draft, tokens[:begin])
        begin += len(added)
    assert begin == len(tokens) and EOS not in tokens[:-1] and tokens[-1] == EOS


def assert_same_but_for_ties(
    model, sample, found, expected, within=1e-4, tie=TIE, *, min_len, max_len
):
    """Hypotheses equal fairseq's, but where fairseq's two competing scores are equal.

    Args:
        model: the verifier.
        sample: the batch.
        found: our hypotheses.
        expected: those of fairseq.
        within: how far a score may be from fairseq's.
        tie: scores that are nearer than this may be ordered either way.
        min_len: tokens before an end of sentence may come.
        max_len: tokens after which a sentence ends.
    """
    assert len(found) == len(expected)
    for row, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        tokens, wanted = mine["tokens"].tolist(), theirs["tokens"].tolist()
        if tokens == wanted:
            for name in ("positional_scores", "score"):
                torch.testing.assert_close(mine[name], theirs[name], atol=within, rtol=0)
            continue
        place = common_prefix(tokens, wanted)
        _, masked = full_pass([model], alone(sample, row), wanted, min_len, max_len)
        scores = float(masked[place, wanted[place]]), float(masked[place, tokens[place]])
        told = f"row {row}, token {place}: {wanted[place]} has {scores[0]} in fairseq, and"
        print(f"{told} {tokens[place]} has {scores[1]}")
        assert abs(scores[0] - scores[1]) <= tie, f"{told} {tokens[place]} has {scores[1]}"
