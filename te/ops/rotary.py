"""Rotary position embedding."""

from __future__ import annotations

from ...tir.expr import Expr
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..operation import Requirement
from ..tensor import Tensor
from .blocks.broadcast import broadcast_shape, element
from .blocks.operator_arguments import INJECTIVE, check_tensor, constant, require_same


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
