"""Decode with tiny models and observe, and what fairseq's own model says in full passes."""

import copy
import functools

import torch
from torch import nn

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine
from specdec_plugin.lab.viz.observe import ObservingLoop
from tests.support import tiny

SYMBOLS = tiny.dictionary()
MODELS = [tiny.model(seed) for seed in range(3)]
EOS, PAD, UNK = SYMBOLS.eos(), SYMBOLS.pad(), SYMBOLS.unk()


def decode(models, sample, observe, drafter=None, rule=None, **lengths):
    """The observed hypothesis of a batch of one, and the trace."""
    trace = Statistics()
    step = VerifiedStep(Verifier([build_engine(each) for each in models], trace), rule or TopBeta())
    loop = DecodingLoop(drafter, step, trace, keep_history=True)
    options = Lengths(max_positions=60, **lengths)
    generator = ParallelGenerator(models, SYMBOLS, ObservingLoop(loop, observe), trace, options)
    ((hypothesis,),) = generator.generate(models, sample)
    return hypothesis, trace


class PadIsAToken(nn.Module):
    """fairseq's decoder when ``pad`` is fed as any other token: with a position, attended to."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = copy.deepcopy(decoder)
        self.decoder.padding_idx = -1  # else its keys are masked
        positions = self.decoder.embed_positions
        self.decoder.embed_positions = Positions(positions)

    def forward(self, fed, encoder_out):
        return self.decoder(fed, encoder_out=encoder_out)


class Positions(nn.Module):
    """Counts ``pad`` too."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, tokens, incremental_state=None):
        return self.table(tokens.masked_fill(tokens.eq(PAD), UNK))


@functools.cache
def pad_is_a_token(model):
    return PadIsAToken(model.decoder).eval()


@torch.no_grad()
def full_pass(models, sample, tokens, min_len, max_len):
    """Log-probabilities and masked ones, (m, vocabulary) each, without a cache."""
    fed = torch.tensor([[EOS, *tokens[:-1]]])
    each = []
    for model in models:
        encoder_out = model.encoder.forward_torchscript(sample["net_input"])
        output = pad_is_a_token(model)(fed, encoder_out)
        each.append(model.get_normalized_probs(output, log_probs=True, sample=None)[0])
    lprobs = torch.stack(each).exp().mean(0).log()
    masked = lprobs.clone()
    masked[:, PAD] = -torch.inf
    masked[:min_len, EOS] = -torch.inf
    ends = masked[max_len:, EOS].clone()
    masked[max_len:] = -torch.inf
    masked[max_len:, EOS] = ends
    return lprobs, masked
