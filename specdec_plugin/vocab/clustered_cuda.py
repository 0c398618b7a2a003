"""The clustered projection in three kernels of Triton, for CUDA devices."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..engine.fused.projection import combined
from ..engine.triton_kernels import power, supports, tried
from .clusters import Clusters

#: Bytes of a line that are read at a time: 16 of each thread of a warp.
_CHUNK = 512
#: Weights that a program reads at a time: 64 registers a thread, which hide the memory's latency.
_WEIGHTS = 2048
#: Centroids of a program.
_CENTROIDS = 8
#: States of a program that looks for centroids, from so many states on.
_GROUP, _GROUPED_FROM = 4, 17
#: Programs that score tokens, and the least and the most of them for a state.
_PROGRAMS, _LEAST, _MOST = 8192, 64, 1024
#: Numbers that are filled at a time.
_FILL = 1024


def kernels_of(
    weight: Tensor, bias: Optional[Tensor], clusters: Clusters
) -> "Optional[CudaClusters]":
    """The projection in kernels, tried once; None where they do not run.

    Args:
        weight: (vocabulary, dim), on the device to run on.
        bias: (vocabulary,) or None.
        clusters: of the states that come.
    """
    if not supports(weight):
        return None

    def make() -> CudaClusters:
        found = CudaClusters(weight, bias, clusters)
        found.best(weight.new_zeros(1, weight.size(1)), 1.0, -1)
        return found

    return tried("The clustered projection", make)


class CudaClusters:
    """Scores the active tokens of each state's cluster, in float32 whatever the weights' type.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        weight: (vocabulary, dim), of :data:`.TYPES`.
        bias: (vocabulary,) or None.
        clusters: of the states that come.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor], clusters: Clusters) -> None:
        from . import cluster_kernels

        self._kernels: Any = cluster_kernels
        device = weight.device
        self._weight = weight.contiguous()
        self._bias = None if bias is None else bias.contiguous()
        # The centroids are in float16, which float32 has all numbers of.
        self._centroids = clusters.centroids.to(device).contiguous()
        self._norms = clusters.norms.to(device, torch.float32).contiguous()
        self._offsets = clusters.offsets.to(device).contiguous()
        self._tokens = clusters.tokens.to(device).contiguous()
        self._vocabulary, self._width = clusters.vocabulary, weight.size(1)
        self._clusters, self._largest = clusters.size, clusters.largest
        self._sizes = self._width, self._clusters, self._vocabulary
        self._block = min(32, max(2, _WEIGHTS // power(self._width)))
        self._candidates = -(-self._clusters // _CENTROIDS)

    def scores(self, inputs: Tensor, suppressed_id: int) -> Tuple[Tensor, Tensor]:
        """See :meth:`.ClusteredLinear.scores`."""
        out = self._new(inputs, inputs.size(0), self._vocabulary)
        return out, self._run(inputs, out, 1.0, suppressed_id)[2]

    def best(self, inputs: Tensor, temperature: float, suppressed_id: int) -> Tuple[Tensor, Tensor]:
        """See :meth:`.ClusteredLinear.best`; nothing of the vocabulary's size is written."""
        return self._run(inputs, None, temperature, suppressed_id)[:2]

    def _run(
        self, inputs: Tensor, out: Optional[Tensor], temperature: float, suppressed_id: int
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """The best token of each row, its log-probability, and the normaliser, (rows,) each.

        Args:
            inputs: (rows, dim).
            out: (rows, vocabulary), which scores are written to, or None.
            temperature: divides the scores.
            suppressed_id: a token that is ruled out, or -1.
        """
        inputs = inputs.contiguous()
        with torch.cuda.device_of(inputs):  # Triton launches on the current device.
            nearest = self._nearest(inputs, out)
            found = self._scored(inputs, nearest, out, 1.0 / temperature, suppressed_id)
        return combined(*found, self._vocabulary)

    def _nearest(self, inputs: Tensor, out: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """The nearest centroid of each part, and its distance, (rows, parts) each.

        Args:
            inputs: (rows, dim).
            out: (rows, vocabulary), which is filled with -inf, or None.
        """
        rows = inputs.size(0)
        distances = self._new(inputs, rows, self._candidates)
        owners = torch.empty_like(distances, dtype=torch.int32)
        group = 1 if rows < _GROUPED_FROM else _GROUP
        self._kernels.nearest_of_parts[-(-rows // group), self._candidates](
            inputs,
            self._centroids,
            self._norms,
            distances,
            owners,
            out,
            rows,
            group,
            *self._sizes,
            self._chunk_of(self._centroids),
            _CENTROIDS,
            0 if out is None else _FILL,
            num_warps=1,
        )
        return distances, owners

    def _scored(
        self,
        inputs: Tensor,
        nearest: Tuple[Tensor, Tensor],
        out: Optional[Tensor],
        scale: float,
        suppressed_id: int,
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """What :func:`.combined` takes of the active tokens of each row, by parts.

        Args:
            inputs: (rows, dim).
            nearest: see :meth:`_nearest`.
            out: (rows, vocabulary), which scores are written to, or None.
            scale: multiplies the scores.
            suppressed_id: a token that is ruled out, or -1.
        """
        rows, parts = inputs.size(0), self._parts(inputs.size(0))
        # Each has a tensor of its own: what Triton compiles depends on where a tensor begins.
        tops, totals, bests = (self._new(inputs, rows, parts) for _ in range(3))
        choices = torch.empty_like(tops, dtype=torch.int32)
        self._kernels.score_parts[rows, parts](
            inputs,
            self._weight,
            self._bias,
            self._offsets,
            self._tokens,
            *nearest,
            out,
            tops,
            totals,
            bests,
            choices,
            scale,
            suppressed_id,
            *self._sizes,
            self._chunk_of(self._weight),
            self._block,
            self._candidates,
            power(self._candidates),
            self._bias is not None,
            out is not None,
            num_warps=1,
        )
        return tops, totals, bests, choices

    def _parts(self, rows: int) -> int:
        """Programs that share the tokens of a row."""
        wanted = min(_MOST, max(_LEAST, _PROGRAMS // max(1, rows)))
        return min(wanted, -(-self._largest // self._block))

    def _chunk_of(self, matrix: Tensor) -> int:
        """Numbers of its lines that are read at a time."""
        return min(_CHUNK // matrix.element_size(), max(16, power(self._width)))

    @staticmethod
    def _new(inputs: Tensor, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=inputs.device)
