"""This module has the arithmetic of steps that cover an extent: how many there are, and which sizes are tried."""

from __future__ import annotations

import numpy as np


def ceil_div(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Returns ``a / b`` rounded up."""
    return np.ceil(np.asarray(a, dtype=np.float64) / b)


def up_to(limit: int, *values: int) -> tuple[int, ...]:
    """Returns the values up to the first that reaches ``limit``, clipped to it, without repetition.

    >>> up_to(10, 1, 4, 8, 16, 32)
    (1, 4, 8, 10)
    """
    out: list[int] = []
    for value in values:
        out.append(min(value, max(1, limit)))
        if value >= limit:
            break
    return tuple(dict.fromkeys(out))
