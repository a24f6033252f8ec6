"""This module has the programs of ``affine_programs.py`` as a numba user would write them: parallel loops, fastmath."""

# ruff: noqa: D103
from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import prange

_fast = numba.njit(fastmath=True, parallel=True)


@_fast
def _sweep_2d(a, out):  # type: ignore[no-untyped-def]
    n, m = a.shape
    for i in prange(n):
        for j in range(m):
            if i > 0 and i < n - 1 and j > 0 and j < m - 1:
                out[i, j] = (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) * np.float32(0.2)
            else:
                out[i, j] = a[i, j]


def jacobi_2d(steps: int, *_: int) -> Any:
    def run(a: np.ndarray, out: np.ndarray) -> None:
        one, other = a, np.empty_like(a)
        for step in range(steps):
            target = out if step == steps - 1 else other
            _sweep_2d(one, target)
            one, other = target, np.empty_like(a) if one is a else one

    return run


@_fast
def _gemver(a, u1, v1, u2, v2, y, z, up, x, w):  # type: ignore[no-untyped-def]
    n = a.shape[0]
    for i in prange(n):
        for j in range(n):
            up[i, j] = a[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for j in prange(n):
        total = np.float32(0)
        for i in range(n):
            total += up[i, j] * y[i]
        x[j] = total * np.float32(1.2) + z[j]
    for i in prange(n):
        total = np.float32(0)
        for j in range(n):
            total += up[i, j] * x[j]
        w[i] = total * np.float32(1.5)


@_fast
def _blur(a, out):  # type: ignore[no-untyped-def]
    h, w = out.shape
    x = np.empty((h + 2, w), np.float32)
    third = np.float32(3)
    for i in prange(h + 2):
        for j in range(w):
            x[i, j] = (a[i, j] + a[i, j + 1] + a[i, j + 2]) / third
    for i in prange(h):
        for j in range(w):
            out[i, j] = (x[i, j] + x[i + 1, j] + x[i + 2, j]) / third


@_fast
def _viterbi(emitted, move, out):  # type: ignore[no-untyped-def]
    steps, states = emitted.shape
    out[0] = emitted[0]
    for t in range(1, steps):
        for j in prange(states):
            best = np.float32(-np.inf)
            for i in range(states):
                best = max(best, out[t - 1, i] + move[i, j])
            out[t, j] = best + emitted[t, j]


@_fast
def _prefix(a, x, out):  # type: ignore[no-untyped-def]
    steps, width = a.shape
    for j in prange(width):
        out[0, j] = x[0, j]
        for t in range(1, steps):
            out[t, j] = a[t, j] * out[t - 1, j] + x[t, j]


@_fast
def _floyd(d, before, k):  # type: ignore[no-untyped-def]
    n = d.shape[0]
    for i in prange(n):
        for j in range(n):
            d[i, j] = min(before[i, j], before[i, k] + before[k, j])


def floyd_warshall(_: int, steps: int) -> Any:
    def run(d: np.ndarray, out: np.ndarray) -> None:
        before = d
        for k in range(steps):
            now = out if k == steps - 1 else np.empty_like(d)
            _floyd(now, before, k)
            before = now

    return run


@_fast
def _histogram(x, bins):  # type: ignore[no-untyped-def]
    for b in prange(bins.shape[0]):
        count = 0
        for n in range(x.shape[0]):
            count += x[n] == b
        bins[b] = count


KERNELS: dict[str, Any] = {
    "jacobi_2d": jacobi_2d, "gemver": lambda *_: _gemver, "blur": lambda *_: _blur, "viterbi": lambda *_: _viterbi,
    "prefix": lambda *_: _prefix, "floyd_warshall": floyd_warshall, "histogram": lambda *_: _histogram,
}  # fmt: skip
"""Makes the function that fills the outputs, for the sizes of a program."""
