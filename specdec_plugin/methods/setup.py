"""What a method is built from: flags, task, models and verifier."""

import functools
import logging
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence, Tuple

import torch

from ..decoding.lengths import Lengths
from ..decoding.statistics import Statistics
from ..decoding.symbols import Symbols
from ..decoding.verifier import Verifier
from ..engine import Backend
from ..errors import PluginError
from ..fairseq_compat.pairing import load_model
from ..vocab.clusters import Clusters
from ..vocab.flags import drafter_clusters

logger = logging.getLogger(__name__)

#: With more rows, a pass over drafts costs more than it saves: at 2 rows SpecDec had 0.80 of
#: greedy's speed, at 4 rows 0.70 (3+3 layers, d=256, 2 cores).
_ROWS_ON_CPU = 1


@dataclass
class Setup:
    """What a method is built from.

    Attributes:
        cfg: the flags, with the fields of :func:`.registry.config_class`.
        task: fairseq's task, for its dictionaries.
        models: the verifiers.
        statistics: the generator's counters.
        eos: the symbol that ends a sentence.
        backend: who computes.
        lengths: fairseq's length options.
        generation: fairseq's generation options.
    """

    cfg: Any
    task: Any
    models: Sequence[Any]
    statistics: Statistics
    eos: int
    backend: Backend
    lengths: Lengths = field(default_factory=Lengths)
    generation: Any = None
    _verifier: Optional[Verifier] = None

    @property
    def verifier(self) -> Verifier:
        """Runs the models, for a method that verifies."""
        assert self._verifier is not None, "The method verifies nothing."
        return self._verifier

    @verifier.setter
    def verifier(self, verifier: Verifier) -> None:
        self._verifier = verifier

    @property
    def on_cpu(self) -> bool:
        """Whether the first model is on a CPU."""
        return bool(next(self.models[0].parameters()).device.type == "cpu")

    @property
    def drafter_dtype(self) -> Optional[torch.dtype]:
        """What ``--drafter-dtype`` names."""
        return dtype_of(self.cfg.drafter_dtype)

    @property
    def usual_rows(self) -> Optional[int]:
        """Unfinished rows up to which drafts pay on the models' device; None: any number."""
        return _ROWS_ON_CPU if self.on_cpu else None

    def draft_rows(self, default: Optional[int]) -> Optional[int]:
        """What ``--draft-rows`` names, or a method's own default; None: any number of rows."""
        wanted: int = self.cfg.draft_rows
        return default if wanted < 0 else wanted or None

    @property
    def dictionaries(self) -> Tuple[Any, Any]:
        """Of the source and the target; None for a source of speech."""
        return self.task.source_dictionary, self.task.target_dictionary

    @functools.cached_property
    def drafter_model(self) -> Any:
        """The model in ``--drafter-path``, which is read once, on the CPU in float32."""
        return load_model(self.cfg.drafter_path, *self.dictionaries)

    def symbols(self) -> Symbols:
        """What source and target dictionaries have in common.

        Raises:
            PluginError: the source is no text.
        """
        if self.task.source_dictionary is None:
            raise PluginError(
                f"--decoding {self.cfg.decoding} reads the source as text, which is speech here: "
                "use --decoding auto, beam, blockwise, greedy or specdec."
            )
        return Symbols.of(*self.dictionaries, self.eos)

    def drafter_clusters(self, drafter: Any) -> Optional[Clusters]:
        """What ``--drafter-vocab-clusters`` names, for a drafter with this model's projection."""
        path, target = self.cfg.drafter_vocab_clusters, self.task.target_dictionary
        return drafter_clusters(path, drafter.decoder, self.models[0].decoder, target)


def dtype_of(name: Any) -> Optional[torch.dtype]:
    """PyTorch's type of this name; None for None."""
    return None if name is None else getattr(torch, str(name))


def warn_of_drafter_dtype(setup: Setup) -> None:
    """Warn that ``--drafter-dtype`` cannot be kept here."""
    logger.warning(
        f"--drafter-dtype {setup.cfg.drafter_dtype} needs a CPU and the native kernels, which are "
        "missing here: the drafter computes in its model's own type, which is slower. On a CPU, "
        "install a C++ compiler; elsewhere, leave --drafter-dtype out or give bfloat16."
    )
