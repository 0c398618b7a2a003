"""Floating point operations a sentence, by a formula.

Only matrix products are counted; see :mod:`...decoding.operations`. The symbols are these:

- W: the weights of a stack of layers, without those for keys and values of the source.
- D: four times the sum of the layers' widths. It stands for scores and sums of attention, for each
  position that is attended to.
- R: the weights for keys and values of the source.
- P: the weights of the projection.
- S: the source tokens of a sentence, its end included.

A sentence costs

- *encoder*: S (2 W + D S), of the encoder's layers;
- *verifier*: 2 R S + F (2 W + D (A + S)), of the decoder's layers, for F tokens that it is fed: one
  an iteration, and every drafted one. Beam search feeds one token for each beam and step, and has
  as many steps as its longest hypothesis has tokens. fairseq's projects the source for each beam;
- *projection*: 2 P F;
- *drafter*: the ``cost`` of the method.

A is the number of output positions that a token attends to. It is taken as (tokens + 1) / 2, the
mean of greedy decoding. In batches, S and A are means of the batch. Padding and training are left
out. So are symbols that float32 scores again behind a rounded projection, some sixty of the
vocabulary. (Santilli et al., 2023, Table 3 and appendix C, report operations, too.)
"""

from typing import Any, Dict, Mapping, Optional, Sequence

from fairseq.models.transformer import TransformerEncoderBase

from ...api import Session
from ...decoding.operations import Work, decoder_of, encode
from ...decoding.statistics import PARTS, Statistics
from ...engine import CachedDecoder
from .methods import Method
from .report import Row, table
from .timing import Timing

#: Operations by part, of :data:`PARTS`.
Operations = Dict[str, float]


def gflops(
    session: Session,
    methods: Sequence[Method],
    timings: Mapping[str, Timing],
    batches: Sequence[Any],
) -> Dict[str, Operations]:
    """10⁹ operations a sentence, by method and part.

    Args:
        session: has the verifiers.
        methods: what was timed.
        timings: by method, with the statistics of each batch.
        batches: fairseq's.

    Returns:
        the parts, and their sum as ``total``. Methods that score only a part of the vocabulary, and
        drafts of beam search, whose passes verify trees, are left out. It is {} for models without
        a formula.
    """
    if not all(map(_has_formula, session.models)):
        return {}
    lengths = [batch["net_input"]["src_lengths"].tolist() for batch in batches]
    sentences = sum(map(len, lengths))
    found: Dict[str, Operations] = {}
    for method in methods:
        own = timings[method.name].statistics
        if method.partial or any(each.passes for each in own):
            continue  # what is computed depends on the states, or on the trees
        spent = dict.fromkeys(PARTS, 0.0)
        for each, statistics in zip(lengths, own):
            for part, amount in operations(method, session.models, each, statistics).items():
                spent[part] += amount / sentences / 1e9
        found[method.name] = {**spent, "total": sum(spent.values())}
    return found


def _has_formula(model: Any) -> bool:
    transforms = isinstance(getattr(model, "encoder", None), TransformerEncoderBase)
    return transforms and CachedDecoder.unsupported(model.decoder) is None


def operations(
    method: Method, models: Sequence[Any], lengths: Sequence[int], statistics: Statistics
) -> Operations:
    """Operations of one batch by part.

    Args:
        method: who decoded.
        models: the verifiers.
        lengths: of the sources, ends of sentences included.
        statistics: the batch's counters.
    """
    work, own = Work(models, lengths, statistics), method.method
    found = dict.fromkeys(PARTS, 0.0)
    found["encoder"] = sum(encode(model.encoder, lengths) for model in models)
    if own is None or own.verifies:
        search = method.generator if own is None else method.generator.loop
        beam = getattr(search, "beam_size", 1)
        fed = statistics.iterations + work.drafted
        for decoder in [decoder_of(model.decoder) for model in models]:
            found["verifier"] += (beam if own is None else 1) * decoder.source * sum(lengths)
            found["verifier"] += beam * decoder.layers.run(fed, work.positions + work.source)
            found["projection"] += beam * decoder.projection * fed
    if own is not None:
        drafter = getattr(method.generator.loop, "drafter", None)
        found["drafter"] = 0.0 if drafter is None else drafter.cost(work)
    return found


#: Operations are divided by the speed-up over the first of these that was timed.
_BASES = ("greedy", "fairseq beam 1", "fairseq beam 5")


def flops_table(rows: Sequence[Row]) -> Optional[str]:
    """GFLOPs a sentence by part, and divided by the speed-up; None where there is no formula."""
    counted = [row for row in rows if "GFLOPs a sentence" in row]
    if not counted:
        return None
    base = next((name for name in _BASES if any(row["method"] == name for row in rows)), None)
    head = [] if base is None else [f"total ÷ speed-up over {base}"]
    cells = []
    for row in counted:
        spent = row["GFLOPs a sentence"]
        line = [row["method"], *(f"{spent[name]:.3g}" for name in (*PARTS, "total"))]
        if base is not None:
            line.append(f"{spent['total'] / row[f'median speed-up over {base}']:.3g}")
        cells.append(line)
    return table(["GFLOPs a sentence", *PARTS, "total", *head], cells) + "\n\n" + FLOPS_NOTE


FLOPS_NOTE = (
    "GFLOPs: 10⁹ operations in matrix products, two a weight, whatever the type of the weights. "
    "Encoder: S (2 W + D S), for S source tokens, W weights of the layers, D four times the sum of "
    "their widths. Verifier: 2 R S + F (2 W + D (A + S)), for R weights for keys and values of the "
    "source, F tokens fed (iterations and drafted tokens; beam search: beam × steps; "
    "fairseq's has beam times R), A = (output tokens + 1) / 2 output positions attended to on "
    "average. Projection: 2 F times its weights. Drafter: the same for what it is fed. Padding and "
    "training are left out."
)
