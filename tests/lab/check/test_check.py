"""``specdec-check`` on the tiny corpus: what it finds, explains, keeps and refuses."""

import json
import re
import textwrap

import pytest
import torch
from fairseq.data import Dictionary

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.check import work
from specdec_plugin.lab.check.__main__ import main
from specdec_plugin.lab.check.programs import Program
from tests.support.command_lines import PLUGIN, TINY_TRAINING, run_cli

#: What the report says of a method.
ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \| (\S*) \|")
LOSSLESS = "Lossless here: every hypothesis is equal, or a tie within 0.0001."


@pytest.fixture
def check(corpus, tiny_verifier, tmp_path, capsys):
    """Runs the program; what it printed, the rows of its table by method, and its status."""

    def call(*more, path=tiny_verifier, data=corpus.data_dir):
        status = 0
        fixed = [data, "-s", "en", "-t", "es", "--path", path, "--max-len-b", "20"]
        try:
            main([*fixed, "--output", str(tmp_path / "out"), *map(str, more)])
        except PluginError:
            raise
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr().out
        return printed, {found[0]: found[1:] for found in ROW.findall(printed)}, status

    return call


def test_exact_methods_are_lossless(check, tiny_drafter, tiny_heads):
    more = ["--drafter-path", tiny_drafter, "--heads-path", tiny_heads, "--draft-confidence", 1e-9]
    printed, rows, status = check(*more)
    assert status == 0 and LOSSLESS in printed
    assert [*rows] == [
        *["greedy", "greedy certified", "specdec self", "hybrid-jacobi", "gs-jacobi"],
        *["input-guided", "beam", "specdec beam", "specdec", "blockwise"],
    ]
    for label, (reference, sentences, equal, ties, different, apart, accepted) in rows.items():
        assert reference == ("fairseq beam 5" if "beam" in label else "fairseq beam 1")
        assert (sentences, different) == ("21", "0") and int(equal) + int(ties) == 21
        assert float(apart) < 1e-4
        if "beam" in label:
            assert accepted == ""
        elif label != "input-guided":  # the source is of no help here
            assert (float(accepted) > 1) == (label not in ("greedy", "greedy certified"))


def test_accepted_tokens_of_earlier_runs_are_kept(check):
    _, first, _ = check("--methods", "greedy,specdec self")
    _, again, _ = check("--methods", "greedy,specdec self")
    assert again == first and float(again["specdec self"][-1]) > 1


def test_any_number_of_beams_and_sentences(check, tmp_path):
    more = ["--methods", "beam", "--beam", 3, "--sentences", 9, "--batch-size", 4]
    _, rows, status = check(*more)
    assert status == 0
    assert rows["beam with 3 beams"][:3] == ("fairseq beam 3", "9", "9")
    kept = {path.name for path in (tmp_path / "out").iterdir()}
    assert kept == {"fairseq-beam-3.jsonl", "beam-with-3-beams.jsonl"}


@pytest.mark.parametrize(
    "sentences, size, told",
    [
        (14, 3, "12 sentences are checked: --sentences 14, in batches of 3."),
        (12, 3, None),
        (5, 3, None),
        (99, 3, None),
    ],
)
def test_full_batches_are_told(check, sentences, size, told):
    printed, rows, _ = check("--methods", "greedy", "--sentences", sentences, "--batch-size", size)
    assert rows["greedy"][1] == str(12 if told else min(sentences, 21))
    assert printed.splitlines()[0] == told if told else "in batches of" not in printed


def test_samples_are_those_of_greedy_decoding(check):
    printed, rows, status = check("--sampling", "--sampling-topk", 5, "--seed", 3)
    assert status == 0 and LOSSLESS in printed
    assert [*rows] == [
        f"{name} samples" for name in ("specdec self", "hybrid-jacobi", "gs-jacobi", "input-guided")
    ]
    assert all(row[:3] == ("greedy samples", "21", "21") for row in rows.values())


def test_lines_of_pieces_and_raw_lines(check, corpus, sentencepieces, tmp_path):
    pieces = f"{corpus.raw_dir}/test.en"
    _, rows, status = check("--methods", "greedy", "--input", pieces)
    assert status == 0 and rows["greedy"][1] == "21"
    raw = tmp_path / "raw.en"
    raw.write_text("one two\n\n  nine   eight\n", "utf-8")
    more = ["--sentencepiece", sentencepieces / "spm.model", "--output", tmp_path / "raw"]
    _, rows, status = check(
        *("--methods", "greedy", "--input", raw, *more), data=str(sentencepieces)
    )
    assert status == 0 and rows["greedy"][1] == "3"


#: It takes its own drafts for right.
CARELESS = """
import torch

from specdec_plugin.decoding.acceptance import MinBlock, TopBeta
from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.state import Draft
from specdec_plugin.methods.registry import Method, register_method


class Repeater(Drafter):
    def propose(self, rows):
        return Draft(rows.last().repeat(1, 1), torch.ones_like(rows.lengths))


@register_method("careless")
class Careless(Method):
    summary = "drafts the newest token again, and accepts it"

    @classmethod
    def build(cls, setup):
        return Repeater()

    @classmethod
    def rule(cls, setup):
        return MinBlock(TopBeta(), 9, setup.eos)
"""


def test_a_wrong_method_is_found(corpus, tiny_verifier, tmp_path):
    folder = tmp_path / "careless"
    folder.mkdir()
    (folder / "__init__.py").write_text(textwrap.dedent(CARELESS), "utf-8")
    args = ["python", "-m", "specdec_plugin.lab.check", corpus.data_dir, "-s", "en", "-t", "es"]
    args += ["--path", tiny_verifier, "--user-dir", folder, "--methods", "greedy,careless"]
    done = run_cli([*args, "--output", tmp_path / "out"], check=False)
    assert done.returncode == 1, done.stderr
    rows = {found[0]: found[1:] for found in ROW.findall(done.stdout)}
    assert rows["greedy"][1:5] == ("21", "21", "0", "0") and int(rows["careless"][4]) > 0
    assert "Not lossless: " in done.stdout
    told = re.search(
        r"^careless: sentence \d+, token \d+: DIFFERENT\n(.*)\n(.*)", done.stdout, re.M
    )
    figure = r"(-?\d+\.\d+) in fairseq, (-?\d+\.\d+) in the plugin"
    theirs, mine = (re.search(figure, line) for line in told.groups())
    assert "fairseq beam 1 chose " in told[1] and "careless chose " in told[2]
    for program in (1, 2):  # both programs prefer what fairseq chose
        assert float(theirs[program]) > float(mine[program]) + 1e-4
    for side in (theirs, mine):
        assert abs(float(side[1]) - float(side[2])) < 1e-4


def indices(corpus):
    """Of two symbols of the target."""
    symbols = Dictionary.load(f"{corpus.data_dir}/dict.es.txt")
    return symbols.index("dos"), symbols.index("tres")


@pytest.fixture
def twins(tiny_verifier, corpus, tmp_path):
    """A checkpoint of which two symbols are one, but for their names; and these symbols."""
    state = torch.load(tiny_verifier, weights_only=True)
    one, other = indices(corpus)
    for name, weight in state["model"].items():
        if name.endswith(("embed_tokens.weight", "output_projection.weight")):
            weight[other] = weight[one]
    path = str(tmp_path / "twins.pt")
    torch.save(state, path)
    return path, one, other


def swapped(monkeypatch, one, other):
    """Let methods choose one symbol where they would choose the other, once a hypothesis."""
    decode = work.Decoder.decode

    def wrong(self, batch):
        found = decode(self, batch)
        if self._program.label in ("fairseq beam 1", "fairseq beam 5", "greedy samples"):
            return found
        places = {one: other, other: one}
        for hypotheses in found:
            for tokens, _ in hypotheses:
                place = next((i for i, token in enumerate(tokens) if token in places), None)
                if place is not None:
                    tokens[place] = places[tokens[place]]
        return found

    monkeypatch.setattr(work.Decoder, "decode", wrong)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_ties_are_listed(check, twins, monkeypatch, method):
    path, *symbols = twins
    swapped(monkeypatch, *symbols)
    printed, rows, status = check("--methods", method, path=path)
    *_, equal, ties, different, _, _ = rows[method]
    assert status == 0 and LOSSLESS in printed
    assert int(ties) > 0 == int(different) and int(equal) + int(ties) == 21
    assert printed.count(": a tie\n") == int(ties)
    assert "'dos', log-probability -" in printed and "'tres', log-probability -" in printed
    assert ("hypothesis 1, token" in printed) == (method == "beam")


def test_searches_may_part_at_a_tie(check, twins):
    """What is kept behind it differs by more; fairseq's own decision tells of the tie."""
    path, *_ = twins
    printed, rows, status = check("--methods", "beam", "--beam", 3, path=path)
    assert status == 0 and LOSSLESS in printed
    *_, equal, ties, different, _, _ = rows["beam with 3 beams"]
    assert int(equal) + int(ties) == 21 and different == "0"


@pytest.mark.parametrize("more", [[], ["--sampling"]])
def test_what_is_no_tie_is_told(check, corpus, monkeypatch, more):
    swapped(monkeypatch, *indices(corpus))
    printed, rows, status = check("--methods", "hybrid-jacobi", *more)
    label = "hybrid-jacobi samples" if more else "hybrid-jacobi"
    assert status == 1 and int(rows[label][4]) > 0
    assert printed.count(": DIFFERENT\n") == int(rows[label][4])
    if more:
        # The noise is that of the samples: the drawn token has the greatest sum.
        sums = re.findall(r"; log-probability with noise (-?\d+\.\d+) in fairseq", printed)
        assert all(
            float(theirs) > float(mine) for theirs, mine in zip(sums[::2], sums[1::2], strict=True)
        )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def built(monkeypatch):
    """The labels of all programs that are built."""
    labels = []
    build = Program.build

    def noted(self, session):
        labels.append(self.label)
        return build(self, session)

    monkeypatch.setattr(Program, "build", noted)
    return labels


def test_what_methods_are_compared_with_is_tried_once(check, built):
    names = ["greedy", "specdec self", "hybrid-jacobi"]
    check("--methods", ",".join(names), "--sentences", 8)
    programs = ["fairseq beam 1", *names]
    assert built == 2 * programs  # before anything is stored, and where it decodes


def test_an_interrupted_check_goes_on(check, tmp_path, built):
    more = ["--methods", "greedy,beam", "--batch-size", 4]
    whole = check(*more)
    expected = files(tmp_path / "out")
    assert {*expected} == {
        "fairseq-beam-1.jsonl",
        "fairseq-beam-5.jsonl",
        "greedy.jsonl",
        "beam.jsonl",
    }
    for name, content in expected.items():
        lines = content.splitlines(keepends=True)
        assert len(lines) == 1 + 6
        (tmp_path / "out" / name).write_bytes(b"".join(lines[:3]) + lines[3][:-9])
    again = check(*more)
    assert again[2] == 0 and again[1]["greedy"][:5] == whole[1]["greedy"][:5]
    assert files(tmp_path / "out") == expected
    (tmp_path / "out" / "beam.jsonl").unlink()
    built.clear()
    check(*more)
    assert {*built} == {"beam"}  # what fairseq found is kept
    assert files(tmp_path / "out") == expected


def test_shards_are_reported_together(check, tmp_path):
    more = ["--methods", "greedy,specdec self", "--batch-size", 4]
    for shard, sentences in ((2, 8), (0, 8)):
        _, rows, status = check(*more, "--shards", 3, "--shard", shard)
        assert status == 0 and int(rows["greedy"][1]) in (sentences, 5)
    _, rows, status = check(*more, "--shards", 3)
    assert status == 0 and rows["greedy"][1:3] == ("21", "21")
    names = ("fairseq-beam-1", "greedy", "specdec-self")
    assert {*files(tmp_path / "out")} == {
        f"{name}.{shard}-of-3.jsonl" for name in names for shard in range(3)
    }
    blocks = [
        json.loads(line)["batch"]
        for shard in range(3)
        for line in files(tmp_path / "out")[f"greedy.{shard}-of-3.jsonl"].splitlines()[1:]
    ]
    assert sorted(blocks) == list(range(6))


@pytest.mark.parametrize(
    "more, words",
    [
        (["--methods", "fastest"], "--methods fastest: there is no such method"),
        (["--methods", "greedy,greedy"], "twice"),
        (["--methods", "fairseq beam 1"], "there is no such method"),
        (["--batch-size", 0], "at least 1"),
        (["--tie", -1], "--tie -1.0: give 0 or more"),
        (["--tie", "inf"], "--tie inf: give 0 or more"),
        (["--max-len-b", -5], "--min-len 1 is more than the length limit -5"),
        (["--shards", 2, "--shard", 2], "--shard 2 is none of --shards 2: give 0 to 1"),
        (["--sentencepiece", "spm.model"], "give --input"),
        (["--input", "missing.en"], "File not found: missing.en"),
        (["--gen-subset", "dev"], "Name a folder that fairseq-preprocess wrote"),
        (["--methods", "specdec self clustered drafts"], "add --drafter-vocab-clusters FILE"),
        (["--sampling", "--methods", "beam"], "'beam' has 5 beams"),
        (["--sampling", "--methods", "greedy,specdec self"], "leave greedy out of --methods"),
        (["--temperature", 0.5], "add --sampling"),
    ],
)
def test_options_that_make_no_sense(check, tmp_path, more, words):
    with pytest.raises(PluginError, match=words):
        check(*(["--methods", "greedy"] if "--methods" not in more else []), *more)
    assert not (tmp_path / "out").exists()  # or else what is corrected would be refused


def test_models_that_cannot_draft_for_themselves(corpus, tmp_path, capsys):
    """Methods are left out that were not asked for."""
    train = ["fairseq-train", corpus.data_dir, "--user-dir", PLUGIN, "--task"]
    train += ["specdec_translation", "--save-dir", tmp_path / "model", *TINY_TRAINING]
    train += ["--arch", "lstm", "--max-update", 1]
    for name in ("encoder-embed", "encoder-hidden", "decoder-embed", "decoder-hidden"):
        train += [f"--{name}-{'dim' if name.endswith('embed') else 'size'}", 16]
    run_cli([*train, "--decoder-out-embed-dim", 16])
    args = [corpus.data_dir, "-s", "en", "-t", "es", "--sentences", 4, "--max-len-b", 6]
    args += ["--path", tmp_path / "model" / "checkpoint_last.pt", "--output", tmp_path / "out"]
    main([*map(str, args)])
    printed = capsys.readouterr().out
    for name in ("specdec self", "specdec beam"):
        assert f"{name} is not checked. " in printed
    assert LOSSLESS in printed
    with pytest.raises(PluginError, match="Add --drafter-path DRAFTER"):
        main([*map(str, args), "--methods", "specdec self"])


def test_empty_texts_and_unusable_folders(check, tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(PluginError, match="There is nothing to decode"):
        check("--input", tmp_path / "empty")
    with pytest.raises(PluginError, match=r"is a file\. Name a folder"):
        check("--output", tmp_path / "empty")


def test_results_of_other_runs_are_refused(check, corpus):
    check("--methods", "greedy", "--sentences", 8)
    told = r"began with the text of 1 batches, .*--sentences.* choose it\); .* another --output"
    with pytest.raises(PluginError, match=told):
        check("--methods", "greedy", "--sentences", 16)
    with pytest.raises(PluginError, match="began with --max-len-b 20, but now it is 19"):
        check("--methods", "greedy", "--sentences", 8, "--max-len-b", 19)
