"""Decodes for the server: batches, a sentence that is told as it grows, and its steps."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from torch import Tensor

from ..api import FAIRSEQ, Hypothesis, Session, Translator
from ..decoding.loop import DecodingLoop
from ..decoding.state import Draft, Outcome, Rows
from ..errors import PluginError
from ..folder import Folder
from ..lab.viz import speculation
from ..lab.viz.chart import Reader, speculation_chart
from ..lab.viz.observe import ObservingLoop
from ..lab.viz.page import page
from ..methods.registry import methods, names
from .refusal import RefusalError

#: What decodes a first sentence, so that a user's first one finds everything ready.
FIRST = "."

#: The least beam that finds several translations: that of ``beam`` by default.
LEAST_BEAM = 5
#: By method: the file of a folder that it needs.
_NEEDS = {"nat": "drafter", "blockwise": "heads"}


class Key(NamedTuple):
    """How sentences are decoded; those of one key may share a batch.

    Attributes:
        method: as ``--decoding``, or :data:`..api.FAIRSEQ`.
        nbest: hypotheses of each.
        direction: the source and the target language of a multilingual model; None: the folder's.
        prefix: the text with which the output begins.
        phrases: texts that the output contains.
    """

    method: str
    nbest: int = 1
    direction: Optional[Tuple[str, str]] = None
    prefix: str = ""
    phrases: Tuple[str, ...] = ()


class Decoder:
    """All that the server decodes with. One thread uses it.

    Args:
        session: of a folder.

    Attributes:
        done: is told the hypotheses of each batch of translations. Those of :meth:`steps` are
            none: they draft in every iteration, so that their figures are others.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.done: Callable[[List[Hypothesis]], None] = lambda found: None
        self._translators: Dict[Any, Translator] = {}

    def warm_up(self, method: str) -> None:
        """Decode something, so that kernels are compiled and weights packed."""
        self.decode(Key(method), [FIRST])

    def check(self, method: str) -> None:
        """Refuse a method that the folder has not the files for; PluginError names the cure."""
        try:
            self.session.translator(method)
        except PluginError as error:
            folder, file = self.session.folder, _NEEDS.get(method, "")
            if folder is not None and file and getattr(folder, file) is None:
                raise PluginError(
                    f"--methods {method} needs {file}, which {folder.path} has not: write the "
                    f"folder again with specdec-pack --{file}."
                ) from error
            raise PluginError(f"--methods {method} cannot be offered. {error}") from error

    def decode(self, key: Key, pieces: Sequence[str]) -> List[Hypothesis]:
        """A hypothesis for each line of subword pieces."""
        flags = {} if key.nbest == 1 else {"beam": max(LEAST_BEAM, key.nbest)}
        translator = self._translator(key, **flags)
        found = self._translated(translator, pieces, key)
        self.done(found)
        return found

    def stream(
        self, key: Key, pieces: str, tell: Callable[[Dict[str, Any]], None]
    ) -> Dict[str, Any]:
        """Decode a sentence, and tell each iteration when it is done.

        Args:
            key: of one hypothesis.
            pieces: of the sentence.
            tell: is given ``draft`` and ``added`` (readable tokens), ``kept`` (drafted tokens
                that stand), and ``text``, the translation so far. Searches with several beams
                tell nothing, because later tokens change earlier ones.

        Returns:
            ``text``, ``seconds``, ``tokens``, ``iterations`` (None for fairseq's own search) and
            ``steps``, whether :meth:`steps` can show them.
        """
        translator = self._translator(key)
        loop = getattr(translator.generator, "loop", None)
        if isinstance(loop, DecodingLoop):
            loop.watcher = _watcher(_reader(translator), tell)
        try:
            (found,) = self._translated(translator, [pieces], key)
        finally:
            if isinstance(loop, DecodingLoop):
                loop.watcher = None  # it would keep the client's events
        self.done([found])
        return {
            "text": found.text,
            "seconds": found.seconds,
            "tokens": len(found.tokens),
            "iterations": found.iterations,
            "steps": _verifies(loop),
        }

    def steps(self, key: Key, pieces: str) -> str:
        """A page on which a person steps through the iterations of a sentence.

        Raises:
            RefusalError: the method verifies no drafts.
        """
        translator = self._translator(key, retain_iter_history=True)
        loop = getattr(translator.generator, "loop", None)
        if not isinstance(loop, ObservingLoop):
            if not _verifies(loop):
                raise RefusalError(
                    400,
                    f"The method {key.method} verifies no drafts, so that there are no steps to "
                    "show. Choose another, such as specdec.",
                )
            observed_loop: Any = loop
            translator.generator.loop = ObservingLoop(observed_loop, speculation.observe)
        batch = translator.session.batch([pieces])
        prefix = _tokens(translator.session, key.prefix, 1)
        ((hypothesis, *_),) = translator.decode(batch, prefix)
        source = batch["net_input"]["src_tokens"][0].tolist()
        observed = hypothesis["observed"]
        return page([speculation_chart("sentence-0", source, observed, _reader(translator))])

    def _translator(self, key: Key, **flags: Any) -> Translator:
        """A translator that is built when it is first wanted, and shared by all directions.

        Args:
            key: of what is decoded.
            flags: of decoding and of the search.
        """
        if key.phrases:
            flags = self.session.for_phrases(key.method, flags)
        name = key.method, *sorted(flags.items())
        if name not in self._translators:
            built = self.session.translator(key.method, **flags)
            if not key.phrases:  # without which fairseq's search for phrases fails
                self._translated(built, [FIRST], Key(key.method))
            self._translators[name] = built
        found = self._translators[name]
        return found if key.direction is None else found.between(*key.direction)

    def _translated(
        self, translator: Translator, pieces: Sequence[str], key: Key
    ) -> List[Hypothesis]:
        session = translator.session
        phrases = session.phrases([key.phrases] * len(pieces)) if key.phrases else None
        batch, prefix = session.batch(pieces, phrases), _tokens(session, key.prefix, len(pieces))
        found = translator.translate_batch(batch, key.nbest, prefix)
        if prefix is not None and any(len(each.tokens) <= prefix.size(1) for each in found):
            raise PluginError(
                f"The prefix has {prefix.size(1):,} symbols, and the limit of length cuts it. Send "
                "a shorter one."
            )
        order = sorted(range(len(found)), key=batch["id"].tolist().__getitem__)
        return [found[row] for row in order]


def _tokens(session: Session, prefix: str, rows: int) -> Optional[Tensor]:
    """(rows, width) of a prefix that all rows have; None for an empty one."""
    if not prefix:
        return None
    (tokens,) = session.prefixes(session.target_pieces([prefix]))
    if session.task.target_dictionary.unk() in tokens:
        raise PluginError(f"The model lacks characters of the prefix {prefix!r}. Change it.")
    return session.padded([tokens] * rows)


def _watcher(reader: Reader, tell: Callable[[Dict[str, Any]], None]) -> Any:
    """Tells the iterations of one sentence."""
    emitted: List[int] = []

    def watch(rows: Rows, draft: Draft, outcome: Outcome) -> None:
        end = rows.host_lengths[0] + 1
        drafted: List[int] = draft.tokens[0, : outcome.drafted[0]].tolist()
        added: List[int] = rows.inputs[0, end - outcome.added[0] : end].tolist()
        emitted.extend(added)
        tell(
            {
                "draft": reader.tokens(drafted),
                "added": reader.tokens(added),
                "kept": outcome.kept[0],
                "text": reader.text(emitted),
            }
        )

    return watch


def _reader(translator: Translator) -> Reader:
    """Makes tokens readable."""
    session, generator = translator.session, translator.generator
    task = session.task
    left_out, end = session.left_out(generator), generator.eos
    return Reader(task.source_dictionary, task.target_dictionary, left_out, end)


def _verifies(loop: Any) -> bool:
    return isinstance(loop, DecodingLoop) and loop.step.verifies


def keeps_phrases(method: str) -> bool:
    """Whether outputs of a method may have to contain phrases."""
    named = [each for each in methods() if each.name == method]
    return not named or any("constraints" in each.honours for each in named)


class Offered(NamedTuple):
    """A method that a client may ask for.

    Attributes:
        name: as in :class:`Key`.
        summary: what it does.
    """

    name: str
    summary: str


def offered(folder: Folder, wanted: Optional[Sequence[str]] = None) -> List[Offered]:
    """The methods of a server, the default first.

    Args:
        folder: whose drafter and heads some methods need.
        wanted: their names; None: all that the folder's files are enough for, the folder's own
            first.
    """
    if wanted is None:
        found = [
            name for name in names()
            if name not in _NEEDS or getattr(folder, _NEEDS[name]) is not None
        ]  # fmt: skip
        wanted = [folder.decoding or FAIRSEQ, *found, FAIRSEQ]
    ordered = dict.fromkeys(wanted)
    summaries = {each.name: each.summary for each in reversed(methods()) if each.summary}
    summaries[FAIRSEQ] = "fairseq's own beam search"
    return [Offered(name, summaries[name]) for name in ordered]
