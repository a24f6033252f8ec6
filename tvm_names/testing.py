"""``tvm.testing``: comparisons of results."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tir import assert_structural_equal as assert_structural_equal


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise AssertionError when the arrays differ in shape, or by more than the tolerances."""
    np.testing.assert_allclose(np.asarray(actual), np.asarray(desired), rtol=rtol, atol=atol)
