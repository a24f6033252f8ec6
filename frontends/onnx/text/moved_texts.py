"""Operators that move texts without reading them: the same ones as for numbers, on arrays of objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .text_call import Shape, TextCall, broadcast_shape, text_operator


@text_operator("Identity")
def identity(c: TextCall, x: Any) -> Any:
    return x


def _reshaped(c: TextCall, x: Shape, _: Shape = ()) -> Sequence[Shape]:
    want = c.ints(1, "shape")
    if any(d == 0 for d in want[len(x) :]) or want.count(-1) > 1:
        raise c.error(f"the shape {list(want)} does not fit {list(x)}")
    out = [x[n] if d == 0 else d for n, d in enumerate(want)]
    if -1 in out:
        at, rest = out.index(-1), [d for d in out if d != -1]
        known = all(isinstance(d, int) for d in (*x, *rest)) and math.prod(rest) > 0
        out[at] = math.prod(x) // math.prod(rest) if known else c.size(0, at)
    return [tuple(out)]


@text_operator("Reshape", "tn", shapes=_reshaped)
def reshape(c: TextCall, x: Any, _: Any = None) -> Any:
    want = c.ints(1, "shape")
    return x.reshape([x.shape[n] if d == 0 else d for n, d in enumerate(want)])


def _squeezed(c: TextCall, x: Shape, *_: Shape) -> Sequence[Shape]:
    axes = {a % len(x) for a in c.ints(1, "axes")}
    return [tuple([d for n, d in enumerate(x) if n not in axes])]


@text_operator("Squeeze", "tn", shapes=_squeezed)
def squeeze(c: TextCall, x: Any, *_: Any) -> Any:
    return np.squeeze(x, c.ints(1, "axes"))


def _unsqueezed(c: TextCall, x: Shape, *_: Shape) -> Sequence[Shape]:
    rank = len(x) + len(c.ints(1, "axes"))
    axes, rest = {a % rank for a in c.ints(1, "axes")}, iter(x)
    return [tuple([1 if n in axes else next(rest) for n in range(rank)])]


@text_operator("Unsqueeze", "tn", shapes=_unsqueezed)
def unsqueeze(c: TextCall, x: Any, *_: Any) -> Any:
    return np.expand_dims(x, c.ints(1, "axes"))


def _order(c: TextCall, rank: int) -> tuple[int, ...]:
    return tuple(c.attr("perm", range(rank)[::-1]))


@text_operator("Transpose", shapes=lambda c, x: [tuple([x[n] for n in _order(c, len(x))])])
def transpose(c: TextCall, x: Any) -> Any:
    return x.transpose(_order(c, x.ndim))


def _joined(c: TextCall, *shapes: Shape) -> Sequence[Shape]:
    axis, out = c.attr("axis") % len(shapes[0]), list(shapes[0])
    parts = [s[axis] for s in shapes]
    out[axis] = sum(parts) if all(isinstance(d, int) for d in parts) else c.size(0, axis)
    return [tuple(out)]


@text_operator("Concat", shapes=_joined)
def concat(c: TextCall, *parts: Any) -> Any:
    return np.concatenate(parts, c.attr("axis"))


def _gathered(c: TextCall, x: Shape, indices: Shape) -> Sequence[Shape]:
    axis = c.attr("axis", 0) % len(x)
    return [(*x[:axis], *indices, *x[axis + 1 :])]


@text_operator("Gather", "tn", shapes=_gathered)
def gather(c: TextCall, x: Any, indices: Any) -> Any:
    return np.take(x, indices, axis=c.attr("axis", 0))


@text_operator("Where", "ntt", shapes=broadcast_shape)
def where(c: TextCall, condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


@text_operator(
    "Shape", gives=("int64",), shapes=lambda c, x: [(len(range(len(x))[c.attr("start", 0) : c.attr("end")]),)]
)
def shape(c: TextCall, x: Any) -> Any:
    return np.array(x.shape[c.attr("start", 0) : c.attr("end")], np.int64)
