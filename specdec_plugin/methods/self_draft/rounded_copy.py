"""The verifier's decoder with rounded weights, which drafts into the verifier's own cache."""

from typing import Optional

import torch

from ...decoding.verifier import Verifier
from ...engine import CachedDecoder
from ...engine.native import WEIGHT_TYPES
from ...errors import PluginError
from ...vocab.clustered_projection import projection_by
from ...vocab.clusters import Clusters

_NO_KERNELS = (
    "Without --drafter-path, --decoding specdec drafts with a rounded copy of the model itself, "
    "which only the native kernels can run (on a CPU, with a C++ compiler, for a plain "
    "Transformer)."
)


class CannotDraftError(PluginError):
    """The kernels cannot run a rounded copy of the model here.

    Args:
        cause: a sentence.
        cure: another one.

    Attributes:
        cause: as given.
    """

    def __init__(
        self,
        cause: str,
        cure: str = "Add --drafter-path DRAFTER.pt, or use --decoding greedy.",
    ) -> None:
        super().__init__(f"{cause} {cure}")
        self.cause = cause


def rounded_copy(
    verifier: Verifier, dtype: torch.dtype, clusters: Optional[Clusters] = None
) -> CachedDecoder:
    """Copy a verifier's decoder in another type of weights.

    Args:
        verifier: whose first model is copied. Its states are the copy's, too.
        dtype: the type of the copy's weights; those of a projection by clusters have 8 bits. A
            verifier's prefilter has 8 bits, too. To share it saves memory and costs speed.
        clusters: of the verifier's states, for the copy's projection; None for a full one.

    Raises:
        CannotDraftError: the kernels cannot run the verifier's decoder here.
        PluginError: they have no such type.
    """
    if dtype not in WEIGHT_TYPES:
        raise PluginError(
            f"--drafter-dtype {str(dtype).removeprefix('torch.')}: without --drafter-path, "
            "give float32, bfloat16, int8 or int4, or leave it out."
        )
    engine = verifier.engines[0]
    if not isinstance(engine, CachedDecoder) or engine.backend.static:
        raise CannotDraftError(_NO_KERNELS)
    project = projection_by(clusters)
    copy = CachedDecoder(engine.decoder, dtype, project, engine.backend, begins=False)
    check_shares(copy, engine)
    return copy


def check_shares(copy: CachedDecoder, engine: CachedDecoder) -> None:
    """Refuse a copy that cannot draft into the cache of the decoder that was copied.

    Raises:
        CannotDraftError: it tells why.
    """
    projection = copy.projection
    scored = projection.native is not None or projection.shortlist is not None
    if copy.on_torch is not None or not scored:
        raise CannotDraftError(_NO_KERNELS)
    if engine.on_torch is not None:
        own = str(engine.dtype).removeprefix("torch.")
        raise CannotDraftError(
            "Without --drafter-path, --decoding specdec drafts into the cache of the model, "
            f"which cannot be shared in {own}: leave out --fp16 and --verifier-dtype {own} "
            "(bfloat16 can be shared).",
            "Or add --drafter-path DRAFTER.pt, or use --decoding greedy.",
        )
