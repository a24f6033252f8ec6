"""This module lists the built-in workloads: name, parameters with defaults, the te program, and its NumPy reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ... import te
from ...te import ops
from . import numpy_references as numpy_
from .workload_definition import BUILTIN, Parameter, Reference, Workload

_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("B", doc="matrices in the batch"), Parameter("M", doc="rows"), Parameter("N", doc="columns"),
        Parameter("K", doc="length of the sums"), Parameter("n", doc="elements"), Parameter("batch", default=1, doc="images"),
        Parameter("H", default=56, doc="height"), Parameter("W", default=56, doc="width"), Parameter("C", doc="channels"),
        Parameter("CI", doc="input channels"), Parameter("CO", doc="output channels"),
        Parameter("kernel", default=3, doc="height and width of the kernel"),
        Parameter("stride", default=1, doc="step of the kernel"),
        Parameter("padding", "count", 1, "border of the image, each side"),
        Parameter("dilation", default=1, doc="gap between kernel elements"),
        Parameter("groups", default=1, doc="groups of channels"),
        Parameter("layout", "text", "NCHW", "order of the axes", choices=("NCHW", "NHWC")),
        Parameter("heads", doc="heads, all batches together"), Parameter("seq", doc="length of the sequence"),
        Parameter("dim", doc="features per head"), Parameter("dtype", "dtype", "float32", "data type of the inputs"),
        Parameter("transpose_a", "bool", False, "A is stored transposed, (K, M)"),
        Parameter("transpose_b", "bool", False, "B is stored transposed, (N, K)"),
        Parameter("bias", "bool", True, "add a bias per column"),
        Parameter("eps", "float", 1e-5, "keeps from dividing by 0"),
        Parameter("axis", "count", 1, "1: along each row, 0: along each column"),
    )
}  # fmt: skip
"""What the workloads' parameters are, by name; a workload gives its own defaults."""

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def _add(
    name: str, reference: Reference, *, doc: str = "", floats: bool = False, **defaults: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a function that returns te tensors as the workload ``name``; ``floats``: of float types only."""

    def add(build: Callable[..., Any]) -> Callable[..., Any]:
        parameters = [_PARAMETERS[parameter] for parameter in inspect.signature(build).parameters]
        parameters = [replace(p, default=defaults.get(p.name, p.default)) for p in parameters]
        parameters = [replace(p, choices=_FLOATS) if floats and p.name == "dtype" else p for p in parameters]
        BUILTIN[name] = Workload(name, build, tuple(parameters), doc or (build.__doc__ or "").strip(), reference)
        return build

    return add


def _tensor(name: str, dtype: str, *shape: int) -> Any:
    return te.placeholder(shape, name=name, dtype=dtype)


@_add("matmul", numpy_.matmul, M=1024, N=1024, K=1024)
def _matmul(M: int, N: int, K: int, dtype: str, transpose_a: bool, transpose_b: bool) -> list[Any]:
    """C[M, N] = A[M, K] @ B[K, N]"""
    a = _tensor("A", dtype, *((K, M) if transpose_a else (M, K)))
    b = _tensor("B", dtype, *((N, K) if transpose_b else (K, N)))
    return [a, b, ops.matmul(a, b, transpose_a, transpose_b)]


@_add("dense", numpy_.dense, M=128, N=3072, K=768)
def _dense(M: int, N: int, K: int, dtype: str, bias: bool) -> list[Any]:
    """Y[M, N] = X[M, K] @ W[N, K].T + bias[N], a layer of a network"""
    x, w = _tensor("X", dtype, M, K), _tensor("W", dtype, N, K)
    if not bias:
        return [x, w, ops.dense(x, w)]
    plain = ops.dense(x, w)
    b = _tensor("bias", plain.dtype, N)
    return [x, w, b, ops.dense(x, w, b)]


@_add("batch_matmul", numpy_.batch_matmul, B=12, M=128, N=64, K=128)
def _batch_matmul(B: int, M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C[B, M, N] = A[B, M, K] @ W[B, K, N], matrix by matrix"""
    a, b = _tensor("A", dtype, B, M, K), _tensor("W", dtype, B, K, N)
    return [a, b, ops.batch_matmul(a, b)]


@_add("matmul_bias_gelu", numpy_.matmul_bias_gelu, floats=True, M=128, N=3072, K=768)
def _matmul_bias_gelu(M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C = gelu(A @ B + bias), one fused layer"""
    a, b, bias = _tensor("A", dtype, M, K), _tensor("B", dtype, K, N), _tensor("bias", dtype, N)
    return [a, b, bias, ops.gelu(ops.add(ops.matmul(a, b), bias))]


@_add("gemv", numpy_.gemv, M=4096, K=4096)
def _gemv(M: int, K: int, dtype: str) -> list[Any]:
    """y[M] = A[M, K] @ x[K]"""
    a, x = _tensor("A", dtype, M, K), _tensor("x", dtype, K)
    k = te.reduce_axis((0, K), name="k")
    wide = dtype if dtype.startswith("float") and dtype != "float16" else "float32" if "float" in dtype else "int32"

    def element(i: Any) -> Any:
        return te.sum(a[i, k].astype(wide) * x[k].astype(wide), axis=k)

    return [a, x, te.compute((M,), element, name="y")]


@_add("conv2d", numpy_.conv2d, CI=64, CO=64)
def _conv2d(
    batch: int, H: int, W: int, CI: int, CO: int, kernel: int, stride: int, padding: int, dilation: int, groups: int,
    layout: str, dtype: str
) -> list[Any]:  # fmt: skip
    """A two-dimensional convolution; weights are OIHW, or HWIO with layout=NHWC"""
    _fits(H, W, dilation * (kernel - 1) + 1, padding)
    for name, value in (("CI", CI), ("CO", CO)):
        if value % groups:
            raise ValueError(f"{name}={value} is not divisible by groups={groups}")
    if layout == "NCHW":
        x, w = _tensor("X", dtype, batch, CI, H, W), _tensor("W", dtype, CO, CI // groups, kernel, kernel)
    else:
        x, w = _tensor("X", dtype, batch, H, W, CI), _tensor("W", dtype, kernel, kernel, CI // groups, CO)
    return [x, w, ops.conv2d(x, w, stride, padding, dilation, groups, layout)]


@_add("depthwise_conv2d", numpy_.depthwise_conv2d, C=64)
def _depthwise_conv2d(
    batch: int, H: int, W: int, C: int, kernel: int, stride: int, padding: int, layout: str, dtype: str
) -> list[Any]:
    """A convolution of each channel with a kernel of its own; weights are C1HW, or HWC1 with layout=NHWC"""
    _fits(H, W, kernel, padding)
    if layout == "NCHW":
        x, w = _tensor("X", dtype, batch, C, H, W), _tensor("W", dtype, C, 1, kernel, kernel)
    else:
        x, w = _tensor("X", dtype, batch, H, W, C), _tensor("W", dtype, kernel, kernel, C, 1)
    return [x, w, ops.depthwise_conv2d(x, w, stride, padding, 1, layout)]


def _pool(name: str, op: Callable[..., Any], reference: Reference, doc: str) -> None:
    @_add(name, reference, doc=doc, floats=True, C=64, kernel=2, stride=2, padding=0)
    def build(
        batch: int, H: int, W: int, C: int, kernel: int, stride: int, padding: int, layout: str, dtype: str
    ) -> list[Any]:
        _fits(H, W, kernel, padding)
        if padding >= kernel:
            raise ValueError(f"padding={padding} is not smaller than kernel={kernel}: some windows would be empty")
        shape = (batch, C, H, W) if layout == "NCHW" else (batch, H, W, C)
        x = _tensor("X", dtype, *shape)
        return [x, op(x, kernel, stride, padding, layout=layout)]


_pool("max_pool2d", ops.max_pool2d, numpy_.max_pool2d, "The largest element of each window")
_pool("avg_pool2d", ops.avg_pool2d, numpy_.avg_pool2d, "The mean of each window, the border's zeros included")


def _fits(height: int, width: int, span: int, padding: int) -> None:
    for name, extent in (("H", height), ("W", width)):
        if extent + 2 * padding < span:
            raise ValueError(f"{name}={extent} with padding={padding} is smaller than the kernel's reach of {span}")


@_add("softmax", numpy_.softmax, floats=True, M=1536, N=128)
def _softmax(M: int, N: int, dtype: str) -> list[Any]:
    """The softmax of each row"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.softmax(x)]


@_add("layer_norm", numpy_.layer_norm, floats=True, M=128, N=768)
def _layer_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row less its mean, over its deviation, scaled and shifted"""
    x, gamma, beta = _tensor("X", dtype, M, N), _tensor("gamma", dtype, N), _tensor("beta", dtype, N)
    return [x, gamma, beta, ops.layer_norm(x, gamma, beta, epsilon=eps)]


@_add("rms_norm", numpy_.rms_norm, floats=True, M=128, N=768)
def _rms_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row over its root mean square, scaled"""
    x, weight = _tensor("X", dtype, M, N), _tensor("weight", dtype, N)
    return [x, weight, ops.rms_norm(x, weight, epsilon=eps)]


def _unary(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, numpy_.elementwise(name), doc=doc, floats=True, M=2048, N=2048)
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x = _tensor("X", dtype, M, N)
        return [x, op(x)]


def _binary(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, numpy_.elementwise(name), doc=doc, M=2048, N=2048)
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x, y = _tensor("X", dtype, M, N), _tensor("Y", dtype, M, N)
        return [x, y, op(x, y)]


def _reduction(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, numpy_.reduce_with(name), doc=doc, floats=True, M=2048, N=2048)
    def build(M: int, N: int, axis: int, dtype: str) -> list[Any]:
        if axis > 1:
            raise ValueError(f"axis={axis} is not one of 0, 1")
        x = _tensor("X", dtype, M, N)
        return [x, op(x, axis=axis)]


_unary("relu", ops.relu, "max(x, 0)")
_unary("gelu", ops.gelu, "The Gaussian error linear unit, x Φ(x)")
_unary("sigmoid", ops.sigmoid, "1 / (1 + exp(-x))")
_unary("tanh", ops.tanh, "The hyperbolic tangent")
_unary("exp", ops.exp, "The exponential function")
_binary("add", ops.add, "x + y")
_binary("mul", ops.multiply, "x * y")
_reduction("sum", ops.sum, "Sums of rows or columns")
_reduction("max", ops.max, "Maxima of rows or columns")
_reduction("mean", ops.mean, "Means of rows or columns")


@_add("mul_add_relu", numpy_.mul_add_relu, floats=True, n=16 << 20)
def _mul_add_relu(n: int, dtype: str) -> list[Any]:
    """relu(a * b + c), a fused chain"""
    a, b, c = [_tensor(name, dtype, n) for name in "ABC"]
    return [a, b, c, te.compute((n,), lambda i: te.max(a[i] * b[i] + c[i], te.const(0, dtype)), name="D")]


@_add("transpose", numpy_.transpose, M=2048, N=2048)
def _transpose(M: int, N: int, dtype: str) -> list[Any]:
    """Y[N, M] = X[M, N].T"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.transpose(x)]


@_add("blur", numpy_.blur, floats=True, H=2048, W=2048)
def _blur(H: int, W: int, dtype: str) -> list[Any]:
    """The mean over 3×3 pixels in two stages, no border"""
    _fits(H, W, 3, 0)
    x = _tensor("X", dtype, H, W)
    rows = te.compute((H, W - 2), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2], name="rows")
    ninth = te.const(1 / 9, dtype)
    return [
        x,
        te.compute((H - 2, W - 2), lambda i, j: (rows[i, j] + rows[i + 1, j] + rows[i + 2, j]) * ninth, name="Y"),
    ]


@_add("attention", numpy_.attention, floats=True, heads=12, seq=128, dim=64)
def _attention(heads: int, seq: int, dim: int, dtype: str) -> list[Any]:
    """softmax(Q @ K.T / sqrt(dim)) @ V, head by head"""
    q, k, v = [_tensor(name, dtype, heads, seq, dim) for name in "QKV"]
    return [q, k, v, ops.attention(q, k, v)]
