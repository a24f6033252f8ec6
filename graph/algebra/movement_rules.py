"""Rules of operators that move, cut and join elements: views, transposes, slices and concatenations.

Rules at the end move reshapes behind the operators after them, so that these stand next to the products before the reshapes. A
bias, a residual and an activation then join the kernel of the product; reshapes meet and cancel.
"""

from __future__ import annotations

from ..axes import axes_of, axes_without_negatives, inverse, moves_only_ones
from ..graph import Node, Value, same_shape
from ..graph_operators import OPERATORS
from ..rules import Match, Rule, any_value, op, produced, rule

_x, _y = any_value("x"), any_value("y")
_VIEW = "reshape flatten squeeze expand_dims"


@rule(op(_VIEW, _x))
def view_of_the_same_shape(m: Match) -> Value | None:
    """A view in the shape that x has is x."""
    return m["x"] if same_shape(m["x"].shape, m.out.shape) else None


@rule(op(_VIEW, op(_VIEW, _x)))
def view_of_view(m: Match) -> Value | None:
    """A view of a view is one reshape."""
    return m.op("reshape", m["x"], shape=m.out.shape) if m["x"].is_static and m.out.is_static else None


@rule(op("flatten squeeze expand_dims", _x))
def one_kind_of_view(m: Match) -> Value | None:
    """All views of known sizes are reshapes, so that other rules have one kind to look for."""
    return m.op("reshape", m["x"], shape=m.out.shape) if m["x"].is_static and m.out.is_static else None


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


# Rules of parts of arrays: slices, splits and concatenations.


def _steps(node: Node) -> list[tuple[int, int, int]]:
    """Returns start, step and count of a slice in each dimension."""
    (x,) = node.given
    strides = node.attrs.get("strides", 1)
    steps = strides if isinstance(strides, (tuple, list)) else [strides] * x.ndim
    out = []
    for extent, begin, end, step in zip(x.shape, node.attrs["begin"], node.attrs["end"], steps, strict=True):
        if node.attrs.get("slice_mode", "end") == "size":  # the end is a count there
            out.append((begin or 0, step, extent if end is None else end))
            continue
        kept = range(*slice(begin, end, step).indices(extent))
        out.append((kept.start, kept.step, len(kept)))
    return out


@rule(op("strided_slice", _x, bind="cut"))
def slice_of_everything(m: Match) -> Value | None:
    """A slice that leaves nothing out, in order, is its operand."""
    if not m["x"].is_static:
        return None
    whole = [(0, n) for n in m["x"].shape]
    kept = [(start, count) for start, step, count in _steps(m.node("cut")) if step == 1 or count == 1]
    return m["x"] if kept == whole else None


@rule(op("strided_slice", op("strided_slice", _x, bind="inner"), bind="outer"))
def slice_of_slice(m: Match) -> Value | None:
    """A slice of a slice is one slice, when both go upwards."""
    if not m["x"].is_static:
        return None
    begin, end, strides = [], [], []
    for (a, p, _), (b, q, n) in zip(_steps(m.node("inner")), _steps(m.node("outer")), strict=True):
        if p < 1 or q < 1:
            return None
        begin.append(a + b * p)
        strides.append(p * q)
        end.append(begin[-1] + max(n - 1, 0) * p * q + min(n, 1))
    return m.op("strided_slice", m["x"], begin=tuple(begin), end=tuple(end), strides=tuple(strides))


@rule(op("strided_slice", op("transpose", _x, bind="turned"), bind="cut"))
def slice_of_transpose(m: Match) -> Value | None:
    """A slice upwards of a transpose that nothing else reads is the transpose of a slice, which moves less."""
    turned = m.node("turned")
    if not m["x"].is_static or m.readers(turned.output) > 1:
        return None
    steps = _steps(m.node("cut"))
    if any(step < 1 for _, step, _ in steps):
        return None
    kept = [steps[d] for d in inverse(axes_of(turned))]
    end = tuple([start + max(n - 1, 0) * step + min(n, 1) for start, step, n in kept])
    begin, strides = tuple([start for start, _, _ in kept]), tuple([step for _, step, _ in kept])
    part = m.op("strided_slice", m["x"], begin=begin, end=end, strides=strides)
    return m.op("transpose", part, axes=axes_of(turned))


@rule(op("reshape", op("strided_slice", _x, bind="cut"), bind="shaped"))
def heads_of_slice(m: Match) -> Value | None:
    """A slice of rows whose elements then form heads is a slice of the heads, in which transposes can join."""
    x, shape = m["x"], m.out.shape
    if not x.is_static or not m.out.is_static or len(shape) < 2:
        return None
    steps = _steps(m.node("cut"))
    start, step, count = steps[-1]
    head, lead = shape[-1], x.shape[:-1]
    rows = [d for d in shape[:-2] if d != 1]
    whole = all((a, n) == (0, extent) for (a, _, n), extent in zip(steps[:-1], lead, strict=True))
    if step != 1 or not whole or shape[-2] * head != count or head < 2 or start % head or x.shape[-1] % head:
        return None
    if rows != [d for d in lead if d != 1]:
        return None
    wide = m.op("reshape", x, shape=(*shape[:-2], x.shape[-1] // head, head))
    begin, end = [0] * len(shape), list(shape)
    begin[-2], end[-2] = start // head, start // head + shape[-2]
    return m.op("strided_slice", wide, begin=tuple(begin), end=tuple(end))


@rule(produced("concatenate", "joined"))
def joined_parts(m: Match) -> Value | None:
    """A concatenation of one array, or of all parts of a split in order, is the array itself."""
    node = m.node("joined")
    if len(node.inputs) == 1:
        return node.inputs[0]
    first = node.inputs[0]
    cut = None if first is None else m.producer(first)
    if cut is None or cut.op != "split" or cut.outputs != node.inputs:
        return None
    same = (
        cut.attrs.get("axis", 0) % first.ndim == node.attrs.get("axis", 0) % first.ndim if first is not None else False
    )
    return cut.inputs[0] if same else None


@rule(produced("concatenate", "joined"))
def joined_joined(m: Match) -> Value | None:
    """A concatenation of concatenations along the same axis is one."""
    node = m.node("joined")
    axis = node.attrs.get("axis", 0) % m.out.ndim
    flat: list[Value | None] = []
    for v in node.inputs:
        p = None if v is None else m.producer(v)
        inside = p is not None and p.op == "concatenate" and p.attrs.get("axis", 0) % m.out.ndim == axis
        flat += p.inputs if inside and p is not None and v is not None and m.readers(v) == 1 else [v]
    return m.op("concatenate", *flat, axis=axis) if len(flat) > len(node.inputs) else None


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
    """Returns ``other`` in a shape that broadcasts with ``x`` as ``other`` does with ``shaped``, a reshape of ``x``; else None."""
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


RULES: tuple[Rule, ...] = (
    view_of_the_same_shape,
    view_of_view,
    one_kind_of_view,
    transpose_of_transpose,
    transpose_without_effect,
    product_with_transposed,
    product_of_transposed,
    slice_of_everything,
    slice_of_slice,
    slice_of_transpose,
    heads_of_slice,
    joined_parts,
    joined_joined,
    element_of_reshape,
    elements_of_reshape,
    rows_of_reshape,
)
