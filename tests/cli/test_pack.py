"""``specdec-pack``: a folder that loads, or nothing."""

import errno
import json
import os
from pathlib import Path

import pytest
import sentencepiece

import specdec_plugin
from specdec_plugin.cli.pack import main
from specdec_plugin.errors import PluginError
from specdec_plugin.folder import read_folder
from tests.support.command_lines import ROOT, run_cli


@pytest.fixture
def args(tiny_verifier, sentencepieces, tmp_path):
    """The command line of a folder that loads, with changed or further arguments."""

    def made(*more, output=tmp_path / "packed", path=tiny_verifier, data=sentencepieces):
        fixed = ["--path", path, "--data", data, "--output", output, "-s", "en", "-t", "es"]
        return [str(each) for each in [*fixed, *more]]

    return made


def test_the_command_line(args, tmp_path, sentencepieces, tiny_verifier):
    spm = sentencepieces / "spm.model"
    more = ["--sentencepiece", spm, "--decoding", "beam", "--option", "beam=3"]
    more += ["--option", "max_len_b=20", "--language-name", "es=Español"]
    done = run_cli(["python", "-m", "specdec_plugin.cli.pack", *args(*more)])
    assert "4 files" in done.stdout and "decode by beam" in done.stdout
    folder = tmp_path / "packed"
    names = {"specdec.json", "checkpoint_last.pt", "spm.model", "dict.en.txt", "dict.es.txt"}
    assert {each.name for each in folder.iterdir()} == names
    assert not any(each.is_symlink() for each in folder.iterdir())
    found = json.loads((folder / "specdec.json").read_text("utf-8"))
    assert found["options"] == {"beam": 3, "max_len_b": 20}
    assert found["languages"]["names"] == {"es": "Español"}
    translator = specdec_plugin.load(str(folder))
    assert translator.method == "beam"
    assert len(translator.translate(["one two"], nbest=3)[0].nbest) == 3


def test_links_and_a_drafter(args, tmp_path, tiny_drafter, corpus):
    folder = tmp_path / "packed"
    # Both checkpoints have fairseq's name for the last one.
    drafter = tmp_path / "drafter.pt"
    drafter.symlink_to(tiny_drafter)
    main(args("--link", "--drafter", drafter, data=corpus.data_dir))
    linked = [each for each in folder.iterdir() if each.name != "specdec.json"]
    assert len(linked) == 4 and all(each.is_symlink() for each in linked)
    session = specdec_plugin.load_session(str(folder))
    lines = corpus.lines("test", "en")[:3]
    greedy = session.translator("greedy", max_len_b=20).translate_pieces(lines)
    drafted = session.translator("specdec", draft_rows=0, max_len_b=20).translate_pieces(lines)
    assert [each.text for each in drafted] == [each.text for each in greedy]
    assert sum(each.iterations for each in drafted) < sum(each.iterations for each in greedy)
    assert session.translator("nat").translate_pieces(lines)


def test_files_that_are_there_stay(args, tmp_path, sentencepieces, tiny_verifier):
    folder = tmp_path / "packed"
    folder.mkdir()
    for path in [Path(tiny_verifier), *sentencepieces.iterdir()]:
        (folder / path.name).write_bytes(path.read_bytes())
    before = {each.name: each.stat().st_mtime_ns for each in folder.iterdir()}
    main(args("--sentencepiece", folder / "spm.model", path=folder / "checkpoint_last.pt",
              data=folder))  # fmt: skip
    after = {each.name: each.stat().st_mtime_ns for each in folder.iterdir()}
    after.pop("specdec.json")
    assert after == before
    with pytest.raises(PluginError, match=r"specdec\.json exists already"):
        main(args())


@pytest.mark.parametrize(
    "more, words",
    [
        (["--drafter", "none.pt"], r"File not found: none\.pt"),
        (["--sentencepiece", "{verifier}"], "is not a SentencePiece model"),
        (["--sentencepiece", "x", "--moses"], "leave --moses out"),
        (["--subword-nmt", "{verifier}"], "holds no codes of subword-nmt"),
        (["--drafter", "{verifier}"], "exists already|drafter"),
        (["--language-name", "xx=Foo"], "the model has no language xx. Its languages are en, es"),
        (["--option", "beams=3"], "There is no option beams"),
        (["--option", "block_size=-1"], "block"),
        (["--decoding", "nat"], "drafter"),
        (["--path", "none.pt"], r"File not found: none\.pt"),
        (["--data", "none"], "The folder none cannot be read"),
        (["-s", "de"], r"{data}/dict\.de\.txt"),
        (["--option", "block_size=3", "--decoding", "greedy"], "--block-size 3 would have no eff"),
        (["--option", "beam=3", "--decoding", "greedy"], "beam"),
    ],
)
def test_what_does_not_load_leaves_nothing(
    args, tmp_path, tiny_verifier, sentencepieces, more, words
):
    other = tmp_path / "model.pt"
    other.write_bytes(Path(tiny_verifier).read_bytes())
    with pytest.raises(PluginError, match=words.replace("{data}", str(sentencepieces))):
        main(args(*(each.format(verifier=other) for each in more)))
    assert not (tmp_path / "packed").exists()


def test_options_of_a_method_that_the_folder_serves_too(args, tmp_path, tiny_drafter, corpus):
    drafter = tmp_path / "drafter.pt"
    drafter.symlink_to(tiny_drafter)
    more = ["--drafter", drafter, "--decoding", "greedy", "--option", "block_size=3"]
    main(args(*more, data=corpus.data_dir))
    assert specdec_plugin.load(str(tmp_path / "packed"), decoding="specdec").method == "specdec"


def test_subwords_of_another_project(args, tmp_path, sentencepieces, tiny_verifier):
    other = Path(ROOT) / "checkpoints" / "gec-en" / "spm.model"
    told = f"^{other} does not belong to this model: .* of its "
    with pytest.raises(PluginError, match=told):
        main(args("--sentencepiece", other))
    assert not (tmp_path / "packed").exists()
    with pytest.raises(PluginError, match=told):
        specdec_plugin.load(
            tiny_verifier, str(sentencepieces), source_lang="en", target_lang="es",
            subwords=str(other),
        )  # fmt: skip


def test_targets_with_a_model_of_their_own(args, tmp_path, sentencepieces, tiny_verifier):
    """It belongs to the target dictionary, and splits what is given of targets."""
    source, target = sentencepieces / "spm.model", tmp_path / "target.model"
    target.write_bytes(source.read_bytes())
    main(args("--sentencepiece", source, "--target-sentencepiece", target))
    folder = read_folder(str(tmp_path / "packed"))
    assert folder.subwords["target_file"] == "target.model" and "target.model" in folder.files
    session = specdec_plugin.load_session(folder.path)
    assert session.target_pieces(["uno dos"]) == ["▁uno ▁dos"]
    named = {"source_lang": "en", "target_lang": "es", "target_subwords": str(target)}
    given = [tiny_verifier, str(sentencepieces)]
    loaded = specdec_plugin.load_session(*given, **named, subwords=source)
    assert loaded.score(["one"], ["uno"])[0].score == session.score(["one"], ["uno"])[0].score
    with pytest.raises(PluginError, match="splits targets alone: give subwords for sources"):
        specdec_plugin.load_session(*given, **named)
    with pytest.raises(PluginError, match="splits targets alone: give --sentencepiece for"):
        main(args("--target-sentencepiece", target, output=tmp_path / "other"))
    words = " ".join(f"word{number}" for number in range(60))
    with target.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([words] * 2), model_writer=file, model_type="word",
            vocab_size=63, minloglevel=2,
        )  # fmt: skip
    with pytest.raises(PluginError, match=r"target\.model does not belong.*target dictionary"):
        main(args("--sentencepiece", source, "--target-sentencepiece", target,
                  output=tmp_path / "other"))  # fmt: skip
    assert not (tmp_path / "other").exists()


def test_a_list_of_languages_that_is_missing(args, tmp_path):
    with pytest.raises(PluginError, match=r"--lang-dict none\.txt cannot be read \(FileNotFound"):
        main(args("--lang-dict", "none.txt"))
    (tmp_path / "empty.txt").write_text("\n", "utf-8")
    with pytest.raises(PluginError, match=r"empty\.txt is empty\. Name a file with a language"):
        main(args("--lang-dict", tmp_path / "empty.txt"))
    assert not (tmp_path / "packed").exists()


def test_a_full_disk_leaves_nothing(args, tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(PluginError, match=r"specdec\.json cannot be written \(No space left"):
            main(args())
    assert not (tmp_path / "packed").exists()
    main(args())


def test_files_of_one_name(args, tmp_path, tiny_verifier):
    with pytest.raises(PluginError, match="is not a drafter"):  # though it is the same file
        main(args("--drafter", tiny_verifier))
    other = tmp_path / Path(tiny_verifier).name
    other.write_bytes(Path(tiny_verifier).read_bytes())
    with pytest.raises(PluginError, match=f"^{tiny_verifier} and {other} have one name") as caught:
        main(args("--drafter", other))
    assert "packed" not in str(caught.value)


def test_another_file_of_this_name_is_kept(args, tmp_path):
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "dict.en.txt").write_text("mine", "utf-8")
    with pytest.raises(PluginError, match=r"dict\.en\.txt exists already, and is another file"):
        main(args())
    assert [(each.name, each.read_text("utf-8")) for each in folder.iterdir()] == [
        ("dict.en.txt", "mine")
    ]
    with pytest.raises(PluginError, match=r"is a file\. Name a folder"):
        main(args(output=folder / "dict.en.txt"))


def test_an_option_without_a_value(args, capsys):
    with pytest.raises(SystemExit):
        main(args("--option", "beam"))
    assert "invalid NAME=VALUE value: 'beam'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pydocs-en-es", "gec-en"])
def test_the_shipped_folders_are_complete(name):
    folder = read_folder(str(Path(ROOT) / "checkpoints" / name))
    assert folder.subwords is not None and folder.names.keys() == {
        folder.source_lang, folder.target_lang
    }  # fmt: skip
