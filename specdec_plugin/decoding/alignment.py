"""The source tokens that finished hypotheses attended to (fairseq's ``--print-alignment``)."""

from typing import Any, Dict, List, Sequence

import torch
import torch.nn.functional as F
from fairseq.data.data_utils import collate_tokens
from fairseq.utils import extract_hard_alignment, extract_soft_alignment
from torch import Tensor

from ..engine.uncached_decoder import least_input
from ..errors import PluginError
from ..fairseq_compat.beams_of_models import one_beam, told_beams
from .state import Batch


class Aligner:
    """Aligns as fairseq's ``SequenceGeneratorWithAlignment``, with one pass for a whole batch.

    The cross-attention of the last layer, the mean of its heads, is what fairseq's search collects
    a token at a time. Models trained with ``--full-context-alignment`` attend to the whole
    hypothesis instead (Garg et al. 2019).

    Args:
        models: the verifiers, whose attention is averaged.
        kind: ``"soft"`` for probabilities; all else is ``"hard"``, as in fairseq.
        pad: the padding symbol.
        eos: the symbol that ends a sentence.
    """

    def __init__(self, models: Sequence[Any], kind: Any, pad: int, eos: int) -> None:
        self.models = models
        self.pad, self.eos = pad, eos
        self._extract = extract_soft_alignment if str(kind) == "soft" else extract_hard_alignment
        self._full_context = any(getattr(each, "full_context_alignment", False) for each in models)

    def align(self, batch: Batch, found: Sequence[Sequence[Dict[str, Any]]]) -> None:
        """Set ``alignment`` of hypotheses, and ``attention`` where it is that of the search.

        Args:
            batch: what was decoded.
            found: for each row its hypotheses, which have ``tokens`` (length,).
        """
        hypotheses = [each for row in found for each in row]
        if any(len(row) != 1 for row in found):
            counts = torch.tensor([len(row) for row in found])
            rows = torch.arange(len(found)).repeat_interleave(counts)
            batch = batch.repeated(self.models, rows.to(batch.device))
        tokens = [each["tokens"].to(batch.device) for each in hypotheses]
        previous = collate_tokens(tokens, self.pad, batch.bos, move_eos_to_beginning=True)
        targets = collate_tokens(tokens, self.pad).cpu()
        sources = batch.net_input["src_tokens"].cpu()
        attention = self._attention(batch, previous).cpu()
        for row, hypothesis in enumerate(hypotheses):
            own = attention[row]
            # (source, length), as fairseq has it: of each token, before its pairs are extracted.
            if not self._full_context:
                hypothesis["attention"] = own[: len(hypothesis["tokens"])].t().clone()
            hypothesis["alignment"] = self._extract(
                own, sources[row], targets[row], self.pad, self.eos
            )

    def _attention(self, batch: Batch, previous: Tensor) -> Tensor:
        """(rows, length, source) the mean over models of what each output token attended to."""
        found: List[Tensor] = []
        for model, encoder_out in zip(self.models, batch.encoder_outs):
            with one_beam(told_beams(model)):
                if self._full_context:
                    source = (batch.net_input[name] for name in ("src_tokens", "src_lengths"))
                    _, extra = model(*source, previous)
                else:
                    behind = max(0, least_input(model.decoder) - previous.size(1))
                    fed = F.pad(previous, (0, behind), value=self.pad)
                    _, extra = model.decoder(fed, encoder_out=encoder_out)
            found.append(_weights(extra)[:, : previous.size(1)])
        return torch.stack(found).mean(0) if len(found) > 1 else found[0]


def _weights(extra: Any) -> Tensor:
    """The attention beside a decoder's output: itself, or in a dictionary, or in a list in it."""
    extra = extra["attn"] if isinstance(extra, dict) else extra
    extra = extra[0] if isinstance(extra, (list, tuple)) else extra
    if not isinstance(extra, Tensor):
        raise PluginError(
            "--print-alignment needs attention weights, which this model does not give: leave it "
            "out."
        )
    return extra
