"""This module lists the built-in workloads: name, parameters with defaults, the te program, and its NumPy reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import te
from ..te import ops
from . import numpy_references as numpy_
from .workload_definition import Parameter, Reference, Workload

BUILTIN: dict[str, Workload] = {}
"""Every built-in workload by name."""


def _size(name: str, default: int, doc: str) -> Parameter:
    return Parameter(name, "size", default, doc)


def _dims(**defaults: int) -> tuple[Parameter, ...]:
    return tuple([_size(name, value, _MEANING[name]) for name, value in defaults.items()])


_MEANING = {
    "B": "matrices in the batch", "M": "rows of the result", "N": "columns of the result", "K": "length of the sums",
    "H": "height", "W": "width", "C": "channels", "CI": "input channels", "CO": "output channels", "batch": "images",
    "heads": "heads, all batches together", "seq": "length of the sequence", "dim": "features per head",
}  # fmt: skip
_DTYPE = Parameter("dtype", "dtype", "float32", "data type of the inputs")
_FLOAT = Parameter(
    "dtype", "dtype", "float32", "data type", choices=("float32", "float64", "float16", "bfloat16")
)  # fmt: skip
_KERNEL = _size("kernel", 3, "height and width of the kernel")
_STRIDE = _size("stride", 1, "step of the kernel")
_PADDING = Parameter("padding", "count", 1, "zeros around the image, each side")
_LAYOUT = Parameter("layout", "text", "NCHW", "order of the axes", choices=("NCHW", "NHWC"))
_IMAGE = _dims(batch=1, H=56, W=56)


def _add(
    name: str, parameters: tuple[Parameter, ...], reference: Reference
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(build: Callable[..., Any]) -> Callable[..., Any]:
        BUILTIN[name] = Workload(name, build, parameters, (build.__doc__ or "").strip(), reference)
        return build

    return add


def _tensor(name: str, dtype: str, *shape: int) -> Any:
    return te.placeholder(shape, name=name, dtype=dtype)


@_add(
    "matmul",
    (
        *_dims(M=1024, N=1024, K=1024),
        _DTYPE,
        Parameter("transpose_a", "bool", False, "A is stored transposed, (K, M)"),
        Parameter("transpose_b", "bool", False, "B is stored transposed, (N, K)"),
    ),
    numpy_.matmul,
)
def _matmul(M: int, N: int, K: int, dtype: str, transpose_a: bool, transpose_b: bool) -> list[Any]:
    """C[M, N] = A[M, K] @ B[K, N]"""
    a = _tensor("A", dtype, *((K, M) if transpose_a else (M, K)))
    b = _tensor("B", dtype, *((N, K) if transpose_b else (K, N)))
    return [a, b, ops.matmul(a, b, transpose_a, transpose_b)]


@_add(
    "dense", (*_dims(M=128, N=3072, K=768), _DTYPE, Parameter("bias", "bool", True, "add a bias per column")),
    numpy_.dense,
)  # fmt: skip
def _dense(M: int, N: int, K: int, dtype: str, bias: bool) -> list[Any]:
    """Y[M, N] = X[M, K] @ W[N, K].T + bias[N], a layer of a network"""
    x, w = _tensor("X", dtype, M, K), _tensor("W", dtype, N, K)
    if not bias:
        return [x, w, ops.dense(x, w)]
    plain = ops.dense(x, w)
    b = _tensor("bias", plain.dtype, N)
    return [x, w, b, ops.dense(x, w, b)]


@_add("batch_matmul", (*_dims(B=12, M=128, N=64, K=128), _DTYPE), numpy_.batch_matmul)
def _batch_matmul(B: int, M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C[B, M, N] = A[B, M, K] @ W[B, K, N], matrix by matrix"""
    a, b = _tensor("A", dtype, B, M, K), _tensor("W", dtype, B, K, N)
    return [a, b, ops.batch_matmul(a, b)]


@_add("matmul_bias_gelu", (*_dims(M=128, N=3072, K=768), _FLOAT), numpy_.matmul_bias_gelu)
def _matmul_bias_gelu(M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C = gelu(A @ B + bias), one fused layer"""
    a, b, bias = _tensor("A", dtype, M, K), _tensor("B", dtype, K, N), _tensor("bias", dtype, N)
    return [a, b, bias, ops.gelu(ops.add(ops.matmul(a, b), bias))]


@_add("gemv", (*_dims(M=4096, K=4096), _DTYPE), numpy_.gemv)
def _gemv(M: int, K: int, dtype: str) -> list[Any]:
    """y[M] = A[M, K] @ x[K]"""
    a, x = _tensor("A", dtype, M, K), _tensor("x", dtype, K)
    k = te.reduce_axis((0, K), name="k")
    wide = dtype if dtype.startswith("float") and dtype != "float16" else "float32" if "float" in dtype else "int32"

    def element(i: Any) -> Any:
        return te.sum(a[i, k].astype(wide) * x[k].astype(wide), axis=k)

    return [a, x, te.compute((M,), element, name="y")]


@_add(
    "conv2d",
    (*_IMAGE, *_dims(CI=64, CO=64), _KERNEL, _STRIDE, _PADDING, _size("dilation", 1, "gap between kernel elements"),
     _size("groups", 1, "groups of channels"), _LAYOUT, _DTYPE),
    numpy_.conv2d,
)  # fmt: skip
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


@_add("depthwise_conv2d", (*_IMAGE, *_dims(C=64), _KERNEL, _STRIDE, _PADDING, _LAYOUT, _DTYPE), numpy_.depthwise_conv2d)
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
    def build(
        batch: int, H: int, W: int, C: int, kernel: int, stride: int, padding: int, layout: str, dtype: str
    ) -> list[Any]:
        _fits(H, W, kernel, padding)
        if padding >= kernel:
            raise ValueError(f"padding={padding} is not smaller than kernel={kernel}: some windows would be empty")
        shape = (batch, C, H, W) if layout == "NCHW" else (batch, H, W, C)
        x = _tensor("X", dtype, *shape)
        return [x, op(x, kernel, stride, padding, layout=layout)]

    parameters = (
        *_IMAGE, *_dims(C=64), _size("kernel", 2, "height and width of the window"), _size("stride", 2, "its step"),
        Parameter("padding", "count", 0, "border around the image, each side"), _LAYOUT, _FLOAT,
    )  # fmt: skip
    BUILTIN[name] = Workload(name, build, parameters, doc, reference)


_pool("max_pool2d", ops.max_pool2d, numpy_.max_pool2d, "The largest element of each window")
_pool("avg_pool2d", ops.avg_pool2d, numpy_.avg_pool2d, "The mean of each window, the border's zeros included")


def _fits(height: int, width: int, span: int, padding: int) -> None:
    for name, extent in (("H", height), ("W", width)):
        if extent + 2 * padding < span:
            raise ValueError(f"{name}={extent} with padding={padding} is smaller than the kernel's reach of {span}")


@_add("softmax", (_size("M", 1536, "rows"), _size("N", 128, "columns"), _FLOAT), numpy_.softmax)
def _softmax(M: int, N: int, dtype: str) -> list[Any]:
    """The softmax of each row"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.softmax(x)]


@_add(
    "layer_norm",
    (_size("M", 128, "rows"), _size("N", 768, "columns"), Parameter("eps", "float", 1e-5, "keeps from dividing by 0"),
     _FLOAT),
    numpy_.layer_norm,
)  # fmt: skip
def _layer_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row less its mean, over its deviation, scaled and shifted"""
    x, gamma, beta = _tensor("X", dtype, M, N), _tensor("gamma", dtype, N), _tensor("beta", dtype, N)
    return [x, gamma, beta, ops.layer_norm(x, gamma, beta, epsilon=eps)]


@_add(
    "rms_norm",
    (_size("M", 128, "rows"), _size("N", 768, "columns"), Parameter("eps", "float", 1e-5, "keeps from dividing by 0"),
     _FLOAT),
    numpy_.rms_norm,
)  # fmt: skip
def _rms_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row over its root mean square, scaled"""
    x, weight = _tensor("X", dtype, M, N), _tensor("weight", dtype, N)
    return [x, weight, ops.rms_norm(x, weight, epsilon=eps)]


_PLANE = (_size("M", 2048, "rows"), _size("N", 2048, "columns"))


def _unary(name: str, op: Callable[..., Any], doc: str) -> None:
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x = _tensor("X", dtype, M, N)
        return [x, op(x)]

    BUILTIN[name] = Workload(name, build, (*_PLANE, _FLOAT), doc, numpy_.elementwise(name))


def _binary(name: str, op: Callable[..., Any], doc: str) -> None:
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x, y = _tensor("X", dtype, M, N), _tensor("Y", dtype, M, N)
        return [x, y, op(x, y)]

    BUILTIN[name] = Workload(name, build, (*_PLANE, _DTYPE), doc, numpy_.elementwise(name))


def _reduction(name: str, op: Callable[..., Any], doc: str) -> None:
    def build(M: int, N: int, axis: int, dtype: str) -> list[Any]:
        if axis > 1:
            raise ValueError(f"axis={axis} is not one of 0, 1")
        x = _tensor("X", dtype, M, N)
        return [x, op(x, axis=axis)]

    axis = Parameter("axis", "count", 1, "1: along each row, 0: along each column")
    BUILTIN[name] = Workload(name, build, (*_PLANE, axis, _FLOAT), doc, numpy_.reduce_with(name))


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


@_add("mul_add_relu", (_size("n", 16 << 20, "elements"), _FLOAT), numpy_.mul_add_relu)
def _mul_add_relu(n: int, dtype: str) -> list[Any]:
    """relu(a * b + c), a fused chain"""
    a, b, c = [_tensor(name, dtype, n) for name in "ABC"]
    return [a, b, c, te.compute((n,), lambda i: te.max(a[i] * b[i] + c[i], te.const(0, dtype)), name="D")]


@_add("transpose", (*_PLANE, _DTYPE), numpy_.transpose)
def _transpose(M: int, N: int, dtype: str) -> list[Any]:
    """Y[N, M] = X[M, N].T"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.transpose(x)]


@_add("blur", (_size("H", 2048, "height"), _size("W", 2048, "width"), _FLOAT), numpy_.blur)
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


@_add("attention", (*_dims(heads=12, seq=128, dim=64), _FLOAT), numpy_.attention)
def _attention(heads: int, seq: int, dim: int, dtype: str) -> list[Any]:
    """softmax(Q @ K.T / sqrt(dim)) @ V, head by head"""
    q, k, v = [_tensor(name, dtype, heads, seq, dim) for name in "QKV"]
    return [q, k, v, ops.attention(q, k, v)]
