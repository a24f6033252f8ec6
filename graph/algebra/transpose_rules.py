"""Rules of transposes: of transposes, of products that can read either order, and those that move nothing."""

from __future__ import annotations

from ..graph import Value
from ..permutations import axes_of, moves_only_ones
from ..rules import Match, Rule, any_value, op, rule

_x, _y = any_value("x"), any_value("y")


@rule(op("transpose", op("transpose", _x, bind="inner"), bind="outer"))
def transpose_of_transpose(m: Match) -> Value | None:
    """transpose(transpose(x, p), q) is transpose(x, r) with r[d] = p[q[d]]."""
    p, q = axes_of(m.node("inner")), axes_of(m.node("outer"))
    return m.op("transpose", m["x"], axes=tuple([p[a] for a in q]))


@rule(op("transpose", _x, bind="outer"))
def transpose_without_effect(m: Match) -> Value | None:
    """A transpose that moves no dimension is its operand; one that moves only dimensions of extent 1 is a reshape."""
    axes = axes_of(m.node("outer"))
    if axes == tuple(range(m.out.ndim)):
        return m["x"]
    if m["x"].is_static and moves_only_ones(m["x"].shape, axes):
        return m.op("reshape", m["x"], shape=m.out.shape)
    return None


@rule(op("matmul", _x, op("transpose", _y, bind="t"), bind="product"))
def product_with_transposed(m: Match) -> Value | None:
    """A product reads its right operand in either order."""
    return _read_other_way(m, "transpose_b", m["x"], m["y"])


@rule(op("matmul", op("transpose", _x, bind="t"), _y, bind="product"))
def product_of_transposed(m: Match) -> Value | None:
    """A product reads its left operand in either order."""
    return _read_other_way(m, "transpose_a", m["x"], m["y"])


def _read_other_way(m: Match, flag: str, a: Value, b: Value) -> Value | None:
    """Returns the product of ``a`` and ``b`` with ``flag`` turned over, when ``t`` exchanges the last two dimensions."""
    axes = axes_of(m.node("t"))
    n = len(axes)
    if n < 2 or axes != (*range(n - 2), n - 1, n - 2):
        return None
    attrs = dict(m.node("product").attrs)
    attrs[flag] = not attrs.get(flag, False)
    return m.op("matmul", a, b, **attrs)


RULES: tuple[Rule, ...] = (
    transpose_of_transpose, transpose_without_effect, product_with_transposed, product_of_transposed,
)  # fmt: skip
