"""This module has products with weights of 2, 4 or 8 bits; groups of a row have scales.

A row of K weights consists of groups of equal length. The weight of column ``n`` at step ``k`` of group ``g`` stands for
``scales[n, g] * (code - zeros[n, g])``. Codes are unsigned, several in a byte, the first one in the lowest bits.

:func:`dense_nbits` takes the codes row by row, as ONNX Runtime's ``MatMulNBits`` stores them. :func:`dense_packed_nbits` computes
the same from codes in the order in which vectors read them (:func:`pack_nbits`). Its sums over a group are sums of integers
where :func:`quantize_groups` has rounded the data to int8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.annotations import NBITS
from ...tir.expr import EQ, Expr, Select, cast, const, min_
from ...tir.expr import max_ as larger
from ...tir.expr.intrinsics.number_operations import abs_, bitwise_and, fma, reinterpret, round_, shift_right
from ..compute import compute
from ..reduce import max_, reduce_axis, sum_
from ..tensor import Tensor
from .arguments import BROADCAST, check_tensor, constant, require_same, shape_text
from .products import dense

CODE_BITS = (2, 4, 8)
"""The sizes of codes."""

CODE_LANES, CODE_STEPS = 16, 4
"""The columns of a panel, whose codes are neighbours, and the steps of integer products that are neighbours for each."""

_FRACTIONS = ("float16", "bfloat16", "float32", "float64")


def dense_nbits(
    data: Tensor, codes: Tensor, scales: Tensor, zeros: Tensor | None = None, *, bits: int = 4,
    activations: str = "float32", name: str = "dense_nbits",
) -> Tensor:  # fmt: skip
    """Returns a fully connected layer whose weights are codes of ``bits`` bits, with scales and zero points of groups.

    data: (…, K) of floats; codes: uint8 of (N, G, bytes of a group); scales: floats (N, G); zeros: (N, G), uint8 or floats,
    ``2 ** (bits - 1)`` when left out. K may end within the last group. Result: (…, N), of the data's type.

    ``activations="int8"`` lets a graph round each group of the data to int8, with a scale of its own; the error relative
    to the largest result is then some 0.5 %. This function itself always computes with floats.
    """
    op = "dense_nbits"
    _check_bits(op, bits)
    if activations not in ("float32", "int8"):
        raise ValueError(f"{op}: activations={activations!r}; there are float32 and int8")
    check_tensor(op, data, None, "the data")
    if not data.ndim or data.dtype not in _FRACTIONS:
        raise ValueError(f"{op}: the data is {data.dtype} of shape {shape_text(data)}; floats of (…, K) are expected")
    check_tensor(op, codes, 3, "the codes")
    if codes.dtype != "uint8":
        raise ValueError(f"{op}: the codes are {codes.dtype}; they are bytes, uint8")
    requires = _check_scales(op, codes, scales, zeros, (0, 1))
    depth, count = data.shape[-1], 8 // bits
    group = constant(op, "the number of bytes of a group", codes.shape[2]) * count
    steps, groups = (constant(op, what, e) for what, e in (("K", depth), ("the number of groups", codes.shape[1])))
    if not (groups - 1) * group < steps <= groups * group:
        raise ValueError(f"{op}: {groups} groups of {group} codes are no rows of {steps} weights")

    def weight(n: Expr, k: Expr) -> Expr:
        g, at = k // group, k % group
        byte = codes(n, g, at // count)
        code = byte if bits == 8 else _code(byte, at % count * bits, bits)
        zero = const(1 << (bits - 1), "float32") if zeros is None else cast("float32", zeros(n, g))
        return (cast("float32", code) - zero) * cast("float32", scales(n, g))

    real = compute((codes.shape[0], depth), weight, name=f"{name}_weight", requires=requires)
    return dense(data, real, out_dtype=data.dtype, name=name)


def quantize_groups(
    data: Tensor, group: int, groups: int = 0, name: str = "quantize_groups"
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the rows of ``data`` in groups rounded to int8: the numbers, the scale of each group, and its sum.

    data: floats (…, K); the numbers are (…, G, group), the scales, in float32, and the sums, of the numbers in int32, (…,
    G). The largest magnitude of a group becomes 127; ties round to even. Zeros follow where K ends within a group, or before
    the last one of ``groups``.
    """
    op = "quantize_groups"
    check_tensor(op, data, None, "the data")
    if not data.ndim or data.dtype not in _FRACTIONS:
        raise ValueError(f"{op}: the data is {data.dtype} of shape {shape_text(data)}; floats of (…, K) are expected")
    depth = constant(op, "K", data.shape[-1])
    *lead, _ = data.shape
    if group < 1 or 0 < groups * group < depth:
        raise ValueError(f"{op}: {groups or 'some'} groups of {group} numbers hold no row of {depth}")
    count = groups or -(-depth // group)
    rows: tuple[int | Expr, ...] = (*lead, count)

    def element(*i: Any) -> Expr:
        *at, g, k = i
        step = g * group + k
        if depth == count * group:
            return cast("float32", data(*at, step))
        inside = Select(step < depth, data(*at, min_(step, depth - 1)), const(0, data.dtype))
        return cast("float32", inside)

    k = reduce_axis((0, group), name="k")
    largest: Tensor = compute(rows, lambda *i: max_(abs_(element(*i, k.var)), axis=k), name=f"{name}_largest")

    def scale(*i: Expr) -> Expr:
        most = largest(*i)
        return Select(EQ(most, const(0, "float32")), const(1, "float32"), most * const(1 / 127, "float32"))

    scales: Tensor = compute(rows, scale, name=f"{name}_scale")
    numbers: Tensor = compute(
        (*rows, group), lambda *i: cast("int8", round_(element(*i) / scales(*i[:-1]))), name=f"{name}_number"
    )
    s = reduce_axis((0, group), name="s")
    sums: Tensor = compute(rows, lambda *i: sum_(cast("int32", numbers(*i, s.var)), axis=s), name=f"{name}_sum")
    return numbers, scales, sums


def dense_packed_nbits(
    data: Tensor, sums: Tensor, codes: Tensor, scales: Tensor, zeros: Tensor | None = None, factors: Tensor | None = None,
    *, bits: int = 4, columns: int = 0, name: str = "dense_packed_nbits",
) -> Tensor:  # fmt: skip
    """Returns the layer of :func:`dense_nbits` from codes in the order of :func:`pack_nbits`, in float32.

    data: parts of a row, (…, H, length) of floats, or of int8 with ``factors`` (…, H), their scales; sums: (…, H), the sum
    of each part. codes: uint8 (P, H, quads, 16, width) for P panels of 16 columns, with ``width`` neighbouring bytes for each
    column: 4 for int8, whose products are added up four at a time, else 1. scales, zeros: (P, G, 16); a part lies within
    a group, so that G divides H: a long group is cut, because the steps of one sum wait for each other.
    Result: (…, ``columns``), 16 P when not given.
    """
    op = "dense_packed_nbits"
    _check_bits(op, bits)
    check_tensor(op, data, None, "the data")
    check_tensor(op, codes, 5, "the codes")
    whole, wide, count = data.dtype == "int8", 4 if data.dtype == "int8" else 1, 8 // bits
    requires = (
        *_check_scales(op, codes, scales, zeros, (0,)),
        *require_same(op, "the number of groups", data.shape[-2], codes.shape[1], data, codes),
        *require_same(op, "the number of groups", data.shape[-2], sums.shape[-1], data, sums),
    )
    panels, parts, quads, lanes, width = (constant(op, "a size of the codes", e) for e in codes.shape)
    length, groups = (constant(op, "a size", e) for e in (data.shape[-1], scales.shape[1]))
    if (lanes, width) != (CODE_LANES, wide) or quads * count * wide != length or parts % groups:
        raise ValueError(
            f"{op}: the codes are {shape_text(codes)} and the scales {shape_text(scales)} for groups of {length} "
            f"{data.dtype}; pack_nbits makes them"
        )
    if whole != (factors is not None):
        raise ValueError(f"{op}: data of int8 comes with factors, other data without")
    share = parts // groups
    acc = "int32" if whole else "float32"
    *lead, _, _ = data.shape
    n = len(lead)
    names = ["i" if n == 1 else f"i{d}" for d in range(n)]
    code = codes
    if bits < 8:
        code = compute(
            (panels, parts, quads, count, lanes, width),
            lambda p, b, c, h, lane, w: _code(codes(p, b, c, lane, w), h * bits, bits),
            name=f"{name}_code", attrs={NBITS: "code"},
        )  # fmt: skip
    c, h, w = (reduce_axis((0, e), name=v) for v, e in (("c", quads), ("h", count), ("w", width)))
    over = [axis for axis, extent in ((c, quads), (h, count), (w, width))]

    def term(*i: Any) -> Expr:
        *at, p, part, lane = i
        step = (c.var * count + h.var) * width + w.var
        one = code(p, part, c.var, lane, w.var) if bits == 8 else code(p, part, c.var, h.var, lane, w.var)
        return sum_(cast(acc, data(*at, part, step)) * cast(acc, one), axis=over)

    dots = compute(
        (*lead, panels, parts, lanes), term, name=f"{name}_dot", attrs={NBITS: "dot"}, requires=requires,
        varargs_names=[*names, "p", "b", "l"],
    )  # fmt: skip
    b = reduce_axis((0, parts), name="b")

    def scaled(*i: Any) -> Expr:
        *at, p, lane = i
        g = b.var // share
        dot, total = dots(*at, p, b.var, lane), sums(*at, b.var)
        factor = cast("float32", scales(p, g, lane))
        if factors is not None:
            factor = factor * factors(*at, b.var)
        if zeros is None:
            less = cast("float32", dot - total * const(1 << (bits - 1), acc))
        else:
            less = cast("float32", dot) - cast("float32", zeros(p, g, lane)) * cast("float32", total)
        return sum_(less * factor, axis=b)

    tiles = compute((*lead, panels, lanes), scaled, name=f"{name}_panel", attrs={NBITS: "panel"},
                    varargs_names=[*names, "p", "l"])  # fmt: skip
    return compute(
        (*lead, columns or panels * lanes), lambda *i: tiles(*i[:-1], i[-1] // lanes, i[-1] % lanes),
        name=name, attrs={NBITS: "taken"}, varargs_names=[*names, "j"],
    )  # fmt: skip


def pack_nbits(codes: np.ndarray, bits: int, parts: int, width: int) -> np.ndarray:
    """Returns codes, one a byte, (N, K), as :func:`dense_packed_nbits` reads them: (panels, parts, quads, 16, width).

    K has ``parts`` parts of equal length, of which each has a whole number of quads: ``width`` bytes, with ``8 / bits`` codes
    each. The columns are filled up to a multiple of 16 with zeros.
    """
    rows, depth = codes.shape
    panels, count = -(-rows // CODE_LANES), 8 // bits
    full = np.zeros((panels * CODE_LANES, depth), np.uint8)
    full[:rows] = codes
    ordered = full.reshape(panels, CODE_LANES, parts, -1, count, width).transpose(0, 2, 3, 4, 1, 5)
    out = np.zeros(ordered[:, :, :, 0].shape, np.uint8)
    for n in range(count):
        out |= ordered[:, :, :, n] << (n * bits)
    return out


def _code(byte: Expr, shift: Any, bits: int) -> Expr:
    """Returns the code of ``bits`` bits that begins at bit ``shift`` of a byte."""
    return bitwise_and(shift_right(byte, cast("uint8", shift)), const((1 << bits) - 1, "uint8"))


_LARGEST_NUMBER = 1 << 20
"""The largest magnitude of the ends of a type to which :func:`quantize_by_scale` rounds, and of zero points."""

_TO_WHOLE = 1.5 * 2.0**23
"""A float32 of this magnitude has no bits below 1: adding it rounds a smaller number, ties to even."""


def quantize_by_scale(
    data: Tensor, scale: Tensor, zero: Tensor | None = None, *, low: float, high: float, dtype: str,
    name: str = "quantize_by_scale",
) -> Tensor:  # fmt: skip
    """Returns ``cast(clip(round(data / scale) + zero, low, high), dtype)`` by products with the reciprocal of the scale.

    All are float32; ``scale`` and ``zero``, a whole number of at most 20 bits and 0 when left out, have one element. The
    numbers are those of the division; a NaN gives some number of the type.

    The data is cut to the ends first. Its product with the reciprocal is corrected by its rest, twice: the first time makes
    it one of the two floats around the quotient, the second time the nearer one (Markstein, 1990). Operands are scaled
    by a power of two where a reciprocal would leave the normal numbers.
    """
    op = "quantize_by_scale"
    check_tensor(op, data, None, "the data")
    given = [("scale", scale)] + ([] if zero is None else [("zero point", zero)])
    for what, v in given:
        check_tensor(op, v, None, f"the {what}")
        if any(constant(op, f"an extent of the {what}", e) != 1 for e in v.shape):
            raise ValueError(f"{op}: the {what} has the shape {shape_text(v)}; it is one number")
    if any(v.dtype != "float32" for v in (data, *[v for _, v in given])):
        raise ValueError(f"{op}: the data is {data.dtype}, the scale {scale.dtype}; all are float32")
    if not -_LARGEST_NUMBER <= low <= high <= _LARGEST_NUMBER or int(low) != low or int(high) != high:
        raise ValueError(f"{op}: the ends {low} and {high}; whole numbers of at most 20 bits, in order, are expected")

    def number(value: float) -> Expr:
        return const(value, "float32")

    def one(v: Tensor) -> Expr:
        return v(*[const(0, "int32")] * v.ndim)

    def rounded(*i: Expr) -> Expr:
        given_scale = one(scale)
        size = abs_(given_scale)
        small, large = size < number(2.0**-64), size > number(2.0**64)
        power = Select(small, number(2.0**64), Select(large, number(2.0**-64), number(1.0)))
        by = Select(EQ(size, number(0)), number(2.0**-110), given_scale * power)
        ends = [number(e) if zero is None else number(e) - one(zero) for e in (low, high)]
        first, second = [e * by for e in ends]
        least, most = min_(first, second), larger(first, second)
        over = data(*i) * power
        over = Select(over < least, least, over)
        over = Select(over > most, most, over)
        inverse = number(1.0) / by
        quotient = over * inverse
        for _ in range(2):
            quotient = fma(fma(-quotient, by, over), inverse, quotient)
        whole = reinterpret("int32", quotient + number(_TO_WHOLE)) - int(np.float32(_TO_WHOLE).view(np.int32))
        return cast(dtype, whole if zero is None else whole + cast("int32", one(zero)))

    return compute(data.shape, rounded, name=name, tag=BROADCAST)


def _check_bits(op: str, bits: Any) -> None:
    if bits not in CODE_BITS:
        raise ValueError(f"{op}: bits={bits!r}; there are {', '.join(map(str, CODE_BITS))}")


def _check_scales(
    op: str, codes: Tensor, scales: Tensor, zeros: Tensor | None, same: tuple[int, ...]
) -> tuple[Any, ...]:
    """Returns the conditions under which scales and zero points fit the codes in the dimensions ``same``."""
    out: list[Any] = []
    for t, what in ((scales, "the scales"), (zeros, "the zero points")):
        if t is not None:
            check_tensor(op, t, len(same) if len(same) > 1 else 3, what)
            for d in same:
                out += require_same(op, "the number of rows or groups", codes.shape[d], t.shape[d], codes, t)
    return tuple(out)
