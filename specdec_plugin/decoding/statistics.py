"""What a run spent and accepted: the figures of Xia et al. (2023), Tables 2 and 18."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from .gate import FixedGate, Measured

#: The share of iterations without drafts, from which on a run reports it.
_HARDLY = 0.75
PARTS = ("encoder", "drafter", "verifier", "projection")


class _Timed:
    """A block whose time is counted; a generator would take several times as long."""

    __slots__ = ("begin", "part", "seconds")

    def __init__(self, seconds: Dict[str, float], part: str) -> None:
        self.seconds, self.part = seconds, part

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *error: Any) -> None:
        self.seconds[self.part] += time.perf_counter() - self.begin


@dataclass
class Statistics:
    """Counters over all batches that a generator decoded.

    Attributes:
        sentences: finished hypotheses.
        batches: that they were decoded in.
        tokens: output tokens, ends of sentence included.
        iterations: one for each row of each loop iteration, so that
            ``tokens / iterations`` is the papers' accepted tokens at any batch size.
        gated: iterations in which nothing was drafted, because the gate was closed.
        draft_lengths: how often a row drafted so many tokens.
        kept_lengths: how often a row kept so many of them.
        drafter_sources: sentences whose source a trained drafter read.
        drafter_tokens: chosen tokens that it was fed.
        drafter_blocks: blocks of masks that it was fed behind them.
        drafter_masks: masks of all those blocks.
        certified: positions that a certified verifier scored.
        certain: of these, how many had one symbol that might be the best.
        rescored: symbols that might be the best, which float32 scored again.
        passes: passes of beam search that verified drafted steps.
        drafted_steps: steps that these passes took.
        seconds: time by part; ``total`` includes everything.
    """

    sentences: int = 0
    batches: int = 0
    tokens: int = 0
    iterations: int = 0
    gated: int = 0
    draft_lengths: "Counter[int]" = field(default_factory=Counter)
    kept_lengths: "Counter[int]" = field(default_factory=Counter)
    drafter_sources: int = 0
    drafter_tokens: int = 0
    drafter_blocks: int = 0
    drafter_masks: int = 0
    certified: int = 0
    certain: int = 0
    rescored: int = 0
    passes: int = 0
    drafted_steps: int = 0
    seconds: Dict[str, float] = field(default_factory=lambda: dict.fromkeys((*PARTS, "total"), 0.0))

    def reset(self) -> None:
        """Forget everything, after a warm-up."""
        self.__dict__.update(Statistics().__dict__)

    def timed(self, part: str) -> "_Timed":
        """Add the time of the block to ``part``.

        On a CUDA device work is queued, not done, when a block ends: there only
        ``total`` is right.
        """
        return _Timed(self.seconds, part)

    def count(self, drafted: Sequence[int], kept: Sequence[int], added: Sequence[int]) -> None:
        """Add one iteration: tokens drafted, kept and added by each row."""
        for length in drafted:
            self.draft_lengths[length] += 1
        for length in kept:
            self.kept_lengths[length] += 1
        self.tokens += sum(added)
        self.iterations += len(added)

    def count_undrafted(self, tokens: int, gated: bool) -> None:
        """Add iterations of one token each; ``gated``: drafts would have been possible."""
        self.draft_lengths[0] += tokens
        self.kept_lengths[0] += tokens
        self.tokens += tokens
        self.iterations += tokens
        self.gated += tokens if gated else 0

    def certify(self, positions: int, certain: int, rescored: int) -> None:
        """Add one call of a certified verifier."""
        self.certified += positions
        self.certain += certain
        self.rescored += rescored

    def count_passes(self, passes: int, steps: int) -> None:
        """Add passes of beam search, and the steps that they took instead of one each."""
        self.passes += passes
        self.drafted_steps += steps
        self.iterations -= steps - passes

    @property
    def accepted_tokens(self) -> float:
        """Output tokens an iteration; 1.00 is autoregressive decoding."""
        return self.tokens / max(1, self.iterations)

    def acceptance_by_position(self) -> List[float]:
        """Of the rows that drafted a token at each position, the share that kept it."""
        longest = max(self.draft_lengths, default=0)
        drafted, kept = self.draft_lengths, self.kept_lengths
        return [
            _reaching(kept, length) / _reaching(drafted, length) for length in range(1, longest + 1)
        ]

    def why_hardly_drafted(self, gate: Measured, samples: int = 1) -> Optional[str]:
        """A sentence about a run with hardly any drafts, and the cure; else None.

        Args:
            gate: what kept drafts off.
            samples: rows of each sentence.
        """
        if self.gated < _HARDLY * max(1, self.iterations):
            return None
        if isinstance(gate, FixedGate):
            return None if gate.max_rows is None else self._gated(gate.max_rows, samples)
        paces = gate.paces()
        if paces is None or paces.drafted >= paces.without:
            return None
        smaller = "smaller batches, " if self.sentences > self.batches else ""
        return (
            f"Hardly anything was drafted, because drafts did not pay here: {paces.drafted:,.0f} "
            f"tokens a second with them, {paces.without:,.0f} without. The output is the same. "
            "Drafts may not pay on this machine, even those of a drafter trained for the model. "
            f"Give --decoding greedy, {smaller}another drafter, or --draft-rows 0 to draft always."
        )

    def _gated(self, max_rows: int, samples: int) -> Optional[str]:
        """Why a fixed gate kept drafts off; None where rows were few enough, but far behind."""
        size = self.sentences / max(1, self.batches) / samples
        if size * samples <= max_rows:
            return None
        several = f" with {samples} samples" if samples > 1 else ""
        smaller = "" if samples > 1 else f"--batch-size {max_rows}, or "
        return (
            f"Hardly anything was drafted: batches had {size:.0f} sentences{several}, and nothing "
            f"is drafted while more than {max_rows} of them still run. Give {smaller}"
            "--draft-rows 0 to draft always."
        )

    def lines(self) -> List[str]:
        """The summary, a line each; none before anything was decoded."""
        if self.tokens == 0 or self.seconds["total"] == 0:
            return []
        return [*self._counts(), self._times()]

    def _counts(self) -> List[str]:
        lines = [
            f"{counted(self.sentences, 'sentence')}, {counted(self.tokens, 'token')}, "
            f"{counted(self.iterations, 'iteration')}: {self.accepted_tokens:.2f} "
            "accepted tokens an iteration"
        ]
        shares = self.acceptance_by_position()
        if shares:
            lines.append(
                "accepted by position in the block: "
                + " ".join(f"{number}:{100 * share:.0f}%" for number, share in enumerate(shares, 1))
            )
        if self.certified:
            lines.append(
                f"certified projection: one symbol in question at "
                f"{100 * self.certain / self.certified:.1f}% of {self.certified:,} positions, "
                f"{self.rescored / self.certified:.2f} on average"
            )
        if self.passes:
            lines.append(
                f"speculative beam search: {self.passes:,} passes took {self.drafted_steps:,} "
                f"steps, {self.drafted_steps / self.passes:.2f} each"
            )
        return lines

    def _times(self) -> str:
        total = self.seconds["total"]
        parts = {part: self.seconds[part] for part in PARTS}
        parts["rest"] = total - sum(parts.values())
        shares = (f"{part} {100 * spent / total:.0f}%" for part, spent in parts.items())
        return f"time {total:.2f} s: {', '.join(shares)}"


def counted(number: int, name: str) -> str:
    """A number of things, such as ``1 sentence``."""
    return f"{number:,} {name}" if number == 1 else f"{number:,} {name}s"


def _reaching(lengths: "Counter[int]", least: int) -> int:
    return sum(times for length, times in lengths.items() if length >= least)
