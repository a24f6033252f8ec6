"""Rules that move reshapes behind the operators after them, so that these stand next to the products before the reshapes.

A bias, a residual and an activation then join the kernel of the product; reshapes meet and cancel.
"""

from __future__ import annotations

from ..axes import axes_without_negatives
from ..graph import Value
from ..graph_operators import OPERATORS
from ..rules import Match, Rule, any_value, op, produced, rule

_UNARY = " ".join(name for name, row in OPERATORS.items() if row.kind == "elementwise")
_BINARY = "add subtract multiply divide maximum minimum power equal less greater swiglu"
_ROWS = "softmax log_softmax layer_norm rms_norm"


@rule(op(_UNARY, op("reshape", any_value("x"))))
def element_of_reshape(m: Match) -> Value | None:
    """f(reshape(x)) is reshape(f(x)) for a function of single elements."""
    if m.readers(m.root.inputs[0] or m.out) > 1:
        return None
    return m.op("reshape", m.op(m.root.op, m["x"], **m.root.attrs), shape=m.out.shape)


@rule(op(_BINARY, any_value("a"), any_value("b")))
def elements_of_reshape(m: Match) -> Value | None:
    """A sum is taken before a reshape instead of behind it. reshape(x) + y is reshape(x + y) when y broadcasts over the
    dimensions that the reshape changes, and reshape(x + reshape(y)) when y has the shape of the result."""
    a, b = m.root.inputs
    assert a is not None and b is not None
    for this, other in ((a, b), (b, a)):
        node = m.producer(this)
        if node is None or node.op != "reshape" or m.readers(this) > 1 or this.shape != m.out.shape:
            continue
        (x,) = node.given
        if other.shape == m.out.shape and _is_anchor(m, other) and not _is_anchor(m, x):
            continue  # the operator has the shape of a product already
        moved = _beside(m, x, this, other)
        if moved is not None:
            pair = (x, moved) if this is a else (moved, x)
            return m.op("reshape", m.op(m.root.op, *pair, **m.root.attrs), shape=m.out.shape)
    return None


def _beside(m: Match, x: Value, shaped: Value, other: Value) -> Value | None:
    """Returns what stands for ``other`` beside ``x``, of which ``shaped`` is a reshape; None when nothing does."""
    if not x.is_static or not other.is_static:
        return None
    same = 0
    while same < min(x.ndim, shaped.ndim) and x.shape[-1 - same] == shaped.shape[-1 - same]:
        same += 1
    lead = other.shape[: max(other.ndim - same, 0)]
    data = m.data(other)
    if all(d == 1 for d in lead):
        if not lead:
            return other if other.ndim <= x.ndim else None
        if data is not None:
            return m.constant(data.reshape(other.shape[len(lead) :]), other.dtype)
    if other.shape != shaped.shape:
        return None
    if data is not None:
        return m.constant(data.reshape(x.shape), other.dtype)
    node = m.producer(other)
    if node is not None and node.op == "reshape" and next(node.given).shape == x.shape:
        return next(node.given)
    return m.op("reshape", other, shape=x.shape) if _is_anchor(m, x) and not _is_anchor(m, other) else None


def _is_anchor(m: Match, v: Value) -> bool:
    """Returns whether a product makes ``v``, perhaps in another shape: those are what reshapes move away from."""
    node = m.producer(v)
    while node is not None and node.op == "reshape":
        node = m.producer(next(node.given))
    return node is not None and OPERATORS[node.op].kind == "anchor"


@rule(produced(_ROWS, "rows"))
def rows_of_reshape(m: Match) -> Value | None:
    """A function of rows along the last dimension does not mind how the rows are numbered."""
    shaped = m.root.inputs[0]
    node = None if shaped is None else m.producer(shaped)
    if shaped is None or node is None or node.op != "reshape" or m.readers(shaped) > 1:
        return None
    (x,) = node.given
    axes = axes_without_negatives(m.root.attrs.get("axis", -1), shaped.ndim)
    if axes != (shaped.ndim - 1,) or x.ndim < 1 or x.shape[-1] != shaped.shape[-1]:
        return None
    rows = m.op(m.root.op, x, *m.root.inputs[1:], **{**m.root.attrs, "axis": x.ndim - 1})
    return m.op("reshape", rows, shape=m.out.shape)


RULES: tuple[Rule, ...] = (element_of_reshape, elements_of_reshape, rows_of_reshape)
