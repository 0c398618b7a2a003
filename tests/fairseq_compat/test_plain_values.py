"""What fairseq evaluates holds plain values, whatever a checkpoint's options are."""

import argparse
import ast
import builtins
import importlib
import pickle
import sys
from pathlib import Path

import fairseq
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import codedataset

import specdec_plugin.fairseq_compat.plain_values as plain_values
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.fairseq_compat.plain_values import (
    CodeRefusedError,
    guarded_eval,
    install_plain_values,
    plain_value,
)
from tests.support import checkpoints, tiny

ROOT = Path(fairseq.__file__).parent
SOURCES = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "examples"]


@pytest.mark.parametrize(
    "text",
    [
        "[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)] + [(512,2,2)]",
        "((1024, 16, 4096, True, 0.15, 0.15, 0.15),) * 16",
        "3 * ['a']",
        "(1e-30, 1e-3)",
        "(0.9, 1 - 0.02)",
        "10,12",
        " True",
        "None",
        "not True",
        "-1e999",
        "4096 // 3 / 2",
        "{'name': 'linformer', 'dropout': 0.1, 'sizes': [1, {2, 3}]}",
        "'' '\\x41'",
        "()",
        "0x10",
    ],
)
def test_literals_have_pythons_values(text):
    assert plain_value(text) == eval(text)
    assert type(plain_value(text)) is type(eval(text))


@pytest.mark.parametrize(
    "text",
    [
        "open('ran', 'w')",
        "__import__('os').mkdir('ran')",
        "[open('ran', 'w') for _ in (1,)]",
        "(lambda: open('ran', 'w'))()",
        "{'a': open('ran', 'w')}",
        "{**{'a': 1}}",
        "[*(1, 2)]",
        'f\'{open("ran", "w")}\'',
        "(ran := 1)",
        "True or exit()",
        "1 if 1 else exit()",
        "().__class__",
        "[1][0]",
        "'%s' % 1",
        "9**9**9",
        "[0] * 999 * 999",
        "[0] * 99999",
        "'a' * 99999",
        "99999 * 'a'",
        "[1] - [2]",
        "{[]: 1}",
        "1 / 0",
        "import os",
        "no",
        "",
        "\0",
        "-" * 100_000 + "1",
        "(" * 100_000,
        "+".join(["1"] * 100_000),
    ],
)
def test_anything_else_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CodeRefusedError, match=r"^fairseq would run .* as code, .* Nothing in"):
        plain_value(text)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("value", [True, None, 3, b"1", ["1"], compile("1", "", "eval")])
def test_what_is_no_text_is_evaluated_nowhere(value):
    with pytest.raises(TypeError):
        plain_value(value)


def test_what_fairseq_calls_says_the_same():
    assert utils.eval_bool(True) is False  # as fairseq's, which takes the default
    assert utils.eval_bool("True") is utils.eval_bool(None, default=True) is True
    assert utils.eval_str_list("10,12", int) == utils.eval_str_list([10, 12], int) == [10, 12]
    assert utils.eval_str_dict("{'a': 'b'}") == {"a": "b"}
    for refused in (utils.eval_bool, utils.eval_str_list, utils.eval_str_dict):
        with pytest.raises(CodeRefusedError):
            refused("exit()")


@pytest.fixture(scope="module")
def evaluating():
    """The names of fairseq's modules that call ``eval``, and what else runs code in any."""
    found = {"eval": set()}
    for path in SOURCES:
        name = ".".join(("fairseq", *path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile"):
                found.setdefault(node.id, set()).add(name)
            if isinstance(node, ast.Attribute) and node.attr in ("__builtins__", "builtins"):
                found.setdefault(node.attr, set()).add(name)
    return found


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_every_module_that_evaluates_is_changed(evaluating):
    assert evaluating.keys() == {"eval"}
    assert {"fairseq.utils", "fairseq.models.fconv", "fairseq.criterions.ctc"} < evaluating["eval"]
    for name in evaluating["eval"]:
        assert importlib.import_module(name).eval is guarded_eval, name
    assert eval is builtins.eval


def test_so_are_modules_that_are_imported_later(monkeypatch, tmp_path):
    monkeypatch.setattr(fairseq.data, "codedataset", codedataset)
    monkeypatch.delitem(sys.modules, "fairseq.data.codedataset")
    again = importlib.import_module("fairseq.data.codedataset")
    assert again is not codedataset and again.eval is guarded_eval
    assert again.__spec__.loader.get_source(again.__name__)


def test_so_is_code_in_fairseqs_folder_alone(monkeypatch, tmp_path):
    """As of an example that --user-dir names."""
    for name in ("example", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "model.py").write_text("value = eval('sum([1, 2])')\n")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plain_values, "_folders", lambda: [str(tmp_path / "example")])
    with pytest.raises(CodeRefusedError):
        importlib.import_module("example.model")
    assert importlib.import_module("other.model").value == 3
    for name in ("example", "other", "other.model"):
        monkeypatch.delitem(sys.modules, name)


def test_a_module_that_imports_all_of_one_has_pythons_own(monkeypatch, tmp_path):
    code = "from fairseq.models.fconv import *\none = 1\nvalue = eval('one + 1')\n"
    (tmp_path / "imports_all.py").write_text(
        f"{code}def of_two():\n    two = 2\n    return eval('two'), eval('three', {{'three': 3}})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("imports_all")
    assert module.eval is guarded_eval and (module.value, module.of_two()) == (2, (2, 3))
    monkeypatch.delitem(sys.modules, "imports_all")


def test_it_is_installed_once():
    before = list(sys.meta_path)
    install_plain_values()
    assert sys.meta_path == before


# Hostile checkpoints


CODE = "__import__('pathlib').Path('ran').touch()"


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A checkpoint of a small model, as fairseq stores it today."""
    path = tmp_path_factory.mktemp("state") / "model.pt"
    return load_weights(checkpoints.save(checkpoints.model(), path))


def of_today(state, **options):
    """The state with these options of the model."""
    model = argparse.Namespace(**{**vars(state["cfg"]["model"]), **options})
    return {**state, "cfg": {**state["cfg"], "model": model}}


def of_old(state, **options):
    """The state as fairseq stored it before there was a ``cfg``."""
    known = {**vars(state["cfg"]["model"]), "arch": "transformer", "task": "translation"}
    return {**state, "cfg": None, "args": argparse.Namespace(**{**known, **options})}


def of_wav2vec(state):
    """The state of a model whose options hold those of another one."""
    inside = {"_name": "wav2vec2", "conv_feature_layers": CODE}
    task = {"_name": "audio_pretraining", "normalize": False, "data": "x"}
    inside = {"common": {}, "task": task, "model": inside}
    model = {"_name": "wav2vec_ctc", "w2v_path": "x", "normalize": False, "data": "x"}
    model["w2v_args"] = inside
    return {**state, "cfg": {**state["cfg"], "model": model}}


HOSTILE = {
    "encoder_xformers_att_config": lambda state: of_today(state, encoder_xformers_att_config=CODE),
    "decoder_xformers_att_config": lambda state: of_old(state, decoder_xformers_att_config=CODE),
    "xformers_att_config": lambda state: of_today(
        state, encoder={"embed_dim": 64, "xformers_att_config": CODE}
    ),
    "adaptive_softmax_cutoff": lambda state: of_today(
        state, share_all_embeddings=False, adaptive_softmax_cutoff=CODE
    ),
    "encoder_layers": lambda state: of_old(state, arch="fconv", encoder_layers=CODE),
    "pretrained": lambda state: of_old(state, arch="fconv_self_att", pretrained=CODE),
    "conv_feature_layers": of_wav2vec,
}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Save a state, and load its model as fairseq does for a task."""
    monkeypatch.chdir(tmp_path)

    def save_and_load(state, task):
        torch.save(state, "changed.pt")
        return checkpoint_utils.load_model_ensemble_and_task(["changed.pt"], task=task)

    return save_and_load


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("decoding", [None, "greedy"])
def test_code_in_any_option_is_refused_by_its_name(name, decoding, state, load, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    told = rf"^changed\.pt was refused: fairseq would run its option {name} as code, and it holds "
    with pytest.raises(PluginError, match=told):
        load(HOSTILE[name](state), checkpoints.task_of(decoding))
    assert not Path("ran").exists()


def test_the_test_would_notice_code_that_runs(state, load, monkeypatch):
    monkeypatch.setattr(utils, "eval", eval)
    load(HOSTILE["encoder_xformers_att_config"](state), checkpoints.task_of(None))
    assert Path("ran").exists()


@pytest.mark.parametrize("task", ["multilingual_translation", "translation_multi_simple_epoch"])
def test_code_in_options_of_the_checkpoints_own_task(task, state, load):
    """As the hub loads it, with the task that the checkpoint names."""
    pads = {"left_pad_source": CODE, "left_pad_target": "False"}
    languages = {"lang_pairs": "a-b", "source_lang": "a", "target_lang": "b", "langs": None}
    with pytest.raises(PluginError, match="run its option left_pad_source as code"):
        load(of_old(state, task=task, data="nowhere", **pads, **languages), None)
    assert not Path("ran").exists()


def test_options_that_hold_themselves(state, load):
    changed = of_old(state, encoder_xformers_att_config=CODE)
    changed["args"].again = changed["args"]
    with pytest.raises(PluginError):
        load(changed, checkpoints.task_of(None))
    assert not Path("ran").exists()


def test_a_file_that_a_checkpoint_names_is_read_as_weights_only(state, load, monkeypatch):
    """fairseq's ``xm_transformer`` reads one with ``torch.load``."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(Path("other"), "named.pt")
    task = checkpoints.task_of(None)
    monkeypatch.setattr(task, "build_model", lambda cfg: torch.load("named.pt"))
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        load(state, task)


@pytest.mark.parametrize("decoding", [None, "greedy"])
def test_legal_options_still_load(decoding, state, load):
    options = {"adaptive_input": False, "encoder_xformers_att_config": "None"}
    for changed in (of_today(state, **options), of_old(state, **options)):
        (found,), _, _ = load(changed, checkpoints.task_of(decoding))
        assert found.state_dict().keys() >= state["model"].keys() - {"encoder.version"}


def test_a_convolutional_model_of_repeated_layers(state, load):
    """Whose layers a checkpoint and the command line give as fairseq documents them."""
    layers = {"encoder_layers": "[(8, 3)] * 2 + [(16, 1)]", "decoder_layers": "[(8, 3)] * 2"}
    sizes = dict.fromkeys(["max_source_positions", "max_target_positions"], 64)
    options = argparse.Namespace(arch="fconv", task="translation", dropout=0.1, **layers, **sizes)
    task = tiny.task()
    model = task.build_model(argparse.Namespace(**vars(options), _name="fconv"))
    saved = {**state, "cfg": None, "args": options, "model": model.state_dict()}
    (found,), _, _ = load(saved, task)
    assert len(found.encoder.convolutions) == 3 and len(found.decoder.convolutions) == 2
