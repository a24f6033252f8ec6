"""Scaled dot-product attention, and the rotary position embedding of what it compares."""

from __future__ import annotations

import math
from typing import Any

from ...tir.expr import Expr, IntImm, Range, cast, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import rsqrt
from ..compute import compute
from ..operation import Requirement
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.axis_reductions import softmax
from .blocks.broadcast import broadcast_shape, element
from .blocks.operator_arguments import ELEMWISE, INJECTIVE, check_tensor, constant, require_same, shape_text


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    safe: bool = False,
    name: str = "attention",
) -> Tensor:
    """Returns softmax(query · keyᵀ · scale + mask) · value (Vaswani et al., 2017).

    query: (…, S, D), key: (…, T, D), value: (…, T, E); leading dimensions (batch, heads) are equal. Result (…, S, E).
    ``scale`` is 1/√D unless given. ``mask`` broadcasts to (…, S, T): added when it is a float, false means "not
    allowed" when it is bool. ``causal``: position s sees t ≤ s + T - S only. A row whose
    scores are all -inf, as one that may see nothing, is NaN; with ``safe`` it is 0.
    """
    shape, requires = _check(query, key, value, mask)
    lead, rows, columns = shape[:-2], shape[-2], shape[-1]
    wide = query.dtype if query.dtype.bits >= 32 else "float32"
    k, m = reduce_axis(Range.from_extent(query.shape[-1]), "k"), reduce_axis(Range.from_extent(columns), "k")
    letters = ["b", "h"] if len(lead) == 2 else [f"b{n}" for n in range(len(lead))]

    def product(*i: Expr) -> Any:
        return sum_(cast(wide, query(*i[:-1], k.var)) * cast(wide, key(*i[:-2], i[-1], k.var)), axis=k)

    scores = compute(shape, product, f"{name}_qk", varargs_names=[*letters, "i", "j"], requires=requires)
    factor: Expr
    if scale is not None:
        factor = const(scale, wide)
    elif isinstance(query.shape[-1], IntImm):
        factor = const(1.0 / math.sqrt(query.shape[-1].value), wide)
    else:
        factor = rsqrt(cast(wide, query.shape[-1]))

    def scaled(*i: Expr) -> Any:
        e = scores(*i) * factor
        never = const(float("-inf"), wide)
        if mask is not None:
            bias = element(mask, i, shape)
            e = if_then_else(bias, e, never) if bias.dtype == "bool" else e + cast(wide, bias)
        if causal:
            e = if_then_else(i[-1] <= i[-2] + (columns - rows), e, never)
        return e

    weights = softmax(compute(shape, scaled, f"{name}_scores", tag=ELEMWISE), safe=safe, name=f"{name}_softmax")

    def weighted(*i: Expr) -> Any:
        return sum_(weights(*i[:-1], m.var) * cast(wide, value(*i[:-2], m.var, i[-1])), axis=m)

    result = (*lead, rows, value.shape[-1])
    names = [*letters, "i", "e"]
    if query.dtype == wide:
        out: Tensor = compute(result, weighted, name, varargs_names=names)
        return out
    total = compute(result, weighted, f"{name}_acc", varargs_names=names)
    narrow: Tensor = compute(result, lambda *i: cast(query.dtype, total(*i)), name, ELEMWISE)
    return narrow


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[tuple[Expr, ...], list[Requirement]]:
    """Returns the shape of the scores, (…, S, T), and what has to hold of the sizes. TypeError or ValueError when the
    arguments do not fit together."""
    op = "attention"
    requires: list[Requirement] = []
    for t, what in ((query, "the query"), (key, "the key"), (value, "the value")):
        check_tensor(op, t, None, what)
        if t.ndim < 2 or t.ndim != query.ndim:
            raise ValueError(
                f"{op}: {what} has the shape {shape_text(t)}, the query {shape_text(query)}; "
                "both need the same number of dimensions, at least 2"
            )
        if not t.dtype.is_float:
            raise TypeError(f"{op}: {what} is {t.dtype}, not a float")
        for a, b in zip(query.shape[:-2], t.shape[:-2], strict=True):
            requires += require_same(op, "a leading dimension", a, b, query, t)
    requires += require_same(op, "the number of features", query.shape[-1], key.shape[-1], query, key)
    requires += require_same(op, "the number of positions", key.shape[-2], value.shape[-2], key, value)
    shape = (*query.shape[:-1], key.shape[-2])
    if mask is not None:
        check_tensor(op, mask, None, "the mask")
        common, more = broadcast_shape(op, mask.shape, shape, (mask, query))
        requires += more
        if len(common) != len(shape):
            raise ValueError(f"{op}: the mask {shape_text(mask)} does not broadcast to {shape_text(shape)}")
        for a, b in zip(common, shape, strict=True):
            requires += require_same(op, "the mask's shape", a, b, mask, query)
    return shape, requires


def rotary(x: Tensor, cos: Tensor, sin: Tensor, name: str = "T_rotary") -> Tensor:
    """Returns x with each pair of elements rotated along the last dimension (Su et al., 2021). That is x · cos +
    (-upper half of x, lower half of x) · sin.

    cos and sin broadcast to the shape of ``x``: (…, S, D), D even, one angle for each position and pair of elements.
    """
    op = "rotary"
    for t, what in ((x, "the data"), (cos, "cos"), (sin, "sin")):
        check_tensor(op, t, None, what)
    size = constant(op, "the number of features", x.shape[-1])
    if size % 2:
        raise ValueError(f"{op}: {size} features; their number has to be even")
    requires: list[Requirement] = []
    for t in (cos, sin):
        common, more = broadcast_shape(op, t.shape, x.shape, (t, x))
        requires += more
        if len(common) != x.ndim:
            raise ValueError(f"{op}: cos and sin have more dimensions than the data")
        for a, b in zip(common, x.shape, strict=True):
            requires += require_same(op, "the shape of an angle", a, b, t, x)
    half = size // 2

    def f(*i: Expr) -> Expr:
        d = i[-1]
        turned = if_then_else(d < half, -x(*i[:-1], d + half), x(*i[:-1], d - half))
        return x(*i) * element(cos, i, x.shape) + turned * element(sin, i, x.shape)

    out: Tensor = compute(x.shape, f, name=name, tag=INJECTIVE, requires=requires)
    return out
