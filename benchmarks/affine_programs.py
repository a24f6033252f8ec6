"""This module has programs that no recipe of the tuner names, each with a NumPy reference: stencils, chains of products,
recurrences, image pipelines.

``PROGRAMS[name]`` makes a :class:`Program` for given sizes; ``SIZES[name]`` has sizes for a test and for a benchmark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import if_then_else as choose
from tilewright.tir import PrimFunc
from tilewright.tir import script as T


@dataclass(frozen=True)
class Program:
    """A program: its function, the arrays that it reads, and what NumPy computes from them."""

    func: PrimFunc
    inputs: tuple[np.ndarray, ...]
    reference: Callable[..., Any]

    def expected(self) -> tuple[np.ndarray, ...]:
        """Returns the outputs that NumPy computes, in float64 where the program has float32."""
        wide = [a.astype("float64") if a.dtype == np.float32 else a for a in self.inputs]
        out = self.reference(*wide)
        return out if isinstance(out, tuple) else (out,)


def _data(*shapes: tuple[int, ...], low: float = -1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.uniform(low, 1, shape).astype("float32") for shape in shapes)


def _inputs(arrays: tuple[np.ndarray, ...]) -> list[Any]:
    return [te.placeholder(a.shape, str(a.dtype), name=f"I{n}") for n, a in enumerate(arrays)]


def _made(arrays: tuple[np.ndarray, ...], build: Callable[..., Any], reference: Callable[..., Any]) -> Program:
    tensors = _inputs(arrays)
    out = build(*tensors)
    outputs = list(out) if isinstance(out, tuple) else [out]
    return Program(te.create_prim_func([*tensors, *outputs]), arrays, reference)


def _axis(extent: int, name: str = "k") -> Any:
    return te.reduce_axis((0, extent), name=name)


def jacobi(steps: int, *shape: int) -> Program:
    """``steps`` sweeps of the mean of an element and its neighbours; the border stays."""
    rank = len(shape)
    near = [tuple(d * (axis == n) for n in range(rank)) for axis in range(rank) for d in (-1, 1)]

    def sweep(a: Any, step: int) -> Any:
        def element(*at: Any) -> Any:
            inside = te.all(*[c for i, n in zip(at, shape, strict=True) for c in (i > 0, i < n - 1)])
            total = a(*at)
            for move in near:
                total = total + a(*[i + d for i, d in zip(at, move, strict=True)])
            return choose(inside, total * (1.0 / (len(near) + 1)), a(*at))

        return te.compute(shape, element, name=f"sweep{step}")

    def build(a: Any) -> Any:
        for step in range(steps):
            a = sweep(a, step)
        return a

    def reference(a: np.ndarray) -> np.ndarray:
        for _ in range(steps):
            total = a.copy()
            for axis in range(rank):
                total += np.roll(a, 1, axis) + np.roll(a, -1, axis)
            out, inner = a.copy(), (slice(1, -1),) * rank
            out[inner] = total[inner] / (len(near) + 1)
            a = out
        return a

    return _made(_data(shape), build, reference)


def gemver(n: int) -> Program:
    """A rank-two update, a product with its transpose, a product."""

    def build(a: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any) -> Any:
        i, j = _axis(n, "i"), _axis(n, "j")
        up = te.compute((n, n), lambda r, c: a[r, c] + u1[r] * v1[c] + u2[r] * v2[c], name="update")
        left = te.compute((n,), lambda c: te.sum(up[i, c] * y[i], axis=i), name="left")
        x = te.compute((n,), lambda c: left[c] * 1.2 + z[c], name="x")
        w = te.compute((n,), lambda r: te.sum(up[r, j] * x[j], axis=j), name="w")
        return up, x, te.compute((n,), lambda r: w[r] * 1.5, name="scaled")

    def reference(a, u1, v1, u2, v2, y, z):  # type: ignore[no-untyped-def]
        up = a + np.outer(u1, v1) + np.outer(u2, v2)
        x = 1.2 * up.T @ y + z
        return up, x, 1.5 * up @ x

    return _made(_data((n, n), *[(n,)] * 6), build, reference)


def _product(a: Any, b: Any, name: str) -> Any:
    k = _axis(int(a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


def three_products(m: int, n: int, k: int) -> Program:
    """``(A B) (C D)``."""

    def build(a: Any, b: Any, c: Any, d: Any) -> Any:
        return _product(_product(a, b, "left"), _product(c, d, "right"), "both")

    return _made(_data((m, k), (k, n), (n, k), (k, m)), build, lambda a, b, c, d: (a @ b) @ (c @ d))


def masked_attention(heads: int, length: int, width: int) -> Program:
    """Attention in which a place sees itself and what is before it."""

    def build(q: Any, key: Any, v: Any) -> Any:
        d, j, j2, j3 = _axis(width, "d"), _axis(length, "j"), _axis(length, "j"), _axis(length, "j")
        full, row = (heads, length, length), (heads, length)
        dots = te.compute(full, lambda h, r, c: te.sum(q[h, r, d] * key[h, c, d], axis=d), name="dots")
        scores = te.compute(full, lambda h, r, c: choose(c <= r, dots[h, r, c] * width**-0.5, -1e9), name="scores")
        most = te.compute(row, lambda h, r: te.max(scores[h, r, j], axis=j), name="most")
        weight = te.compute(full, lambda h, r, c: te.exp(scores[h, r, c] - most[h, r]), name="weight")
        total = te.compute(row, lambda h, r: te.sum(weight[h, r, j2], axis=j2), name="total")
        shape = (heads, length, width)
        mixed = te.compute(shape, lambda h, r, e: te.sum(weight[h, r, j3] * v[h, j3, e], axis=j3), name="mixed")
        return te.compute(shape, lambda h, r, e: mixed[h, r, e] / total[h, r], name="attended")

    def reference(q: np.ndarray, key: np.ndarray, v: np.ndarray) -> np.ndarray:
        scores = np.einsum("hrd,hcd->hrc", q, key) * width**-0.5
        scores = np.where(np.tri(length, dtype=bool), scores, -1e9)
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hrc,hce->hre", weight, v) / weight.sum(-1)[..., None]

    return _made(_data(*[(heads, length, width)] * 3), build, reference)


def k_means(points: int, means: int, width: int) -> Program:
    """The means of the points that are nearest to each mean."""

    def build(x: Any, c: Any) -> Any:
        d, k, p, p2 = _axis(width, "d"), _axis(means, "k"), _axis(points, "p"), _axis(points, "p")
        far = te.compute(
            (points, means), lambda i, j: te.sum((x[i, d] - c[j, d]) * (x[i, d] - c[j, d]), axis=d), name="far"
        )
        nearest = te.compute((points,), lambda i: te.min(far[i, k], axis=k), name="nearest")
        mine = te.compute((points, means), lambda i, j: te.select(far[i, j] == nearest[i], 1.0, 0.0), name="mine")
        total = te.compute((means, width), lambda j, e: te.sum(mine[p, j] * x[p, e], axis=p), name="total")
        count = te.compute((means,), lambda j: te.sum(mine[p2, j], axis=p2), name="count")
        return te.compute((means, width), lambda j, e: total[j, e] / te.max(count[j], 1.0), name="moved")

    def reference(x: np.ndarray, c: np.ndarray) -> np.ndarray:
        far = ((x[:, None] - c[None]) ** 2).sum(-1)
        mine = (far == far.min(1, keepdims=True)).astype("float64")
        return mine.T @ x / np.maximum(mine.sum(0), 1)[:, None]

    return _made(_data((points, width), (means, width)), build, reference)


def viterbi(steps: int, states: int) -> Program:
    """The best score of a path that ends in each state, step by step."""

    def build(emitted: Any, move: Any) -> Any:
        i = _axis(states, "i")
        state = te.placeholder((steps, states), name="state")
        first = te.compute((1, states), lambda _, j: emitted[0, j], name="first")
        best = te.compute((steps, states), lambda t, j: te.max(state[t - 1, i] + move[i, j], axis=i), name="best")
        step = te.compute((steps, states), lambda t, j: best[t, j] + emitted[t, j], name="step")
        return te.scan(first, step, state, name="score")

    def reference(emitted: np.ndarray, move: np.ndarray) -> np.ndarray:
        out = emitted.copy()
        for t in range(1, steps):
            out[t] += (out[t - 1][:, None] + move).max(0)
        return out

    return _made(_data((steps, states), (states, states)), build, reference)


def prefix(steps: int, width: int) -> Program:
    """A recurrence along the first axis, for each column: ``s[t] = a[t] * s[t - 1] + x[t]``."""

    def build(a: Any, x: Any) -> Any:
        state = te.placeholder((steps, width), name="state")
        first = te.compute((1, width), lambda _, j: x[0, j], name="first")
        step = te.compute((steps, width), lambda t, j: a[t, j] * state[t - 1, j] + x[t, j], name="step")
        return te.scan(first, step, state, name="sums")

    def reference(a: np.ndarray, x: np.ndarray) -> np.ndarray:
        out = x.copy()
        for t in range(1, steps):
            out[t] += a[t] * out[t - 1]
        return out

    return _made(_data((steps, width), (steps, width)), build, reference)


def histogram(count: int, bins: int) -> Program:
    """How many numbers fall into each bin: each bin gathers its own."""
    numbers = np.random.default_rng(0).integers(0, bins, count).astype("int32")

    def build(x: Any) -> Any:
        n = _axis(count, "n")
        return te.compute((bins,), lambda b: te.sum(te.select(x[n] == b, 1, 0), axis=n), name="bins")

    return _made((numbers,), build, lambda x: np.bincount(x, minlength=bins).astype("int32"))


def fft_stage(size: int, half: int) -> Program:
    """One stage of a Fourier transform: butterflies of elements that are ``half`` apart."""
    groups = size // (2 * half)
    turn = np.exp(-1j * np.pi * np.arange(half) / half)

    def build(re: Any, im: Any, wr: Any, wi: Any) -> Any:
        shape = (groups, half)
        tr = te.compute(shape, lambda g, k: re[g, 1, k] * wr[k] - im[g, 1, k] * wi[k], name="turned_re")
        ti = te.compute(shape, lambda g, k: re[g, 1, k] * wi[k] + im[g, 1, k] * wr[k], name="turned_im")
        full = (groups, 2, half)
        outs = [
            te.compute(full, lambda g, s, k, x=x, t=t: x[g, 0, k] + choose(s == 0, t[g, k], -t[g, k]), name=name)
            for x, t, name in ((re, tr, "out_re"), (im, ti, "out_im"))
        ]
        return tuple(outs)

    def reference(re: np.ndarray, im: np.ndarray, wr: np.ndarray, wi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = re + 1j * im
        turned = x[:, 1] * (wr + 1j * wi)
        out = np.stack([x[:, 0] + turned, x[:, 0] - turned], axis=1)
        return out.real, out.imag

    arrays = _data((groups, 2, half), (groups, 2, half))
    return _made((*arrays, turn.real.astype("float32"), turn.imag.astype("float32")), build, reference)


def floyd_warshall(n: int, steps: int) -> Program:
    """``steps`` steps of all shortest paths."""

    def build(d: Any) -> Any:
        for k in range(steps):
            d = te.compute((n, n), lambda i, j, d=d, k=k: te.min(d[i, j], d[i, k] + d[k, j]), name=f"through{k}")
        return d

    def reference(d: np.ndarray) -> np.ndarray:
        for k in range(steps):
            d = np.minimum(d, d[:, k, None] + d[k])
        return d

    return _made(_data((n, n), low=0.1), build, reference)


def conv_pool(channels: int, filters: int, size: int) -> Program:
    """A convolution, a rectifier, the maximum of each window of 2 x 2."""
    inner = size - 2

    def build(x: Any, w: Any) -> Any:
        c, r, s, a, b = _axis(channels, "c"), _axis(3, "r"), _axis(3, "s"), _axis(2, "a"), _axis(2, "b")
        conv = te.compute(
            (filters, inner, inner),
            lambda f, i, j: te.sum(x[c, i + r, j + s] * w[f, c, r, s], axis=[c, r, s]), name="conv",
        )  # fmt: skip
        relu = te.compute((filters, inner, inner), lambda f, i, j: te.max(conv[f, i, j], 0.0), name="relu")
        return te.compute(
            (filters, inner // 2, inner // 2),
            lambda f, i, j: te.max(relu[f, 2 * i + a, 2 * j + b], axis=[a, b]), name="pool",
        )  # fmt: skip

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        conv = np.maximum(np.einsum("cijrs,fcrs->fij", windows, w), 0)[:, : inner // 2 * 2, : inner // 2 * 2]
        return conv.reshape(filters, inner // 2, 2, inner // 2, 2).max((2, 4))

    return _made(_data((channels, size, size), (filters, channels, 3, 3)), build, reference)


_INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], "float32")
_KERNEL = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], "float32")
_OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], "float32")


def winograd(channels: int, filters: int, tiles: int) -> Program:
    """Winograd's convolution F(2 x 2, 3 x 3) (Lavin and Gray, "Fast algorithms for convolutional neural networks",
    2016) of ``tiles x tiles`` tiles of the output."""
    size = 2 * tiles + 2

    def build(x: Any, w: Any, bt: Any, g: Any, at: Any) -> Any:
        a, b, c, d, e, f, k = *(_axis(4, "u") for _ in range(2)), *(_axis(3, "v") for _ in range(2)), _axis(4), _axis(4), _axis(channels)  # fmt: skip
        u = te.compute(
            (4, 4, filters, channels),
            lambda i, j, o, n: te.sum(g[i, c] * g[j, d] * w[o, n, c, d], axis=[c, d]), name="kernels",
        )  # fmt: skip
        v = te.compute(
            (4, 4, channels, tiles, tiles),
            lambda i, j, n, p, q: te.sum(bt[i, a] * bt[j, b] * x[n, 2 * p + a, 2 * q + b], axis=[a, b]), name="pieces",
        )  # fmt: skip
        m = te.compute(
            (4, 4, filters, tiles, tiles),
            lambda i, j, o, p, q: te.sum(u[i, j, o, k] * v[i, j, k, p, q], axis=k), name="products",
        )  # fmt: skip
        y = te.compute(
            (filters, tiles, 2, tiles, 2),
            lambda o, p, i, q, j: te.sum(at[i, e] * at[j, f] * m[e, f, o, p, q], axis=[e, f]), name="tiles",
        )  # fmt: skip
        return y

    def reference(x: np.ndarray, w: np.ndarray, *_: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        return np.einsum("cijrs,fcrs->fij", windows, w).reshape(filters, tiles, 2, tiles, 2)

    arrays = _data((channels, size, size), (filters, channels, 3, 3))
    return _made((*arrays, _INPUT, _KERNEL, _OUTPUT), build, reference)


def lu_panel(n: int, columns: int) -> Program:
    """The elimination of a panel of ``columns`` columns, without pivots."""

    @T.prim_func
    def main(A: T.Buffer((n, columns), "float32"), P: T.Buffer((n, columns), "float32")):  # type: ignore[valid-type]
        for i, j in T.grid(n, columns):
            with T.block("panel"):
                r, c = T.axis.remap("SS", [i, j])
                P[r, c] = A[r, c]
        for k in T.serial(columns):
            for i in T.serial(n - 1 - k):
                with T.block("scale"):
                    t = T.axis.scan(columns, k)
                    r = T.axis.spatial(n, i + k + 1)
                    P[r, t] = P[r, t] / P[t, t]
            for i, j in T.grid(n - 1 - k, columns - 1 - k):
                with T.block("eliminate"):
                    t = T.axis.scan(columns, k)
                    r = T.axis.spatial(n, i + k + 1)
                    c = T.axis.spatial(columns, j + k + 1)
                    P[r, c] = P[r, c] - P[r, t] * P[t, c]

    def reference(a: np.ndarray) -> np.ndarray:
        a = a.copy()
        for k in range(columns):
            a[k + 1 :, k] /= a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
        return a

    (a,) = _data((n, columns))
    a[:columns] += 4 * np.eye(columns, dtype="float32")
    return Program(main, (a,), reference)


def triangular_solve(n: int, columns: int) -> Program:
    """``X`` with ``L X = B`` for a lower triangle ``L``, row by row."""

    @T.prim_func
    def main(
        L: T.Buffer((n, n), "float32"), B: T.Buffer((n, columns), "float32"), X: T.Buffer((n, columns), "float32")
    ):  # type: ignore[valid-type]
        for i, j in T.grid(n, columns):
            with T.block("right"):
                v, c = T.axis.remap("SS", [i, j])
                X[v, c] = B[v, c]
        for i in T.serial(n):
            for k, j in T.grid(i, columns):
                with T.block("eliminate"):
                    r = T.axis.scan(n, i)
                    s = T.axis.scan(n, k)
                    c = T.axis.spatial(columns, j)
                    X[r, c] = X[r, c] - L[r, s] * X[s, c]
            for j in T.serial(columns):
                with T.block("divide"):
                    r = T.axis.scan(n, i)
                    c = T.axis.spatial(columns, j)
                    X[r, c] = X[r, c] / L[r, r]

    lower, b = _data((n, n), (n, columns))
    lower = np.tril(lower / n, -1) + np.diag(np.abs(np.diag(lower)) + 1).astype("float32")
    return Program(main, (lower.astype("float32"), b), lambda a, b: np.linalg.solve(a, b))


def blur(height: int, width: int) -> Program:
    """The mean of 3 x 3 elements, along rows first."""

    def build(a: Any) -> Any:
        x = te.compute((height, width - 2), lambda i, j: (a[i, j] + a[i, j + 1] + a[i, j + 2]) / 3.0, name="blur_x")
        return te.compute(
            (height - 2, width - 2), lambda i, j: (x[i, j] + x[i + 1, j] + x[i + 2, j]) / 3.0, name="blur_y"
        )

    def reference(a: np.ndarray) -> np.ndarray:
        x = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) / 3
        return (x[:-2] + x[1:-1] + x[2:]) / 3

    return _made(_data((height, width)), build, reference)


def unsharp(height: int, width: int) -> Program:
    """An image of three channels, sharpened by the difference of its brightness from a blurred one."""
    taps = np.exp(-((np.arange(-3, 4) / 1.5) ** 2) / 2)
    taps = [float(t) for t in taps / taps.sum()]
    h, w = height - 6, width - 6

    def build(a: Any) -> Any:
        gray = te.compute(
            (height, width), lambda i, j: 0.299 * a[0, i, j] + 0.587 * a[1, i, j] + 0.114 * a[2, i, j], name="gray"
        )

        def weighted(read: Callable[[int], Any]) -> Any:
            total = read(0) * taps[0]
            for n, t in list(enumerate(taps))[1:]:
                total = total + read(n) * t
            return total

        rows = te.compute((h, width), lambda i, j: weighted(lambda n: gray[i + n, j]), name="rows")
        soft = te.compute((h, w), lambda i, j: weighted(lambda n: rows[i, j + n]), name="soft")
        ratio = te.compute(
            (h, w), lambda i, j: (2.0 * gray[i + 3, j + 3] - soft[i, j]) / gray[i + 3, j + 3], name="ratio"
        )
        return te.compute((3, h, w), lambda c, i, j: ratio[i, j] * a[c, i + 3, j + 3], name="sharp")

    def reference(a: np.ndarray) -> np.ndarray:
        gray = 0.299 * a[0] + 0.587 * a[1] + 0.114 * a[2]
        rows = sum(t * gray[n : n + h] for n, t in enumerate(taps))
        soft = sum(t * rows[:, n : n + w] for n, t in enumerate(taps))
        middle = gray[3:-3, 3:-3]
        return (2 * middle - soft) / middle * a[:, 3:-3, 3:-3]

    return _made(_data((3, height, width), low=0.1), build, reference)


def harris(height: int, width: int) -> Program:
    """Harris's measure of corners."""
    h, w = height - 2, width - 2

    def build(a: Any) -> Any:
        ix = te.compute(
            (h, w),
            lambda i, j: (
                (a[i, j + 2] - a[i, j] + 2.0 * (a[i + 1, j + 2] - a[i + 1, j]) + a[i + 2, j + 2] - a[i + 2, j])
                * (1.0 / 12)
            ),
            name="ix",
        )
        iy = te.compute(
            (h, w),
            lambda i, j: (
                (a[i + 2, j] - a[i, j] + 2.0 * (a[i + 2, j + 1] - a[i, j + 1]) + a[i + 2, j + 2] - a[i, j + 2])
                * (1.0 / 12)
            ),
            name="iy",
        )

        def box(p: Any, q: Any, name: str) -> Any:
            square = te.compute((h, w), lambda i, j: p[i, j] * q[i, j], name=name)

            def element(i: Any, j: Any) -> Any:
                total = square[i, j]
                for n in range(1, 9):
                    total = total + square[i + n // 3, j + n % 3]
                return total

            return te.compute((h - 2, w - 2), element, name=f"s{name}")

        xx, yy, xy = box(ix, ix, "xx"), box(iy, iy, "yy"), box(ix, iy, "xy")
        det = te.compute(xx.shape, lambda i, j: xx[i, j] * yy[i, j] - xy[i, j] * xy[i, j], name="det")
        trace = te.compute(xx.shape, lambda i, j: xx[i, j] + yy[i, j], name="trace")
        return te.compute(xx.shape, lambda i, j: det[i, j] - 0.04 * trace[i, j] * trace[i, j], name="corners")

    def reference(a: np.ndarray) -> np.ndarray:
        ix = (a[:-2, 2:] - a[:-2, :-2] + 2 * (a[1:-1, 2:] - a[1:-1, :-2]) + a[2:, 2:] - a[2:, :-2]) / 12
        iy = (a[2:, :-2] - a[:-2, :-2] + 2 * (a[2:, 1:-1] - a[:-2, 1:-1]) + a[2:, 2:] - a[:-2, 2:]) / 12

        def box(s: np.ndarray) -> np.ndarray:
            return sum(s[i : i + h - 2, j : j + w - 2] for i in range(3) for j in range(3))  # type: ignore[return-value]

        xx, yy, xy = box(ix * ix), box(iy * iy), box(ix * iy)
        return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2

    return _made(_data((height, width)), build, reference)


def bilateral_grid(rows: int, columns: int, cell: int, bins: int) -> Program:
    """An image smoothed where it is even: sums in a coarse grid of places and brightness, blurred, and read back (Chen et
    al., "Real-time edge-aware image processing with the bilateral grid", 2007)."""

    def weight(value: Any, z: Any) -> Any:
        return te.max(1.0 - te.abs(value * float(bins - 1) - te.cast("float32", z)), 0.0)

    def grid(x: Any, name: str, term: Callable[..., Any]) -> Any:
        a, b = _axis(cell, "a"), _axis(cell, "b")
        return te.compute((rows, columns, bins), lambda i, j, z: te.sum(term(x[i, a, j, b], z), axis=[a, b]), name=name)

    def blurred(g: Any, name: str) -> Any:
        def near(z: Any, move: int, read: Callable[[Any], Any]) -> Any:
            return choose(te.all(z + move >= 0, z + move < bins), read(z + move), 0.0)

        deep = te.compute(
            (rows, columns, bins),
            lambda i, j, z: 2.0 * g[i, j, z] + near(z, -1, lambda y: g[i, j, y]) + near(z, 1, lambda y: g[i, j, y]),
            name=f"{name}_z",
        )
        tall = te.compute(
            (rows - 2, columns, bins), lambda i, j, z: deep[i, j, z] + 2.0 * deep[i + 1, j, z] + deep[i + 2, j, z],
            name=f"{name}_i",
        )  # fmt: skip
        return te.compute(
            (rows - 2, columns - 2, bins),
            lambda i, j, z: tall[i, j, z] + 2.0 * tall[i, j + 1, z] + tall[i, j + 2, z], name=f"{name}_j",
        )  # fmt: skip

    def build(x: Any) -> Any:
        light = blurred(grid(x, "light", lambda v, z: weight(v, z) * v), "light")
        count = blurred(grid(x, "count", weight), "count")
        z1, z2 = _axis(bins, "z"), _axis(bins, "z")
        shape = (rows - 2, cell, columns - 2, cell)
        read = [
            te.compute(shape, lambda i, a, j, b, g=g, z=z: te.sum(weight(x[i + 1, a, j + 1, b], z) * g[i, j, z], axis=z), name=name)
            for g, z, name in ((light, z1, "read_light"), (count, z2, "read_count"))
        ]  # fmt: skip
        return te.compute(shape, lambda i, a, j, b: read[0][i, a, j, b] / read[1][i, a, j, b], name="smooth")

    def reference(x: np.ndarray) -> np.ndarray:
        weights = np.maximum(1 - np.abs(x[..., None] * (bins - 1) - np.arange(bins)), 0)

        def smooth(g: np.ndarray) -> np.ndarray:
            g = np.pad(g, ((0, 0), (0, 0), (1, 1)))
            g = g[..., :-2] + 2 * g[..., 1:-1] + g[..., 2:]
            g = g[:-2] + 2 * g[1:-1] + g[2:]
            return g[:, :-2] + 2 * g[:, 1:-1] + g[:, 2:]

        light, count = (np.einsum("iajbz,ijz->iajb", weights[1:-1, :, 1:-1], smooth(g)) for g in (
            (weights * x[..., None]).sum((1, 3)), weights.sum((1, 3))))  # fmt: skip
        return light / count

    return _made(_data((rows, cell, columns, cell), low=0.0), build, reference)


def camera(height: int, width: int) -> Program:
    """Pieces of a camera's pipeline: a mosaic of colours is taken apart, green is interpolated along the weaker edge,
    colours are corrected by a matrix and a curve."""
    h, w = height // 2, width // 2
    inner = (h - 2, w - 2)
    matrix = [[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [-0.1, -0.6, 1.7]]

    def build(raw: Any) -> Any:
        sites = {"gr": (0, 0), "r": (0, 1), "b": (1, 0), "gb": (1, 1)}
        gr, r, b, gb = (
            te.compute((h, w), lambda i, j, p=p, q=q: raw[2 * i + p, 2 * j + q], name=name)
            for name, (p, q) in sites.items()
        )

        def green(i: Any, j: Any) -> Any:
            up, down, left, right = gb[i, j + 1], gb[i + 1, j + 1], gr[i + 1, j + 1], gr[i + 1, j + 2]
            return choose(te.abs(left - right) < te.abs(up - down), (left + right) * 0.5, (up + down) * 0.5)

        g = te.compute(inner, green, name="green")
        blue = te.compute(
            inner, lambda i, j: (b[i, j + 1] + b[i, j + 2] + b[i + 1, j + 1] + b[i + 1, j + 2]) * 0.25, name="blue"
        )
        colour = [
            te.compute(
                inner, lambda i, j, m=m: m[0] * r[i + 1, j + 1] + m[1] * g[i, j] + m[2] * blue[i, j], name=f"c{n}"
            )
            for n, m in enumerate(matrix)
        ]
        return tuple(te.compute(inner, lambda i, j, c=c: te.sqrt(te.max(c[i, j], 0.0)), name=f"out{n}")
                     for n, c in enumerate(colour))  # fmt: skip

    def reference(raw: np.ndarray) -> tuple[np.ndarray, ...]:
        gr, r, b, gb = raw[::2, ::2], raw[::2, 1::2], raw[1::2, ::2], raw[1::2, 1::2]
        up, down, left, right = gb[:-2, 1:-1], gb[1:-1, 1:-1], gr[1:-1, 1:-1], gr[1:-1, 2:]
        green = np.where(np.abs(left - right) < np.abs(up - down), (left + right) / 2, (up + down) / 2)
        blue = (b[:-2, 1:-1] + b[:-2, 2:] + b[1:-1, 1:-1] + b[1:-1, 2:]) / 4
        return tuple(np.sqrt(np.maximum(m[0] * r[1:-1, 1:-1] + m[1] * green + m[2] * blue, 0)) for m in matrix)

    return _made(_data((height, width), low=0.0), build, reference)


PROGRAMS: dict[str, Callable[..., Program]] = {
    "jacobi_2d": jacobi, "jacobi_3d": jacobi, "gemver": gemver, "three_products": three_products,
    "masked_attention": masked_attention, "k_means": k_means, "viterbi": viterbi, "prefix": prefix,
    "histogram": histogram, "fft_stage": fft_stage, "floyd_warshall": floyd_warshall, "conv_pool": conv_pool,
    "winograd": winograd, "lu_panel": lu_panel, "triangular_solve": triangular_solve, "blur": blur,
    "unsharp": unsharp, "harris": harris, "bilateral_grid": bilateral_grid, "camera": camera,
}  # fmt: skip

SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "jacobi_2d": ((3, 13, 17), (8, 1500, 1500)), "jacobi_3d": ((2, 7, 13, 17), (4, 160, 160, 160)),
    "gemver": ((17,), (2000,)), "three_products": ((13, 17, 16), (512, 512, 512)),
    "masked_attention": ((2, 13, 16), (8, 512, 64)), "k_means": ((33, 7, 13), (20000, 64, 32)),
    "viterbi": ((7, 17), (512, 256)), "prefix": ((13, 17), (4096, 1024)), "histogram": ((100, 13), (200000, 64)),
    "fft_stage": ((64, 16), (1 << 20, 256)), "floyd_warshall": ((17, 3), (1024, 8)),
    "conv_pool": ((3, 7, 12), (32, 64, 58)), "winograd": ((3, 5, 4), (64, 64, 14)), "lu_panel": ((17, 5), (1024, 32)),
    "triangular_solve": ((17, 13), (256, 64)), "blur": ((18, 35), (2050, 2050)), "unsharp": ((20, 39), (1030, 1030)),
    "harris": ((20, 39), (1540, 1540)), "bilateral_grid": ((5, 6, 3, 7), (128, 128, 8, 12)), "camera": ((14, 38), (1544, 2056)),
}  # fmt: skip
"""Sizes for a test, and for a benchmark."""
