"""``--task specdec_speech_to_text``: a tiny model of speech, on made-up features."""

import json
import random
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import pytest
import yaml
from fairseq import options

from specdec_plugin.cli.cluster_vocab import always_active
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.workers import fork_workers
from specdec_plugin.lab.bench import __main__ as bench
from specdec_plugin.lab.viz import __main__ as viz
from specdec_plugin.tasks.speech_to_text import SpecdecSpeechToTextTask
from tests.support import tiny
from tests.support.command_lines import PLUGIN, hypotheses, once_per_run, run_cli
from tests.support.pages import data_of

WORDS = [f"w{number}" for number in range(12)]
#: Utterances of each split.
SPLITS = {"train": 60, "dev": 6, "test": 9}
TASK = ["--config-yaml", "config.yaml", "--num-workers", "0", "--cpu", "--user-dir", PLUGIN]
pytestmark = pytest.mark.filterwarnings("ignore:.*'pin_memory' argument")


def write_corpus(folder: Path) -> None:
    """A word is some frames of its own features, with noise."""
    choose, noise = random.Random(1), np.random.RandomState(1)
    sounds = {word: noise.randn(80) for word in WORDS}
    (folder / "dict.txt").write_text("".join(f"{word} 9\n" for word in WORDS))
    config = {"vocab_filename": "dict.txt", "input_feat_per_channel": 80, "input_channels": 1}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for split, count in SPLITS.items():
        lines = ["id\taudio\tn_frames\ttgt_text\tspeaker"]
        for number in range(count):
            words = choose.choices(WORDS, k=choose.randint(2, 6))
            frames = np.repeat([sounds[word] for word in words], 8, axis=0)
            frames = (frames + 0.1 * noise.randn(*frames.shape)).astype(np.float32)
            path = folder / f"{split}{number}.npy"
            np.save(path, frames)
            lines.append(f"{split}{number}\t{path}\t{len(frames)}\t{' '.join(words)}\tone")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def train(folder: Path) -> None:
    write_corpus(folder)
    sizes = ["--encoder-layers", "1", "--decoder-layers", "1", "--conv-channels", "16"]
    for side in ("encoder", "decoder"):
        sizes += [f"--{side}-embed-dim", "16", f"--{side}-ffn-embed-dim", "24"]
        sizes += [f"--{side}-attention-heads", "2"]
    model = ["--arch", "s2t_transformer_xs", "--criterion", "cross_entropy", *sizes]
    run_cli(train_args(folder, "model", "specdec_speech_to_text", *model))


def train_args(folder: Path, name: str, task: str, *more: object) -> list:
    training = ["--optimizer", "adam", "--lr", "0.01", "--dropout", "0", "--max-tokens", "4000"]
    training += ["--no-progress-bar", "--disable-validation", "--no-epoch-checkpoints"]
    training += ["--train-subset", "train", "--valid-subset", "dev", "--max-update", "30"]
    return [
        *["fairseq-train", folder, "--task", task, *TASK, *training],
        *["--save-dir", folder / name, *more],
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with a model."""
    return once_per_run(tmp_path_factory, "speech", train)


@pytest.fixture(scope="module")
def drafter(folder: Path) -> Path:
    """A drafter that reads the model's encoder, from a warm start."""
    init, verifier = folder / "init.pt", folder / "model" / "checkpoint_last.pt"
    started = ["specdec-init-drafter", folder, "--task", "specdec_speech_to_text"]
    started += ["--verifier", verifier, "--output", init, "--block-size", 3, "--share-encoder"]
    flags = run_cli(started).stdout.splitlines()[-1].split()
    more = [*flags, "--finetune-from-model", init, "--criterion", "glancing_block_loss"]
    more += ["--verifier-path", verifier, "--teacher-path", verifier]
    run_cli(train_args(folder, "drafter", "block_nat_speech_to_text", *more))
    return folder / "drafter" / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def heads(folder: Path) -> Path:
    """Proposal heads that read the sound, too."""
    more = ["--arch", "blockwise_transformer", "--frozen-base", "--heads", "source"]
    more += ["--block-size", 3, "--criterion", "blockwise_cross_entropy", "--head-loss", "mean"]
    more += ["--verifier-path", folder / "model" / "checkpoint_last.pt"]
    run_cli(train_args(folder, "heads", "blockwise_speech_to_text", *more))
    return folder / "heads" / "checkpoint_last.pt"


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1", "4"])
@pytest.mark.parametrize("kind", ["specdec", "blockwise"])
def test_trained_drafts_are_lossless(
    folder: Path, drafter: Path, heads: Path, kind: str, size: str
) -> None:
    path = {"specdec": drafter, "blockwise": heads}[kind]
    shared = ["--beam", "1", "--batch-size", size, "--required-batch-size-multiple", "1"]
    expected = hypotheses(decode(folder, *shared, task="speech_to_text").stdout)
    flags = ["--decoding", kind, "--drafter-path", str(path), "--draft-rows", "0"]
    done = decode(folder, *shared, *flags)
    assert hypotheses(done.stdout) == expected and len(expected) == SPLITS["test"]
    assert float(re.search(r"([\d.]+) accepted tokens an iteration", done.stderr)[1]) > 1.05


@pytest.mark.slow
def test_bench_and_page(folder: Path, drafter: Path, heads: Path, tmp_path: Path) -> None:
    fixed = [str(folder), "--task", "specdec_speech_to_text", "--max-len-b", "20"]
    fixed += ["--path", str(folder / "model" / "checkpoint_last.pt"), "--draft-rows", "0"]
    more = ["--methods", "fairseq beam 1,greedy,specdec,specdec self,blockwise", "--threads", "1"]
    more += ["--drafter-path", str(drafter), "--heads-path", str(heads)]
    bench.main([*fixed, *more, "--output", str(tmp_path / "bench")])
    rows = json.loads((tmp_path / "bench" / "results.json").read_text("utf-8"))["rows"]
    assert [row["equal to fairseq greedy"] for row in rows] == [SPLITS["test"]] * 5

    sounds = [f"{folder}/test{number}.npy" for number in range(2)]
    (tmp_path / "sounds").write_text("\n".join(sounds) + "\n", "utf-8")
    expected = hypotheses(decode(folder, "--beam", "1", "--batch-size", "1").stdout)
    for name, sentences in (("ids", ["--ids", "0,1"]), ("in", ["--input", tmp_path / "sounds"])):
        viz.main([*fixed[:-2], *map(str, sentences), "--output", str(tmp_path / name)])
        charts = data_of((tmp_path / name / "index.html").read_text("utf-8"))["charts"]
        assert [chart["output"] for chart in charts] == expected[:2]
        assert all("frames of speech" in chart["source"] for chart in charts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, more",
    [
        ("block_nat_speech_to_text", ["--arch", "block_nat", "--criterion", "glancing_block_loss"]),
        (
            "blockwise_speech_to_text",
            ["--arch", "blockwise_transformer", "--criterion", "blockwise_cross_entropy"],
        ),
    ],
)
def test_what_would_read_a_text_is_not_trained(folder: Path, task: str, more: list) -> None:
    done = run_cli(train_args(folder, "none", task, *more), check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "reads text, and the source is speech here: train a drafter with --share-encoder" in last


@pytest.mark.slow
def test_a_drafter_of_text_is_refused(folder: Path, tiny_drafter: str) -> None:
    flags = ["--beam", "1", "--decoding", "specdec", "--drafter-path", tiny_drafter]
    with pytest.raises(AssertionError, match=r"has .* target symbols"):
        decode(folder, *flags)


def decode(folder: Path, *flags: str, task: str = "specdec_speech_to_text"):
    checkpoint = folder / "model" / "checkpoint_last.pt"
    fixed = ["fairseq-generate", folder, "--task", task, "--path", checkpoint, *TASK]
    return run_cli([*fixed, "--gen-subset", "test", "--max-len-b", "20", *flags])


@pytest.mark.parametrize("size", ["1", "4"])
@pytest.mark.parametrize(
    "beam, flags",
    [
        ("1", ["--decoding", "greedy"]),
        ("1", ["--decoding", "auto"]),
        ("1", ["--decoding", "specdec", "--draft-rows", "0"]),
        ("4", ["--decoding", "beam"]),
    ],
)
def test_hypotheses_are_fairseqs(folder: Path, beam: str, flags: list, size: str) -> None:
    shared = ["--beam", beam, "--batch-size", size, "--required-batch-size-multiple", "1"]
    expected = hypotheses(decode(folder, *shared, task="speech_to_text").stdout)
    found = hypotheses(decode(folder, *shared, *flags).stdout)
    assert found == expected and len(found) == SPLITS["test"] and len(set(found)) > 3


@pytest.mark.parametrize("method", ["input-guided", "hybrid-jacobi"])
def test_what_reads_a_text_is_refused(folder: Path, method: str) -> None:
    with pytest.raises(AssertionError, match=f"--decoding {method}.* reads the source as text"):
        decode(folder, "--beam", "1", "--decoding", method)


@pytest.mark.parametrize(
    "content, reason",
    [
        (None, "config.yaml not found"),
        ("vocab_filename: none.txt", "Dict not found: .*none.txt"),
        ("a: [", "Failed to load config from .*config.yaml"),
        ("", "config.yaml has no lines such as"),
    ],
)
def test_a_configuration_or_dictionary_that_is_missing_or_damaged_is_told(
    content: Optional[str], reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    args = Namespace(data=str(tmp_path), config_yaml="config.yaml", seed=1)
    with pytest.raises(PluginError, match=f"speech data in .*{reason}.* Check the folder"):
        SpecdecSpeechToTextTask.setup_task(args)


def test_a_damaged_dictionary_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("vocab_filename: dict.txt")
    (tmp_path / "dict.txt").write_text("w0 9\nno count\n")
    args = Namespace(data=str(tmp_path), config_yaml="config.yaml", seed=1)
    with pytest.raises(PluginError, match=r"dict.txt is damaged, or is no dictionary of fairseq"):
        SpecdecSpeechToTextTask.setup_task(args)


@pytest.fixture
def task(tmp_path: Path) -> SpecdecSpeechToTextTask:
    """One that reads data of its own."""
    write_corpus(tmp_path)
    args = Namespace(data=str(tmp_path), config_yaml="config.yaml", seed=1)
    return SpecdecSpeechToTextTask.setup_task(args)


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ("\taudio\t", "\tsound\t", "KeyError: 'audio'"),
        ("\tone", "\tone\nlast", "TypeError: "),
        ("n_frames\ttgt_text\tspeaker\ntest0", "n_frames\ttgt_text\nx\ty\tz", "ValueError: .*'z'"),
    ],
)
def test_a_damaged_list_of_sounds_is_told(
    task: SpecdecSpeechToTextTask, old: str, new: str, reason: str
) -> None:
    path = Path(task.args.data) / "test.tsv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(PluginError, match=f"split test of .*{reason}.*Check test.tsv"):
        task.load_dataset("test")


@pytest.mark.parametrize(
    "content, reason",
    [(None, "No such file"), (b"", "EOFError"), (b"noise" * 40, "ValueError")],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_sound_is_told(
    task: SpecdecSpeechToTextTask, content: Optional[bytes], reason: str, workers: int
) -> None:
    fork_workers()  # as fairseq's programs do
    path = Path(task.args.data) / "test3.npy"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    task.load_dataset("test")
    batches = task.get_batch_iterator(task.dataset("test"), max_sentences=4, num_workers=workers)
    with pytest.raises(PluginError) as told:
        list(batches.next_epoch_itr())
    sentence = str(told.value)
    assert sentence.startswith(f"The sound {path} cannot be read (") and reason in sentence
    assert "Traceback" not in sentence and sentence.count("The sound") == 1
    with pytest.raises(PluginError, match=r"The sound .*test3.npy cannot be read"):
        task.get_interactive_tokens_and_lengths([str(path)], None)


@pytest.mark.parametrize("more", [[], ["--decoding", "greedy"]])
def test_sound_is_not_aligned(folder: Path, more: list) -> None:
    with pytest.raises(AssertionError, match=r"--print-alignment aligns words .* sound has none"):
        decode(folder, "--beam", "1", "--print-alignment", *more)


def test_lines_of_fairseq_interactive(folder: Path) -> None:
    checkpoint = folder / "model" / "checkpoint_last.pt"
    command = ["fairseq-interactive", folder, "--path", checkpoint, "--beam", "1", *TASK]
    command += ["--task", "specdec_speech_to_text", "--decoding", "greedy", "--max-len-b", "20"]
    sounds = "".join(f"{folder}/test{number}.npy\n" for number in range(SPLITS["test"]))
    # Padding changes what fairseq's convolutions make of the end of a sound.
    alone = ["--beam", "1", "--batch-size", "1", "--decoding", "greedy"]
    expected = hypotheses(decode(folder, *alone).stdout)
    assert hypotheses(run_cli(command, input=sounds).stdout) == expected


class TestTagsOfLanguages:
    """Where the configuration says that targets have them."""

    def built(self, folder: Path, config: dict, model: Any = None, **search: Any) -> Any:
        write_corpus(folder)
        with open(folder / "dict.txt", "a") as words:
            words.write("<lang:es> 9\n<lang:fr> 9\n")
        with open(folder / "config.yaml", "a") as lines:
            lines.write(yaml.safe_dump(config))
        args = Namespace(data=str(folder), config_yaml="config.yaml", seed=1, decoding="greedy")
        self.task = task = SpecdecSpeechToTextTask.setup_task(args)
        self.words = task.target_dictionary
        models = [model or tiny.model(symbols=self.words)]
        return task.build_generator(models, Namespace(beam=1, **{"prefix_size": 0, **search}))

    def test_a_tag_in_front_is_a_prefix_and_not_printed(self, tmp_path: Path) -> None:
        config = {"prepend_tgt_lang_tag": True}
        found = self.built(tmp_path, config, prefix_size=1)
        tags = {self.words.index(f"<lang:{each}>") for each in ("es", "fr")}
        assert found.symbols_to_strip_from_output == {self.words.eos(), *tags}
        for more in ({}, {"score_reference": True}):
            with pytest.raises(PluginError, match="give --prefix-size 1"):
                self.built(tmp_path, config, **more)

    @pytest.mark.parametrize("named", ["option", "configuration"])
    def test_a_tag_at_the_end_ends_sentences(self, named: str, tmp_path: Path) -> None:
        config = {"prepend_bos_and_append_tgt_lang_tag": True}
        search, more = {"eos_token": "<lang:fr>"}, {}
        if named == "configuration":
            search, more = more, search
        found = self.built(tmp_path, {**config, **more}, **search)
        assert found.eos == self.words.index("<lang:fr>")
        with pytest.raises(PluginError, match="--eos-token <lang:de> is no symbol of the target"):
            self.built(tmp_path, config, eos_token="<lang:de>")
        with pytest.raises(PluginError, match="give it by --eos-token"):
            self.built(tmp_path, config)

    def test_every_cluster_has_the_tag_that_ends_sentences(self, tmp_path: Path) -> None:
        config = {"prepend_bos_and_append_tgt_lang_tag": True}
        self.built(tmp_path, config, eos_token="<lang:fr>")
        search = SimpleNamespace(task=None, generation=Namespace(eos_token="<lang:fr>"))
        session = SimpleNamespace(dictionary=self.words, task=self.task, cfg=search)
        ends = {self.words.eos(), self.words.unk(), self.words.index("<lang:fr>")}
        assert {*always_active(session)} == ends

    def test_without_tags_the_end_is_that_of_the_dictionary(self, tmp_path: Path) -> None:
        found = self.built(tmp_path, {"prepend_tgt_lang_tag": False})
        assert found.eos == self.words.eos()

    def test_two_decoders_in_a_row_are_refused(self, tmp_path: Path) -> None:
        model = tiny.model()
        model.mt_task_name = "translation"
        with pytest.raises(PluginError, match="two decoders in a row"):
            self.built(tmp_path, {"prepend_tgt_lang_tag": False}, model)

    def test_a_command_line_may_name_the_tag_for_this_task_alone(self) -> None:
        line = ["data", "--path", "model.pt", "--decoding", "greedy", "--eos-token", "<lang:fr>"]
        line += ["--user-dir", PLUGIN, "--task"]

        def parsed(task: str, *more: str) -> Any:
            parser = options.get_generation_parser()
            return options.parse_args_and_arch(parser, [*line, task, *more])

        assert parsed("specdec_speech_to_text").eos_token == "<lang:fr>"
        with pytest.raises(PluginError, match="--eos-token cannot be kept"):
            parsed("specdec_translation", "-s", "en", "-t", "es")
