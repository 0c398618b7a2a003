"""The source tokens that finished hypotheses attended to (fairseq's ``--print-alignment``)."""

from typing import Any, Dict, List, Optional, Sequence

import torch
import torch.nn.functional as F
from fairseq.data.data_utils import collate_tokens
from fairseq.utils import extract_hard_alignment, extract_soft_alignment
from torch import Tensor

from ..engine.uncached_decoder import least_input
from ..errors import PluginError
from ..fairseq_compat.beams_of_models import one_beam, told_beams
from .state import Batch

#: Numbers that a pass may make. Decoders score all symbols at all positions, though nobody asks.
_LOGITS = 1 << 26


class Aligner:
    """Aligns as fairseq's ``SequenceGeneratorWithAlignment``, many hypotheses in a pass.

    The cross-attention of the last layer, the mean of its heads, is what fairseq's search collects
    a token at a time. Models trained with ``--full-context-alignment`` attend to the whole
    hypothesis instead (Garg et al. 2019).

    Args:
        models: the verifiers, whose attention is averaged.
        kind: ``"soft"`` for probabilities; all else is ``"hard"``, as in fairseq.
        pad: the padding symbol.
        eos: the symbol that ends a sentence.
        symbols: how many there are.
    """

    def __init__(self, models: Sequence[Any], kind: Any, pad: int, eos: int, symbols: int) -> None:
        self.models, self._symbols = models, symbols
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
        owners = [row for row, own in enumerate(found) for _ in own]
        rows = torch.tensor(owners, device=batch.device)
        tokens = [each["tokens"].to(batch.device) for each in hypotheses]
        previous = collate_tokens(tokens, self.pad, batch.bos, move_eos_to_beginning=True)
        # Together, as each transfer from a GPU waits for it.
        targets = collate_tokens(tokens, self.pad).cpu()
        sources = batch.net_input["src_tokens"].cpu()
        most = max(1, _LOGITS // (previous.size(1) * self._symbols))
        for first in range(0, len(hypotheses), most):
            part = slice(first, first + most)
            whole = len(hypotheses) == len(found) <= most
            own = batch if whole else batch.repeated(self.models, rows[part])
            attention = self._attention(own, previous[part]).cpu()
            for number, weights in enumerate(attention, first):
                self._align(hypotheses[number], weights, sources[owners[number]], targets[number])

    def _align(
        self, hypothesis: Dict[str, Any], weights: Tensor, source: Tensor, target: Tensor
    ) -> None:
        """Align one hypothesis.

        Args:
            hypothesis: gets what is found.
            weights: (length, source) what each of its tokens attended to.
            source: (source,) padded.
            target: (length,) padded.
        """
        # (source, length), as fairseq has it: of each token, before its pairs are extracted.
        if not self._full_context:
            hypothesis["attention"] = weights[: len(hypothesis["tokens"])].t().clone()
        hypothesis["alignment"] = self._extract(weights, source, target, self.pad, self.eos)

    def _attention(self, batch: Batch, previous: Tensor) -> Tensor:
        """(rows, length, source) the mean over models of what each output token attended to.

        A model without attention counts as one that attends to nothing, as in fairseq.

        Raises:
            PluginError: no model gives attention.
        """
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
            weights = _weights(extra)
            if weights is not None:
                found.append(weights[:, : previous.size(1)])
        if not found:
            raise PluginError(
                "--print-alignment needs attention weights, which this model does not give: leave "
                "it out."
            )
        return torch.stack(found).sum(0) / len(self.models) if len(self.models) > 1 else found[0]


def _weights(extra: Any) -> Optional[Tensor]:
    """The attention beside a decoder's output: itself, or in a dictionary, or in a list in it."""
    extra = extra["attn"] if isinstance(extra, dict) else extra
    extra = extra[0] if isinstance(extra, (list, tuple)) else extra
    return extra if isinstance(extra, Tensor) else None
