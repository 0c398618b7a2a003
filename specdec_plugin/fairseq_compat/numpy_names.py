"""What fairseq 0.12.2 reads from NumPy, and newer versions of NumPy have no more.

Without it, ``--num-batch-buckets`` ends in a traceback, and so does ``--sample-break-mode eos`` of
language models.
"""

import types
from typing import Any

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

_READERS = (data_utils, language_pair_dataset, token_block_dataset)


class _Numpy(types.ModuleType):
    """NumPy, with the names that are gone."""

    compat = types.SimpleNamespace(long=np.int64)

    @staticmethod
    def percentile(numbers: Any, shares: Any, interpolation: Any) -> Any:
        """See :func:`numpy.percentile`, which calls the last argument ``method`` now."""
        return np.percentile(numbers, shares, method=interpolation)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def install_numpy_names() -> None:
    """Give fairseq's modules what they read (idempotent); others see NumPy as it is."""
    for module in _READERS:
        module.np = _Numpy("numpy")
