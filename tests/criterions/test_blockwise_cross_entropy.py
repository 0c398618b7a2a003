"""The loss of proposal heads against a sum over sentences and tokens; blocks against decoding."""

import math
import operator
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics
from torch.nn.parallel import DistributedDataParallel

from specdec_plugin.criterions.blockwise_cross_entropy import (
    BlockwiseCrossEntropy,
    BlockwiseCrossEntropyConfig,
    _targets,
    iterations,
)
from specdec_plugin.criterions.projected_loss import projected_loss
from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.errors import PluginError
from tests.support import tiny
from tests.support.heads import BLOCKWISE, FORMS, SYMBOLS, K, blockwise_model, generator, head_state
from tests.support.training import PAD, training_sample

EOS = 2


def criterion(smoothing=0.1, head_loss="random", head_decay=1.0, seed=7):
    task = SimpleNamespace(target_dictionary=SYMBOLS, updates=0)
    cfg = BlockwiseCrossEntropyConfig(
        label_smoothing=smoothing, head_loss=head_loss, head_decay=head_decay, seed=seed
    )
    return BlockwiseCrossEntropy(cfg, task)


def naive_sum(model, sample, head, smoothing):
    """S of one head, a token at a time, its gradient with it."""
    net_input, target = sample["net_input"], sample["target"]
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    features = model.decoder.extract_features(
        net_input["prev_output_tokens"], encoder_out=encoder_out
    )[0]
    total, right, count = features.sum() * 0, 0, 0
    for row, tokens in enumerate(target.tolist()):
        length = sum(token != PAD for token in tokens)
        for position in range(length - head + 1):
            state = head_state(model, features[row, position], head, encoder_out, row)
            lprobs = model.decoder.output_projection(state).log_softmax(-1)
            token = tokens[position + head - 1]
            wanted = torch.full_like(lprobs, smoothing / (len(lprobs) - 1))
            wanted[token] = 1 - smoothing
            total = total - (wanted * lprobs).sum()
            lprobs[PAD] = -math.inf
            right, count = right + int(lprobs.argmax() == token), count + 1
    return total, right, count


def without_dropout(model):
    model.train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    model.heads._dropout = model.heads._inner_dropout = 0.0
    return model


@pytest.fixture
def process_group(tmp_path):
    """A distributed training of one process."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("unused", [True, False])
def test_pytorchs_distributed_training_gets_a_gradient_of_each_weight(tied, unused):
    """Of heads that an update does not train, and of a projection outside of the model."""
    model = blockwise_model(0, "separate", share_all_embeddings=tied)
    whole = DistributedDataParallel(model.train(), find_unused_parameters=unused)
    sample = training_sample()
    weight = model.decoder.output_projection.weight
    for head in (1, 2, 1):  # the second one raises where the first one left gradients out
        (states,) = whole(**sample["net_input"], heads=[head])
        projected_loss(states, weight, _targets(sample["target"], head, PAD), 0.1)[0].backward()
    assert all(each.grad is not None for each in model.parameters() if each.requires_grad)


@pytest.mark.parametrize("form", FORMS)
def test_the_mean_of_all_heads_and_one_of_them(form):
    sample, model = training_sample(), without_dropout(BLOCKWISE[form])
    try:
        sums = {head: naive_sum(model, sample, head, 0.1)[0] for head in range(1, K + 1)}
        loss, size, log = criterion(head_loss="mean")(model, sample)
        assert float(loss) == pytest.approx(float(sum(sums.values())) / K, rel=1e-4)
        assert size == log["sample_size"] == 15
        one = criterion()
        seen = set()
        for one.task.updates in range(30):
            (head,) = one.heads_of(model.trained_heads, one.task.updates)
            loss, size, _ = one(model, sample)
            assert float(loss) == pytest.approx(float(sums[head]), rel=1e-4) and size == 15
            seen.add(head)
        assert seen == set(range(1, K + 1))
    finally:
        model.eval()


def test_drawn_heads_are_uniform_and_the_same_everywhere():
    one, other = criterion(), criterion()
    heads = range(2, K + 1)
    drawn = [one.heads_of(heads, update)[0] for update in range(4000)]
    assert drawn == [other.heads_of(heads, update)[0] for update in range(4000)]
    for head in heads:
        assert abs(drawn.count(head) / 4000 - 1 / len(heads)) < 0.03
    assert drawn[:50] != [criterion(seed=8).heads_of(heads, update)[0] for update in range(50)]
    assert list(criterion(head_loss="mean").heads_of(heads, 5)) == list(heads)


def test_a_decay_counts_near_heads_more():
    heads = range(2, K + 1)
    weights = [0.5 ** (head - 2) for head in heads]
    one = criterion(head_decay=0.5)
    assert one.shares(heads) == pytest.approx([weight / sum(weights) for weight in weights])
    drawn = [one.heads_of(heads, update)[0] for update in range(4000)]
    for head, share in zip(heads, one.shares(heads), strict=True):
        assert abs(drawn.count(head) / 4000 - share) < 0.03


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("training", [False, True])
def test_the_mean_with_a_decay(form, training):
    sample, model = training_sample(), without_dropout(BLOCKWISE[form])
    model.train(training)
    try:
        heads = model.trained_heads if training else range(1, K + 1)
        sums = [float(naive_sum(model, sample, head, 0.1)[0]) for head in heads]
        weights = [0.7**position for position in range(len(heads))]
        expected = sum(map(operator.mul, weights, sums)) / sum(weights)
        loss, size, _ = criterion(head_loss="mean", head_decay=0.7)(model, sample)
        assert float(loss) == pytest.approx(expected, rel=1e-4) and size == 15
    finally:
        model.eval()


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.5, math.nan])
def test_no_decay_that_makes_no_sense(decay):
    with pytest.raises(PluginError, match="--head-decay"):
        criterion(head_decay=decay)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_no_smoothing_that_makes_no_sense(smoothing):
    with pytest.raises(PluginError, match=r"--label-smoothing .*: give 0 or more, and less than 1"):
        criterion(smoothing)


@pytest.mark.parametrize("learned", [False, True])
def test_a_frozen_base_gets_no_gradient(learned):
    base = tiny.model(4, symbols=SYMBOLS)
    model = blockwise_model(9, frozen_base=True, learned_first_head=learned)
    model.start_from("base.pt", base)
    model.train()
    assert list(model.trained_heads) == list(range(1 if learned else 2, K + 1))
    assert not any(module.training for module in (model.encoder, model.decoder))
    loss, _, _ = criterion(head_loss="mean")(model, training_sample())
    loss.backward()
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {f"heads.{name}" for name, _ in model.heads.named_parameters()}
    assert all(float(weight.grad.abs().sum()) > 0 for weight in model.heads.parameters())
    assert all(weight.grad is None for weight in base.parameters())


@pytest.mark.parametrize("form", FORMS)
def test_validation_counts_each_head(form):
    model, sample = BLOCKWISE[form], training_sample()
    loss, size, log = criterion()(model, sample)
    with torch.no_grad():
        smooth = [naive_sum(model, sample, head, 0.1)[0] for head in range(1, K + 1)]
        plain = [naive_sum(model, sample, head, 0.0) for head in range(1, K + 1)]
    assert float(loss) == pytest.approx(float(sum(smooth)) / K, rel=1e-4)
    for head, (nll, right, count) in enumerate(plain, 1):
        assert float(log[f"nll_{head}"]) == pytest.approx(float(nll), rel=1e-4)
        assert (int(log[f"right_{head}"]), int(log[f"count_{head}"])) == (right, count)
    assert 3 <= int(log["iterations"]) <= size


def test_longer_blocks_than_sentences():
    model = blockwise_model(1, k=12)
    loss, _, log = criterion()(model, training_sample())
    assert torch.isfinite(loss) and int(log["count_12"]) == 0
    train = criterion()
    train.heads_of = lambda trained, update: [12]
    loss, _, _ = train(without_dropout(model), training_sample())
    loss.backward()
    assert float(loss) == 0


def naive_iterations(said, end):
    """Blocks of one sentence: (k, length) words of each head."""
    position, count = 0, 1
    while position < end - 1:
        kept = 0
        while kept + 1 < len(said) and position + kept + 1 < end:
            if said[kept + 1][position] != said[0][position + kept + 1]:
                break
            kept += 1
        position, count = position + kept + 1, count + 1
    return count


@pytest.mark.parametrize("seed", range(30))
def test_iterations_of_each_row(seed):
    torch.manual_seed(seed)
    heads, rows, length = 2 + seed % 5, 4, 1 + seed % 9
    said = torch.randint(0, 2, (heads, rows, length))
    ends = torch.randint(1, length + 1, (rows,))
    found = iterations(said, ends)
    for row in range(rows):
        assert int(found[row]) == naive_iterations(said[:, row].tolist(), int(ends[row]))


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_those_of_decoding_where_greedy_decoding_says_the_target(form):
    model, ended, saved = BLOCKWISE[form], 0, 0
    for seed in range(25):
        sample = tiny.sample([5, 2, 6, 3], seed)
        ours = generator(model, TopBeta(), dtype=torch.float32, max_len_b=20)
        found = [row[0] for row in ours.generate([model], sample)]
        # Where the limit ends a sentence, the model does not.
        natural = [position for position, row in enumerate(found) if len(row["tokens"]) <= 20]
        if not natural:
            continue
        rows = [found[position]["tokens"].tolist() for position in natural]
        width = max(map(len, rows))
        target = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        shifted = torch.tensor([[EOS, *row[:-1]] + [PAD] * (width - len(row)) for row in rows])
        net_input = {name: each[natural] for name, each in sample["net_input"].items()}
        net_input["prev_output_tokens"] = shifted
        count = sum(map(len, rows))
        _, size, log = criterion()(
            model, {"net_input": net_input, "target": target, "ntokens": count}
        )
        steps = sum(found[position]["steps"] for position in natural)
        assert int(log["iterations"]) == steps and size == count
        ended, saved = ended + len(natural), saved + count - steps
    assert ended > 10 and saved > 0


def test_metrics_add_up_over_workers():
    model, sample = BLOCKWISE["joint", False], training_sample()
    _, _, log = criterion()(model, sample)
    with metrics.aggregate() as alone:
        BlockwiseCrossEntropy.reduce_metrics([log])
    with metrics.aggregate() as twice:
        BlockwiseCrossEntropy.reduce_metrics([log, log, {}])
    values = alone.get_smoothed_values()
    assert values == twice.get_smoothed_values()
    assert values["accepted"] == pytest.approx(15 / int(log["iterations"]), abs=1e-3)
    assert {"loss", "nll_loss", f"nll_loss_{K}", f"accuracy_{K}"} <= set(values)
    assert 0 <= values["accuracy_1"] <= 100
    with metrics.aggregate() as nothing:
        BlockwiseCrossEntropy.reduce_metrics([{}])
    assert not nothing.get_smoothed_values()


def test_a_model_without_heads():
    with pytest.raises(PluginError, match="add --arch blockwise_transformer"):
        criterion()(tiny.model(1), training_sample())
