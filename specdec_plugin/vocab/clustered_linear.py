"""A vocabulary projection that computes only what is likely after a state (Amer et al., 2022)."""

import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..engine import Backend, choose_backend, native
from ..engine.linear import scores_by
from ..engine.native.interface import Header
from ..engine.weights import NativeObject
from .clustered_cuda import kernels_of
from .clusters import Clusters, distances

#: Gathered weights are read, written and read again, where a full product reads all of them once.
_GATHERING = 3

_CLUSTERED = (
    "(const float* weight, const float* bias, int vocabulary, int width, const float* centroids, "
    "const float* norms, int clusters, const int64_t* offsets, const int32_t* tokens)"
)
Header(__file__, "gather.h", f"Gather gather{_CLUSTERED}")
Header(__file__, "shortlist.h", f"Shortlist shortlist{_CLUSTERED}")


class ClusteredLinear:
    """``inputs @ weight.T + bias`` at the active tokens of each input's cluster, -inf elsewhere.

    Each input has the tokens of its own cluster alone, even where others were computed for its
    neighbours. So scores do not depend on the batch, the beam or the draft.
    On a CPU the kernels compute it, in float32 whatever type the weights were rounded to. On a
    CUDA device kernels of Triton do; see :class:`.CudaClusters`.

    Args:
        weight: (vocabulary, dim), in the type and on the device to run in.
        bias: (vocabulary,) or None.
        clusters: of the states that come.
        backend: who computes; ``None`` chooses. With a :class:`.TorchBackend`, Triton does not.

    Attributes:
        on_cuda: the kernels of Triton, where they compute it; else None.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Optional[Tensor],
        clusters: Clusters,
        backend: Optional[Backend] = None,
    ) -> None:
        self._vocabulary = clusters.vocabulary
        self._weight, self._bias, self._clusters = weight, bias, clusters
        self._gather: Optional[NativeObject] = None
        backend = backend or choose_backend(weight.device)
        self._on_torch = backend.unsupported(weight)
        self.on_cuda = kernels_of(weight, bias, clusters) if backend.static else None
        if self._on_torch is None or self.on_cuda is not None:
            return
        self._largest = clusters.largest
        device = weight.device
        self._centroids = clusters.centroids.to(device, torch.float32)
        self._norms = clusters.norms.to(device)
        self._begins = clusters.offsets[:-1].to(device)
        self._sizes = clusters.offsets.diff().to(device)
        self._tokens = clusters.tokens.to(device)

    @property
    def native(self) -> Optional[int]:
        """The kernels' handle, where they compute it; None where PyTorch does."""
        # The weights are packed when they are first wanted.
        if self._gather is None and self._on_torch is None:
            self._gather = native_clusters("gather", self._weight, self._bias, self._clusters)
        return None if self._gather is None else self._gather.handle

    def __call__(self, inputs: Tensor) -> Tensor:
        """(rows, dim) to (rows, vocabulary), float32."""
        return self.scores(inputs, -1)[0]

    def scores(self, inputs: Tensor, suppressed_id: int) -> Tuple[Tensor, Tensor]:
        """:meth:`__call__`, and the log of the sum of exponentials of each row, (rows,).

        Args:
            inputs: (rows, dim).
            suppressed_id: an output that is -inf afterwards, or -1.
        """
        if self.native is not None:
            run = native.library().gather_run
            return scores_by(run, self.native, inputs, self._vocabulary, suppressed_id)
        if self.on_cuda is not None:
            return self.on_cuda.scores(inputs, suppressed_id)
        active, values, normalisers = self._scored(inputs, 1.0)
        out = values.new_full((inputs.size(0), self._vocabulary), -math.inf)
        out.scatter_(1, active, values)
        if suppressed_id >= 0:
            out[:, suppressed_id] = -math.inf
        return out, normalisers

    def best(self, inputs: Tensor, temperature: float, suppressed_id: int) -> Tuple[Tensor, Tensor]:
        """The most probable token of each row, and its log-probability, (rows,) each.

        Of equal ones it is the first, as an argmax over :meth:`scores` finds. On a GPU nothing has
        the vocabulary's size. With kernels for a CPU, :meth:`scores` serves instead.

        Args:
            inputs: (rows, dim).
            temperature: divides the scores.
            suppressed_id: a token that is ruled out after normalisers are computed, or -1.
        """
        if self.on_cuda is not None:
            return self.on_cuda.best(inputs, temperature, suppressed_id)
        active, values, normalisers = self._scored(inputs, temperature)
        # The last token is repeated behind the others, and never found there.
        highest, index = values.masked_fill(active == suppressed_id, -math.inf).max(1)
        return active.gather(1, index.unsqueeze(1)).squeeze(1), highest - normalisers

    def _scored(self, inputs: Tensor, temperature: float) -> Tuple[Tensor, Tensor, Tensor]:
        """Active tokens and their scores, (rows, width) each, and normalisers; see :meth:`best`.

        The last token is repeated, and counts once.
        """
        own = distances(inputs.float(), self._centroids, self._norms).argmin(1)
        active, real = self._active(own)
        if _GATHERING * active.numel() < self._vocabulary:
            values = self._gathered(inputs, active)
        else:
            values = F.linear(inputs, self._weight, self._bias).float().gather(1, active)
        if temperature != 1.0:
            values = values / temperature
        return active, values, values.masked_fill(~real, -math.inf).logsumexp(1)

    def _active(self, own: Tensor) -> Tuple[Tensor, Tensor]:
        """The tokens of each row, the last one repeated, (rows, width); and where they are new."""
        sizes = self._sizes[own].unsqueeze(1)
        # Elsewhere the host would have to wait for the sizes.
        width = int(sizes.max()) if sizes.device.type == "cpu" else self._largest
        column = torch.arange(width, device=own.device)
        index = self._begins[own].unsqueeze(1) + torch.minimum(column, sizes - 1)
        return self._tokens[index].long(), column < sizes

    def _gathered(self, inputs: Tensor, active: Tensor) -> Tensor:
        """(rows, width) of these tokens alone."""
        rows, width = active.shape
        weights = self._weight.index_select(0, active.flatten()).view(rows, width, -1)
        values = torch.bmm(weights, inputs.unsqueeze(2)).squeeze(2).float()
        return values if self._bias is None else values + self._bias[active].float()


def native_clusters(
    name: str, weight: Tensor, bias: Optional[Tensor], clusters: Clusters
) -> NativeObject:
    """An object of the kernels that is made of weights and clusters.

    Args:
        name: ``gather`` or ``shortlist``.
        weight: (vocabulary, dim) that the kernels can read.
        bias: (vocabulary,) or None.
        clusters: of the states that come.
    """
    kept = clusters.offsets.contiguous(), clusters.tokens.contiguous()
    weight, centroids = native.float_weight(weight), native.float_weight(clusters.centroids)
    bias = None if bias is None else native.float_weight(bias)
    norms = native.float_weight(clusters.norms)
    return NativeObject(
        name,
        weight.data_ptr(),
        native.pointer(bias),
        *weight.shape,
        centroids.data_ptr(),
        norms.data_ptr(),
        clusters.size,
        *map(native.pointer, kept),
        reads=kept,
    )
