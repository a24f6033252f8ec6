"""Rules of algebra: each replaces operators by fewer or cheaper ones with the same result.

:data:`RULES` has them all. A rule holds for the types and the values that its docstring names, and is not applied to others:
NaN, the infinities and -0.0 stay what they are, integers wrap around as before, and a float changes by the roundings that
the docstring counts. Rules that move elements (views, transposes, slices, reshapes) are exact for all types and sizes.

Arithmetic on single elements comes first: neutral elements, constants that meet, bounds, functions, conversions. These rules
hold for all types and values, unless they say otherwise. Which of two equal zeros a maximum or minimum gives is open, as in
IEEE 754; so is the sign of NaN.

Then come rules for operators that move, cut and join elements. Those at the end move reshapes behind the operators
after them, so that these stand next to the products before the reshapes. A bias, a residual and an activation then join
the kernel of the product; reshapes meet and cancel. The last rules are those of reductions and windows.
"""

from __future__ import annotations

import math

import numpy as np

from ..te.ops.elements import ELEMENTS
from ..tir.expr import DType, Expr, max_value
from .graph import Node, Value, same_shape
from .graph_operators import OPERATORS, axes_of, axes_without_negatives, infer, inverse, moves_only_ones
from .rules import Match, Rule, any_value, constant, either, number, numbers_of, op, produced, rule

_x, _y, _c, _d = any_value("x"), any_value("y"), constant("c"), constant("d")


def _if_same(m: Match, v: Value) -> Value | None:
    """Returns ``v`` when it has the type of the result, so that nothing was broadcast."""
    return v if m.fits(v) else None


@rule(
    either(
        op("add", _x, number(0.0, "zero")), op("add", _x, number(-0.0)), op("subtract", _x, number(0.0)), op("multiply", _x, number(1.0)),
        op("divide", _x, number(1.0)), op("power", _x, number(1.0)), op("identity", _x),
    )
)  # fmt: skip
def neutral_element(m: Match) -> Value | None:
    """x + 0, x - 0, x · 1, x / 1, x¹ and copies are x.

    For floats the zero that is added is -0.0 and the one that is taken off is 0.0: -0.0 + 0.0 is 0.0. Where x is neither
    negative nor -0.0, both zeros go.
    """
    if "zero" in m and DType(m.out.dtype).is_float and not _is_positive(m, m["x"]):
        return None
    return _if_same(m, m["x"])


_POSITIVE = frozenset({"abs", "square", "exp", "exp2", "sigmoid", "softmax"})
_KEEP_SIGN = frozenset({"mean", "sum", "sqrt", "cast", "identity", "add", "multiply", "divide", "maximum", "minimum",
                        "broadcast_to", "reshape", "expand_dims", "squeeze", "flatten", "transpose", "strided_slice", "concatenate"})  # fmt: skip


_LIMITED = frozenset({"relu", "clip"})


def _is_positive(m: Match, v: Value, zeros: bool = False, depth: int = 8) -> bool:
    """Returns whether no element of ``v`` is negative for sure, or -0.0 unless ``zeros``; NaN aside."""
    data, node = m.data(v), m.producer(v)
    if not DType(v.dtype).is_float or depth == 0:
        return False
    if data is not None:
        numbers = numbers_of(data, v.dtype)
        return not np.any(numbers < 0 if zeros else np.signbit(numbers))
    if node is None:
        return False
    if zeros and (node.op in _LIMITED or node.op == "divide"):  # 1 / -0.0 is negative
        return node.op == "relu" or node.op == "clip" and bool(node.attrs["low"] >= 0)
    if node.op == "multiply" and node.inputs[0] is node.inputs[1]:
        return True
    given = list(node.given)
    return node.op in _POSITIVE or node.op in _KEEP_SIGN and all(_is_positive(m, g, zeros, depth - 1) for g in given)


@rule(op("negative", op("negative", _x)))
def negative_of_negative(m: Match) -> Value | None:
    """-(-x) is x, for integers as well, as their negation wraps around."""
    return m["x"]


@rule(op("relu", op("relu", _x)))
def relu_of_relu(m: Match) -> Value | None:
    """relu(relu(x)) is relu(x). (|relu(x)| is not: relu(-0.0) may be -0.0.)"""
    return m.op("relu", m["x"])


@rule(either(op("multiply", _x, number(-1.0)), op("divide", _x, number(-1.0)), op("subtract", number(-0.0), _x)))
def negated(m: Match) -> Value | None:
    """x · -1, x / -1 and -0.0 - x are -x. (0.0 - 0.0 is 0.0, and not -0.0.) For floats."""
    v = _if_same(m, m["x"])
    return None if v is None or not DType(v.dtype).is_float else m.op("negative", v)


@rule(op("add", _x, op("negative", _y)))
def sum_with_negative(m: Match) -> Value | None:
    """x + (-y) is x - y, for integers as well, which wrap around in the type of the result."""
    return m.op("subtract", m["x"], m["y"]) if m["y"].dtype == m.out.dtype else None


@rule(op("maximum", _x, number(0.0)))
def maximum_with_zero(m: Match) -> Value | None:
    """max(x, 0) is relu(x); max(x, -0.0), which is -0.0 for negative x, is not."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("relu", v)


@rule(op("minimum", either(op("maximum", _x, _c), op("relu", _x)), _d))
def between_bounds(m: Match) -> Value | None:
    """min(max(x, a), b) of numbers is clip(x, a, b), for floats and a ≤ b; NaN is no such number."""
    low = _number(m.numbers("c")) if "c" in m else 0.0
    high = _number(m.numbers("d"))
    if low is None or high is None or low > high or not DType(m.out.dtype).is_float:
        return None
    v = _if_same(m, m["x"])
    return None if v is None else m.op("clip", v, low=low, high=high)


@rule(op("clip", op("clip", _x, bind="inner"), bind="outer"))
def clip_of_clip(m: Match) -> Value | None:
    """clip(clip(x, a, b), c, d) is one clip when the two ranges meet."""
    inner, outer = m.node("inner").attrs, m.node("outer").attrs
    low, high = max(inner["low"], outer["low"]), min(inner["high"], outer["high"])
    return m.op("clip", m["x"], low=low, high=high) if low <= high else None


@rule(either(op("add", op("add", _x, _c), _d), op("multiply", op("multiply", _x, _c), _d)))
def constants_meet(m: Match) -> Value | None:
    """Constants of two products or of two sums in a row are combined. (x · c) · d is x · (c · d), and (x + c) + d is x
    + (c + d).

    Integers wrap around, so that both are exact. Sums of floats are left: (x + c) + d rounds x to the digits of c. Products
    of floats are combined where both factors are at least 1 or both at most 1 in magnitude, so that x · c neither overflows
    nor loses digits that x · c · d has, and where c · d is a normal number. One rounding of the constant then stands for
    that of x · c; powers of two are exact.
    """
    c, d, dtype = m.numbers("c"), m.numbers("d"), DType(m.out.dtype)
    both = np.broadcast_shapes(c.shape, d.shape)
    if np.prod(both) > max(c.size, d.size) or m.data(m["x"]) is not None:
        return None
    if any(m[name].dtype != m.out.dtype for name in "xcd"):
        return None
    with np.errstate(all="ignore"):
        if dtype.is_int and dtype.bits >= 8:
            total = (c + d) if m.root.op == "add" else (c * d)
        elif dtype in _SMALLEST and m.root.op == "multiply" and _factors_meet(c, d, dtype):
            total = c * d
        else:
            return None
    return m.op(m.root.op, m["x"], m.constant(total, m["c"].dtype))


def _factors_meet(c: np.ndarray, d: np.ndarray, dtype: DType) -> bool:
    """Returns whether x · c · d and x · (c · d) differ by roundings only, for all x of the type."""
    grow, shrink = (abs(c) >= 1) & (abs(d) >= 1), (abs(c) <= 1) & (abs(d) <= 1)
    size = abs(c.astype(np.float64) * d.astype(np.float64))
    normal = (size <= max_value(dtype)) & (size >= _SMALLEST[dtype])
    return bool(np.all((grow | shrink) & (normal | (c == 0) | (d == 0)) & np.isfinite(c) & np.isfinite(d)))


_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
"""The smallest normal number of each type of floats."""


@rule(op("divide", _x, _c))
def division_by_power_of_two(m: Match) -> Value | None:
    """x / 2ⁿ is x · 2⁻ⁿ, exactly, for float32 and float64 and -100 < n < 100."""
    data = m.array("c")
    if data.dtype.kind != "f" or not data.size or data.dtype.itemsize < 4:
        return None
    mantissa, exponent = np.frexp(data)
    if not np.all(np.abs(mantissa) == 0.5) or np.max(np.abs(exponent)) > 100:
        return None
    return m.op("multiply", m["x"], m.constant((1.0 / data).astype(data.dtype), m["c"].dtype))


@rule(op("reciprocal", _x))
def one_kind_of_division(m: Match) -> Value | None:
    """The reciprocal of a float is 1 / x, exactly, so that other rules have one kind to look for."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("divide", m.constant(1.0, v.dtype), v)


@rule(either(op("divide", number(1.0), op("sqrt", _x)), op("power", _x, number(-0.5), bind="power")))
def reciprocal_of_root(m: Match) -> Value | None:
    """1 / √x is rsqrt(x), to one rounding.

    The power is that only where x is neither negative nor -0.0: of -0.0 it is inf and not -inf, of -inf it is 0 and not NaN.
    """
    if "power" in m and not _is_positive(m, m["x"]):
        return None
    v = _if_same(m, m["x"])
    return None if v is None else m.op("rsqrt", v)


@rule(either(op("power", _x, number(2.0)), op("multiply", _x, _x)))
def product_with_itself(m: Match) -> Value | None:
    """x · x and the second power of x are x², to one rounding; integers wrap around in all of them."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("square", v)


@rule(either(op("power", _x, number(3.0), bind="cube"), op("power", _x, number(4.0))))
def short_power(m: Match) -> Value | None:
    """The third power of a float is x² · x and the fourth is (x²)², to two roundings.

    x² is infinite or 0 only where the power is as well, and signs, infinities and NaN agree. Floats of 16 bits stay powers,
    which are rounded once.
    """
    v = _if_same(m, m["x"])
    if v is None or DType(v.dtype) not in ("float32", "float64"):
        return None
    square = m.op("square", v)
    return m.op("multiply", square, v) if "cube" in m else m.op("square", square)


@rule(op("divide", _x, op("sqrt", _y)))
def division_by_root(m: Match) -> Value | None:
    """x / √y is x · rsqrt(y), where √y has fewer elements: one division for each of those.

    For float32, to two roundings: rsqrt of any float32 is a normal number, or 0, inf or NaN where 1 / √y is.
    """
    if m["y"].shape == m.out.shape or m["y"].dtype != "float32":
        return None
    return m.op("multiply", m["x"], m.op("rsqrt", m["y"]))


_OF_TWO = " ".join([row.name for row in ELEMENTS.values() if row.operands == 2])
_wide = op("broadcast_to", _x)


@rule(
    either(
        op(_OF_TWO, _wide, _y), op(_OF_TWO, _y, _wide), op("where", _wide, _y, any_value("z")),
        op("where", any_value("z"), _wide, _y), op("where", any_value("z"), _y, _wide),
    )
)  # fmt: skip
def broadcast_twice(m: Match) -> Value | None:
    """An operator that broadcasts its operands needs no broadcast before it."""
    for n, v in enumerate(m.root.given):
        node = m.producer(v)
        if node is not None and node.op == "broadcast_to" and node.inputs[0] is m["x"]:
            inputs = [*m.root.inputs[:n], m["x"], *m.root.inputs[n + 1 :]]
            ((dtype, shape),) = infer(m.root.op, inputs, m.root.attrs)
            if dtype == m.out.dtype and same_shape(shape, m.out.shape):
                return m.op(m.root.op, *inputs, **m.root.attrs)
    return None


@rule(op("broadcast_to", _x))
def broadcast_of_nothing(m: Match) -> Value | None:
    """broadcast_to(x) to the shape that x has is x."""
    return _if_same(m, m["x"])


def _number(data: np.ndarray) -> float | None:
    """Returns the number that all elements are."""
    if not data.size or data.dtype.kind not in "fiu" or np.any(data != data.reshape(-1)[0]):
        return None
    return float(data.reshape(-1)[0])


@rule(op("where", either(_c, op("broadcast_to", _c)), _x, _y))
def known_choice(m: Match) -> Value | None:
    """where(c, x, y) is x or y when the condition is known and the same everywhere."""
    data = m.numbers("c") != 0
    return None if data.any() and not data.all() else _if_same(m, m["x"] if data.any() else m["y"])


@rule(op("cast", _x))
def cast_to_the_same(m: Match) -> Value | None:
    """A conversion to the type that x has is x."""
    return m["x"] if m["x"].dtype == m.out.dtype else None


@rule(op("cast", op("cast", _x, bind="inner")))
def cast_of_cast(m: Match) -> Value | None:
    """Two conversions in a row become one. The type between must hold all values of the first type.

    An integer that is a float in between and then an integer again stays as it is unless the last type holds all values
    of the first one: a conversion from a float ends at the ends of the type, and one from an integer wraps around.
    """
    first, second, last = m["x"].dtype, m.node("inner").output.dtype, m.out.dtype
    if not _holds_all(second, first):
        return None
    if DType(first).is_int and DType(second).is_float and DType(last).is_int and not _holds_all(last, first):
        return None
    return m["x"] if first == m.out.dtype else m.op("cast", m["x"], dtype=m.out.dtype)


def _holds_all(wide: str, narrow: str) -> bool:
    """Returns whether each value of ``narrow`` is one of ``wide``."""
    a, b = DType(wide), DType(narrow)
    if a.is_float and b.is_float:
        return a.bits >= 2 * b.bits or a == b
    if a.kind == b.kind:
        return a.bits >= b.bits
    if a.kind == "int" and b.kind == "uint":
        return a.bits > b.bits
    return a.is_float and b.is_int and {"float32": 16, "float64": 32}.get(str(a), 0) >= b.bits


_ELEMENT_RULES: tuple[Rule, ...] = (
    neutral_element,
    negative_of_negative,
    relu_of_relu,
    negated,
    sum_with_negative,
    maximum_with_zero,
    between_bounds,
    clip_of_clip,
    constants_meet,
    division_by_power_of_two,
    one_kind_of_division,
    reciprocal_of_root,
    product_with_itself,
    short_power,
    division_by_root,
    broadcast_twice,
    broadcast_of_nothing,
    known_choice,
    cast_to_the_same,
    cast_of_cast,
)


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


@rule(
    either(
        op("dense", op("transpose", _x, bind="t"), _y, any_value("bias"), bind="product"),
        op("dense", op("transpose", _x, bind="t"), _y, bind="product"),
    )
)
def dense_of_transposed(m: Match) -> Value | None:
    """A dense layer of a transposed matrix of floats reads that matrix as it lies, as other products do."""
    attrs = m.node("product").attrs
    if m["x"].ndim != 2 or axes_of(m.node("t")) != (1, 0) or not DType(m["x"].dtype).is_float:
        return None
    if "bias" in m and (m.out.dtype != m["x"].dtype or m.out.dtype not in ("float32", "float64")):
        return None  # the bias is added before the sum is rounded
    out = m.op("matmul", m["x"], m["y"], transpose_a=True, transpose_b=True, **attrs)
    return m.op("add", out, m["bias"]) if "bias" in m else out


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


def _steps(node: Node) -> list[tuple[int, int, int]] | None:
    """Returns start, step and count of a slice in each dimension; None where the call says one of them."""
    (x,) = node.given
    strides = node.attrs.get("strides", 1)
    if not x.is_static or any(isinstance(e, Expr) for e in (*node.attrs["begin"], *node.attrs["end"])):
        return None
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
    steps = _steps(m.node("cut"))
    if steps is None:
        return None
    whole = [(0, n) for n in m["x"].shape]
    kept = [(start, count) for start, step, count in steps if step == 1 or count == 1]
    return m["x"] if kept == whole else None


@rule(op("strided_slice", op("strided_slice", _x, bind="inner"), bind="outer"))
def slice_of_slice(m: Match) -> Value | None:
    """A slice of a slice is one slice, when both go upwards."""
    inner, outer = _steps(m.node("inner")), _steps(m.node("outer"))
    if inner is None or outer is None:
        return None
    begin, end, strides = [], [], []
    for (a, p, _), (b, q, n) in zip(inner, outer, strict=True):
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
    steps = _steps(m.node("cut"))
    if steps is None or m.readers(turned.output) > 1:
        return None
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
    steps = _steps(m.node("cut"))
    if steps is None or not m.out.is_static or len(shape) < 2:
        return None
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


@rule(op("sum prod max min argmax argmin", _x))
def reduction_of_one(m: Match) -> Value | None:
    """A sum or extreme over dimensions of one element is a reshape, and the place of an extreme is 0.

    For all types; a sum of -0.0 alone may be 0.0.
    """
    x, axes = m["x"], axes_without_negatives(m.root.attrs.get("axis"), m["x"].ndim)
    if not axes or not all(isinstance(x.shape[axis], int) and x.shape[axis] == 1 for axis in axes):
        return None
    if m.root.op in ("argmax", "argmin"):
        zero = m.constant(np.zeros((), np.int64), m.out.dtype)
        return m.op("broadcast_to", zero, shape=m.out.shape) if m.out.is_static else None
    return m.op("reshape", x, shape=m.out.shape) if m.out.dtype == x.dtype else None


@rule(op("minimum", op("min", either(op("relu", any_value()), any_value()), bind="min"), _c))
def minimum_of_positive(m: Match) -> Value | None:
    """min(min(x), c) is min(max(x), c) for x ≥ 0 ≥ c: both are c, or NaN where x has one.

    Data that is quantized by its range at the call has both extremes taken, with 0: after an activation that leaves nothing
    negative the maximum is then all that is computed. For floats, and sizes above 0.
    """
    reduction = m.node("min")
    (x,), attrs = list(reduction.given), reduction.attrs
    axes = range(x.ndim) if attrs.get("axis") is None else axes_without_negatives(attrs["axis"], x.ndim)
    whole = axes is not None and all(isinstance(x.shape[n], int) and x.shape[n] > 0 for n in axes)
    if not whole or attrs.get("initial") is not None or not np.all(m.numbers("c") <= 0):
        return None
    if not DType(x.dtype).is_float or not _is_positive(m, x, zeros=True):
        return None
    return m.op("minimum", m.op("max", x, **attrs), m["c"])


_LARGE_WINDOW = 16
"""The elements of a window from which on its maximum is taken row by row first."""


@rule(op("max_pool2d max_pool3d", any_value("x")))
def maximum_by_dimension(m: Match) -> Value | None:
    """The maximum of a large window is that of its rows' maxima, which windows that overlap share.

    A window of 5 x 5 reads 5 + 5 elements in place of 25. For all types; which of two equal zeros is open.
    """
    attrs, n = m.root.attrs, m.out.ndim - 2
    each = {name: attrs.get(name, usual) for name, usual in (("kernel", None), ("stride", None), ("dilation", 1))}
    each["stride"] = each["kernel"] if each["stride"] is None else each["stride"]
    kernel, stride, dilation = [v if isinstance(v, (tuple, list)) else (v,) * n for v in each.values()]
    padding = attrs.get("padding", 0)
    pads = padding if isinstance(padding, (tuple, list)) else (padding,) * n
    pads = (*pads, *pads) if len(pads) == n else pads
    numbers = (*kernel, *stride, *dilation, *pads)
    if len(numbers) != 5 * n or not all(isinstance(number, int) for number in numbers):
        return None
    long = [d for d in range(n) if kernel[d] > 1]
    if len(long) < 2 or math.prod(kernel) < _LARGE_WINDOW or any(kernel[d] <= stride[d] for d in long):
        return None
    if any(stride[d] > 1 or pads[d] or pads[d + n] for d in range(n) if kernel[d] == 1):
        return None
    out = m["x"]
    for d in long if max(stride) > 1 else reversed(long):
        alone = {"kernel": kernel[d], "stride": stride[d], "dilation": dilation[d]}
        words = {name: tuple([value if a == d else 1 for a in range(n)]) for name, value in alone.items()}
        words["padding"] = tuple([pads[a] if a % n == d else 0 for a in range(2 * n)])
        out = m.op(m.root.op, out, **{**attrs, **words})
    return out


_MOVEMENT_RULES: tuple[Rule, ...] = (
    view_of_the_same_shape,
    view_of_view,
    one_kind_of_view,
    transpose_of_transpose,
    transpose_without_effect,
    product_with_transposed,
    product_of_transposed,
    dense_of_transposed,
    slice_of_everything,
    slice_of_slice,
    slice_of_transpose,
    heads_of_slice,
    joined_parts,
    joined_joined,
    element_of_reshape,
    elements_of_reshape,
    rows_of_reshape,
    reduction_of_one,
    minimum_of_positive,
    maximum_by_dimension,
)


RULES = [*_ELEMENT_RULES, *_MOVEMENT_RULES]
