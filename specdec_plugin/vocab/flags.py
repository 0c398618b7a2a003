"""``--vocab-clusters`` and ``--drafter-vocab-clusters``: which clusters belong to which decoder."""

from typing import Any, Optional, Sequence

from torch import Tensor

from ..engine import CachedDecoder
from ..errors import PluginError
from ..fairseq_compat.search import search_with
from .cluster_file import check_clusters, load_clusters
from .clustered_projection import ClusteredProjection
from .clusters import Clusters


def verifier_clusters(
    path: Optional[str], models: Sequence[Any], dictionary: Any
) -> Optional[Clusters]:
    """What ``--vocab-clusters`` names for the models in ``--path``; None for nothing.

    Raises:
        PluginError: the file or the models cannot be used for it.
    """
    if path is None:
        return None
    if len(models) > 1:
        raise PluginError(
            f"--vocab-clusters {path} belongs to one model, and --path names {len(models)}: give "
            "one of them, or leave --vocab-clusters out."
        )
    reason = CachedDecoder.unsupported(models[0].decoder)
    if reason is not None:
        raise PluginError(
            f"--vocab-clusters {path} cannot be used with this model, because {reason}. Leave it "
            "out."
        )
    file = load_clusters(path)
    check_clusters(path, file, models[0].decoder, dictionary, "--vocab-clusters")
    return file.clusters


def drafter_clusters(
    path: Optional[str], decoder: Any, verifier: Any, dictionary: Any
) -> Optional[Clusters]:
    """What ``--drafter-vocab-clusters`` names; None for nothing.

    Args:
        path: the file, made of the drafter's states or of the verifier's.
        decoder: whose projection drafts.
        verifier: the verifier's decoder.
        dictionary: of the target.

    Raises:
        PluginError: the file is another model's.
    """
    if path is None:
        return None
    file = load_clusters(path)
    check_clusters(path, file, decoder, dictionary, "--drafter-vocab-clusters", [verifier])
    return file.clusters


def cluster_search(generator: Any, decoder: Any, clusters: Clusters) -> Any:
    """Let one search of fairseq's project by clusters; others use the decoder unchanged.

    Returns:
        the generator, which is changed.
    """
    module = decoder.output_projection
    # What enters the module has gone through a first head already.
    projection = ClusteredProjection(clusters, decoder)

    def forward(features: Tensor) -> Tensor:
        return projection.scores(features).values.to(features.dtype)

    return search_with(generator, module, forward, before=projection.refresh)
