"""Models that are loaded once, and the methods that decode with them."""

import asyncio
import copy
import logging
import os
import threading
from functools import cached_property
from itertools import islice
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Sized,
    Tuple,
    Type,
)

from ..decoding.generator import ParallelGenerator
from ..decoding.statistics import Statistics
from ..errors import PluginError
from ..fairseq_compat.options import task_options
from ..folder import Folder
from ..methods.build import OF_WEIGHTS
from ..methods.registry import Method, suited
from ..progress import Progress
from ..subwords import Chain, Subwords
from .arguments import check_counts, check_lines, check_pairs, pair, same_number, without_end
from .batches import LineDecoder, Models
from .beside import Beside
from .hypothesis import Hypothesis
from .naming import named_as_given
from .searches import FAIRSEQ, OF_PHRASES, build_scorer, build_search, check_options

logger = logging.getLogger(__name__)

#: ``decoding`` where none is given: that of the folder; without a folder, ``greedy``.
DEFAULT = "default"
#: Searches that a translator keeps for :meth:`Translator.sample` and others, beside its own.
_OTHERS = 2
#: Other directions of a multilingual model that a session keeps.
_DIRECTIONS = 256
#: Batches that :meth:`Translator.translate_iter` reads ahead, so that similar lengths meet.
AHEAD = 16


class Session(Models):
    """A task with its dictionaries, and models, loaded once.

    Args:
        task, models, subwords, prefix_size: see :class:`Models`.
        folder: whose files and options methods get; None: none.

    Raises:
        PluginError: an option of the folder does not exist, or is of another type.
    """

    def __init__(
        self,
        task: Any,
        models: Sequence[Any],
        subwords: Optional[Subwords] = None,
        prefix_size: int = 0,
        folder: Optional[Folder] = None,
    ) -> None:
        super().__init__(task, models, subwords, prefix_size)
        if folder is not None:
            check_options(task, None, folder.options)
        self.folder = folder
        self._directions: Dict[Tuple[str, str], Session] = {}
        self._root: Optional[Session] = None  # of which this direction is a copy
        self._directions_lock = threading.Lock()  # nobody waits for a batch to get a direction

    @named_as_given
    def translator(self, decoding: Optional[str] = DEFAULT, **flags: Any) -> "Translator":
        """Build a translator that shares the session's models.

        Args:
            decoding: as ``--decoding``; None or ``"fairseq"`` for fairseq's own beam search. By
                default it is that of the folder; without a folder, ``greedy``.
            flags: the other decoding options, and :data:`SEARCH_OPTIONS`, such as
                ``block_size=8`` or ``max_len_b=100``. ``beam`` is 1 for greedy methods, and 5 for
                ``beam`` and without ``decoding``.

        Raises:
            PluginError: an option does not exist, or has no effect, or contradicts another.
        """
        decoding = self.decoding if decoding == DEFAULT else decoding
        decoding = None if decoding == FAIRSEQ else decoding
        flags = {
            name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in flags.items()
        }
        check_options(self.task, decoding, flags)
        given = decoding, self.options(decoding, flags), self.prefix_size
        with self.lock:
            generator, method = build_search(self.task, self.models, *given)
        return Translator(self, generator, method, flags)

    def options(self, decoding: Optional[str], flags: Mapping[str, Any]) -> Dict[str, Any]:
        """What a method gets: the given options, and others that the folder has for it.

        Args:
            decoding: the method; None: fairseq's own search.
            flags: the given options, which count more.
        """
        own = {} if self.folder is None else self.folder.flags(decoding)
        return {**suited(own, decoding, flags), **flags}

    @property
    def decoding(self) -> str:
        """How translators decode by default: as the folder tells, or else ``greedy``."""
        return "greedy" if self.folder is None else self.folder.decoding or FAIRSEQ

    def for_phrases(self, decoding: str, flags: Mapping[str, Any]) -> Dict[str, Any]:
        """Options of a search whose outputs contain phrases: the folder's, or as in fairseq.

        Args:
            decoding: as ``--decoding``, or ``"fairseq"``. It may be one that keeps no phrases,
                which refuses these options.
            flags: of decoding and of the search, which count more.
        """
        own = {} if self.folder is None else self.folder.options
        usual = {name: own.get(name, value) for name, value in OF_PHRASES.items()}
        return suited({**usual, **flags}, None if decoding == FAIRSEQ else decoding)

    def score(
        self, lines: Sequence[str], translations: Sequence[str], batch_size: int = 1
    ) -> List[Hypothesis]:
        """How probable given translations of raw text are, as by fairseq's ``--score-reference``.

        Args:
            lines: a sentence each.
            translations: of each line; it may be empty.
            batch_size: sentences that are scored together.

        Returns:
            for every line its translation as a hypothesis. ``positional_scores`` are the
            log-probabilities of its tokens, and ``score`` is their mean.

        Raises:
            PluginError: the session has no subword model, or a translation cannot be scored.
        """
        pieces = self.pieces(lines), self.target_pieces(translations)
        return self.score_pieces(*pieces, batch_size)

    def score_pieces(
        self, lines: Sequence[str], translations: Sequence[str], batch_size: int = 1
    ) -> List[Hypothesis]:
        """:meth:`score` of lines of subword pieces, with spaces between the pieces."""
        lines, translations = same_number(lines, translations, "translations")
        return self._scored(lines, translations, batch_size, 0)

    def score_iter(
        self, pairs: Iterable[Sequence[str]], batch_size: int = 1
    ) -> Iterator[Hypothesis]:
        """:meth:`score` of any number of pairs, in constant memory.

        Args:
            pairs: lines and their translations; they are read as they are needed.
            batch_size: as for :meth:`score`.

        Yields:
            the translation of each line with its scores, in the order of the lines.
        """
        check_counts(batch_size=batch_size)
        check_pairs(pairs)
        left, first = iter(pairs), 0
        while chunk := list(islice(left, AHEAD * batch_size)):
            lines, translations = zip(*map(pair, chunk))
            pieces = self.pieces(lines), self.target_pieces(translations)
            yield from self._scored(*pieces, batch_size, first)
            first += len(chunk)

    @named_as_given
    def _scored(
        self, lines: Sequence[str], translations: Sequence[str], batch_size: int, first: int
    ) -> List[Hypothesis]:
        """:meth:`score_pieces` of lines behind ``first`` others, which messages count."""
        targets = self.targets(translations, first)
        with self.lock:
            scorer = LineDecoder(self, (self._root or self)._scorer)
        return scorer.decode_lines(lines, batch_size, first=first, prefixes=targets)

    @cached_property
    def _scorer(self) -> Any:
        """What scores targets of all directions."""
        folder = {} if self.folder is None else self.folder.flags("greedy")
        flags = {name: folder[name] for name in OF_WEIGHTS if name in folder}
        return build_scorer(self.task, self.models, flags, self.prefix_size)

    @property
    def languages(self) -> List[str]:
        """The languages of a multilingual model; none where it has one direction."""
        one = self._clusters is not None
        return [] if one else list(getattr(self.task, "languages", ()))

    @property
    def _clusters(self) -> Optional[str]:
        """The folder's clusters of the output, which have the tokens of one target language."""
        flags = {} if self.folder is None else self.folder.flags(None)
        found: Optional[str] = flags.get("vocab_clusters")
        return found

    @property
    def direction(self) -> Tuple[str, str]:
        """The source and the target language; speech has no source language."""
        options = task_options(self.task)
        source, target = (getattr(options, f"{side}_lang", None) for side in ("source", "target"))
        return source or "", target or ""

    def between(self, source_lang: str, target_lang: str) -> "Session":
        """A session for another direction of a multilingual model, which shares the models.

        Args:
            source_lang, target_lang: of :attr:`languages`.

        Raises:
            PluginError: the model has one direction, or does not know a language, or the folder
                has clusters of one target language.
        """
        _check_clusters(self._clusters)
        if not self.languages:
            raise PluginError(
                "The model has one direction. Models of several languages have the task "
                "specdec_translation_multi_simple_epoch."
            )
        direction = source_lang, target_lang
        self.task.check_direction(*direction)
        if direction == self.direction:
            return self
        with self._directions_lock:
            found = self._directions.get(direction)
            if found is None:
                found = self._of_direction(*direction)
                if len(self._directions) >= _DIRECTIONS:
                    del self._directions[next(iter(self._directions))]
                self._directions[direction] = found
            return found

    def _of_direction(self, source_lang: str, target_lang: str) -> "Session":
        other = copy.copy(self)
        other._root = self._root or self
        other.task = self.task.between(source_lang, target_lang)
        if isinstance(self.subwords, Chain):
            other.__dict__.pop("_of_target", None)
            other.subwords = self.subwords.between(source_lang, target_lang)
        return other


class Translator(LineDecoder):
    """Decodes with one method at a time.

    Args:
        session: the models.
        generator: has fairseq's ``generate``.
        method: what ``--decoding`` means; None for fairseq's own search.
        flags: the options that were given, which another method gets too if it reads them.

    Attributes:
        statistics: counters over all batches since the last ``reset()``; None for fairseq's own
            search.
        method_class: what the method's name means; None for fairseq's own search.
    """

    session: Session

    def __init__(
        self,
        session: Session,
        generator: Any,
        method: Optional[Type[Method]] = None,
        flags: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(session, generator)
        self._flags = dict(flags or {})
        self._root = self  # which keeps other searches for its other directions, too
        self._others: Dict[str, Translator] = {}  # the newest first
        self._take(generator, method)

    def _take(self, generator: Any, method: Optional[Type[Method]]) -> None:
        self.generator, self.method_class = generator, method
        given = self.session.options(None if method is None else method.name, self._flags)
        self._takes_phrases = given.get("constraints") is not None
        self.statistics: Optional[Statistics] = getattr(generator, "statistics", None)

    @property
    def method(self) -> str:
        """The name of the method, as ``--decoding`` takes it; ``"fairseq"``: fairseq's own search.

        Set it to decode by another. The options that were given stay, if that method reads them.
        """
        return FAIRSEQ if self.method_class is None else self.method_class.name

    @method.setter
    def method(self, name: Optional[str]) -> None:
        decoding = None if name == FAIRSEQ else name
        other = self.session.translator(decoding, **suited(self._flags, decoding))
        self._root, self._others = self, {}
        self._take(other.generator, other.method_class)

    def forgo_scores(self) -> None:
        """Compute no log-probabilities where this saves time.

        The tokens stay the same, and scores mean nothing then, until :attr:`method` is set.
        """
        if isinstance(self.generator, ParallelGenerator):
            self.generator.forgo_scores()

    def between(self, source_lang: str, target_lang: str) -> "Translator":
        """A translator for another direction of a multilingual model.

        It shares the models, the packed weights and the statistics.

        Args:
            source_lang, target_lang: of the session's :attr:`Session.languages`.

        Raises:
            PluginError: the model has one direction, or does not know a language, or decodes with
                the tokens of one target language.
        """
        session = self.session.between(source_lang, target_lang)
        if session is self.session:
            return self
        _check_clusters(self._flags.get("vocab_clusters"))
        other = copy.copy(self)
        other.session = session
        return other

    def translate(
        self,
        lines: Sequence[str],
        batch_size: int = 1,
        nbest: int = 1,
        prefixes: Optional[Sequence[str]] = None,
        phrases: Optional[Sequence[Sequence[str]]] = None,
    ) -> List[Hypothesis]:
        """Translate raw text.

        Args:
            lines: a sentence each.
            batch_size: sentences that are decoded together. On a CPU most methods draft only for
                single sentences.
            nbest: the hypotheses of each sentence that are returned, in ``nbest`` of the best.
                The search needs as many beams or samples.
            prefixes: for each line the text with which its hypotheses begin, such as what a
                person has written so far; it may be empty. None: nothing is given.
            phrases: for each line a list of phrases that its hypotheses contain, such as terms of
                a glossary; see :meth:`constrained`. None: nothing is given.

        Returns:
            the best hypothesis for every line, in the order of the lines.

        Raises:
            PluginError: the session has no subword model, or the search has fewer hypotheses, or
                there is another number of prefixes or phrases, or the method keeps no phrases.
        """
        if prefixes is not None:
            lines, prefixes = same_number(lines, prefixes, "prefixes")
            prefixes = self.session.target_pieces(prefixes)
        searching = self
        if phrases is not None:
            lines, phrases = same_number(lines, phrases, "lists of phrases")
            searching = self._for_phrases({})
        pieces = self.session.pieces(lines)
        return searching._decoded(pieces, batch_size, nbest, 0, prefixes, phrases)

    def translate_pieces(
        self,
        lines: Sequence[str],
        batch_size: int = 1,
        nbest: int = 1,
        prefixes: Optional[Sequence[str]] = None,
    ) -> List[Hypothesis]:
        """Translate lines of subword pieces, with spaces between the pieces.

        Arguments and result are those of :meth:`translate`; prefixes are of pieces, too. A line
        that is longer than the models take is cut, with a warning.
        """
        if prefixes is not None:
            lines, prefixes = same_number(lines, prefixes, "prefixes")
        return self._decoded(lines, batch_size, nbest, 0, prefixes)

    def translate_iter(
        self,
        lines: Iterable[str],
        batch_size: int = 1,
        nbest: int = 1,
        progress: bool = False,
        ahead: int = 0,
        prefixes: Optional[Iterable[str]] = None,
        phrases: Optional[Iterable[Sequence[str]]] = None,
    ) -> Iterator[Hypothesis]:
        """Translate raw text of any length, in constant memory.

        Args:
            lines: a sentence each, such as an open file; they are read as they are needed.
            batch_size, nbest: as for :meth:`translate`.
            progress: whether a bar on the standard error shows how far it is.
            ahead: lines that are read ahead, so that lines of similar length are decoded
                together; 0: those of :data:`AHEAD` batches.
            prefixes, phrases: as for :meth:`translate`; they are read with the lines.

        Yields:
            the best hypothesis of every line, in the order of the lines.
        """
        check_lines(lines)
        check_counts(batch_size=batch_size, nbest=nbest)
        check_counts(0, ahead=ahead)
        beginnings, terms = Beside(prefixes, "prefixes"), Beside(phrases, "lists of phrases")
        size = ahead or AHEAD * batch_size
        total = len(lines) if isinstance(lines, Sized) else None
        searching = self if phrases is None else self._for_phrases({})
        left, first = map(without_end, lines), 0
        with Progress(total=total, unit="sentence", disable=not progress) as bar:
            while chunk := list(islice(left, size)):
                pieces, begin = self.session.pieces(chunk), beginnings.of(len(chunk))
                if begin is not None:
                    begin = self.session.target_pieces(list(map(without_end, begin)))
                within = terms.of(len(chunk))
                found = searching._decoded(pieces, batch_size, nbest, first, begin, within)
                first += len(chunk)
                bar.add(len(found), sum(len(each.tokens) for each in found))
                yield from found
        beginnings.check_end()
        terms.check_end()

    def _decoded(
        self,
        lines: Sequence[str],
        batch_size: int,
        nbest: int,
        first: int,
        prefixes: Optional[Sequence[str]] = None,
        phrases: Optional[Sequence[Sequence[str]]] = None,
    ) -> List[Hypothesis]:
        """Translate pieces of lines behind ``first`` others, with as many prefixes and phrases.

        Prefixes are of pieces, too, and phrases are raw text.
        """
        check_lines(lines)
        lines = list(lines)  # They are read more than once.
        if phrases is None and self._takes_phrases:
            phrases = [[] for _ in lines]  # or else fairseq's search ends in a traceback
        packed = None if phrases is None else self.session.phrases(phrases)
        if prefixes is None:
            return self.decode_lines(lines, batch_size, nbest, first, packed)
        if self.session.prefix_size > 0:
            raise PluginError(
                f"prefix_size {self.session.prefix_size} takes the first tokens of references. "
                "Load without it to give prefixes."
            )
        begin = self.session.prefixes(prefixes, first)
        found = self.decode_lines(lines, batch_size, nbest, first, packed, begin)
        for number, (each, given) in enumerate(zip(found, begin), first + 1):
            if len(each.tokens) <= len(given):  # of which the last one ends the sentence
                logger.warning(
                    f"line {number:,}: the prefix has {len(given):,} symbols, and the limit of "
                    f"length cuts it to {len(each.tokens) - 1:,}. Raise max_len_b (--max-len-b)."
                )
        return found

    async def translate_async(
        self,
        lines: Sequence[str],
        batch_size: int = 1,
        nbest: int = 1,
        prefixes: Optional[Sequence[str]] = None,
        phrases: Optional[Sequence[Sequence[str]]] = None,
    ) -> List[Hypothesis]:
        """:meth:`translate` in another thread, so that asyncio's loop stays free.

        Raises:
            ValueError: what is a :class:`.PluginError` elsewhere, which would end the loop.
        """
        try:
            given = lines, batch_size, nbest, prefixes, phrases
            return await asyncio.to_thread(self.translate, *given)
        except PluginError as error:
            raise ValueError(str(error)) from error

    def sample(
        self, lines: Sequence[str], samples: int = 1, batch_size: int = 1, **flags: Any
    ) -> List[Hypothesis]:
        """Draw translations of raw text from the model's distribution.

        Args:
            lines: a sentence each.
            samples: how many of each; they are in ``nbest`` of the most probable one.
            batch_size: sentences that are decoded together.
            flags: ``seed``, ``temperature``, ``sampling_topk``, ``sampling_topp`` and others; see
                :meth:`Session.translator`.

        Returns:
            the most probable sample for every line.

        Raises:
            PluginError: this method draws no samples, or an option is refused.
        """
        check_counts(samples=samples)
        _check_free(flags, beam="samples", sampling="samples", constraints="constrained()")
        given = {**self._flags, **flags, "sampling": True, "beam": samples}
        return self._other(given).translate(lines, batch_size, samples)

    def constrained(
        self,
        lines: Sequence[str],
        phrases: Sequence[Sequence[str]],
        ordered: bool = False,
        batch_size: int = 1,
        nbest: int = 1,
        prefixes: Optional[Sequence[str]] = None,
        **flags: Any,
    ) -> List[Hypothesis]:
        """Translate raw text into text that contains given phrases, such as terms of a glossary.

        The search is that of Post and Vilar (2018) and Hu et al. (2019), as in fairseq.

        Args:
            lines: a sentence each.
            phrases: for each line a list of phrases, which may be empty.
            ordered: whether the phrases come in the given order.
            batch_size, nbest, prefixes: as for :meth:`translate`.
            flags: ``beam``, which is 5 by default, and others; see :meth:`Session.translator`.

        Returns:
            the best hypothesis for every line.

        Raises:
            PluginError: this method keeps no phrases, or a phrase cannot be written.
        """
        check_lines(phrases)
        _check_free(flags, constraints="ordered")
        order = "ordered" if ordered else "unordered"
        searching = self._for_phrases({**flags, "constraints": order})
        return searching.translate(lines, batch_size, nbest, prefixes, phrases)

    def _for_phrases(self, flags: Mapping[str, Any]) -> "Translator":
        """One by the same method with these options, whose outputs contain given phrases."""
        if self._takes_phrases and not flags:
            return self
        return self._other(self.session.for_phrases(self.method, {**self._flags, **flags}))

    def score(
        self, lines: Sequence[str], translations: Sequence[str], batch_size: int = 1
    ) -> List[Hypothesis]:
        """How probable given translations are, whatever the method; see :meth:`Session.score`."""
        return self.session.score(lines, translations, batch_size)

    def _other(self, flags: Mapping[str, Any]) -> "Translator":
        """One by the same method with these options."""
        root, method = self._root, self.method
        with self.session.lock:
            key = f"{method} {sorted(flags.items())}"
            found = root._others.pop(key, None)
            found = root.session.translator(method, **flags) if found is None else found
            root._others = {key: found, **dict([*root._others.items()][: _OTHERS - 1])}
        return found if self is root else found.between(*self.session.direction)


def _check_free(flags: Mapping[str, Any], **instead: str) -> None:
    """Refuse options that a call sets itself.

    Args:
        flags: the given ones.
        instead: by option, what tells it.
    """
    for name in instead.keys() & flags.keys():
        raise PluginError(f"{name}={flags[name]!r} is set by the call: give {instead[name]}.")


def _check_clusters(clusters: Optional[str]) -> None:
    """Refuse clusters of the output where there are several target languages."""
    if clusters is not None:
        raise PluginError(
            f"vocab_clusters={clusters} has the tokens of one target language. Leave it out to "
            "translate into others."
        )
