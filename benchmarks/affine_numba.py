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


@_fast
def _unsharp(a, out, taps):  # type: ignore[no-untyped-def]
    _, height, width = a.shape
    h, w = height - 6, width - 6
    gray = np.empty((height, width), np.float32)
    rows = np.empty((h, width), np.float32)
    for i in prange(height):
        for j in range(width):
            gray[i, j] = (
                np.float32(0.299) * a[0, i, j] + np.float32(0.587) * a[1, i, j] + np.float32(0.114) * a[2, i, j]
            )
    for i in prange(h):
        for j in range(width):
            total = np.float32(0)
            for n in range(7):
                total += taps[n] * gray[i + n, j]
            rows[i, j] = total
    for i in prange(h):
        for j in range(w):
            soft = np.float32(0)
            for n in range(7):
                soft += taps[n] * rows[i, j + n]
            middle = gray[i + 3, j + 3]
            ratio = (np.float32(2) * middle - soft) / middle
            for c in range(3):
                out[c, i, j] = ratio * a[c, i + 3, j + 3]


def unsharp(*_: int) -> Any:
    taps = np.exp(-((np.arange(-3, 4) / 1.5) ** 2) / 2)
    taps = (taps / taps.sum()).astype("float32")
    return lambda a, out: _unsharp(a, out, taps)


@_fast
def _harris(a, out):  # type: ignore[no-untyped-def]
    h, w = a.shape[0] - 2, a.shape[1] - 2
    ix, iy = np.empty((h, w), np.float32), np.empty((h, w), np.float32)
    two, twelfth = np.float32(2), np.float32(1 / 12)
    for i in prange(h):
        for j in range(w):
            ix[i, j] = (
                a[i, j + 2] - a[i, j] + two * (a[i + 1, j + 2] - a[i + 1, j]) + a[i + 2, j + 2] - a[i + 2, j]
            ) * twelfth
            iy[i, j] = (
                a[i + 2, j] - a[i, j] + two * (a[i + 2, j + 1] - a[i, j + 1]) + a[i + 2, j + 2] - a[i, j + 2]
            ) * twelfth
    for i in prange(h - 2):
        for j in range(w - 2):
            xx, yy, xy = np.float32(0), np.float32(0), np.float32(0)
            for r in range(3):
                for c in range(3):
                    gx, gy = ix[i + r, j + c], iy[i + r, j + c]
                    xx += gx * gx
                    yy += gy * gy
                    xy += gx * gy
            out[i, j] = xx * yy - xy * xy - np.float32(0.04) * (xx + yy) * (xx + yy)


@_fast
def _fft_stage(re, im, wr, wi, out_re, out_im):  # type: ignore[no-untyped-def]
    for g in prange(re.shape[0]):
        for k in range(re.shape[2]):
            tr = re[g, 1, k] * wr[k] - im[g, 1, k] * wi[k]
            ti = re[g, 1, k] * wi[k] + im[g, 1, k] * wr[k]
            out_re[g, 0, k] = re[g, 0, k] + tr
            out_re[g, 1, k] = re[g, 0, k] - tr
            out_im[g, 0, k] = im[g, 0, k] + ti
            out_im[g, 1, k] = im[g, 0, k] - ti


@_fast
def _k_means(x, c, out):  # type: ignore[no-untyped-def]
    points, width = x.shape
    nearest = np.empty(points, np.int64)
    for i in prange(points):
        best, place = np.float32(np.inf), 0
        for j in range(c.shape[0]):
            far = np.float32(0)
            for d in range(width):
                far += (x[i, d] - c[j, d]) * (x[i, d] - c[j, d])
            if far < best:
                best, place = far, j
        nearest[i] = place
    out[:] = 0
    count = np.zeros(c.shape[0], np.float32)
    for i in range(points):
        count[nearest[i]] += 1
        for d in range(width):
            out[nearest[i], d] += x[i, d]
    for j in range(c.shape[0]):
        for d in range(width):
            out[j, d] /= max(count[j], np.float32(1))


@_fast
def _lu_panel(a, out):  # type: ignore[no-untyped-def]
    n, columns = a.shape
    out[:] = a
    for k in range(columns):
        for i in prange(k + 1, n):
            out[i, k] /= out[k, k]
            for j in range(k + 1, columns):
                out[i, j] -= out[i, k] * out[k, j]


@numba.njit(fastmath=True)
def _triangular_solve(lower, b, x):  # type: ignore[no-untyped-def]
    x[:] = b
    for i in range(lower.shape[0]):
        for k in range(i):
            for j in range(b.shape[1]):
                x[i, j] -= lower[i, k] * x[k, j]
        for j in range(b.shape[1]):
            x[i, j] /= lower[i, i]


KERNELS: dict[str, Any] = {
    "jacobi_2d": jacobi_2d, "gemver": lambda *_: _gemver, "blur": lambda *_: _blur, "viterbi": lambda *_: _viterbi,
    "prefix": lambda *_: _prefix, "floyd_warshall": floyd_warshall, "histogram": lambda *_: _histogram,
    "unsharp": unsharp, "harris": lambda *_: _harris, "fft_stage": lambda *_: _fft_stage, "k_means": lambda *_: _k_means,
    "lu_panel": lambda *_: _lu_panel, "triangular_solve": lambda *_: _triangular_solve,
}  # fmt: skip
"""Makes the function that fills the outputs, for the sizes of a program."""
