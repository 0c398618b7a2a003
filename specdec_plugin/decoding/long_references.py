"""References that are longer than a model's table of positions: their beginnings are scored."""

import logging
import sys
from typing import Any, Dict, List, Sequence

import torch
from fairseq import utils

from ..engine.uncached_decoder import positions_of

logger = logging.getLogger(__name__)


class LongReferences:
    """A scorer of references that is given no longer ones than the models take.

    fairseq's would look for positions behind the end of a table.

    Args:
        scorer: fairseq's, or a :class:`.ReferenceScorer`.
        most: positions, at least 1.
        pad: fills targets.

    Attributes:
        eos: the symbol that ends a target.
        symbols_to_strip_from_output: what is not printed.
    """

    def __init__(self, scorer: Any, most: int, pad: int) -> None:
        self._scorer, self._most, self._pad = scorer, most, pad
        self.eos = scorer.eos
        self.symbols_to_strip_from_output = scorer.symbols_to_strip_from_output

    @classmethod
    def around(cls, scorer: Any, models: Sequence[Any], pad: int) -> Any:
        """The scorer of some models, which is this class's where a table of positions ends."""
        most = min(positions_of(model.decoder) for model in models)
        return scorer if most == sys.maxsize else cls(scorer, most, pad)

    def generate(
        self, models: Sequence[Any], sample: Dict[str, Any], **given: Any
    ) -> List[List[Dict[str, Any]]]:
        """Score a batch, with a warning for each reference that is cut.

        Args:
            models: as given to the scorer.
            sample: fairseq's batch.
            given: other arguments of the scorer.
        """
        return self._scorer.generate(models, self._cut(sample), **given)

    def _cut(self, sample: Dict[str, Any]) -> Dict[str, Any]:
        target, most, pad = sample.get("target"), self._most, self._pad
        if target is None or target.size(1) <= most:
            return sample
        net_input = sample["net_input"]
        target, fed = (
            utils.convert_padding_direction(each, pad, left_to_right=True)
            for each in (target, net_input["prev_output_tokens"])
        )
        lengths = target.ne(pad).sum(1)
        for line, length in zip(sample["id"].tolist(), lengths.tolist()):
            if length > most:
                logger.warning(
                    f"line {line + 1:,}: the reference has {length:,} symbols and the model takes "
                    f"{most:,}; the score is that of its beginning."
                )
        # The end of a sentence stays.
        last = target.gather(1, (lengths - 1).clamp(min=0).unsqueeze(1))
        ends = torch.where(lengths.unsqueeze(1) > most, last, target[:, most - 1 : most])
        return {
            **sample,
            "target": torch.cat([target[:, : most - 1], ends], 1),
            "net_input": {**net_input, "prev_output_tokens": fed[:, :most]},
        }
