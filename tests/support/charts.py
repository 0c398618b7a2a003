"""Charts without a model."""

import torch

from specdec_plugin.lab.viz.chart import Reader, jacobi_chart, speculation_chart
from specdec_plugin.lab.viz.kinds import Kind
from specdec_plugin.lab.viz.record import Recording
from specdec_plugin.lab.viz.speculation import Drafted, Iteration


class Symbols:
    """As much of fairseq's dictionary as is read."""

    nspecial, eos_word = 4, "</s>"

    def __init__(self, words):
        self.symbols = ["<s>", "<pad>", "</s>", "<unk>", *words]

    def __getitem__(self, index):
        return self.symbols[index]

    def eos(self):
        return 2

    def pad(self):
        return 1


def jacobi(words, source=("▁one",), name="sentence-0"):
    """The words, the first alone, then two at a time; before they settle, the word to their left.

    Args:
        words: symbols of the output.
        source: symbols of the source.
    """
    output = [*range(4, 4 + len(words)), 2]
    settled = [1 + (place + 1) // 2 for place in range(len(output))]
    tokens = [
        [token if when <= t else output[place - 1]
         for place, (token, when) in enumerate(zip(output, settled, strict=True))]
        for t in range(1, max(settled) + 1)
    ]  # fmt: skip
    chances = torch.linspace(0.05, 1, len(tokens) * len(output)).view(len(tokens), -1)
    recording = Recording(torch.tensor(tokens), chances)
    reader = Reader(Symbols(source), Symbols(words))
    return jacobi_chart(name, [*range(4, 4 + len(source)), 2], recording, reader)


def speculation():
    """Two iterations with every kind of token."""
    words = ["▁uno", "▁dos", "▁tres", "▁otro"]
    first = [
        Drafted(4, Kind.ACCEPTED, 0.9),
        Drafted(5, Kind.TOP_BETA, 0.3),
        Drafted(7, Kind.BIFURCATION, 0.1),
        Drafted(7, Kind.DISCARDED, None),
    ]
    second = [Drafted(2, Kind.ACCEPTED, 0.8), *[Drafted(2, Kind.DISCARDED, None)] * 2]
    iterations = [Iteration(0, first, [4, 5, 6], 0.7), Iteration(3, second, [2], None)]
    return speculation_chart(
        "sentence-1", [4, 2], iterations, Reader(Symbols(words), Symbols(words))
    )
