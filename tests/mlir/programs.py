"""Operators of te.ops as functions, one row each: the operator's name, and the tensors of a small program with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.te import ops
from tilewright.tir import PrimFunc
from tilewright.tir.expr import to_numpy


def _x(*shape: Any, dtype: str = "float32", name: str = "X") -> Any:
    return te.placeholder(shape, dtype, name)


def _of_one(name: str, dtype: str = "float32") -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        x = _x(7, 13, dtype=dtype)
        return [x, getattr(ops, name)(x)]

    return make


def _of_two(name: str, dtype: str = "float32") -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        x, y = _x(7, 13, dtype=dtype), _x(13, dtype=dtype, name="Y")
        return [x, y, getattr(ops, name)(x, y)]

    return make


def _given(make: Callable[..., Any], *shapes: Any) -> Callable[[], list[Any]]:
    """Returns the maker of a program of tensors of ``shapes``; a shape may be a pair of a shape and a data type."""

    def program() -> list[Any]:
        given = []
        for n, shape in enumerate(shapes):
            dims, dtype = shape if shape and isinstance(shape[0], tuple) else (shape, "float32")
            given.append(_x(*dims, dtype=dtype, name="XYZUVW"[n]))
        made = make(*given)
        return [*given, *(made if isinstance(made, (tuple, list)) else (made,))]

    return program


_ELEMENTS = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh elu erf exp exp2 expm1 floor gelu hardsigmoid hardswish identity is_inf "
    "is_finite is_nan leaky_relu log log10 log1p log2 mish negative relu relu6 round rsqrt sigmoid sign silu sin sinh softplus "
    "sqrt square tan tanh trunc"
)
_PAIRS = (
    "add divide equal floor_divide floor_mod greater greater_equal less less_equal maximum minimum multiply not_equal power "
    "subtract remainder atan2 copysign hypot logaddexp nextafter"
)
_I8, _I32, _BOOL = "int8", "int32", "bool"

ROWS: dict[str, Callable[[], list[Any]]] = {
    **{name: _of_one(name) for name in _ELEMENTS.split()},
    **{name: _of_two(name) for name in _PAIRS.split()},
    **{name: _of_two(name, _I32) for name in "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()},
    **{name: _of_two(name, _BOOL) for name in "logical_and logical_or logical_xor".split()},
    "bitwise_not": _of_one("bitwise_not", _I32),
    "logical_not": _of_one("logical_not", _BOOL),
    "floor_divide of int32": _of_two("floor_divide", _I32),
    "floor_mod of int32": _of_two("floor_mod", _I32),
    "truncate_divide": _of_two("truncate_divide", _I32),
    "add of uint8": _of_two("add", "uint8"),
    "maximum of uint8": _of_two("maximum", "uint8"),
    "multiply of float16": _of_two("multiply", "float16"),
    "add of bfloat16": _of_two("add", "bfloat16"),
    "reinterpret": _given(lambda x: ops.reinterpret(x, "int32"), (7, 13)),
    "cast": _given(lambda x: ops.cast(x, "int8"), (7, 13)),
    "cast to bool": _given(lambda x: ops.cast(x, "bool"), (7, 13)),
    "clip": _given(lambda x: ops.clip(x, -1.0, 2.0), (7, 13)),
    "prelu": _given(lambda x, s: ops.prelu(x, s, 1), (7, 13), (13,)),
    "swiglu": _given(ops.swiglu, (7, 13), (7, 13)),
    "where": _given(ops.where, ((7, 13), _BOOL), (7, 13), (7, 13)),
    "matmul": _given(ops.matmul, (7, 13), (13, 17)),
    "matmul of int8": _given(ops.matmul, ((7, 13), _I8), ((13, 17), _I8)),
    "dense": _given(ops.dense, (7, 13), (17, 13), (17,)),
    "batch_matmul": _given(ops.batch_matmul, (2, 7, 13), (2, 13, 17)),
    "einsum": _given(lambda a, b: ops.einsum("bij,jk->bik", a, b), (2, 7, 13), (13, 5)),
    "conv1d": _given(lambda x, w: ops.conv1d(x, w, 1, 1), (2, 3, 16), (4, 3, 3)),
    "conv2d": _given(lambda x, w: ops.conv2d(x, w, 2, 1), (1, 3, 13, 16), (4, 3, 3, 3)),
    "conv2d without padding": _given(lambda x, w: ops.conv2d(x, w, 1, 0), (1, 3, 13, 16), (4, 3, 3, 3)),
    "conv3d": _given(lambda x, w: ops.conv3d(x, w, 1, 0), (1, 2, 5, 6, 7), (3, 2, 2, 3, 3)),
    "depthwise_conv2d": _given(lambda x, w: ops.depthwise_conv2d(x, w, 1, 1), (1, 5, 7, 8), (5, 1, 3, 3)),
    "conv2d_transpose": _given(lambda x, w: ops.conv2d_transpose(x, w, 2, 1), (1, 3, 5, 6), (3, 4, 3, 3)),
    "max_pool1d": _given(lambda x: ops.max_pool1d(x, 2), (1, 3, 16)),
    "max_pool2d": _given(lambda x: ops.max_pool2d(x, 2, 2), (1, 3, 7, 8)),
    "max_pool3d": _given(lambda x: ops.max_pool3d(x, 2), (1, 2, 4, 5, 6)),
    "avg_pool1d": _given(lambda x: ops.avg_pool1d(x, 2), (1, 3, 16)),
    "avg_pool2d": _given(lambda x: ops.avg_pool2d(x, 3, 2, 1), (1, 3, 7, 8)),
    "avg_pool3d": _given(lambda x: ops.avg_pool3d(x, 2), (1, 2, 4, 5, 6)),
    "max_pool_positions": _given(lambda x: ops.max_pool_positions(x, (2, 2), (2, 2)), (1, 3, 8, 8)),
    "global_avg_pool": _given(ops.global_avg_pool, (2, 3, 5, 7)),
    "global_max_pool": _given(ops.global_max_pool, (2, 3, 5, 7)),
    "adaptive_avg_pool2d": _given(lambda x: ops.adaptive_avg_pool2d(x, (3, 4)), (1, 3, 7, 8)),
    "adaptive_max_pool2d": _given(lambda x: ops.adaptive_max_pool2d(x, (3, 4)), (1, 3, 7, 8)),
    "sum": _given(lambda x: ops.sum(x, 1), (7, 13)),
    "sum of all": _given(lambda x: ops.sum(x), (7, 13)),
    "mean": _given(lambda x: ops.mean(x, 0), (7, 13)),
    "prod": _given(lambda x: ops.prod(x, 1), (7, 5)),
    "max": _given(lambda x: ops.max(x, 1), (7, 13)),
    "min": _given(lambda x: ops.min(x, 1), (7, 13)),
    "argmax": _given(lambda x: ops.argmax(x, 1), (7, 13)),
    "argmin": _given(lambda x: ops.argmin(x, 1), (7, 13)),
    "softmax": _given(ops.softmax, (7, 13)),
    "log_softmax": _given(ops.log_softmax, (7, 13)),
    "layer_norm": _given(lambda x, g, b: ops.layer_norm(x, g, b), (7, 13), (13,), (13,)),
    "rms_norm": _given(lambda x, g: ops.rms_norm(x, g), (7, 13), (13,)),
    "attention": _given(ops.attention, (1, 2, 7, 8), (1, 2, 13, 8), (1, 2, 13, 8)),
    "pad": _given(lambda x: ops.pad(x, (1, 0), (0, 2)), (7, 13)),
    "transpose": _given(ops.transpose, (7, 13)),
    "reshape": _given(lambda x: ops.reshape(x, (13, 7)), (7, 13)),
    "flatten": _given(ops.flatten, (2, 7, 3)),
    "expand_dims": _given(lambda x: ops.expand_dims(x, 1), (7, 13)),
    "squeeze": _given(lambda x: ops.squeeze(x, 1), (7, 1, 13)),
    "flip": _given(lambda x: ops.flip(x, 1), (7, 13)),
    "repeat": _given(lambda x: ops.repeat(x, 2, 0), (7, 13)),
    "tile": _given(lambda x: ops.tile(x, (2, 3)), (7, 5)),
    "broadcast_to": _given(lambda x: ops.broadcast_to(x, (7, 13)), (13,)),
    "concatenate": _given(lambda x, y: ops.concatenate([x, y], 1), (7, 13), (7, 4)),
    "stack": _given(lambda x, y: ops.stack([x, y], 1), (7, 13), (7, 13)),
    "split": _given(lambda x: ops.split(x, 2, 1), (7, 16)),
    "strided_slice": _given(lambda x: ops.strided_slice(x, [1, 0], [6, 13], [2, 3]), (7, 13)),
    "take": _given(lambda x, i: ops.take(x, i, 0), (7, 13), ((5,), _I32)),
    "one_hot": _given(lambda i: ops.one_hot(i, 7), ((5,), _I32)),
    "full": _given(lambda x: [ops.identity(x), ops.full((3, 4), 2.5)], (7,)),
    "gather_elements": _given(lambda x, i: ops.gather_elements(x, i, 1), (7, 13), ((7, 4), _I32)),
    "gather_nd": _given(lambda x, i: ops.gather_nd(x, i), (7, 13), ((5, 1), _I32)),
    "scatter_elements": _given(lambda x, i, u: ops.scatter_elements(x, i, u, 1), (7, 13), ((7, 4), _I32), (7, 4)),
    "scatter_nd": _given(lambda x, i, u: ops.scatter_nd(x, i, u), (7, 13), ((5, 1), _I32), (5, 13)),
    "cumsum": _given(lambda x: ops.cumsum(x, 1), (7, 13)),
    "cumprod": _given(lambda x: ops.cumprod(x, 1), (7, 5)),
    "triangle": _given(lambda x: ops.triangle(x, upper=True), (7, 13)),
    "topk": _given(lambda x: ops.topk(x, 3), (5, 7)),
    "resize1d": _given(lambda x: ops.resize1d(x, 9), (1, 2, 5)),
    "resize2d": _given(lambda x: ops.resize2d(x, (7, 9)), (1, 2, 5, 4)),
    "resize3d": _given(lambda x: ops.resize3d(x, (3, 7, 5)), (1, 2, 2, 5, 4)),
    "resample": _given(ops.resample, (3, 7), ((5, 2), _I32), (5, 2)),
    "grid_sample": _given(ops.grid_sample, (1, 2, 5, 4), (1, 3, 4, 2)),
    "roi_align": _given(lambda x, r, b: ops.roi_align(x, r, b, (2, 2)), (5, 2, 6, 5), (3, 4), ((3,), _I32)),
    "deformable_windows": _given(lambda x, o: ops.deformable_windows(x, o, kernel=(2, 2)), (1, 2, 5, 4), (1, 8, 4, 3)),
    "col2im": _given(lambda x: ops.col2im(x, (5, 4), (2, 2)), (1, 8, 12)),
    "batch_norm": _given(ops.batch_norm, (2, 3, 5), (3,), (3,), (3,), (3,)),
    "group_norm": _given(lambda x, g, b: ops.group_norm(x, g, b, 2), (2, 4, 5), (4,), (4,)),
    "rotary": _given(ops.rotary, (2, 5, 8), (5, 8), (5, 8)),
    "adaptive_avg_pool1d": _given(lambda x: ops.adaptive_avg_pool1d(x, 3), (1, 3, 7)),
    "adaptive_max_pool1d": _given(lambda x: ops.adaptive_max_pool1d(x, 3), (1, 3, 7)),
    "adaptive_avg_pool3d": _given(lambda x: ops.adaptive_avg_pool3d(x, (2, 3, 2)), (1, 2, 5, 7, 4)),
    "adaptive_max_pool3d": _given(lambda x: ops.adaptive_max_pool3d(x, (2, 3, 2)), (1, 2, 5, 7, 4)),
}  # fmt: skip
"""Makers of programs; names with ``of``, ``to`` or ``without`` are further rows of one operator."""


def operator_name(row: str) -> str:
    """Return the operator of a row."""
    return row.split(" ")[0]


def program(row: str, symbol: str = "main") -> PrimFunc:
    """Return the function of a row."""
    return te.create_prim_func(ROWS[row](), symbol)


def arrays(func: PrimFunc, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return arrays for the parameters of a function: small numbers, also negative, and places inside arrays."""
    rng = np.random.default_rng(seed)
    out = []
    for buffer in func.buffers:
        shape = tuple(int(e) for e in buffer.shape)
        kind = to_numpy(buffer.dtype)
        if buffer.dtype == "bfloat16":
            data: Any = (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        elif kind.kind == "f":
            data = rng.uniform(1.0, 1.5, shape)
        elif kind.kind == "b":
            data = rng.integers(0, 2, shape)
        elif buffer.dtype == "int32" and "place" not in buffer.name:
            data = rng.integers(0, 5, shape)
        else:
            data = rng.integers(0, 100, shape)
        out.append(np.array(data, kind).reshape(shape))
    return out
