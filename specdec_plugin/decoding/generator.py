"""The interface to fairseq-generate, fairseq-interactive and fairseq's hub."""

import logging
import weakref
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from ..engine import Backend
from ..engine.defaults import own_defaults
from ..engine.encoder import build_encoder
from ..engine.free_memory import HEAP, LARGE_BATCH
from ..engine.graphs.encoder import CapturedEncoder
from ..engine.symbol_numbers import check_symbols
from ..engine.weights import DeferredChecks, is_finite
from ..errors import PluginError
from ..fairseq_compat.generation import check_room
from ..fairseq_compat.late_input import on_host
from .alignment import Aligner
from .constraints import Constraints
from .gate import Measured
from .lengths import Lengths
from .sampling import Settings
from .state import Batch
from .statistics import Statistics
from .verifier import Verifier

logger = logging.getLogger(__name__)

_NOTHING = torch.empty(0)
#: For each sentence its hypotheses.
Found = List[List[Dict[str, Any]]]


class Loop(Protocol):
    """What decodes batches: draft and verify, a beam search, or the scores of references."""

    @property
    def measured(self) -> Optional[Measured]:
        """What knows whether drafts paid; None where nothing is measured."""

    def decode(self, batch: Batch) -> Found:
        """The hypotheses of a batch, the best first."""

    def forget(self) -> None:
        """Forget what was learned from the batches before."""


class Request(NamedTuple):
    """What :meth:`ParallelGenerator.generate` is given; see there."""

    sample: Dict[str, Any]
    prefix: Optional[Tensor]
    phrases: Optional[Tensor]
    bos: Optional[int]


class ParallelGenerator:
    """Decodes fairseq's batches with the loop; has the methods of a ``SequenceGenerator``.

    Args:
        models: the verifiers, whose encoders run here.
        dictionary: the target dictionary.
        loop: how a batch is decoded.
        statistics: its counters; the summary is logged when the generator is dropped.
        lengths: fairseq's options.
        eos: the symbol that is fed first and ends a sentence (default: the dictionary's).
        alignment: ``"hard"`` or ``"soft"`` to align hypotheses to their sources; None: neither.
        backend: who computes; None chooses.
        sampling: how samples are drawn; None: the most probable tokens are chosen.
        shows_progress: whether a bar shows how far a long batch is.
        warns: whether a run with hardly any drafts ends with a warning.
        constrained: whether batches may have phrases that outputs must contain.
        verifier: of the loop, if it verifies.

    Attributes:
        symbols_to_strip_from_output: fairseq leaves these out when it prints. Tasks add symbols of
            languages.
    """

    def __init__(
        self,
        models: Sequence[Any],
        dictionary: Any,
        loop: Loop,
        statistics: Statistics,
        lengths: Lengths,
        eos: Optional[int] = None,
        alignment: Any = None,
        backend: Optional[Backend] = None,
        sampling: Optional[Settings] = None,
        shows_progress: bool = False,
        warns: bool = True,
        constrained: bool = False,
        verifier: Optional[Verifier] = None,
    ) -> None:
        self.models, self._verifier = models, verifier
        self._encoders = [build_encoder(model, backend) for model in models]
        # On a CPU, or where operators are called one by one, nothing waits for a check of weights.
        self._defers_checks = all(isinstance(each, CapturedEncoder) for each in self._encoders)
        self.pad, self.unk = dictionary.pad(), dictionary.unk()
        self._symbols = _known_symbols(models, dictionary)
        self.eos = dictionary.eos() if eos is None else eos
        self.loop = loop
        self.statistics = statistics
        self.lengths = lengths
        self.sampling, self.shows_progress = sampling, shows_progress
        self._constrained = constrained
        self.symbols_to_strip_from_output = {self.eos}
        self._aligner = None
        if alignment:
            self._aligner = Aligner(models, alignment, self.pad, self.eos, self._symbols)
        samples = 1 if sampling is None else sampling.samples
        gate = loop.measured if warns else None
        weakref.finalize(self, _report, statistics, gate, samples)

    def forgo_scores(self) -> None:
        """Compute no log-probabilities where this saves time. The tokens stay the same."""
        if self._verifier is not None:
            self._verifier.forgo_scores()

    @torch.no_grad()
    def generate(
        self,
        models: Sequence[Any],
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict[str, Any]]]:
        """Translate a batch; see :meth:`fairseq.sequence_generator.SequenceGenerator.generate`.

        Args:
            models: as given at construction; fairseq passes them again.
            sample: fairseq's batch.
            prefix_tokens: (rows, width) tokens to begin with, padded on the right.
            constraints: (rows, width) phrases that each output must contain, packed as by
                fairseq's ``pack_constraints``; None: those in the batch, if there are any.
            bos_token: what the decoder is fed first (default: ``eos``).

        Returns:
            for each sentence its hypotheses, the best first: ``tokens`` and
            ``positional_scores`` (length,), ``score``, ``steps`` (iterations),
            ``history``, and where asked for ``alignment`` and ``attention``, which is else empty.
            Tensors are on the CPU where a GPU has told them already, and else on the device of the
            batch.
        """
        phrases = sample.get("constraints") if constraints is None else constraints
        if phrases is not None and not self._constrained:
            raise PluginError(
                "This search keeps no constraints: give --constraints beside --decoding auto or "
                "beam, or leave them out."
            )
        source = on_host(sample["net_input"]).get("src_tokens")
        if source is not None and not is_finite(source):
            raise PluginError(
                "src_tokens of a batch has features that are NaN or infinite, so that their output "
                "would mean nothing. Make the features again."
            )
        with self.statistics.timed("total"), own_defaults():
            batch, found = self._decoded(Request(sample, prefix_tokens, phrases, bos_token))
            hypotheses = [[self._finished(each) for each in sentence] for sentence in found]
            if self._aligner is not None:
                self._aligner.align(batch, hypotheses)
        del batch  # the encoders' outputs, 20 MB for 512 sentences
        HEAP.give_back(now=len(found) >= LARGE_BATCH)
        return hypotheses if self.sampling is None else _by_sentence(hypotheses, self.sampling)

    def _decoded(self, request: Request) -> Tuple[Batch, Found]:
        """See :meth:`_decode`; on a GPU, weights are checked for changes while it works."""
        if not self._defers_checks:
            return self._decode(request)
        with DeferredChecks() as deferred:
            try:
                found = self._decode(request)
            except Exception:  # stale weights may have another type, or be on another device
                if not deferred.stale():
                    raise
            else:
                if not deferred.stale():
                    return found
        return self._decode(request)

    def _decode(self, request: Request) -> Tuple[Batch, Found]:
        """The batch, and what the loop makes of it."""
        batch = self._batch(request)
        if self.sampling is not None:
            batch = self._repeated(batch, self.sampling)
        return batch, self.loop.decode(batch)

    def forget(self) -> None:
        """Decode as if nothing had been decoded before; only speed depends on it."""
        self.loop.forget()

    def _batch(self, request: Request) -> Batch:
        sample, prefix, phrases, bos = request
        net_input = self._with_lengths(sample["net_input"])
        max_len = self._max_len(net_input)
        for model in self.models:
            if model.training:  # eval() walks the whole model
                model.eval()
        bos = self.eos if bos is None else bos
        if not 0 <= bos < self._symbols:
            raise PluginError(f"bos_token {bos}: give a symbol from 0 to {self._symbols - 1}.")
        rows = on_host(net_input)["src_lengths"].size(0)
        # Before the encoder, so that a look at a device waits for less.
        if prefix is not None:
            prefix = self._checked(_table(prefix, rows, "prefix_tokens")[:, :max_len])
        if phrases is not None:
            phrases = self._checked_phrases(phrases.cpu(), rows)
        with self.statistics.timed("encoder"):
            outs = [encode(net_input) for encode in self._encoders]
        limits = Constraints(
            self.pad,
            self.unk,
            self.eos,
            self.lengths.unk_penalty,
            self.lengths.min_len,
            max_len,
            prefix=prefix,
            no_repeat_ngram_size=self.lengths.no_repeat_ngram_size,
            source_lengths=net_input["src_lengths"] if self.lengths.match_source_len else None,
            phrases=phrases,
        )
        numbers, target = sample.get("id"), sample.get("target")
        numbers = numbers if isinstance(numbers, Tensor) else None
        shown = self.shows_progress
        return Batch(net_input, outs, bos, limits, shown=shown, numbers=numbers, target=target)

    def _with_lengths(self, net_input: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inputs with ``src_lengths``, which fairseq, too, counts where they are missing."""
        given = on_host(net_input)
        if "src_lengths" in given:
            return net_input
        tokens = given["src_tokens"]
        counted = tokens.ne(self.pad)
        if self.lengths.match_source_len:
            counted &= tokens.ne(self.eos)
        return {**net_input, "src_lengths": counted.sum(1).to(net_input["src_tokens"].device)}

    def _checked(self, tokens: Tensor, name: str = "prefix_tokens") -> Optional[Tensor]:
        """Tokens, long, whose symbols the model has; None: there are none."""
        if tokens.numel() == 0:
            return None
        bounds = torch.stack(tokens.aminmax()).tolist()
        check_symbols(bounds, self._symbols, name, "--tgtdict")
        return tokens.long()

    def _checked_phrases(self, packed: Tensor, rows: int) -> Optional[Tensor]:
        """Phrases of so many rows, long, on the host, which alone reads them; None: no row has any.

        Each row begins with how many it has.
        """
        packed = _table(packed, rows, "constraints")
        symbols = self._checked(packed[:, 1:], "constraints")
        counts = packed[:, :1]
        if counts.lt(0).any():
            raise PluginError(
                f"constraints has a row of {int(counts.min())} phrases. Give what fairseq's "
                "pack_constraints makes of lists of phrases."
            )
        return None if symbols is None or not counts.any() else packed.long()

    def _repeated(self, batch: Batch, sampling: Settings) -> Batch:
        """A row for each sample, those of a sentence side by side.

        Args:
            batch: a row for each sentence.
            sampling: how samples are drawn.
        """
        order = torch.arange(batch.size, device=batch.device)
        numbers = order if batch.numbers is None else batch.numbers.to(order)
        if numbers.shape != order.shape:
            raise PluginError(
                f"id of a batch has {numbers.numel()} numbers for {batch.size} sentences. Give "
                "each sentence one, or leave id out."
            )
        if sampling.samples > 1:
            batch = batch.repeated(self.models, order.repeat_interleave(sampling.samples))
        return batch._replace(sampler=sampling.sampler(numbers))

    def _max_len(self, net_input: Mapping[str, Any]) -> int:
        """fairseq's limit; note that it reads the length of the padded batch."""
        lengths, net_input = self.lengths, on_host(net_input)
        if lengths.match_source_len:
            max_len = int(net_input["src_lengths"].max())
            check_room(lengths.min_len, max_len, "Lower it, or leave out --match-source-len.")
            return max_len
        room = lengths.max_positions - 1
        check_room(lengths.min_len, room, "Lower it: a model has no more positions.")
        max_len = int(lengths.max_len_a * net_input["src_tokens"].size(1) + lengths.max_len_b)
        check_room(lengths.min_len, max_len)
        return min(max_len, room)

    def _finished(self, hypothesis: Dict[str, Any]) -> Dict[str, Any]:
        history = [{"tokens": tokens} for tokens in hypothesis["history"]]
        finished = {**hypothesis, "history": history, "attention": _NOTHING, "alignment": _NOTHING}
        if "score" not in hypothesis:
            scores = hypothesis["positional_scores"]
            finished["score"] = self.lengths.score(scores.sum(), scores.size(0))
        return finished


def _table(numbers: Tensor, rows: int, name: str) -> Tensor:
    """Numbers of so many rows, which are integers unless there are none."""
    if numbers.dim() != 2 or (numbers.is_floating_point() and numbers.numel() > 0):
        kind = str(numbers.dtype).removeprefix("torch.")
        raise PluginError(
            f"{name} has the shape {tuple(numbers.shape)} and the type {kind}. Give integers in a "
            "row for each sentence."
        )
    if len(numbers) != rows:
        raise PluginError(f"{name} has {len(numbers)} rows for {rows} sentences.")
    return numbers


def _known_symbols(models: Sequence[Any], dictionary: Any) -> int:
    """How many symbols of a dictionary, which may have grown since, all models have."""
    embeddings = (getattr(model.decoder, "embed_tokens", None) for model in models)
    tables = (getattr(each, "weight", None) for each in embeddings)
    sizes = [each.size(0) for each in tables if isinstance(each, Tensor) and each.dim() == 2]
    return min([len(dictionary), *sizes])


def _by_sentence(
    rows: List[List[Dict[str, Any]]], sampling: Settings
) -> List[List[Dict[str, Any]]]:
    """The samples of each sentence, the best first, from lists of one for each row."""
    samples = [hypothesis for row in rows for hypothesis in row]
    return [
        sorted(samples[first : first + sampling.samples], key=lambda each: -float(each["score"]))
        for first in range(0, len(samples), sampling.samples)
    ]


def _report(statistics: Statistics, gate: Optional[Measured], samples: int) -> None:
    for line in statistics.lines():
        logger.info(line)
    reason = None if gate is None else statistics.why_hardly_drafted(gate, samples)
    if reason is not None:
        logger.warning(reason)
