"""This module has loops as a numba user would write them, for one thread."""

# ruff: noqa: D103
from __future__ import annotations

from typing import Any

import numba
import numpy as np

_fast = numba.njit(fastmath=True)


@_fast
def _softmax(x, out):  # type: ignore[no-untyped-def]
    flat, to = x.reshape(-1, x.shape[-1]), out.reshape(-1, x.shape[-1])
    for i in range(flat.shape[0]):
        most = flat[i, 0]
        for j in range(flat.shape[1]):
            most = max(most, flat[i, j])
        total = np.float32(0)
        for j in range(flat.shape[1]):
            to[i, j] = np.exp(flat[i, j] - most)
            total += to[i, j]
        for j in range(flat.shape[1]):
            to[i, j] /= total


@_fast
def _layer_norm(x, gamma, beta, out):  # type: ignore[no-untyped-def]
    n = x.shape[1]
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(n):
            total += x[i, j]
        mean = total / np.float32(n)
        squares = np.float32(0)
        for j in range(n):
            squares += (x[i, j] - mean) ** 2
        scale = np.float32(1) / np.sqrt(squares / np.float32(n) + np.float32(1e-5))
        for j in range(n):
            out[i, j] = (x[i, j] - mean) * scale * gamma[j] + beta[j]


@_fast
def _mul_add_relu(a, b, c, out):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        out[i] = max(a[i] * b[i] + c[i], np.float32(0))


@_fast
def _row_sum(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


@_fast
def _gemv(a, x, out):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        total = np.float32(0)
        for j in range(a.shape[1]):
            total += a[i, j] * x[j]
        out[i] = total


@_fast
def _transpose(x, out):  # type: ignore[no-untyped-def]
    for i in range(0, x.shape[0], 16):
        for j in range(0, x.shape[1], 16):
            for jj in range(j, min(j + 16, x.shape[1])):
                for ii in range(i, min(i + 16, x.shape[0])):
                    out[jj, ii] = x[ii, jj]


@_fast
def _blur(x, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = np.float32(0)
            for a in range(3):
                for b in range(3):
                    total += x[i + a, j + b]
            out[i, j] = total * np.float32(1 / 9)


KERNELS: dict[str, Any] = {
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "mul add relu": _mul_add_relu,
    "row sum": _row_sum,
    "gemv": _gemv,
    "transpose": _transpose,
    "blur": _blur,
}
