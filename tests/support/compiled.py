"""Where the native kernels run in tests."""

import pytest

from specdec_plugin.engine import native

#: Of tests, and of their parameters.
needs_kernels = pytest.mark.skipif(
    native.library() is None, reason="no C++ compiler has made the native kernels here"
)
