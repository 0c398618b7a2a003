"""What all have in common that use the faster of several arms, and try the others now and then.

What an arm costs changes with the text and with the other work of the machine. So this is a bandit
problem whose arms change: a trial explores, and what it loses is regret. As in the conservative
bandits of Wu et al. (2016, figure 1), the time that is spent adds to a budget. A trial begins only
where the budget can pay for what it is expected to lose.
"""

#: The share of the time that trials may lose.
SHARE = 0.005
#: A trial that lost is repeated half as often as the one before, so many times.
RARER = 3
#: An arm that is measured as the settled one is has to take at most this share of its time. Two
#: measurements of one arm differ by some percent, too.
CLEARLY = 0.95


class Explorer:
    """Keeps what trials lose to a small share of the time.

    Attributes:
        spent: seconds that were measured.
        lost: seconds that trials took beyond what the settled arm needs for the same tokens.
    """

    spent: float
    lost: float

    def forget(self) -> None:
        """Forget what was measured."""
        self.spent = self.lost = 0.0

    def budget(self, grace: float = 0.0) -> float:
        """Seconds that trials may lose now; ``grace`` is what they may lose beyond their share."""
        return grace + SHARE * self.spent - self.lost

    def lose(self, seconds: float) -> None:
        """Note what a trial lost; nothing if it was faster."""
        self.lost += max(0.0, seconds)

    def forgive(self) -> None:
        """Forget what was lost beyond the share."""
        self.lost = min(self.lost, SHARE * self.spent)


def pause(loss: float, failures: int) -> float:
    """Seconds until an arm is tried again: their share pays for the loss.

    Args:
        loss: seconds that the trial lost.
        failures: trials of the arm before it that lost, too. Each doubles the pause.
    """
    return 2.0 ** min(failures, RARER) * loss / SHARE


class SourceLengths:
    """Notices when sources are far longer than all before.

    Text is often sorted by length. What drafts cost in the shortest sentences tells little about
    longer ones, where a drafter that has read the source drafts many times.
    """

    def __init__(self) -> None:
        self._longest = 0

    def far_longer(self, length: int) -> bool:
        """Whether these sources are twice as long as all that this was true of before."""
        if length < 2 * self._longest:
            return False
        known, self._longest = self._longest > 0, length
        return known
