"""The rows of a batch that are still being decoded."""

from functools import cached_property
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor

from ..engine.output_projection import Scores
from ..engine.ragged_encoding import RaggedEncoding
from ..fairseq_compat.beams_of_models import reordered
from ..fairseq_compat.late_input import LateInput, on_host
from .constraints import Constraints
from .sampling import Sampler

#: Tokens that each row has room for to begin with: those of most sentences.
ROOM = 128


class Batch(NamedTuple):
    """What decoding starts from.

    Attributes:
        net_input: fairseq's ``src_tokens`` (rows, source) and ``src_lengths`` (rows,).
        encoder_outs: fairseq's encoder output of each verifier.
        bos: the symbol that the decoder is fed first.
        constraints: what may not be chosen.
        sampler: draws the tokens of each row; None: the most probable ones are chosen.
        shown: whether a bar shows how far a long batch is.
        numbers: (rows,) of the sentences in their data; None: those in the batch.
        target: (rows, length) the data's targets, padded, on the device or on the CPU; None for
            data without targets.
    """

    net_input: Mapping[str, Any]
    encoder_outs: Sequence[Any]
    bos: int
    constraints: Constraints
    sampler: Optional[Sampler] = None
    shown: bool = False
    numbers: Optional[Tensor] = None
    target: Optional[Tensor] = None

    @property
    def size(self) -> int:
        """How many rows: sentences, or samples of them."""
        return int(on_host(self.net_input)["src_tokens"].size(0))

    @property
    def source(self) -> int:
        """Source positions of each row, padding among them."""
        return int(on_host(self.net_input)["src_tokens"].size(1))

    @property
    def device(self) -> torch.device:
        """Where decoding happens."""
        if isinstance(self.net_input, LateInput):
            return self.net_input.device
        device: torch.device = self.net_input["src_tokens"].device
        return device

    def left(self, order: Union[Sequence[int], Tensor]) -> "Batch":
        """The batch of some of its rows, given by their indices in rising order.

        Nothing of rows in a range is copied, as encoder outputs of 512 sentences take 20 MB.
        """
        if len(order) == self.size:
            return self
        if isinstance(order, range) and order.step == 1:
            return self.select(slice(order.start, order.stop))
        return self.select(torch.as_tensor(order, dtype=torch.long, device=self.device))

    def repeated(self, models: Sequence[Any], rows: Tensor) -> "Batch":
        """The batch of these rows, (rows,) long, with encoder outputs in the models' own form.

        Args:
            models: the verifiers, of any architecture.
            rows: indices, which may repeat.
        """
        outs = [
            out.select(rows)
            if isinstance(out, RaggedEncoding)
            else reordered(model.encoder, out, rows)
            for model, out in zip(models, self.encoder_outs)
        ]
        return self.select(rows)._replace(encoder_outs=outs)

    def select(self, rows: Union[Tensor, slice]) -> "Batch":
        """The batch of these rows: (rows,) indices, which may repeat, or a range of them."""
        return self._replace(
            net_input={name: self.net_input[name][rows] for name in ("src_tokens", "src_lengths")},
            encoder_outs=EncodedRows(self.encoder_outs, rows),
            constraints=self.constraints.select(rows),
            sampler=None if self.sampler is None else self.sampler.select(rows),
            numbers=_selected(self.numbers, rows),
            target=_selected(self.target, rows),
        )


def _selected(each: Optional[Tensor], rows: Union[Tensor, slice]) -> Optional[Tensor]:
    """Some rows of a tensor, which may have stayed on the host."""
    if each is None:
        return None
    return each[rows.to(each.device) if isinstance(rows, Tensor) else rows]


class EncodedRows(Sequence[Any]):
    """Some rows of Transformer encoders' outputs, which are copied where one is read.

    Args:
        outs: of each model, fairseq's output or what has its form.
        rows: (rows,) indices; or a range, which is not copied.
    """

    def __init__(self, outs: Sequence[Any], rows: Union[Tensor, slice]) -> None:
        self._outs, self._rows = outs, rows

    def __len__(self) -> int:
        return len(self._outs)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        out = self._outs[index]
        if isinstance(out, RaggedEncoding):
            return out.select(self._rows).trimmed()
        return {
            "encoder_out": [each[:, self._rows] for each in out["encoder_out"]],
            "encoder_padding_mask": [each[self._rows] for each in out["encoder_padding_mask"]],
        }


class HostTokens(NamedTuple):
    """What was added to a row, as the host knows it.

    Attributes:
        tokens: the chosen tokens.
        scores: the bits of their log-probabilities, as numbers of 32 bits.
    """

    tokens: List[int]
    scores: List[int]

    def hypothesis(self) -> Dict[str, Tensor]:
        """See :meth:`Rows.hypothesis`; on the CPU."""
        # NumPy reads lists several times as fast as PyTorch does.
        tokens, bits = np.array(self.tokens, np.int64), np.array(self.scores, np.int32)
        return {
            "tokens": torch.from_numpy(tokens),
            "positional_scores": torch.from_numpy(bits.view(np.float32)),
        }


class Rows:
    """Tokens and scores of unfinished rows; finished ones leave.

    Attributes:
        order: each row's index in the batch, on the host.
        inputs: (rows, …) what the decoder is fed: ``bos``, then the tokens chosen so
            far; undefined beyond them.
        scores: (rows, …) log-probabilities of the chosen tokens.
        lengths: (rows,) how many tokens are chosen.
        host_lengths: the same on the host.
        bos: the symbol that the decoder is fed first.
        constraints: what may not be chosen.
        sampler: draws the tokens; None: the most probable ones are chosen.
        steps: iterations so far.
    """

    def __init__(self, batch: Batch) -> None:
        size, self._device = batch.size, batch.device
        self.order = list(range(size))
        self.bos = batch.bos
        self.host_lengths = [0] * size
        self.constraints = batch.constraints
        self.sampler = batch.sampler
        self.steps = 0
        # Elsewhere than on a CPU, tokens are kept on the host too, so that no one waits for them.
        self._lines = None if self._device.type == "cpu" else [[batch.bos] for _ in range(size)]
        self._host_tokens: Optional[List[HostTokens]] = None
        self._empty: Optional[Draft] = None

    # The next three are made when they are first read, because rows of one run on a GPU never need
    # them before they are written.
    @cached_property
    def inputs(self) -> Tensor:
        return torch.full((self.size, ROOM), self.bos, device=self._device)

    @cached_property
    def scores(self) -> Tensor:
        return torch.empty(self.size, ROOM, dtype=torch.float32, device=self._device)

    @cached_property
    def lengths(self) -> Tensor:
        return torch.zeros(self.size, dtype=torch.long, device=self._device)

    @property
    def size(self) -> int:
        """How many rows are left."""
        return len(self.order)

    @property
    def shortest(self) -> int:
        """The least length."""
        return min(self.host_lengths)

    @property
    def longest(self) -> int:
        """The greatest length."""
        return max(self.host_lengths)

    def within_limit(self, most: int) -> int:
        """How many inputs a row is fed at once: ``most``, or fewer at the limit of its length.

        A buffer of drafts may be wider than what is left of a model's learned positions.
        """
        return min(most, self.constraints.max_len + 1 - self.shortest)

    @property
    def temperature(self) -> float:
        """What divides the scores of drafts."""
        return 1.0 if self.sampler is None else self.sampler.temperature

    def best(self, scores: Scores, ahead: int = 0) -> Tensor:
        """The most probable symbols, or those that are drawn.

        Args:
            scores: (rows, width, vocabulary) of consecutive positions.
            ahead: positions before them, behind the newest token.

        Returns:
            (rows, width).
        """
        if self.sampler is None:
            return scores.values.argmax(2)
        return self.sampler.draw(scores, self.lengths + ahead)

    def last(self) -> Tensor:
        """(rows, 1) the newest token of each row, which the decoder has not been fed yet."""
        if self.size == 1:
            return self.inputs.narrow(1, self.host_lengths[0], 1)
        return self.inputs.gather(1, self.lengths.unsqueeze(1))

    def empty_draft(self) -> "Draft":
        """A draft of no tokens: (rows, 0)."""
        if self._empty is None or self._empty.lengths.size(0) != self.size:
            self._empty = Draft(self.inputs[:, :0], torch.zeros_like(self.lengths))
        return self._empty

    def append(self, tokens: Tensor, scores: Tensor, counts: Tensor) -> None:
        """Add the first ``counts`` of ``tokens`` to each row; :meth:`sync_lengths` must follow.

        Args:
            tokens: (rows, width) chosen tokens, undefined beyond ``counts``.
            scores: (rows, width) their log-probabilities.
            counts: (rows,).
        """
        width = tokens.size(1)
        self.make_room(width)
        position = self.lengths.unsqueeze(1) + torch.arange(width, device=tokens.device)
        self.scores.scatter_(1, position, scores)
        self.inputs.scatter_(1, position + 1, tokens)
        self.lengths = self.lengths + counts

    @property
    def on_host(self) -> bool:
        """Whether the host has all tokens and scores so far."""
        return self.steps == 0 or self._host_tokens is not None

    def sync_lengths(
        self,
        lengths: List[int],
        added: Sequence[Sequence[int]] = (),
        iterations: int = 1,
        new: Optional[Sequence[HostTokens]] = None,
    ) -> None:
        """Tell the host the outcome of an iteration, or of several.

        The host has a copy of tokens and scores for as long as each outcome comes with ``new``.
        One that comes without it drops the copy, and hypotheses are read from the device then.

        Args:
            lengths: how many tokens each row has now.
            added: by row, tokens that begin with those that were added; read elsewhere than on a
                CPU.
            iterations: how many.
            new: by row, what was added and its scores, where the host has all of it.
        """
        if new is None or not self.on_host:
            self._host_tokens = None
        elif self._host_tokens is None:
            self._host_tokens = [*new]
        else:
            for known, more in zip(self._host_tokens, new):
                known.tokens.extend(more.tokens)
                known.scores.extend(more.scores)
        if self._lines is not None:
            for line, tokens, end, begin in zip(self._lines, added, lengths, self.host_lengths):
                line.extend(tokens[: end - begin])
        self.host_lengths = lengths
        self.steps += iterations

    def line(self, row: int) -> List[int]:
        """What the decoder is fed of a row: ``bos``, then the chosen tokens."""
        if self._lines is not None:
            return self._lines[row]
        tokens: List[int] = self.inputs[row, : self.host_lengths[row] + 1].tolist()
        return tokens

    def hypothesis(self, row: int) -> Dict[str, Tensor]:
        """The tokens of a row and their log-probabilities, (length,) each.

        They are on the CPU if the host has them, so that nobody waits for a GPU. Those of a single
        row are views: what is written from now on belongs to other rows.
        """
        if self._host_tokens is not None:
            return self._host_tokens[row].hypothesis()
        length = self.host_lengths[row]
        tokens, scores = self.inputs[row, 1 : length + 1], self.scores[row, :length]
        if self.size > 1:  # A view would keep the memory of all rows.
            tokens, scores = tokens.clone(), scores.clone()
        return {"tokens": tokens, "positional_scores": scores}

    def select(self, rows: List[int]) -> Optional[Tensor]:
        """Continue with these rows; their indices as a tensor, (rows,), or None for no row."""
        left = [self.order[row] for row in rows]
        if not rows:
            self.order = left
            return None
        kept = torch.tensor(rows, dtype=torch.long, device=self._device)
        self.inputs, self.scores = self.inputs[kept], self.scores[kept]
        if self._lines is not None:
            self._lines = [self._lines[row] for row in rows]
        if self._host_tokens is not None:
            self._host_tokens = [self._host_tokens[row] for row in rows]
        self.lengths, self.order = self.lengths[kept], left
        self.constraints = self.constraints.select(kept)
        if self.sampler is not None:
            self.sampler = self.sampler.select(kept)
        self.host_lengths = [self.host_lengths[row] for row in rows]
        return kept

    def make_room(self, width: int) -> None:
        """Make room for ``width`` more tokens a row."""
        needed, have = self.longest + width + 1, self.inputs.size(1)
        if needed > have:
            more = max(needed, 2 * have) - have
            self.inputs = torch.nn.functional.pad(self.inputs, (0, more))
            self.scores = torch.nn.functional.pad(self.scores, (0, more))


class Outcome(NamedTuple):
    """What an iteration did to each row, on the host.

    Attributes:
        drafted: how many tokens were drafted.
        kept: how many of them stand.
        added: how many tokens were appended.
        ended: 1 where the last one ends the sentence, else 0.
        argmax: (rows, m + 1) on the CPU, the verifier's best token behind the newest accepted
            token and behind each drafted one, -1 beyond the row's draft; for a drafter that needs
            it, else None.
        hidden: (rows, dim) float32, the verifier's state that predicted the newest token; likewise.
        idle: iterations for which each row had ended already; () for none.
    """

    drafted: List[int]
    kept: List[int]
    added: List[int]
    ended: List[int]
    argmax: Optional[Tensor] = None
    hidden: Optional[Tensor] = None
    idle: Sequence[int] = ()


class Draft(NamedTuple):
    """What a drafter proposes.

    Attributes:
        tokens: (rows, m) integers, the tokens to come: numbers of symbols that the model has;
            undefined beyond ``lengths``.
        lengths: (rows,) integers, how many tokens each row proposes, from 0 to m.
        scores: (rows, m) the drafter's log-probabilities, if it was asked for them.
        lines: the proposed tokens of each row on the host, where the drafter had them.
    """

    tokens: Tensor
    lengths: Tensor
    scores: Optional[Tensor] = None
    lines: Optional[Sequence[Sequence[int]]] = None

    @classmethod
    def of(cls, drafts: Sequence[Sequence[int]], device: torch.device) -> "Draft":
        """Drafts of several rows, given as lists."""
        width = max(map(len, drafts), default=0)
        tokens = [[*draft, *[0] * (width - len(draft))] for draft in drafts]
        lengths = [len(draft) for draft in drafts]
        return cls(
            torch.tensor(tokens, dtype=torch.long, device=device).view(len(drafts), width),
            torch.tensor(lengths, dtype=torch.long, device=device),
            lines=drafts,
        )

    def on_host(self) -> Sequence[Sequence[int]]:
        """The proposed tokens of each row. It waits for the device only without ``lines``."""
        if self.lines is not None:
            return self.lines
        if self.tokens.size(1) == 0:
            return [[]] * self.tokens.size(0)
        table = torch.cat([self.lengths.unsqueeze(1), self.tokens], 1).tolist()
        return [line[1 : 1 + max(0, line[0])] for line in table]

    def within(self, rows: Rows, room: int) -> "Draft":
        """Shortened drafts, so that the length of each row and its draft are ``room`` at most.

        Args:
            rows: the rows.
            room: tokens of a row, drafted ones included.
        """
        if rows.longest + self.tokens.size(1) <= room:
            return self
        width = min(self.tokens.size(1), max(0, room - rows.shortest))
        lengths = torch.minimum(self.lengths, room - rows.lengths)
        scores = self.scores if self.scores is None else self.scores[:, :width]
        lines = self.lines
        if lines is not None:
            left = [max(0, room - length) for length in rows.host_lengths]
            lines = [line[:most] for line, most in zip(lines, left)]
        return Draft(self.tokens[:, :width], lengths, scores, lines)

    def real(self) -> Tensor:
        """(rows, m) true where a token is proposed."""
        position = torch.arange(self.tokens.size(1), device=self.tokens.device)
        return position < self.lengths.unsqueeze(1)
