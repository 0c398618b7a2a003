"""Decode from Python: :func:`load` gives a translator, :func:`load_session` several of them.

Example::

    import specdec_plugin

    folder = "checkpoints/pydocs-en-es"
    translator = specdec_plugin.load(
        f"{folder}/verifier.pt",
        source_lang="en",
        target_lang="es",
        decoding="specdec",
        subwords=f"{folder}/spm.model",
    )
    (hypothesis,) = translator.translate(["The file is closed."])
    print(hypothesis.text, translator.statistics.accepted_tokens)

One session holds the models once, for as many methods as are compared::

    session = specdec_plugin.load_session(f"{folder}/verifier.pt", source_lang="en", ...)
    greedy = session.translator("greedy")
    drafted = session.translator("specdec", drafter_path=f"{folder}/drafter.pt")
"""

import os
from argparse import Namespace
from dataclasses import Field, fields
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Type

import sentencepiece
import torch
from fairseq import utils
from fairseq.checkpoint_utils import load_model_ensemble
from torch import Tensor

from .decoding.statistics import Statistics
from .errors import PluginError
from .fairseq_compat.mapping import mapped_models
from .fairseq_compat.options import task_options, with_own_options
from .fairseq_compat.tasks import TASK, set_up_task
from .methods.options import choices_of
from .methods.registry import Method, decoding_config, method_of

#: fairseq's options that a search reads.
SEARCH_OPTIONS = (
    "beam", "max_len_a", "max_len_b", "min_len", "lenpen", "unkpen", "unnormalized", "temperature",
    "no_repeat_ngram_size", "match_source_len", "sampling", "sampling_topk", "sampling_topp",
    "diverse_beam_groups", "diverse_beam_strength", "diversity_rate", "retain_iter_history",
    "seed",
)  # fmt: skip


class Hypothesis(NamedTuple):
    """The best translation of one sentence.

    Attributes:
        tokens: (length,) indices in the target dictionary, the end of the sentence included.
        score: as fairseq gives it: the mean of ``positional_scores``, unless ``lenpen`` or
            ``unnormalized`` change that.
        positional_scores: (length,) log-probability of each token.
        iterations: passes of the model that verified drafts; None for fairseq's own search.
        pieces: subword pieces with spaces between them.
        text: ``pieces`` joined by the session's subword model; without one, the same as ``pieces``.
    """

    tokens: Tensor
    score: float
    positional_scores: Tensor
    iterations: Optional[int]
    pieces: str
    text: str


class Session:
    """A task with its dictionaries, and models, loaded once.

    Args:
        task: fairseq's task.
        models: the models in ``--path``, an ensemble if there are several.
        subwords: splits raw text into pieces and joins them again; None where there is no raw text.
        prefix_size: so many tokens of the references begin the hypotheses, such as the symbol of
            the language.
    """

    def __init__(
        self, task: Any, models: Sequence[Any], subwords: Any = None, prefix_size: int = 0
    ) -> None:
        self.task = task
        self.models = models
        self.subwords = subwords
        self.prefix_size = prefix_size

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        return next(self.models[0].parameters()).device

    def translator(self, decoding: Optional[str] = "greedy", **flags: Any) -> "Translator":
        """Build a translator that shares the session's models.

        Args:
            decoding: as ``--decoding``; None for fairseq's own beam search.
            flags: the other decoding options, and :data:`SEARCH_OPTIONS`, such as
                ``block_size=8`` or ``max_len_b=100``. ``beam`` is 1 for greedy methods, and 5 for
                ``beam`` and without ``decoding``.

        Raises:
            PluginError: an option does not exist, or has no effect, or contradicts another.
        """
        task, config = with_own_options(self.task), decoding_config(self.task)
        options = task_options(task)
        known = {item.name: item for item in fields(config) if item.name != "_name"}
        searching = {name: value for name, value in flags.items() if name not in known}
        for name, value in {"decoding": decoding, **flags}.items():
            if name in known:
                _check_choice(known[name], value)
                setattr(options, name, value)
        unknown = {*searching} - {*SEARCH_OPTIONS}
        if unknown:
            raise PluginError(
                f"There is no option {min(unknown)}. `specdec-generate --help` lists "
                f"the decoding options; those of fairseq are {', '.join(SEARCH_OPTIONS)}."
            )
        method = None if decoding is None else method_of(decoding_config(task))
        beam = None if method is None else method.default_beam
        shared = {"beam": beam or 5, "prefix_size": self.prefix_size, "eos_token": None}
        args = Namespace(**{**shared, **searching})
        generator = task.build_generator(self.models, args)
        return Translator(self, generator, method)

    def dataset(self, lines: Sequence[str]) -> Any:
        """fairseq's data set of lines of subword pieces, with spaces between the pieces.

        For a model of speech, the lines are paths of sounds.
        """
        _check_lines(lines)
        tokens, lengths = self.task.get_interactive_tokens_and_lengths(lines, str)
        dataset = self.task.build_dataset_for_inference(tokens, lengths)
        dataset.lines_before = 0  # warnings count the lines of each call, not of all calls
        return dataset

    def split(self, subset: str) -> Any:
        """fairseq's data set of a binarised split.

        Raises:
            PluginError: the data folder has no such split.
        """
        try:
            self.task.load_dataset(subset)
        except (FileNotFoundError, KeyError) as error:
            raise PluginError(
                f"The data have no split {subset} ({error}). Name a folder that fairseq-preprocess "
                "wrote, and a split of it."
            ) from error
        return self.task.dataset(subset)

    def iterator(
        self,
        dataset: Any,
        batch_size: Optional[int],
        max_tokens: Optional[int] = None,
        seed: int = 1,
    ) -> Any:
        """fairseq's iterator over batches: similar lengths together, each sentence once.

        Args:
            dataset: fairseq's.
            batch_size: the most sentences of a batch; None: any number.
            max_tokens: the most tokens of its sources, or targets, padding included; likewise.
            seed: of the order of batches, where they are shuffled.
        """
        limits = [self.task.max_positions(), *(model.max_positions() for model in self.models)]
        return self.task.get_batch_iterator(
            dataset,
            max_tokens,
            batch_size,
            utils.resolve_max_positions(*limits),
            seed=seed,
            disable_iterator_cache=True,  # else the first batch size is kept
        )

    def batches(self, dataset: Any, batch_size: int) -> List[Any]:
        """fairseq's batches of a data set, in memory."""
        return list(self.iterator(dataset, batch_size).next_epoch_itr(shuffle=False))

    def pieces(self, lines: Sequence[str]) -> List[str]:
        """Raw lines as subword pieces with spaces between them.

        Raises:
            PluginError: the session has no subword model.
        """
        _check_lines(lines)
        if self.subwords is None:
            raise PluginError(
                "Raw text needs a subword model: give subwords='spm.model' when loading, or "
                "translate lines of subword pieces with translate_pieces."
            )
        return [" ".join(self.subwords.encode(line, out_type=str)) for line in lines]

    def printed(self, generator: Any, tokens: Any, post_process: Optional[str] = None) -> str:
        """What fairseq's programs print: neither ends of sentences nor symbols of languages.

        Args:
            generator: whose hypothesis it is; it has the symbols that are left out.
            tokens: (length,) of a hypothesis.
            post_process: of subwords, as ``--post-process``.
        """
        ignored = getattr(generator, "symbols_to_strip_from_output", ())
        dictionary = self.task.target_dictionary
        return str(dictionary.string(tokens, post_process, extra_symbols_to_ignore=ignored))

    def hypothesis(self, found: Dict[str, Any], generator: Any = None) -> Hypothesis:
        """One of fairseq's hypotheses, with its text; see :meth:`printed`."""
        pieces = self.printed(generator, found["tokens"])
        text = pieces if self.subwords is None else self.subwords.decode(pieces.split())
        scores = found["positional_scores"].cpu()
        tokens, score = found["tokens"].cpu(), float(found["score"])
        return Hypothesis(tokens, score, scores, found.get("steps"), pieces, text)

    def decode(
        self, generator: Any, batch: Any, prefix: Optional[Tensor] = None
    ) -> List[List[Dict[str, Any]]]:
        """fairseq's hypotheses of a batch, when the device has finished it.

        Args:
            generator: has fairseq's ``generate``.
            batch: fairseq's, on the CPU.
            prefix: (rows, width) tokens with which hypotheses begin, padded on the right.

        Returns:
            for each sentence its hypotheses, the best first.
        """
        device = self.device
        batch = utils.move_to_cuda(batch, device) if device.type == "cuda" else batch
        # fairseq gives a BART model the beams of the search that was built last.
        for model in self.models:
            if hasattr(model, "set_beam_size"):
                model.set_beam_size(getattr(generator, "beam_size", 1))
        prefix = self._prefix(batch) if prefix is None else prefix.to(device)
        found: Any = self.task.inference_step(generator, self.models, batch, prefix)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return list(found)

    def _prefix(self, batch: Any) -> Optional[Tensor]:
        """(rows, prefix_size) of the references; None for nothing."""
        if self.prefix_size == 0:
            return None
        if batch.get("target") is None:
            raise PluginError(
                f"prefix_size {self.prefix_size} takes the first tokens of references, which are "
                "missing here: decode a split that has them."
            )
        return torch.as_tensor(batch["target"][:, : self.prefix_size])


class Translator:
    """Decodes with one method.

    Args:
        session: the models.
        generator: has fairseq's ``generate``.
        method: what ``--decoding`` means; None for fairseq's own search.

    Attributes:
        statistics: counters over all batches since the last ``reset()``; None for fairseq's own
            search.
    """

    def __init__(
        self, session: Session, generator: Any, method: Optional[Type[Method]] = None
    ) -> None:
        self.session = session
        self.generator = generator
        self.method = method
        self.statistics: Optional[Statistics] = getattr(generator, "statistics", None)

    def decode(self, batch: Any, prefix: Optional[Tensor] = None) -> List[List[Dict[str, Any]]]:
        """fairseq's hypotheses of one of its batches; see :meth:`Session.decode`."""
        return self.session.decode(self.generator, batch, prefix)

    def translate(self, lines: Sequence[str], batch_size: int = 1) -> List[Hypothesis]:
        """Translate raw text.

        Args:
            lines: a sentence each.
            batch_size: sentences that are decoded together. On a CPU most methods draft only for
                single sentences.

        Returns:
            a hypothesis for every line, in the order of the lines.

        Raises:
            PluginError: the session has no subword model.
        """
        return self.translate_pieces(self.session.pieces(lines), batch_size)

    def translate_pieces(self, lines: Sequence[str], batch_size: int = 1) -> List[Hypothesis]:
        """Translate lines of subword pieces, with spaces between the pieces.

        Arguments and result are those of :meth:`translate`. A line that is longer than the models
        take is cut, with a warning.
        """
        if batch_size < 1:
            raise PluginError(f"batch_size {batch_size}: give at least 1.")
        if len(lines) == 0:  # of which fairseq makes no batches
            return []
        found: Dict[int, Hypothesis] = {}
        for batch in self.session.batches(self.session.dataset(lines), batch_size):
            for number, hypotheses in zip(batch["id"].tolist(), self.decode(batch)):
                found[number] = self.session.hypothesis(hypotheses[0], self.generator)
        return [found[number] for number in range(len(lines))]


def load(
    path: str,
    data: Optional[str] = None,
    *,
    source_lang: Optional[str] = None,
    target_lang: Optional[str] = None,
    decoding: Optional[str] = "greedy",
    device: Optional[str] = None,
    subwords: Optional[str] = None,
    task: str = TASK,
    task_options: Optional[Mapping[str, Any]] = None,
    **flags: Any,
) -> Translator:
    """Load models and build a translator.

    Args:
        path: checkpoint that fairseq-train wrote; see :func:`load_session`.
        data: folder with ``dict.LANG.txt``; by default the folder of the checkpoint.
        source_lang: source language, as in the names of the dictionaries.
        target_lang: target language.
        decoding: as ``--decoding``; None for fairseq's own beam search.
        device: such as ``"cuda"``; by default the CPU.
        subwords: a SentencePiece model; raw text needs it.
        task, task_options: see :func:`load_session`.
        flags: other options; see :meth:`Session.translator`.

    Raises:
        PluginError: a file is missing or does not fit, or an option is refused.
    """
    session = load_session(
        path, data, source_lang=source_lang, target_lang=target_lang, device=device,
        subwords=subwords, task=task, task_options=task_options,
    )  # fmt: skip
    return session.translator(decoding, **flags)


def load_session(
    path: str,
    data: Optional[str] = None,
    *,
    source_lang: Optional[str] = None,
    target_lang: Optional[str] = None,
    device: Optional[str] = None,
    subwords: Optional[str] = None,
    task: str = TASK,
    task_options: Optional[Mapping[str, Any]] = None,
    prefix_size: int = 0,
) -> Session:
    """Load dictionaries and models.

    Args:
        path: checkpoint that fairseq-train wrote; those of an ensemble are joined by ``:``.
        data: folder with ``dict.LANG.txt``, and binarised data if a split is decoded; by default
            the folder of the checkpoint.
        source_lang: source language, as in the names of the dictionaries; by default fairseq reads
            both from the names of the data. Speech has none.
        target_lang: target language.
        device: such as ``"cuda"``; by default the CPU.
        subwords: a SentencePiece model; raw text needs it.
        task: as ``--task``, such as ``"specdec_translation_multi_simple_epoch"``.
        task_options: the task's own, such as ``{"lang_pairs": "en-es", "decoder_langtok": True}``.
        prefix_size: as for :class:`Session`.

    Raises:
        PluginError: a file is missing or is not what it should be.
    """
    folder = os.path.dirname(utils.split_paths(path)[0]) or "." if data is None else data
    pieces = None if subwords is None else _load_subwords(subwords)
    languages = {"source_lang": source_lang, "target_lang": target_lang}
    built = set_up_task(task, folder, {**languages, **(task_options or {})})
    return Session(built, load_models(path, built, device), pieces, prefix_size)


def load_models(path: str, task: Any, device: Optional[str] = None) -> List[Any]:
    """Load models for decoding.

    Args:
        path, device: as for :func:`load_session`.
        task: fairseq's task, which has the dictionaries.

    Raises:
        PluginError: a file is missing or is not what it should be.
    """
    with mapped_models():
        models, _ = load_model_ensemble(utils.split_paths(path), task=task)
    for model in models:
        model.float().eval()
        model.prepare_for_inference_(Namespace(generation=Namespace(beam=1, no_beamable_mm=True)))
        if device is not None:
            model.to(torch.device(device))
    return list(models)


def _load_subwords(path: str) -> Any:
    if not os.path.isfile(path):
        raise PluginError(f"The SentencePiece model {path} is not a file. Check the path.")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=path)
    except (OSError, RuntimeError) as error:
        raise PluginError(
            f"{path} is not a SentencePiece model. Give the one that the data was split with."
        ) from error


def _check_lines(lines: Any) -> None:
    if isinstance(lines, str):
        raise PluginError("Give a list of lines, such as ['The file is closed.'], not a text.")


def _check_choice(option: "Field[Any]", value: Any) -> None:
    """Refuse a value that the command line would not take."""
    choices = choices_of(option)
    if choices and value is not None and str(value) not in choices:
        raise PluginError(f"{option.name}={value!r}: choose one of {', '.join(choices)}.")
