"""Models that decode batches, and lines of text in batches."""

import threading
import time
from functools import cached_property
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq import utils
from torch import Tensor

from ..decoding.generator import ParallelGenerator
from ..errors import PluginError
from ..fairseq_compat.late_input import LateInput
from ..subwords import Subwords
from .arguments import check_counts, check_lines
from .hypothesis import Hypothesis
from .naming import named_as_given
from .texts import Texts


class Models(Texts):
    """Models on a device, which decode fairseq's batches with any of its generators.

    Args:
        task: fairseq's task.
        models: the models in ``--path``, an ensemble if there are several.
        subwords: splits raw text into pieces and joins them again; None where there is no raw text.
        prefix_size: so many tokens of the references begin the hypotheses, such as the symbol of
            the language.

    Attributes:
        lock: is held while a batch is decoded, and while a generator is built.
    """

    def __init__(
        self,
        task: Any,
        models: Sequence[Any],
        subwords: Optional[Subwords] = None,
        prefix_size: int = 0,
    ) -> None:
        super().__init__(task, models, subwords)
        # fairseq gives a BART model the beams of the search that was built last.
        self._have_beams = [model for model in models if hasattr(model, "set_beam_size")]
        self.prefix_size = prefix_size
        self.lock = threading.RLock()

    @property
    def device(self) -> torch.device:
        """The device of the models."""
        table, name = self._first
        first = table.get(name)
        if first is None:  # it has moved elsewhere, as where a model is pruned
            first = next(self.models[0].parameters())
        device: torch.device = first.device
        return device

    @cached_property
    def _first(self) -> Tuple[Dict[str, Any], str]:
        """A table of the model's parameters, and a name in it.

        The device is asked for each batch, and a walk through the model takes longer than a kernel.
        """
        tables = (part._parameters for part in self.models[0].modules())
        return next((each, name) for each in tables for name in each if each[name] is not None)

    @named_as_given
    def decode(
        self, generator: Any, batch: Any, prefix: Optional[Tensor] = None
    ) -> List[List[Dict[str, Any]]]:
        """fairseq's hypotheses of a batch, when they are complete.

        Those of our methods are on the CPU if they came there with the outcomes of iterations. A
        GPU may then still run an iteration behind the last end, for which nobody waits.

        Args:
            generator: has fairseq's ``generate``.
            batch: fairseq's, on the CPU.
            prefix: (rows, width) tokens with which hypotheses begin, padded on the right.

        Returns:
            for each sentence its hypotheses, the best first.
        """
        with self.lock:
            return self._decode(generator, batch, prefix)

    def _decode(
        self, generator: Any, batch: Any, prefix: Optional[Tensor]
    ) -> List[List[Dict[str, Any]]]:
        device = self.device
        if device.type == "cuda":
            batch = _moved(batch, device, isinstance(generator, ParallelGenerator))
        for model in self._have_beams:
            model.set_beam_size(getattr(generator, "beam_size", 1))
        prefix = self._prefix(batch) if prefix is None else prefix
        prefix = prefix if prefix is None else prefix.to(device)
        phrases = batch.get("constraints")  # of which a task of the user's own may take none
        more = {} if phrases is None else {"constraints": phrases}
        found: Any = self.task.inference_step(generator, self.models, batch, prefix, **more)
        if any(each["tokens"].is_cuda for sentence in found for each in sentence):
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


class LineDecoder:
    """Decodes lines with one generator.

    Args:
        session: the models.
        generator: has fairseq's ``generate``.
    """

    def __init__(self, session: Models, generator: Any) -> None:
        self.session: Any = session
        self.generator = generator

    def decode(self, batch: Any, prefix: Optional[Tensor] = None) -> List[List[Dict[str, Any]]]:
        """fairseq's hypotheses of one of its batches; see :meth:`Models.decode`."""
        return self.session.decode(self.generator, batch, prefix)

    def decode_lines(
        self,
        lines: Sequence[str],
        batch_size: int,
        nbest: int = 1,
        first: int = 0,
        phrases: Optional[Tensor] = None,
        prefixes: Optional[Sequence[Tensor]] = None,
    ) -> List[Hypothesis]:
        """The best hypothesis for every line, in their order.

        Args:
            lines: subword pieces, with spaces between them.
            batch_size: sentences that are decoded together.
            nbest: hypotheses of each sentence that are returned, in ``nbest`` of the best.
            first: lines before them, which messages count. Samples of other lines differ.
            phrases: (lines, width) of :meth:`Texts.phrases`; None: none.
            prefixes: the symbols with which the hypotheses of each line begin; None: none.
        """
        check_lines(lines)
        lines = list(lines)
        check_counts(batch_size=batch_size, nbest=nbest)
        if len(lines) == 0:  # of which fairseq makes no batches
            return []
        found: Dict[int, Hypothesis] = {}
        alike = None if prefixes is None else self._alike(prefixes, phrases is not None)
        with self.session.lock:
            dataset = self.session.dataset(lines, first, phrases)
            batches = self.session.batches(dataset, batch_size, alike)
        for batch in batches:
            numbers = batch["id"].tolist()
            batch["id"] = batch["id"] + first
            prefix = None
            if prefixes is not None:
                prefix = self.session.padded([prefixes[number] for number in numbers])
            found.update(zip(numbers, self.translate_batch(batch, nbest, prefix)))
        return [found[number] for number in range(len(lines))]

    def _alike(self, prefixes: Sequence[Tensor], phrased: bool) -> Callable[[int], int]:
        """Which sentences may share a batch.

        As in fairseq, no minimum of length holds in the columns of a batch's prefixes. So a
        sentence whose own prefix is shorter than the minimum is not beside a longer one. Phrases
        begin behind prefixes of one length.

        Args:
            prefixes: of each sentence, (symbols,) long.
            phrased: whether outputs contain phrases.
        """
        lengths = getattr(self.generator, "lengths", self.generator)
        least = max(map(len, prefixes)) if phrased else getattr(lengths, "min_len", 0)
        return lambda number: min(least, len(prefixes[number]))

    def translate_batch(
        self, batch: Any, nbest: int = 1, prefix: Optional[Tensor] = None
    ) -> List[Hypothesis]:
        """The best hypothesis of each sentence of fairseq's batch, in the order of its ``id``.

        Args:
            batch: of :meth:`Texts.batch` or :meth:`Texts.batches`.
            nbest: as for :meth:`decode_lines`.
            prefix: (rows, width) tokens with which hypotheses begin, padded on the right.
        """
        generator, session = self.generator, self.session
        with session.lock:
            begin = time.perf_counter()
            decoded = session.decode(generator, batch, prefix)
            seconds = time.perf_counter() - begin
        return [self._best(hypotheses, generator, nbest, seconds) for hypotheses in decoded]

    def _best(
        self, hypotheses: Sequence[Any], generator: Any, nbest: int, seconds: float
    ) -> Hypothesis:
        """The best of fairseq's hypotheses, with the others that are wanted."""
        if nbest > max(len(hypotheses), getattr(generator, "beam_size", 1)):
            raise PluginError(
                f"nbest={nbest}: this search has {len(hypotheses)} hypotheses of a sentence. Load "
                f"with decoding='beam' and beam={nbest}, or draw samples with sample()."
            )
        made = [
            self.session.hypothesis(each, generator)._replace(seconds=seconds)
            for each in hypotheses[:nbest]
        ]
        return made[0] if nbest == 1 else made[0]._replace(nbest=tuple(made))


def _moved(batch: Dict[str, Any], device: torch.device, ours: bool) -> Dict[str, Any]:
    """fairseq's batch on a GPU; our generators get its inputs there when they read them."""
    if not ours:
        return dict(utils.move_to_cuda(batch, device))
    return {**batch, "net_input": LateInput(batch["net_input"], device)}
