"""This module has the built-in workloads in NumPy, which ``tilewright bench`` compares with.  They are written for
speed: results go into ``outputs`` where a function takes ``out=``, and large temporaries are avoided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Arrays = Sequence[np.ndarray]


def _product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """``a @ b`` into ``out``; narrow integers and floats are widened to the output's type first, as NumPy needs."""
    if a.dtype != out.dtype:
        a, b = a.astype(out.dtype), b.astype(out.dtype)
    np.matmul(a, b, out=out)


def matmul(ins: Arrays, outs: Arrays, *, transpose_a: bool = False, transpose_b: bool = False, **_: Any) -> None:
    """A matrix product."""
    a, b = ins
    _product(a.T if transpose_a else a, b.T if transpose_b else b, outs[0])


def dense(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """``data @ weight.T (+ bias)``."""
    _product(ins[0], ins[1].T, outs[0])
    if len(ins) > 2:
        outs[0] += ins[2]


def batch_matmul(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """A product of stacked matrices."""
    _product(ins[0], ins[1], outs[0])


def gemv(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """A matrix times a vector."""
    _product(ins[0], ins[1], outs[0])


def _erf(x: np.ndarray) -> np.ndarray:
    """Returns erf by formula 7.1.26 of Abramowitz and Stegun: absolute error 1.5e-7. NumPy has no erf of its own."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.asarray(np.copysign(1 - poly * np.exp(-x * x), x))


def _gelu(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(0.5 * x, 1 + _erf(x * np.asarray(0.7071067811865476, x.dtype)), out=out)


def matmul_bias_gelu(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """``gelu(a @ b + bias)``."""
    _product(ins[0], ins[1], outs[0])
    outs[0] += ins[2]
    _gelu(outs[0], outs[0])


def _sigmoid(x: np.ndarray, out: np.ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "relu": lambda x, out: np.maximum(x, 0, out=out),
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "tanh": lambda x, out: np.tanh(x, out=out),
    "exp": lambda x, out: np.exp(x, out=out),
    "add": lambda x, y, out: np.add(x, y, out=out),
    "mul": lambda x, y, out: np.multiply(x, y, out=out),
}


def elementwise(name: str) -> Callable[..., None]:
    """Returns the reference of an element-wise workload."""
    function = _ELEMENTWISE[name]

    def reference(ins: Arrays, outs: Arrays, **_: Any) -> None:
        function(*ins, outs[0])

    return reference


def mul_add_relu(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """``relu(a * b + c)``."""
    np.multiply(ins[0], ins[1], out=outs[0])
    np.add(outs[0], ins[2], out=outs[0])
    np.maximum(outs[0], 0, out=outs[0])


def reduce_with(name: str) -> Callable[..., None]:
    """Returns the reference of a reduction: sum, max or mean."""
    function: Any = {"sum": np.sum, "max": np.max, "mean": np.mean}[name]

    def reference(ins: Arrays, outs: Arrays, *, axis: int = 1, **_: Any) -> None:
        extra = {} if name == "max" else {"dtype": outs[0].dtype}
        function(ins[0], axis=axis, out=outs[0], **extra)

    return reference


def softmax(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """Compute softmax along the rows."""
    x, y = ins[0], outs[0]
    np.subtract(x, x.max(axis=-1, keepdims=True), out=y)
    np.exp(y, out=y)
    y /= y.sum(axis=-1, keepdims=True)


def layer_norm(ins: Arrays, outs: Arrays, *, eps: float = 1e-5, **_: Any) -> None:
    """Compute layer normalisation along the rows, then scale and shift."""
    x, gamma, beta = ins
    y = outs[0]
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=y)
    variance = np.square(y).mean(axis=-1, keepdims=True)
    y *= 1 / np.sqrt(variance + np.asarray(eps, x.dtype))
    y *= gamma
    y += beta


def rms_norm(ins: Arrays, outs: Arrays, *, eps: float = 1e-5, **_: Any) -> None:
    """Rows over their root mean square, then scaled."""
    x, weight = ins
    np.multiply(x, 1 / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.asarray(eps, x.dtype)), out=outs[0])
    np.multiply(outs[0], weight, out=outs[0])


def transpose(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """A matrix with its axes swapped."""
    np.copyto(outs[0], ins[0].T)


def blur(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """The mean over 3×3 pixels, rows first, then columns."""
    x, y = ins[0], outs[0]
    rows = x[:, :-2] + x[:, 1:-1]
    rows += x[:, 2:]
    np.add(rows[:-2], rows[1:-1], out=y)
    y += rows[2:]
    y *= np.asarray(1 / 9, y.dtype)


def _windows(x: np.ndarray, kernel: int, stride: int, padding: int, fill: float = 0.0, dilation: int = 1) -> np.ndarray:
    """Returns ``(N, C, OH, OW, kernel, kernel)`` views of an NCHW array."""
    if padding:
        p = (padding, padding)
        x = np.pad(x, ((0, 0), (0, 0), p, p), constant_values=fill)
    span = dilation * (kernel - 1) + 1
    views = sliding_window_view(x, (span, span), axis=(2, 3))
    return views[:, :, ::stride, ::stride, ::dilation, ::dilation]


def _channels_first(x: np.ndarray, layout: str) -> np.ndarray:
    return x if layout == "NCHW" else x.transpose(0, 3, 1, 2)


def conv2d(
    ins: Arrays, outs: Arrays, *, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1,
    layout: str = "NCHW", **_: Any
) -> None:  # fmt: skip
    """Windows unrolled into a matrix, one product per group."""
    x, w = ins
    if layout == "NHWC":
        w = w.transpose(3, 2, 0, 1)  # HWIO
    kernel, out_channels = w.shape[2], w.shape[0]
    windows = _windows(_channels_first(x, layout), kernel, stride, padding, 0, dilation)
    n, _c, oh, ow = windows.shape[:4]
    out = _channels_first(outs[0], layout)
    per_in, per_out = w.shape[1], out_channels // groups
    for g in range(groups):
        part = windows[:, g * per_in : (g + 1) * per_in].transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, -1)
        weights = w[g * per_out : (g + 1) * per_out].reshape(per_out, -1)
        result = np.matmul(part.astype(out.dtype, copy=False), weights.T.astype(out.dtype, copy=False))
        out[:, g * per_out : (g + 1) * per_out] = result.reshape(n, oh, ow, per_out).transpose(0, 3, 1, 2)


def depthwise_conv2d(
    ins: Arrays, outs: Arrays, *, stride: int = 1, padding: int = 0, layout: str = "NCHW", **_: Any
) -> None:
    """One shifted product per kernel element."""
    x, w = ins
    channels = x.shape[1] if layout == "NCHW" else x.shape[3]
    kernel = w.shape[2] if layout == "NCHW" else w.shape[0]
    w = w.reshape(channels, kernel, kernel) if layout == "NCHW" else w.reshape(kernel, kernel, channels)
    space = (2, 3) if layout == "NCHW" else (1, 2)
    if padding:
        x = np.pad(x, [(padding, padding) if axis in space else (0, 0) for axis in range(4)])
    out = outs[0]
    oh, ow = out.shape[space[0]], out.shape[space[1]]
    out[...] = 0
    for i in range(kernel):
        for j in range(kernel):
            rows, columns = slice(i, i + oh * stride, stride), slice(j, j + ow * stride, stride)
            if layout == "NCHW":
                out += x[:, :, rows, columns][:, :, :oh, :ow] * w[None, :, i, j, None, None]
            else:
                out += x[:, rows, columns, :][:, :oh, :ow] * w[i, j]


def max_pool2d(
    ins: Arrays, outs: Arrays, *, kernel: int = 2, stride: int = 2, padding: int = 0, layout: str = "NCHW", **_: Any
) -> None:
    """The maximum of each window."""
    x = _channels_first(ins[0], layout)
    lowest = float(np.finfo(x.dtype).min) if x.dtype.kind == "f" else float(np.iinfo(x.dtype).min)
    _windows(x, kernel, stride, padding, lowest).max(axis=(4, 5), out=_channels_first(outs[0], layout))


def avg_pool2d(
    ins: Arrays, outs: Arrays, *, kernel: int = 2, stride: int = 2, padding: int = 0, layout: str = "NCHW", **_: Any
) -> None:
    """The mean of each window, the border's zeros included."""
    x = _channels_first(ins[0], layout)
    out = _channels_first(outs[0], layout)
    _windows(x, kernel, stride, padding).sum(axis=(4, 5), out=out)
    out /= kernel * kernel


def attention(ins: Arrays, outs: Arrays, **_: Any) -> None:
    """``softmax(q @ k.T / sqrt(d)) @ v`` per head."""
    q, k, v = ins
    scores = np.matmul(q, k.swapaxes(-1, -2))
    scores *= np.asarray(q.shape[-1] ** -0.5, q.dtype)
    softmax([scores], [scores])
    np.matmul(scores, v, out=outs[0])
