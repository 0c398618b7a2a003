"""Loading models, dictionaries and subwords, to decode from Python."""

import os
from argparse import Namespace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_model_ensemble

from ..errors import PluginError
from ..fairseq_compat.dictionaries import check_unsplit
from ..fairseq_compat.mapping import mapped_models
from ..fairseq_compat.tasks import TASK, TASK_OPTIONS, set_up_task
from ..folder import Folder, read_folder
from ..subwords import Subwords, check_pieces, load_subwords, of_target
from .arguments import check_counts
from .naming import named_as_given
from .session import DEFAULT, Session, Translator


def load(
    path: str,
    data: Optional[str] = None,
    *,
    source_lang: Optional[str] = None,
    target_lang: Optional[str] = None,
    decoding: Optional[str] = DEFAULT,
    device: Optional[str] = None,
    subwords: Optional[str] = None,
    target_subwords: Optional[str] = None,
    task: str = TASK,
    task_options: Optional[Mapping[str, Any]] = None,
    **flags: Any,
) -> Translator:
    """Load models and build a translator.

    Args:
        path: a folder with ``specdec.json``, or a checkpoint that fairseq-train wrote; see
            :func:`load_session`.
        data: folder with ``dict.LANG.txt``; by default the folder of the checkpoint.
        source_lang: source language, as in the names of the dictionaries.
        target_lang: target language.
        decoding: see :meth:`Session.translator`.
        device: such as ``"cuda"``; by default the CPU.
        subwords: a SentencePiece model; raw text needs it.
        target_subwords: that of targets, if they have one of their own.
        task, task_options: see :func:`load_session`.
        flags: other options; see :meth:`Session.translator`.

    Raises:
        PluginError: a file is missing or does not fit, or an option is refused.
    """
    for name in flags:
        if name in TASK_OPTIONS:
            given = {name: flags[name]}
            raise PluginError(f"{name} is an option of the task: give it as task_options={given}.")
    session = load_session(
        path, data, source_lang=source_lang, target_lang=target_lang, device=device,
        subwords=subwords, target_subwords=target_subwords, task=task, task_options=task_options,
    )  # fmt: skip
    return session.translator(decoding, **flags)


@named_as_given
def load_session(
    path: str,
    data: Optional[str] = None,
    *,
    source_lang: Optional[str] = None,
    target_lang: Optional[str] = None,
    device: Optional[str] = None,
    subwords: Optional[str] = None,
    target_subwords: Optional[str] = None,
    task: str = TASK,
    task_options: Optional[Mapping[str, Any]] = None,
    prefix_size: int = 0,
) -> Session:
    """Load dictionaries and models.

    Args:
        path: a folder with ``specdec.json``, which has all that follows but ``device`` and
            ``prefix_size``; or a checkpoint that fairseq-train wrote, and those of an ensemble are
            joined by ``:``.
        data: folder with ``dict.LANG.txt``, and binarised data if a split is decoded; by default
            the folder of the checkpoint.
        source_lang: source language, as in the names of the dictionaries; by default fairseq reads
            both from the names of the data. Speech has none.
        target_lang: target language.
        device: such as ``"cuda"``; by default the CPU.
        subwords: a SentencePiece model; raw text needs it.
        target_subwords: that of targets, if they have one of their own.
        task: as ``--task``, such as ``"specdec_translation_multi_simple_epoch"``.
        task_options: the task's own, such as ``{"lang_pairs": "en-es", "decoder_langtok": True}``.
        prefix_size: as for :class:`Session`.

    Raises:
        PluginError: a file or the device is missing, or a file is not what it should be.
    """
    check_device(device)
    check_counts(0, prefix_size=prefix_size)
    if not isinstance(path, (str, os.PathLike)):
        raise PluginError(f"path {path!r}: name a folder, or the checkpoint of a model.")
    if not isinstance(data, (str, os.PathLike, type(None))):
        raise PluginError(f"data {data!r}: name the folder of the dictionaries.")
    if not isinstance(task_options, (Mapping, type(None))):
        raise PluginError(
            f"task_options={task_options!r}: give a dictionary, such as {{'lang_pairs': 'en-es'}}."
        )
    path = os.fspath(path)
    if os.path.isdir(path):
        given = [data, source_lang, target_lang, subwords, target_subwords, task_options]
        if task != TASK or any(each is not None for each in given):
            raise PluginError(
                f"{path} is a folder, whose specdec.json tells the data, languages, subwords and "
                "task: leave them out, or name its checkpoint."
            )
        return open_folder(read_folder(path), device, prefix_size)
    check_unsplit(path)
    for each in utils.split_paths(path):
        if "://" not in each and not os.path.exists(each):
            raise PluginError(f"There is no folder or checkpoint {each}. Check the path.")
    folder = os.path.dirname(utils.split_paths(path)[0]) or "." if data is None else os.fspath(data)
    described: Dict[str, Any] = {"kind": "sentencepiece", "file": subwords}
    if target_subwords is not None:
        described["target_file"] = target_subwords
        if subwords is None:
            raise PluginError(
                f"target_subwords={target_subwords} splits targets alone: give subwords for "
                "sources, too."
            )
    pieces = None if subwords is None else load_subwords(described, source_lang, target_lang)
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    built = set_up_task(task, folder, {**languages, **(task_options or {})})
    if pieces is not None:
        _check_subwords(pieces, described, built)
    return Session(built, load_models(path, built, device), pieces, prefix_size)


@named_as_given
def load_models(
    path: Union[str, Sequence[str]], task: Any, device: Optional[str] = None
) -> List[Any]:
    """Load models for decoding.

    Args:
        path: a checkpoint, and those of an ensemble are joined by ``:``; or a list of them.
        device: as for :func:`load_session`.
        task: fairseq's task, which has the dictionaries.

    Raises:
        PluginError: a file or the device is missing, or a file is not what it should be.
    """
    check_device(device)
    paths = utils.split_paths(path) if isinstance(path, str) else list(path)
    with mapped_models():
        models, _ = load_model_ensemble(paths, task=task)
    for model in models:
        model.float().eval()
        model.prepare_for_inference_(Namespace(generation=Namespace(beam=1, no_beamable_mm=True)))
        if device is not None:
            model.to(torch.device(device))
    return list(models)


def check_device(device: Optional[str]) -> None:
    """Refuse a device that does not exist, before anything is loaded for it.

    Args:
        device: such as ``"cuda"``; None: the CPU.

    Raises:
        PluginError: there is no such device, or not on this machine.
    """
    if device is None:
        return
    try:
        found: Optional[torch.device] = torch.device(device)
    except (RuntimeError, TypeError):  # which list twenty
        found = None
    if found is None or found.type == "meta":  # whose tensors have no values
        raise PluginError(
            f"There is no device {device}. Give cpu, cuda, or cuda:1 for the second GPU."
        )
    try:
        torch.empty(0, device=found)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise PluginError(
            f"The device {device} cannot be used: PyTorch {torch.__version__} finds "
            f"{torch.cuda.device_count():,} GPUs here. Install PyTorch for this machine's GPU, or "
            "leave the device out."
        ) from error


@named_as_given
def open_folder(folder: Folder, device: Optional[str] = None, prefix_size: int = 0) -> Session:
    """Load what a folder's ``specdec.json`` describes; see :func:`load_session`."""
    check_device(device)
    languages = {"source_lang": folder.source_lang, "target_lang": folder.target_lang}
    task = set_up_task(folder.task, folder.data, {**languages, **folder.task_options})
    described, pieces = folder.described_subwords, None
    if described is not None:
        pieces = load_subwords(described, *languages.values())
        _check_subwords(pieces, described, task)
    models = load_models(list(map(folder.at, folder.model)), task, device)
    return Session(task, models, pieces, prefix_size, folder)


def _check_subwords(subwords: Subwords, described: Mapping[str, Any], task: Any) -> None:
    """Refuse subwords of another project; those of speech are the target's."""
    source = task.source_dictionary or task.target_dictionary
    check_pieces(subwords, described.get("file", ""), _symbols_of(source))
    if "target_file" in described:
        symbols = _symbols_of(task.target_dictionary)
        check_pieces(of_target(subwords), described["target_file"], symbols, "target")


def _symbols_of(dictionary: Any) -> List[str]:
    """All symbols, but for the dictionary's own."""
    return list(dictionary.symbols[dictionary.nspecial :])
