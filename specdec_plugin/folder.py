"""``specdec.json``: what the files of a folder are, so that its name alone loads a model."""

import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional

from .errors import PluginError

#: The file in the folder.
NAME = "specdec.json"
#: Of the file; a later version of the plugin may read others too.
FORMAT = 1
#: Options of decoding that the folder's own files are given to, by the file's key.
CLUSTERS = {"verifier": "vocab_clusters", "drafter": "drafter_vocab_clusters"}
_SUBWORDS = ("kind", "file", "target_file", "moses")
#: Those that name files.
_OF_SUBWORDS = ("file", "target_file")


@dataclass(frozen=True)
class Folder:
    """A folder with a model and what decoding needs beside it.

    The files are relative to the folder, and inside it.

    Attributes:
        path: of the folder.
        model: the checkpoint, or those of an ensemble.
        dictionaries: ``dict.LANG.txt``, all in one folder.
        source_lang: the source language; None where the task needs none.
        target_lang: likewise.
        subwords: how raw text is split: ``kind``, ``file``, ``target_file`` and ``moses``; None:
            text is pieces.
        drafter: a trained drafter, for methods that need one; None: there is none.
        heads: a model with proposal heads, likewise.
        clusters: files of clusters, by ``verifier`` and ``drafter``.
        task: as ``--task``.
        task_options: of the task, by name.
        decoding: as ``--decoding``; None: fairseq's own search.
        options: of decoding and of the search, by name.
        names: of the languages, for people, such as ``{"en": "English"}``.
    """

    path: str
    model: List[str]
    dictionaries: List[str]
    source_lang: Optional[str] = None
    target_lang: Optional[str] = None
    subwords: Optional[Dict[str, Any]] = None
    drafter: Optional[str] = None
    heads: Optional[str] = None
    clusters: Dict[str, str] = field(default_factory=dict)
    task: str = "specdec_translation"
    task_options: Dict[str, Any] = field(default_factory=dict)
    decoding: Optional[str] = "auto"
    options: Dict[str, Any] = field(default_factory=dict)
    names: Dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> List[str]:
        """All files that it names."""
        split = [(self.subwords or {}).get(key) for key in _OF_SUBWORDS]
        single = [each for each in (self.drafter, self.heads, *split) if each is not None]
        named = [*self.model, *self.dictionaries, *single, *self.clusters.values()]
        drafter = self.options.get("drafter_path")  # which may be one of them
        return named if drafter is None or drafter in named else [*named, drafter]

    def at(self, file: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, file)

    @property
    def data(self) -> str:
        """The folder of the dictionaries."""
        return os.path.dirname(self.at(self.dictionaries[0]))

    @property
    def described_subwords(self) -> Optional[Dict[str, Any]]:
        """As :func:`.subwords.load_subwords` takes them."""
        if self.subwords is None:
            return None
        return {
            key: self.at(value) if key in _OF_SUBWORDS else value
            for key, value in self.subwords.items()
        }

    def flags(self, decoding: Optional[str]) -> Dict[str, Any]:
        """Options that the folder gives a method; some methods may not read all of them.

        A trained drafter is not given to ``auto``, which drafts with the model itself, unless
        ``options`` names it.
        """
        own = {option: self.at(self.clusters[key]) for key, option in CLUSTERS.items()
               if key in self.clusters}  # fmt: skip
        drafters = {"specdec": self.drafter, "nat": self.drafter, "blockwise": self.heads}
        drafter = drafters.get(decoding or "")
        if drafter is not None:
            own["drafter_path"] = self.at(drafter)
        given = dict(self.options)
        if given.get("drafter_path") is not None:
            given["drafter_path"] = self.at(given["drafter_path"])
        return {**own, **given}

    def check_raw_text(self) -> None:
        """Refuse a folder that takes no raw text; PluginError names the cure."""
        if self.subwords is None:
            raise PluginError(
                f"{self.path} does not tell how raw text is split. Write it again by specdec-pack "
                "with --sentencepiece, --subword-nmt or --moses."
            )

    def check(self) -> None:
        """Refuse files that are missing or lie elsewhere; PluginError names the cure."""
        for file in self.files:
            if os.path.isabs(file) or ".." in file.split("/"):
                raise PluginError(
                    f"{self.at(NAME)} names {file}, which is not inside the folder. Write the "
                    "folder with specdec-pack, which copies files into it."
                )
            if not os.path.isfile(self.at(file)):
                raise PluginError(
                    f"{self.at(NAME)} names '{file}', and the folder has no such file. Copy it "
                    "there, or write the folder again with specdec-pack."
                )
        if len({os.path.dirname(each) for each in self.dictionaries}) != 1:
            raise PluginError(
                f"{self.at(NAME)} names dictionaries in several folders, or none. Keep all of "
                "them in one."
            )

    def text(self) -> str:
        """The content of ``specdec.json``; what has its default is left out."""
        languages = {"source": self.source_lang, "target": self.target_lang, "names": self.names}
        content = {
            "format": FORMAT,
            "model": self.model,
            "languages": {key: value for key, value in languages.items() if value},
            "dictionaries": self.dictionaries,
            "subwords": self.subwords,
            "drafter": self.drafter,
            "heads": self.heads,
            "clusters": self.clusters,
            "task": self.task,
            "task_options": self.task_options,
            "options": self.options,
        }
        kept = {key: value for key, value in content.items() if value}
        return json.dumps({**kept, "decoding": self.decoding}, indent=2, ensure_ascii=False) + "\n"


def read_folder(path: str) -> Folder:
    """Read the ``specdec.json`` of a folder.

    Raises:
        PluginError: it is missing, cannot be read or is damaged, or names files that are missing.
    """
    name = os.path.join(path, NAME)
    try:
        with open(name, encoding="utf-8-sig") as file:  # Editors of Windows may mark it.
            content = json.load(file)
    except FileNotFoundError:
        if not os.path.exists(path):
            raise PluginError(f"There is no folder {path}. Check the path.") from None
        raise PluginError(
            f"The folder {path} has no {NAME}. Write it with specdec-pack, or load its checkpoint "
            "from Python."
        ) from None
    except NotADirectoryError:
        raise PluginError(
            f"{path} is a file. Name a folder with a {NAME}, which specdec-pack writes."
        ) from None
    except OSError as error:
        raise PluginError(
            f"{name} cannot be read ({error.strerror}). Check the permissions of the file and its "
            "folder."
        ) from error
    except (ValueError, RecursionError) as error:
        raise PluginError(f"{name} is not JSON ({error}). Write it with specdec-pack.") from error
    folder = _folder(path, name, content)
    folder.check()
    return folder


#: The types of the keys, and of the values of lists and objects; None: of any type.
_LISTS = ("model", "dictionaries")
_TEXTS = ("drafter", "heads", "task", "decoding")
_OBJECTS: Mapping[str, Optional[type]] = {
    "languages": None, "subwords": None, "clusters": str, "task_options": None, "options": None,
}  # fmt: skip


def _folder(path: str, name: str, content: Any) -> Folder:
    """The folder that a ``specdec.json`` describes."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PluginError(
            f'{name} has no "format": {FORMAT}. Another version of the plugin wrote it: write it '
            "again with specdec-pack."
        )
    unknown = {*content} - {"format", *_LISTS, *_TEXTS, *_OBJECTS}
    if unknown:
        raise _damaged(name, min(unknown), "is unknown")
    for key in _LISTS:
        value = content.get(key)
        if not isinstance(value, list) or not value or not _are(value, str):
            raise _damaged(name, key, "is not a list of files")
    for key in _TEXTS:
        if not isinstance(content.get(key), (str, type(None))):
            raise _damaged(name, key, "is not a text")
    for key, kind in _OBJECTS.items():
        value = content.get(key, {})
        if not isinstance(value, dict) or (kind and not _are(value.values(), kind)):
            raise _damaged(name, key, "is not an object with the right values")
    _check_parts(name, content)
    languages = content.get("languages", {})
    given = {key: content[key] for key in (*_LISTS, *_TEXTS) if key in content}
    given.update({key: content[key] for key in _OBJECTS if key in content and key != "languages"})
    return Folder(
        path,
        source_lang=languages.get("source"),
        target_lang=languages.get("target"),
        names=languages.get("names", {}),
        **given,
    )


def _check_parts(name: str, content: Mapping[str, Any]) -> None:
    """Refuse unknown keys inside of objects, and values of another type."""
    languages, subwords = content.get("languages", {}), content.get("subwords")
    codes = [languages.get(key) for key in ("source", "target")]
    names = languages.get("names", {})
    known = {*languages} <= {"source", "target", "names"} and isinstance(names, dict)
    if not known or not _are(codes, (str, type(None))) or not _are(names.values(), str):
        raise _damaged(name, "languages", "needs source, target and names")
    if not {*content.get("clusters", {})} <= {*CLUSTERS}:
        raise _damaged(name, "clusters", f"has other keys than {' and '.join(CLUSTERS)}")
    if not isinstance(content.get("options", {}).get("drafter_path"), (str, type(None))):
        raise _damaged(name, "options", "has a drafter_path that is not a text")
    if subwords is not None and (
        not {*subwords} <= {*_SUBWORDS}
        or not isinstance(subwords.get("kind"), str)
        or subwords["kind"] not in FILES_OF
        or isinstance(subwords.get("file"), str) != FILES_OF[subwords["kind"]]
        or not isinstance(subwords.get("target_file", ""), str)
        or ("target_file" in subwords and subwords["kind"] != "sentencepiece")
    ):
        raise _damaged(
            name, "subwords", f"needs a kind, one of {', '.join(FILES_OF)}, and its file"
        )


#: Kinds of subwords, and whether they need a file.
FILES_OF = {"sentencepiece": True, "subword-nmt": True, "moses": False}


def _are(values: Any, kind: Any) -> bool:
    return all(isinstance(each, kind) for each in values)


def _damaged(name: str, key: str, fault: str) -> PluginError:
    return PluginError(f"{name}: {key} {fault}. Write it with specdec-pack, or see docs/python.md.")
