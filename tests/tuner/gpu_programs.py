"""Programs for the rules of GPUs, at awkward sizes, each with what NumPy makes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright import te


@dataclass(frozen=True)
class GpuProgram:
    """A program: ``make()`` returns its te tensors, ``reference(*inputs)`` its result. ``tolerance`` 0: exact."""

    make: Callable[[], list]
    reference: Callable[..., np.ndarray]
    tolerance: float = 0


def _product(m, n, k, dtype="float32", out="float32", after=None):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    cast = (lambda x: x) if dtype == out else (lambda x: x.astype(out))
    c = te.compute((m, n), lambda i, j: te.sum(cast(a[i, r]) * cast(b[r, j]), axis=r), name="C")
    return [a, b, c if after is None else after(c)]


def _unary(make, *shape, dtype="float32"):
    x = te.placeholder(shape, dtype, "X")
    return [x, make(x)]


def _soft(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def _layer_norm(m, n):
    x = te.placeholder((m, n), name="X")
    one, zero = te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    return [x, one, zero, te.ops.layer_norm(x, one, zero)]


def _column_sum(x):
    k = te.reduce_axis((0, int(x.shape[0])), name="k")
    return te.compute((x.shape[1],), lambda j: te.sum(x[k, j], axis=k), name="Y")


def _bias(m, n):
    x, b = te.placeholder((m, n), name="X"), te.placeholder((n,), name="B")
    return [x, b, te.compute((m, n), lambda i, j: x[i, j] + b[j], name="Y")]


def _conv(c, o, h, w, k=3, stride=1, dilation=1, groups=1, batch=1, after=False):
    x, f = te.placeholder((batch, c, h, w), name="X"), te.placeholder((o, c // groups, k, k), name="W")
    more = {"groups": groups} if groups > 1 else {}
    y = te.ops.conv2d(x, f, stride, k // 2 * dilation, dilation, **more)
    if not after:
        return [x, f, y]
    bias, other = te.placeholder((o,), name="bias"), te.placeholder([int(e) for e in y.shape], name="other")
    shifted = te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + bias[f], name="shifted")
    return [x, f, bias, other, te.ops.relu(te.ops.add(shifted, other))]


def _convolved(x, f, stride=1, dilation=1, groups=1):
    n, c, h, w = x.shape
    o, k = f.shape[0], f.shape[-1]
    p, reach = k // 2 * dilation, (k - 1) * dilation + 1
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    windows = windows.reshape(n, groups, c // groups, *windows.shape[2:])
    out = np.einsum("ngcyxij,gocij->ngoyx", windows, f.reshape(groups, o // groups, c // groups, k, k))
    return out.reshape(n, o, *out.shape[-2:])


def _last_channels(n, c, o, h, w, k=3):
    """A convolution whose channels are the last axis."""
    x, f, p = te.placeholder((n, h, w, c), name="X"), te.placeholder((k, k, c, o), name="W"), k // 2
    padded = te.compute(
        (n, h + 2 * p, w + 2 * p, c),
        lambda n, i, j, q: te.if_then_else(te.all(i >= p, i < h + p, j >= p, j < w + p), x[n, i - p, j - p, q], 0.0),
        name="padded",
    )
    a, b, q = te.reduce_axis((0, k), name="a"), te.reduce_axis((0, k), name="b"), te.reduce_axis((0, c), name="q")
    return [x, f, te.compute(
        (n, h, w, o), lambda n, i, j, z: te.sum(padded[n, i + a, j + b, q] * f[a, b, q, z], axis=[a, b, q]), name="Y",
    )]  # fmt: skip


def _contracted(a_shape, b_shape, shape, axes, left, right):
    """A sum of products of operands whose places ``left`` and ``right`` say, of places of the result and reduced ones."""
    a, b = te.placeholder(a_shape, name="A"), te.placeholder(b_shape, name="B")
    reduced = [te.reduce_axis((0, n), name=f"k{i}") for i, n in enumerate(axes)]
    return [
        a,
        b,
        te.compute(shape, lambda *i: te.sum(a[left(i, reduced)] * b[right(i, reduced)], axis=reduced), name="C"),
    ]


def _own_product(m, k):
    a, r = te.placeholder((m, k), name="A"), te.reduce_axis((0, k), name="k")
    return [a, te.compute((m, m), lambda i, j: te.sum(a[i, r] * a[j, r], axis=r), name="C")]


def _largest_sums(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((m, n), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="C")]


def _depthwise(c, h, w):
    x, f = te.placeholder((1, c, h, w), name="X"), te.placeholder((c, 1, 3, 3), name="W")
    return [x, f, te.ops.depthwise_conv2d(x, f, 1, 1)]


def _windows(x, k=3):
    p = k // 2
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    return np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))


def _attention(heads, seq, dim):
    q, k, v = [te.placeholder((heads, seq, dim), name=name) for name in "QKV"]
    return [q, k, v, te.ops.attention(q, k, v)]


def _attended(q, k, v):
    return _soft(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v


def _two_products(m, k, n, o):
    a, b, c = _product(m, n, k)
    d = te.placeholder((n, o), name="D0")
    r = te.reduce_axis((0, n), name="r")
    e = te.compute((m, n), lambda i, j: c[i, j] * c[i, j], name="E")
    return [a, b, d, te.compute((m, o), lambda i, j: te.sum(e[i, r] * d[r, j], axis=r), name="D")]


def _scan(n, m):
    s = te.placeholder((n, m), name="state")
    x = te.placeholder((n, m), name="X")
    first = te.compute((1, m), lambda _, i: x[0, i], name="first")
    step = te.compute((n, m), lambda t, i: s[t - 1, i] + x[t, i], name="step")
    return [x, te.scan(first, step, s, inputs=[x])]


PROGRAMS: dict[str, GpuProgram] = {
    **{f"product {m} {n} {k}": GpuProgram(lambda m=m, n=n, k=k: _product(m, n, k), lambda a, b: a @ b)
       for m, n, k in ((1, 1, 1), (7, 13, 17), (130, 17, 13), (17, 130, 1), (1, 33, 7), (64, 48, 40))},
    "relu of a product": GpuProgram(lambda: _product(13, 34, 24, after=te.ops.relu), lambda a, b: np.maximum(a @ b, 0)),
    "product of int8": GpuProgram(lambda: _product(17, 13, 7, "int8", "int32"), lambda a, b: a @ b),
    **{f"warps {dtype}": GpuProgram(lambda dtype=dtype, out=out: _product(64, 96, 64, dtype, out), lambda a, b: a @ b)
       for dtype, out in (("float16", "float32"), ("int8", "int32"))},
    "convolution": GpuProgram(lambda: _conv(3, 5, 7, 13), lambda x, w: np.einsum("ncyxij,ocij->noyx", _windows(x), w)),
    "convolution 1x1": GpuProgram(lambda: _conv(7, 17, 5, 13, 1), lambda x, w: np.einsum("ncyx,oc->noyx", x, w[:, :, 0, 0])),
    **{f"convolution {name}": GpuProgram(lambda sizes=sizes, more=more: _conv(*sizes, **more), lambda x, w, more=more: _convolved(
           x, w, **{key: n for key, n in more.items() if key != "batch"}))
       for name, sizes, more in (
           ("of a batch", (8, 5, 7, 13), {"batch": 2}), ("of whole lines", (8, 16, 8, 12, 1), {"batch": 2}),
           ("in strides", (8, 9, 11, 9), {"stride": 2}), ("dilated", (8, 9, 11, 9), {"dilation": 2}),
           ("in groups", (8, 6, 9, 7), {"groups": 2}), ("of 7x7", (3, 8, 17, 15, 7), {"stride": 2}))},
    "convolution, bias, residual, relu": GpuProgram(
        lambda: _conv(8, 5, 7, 8, batch=2, after=True),
        lambda x, w, b, r: np.maximum(_convolved(x, w) + b[:, None, None] + r, 0)),
    **{f"convolution, {c} last channels": GpuProgram(
           lambda c=c: _last_channels(2, c, 7, 8, 9),
           lambda x, w: _convolved(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1)) for c in (5, 8)},
    "product of batches": GpuProgram(
        lambda: _contracted((3, 7, 10), (3, 10, 13), (3, 7, 13), [10], lambda i, k: (i[0], i[1], k[0]), lambda i, k: (i[0], k[0], i[2])),
        lambda a, b: a @ b),
    "product of several axes": GpuProgram(
        lambda: _contracted((4, 5, 3, 10), (3, 10, 7, 6), (4, 7, 5, 6), [3, 10],
                            lambda i, k: (i[0], i[2], *k), lambda i, k: (*k, i[1], i[3])),
        lambda a, b: np.einsum("xiqr,qrhj->xhij", a, b)),
    "product, turned": GpuProgram(
        lambda: _contracted((10, 33), (18, 10), (33, 18), [10], lambda i, k: (k[0], i[0]), lambda i, k: (i[1], k[0])), lambda a, b: a.T @ b.T),
    "product, turned, whole lines": GpuProgram(
        lambda: _contracted((20, 64), (36, 20), (64, 36), [20], lambda i, k: (k[0], i[0]), lambda i, k: (i[1], k[0])), lambda a, b: a.T @ b.T),
    "product of 100": GpuProgram(lambda: _product(100, 100, 20), lambda a, b: a @ b),
    "product with itself": GpuProgram(lambda: _own_product(17, 10), lambda a: a @ a.T),
    "largest sums": GpuProgram(lambda: _largest_sums(13, 17, 9), lambda a, b: (a[:, :, None] + b[None]).max(1)),
    "depthwise": GpuProgram(lambda: _depthwise(5, 7, 13), lambda x, w: np.einsum("ncyxij,coij->ncyx", _windows(x), w)),
    **{f"softmax {m} {n}": GpuProgram(lambda m=m, n=n: _unary(te.ops.softmax, m, n), _soft, 1e-6)
       for m, n in ((1, 1), (7, 13), (8, 132), (3, 1028))},
    **{f"layer_norm {m} {n}": GpuProgram(lambda m=m, n=n: _layer_norm(m, n), lambda x, g, b: _normed(x) * g + b, 1e-4)
       for m, n in ((17, 130), (4, 64))},
    **{f"sum {m} {n}": GpuProgram(lambda m=m, n=n: _unary(lambda x: te.ops.sum(x, 1), m, n), lambda x: x.sum(1))
       for m, n in ((1, 1), (13, 7), (1, 4100), (130, 17))},
    "sum of all": GpuProgram(lambda: _unary(lambda x: te.ops.sum(x, 0), 4099), lambda x: x.sum(0)),
    "column sum": GpuProgram(lambda: _unary(_column_sum, 130, 37), lambda x: x.sum(0)),
    "argmax": GpuProgram(lambda: _unary(lambda x: te.ops.argmax(x, 1), 7, 130), lambda x: x.argmax(1)),
    "bias": GpuProgram(lambda: _bias(7, 132), lambda x, b: x + b),
    "elements": GpuProgram(lambda: _unary(te.ops.relu, 13, 7, 17), lambda x: np.maximum(x, 0)),
    "halves": GpuProgram(lambda: _unary(te.ops.relu, 16, 40, dtype="float16"), lambda x: np.maximum(x, 0)),
    **{f"transpose {m} {n}": GpuProgram(lambda m=m, n=n: _unary(te.ops.transpose, m, n), lambda x: x.T)
       for m, n in ((1, 13), (33, 70), (64, 130))},
    "attention": GpuProgram(lambda: _attention(2, 40, 16), _attended, 1e-5),
    "two products": GpuProgram(lambda: _two_products(14, 13, 34, 17), lambda a, b, d: (a @ b) ** 2 @ d),
    "scan": GpuProgram(lambda: _scan(7, 40), lambda x: np.cumsum(x, 0)),
}  # fmt: skip
"""The programs by name."""


def inputs_of(func, seed=0):
    """Returns integers as inputs, and an output full of NaN where it holds floats."""
    rng = np.random.default_rng(seed)
    arrays = []
    for buffer in func.buffers:
        shape = [int(e) for e in buffer.shape]
        arrays.append(rng.integers(-4, 5, shape).astype(buffer.dtype))
    if arrays[-1].dtype.kind == "f":
        arrays[-1][...] = np.nan
    return arrays


def difference(module, func, program):
    """Returns the largest difference between a module's result and NumPy's, relative to the result's size."""
    arrays = inputs_of(func)
    module(*arrays)
    wide = [a.astype("int64" if a.dtype.kind == "i" else "float64") for a in arrays[:-1]]
    expected = program.reference(*wide)
    return float(np.max(np.abs(arrays[-1] - expected)) / max(1.0, float(np.max(np.abs(expected)))))
