"""SARI, the metric of text simplification: are the right n-grams kept, deleted and added?

Wei Xu, Courtney Napoles, Ellie Pavlick, Quanze Chen and Chris Callison-Burch (2016):
Optimizing Statistical Machine Translation for Text Simplification.  For n-grams of 1 to 4
tokens, what the hypothesis kept, deleted and added is compared with what the references did.
SARI is the mean of F1 for what is kept, precision for what is deleted, and F1 for what is added.

Two ways to get from sentences to a corpus are in use:

* ``corpus``: n-grams are counted over the whole corpus, as BLEU does.  This is what EASSE does
  (Alva-Manchego et al. 2019), with which most papers evaluate today.  Unless told not to, EASSE
  also takes F1 for deletions (here ``deletion="f1"``), lowercases and tokenises; here the
  sentences come tokenised.
* ``sentence``: the mean of the sentences' scores, as in the original program.  There, precision
  and recall are means over n-gram types, and 0 divided by 0 is 0.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Counter as CounterType
from typing import Dict, List, Sequence

import numpy as np

from .annotators import ratio
from .ngrams import NGram, ngram_counts

Tokens = Sequence[str]
ORDER = 4
OPERATIONS = ("keep", "delete", "add")


def operations(
    source: Tokens, hypothesis: Tokens, references: Sequence[Tokens], n: int
) -> List[List[CounterType[NGram]]]:
    """For each operation the n-grams done, wanted, and done as wanted.

    An n-gram that half of the references keep is half to be kept.  To stay with whole
    numbers, source and hypothesis count as often as there are references.  Additions are
    a matter of yes or no: whether any reference has the n-gram.
    """
    times = len(references)
    before = Counter({gram: times * k for gram, k in ngram_counts(source, n).items()})
    after = Counter({gram: times * k for gram, k in ngram_counts(hypothesis, n).items()})
    wanted: CounterType[NGram] = Counter()
    for reference in references:
        wanted.update(ngram_counts(reference, n))
    kept, to_keep = before & after, before & wanted
    deleted, to_delete = before - after, before - wanted
    added, to_add = Counter({*after} - {*before}), Counter({*wanted} - {*before})
    return [
        [done, asked, done & asked]
        for done, asked in ((kept, to_keep), (deleted, to_delete), (added, to_add))
    ]


def corpus_statistics(done: Sequence[CounterType[NGram]]) -> List[float]:
    """Statistics of an operation that a corpus sums: n-grams right, done, right, wanted."""
    did, wanted, right = (sum(each.values()) for each in done)
    return [right, did, right, wanted]


def sentence_statistics(done: Sequence[CounterType[NGram]]) -> List[float]:
    """The same four for a sentence by itself, where every n-gram type has the same weight."""
    did, wanted, right = done
    of_done = sum(count / did[gram] for gram, count in right.items())
    of_wanted = sum(count / wanted[gram] for gram, count in right.items())
    return [of_done, len(did), of_wanted, len(wanted)]


def operation_scores(statistics: np.ndarray, deletion: str) -> np.ndarray:
    """The scores of the operations, from 0 to 1.

    Args:
        statistics: (…, operations, n, 4) of one of the two functions above.
        deletion: ``precision`` or ``f1``.

    Returns:
        (…, operations), means over n.
    """
    right_of_done, done, right_of_wanted, wanted = np.moveaxis(statistics, -1, 0)
    precision = ratio(right_of_done, done, nothing=0.0)
    recall = ratio(right_of_wanted, wanted, nothing=0.0)
    score = ratio(2 * precision * recall, precision + recall, nothing=0.0)
    if deletion == "precision":
        delete = OPERATIONS.index("delete")
        score[..., delete, :] = precision[..., delete, :]
    mean: np.ndarray = score.mean(-1)
    return mean


@dataclass
class Sari:
    """Statistics of every sentence.

    Attributes:
        statistics: (sentences, operations, n, 4).
        average: ``corpus`` or ``sentence``, see above.
        deletion: ``precision`` or ``f1``.
    """

    statistics: np.ndarray
    average: str
    deletion: str

    @classmethod
    def of(
        cls,
        sources: Sequence[Tokens],
        hypotheses: Sequence[Tokens],
        references: Sequence[Sequence[Tokens]],
        average: str = "corpus",
        deletion: str = "precision",
    ) -> "Sari":
        """From tokenised sentences; ``references`` are the sentences of each reference."""
        count = corpus_statistics if average == "corpus" else sentence_statistics
        statistics = np.zeros((len(sources), len(OPERATIONS), ORDER, 4))
        for row, (source, hypothesis, *wanted) in enumerate(zip(sources, hypotheses, *references)):
            for n in range(1, ORDER + 1):
                done = operations(source, hypothesis, wanted, n)
                statistics[row, :, n - 1] = [count(operation) for operation in done]
        return cls(statistics, average, deletion)

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """SARI and the scores that it is the mean of, in percent.

        Args:
            samples: (samples, sentences) the sentences of each sample.

        Returns:
            four scores by name, each (samples,).
        """
        if self.average == "sentence":
            each = operation_scores(self.statistics, self.deletion)  # (sentences, operations)
            scores = np.stack([each[sample].mean(0) for sample in samples])
        else:
            sums = np.stack([self.statistics[sample].sum(0) for sample in samples])
            scores = operation_scores(sums, self.deletion)
        named = {"SARI": scores.mean(-1)}
        named.update((f"SARI {name}", scores[:, row]) for row, name in enumerate(OPERATIONS))
        return {name: 100 * score for name, score in named.items()}
