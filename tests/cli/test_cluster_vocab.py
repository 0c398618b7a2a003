"""``specdec-cluster-vocab`` on the tiny corpus: what it records, writes, resumes and refuses."""

import sys

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary, data_utils

from specdec_plugin.cli.cluster_vocab import main
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from specdec_plugin.fairseq_compat.pairing import load_model
from specdec_plugin.outputs import alone
from specdec_plugin.vocab import store
from specdec_plugin.vocab.cluster_file import load_clusters
from specdec_plugin.vocab.states import StateReader
from specdec_plugin.vocab.store import States
from tests.support import heads, tiny
from tests.support.command_lines import run_cli
from tests.support.made import sets_of


@pytest.fixture
def run(corpus, tiny_verifier, tmp_path, capsys):
    """Runs the program; the file, the recorded states and what was printed."""

    def call(*more, output="clusters.pt"):
        path = str(tmp_path / output)
        fixed = [corpus.data_dir, "-s", "en", "-t", "es", "--path", tiny_verifier, "--cpu"]
        main([*fixed, "--clusters", "6", "--output", path, *map(str, more)])
        return load_clusters(path), States([path + ".states"]), capsys.readouterr().out

    return call


def stored(states):
    return tuple(np.concatenate(parts) for parts in zip(*states.chunks(), strict=True))


def clustered(file):
    """How many states a file of clusters was made of."""
    return int(file.note.split(", ")[1].split()[0])


def naive(model, dictionary, sources, targets):
    """States and the 5 likeliest tokens, a sentence at a time, by fairseq's own forward pass."""
    states, likely = [], []
    for source, target in zip(sources, targets, strict=True):
        fed = torch.cat([torch.tensor([dictionary.eos()]), target[:-1]]).unsqueeze(0)
        with torch.no_grad():
            encoded = model.encoder(source.unsqueeze(0), torch.tensor([len(source)]))
            hidden, _ = model.decoder(fed, encoder_out=encoded, features_only=True)
            scores = model.decoder.output_layer(hidden)[0]
        scores[:, dictionary.pad()] = -torch.inf
        states += hidden[0].tolist()
        likely += scores.topk(5).indices.tolist()
    return np.array(states), np.array(likely)


def test_states_and_clusters_of_a_split(run, corpus, tiny_verifier):
    file, states, printed = run(
        "--gen-subset", "valid", "--top-k", 2, "--neighbours", 1, "--max-tokens", 50
    )
    dictionary = Dictionary.load(f"{corpus.data_dir}/dict.en.txt")
    model = load_model(tiny_verifier, dictionary, dictionary)
    sides = [
        data_utils.load_indexed_dataset(f"{corpus.data_dir}/valid.en-es.{side}", dictionary)
        for side in ("en", "es")
    ]
    expected, likely = naive(model, dictionary, *[[row.long() for row in side] for side in sides])
    found, tokens = stored(states)
    assert len(found) == len(expected) == len(states)
    same = ((found[:, None] - expected) ** 2).sum(2).argmin(0)  # they are in another order
    np.testing.assert_allclose(found[same], expected, atol=0.01)
    assert (np.sort(tokens[same]) == np.sort(likely)).mean() > 0.97
    # Each state's likeliest tokens are active in the cluster that it is nearest to.
    centroids = file.clusters.centroids.float().numpy()
    distances = ((found[:, None] - centroids) ** 2).sum(2)
    sets = sets_of(file.clusters)
    for own, best in zip(distances.argmin(1), tokens[:, :2], strict=True):
        assert set(best) <= set(sets[own])
    assert all({dictionary.eos(), dictionary.unk()} <= set(each) for each in sets)
    assert all(dictionary.pad() not in each for each in sets)
    assert file.note == f"en-es valid, {len(states):,} states" and file.top_k == 2
    assert f"{file.clusters.size} clusters of {len(states)} states" in printed


def test_neighbours_have_more(run):
    one, _, _ = run("--gen-subset", "valid", "--top-k", 1, "--neighbours", 1)
    more, _, _ = run("--gen-subset", "valid", "--top-k", 1, "--neighbours", 3)
    sets = list(zip(sets_of(one.clusters), sets_of(more.clusters), strict=True))
    assert all(set(few) <= set(many) for few, many in sets)
    assert sum(len(many) - len(few) for few, many in sets) > 0 and more.neighbours == 3


def test_killed_and_gone_on_with(run, monkeypatch):
    whole, states, _ = run("--gen-subset", "test", "--max-tokens", 40, output="whole.pt")
    append = store.StateStore.append

    def killed(self, *batch):
        if self.batches == 3:
            raise KeyboardInterrupt
        append(self, *batch)

    monkeypatch.setattr(store.StateStore, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        run("--gen-subset", "test", "--max-tokens", 40)
    monkeypatch.setattr(store.StateStore, "append", append)
    again, resumed, _ = run("--gen-subset", "test", "--max-tokens", 40)
    for one, other in zip(stored(states), stored(resumed), strict=True):
        assert np.array_equal(one, other)
    assert sets_of(again.clusters) == sets_of(whole.clusters)
    with pytest.raises(PluginError, match=r"recorded with data test, fed, and now it is valid"):
        run("--gen-subset", "valid", "--max-tokens", 40)


def test_a_folder_that_another_process_records_in(run, tmp_path):
    run("--gen-subset", "valid")
    with (
        alone(str(tmp_path / "clusters.pt.states"), "written"),
        pytest.raises(PluginError, match=r"\.states is being written by another process"),
    ):
        run("--gen-subset", "valid")


def test_text_and_split_decoded_alike(run, corpus):
    text = f"{corpus.raw_dir}/test.en"
    _, decoded, _ = run("--gen-subset", "test", "--decode", output="split.pt")
    file, of_text, _ = run("--input", text, output="text.pt")
    sums = [np.sort(stored(states)[0].sum(1)) for states in (decoded, of_text)]
    np.testing.assert_allclose(*sums, atol=0.05)
    assert file.note.startswith("en-es test.en, ")


def test_at_most_so_many_states_and_those_of_others(run, tmp_path):
    run("--gen-subset", "valid", output="others.pt")
    file, _, printed = run("--states", 30, "--more-states", tmp_path / "others.pt.states")
    assert clustered(file) > 100
    assert f" of {clustered(file)} states" in printed
    file, states, printed = run("--states", 30)
    assert clustered(file) == 30 == len(states) and " of 30 states" in printed


@pytest.mark.parametrize("before", [7, 70])
def test_another_number_of_states_in_a_folder(run, before):
    """More are recorded where the folder has too few; of more, the first ones are clustered."""
    given = ["--gen-subset", "valid", "--max-tokens", 40]
    whole, of_all, _ = run(*given, output="whole.pt")
    run(*given, "--states", before)
    fewer, _, _ = run(*given, "--states", 8)
    assert clustered(fewer) == 8
    again, states, _ = run(*given, "--states", 1000)
    assert clustered(again) == clustered(whole) == len(states) > 70
    for one, other in zip(stored(states), stored(of_all), strict=True):
        assert np.array_equal(one, other)


#: What a decoder is fed, of which the second row is padded.
FED = torch.tensor([[2, 7, 8, 4], [2, 9, 1, 1]])
SOURCES = tiny.sample([3, 5])["net_input"]


def test_padding_is_never_likely():
    model, pad = tiny.model(), 1
    states, _ = StateReader(model, 2, pad).read(SOURCES, FED)
    projection = model.decoder.output_projection
    with torch.no_grad():
        projection.weight[pad] = 100 * states[0]
        assert int(projection(states[0]).argmax()) == pad
    _, tokens = StateReader(model, 2, pad).read(SOURCES, FED)
    assert tokens.shape == (6, 2) and not tokens.eq(pad).any()


def test_states_are_those_of_the_weights_in_use():
    model = tiny.model()
    reader = StateReader(model, 2, 1)
    first, _ = reader.read(SOURCES, FED)
    with torch.no_grad():
        for weight in model.decoder.parameters():
            weight.mul_(1.5)
    found, expected = (each.read(SOURCES, FED)[0] for each in (reader, StateReader(model, 2, 1)))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, first, atol=0.01)


@torch.no_grad()
def test_states_are_those_behind_a_learned_first_head():
    model = heads.blockwise_model(3, learned_first_head=True)
    states, _ = StateReader(model, 2, heads.PAD).read(SOURCES, FED)
    encoded = model.encoder.forward_torchscript(SOURCES)
    hidden, _ = model.decoder(FED, encoder_out=encoded, features_only=True)
    expected = model.decoder.first_head(hidden)[FED.ne(heads.PAD)]
    torch.testing.assert_close(states, expected, atol=1e-4, rtol=1e-4)


def test_refusals(run, tmp_path):
    others = tmp_path / "others.states"
    recorded = store.StateStore(str(others), {"decoder": 1, "dictionary": 2}, 16, 5)
    recorded.append(torch.ones(3, 16), torch.ones(3, 5))
    for more, sentence in (
        (["--top-k", 6], "--top-k 6: give 1 to 5"),
        (["--gen-subset", "nowhere"], "--gen-subset"),
        (["--input", "nowhere"], "File not found: nowhere"),
        (["--neighbours", 0], "--neighbours 0: give 1 or more"),
        (["--clusters", 0], "--clusters 0: give 1 or more"),
        (["--states", -1], "--states -1: give 1 or more"),
        (["--more-states", "nowhere"], "nowhere holds no states"),
        (["--more-states", others], r"others\.states holds states of another model than .*\.pt"),
        (["--states", 9, "--clusters", 10], "--clusters 10 of at most 9 states cannot be made"),
        (["--path", "a.pt:b.pt"], "give one as --path"),
    ):
        with pytest.raises(PluginError, match=sentence):
            run(*more)
    assert not (tmp_path / "clusters.pt.states").exists()
    with pytest.raises(PluginError, match="--clusters 1,000,000 of"):
        run("--clusters", 10**6, "--gen-subset", "valid")


@pytest.mark.parametrize("more", [[], ["--decode"]], ids=["fed", "decoded"])
@pytest.mark.parametrize(
    "architecture, reason",
    [
        (["--arch", "lstm"], "LSTMDecoder is not a Transformer decoder"),
        (["--arch", "transformer", "--adaptive-softmax-cutoff", "5,10"], "adaptive softmax"),
    ],
)
def test_models_without_a_plain_projection(run, corpus, tmp_path, architecture, reason, more):
    given = [corpus.data_dir, *architecture, "--optimizer", "adam"]
    parsed = options.parse_args_and_arch(options.get_training_parser("translation"), given)
    path, dictionary = str(tmp_path / "model.pt"), Dictionary.load(f"{corpus.data_dir}/dict.en.txt")
    save_untrained(tiny.task(dictionary).build_model(parsed).state_dict(), parsed, path)
    with pytest.raises(PluginError, match=f"of this model cannot be clustered, because .*{reason}"):
        run("--path", path, "--gen-subset", "valid", *more)
    assert not (tmp_path / "clusters.pt.states").exists()


def test_without_a_library_nothing_is_recorded(run, tmp_path, monkeypatch):
    for module in ("faiss", "sklearn.cluster"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PluginError, match="Clustering needs faiss or scikit-learn"):
        run("--gen-subset", "valid")
    assert not (tmp_path / "clusters.pt.states").exists()


def test_help_has_examples():
    printed = run_cli(["python", "-m", "specdec_plugin.cli.cluster_vocab", "--help"]).stdout
    assert "--output clusters.en-es.pt" in printed and "--clusters N" in printed
