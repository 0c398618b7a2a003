"""A batch to train on, and losses one token at a time."""

import socket
from types import SimpleNamespace

import torch

from specdec_plugin.criterions.glancing_block_loss import GlancingBlockLoss, GlancingBlockLossConfig

from . import tiny
from .drafters import K

PAD = 1


def criterion(
    start=0.5, end=0.3, smoothing=0.1, rate=0.5, decay=1.0, teacher=None, share=0.5,
    temperature=2.0, updates=100,
):  # fmt: skip
    symbols = tiny.dictionary()
    task = SimpleNamespace(target_dictionary=symbols, epoch=3, updates=50, teacher=teacher)
    cfg = GlancingBlockLossConfig(
        label_smoothing=smoothing,
        glancing_start=start,
        glancing_end=end,
        glancing_updates=updates,
        block_rate=rate,
        position_decay=decay,
        teacher_weight=share,
        teacher_temperature=temperature,
        seed=7,
        max_update=0,
    )
    return GlancingBlockLoss(cfg, task)


def training_sample():
    sample = tiny.sample([4, 6, 2], 1)
    target = torch.full((3, 8), PAD)
    generator = torch.Generator().manual_seed(4)
    for row, length in enumerate([8, 5, 2]):
        target[row, :length] = torch.randint(4, 16, (length,), generator=generator)
        target[row, length - 1] = 2
    shifted = torch.full_like(target, PAD)
    shifted[:, 0] = 2
    shifted[:, 1:] = target[:, :-1].masked_fill(target[:, :-1].eq(2), PAD)
    sample["net_input"]["prev_output_tokens"] = shifted
    sample.update(target=target, ntokens=15, id=torch.tensor([11, 3, 40]))
    return sample


def naive_loss(model, sample, blocks, smoothing, decay, revealed=None):
    """Label-smoothed cross entropy and its weights, one hidden token at a time."""
    net_input, target = sample["net_input"], sample["target"]
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    features = model.decoder.block_features(
        net_input["prev_output_tokens"], encoder_out, blocks, revealed
    )
    lprobs = model.decoder.output_layer(features).log_softmax(-1)
    vocabulary = lprobs.size(-1)
    total, count = 0.0, 0
    for row in range(target.size(0)):
        for block in range(blocks.starts.size(1)):
            for place in range(K):
                if not blocks.scored[row, block, place]:
                    continue
                if revealed is not None and revealed[row, block, place]:
                    continue
                token = target[row, int(blocks.starts[row, block]) + place]
                wanted = torch.full((vocabulary,), smoothing / (vocabulary - 1))
                wanted[token] = 1 - smoothing
                total = total - decay**place * (wanted * lprobs[row, block, place]).sum()
                count += decay**place
    return total, count


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
