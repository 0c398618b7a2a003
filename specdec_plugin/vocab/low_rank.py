"""The best symbol after a state, found by a product of low rank.

A projection scores V symbols as W h, with weights W (V, d) and a state h (d).  Two factors W ≈ U D,
U (V, r) and D (r, d), score them roughly in about r / d of the time.  Symbols whose rough scores
are near the greatest one are then scored exactly (after Shim et al., SVD-softmax, NIPS 2017, who
take a fixed number of symbols).

Only errors at states that come matter (Chen et al., DRONE, NeurIPS 2021).  So the factors have the
least mean squared error over recorded states.  With M = E[h hᵀ] = L Lᵀ (Cholesky), that error is
|(W - U D) L|².  It is least for U = W L Q and D = Qᵀ L⁻¹, where Q has the r leading eigenvectors of
(W L)ᵀ W L.  What all symbols' scores have in common does not count, so the mean of W's rows is
subtracted.  M has a ridge, because the recorded states are not all.
"""

import ctypes
import logging
from typing import Optional, Tuple

import torch
from torch import Tensor

from ..engine import native
from ..engine.linear import NativeLinear
from ..engine.native import INT4
from ..engine.native.interface import Header, field, structure
from ..engine.output_projection import OutputProjection
from ..engine.threads import one_thread
from ..engine.weights import NotFiniteError, packing
from .state_sample import StateSample

logger = logging.getLogger(__name__)

#: Weights of a projection from which the factors save more than they cost.
LEAST_WEIGHTS = 1 << 22
#: What is tried, by the bytes of U: ranks in eighths of the dimension, and types of U's weights.
_TRIED = (
    (1, INT4), (2, INT4), (3, INT4), (2, torch.int8), (3, torch.int8), (4, torch.int8),
)  # fmt: skip
#: Of how many symbols one more than the best may be scored exactly, on average. It is read from
#: anywhere in memory, and packed weights have it in pieces.
_SYMBOLS_A_CANDIDATE = 1024
#: Of rough scores, how far one may be below the greatest one, relative to the largest such distance
#: at which the best symbol was seen; and at least, for states that were not.
_RESERVE, _LEAST_MARGIN = 2.0, 1.0
#: States that are recorded: at least so many, and so many for each number of a state. The factors
#: are fitted to three quarters of them, and the margin to others.
_STATES, _STATES_A_NUMBER = 1024, 2
#: Scores that are computed for the margin.
_SCORES = 1 << 25
#: Symbols whose weights are looked at to find the factors.
_SYMBOLS = 1 << 13
#: Is added to M, relative to the mean of its diagonal.
_RIDGE = 0.1
_FORM = "low rank"  # see `Weights.share`


@structure
class LowRankCall(ctypes.Structure):
    """What finds the best symbol after a state."""

    down = field("const Linear*", "D; or null: nothing does")
    up = field("const Linear*", "U with weights of 4 or 8 bits, and the biases")
    margin = field("float", "symbols with rough scores so near the greatest one are candidates")
    exact = field("const Linear*", "the projection, which scores candidates")
    weights = field("const float*", "(vocabulary, dim) of it; or null: packed ones")


Header(__file__, "low_rank.h")


def factors(weights: Tensor, states: Tensor) -> Tuple[Tensor, Tensor]:
    """What makes the two factors of any rank.

    Args:
        weights: (symbols, d) float32, of all symbols or a part.
        states: (states, d) float32.

    Returns:
        (d, d) L Q and (d, d) Qᵀ L⁻¹ with all eigenvectors, the leading ones first. U is W times the
        first r columns of the one, and D is the first r rows of the other.
    """
    second = states.t() @ states / len(states)
    second.diagonal().add_(_RIDGE * second.diagonal().mean())
    with one_thread():  # else threads of LAPACK wait for each other, on a busy machine for seconds
        lower = torch.linalg.cholesky(second)
        product = weights @ lower
        vectors = torch.linalg.eigh(product.t() @ product).eigenvectors.flip(1)
        down = torch.linalg.solve_triangular(lower.t(), vectors, upper=True).t()
    return lower @ vectors, down


class LowRank:
    """Two factors of a projection, packed for the kernels.

    Args:
        up: (V, r) float32, U.
        down: (r, d) float32, D.
        bias: (V,) float32, or None.
        dtype: of U's packed weights.

    Attributes:
        rank: r.
        dtype: as given.
        operations: to score all symbols roughly once.
        margin: the best symbol's rough score is at most so far below the greatest one.
    """

    def __init__(
        self, up: Tensor, down: Tensor, bias: Optional[Tensor], dtype: torch.dtype
    ) -> None:
        self._down = NativeLinear([down], None, torch.float32)
        self._up = NativeLinear([up], None if bias is None else [bias], dtype)
        self.dtype = dtype
        self.rank, self.operations = len(down), 2.0 * (up.numel() + down.numel())
        self.margin = 0.0

    def scores(self, states: Tensor) -> Tensor:
        """(states, d) to (states, V), the rough scores."""
        return self._up(self._down(states))

    def describe(self, projection: OutputProjection) -> LowRankCall:
        """Describe it for the kernels, as long as both live.

        Args:
            projection: whose factors these are.
        """
        assert projection.native is not None
        return LowRankCall(
            down=self._down.handle,
            up=self._up.handle,
            margin=self.margin,
            exact=projection.native.handle,
            weights=native.pointer(projection.rows()),
        )


def fit(projection: OutputProjection, states: Tensor) -> Optional[LowRank]:
    """The factors with the fewest bytes that leave few candidates; None if all leave many.

    Args:
        projection: one that the kernels run, and all of it.
        states: (states, d) that it projects.
    """
    weights, bias = projection.float_weights()
    assert projection.native is not None
    mean, fitted = weights.mean(0), len(states) * 3 // 4
    step = max(1, len(weights) // _SYMBOLS)
    expand, down = factors(weights[::step] - mean, states[:fitted])
    states = states[fitted : fitted + max(1, _SCORES // len(weights))]
    best = projection.native(states).argmax(1, keepdim=True)
    for eighths, dtype in _TRIED:
        kept = slice(weights.size(1) * eighths // 8)
        up = weights @ expand[:, kept]
        up -= mean @ expand[:, kept]
        found = LowRank(up, down[kept], bias, dtype)
        del up
        scores = found.scores(states)
        scores -= scores.max(1, keepdim=True).values
        found.margin = max(_LEAST_MARGIN, -_RESERVE * float(scores.gather(1, best).min()))
        others = int((scores > -found.margin).sum()) - len(states)
        if others * _SYMBOLS_A_CANDIDATE <= scores.numel():
            return found
    return None


class FittedLowRank:
    """Factors of a verifier's projection, once it has had enough states to find them.

    Those who have the same weights share them.

    Args:
        projection: the verifier's.

    Attributes:
        found: the factors; None as long as there are none.
        sample: where states are recorded until there are enough; None afterwards.
    """

    def __init__(self, projection: OutputProjection) -> None:
        self._projection = projection
        self.forget()

    def forget(self) -> None:
        """Begin again, or with what others have found."""
        self._version = -1
        self.found: Optional[LowRank] = None
        self.sample: Optional[StateSample] = None

    def refresh(self) -> None:
        """Look between two batches whether weights have changed, and whether the states suffice."""
        projection, sample = self._projection, self.sample
        if self._version != projection.version:
            self.forget()
            self._version, whole = projection.version, projection.native
            if whole is not None and whole.outputs * whole.inputs >= LEAST_WEIGHTS:
                room = max(_STATES, _STATES_A_NUMBER * whole.inputs)
                self.found = projection.weights.shared(_FORM)
                self.sample = None if self.found else StateSample(room, whole.inputs)
        elif sample is not None and sample.full:
            self.sample = None
            self.found = projection.weights.shared(_FORM) or self._fit(sample)

    def _fit(self, sample: StateSample) -> Optional[LowRank]:
        """Factors that fit a sample, for others too; None if there are none."""
        projection = self._projection
        try:
            with packing():
                found = fit(projection, sample.states)
        except (MemoryError, RuntimeError, NotFiniteError) as error:  # PyTorch's, for one: no room
            logger.info(f"drafts score all symbols, because no factors were found: {error}")
            return None
        finally:
            projection.forget_pages()
        if found is not None:
            bits = 4 if found.dtype == INT4 else 8
            logger.info(f"drafts find symbols by a product of rank {found.rank}, in {bits} bits")
            if projection.version == projection.weights.version:
                projection.weights.share(_FORM, found)
        return found

    def describe(self) -> LowRankCall:
        """Describe the factors for the kernels, if there are any, until they are looked for."""
        return LowRankCall() if self.found is None else self.found.describe(self._projection)
