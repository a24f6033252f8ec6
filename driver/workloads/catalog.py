"""This module has the built-in workloads, and reads the text by which a user names a workload with its parameters.

Each workload has parameters with defaults, the te program, and the same in NumPy, with which ``tilewright bench`` compares.
The NumPy functions are written for speed: results go into ``outputs`` where a
function takes ``out=``, and large temporaries are avoided.

``matmul:M=512,N=512,K=512`` names a built-in workload (or one of a plugin); parameters left out take their defaults.
``kernels.py:attention`` runs a file of the user and takes the function of that name, with ``--arg seq=128`` or
``kernels.py:attention:seq=128``.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ... import te
from ...pages import did_you_mean
from ...te import ops
from .workload_definition import Parameter, Reference, Workload, WorkloadCase, WorkloadError, workload

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

BUILTIN: dict[str, Workload] = {}
"""Every built-in workload by name."""

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


@_add("matmul", matmul, M=1024, N=1024, K=1024)
def _matmul(M: int, N: int, K: int, dtype: str, transpose_a: bool, transpose_b: bool) -> list[Any]:
    """C[M, N] = A[M, K] @ B[K, N]"""
    a = _tensor("A", dtype, *((K, M) if transpose_a else (M, K)))
    b = _tensor("B", dtype, *((N, K) if transpose_b else (K, N)))
    return [a, b, ops.matmul(a, b, transpose_a, transpose_b)]


@_add("dense", dense, M=128, N=3072, K=768)
def _dense(M: int, N: int, K: int, dtype: str, bias: bool) -> list[Any]:
    """Y[M, N] = X[M, K] @ W[N, K].T + bias[N], a layer of a network"""
    x, w = _tensor("X", dtype, M, K), _tensor("W", dtype, N, K)
    if not bias:
        return [x, w, ops.dense(x, w)]
    plain = ops.dense(x, w)
    b = _tensor("bias", plain.dtype, N)
    return [x, w, b, ops.dense(x, w, b)]


@_add("batch_matmul", batch_matmul, B=12, M=128, N=64, K=128)
def _batch_matmul(B: int, M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C[B, M, N] = A[B, M, K] @ W[B, K, N], matrix by matrix"""
    a, b = _tensor("A", dtype, B, M, K), _tensor("W", dtype, B, K, N)
    return [a, b, ops.batch_matmul(a, b)]


@_add("matmul_bias_gelu", matmul_bias_gelu, floats=True, M=128, N=3072, K=768)
def _matmul_bias_gelu(M: int, N: int, K: int, dtype: str) -> list[Any]:
    """C = gelu(A @ B + bias), one fused layer"""
    a, b, bias = _tensor("A", dtype, M, K), _tensor("B", dtype, K, N), _tensor("bias", dtype, N)
    return [a, b, bias, ops.gelu(ops.add(ops.matmul(a, b), bias))]


@_add("gemv", gemv, M=4096, K=4096)
def _gemv(M: int, K: int, dtype: str) -> list[Any]:
    """y[M] = A[M, K] @ x[K]"""
    a, x = _tensor("A", dtype, M, K), _tensor("x", dtype, K)
    k = te.reduce_axis((0, K), name="k")
    wide = dtype if dtype.startswith("float") and dtype != "float16" else "float32" if "float" in dtype else "int32"

    def element(i: Any) -> Any:
        return te.sum(a[i, k].astype(wide) * x[k].astype(wide), axis=k)

    return [a, x, te.compute((M,), element, name="y")]


@_add("conv2d", conv2d, CI=64, CO=64)
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


@_add("depthwise_conv2d", depthwise_conv2d, C=64)
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


_pool("max_pool2d", ops.max_pool2d, max_pool2d, "The largest element of each window")
_pool("avg_pool2d", ops.avg_pool2d, avg_pool2d, "The mean of each window, the border's zeros included")


def _fits(height: int, width: int, span: int, padding: int) -> None:
    for name, extent in (("H", height), ("W", width)):
        if extent + 2 * padding < span:
            raise ValueError(f"{name}={extent} with padding={padding} is smaller than the kernel's reach of {span}")


@_add("softmax", softmax, floats=True, M=1536, N=128)
def _softmax(M: int, N: int, dtype: str) -> list[Any]:
    """The softmax of each row"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.softmax(x)]


@_add("layer_norm", layer_norm, floats=True, M=128, N=768)
def _layer_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row less its mean, over its deviation, scaled and shifted"""
    x, gamma, beta = _tensor("X", dtype, M, N), _tensor("gamma", dtype, N), _tensor("beta", dtype, N)
    return [x, gamma, beta, ops.layer_norm(x, gamma, beta, epsilon=eps)]


@_add("rms_norm", rms_norm, floats=True, M=128, N=768)
def _rms_norm(M: int, N: int, eps: float, dtype: str) -> list[Any]:
    """Each row over its root mean square, scaled"""
    x, weight = _tensor("X", dtype, M, N), _tensor("weight", dtype, N)
    return [x, weight, ops.rms_norm(x, weight, epsilon=eps)]


def _unary(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, elementwise(name), doc=doc, floats=True, M=2048, N=2048)
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x = _tensor("X", dtype, M, N)
        return [x, op(x)]


def _binary(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, elementwise(name), doc=doc, M=2048, N=2048)
    def build(M: int, N: int, dtype: str) -> list[Any]:
        x, y = _tensor("X", dtype, M, N), _tensor("Y", dtype, M, N)
        return [x, y, op(x, y)]


def _reduction(name: str, op: Callable[..., Any], doc: str) -> None:
    @_add(name, reduce_with(name), doc=doc, floats=True, M=2048, N=2048)
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


@_add("mul_add_relu", mul_add_relu, floats=True, n=16 << 20)
def _mul_add_relu(n: int, dtype: str) -> list[Any]:
    """relu(a * b + c), a fused chain"""
    a, b, c = [_tensor(name, dtype, n) for name in "ABC"]
    return [a, b, c, te.compute((n,), lambda i: te.max(a[i] * b[i] + c[i], te.const(0, dtype)), name="D")]


@_add("transpose", transpose, M=2048, N=2048)
def _transpose(M: int, N: int, dtype: str) -> list[Any]:
    """Y[N, M] = X[M, N].T"""
    x = _tensor("X", dtype, M, N)
    return [x, ops.transpose(x)]


@_add("blur", blur, floats=True, H=2048, W=2048)
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


@_add("attention", attention, floats=True, heads=12, seq=128, dim=64)
def _attention(heads: int, seq: int, dim: int, dtype: str) -> list[Any]:
    """softmax(Q @ K.T / sqrt(dim)) @ V, head by head"""
    q, k, v = [_tensor(name, dtype, heads, seq, dim) for name in "QKV"]
    return [q, k, v, ops.attention(q, k, v)]


def parse_spec(text: str, args: Mapping[str, Any] | Sequence[str] = ()) -> WorkloadCase:
    """Returns the case that ``text`` names; ``args`` (a mapping, or texts ``key=value``) are added to it.

    Raises :class:`WorkloadError`: no such workload (with the nearest names), no such parameter, a value that it
    cannot take.
    """
    place, values = _split(text.strip())
    given = _pairs(values.split(",") if values else [], text)
    given.update(args.items() if isinstance(args, Mapping) else _pairs(args, text))
    return find_workload(place).case(**given)


def find_workload(name: str) -> Workload:
    """Returns the workload of a name, or of ``file.py:function``."""
    if ".py:" in name or name.endswith(".py"):
        path, _, function = name.partition(".py:")
        return _from_file(Path(path if path.endswith(".py") else path + ".py"), function)
    found = all_workloads().get(name)
    if found is None:
        raise WorkloadError(
            f"no workload is called {name!r}{did_you_mean(name, all_workloads(), 3, listed=0)} (`tilewright workloads` lists all; "
            "a function of your own is file.py:function)"
        )
    return found


def all_workloads() -> dict[str, Workload]:
    """Returns all workloads by name: the built-in ones and those of installed plugins."""
    if not _plugins_read:
        _plugins_read.append(True)
        for entry in entry_points(group="tilewright.workloads"):
            try:
                found = entry.load()
                whole = found if isinstance(found, Workload) else workload(found)
                _plugins[entry.name] = replace(whole, name=entry.name)  # the name by which users find it
            except Exception as error:  # a plugin that raises any exception is left out
                package = entry.dist.name if entry.dist is not None else "?"
                warnings.warn(f"workload {entry.name!r} of the package {package!r} is broken: {error}", stacklevel=2)
    return {**_plugins, **BUILTIN}


_plugins: dict[str, Workload] = {}
_plugins_read: list[bool] = []


def _split(text: str) -> tuple[str, str]:
    """Returns the name and the ``key=value`` list."""
    if not text:
        raise WorkloadError("an empty workload; write e.g. matmul:M=512,N=512,K=512")
    head, colon, tail = text.rpartition(":")
    if not colon or (".py" in text and "=" not in tail):
        return text, ""
    return head, tail


def _pairs(items: Sequence[str], text: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for item in items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name or not value.strip():
            raise WorkloadError(f"{text}: {item!r} is not name=value")
        if name in given:
            raise WorkloadError(f"{text}: {name} is given twice")
        given[name] = value.strip()
    return given


def _from_file(path: Path, function: str) -> Workload:
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    module = _run(path)
    marked = {name: value for name, value in vars(module).items() if isinstance(value, Workload)}
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__]
    if not function and len(marked) != 1:
        names = list(marked) or own
        if not names:
            raise WorkloadError(f"{path} has no functions; a workload is a function that returns te tensors")
        raise WorkloadError(
            f"{path}: which function is the workload? write {path}:NAME, with one of {', '.join(names)}"
        )
    found = vars(module).get(function) if function else next(iter(marked.values()))
    if found is None:
        raise WorkloadError(
            f"{path} has no function {function!r}{did_you_mean(function, [*marked, *own]) or '; it has no functions'}"
        )
    if not callable(found):
        raise WorkloadError(f"{function} in {path} is not a function that returns te tensors")
    return replace(found if isinstance(found, Workload) else workload(found), origin=str(path))


def _run(path: Path) -> Any:
    """Import a user's file under a name of its own; its folder is importable while it runs."""
    name = f"_tilewright_user_{abs(hash(str(path.resolve())))}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise WorkloadError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module
