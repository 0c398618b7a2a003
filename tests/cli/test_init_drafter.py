"""``specdec-init-drafter``: its checkpoint, its flags, and what it refuses."""

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from specdec_plugin.cli.init_drafter import main
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights, save_untrained
from specdec_plugin.fairseq_compat.pairing import load_model
from specdec_plugin.models.block_nat import BlockNATModel
from tests.support.command_lines import TINY_TRAINING, drafter_train_args, run_cli, train_args

FORMS = {
    "plain": [],
    "no positions": ["--no-token-positional-embeddings"],
    "learned positions": [
        "--encoder-learned-pos", "--decoder-learned-pos",
        "--max-source-positions", 41, "--max-target-positions", 37,
    ],
    "narrow output": ["--decoder-output-dim", 8],
    "before": [
        "--encoder-normalize-before", "--decoder-normalize-before", "--no-decoder-final-norm",
        "--activation-fn", "gelu", "--no-scale-embedding", "--layernorm-embedding",
    ],
}  # fmt: skip


def symbols(corpus):
    return Dictionary.load(f"{corpus.data_dir}/dict.en.txt")


def untrained(corpus, args, path):
    """Writes a checkpoint of the model that these arguments of fairseq-train describe."""
    parsed = options.parse_args_and_arch(options.get_training_parser(), args)
    dictionary = symbols(corpus)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    save_untrained(task.build_model(parsed).state_dict(), parsed, path)
    return path


@pytest.fixture(scope="module")
def make_verifier(corpus, tmp_path_factory):
    """Writes an untrained verifier of other options than the tiny one's."""

    def make(form):
        path = tmp_path_factory.mktemp("verifier") / "verifier.pt"
        args = train_args(corpus.data_dir, "unused", *FORMS[form])[1:]
        args.remove("--share-all-embeddings")
        return untrained(corpus, args, str(path))

    return make


@pytest.fixture
def run(corpus, tmp_path, capsys):
    """Runs the program; the checkpoint's path, and what was printed."""

    def start(verifier, *more):
        output = tmp_path / "init.pt"
        args = [corpus.data_dir, "-s", "en", "-t", "es", "--verifier", verifier]
        main([*map(str, [*args, "--output", output, *more])])
        return str(output), capsys.readouterr().out.splitlines()

    return start


def built_from(flags, corpus):
    """The model that fairseq-train would build from the printed flags."""
    args = [corpus.data_dir, "--task", "block_nat_translation", *TINY_TRAINING, *flags.split()]
    parsed = options.parse_args_and_arch(
        options.get_training_parser(), [*args, "--criterion", "glancing_block_loss"]
    )
    dictionary = symbols(corpus)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    return BlockNATModel.build_model(parsed, task)


@pytest.mark.parametrize("more", [[], ["--share-encoder", "--chain-units", 6]])
@pytest.mark.parametrize("form", FORMS)
def test_the_printed_flags_build_the_same_model(corpus, make_verifier, run, form, more):
    path, printed = run(make_verifier(form), "--block-size", 3, *more)
    drafter = load_model(path, symbols(corpus), symbols(corpus))
    again = built_from(printed[-1], corpus)
    again.load_state_dict(drafter.state_dict())
    assert str(again.decoder) == str(drafter.decoder)
    assert again.decoder.embed_scale == drafter.decoder.embed_scale
    functions = [each.decoder.layers[0].activation_fn.__name__ for each in (again, drafter)]
    assert functions[0] == functions[1]
    assert again.decoder.max_positions() == drafter.decoder.max_positions()
    assert ("--chain-units 6" in printed[-1]) == ("--chain-units" in more)


def test_a_verifier_of_fairseq_hydra_train(corpus, tiny_verifier, run, tmp_path):
    """Whose options are a mapping, with a mapping for each side."""
    state = load_weights(tiny_verifier)
    side = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}
    shape = {"encoder": side, "decoder": side, "share_all_embeddings": True}
    state["args"] = None
    state["cfg"]["model"] = {"_name": "transformer", **shape}
    path = str(tmp_path / "verifier.pt")
    torch.save(state, path)
    drafter, printed = run(path, "--block-size", 3)
    assert printed == run(tiny_verifier, "--block-size", 3)[1]
    kept = vars(load_weights(drafter)["cfg"]["model"])
    assert kept["decoder_embed_dim"] == 16
    assert [name for name in kept if name.startswith("_")] == ["_name"]


def test_a_chain_head_leaves_the_warm_start_as_it_is(corpus, tiny_verifier, run):
    without, _ = run(tiny_verifier, "--block-size", 3)
    weights = load_weights(without)["model"]
    with_head, printed = run(tiny_verifier, "--block-size", 3, "--chain-units", 6)
    more = load_weights(with_head)["model"]
    new = sorted(set(more) - set(weights))
    assert new and all(name.startswith("decoder.chain.") for name in new)
    assert all(name in printed[0] for name in new)
    verifier = load_weights(tiny_verifier)["model"]
    same = [name for name in weights if name in verifier]
    assert len(same) > 20 and all(torch.equal(more[name], verifier[name]) for name in same)
    head = load_model(with_head, symbols(corpus), symbols(corpus)).decoder.chain
    states, before = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    assert torch.equal(head(states, before), states)


def test_training_goes_on_with_the_printed_flags(corpus, tiny_verifier, run, tmp_path):
    more = ["--share-encoder", "--chain-units", 6, "--block-size", 4]
    path, printed = run(tiny_verifier, *more)
    args = drafter_train_args(corpus.data_dir, tmp_path / "out", tiny_verifier)
    args += [*printed[-1].split(), "--finetune-from-model", path, "--max-update", "2"]
    run_cli(args)
    trained = load_weights(str(tmp_path / "out" / "checkpoint_last.pt"))["model"]
    assert trained["decoder.chain.out.weight"].any()


class TestRefused:
    """One sentence with the cause and the cure."""

    def test_more_layers_than_the_verifier(self, tiny_verifier, run):
        with pytest.raises(PluginError, match=r"--decoder-layers 2: the verifier has 1.*Give 1"):
            run(tiny_verifier, "--decoder-layers", 2)
        with pytest.raises(PluginError, match="--decoder-layers 0"):
            run(tiny_verifier, "--decoder-layers", 0)

    @pytest.mark.parametrize("size", [0, -3])
    def test_empty_blocks(self, tiny_verifier, run, size):
        with pytest.raises(PluginError, match=f"--block-size {size} .*1 or more"):
            run(tiny_verifier, "--block-size", size)

    def test_negative_chains(self, tiny_verifier, run):
        with pytest.raises(PluginError, match="--chain-units -1"):
            run(tiny_verifier, "--chain-units", -1)

    def test_a_verifier_that_is_no_transformer(self, corpus, run, tmp_path):
        args = [corpus.data_dir, "--task", "translation", "--arch", "lstm", *TINY_TRAINING]
        for part in ("encoder-embed", "decoder-embed", "decoder-out-embed"):
            args += [f"--{part}-dim", "8"]
        for part in ("encoder", "decoder"):
            args += [f"--{part}-hidden-size", "8"]
        path = untrained(corpus, args, str(tmp_path / "lstm.pt"))
        with pytest.raises(PluginError, match=r"lstm\.pt is a LSTMModel.*--arch block_nat"):
            run(path)
