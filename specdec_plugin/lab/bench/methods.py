"""What is timed: fairseq's own search and the plugin's methods, over one loaded verifier."""

import copy
from argparse import Namespace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.tasks.translation import TranslationTask

from ...decoding.statistics import Statistics
from ...methods.registry import names, readers
from ...tasks.parallel_decoding import SpecdecTranslationTask, translation_config

#: fairseq's generation flags of each baseline.
BASELINES = {"fairseq beam 5": 5, "fairseq beam 1": 1}
#: The plugin's methods: all of ``--decoding``; ``specdec++`` is ``specdec`` with β and τ; with
#: ``self``, a copy of the verifier drafts, though a drafter is given.
METHODS = {choice: choice for choice in names()}
METHODS.update(dict.fromkeys(["specdec++", "specdec self", "specdec++ self"], "specdec"))
#: Behind a method's name: the same with one more flag, to be timed beside that without. Drafts may
#: be clustered of what is certified, too; otherwise one of them.
CLUSTERED, CERTIFIED, CLUSTERED_DRAFTS = " clustered", " certified", " clustered drafts"
VARIANTS = {
    CLUSTERED: "vocab_clusters",
    CERTIFIED: "certified_projection",
    CLUSTERED_DRAFTS: "drafter_vocab_clusters",
}


def _variants(suffix: str) -> Dict[str, str]:
    """Those methods with a suffix that can be had with it."""
    return {
        name + suffix: choice
        for name, choice in METHODS.items()
        if choice in readers()[VARIANTS[suffix]]
        and not name.endswith(CLUSTERED)
        # Certified are those who accept the best token alone.
        and not (suffix == CERTIFIED and name.startswith("specdec++"))
    }


for _suffix in VARIANTS:
    METHODS.update(_variants(_suffix))

#: Flags that make ``specdec++`` of ``specdec``.
RELAXED = ("top_beta", "tolerance")
#: Fields of :class:`DecodingConfig` that a method's name decides.
OF_THE_NAME = ("decoding", "certified_projection")
#: What names the proposal heads of ``blockwise``, so that a drafter may be timed beside them.
HEADS = "heads_path"
#: Flags about a trained drafter.
_OF_A_DRAFTER = ("drafter_path", "block_size", "draft_confidence", "drafter_dtype")
#: Those of them that input-guided reads only where such a drafter is its fallback.
_OF_A_FALLBACK = ("drafter_path", "draft_confidence", "drafter_dtype", "drafter_vocab_clusters")


class Method(NamedTuple):
    """One way to decode.

    Attributes:
        name: as in the report.
        generator: has fairseq's ``generate``.
        trace: iterations and acceptance; None for fairseq's own search.
        partial: whether it scores a part of the vocabulary only, somewhere, which states decide.
    """

    name: str
    generator: Any
    statistics: Optional[Statistics]
    partial: bool = False


class Session(NamedTuple):
    """A task with its data and the verifiers, loaded once."""

    task: SpecdecTranslationTask
    models: Sequence[Any]

    @property
    def device(self) -> torch.device:
        """Where the verifiers are."""
        device: torch.device = next(self.models[0].parameters()).device
        return device


def open_session(
    data: str, source_lang: str, target_lang: str, path: str, device: Optional[str] = None
) -> Session:
    """Load dictionaries and verifiers.

    Args:
        data: folder with ``dict.LANG.txt`` (and binarised data, if a subset is used).
        source_lang: source language.
        target_lang: target language.
        path: verifier checkpoint, or several joined by ``:``.
        device: where to decode (default: the CPU).
    """
    cfg = translation_config()(data=data, source_lang=source_lang, target_lang=target_lang)
    # Values that fairseq's command lines would fill in from their other groups.
    cfg.train_subset, cfg.dataset_impl, cfg.required_seq_len_multiple = "train", None, 1
    task = SpecdecTranslationTask.setup_task(cfg)
    models, _ = load_model_ensemble(path.split(":"), task=task)
    for model in models:
        model.float().eval()
        model.prepare_for_inference_(Namespace(generation=Namespace(beam=1, no_beamable_mm=True)))
        if device is not None:
            model.to(torch.device(device))
    return Session(task, models)


def build_methods(
    session: Session, names: Sequence[str], flags: Dict[str, Any], generation: Dict[str, Any]
) -> List[Method]:
    """Build generators that share the session's verifiers.

    Args:
        session: what is loaded.
        names: keys of :data:`BASELINES` and :data:`METHODS`.
        flags: fields of :class:`DecodingConfig`, and :data:`HEADS`; ``top_beta`` and
            ``tolerance`` apply to ``specdec++`` alone, the former also to ``blockwise`` with
            ``acceptance`` ``top-k``, and ``drafter_path`` not to ``blockwise``.
        generation: fairseq's generation options, the same for all.
    """
    return [build_method(session, name, flags, generation) for name in names]


def build_method(
    session: Session,
    name: str,
    flags: Dict[str, Any],
    generation: Dict[str, Any],
    label: Optional[str] = None,
) -> Method:
    """Build one; arguments as for :func:`build_methods`, ``label`` as in the report."""
    task = copy.copy(session.task)
    if name in BASELINES:
        args = Namespace(beam=BASELINES[name], **generation)
        plain = TranslationTask(task.cfg, task.src_dict, task.tgt_dict)
        return Method(label or name, plain.build_generator(session.models, args), None)
    task.cfg = copy.copy(task.cfg)
    task.cfg.decoding = METHODS[name]
    for flag, value in flags.items():
        if reads(name, flag, flags):
            setattr(task.cfg, flag, value)
    task.cfg.certified_projection = reads(name, "certified_projection")
    clustered = {task.cfg.vocab_clusters, task.cfg.drafter_vocab_clusters} != {None}
    if METHODS[name] == "blockwise":
        task.cfg.drafter_path = flags.get(HEADS)
    generator = task.build_generator(session.models, Namespace(beam=1, **generation))
    partial = clustered or task.cfg.certified_projection
    return Method(label or name, generator, generator.statistics, partial)


def reads(name: str, flag: str, flags: Optional[Mapping[str, Any]] = None) -> bool:
    """Whether a method's output or speed depends on a field of :class:`DecodingConfig`.

    Args:
        name: a key of :data:`BASELINES` or :data:`METHODS`.
        flag: the field.
        flags: all fields, if some of them decide it.
    """
    given = {} if flags is None else flags
    if name not in METHODS or flag == HEADS:
        return False
    for suffix, of_it in reversed(VARIANTS.items()):
        if flag == of_it and not name.endswith(suffix):
            return False
        name = name.removesuffix(suffix)
    if name == "blockwise" and flag in ("top_beta", "drafter_path"):
        return flag == "top_beta" and str(given.get("acceptance")) == "top-k"
    if flag in RELAXED and not name.startswith("specdec++"):
        return False
    if flag in _OF_A_DRAFTER and name.endswith(" self"):
        return False
    if METHODS[name] == "input-guided" and flag in _OF_A_FALLBACK:
        return str(given.get("fallback")) == "nat"
    window = str(given.get("jacobi_window", "adaptive"))
    if flag == "draft_confidence" and METHODS[name].endswith("jacobi") and window != "adaptive":
        return False  # a trained drafter's, beside which it is timed
    return METHODS[name] in readers()[flag]
