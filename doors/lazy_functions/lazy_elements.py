"""This module has the functions of single elements, as rows: their names, the kinds of data types, the graph's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...frontends.integer_power import power_of_integers
from ..lazy.expression import number, record
from ..lazy.lazy_array import Array
from ..lazy.operands import broadcast, cast, common, named


def _rows(
    names: str, kinds: str, op: str = "{}", name: str = "{}", count: int = 1, kept: str = ""
) -> list[Callable[..., Array]]:
    """Returns functions of ``count`` arrays of ``kinds`` of data types; those of the kinds ``kept`` come back as they are."""
    return [_row(name.format(n), kinds, op.format(n), count, kept) for n in names.split()]


def _row(name: str, kinds: str, op: str, count: int, kept: str) -> Callable[..., Array]:
    def apply(*given: Any) -> Array:
        found = common(*given)
        if found[0].dtype.kind not in kinds:
            raise TypeError(f"{name} takes no {found[0].dtype}")
        return Array(found[0] if found[0].dtype.kind in kept else record(op, *found))

    return named((lambda x, /: apply(x)) if count == 1 else (lambda x1, x2, /: apply(x1, x2)), name)


acos, acosh, asin, asinh, atan, atanh = _rows("acos acosh asin asinh atan atanh", "f")
cos, cosh, sin, sinh, tan, tanh = _rows("cos cosh sin sinh tan tanh", "f")
exp, expm1, log, log10, log1p, log2, sqrt = _rows("exp expm1 log log10 log1p log2 sqrt", "f")
ceil, floor, round, trunc = _rows("ceil floor round trunc", "iuf", kept="iu")
abs, negative, sign, square = _rows("abs negative sign square", "iuf")
isfinite, isinf, isnan = _rows("finite inf nan", "iuf", "is_{}", "is{}")
(bitwise_invert,), (logical_not,) = _rows("bitwise_invert", "biu", "bitwise_not"), _rows("logical_not", "b")
(positive,) = _rows("positive", "iuf", kept="iuf")
add, divide, floor_divide, multiply = _rows("add divide floor_divide multiply", "iuf", count=2)
maximum, minimum, subtract = _rows("maximum minimum subtract", "iuf", count=2)
(remainder,), (_float_power,) = _rows("remainder", "iuf", "floor_mod", count=2), _rows("pow", "f", "power", count=2)
atan2, copysign, hypot, logaddexp, nextafter = _rows("atan2 copysign hypot logaddexp nextafter", "f", count=2)
bitwise_and, bitwise_or, bitwise_xor = _rows("and or xor", "biu", "bitwise_{}", "bitwise_{}", 2)
logical_and, logical_or, logical_xor = _rows("and or xor", "b", "logical_{}", "logical_{}", 2)
bitwise_left_shift, bitwise_right_shift = _rows("left_shift right_shift", "iu", name="bitwise_{}", count=2)
greater, greater_equal, less, less_equal = _rows("greater greater_equal less less_equal", "iuf", count=2)
equal, not_equal = _rows("equal not_equal", "biuf", count=2)


def pow(x1: Any, x2: Any, /) -> Array:
    """Returns powers; exponents of integers are at least 0."""
    a, b = common(x1, x2)
    if b.is_number and b.data == 2:
        return square(x1)
    if a.dtype.kind == "f":
        return _float_power(x1, x2)
    return Array(power_of_integers(record, a, b, number(1, a.dtype), 8 * a.dtype.itemsize))


def reciprocal(x: Any, /) -> Array:
    """Returns 1 / x."""
    return divide(1.0, x)


def signbit(x: Any, /) -> Array:
    """Returns whether floats are negative, -0.0 among them."""
    return less(copysign(1.0, x), 0.0)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """Returns the elements, at least ``min`` and at most ``max`` where they are given."""
    out = x if min is None else maximum(x, min)
    return positive(out) if max is None else minimum(out, max)


def where(condition: Any, x1: Any, x2: Any, /) -> Array:
    """Returns ``x1`` where the condition holds, else ``x2``."""
    parts = [logical_and(condition, condition).expression, *common(x1, x2)]
    shape = np.broadcast_shapes(*[p.shape for p in parts])
    return Array(record("where", *[broadcast(p, shape) for p in parts]))


def matmul(x1: Any, x2: Any, /) -> Array:
    """Returns the matrix product; vectors are rows on the left and columns on the right."""
    a, b = [Array(one) for one in common(x1, x2)]
    if not a.ndim or not b.ndim:
        raise ValueError("matmul takes no arrays without dimensions")
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    out = Array(record("matmul", left.expression, right.expression, out_dtype=a.dtype.name))
    keys = [0 if n == 1 else slice(None) for n in (a.ndim, b.ndim)]
    return out if 0 not in keys else out[(..., *keys)]


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Array:
    """Returns the sum of products over pairs of axes: the last of ``x1`` with the first of ``x2``, or those given."""
    a, b = common(x1, x2)
    every, m, n = "abcdefghijklmnopqrstuvwxyz", len(a.shape), len(b.shape)
    first, second = (range(-axes, 0), range(axes)) if isinstance(axes, int) else axes
    pairs = {m + j % n: every[i % m] for i, j in zip(first, second, strict=True)}
    right = "".join([pairs.get(m + j, every[m + j]) for j in range(n)])
    kept = [c for c in every[:m] + right if c not in pairs.values()]
    return Array(cast(record("einsum", a, b, equation=f"{every[:m]},{right}->{''.join(kept)}"), a.dtype))
