"""Ten kernels at awkward sizes with their inputs and NumPy's results: the rows of the table of targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import ops

from .kernel_on_machine import Kernel


def _small(*shape: int, dtype: str = "float32") -> Any:
    """Returns small whole numbers, whose products and sums are exact."""
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)


def _example(make: Callable[..., Any], expected: Any, *inputs: Any) -> Kernel:
    tensors = [te.placeholder(a.shape, str(a.dtype), f"in{n}") for n, a in enumerate(inputs)]
    text = te.create_prim_func([*tensors, make(*tensors)]).script()
    return Kernel(
        "", text, [*inputs, np.full(expected.shape, 77, expected.dtype)], [*inputs, np.ascontiguousarray(expected)]
    )


def matmul() -> Kernel:
    a, b = _small(13, 17), _small(17, 16)
    return _example(ops.matmul, a @ b, a, b)


def int8_matmul() -> Kernel:
    a, b = _small(13, 17, dtype="int8") * np.int8(40), _small(17, 16, dtype="int8") * np.int8(40)
    return _example(ops.matmul, a.astype("int32") @ b.astype("int32"), a, b)


def conv() -> Kernel:
    x, w = _small(1, 3, 9, 7), _small(5, 3, 3, 3)
    out = np.zeros((1, 5, 7, 5), "float32")
    for y in range(3):
        for z in range(3):
            out += np.einsum("nchw,oc->nohw", x[:, :, y : y + 7, z : z + 5], w[:, :, y, z])
    return _example(ops.conv2d, out, x, w)


def depthwise() -> Kernel:
    x, w = _small(1, 7, 9, 7), _small(7, 1, 3, 3)
    out = sum(x[:, :, y : y + 7, z : z + 5] * w[None, :, 0, y, z, None, None] for y in range(3) for z in range(3))
    return _example(ops.depthwise_conv2d, out, x, w)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax() -> Kernel:
    x = _small(7, 17)
    return _example(ops.softmax, _softmax(x), x)


def layer_norm() -> Kernel:
    x, g, b = _small(7, 17), _small(17), _small(17)
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return _example(ops.layer_norm, scaled * g + b, x, g, b)


def reduction() -> Kernel:
    x = _small(7, 13, 16)
    return _example(lambda X: ops.sum(X, axis=(0, 2)), x.sum((0, 2)), x)


def gather() -> Kernel:
    x, at = _small(13, 7), np.array([12, 0, 5, 5, 1], "int64")
    return _example(lambda X, At: te.compute((5, 7), lambda i, j: X[At[i], j], name="gather"), x[at], x, at)


def transpose() -> Kernel:
    x = _small(7, 13, 16)
    return _example(lambda X: ops.transpose(X, (2, 0, 1)), x.transpose(2, 0, 1), x)


def attention() -> Kernel:
    q, k, v = _small(2, 7, 16), _small(2, 13, 16), _small(2, 13, 5)
    expected = _softmax(q @ k.transpose(0, 2, 1) / np.float32(4)) @ v

    def make(Q: Any, K: Any, V: Any) -> Any:
        scores = ops.batch_matmul(Q, K, transpose_b=True)
        scaled = te.compute((2, 7, 13), lambda *i: scores[i] * te.const(0.25, "float32"), name="scaled")
        return ops.batch_matmul(ops.softmax(scaled), V)

    return _example(make, expected, q, k, v)


_MAKERS: tuple[Callable[[], Kernel], ...] = (
    matmul, conv, depthwise, softmax, layer_norm, reduction, gather, transpose, int8_matmul, attention
)  # fmt: skip


def ten_kernels() -> dict[str, Kernel]:
    """Return the kernels by name, in the order of the table's columns."""
    return {make.__name__: replace(make(), test=make.__name__) for make in _MAKERS}
