"""Finds operators that exporters write out in parts, and puts one operator in their place.

:data:`RULES` has the rules: element-wise operators from the forms of their rows, operators of networks, and products of
quantized numbers.

The rules of element-wise operators come first. Their formulas are the ``forms`` of the rows of
:data:`tilewright.te.ops.elements.ELEMENTS`, for example ``x * sigmoid(x)`` of ``silu``; what may stand in a form is said
there.

A form is replaced for floats, where no operand was broadcast or converted. The steps may overflow where the operator does
not, and float16 and bfloat16 are rounded once, at the end; docs/guides/models.md, "What rewriting may change", has the bounds.

The operators of networks follow: normalizations, softmax, attention, and rotary position embedding.

Products of quantized numbers, written as products of what they stand for, become products of integers. The sums of the integers
are exact, where the written steps round each product: the rules hold where a sum cannot leave int32
and the product of both scales is a normal float32. ``product_of_shifted`` is exact always, as int32 wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..te.ops.elements import ELEMENTS, ElementOperator
from ..tir.expr import DType, max_value, min_value
from .graph import GraphError, Node, Value, same_shape
from .graph_operators import (
    PRODUCTS,
    Array,
    Channels,
    axes_without_negatives,
    channels_of,
    reduced_axes,
    sums_whole_windows,
)
from .rules import (
    Attribute,
    Match,
    Pattern,
    Rule,
    any_value,
    constant,
    either,
    is_rounded,
    op,
    optional,
    produced,
    rule,
)


class _FormNames(dict[str, Any]):
    """The names that a form may use: each operator by its name is a function of patterns."""

    def __missing__(self, name: str) -> Callable[..., Pattern]:
        def applied(*args: Pattern, **attrs: Any) -> Pattern:
            for a in args:
                if not isinstance(a, (Pattern, int, float)):
                    raise GraphError(f"{getattr(a, '__name__', a)!r} is neither an operand nor a parameter")
            defaults = ELEMENTS[name].parameters if name in ELEMENTS else {}
            return op(name, *args, **{key: _attribute(value) for key, value in {**defaults, **attrs}.items()})

        applied.__name__ = name
        return applied


def _attribute(value: Any) -> Any:
    """Returns an attribute of a pattern: parameters of the row bind, numbers may be near, the rest is equal."""
    if isinstance(value, Pattern):
        return Attribute(value.name)  # type: ignore[attr-defined]
    return Attribute(number=value) if isinstance(value, float) and is_rounded(value) else value


def _pattern(row: ElementOperator, operands: tuple[str, ...], form: str) -> Pattern:
    names = _FormNames({name: any_value(name) for name in operands})
    names |= {name: constant(name) for name in row.parameters}
    names["either"] = either
    try:
        found: Pattern = eval(form, {"__builtins__": {}}, names)  # a literal of the table
    except Exception as error:
        raise ValueError(
            f"the form {form!r} of the row {row.name!r} of ELEMENTS cannot be read: {error}. A form is a formula of "
            f"{', '.join([*operands, *row.parameters])}, numbers, + - * /, operators such as exp(x), and either(f, g)"
        ) from error
    if not isinstance(found, Pattern):
        raise ValueError(f"the form {form!r} of the row {row.name!r} of ELEMENTS is {found!r}, and no operator")
    return found


def _rule(
    name: str, row: ElementOperator, operands: tuple[str, ...], pattern: Pattern, values: Mapping[str, Any]
) -> Rule:
    def replace(m: Match) -> Value | None:
        inputs = [m[o] for o in operands]
        if not DType(m.out.dtype).is_float or not all(m.fits(v) for v in inputs) or len({*inputs}) < len(inputs):
            return None
        attrs = dict(values)
        for p in row.parameters:
            if p in m:
                found = _number_of(m, p)
                if found is None:
                    return None
                attrs[p] = found
        try:
            return m.op(row.name, *inputs, **attrs)
        except GraphError:  # numbers that the operator does not take
            return None

    return Rule(name, pattern, replace)


def _number_of(m: Match, name: str) -> float | None:
    """Returns the number that a parameter stands for: an attribute, or a constant that is the same everywhere."""
    given = m.attribute(name)
    if not isinstance(given, Value):
        return float(given)
    data = m.numbers(name)
    if given.dtype != m.out.dtype or not data.size or (data != data.reshape(-1)[0]).any():
        return None
    return float(data.reshape(-1)[0])


def _rules() -> Iterator[Rule]:
    for row in ELEMENTS.values():
        operands = row.operand_names
        by_values: dict[tuple[Any, ...], list[str]] = {}
        for form in row.forms:
            text, told = (form, {}) if isinstance(form, str) else form
            by_values.setdefault(tuple(told.items()), []).append(text)
        for values, texts in by_values.items():
            words = [f"{key}_{f'{v:g}' if isinstance(v, float) else v}" for key, v in values]
            name = "_".join([row.name, *words])
            yield _rule(name, row, operands, either(*[_pattern(row, operands, t) for t in texts]), dict(values))


_WRITTEN_OUT: tuple[Rule, ...] = tuple(_rules())
"""A rule for each operator with forms, and for each set of values of its parameters."""


_x = any_value("x")

# Layer norm and RMS norm written out, and their scale and shift.
#
# For all types of floats, with NaN and the infinities where the steps have them. A division by a root becomes a product with
# its reciprocal, one rounding more; the sums may be added in another order. Float16 and bfloat16 are computed in float32 and
# rounded once, at the end, so that squares beyond their range no longer overflow.

_eps = constant("epsilon")


def _square(inner: Pattern) -> Pattern:
    return either(op("square", inner), op("multiply", inner, inner))


def _by_root(top: Pattern, inner: Pattern) -> Pattern:
    return either(top / op("sqrt", inner), top * op("rsqrt", inner), top * (any_value("one") / op("sqrt", inner)))


_apart = _x - op("mean", _x, bind="mean")
_variance = op("mean", _square(optional("cast", _apart, bind="wider")), bind="variance")


def _epsilon(m: Match) -> float | None:
    """Returns the epsilon that is added below the root; None unless it is one number."""
    data = m.numbers("epsilon")
    if "one" in m and (m.data(m["one"]) is None or not np.all(m.numbers("one") == 1.0)):
        return None
    if not m.fits(m["x"]):
        return None
    return float(data.reshape(-1)[0]) if data.size == 1 else None


@rule(_by_root(_apart, _variance + _eps))
def layer_norm(m: Match) -> Value | None:
    """(x - mean x) / √(mean (x - mean x)² + ε)"""
    axes, epsilon = reduced_axes(m.node("mean")), _epsilon(m)
    if axes is None or epsilon is None or axes != reduced_axes(m.node("variance")) or not _is_last(axes, m.out):
        return None
    if "wider" in m:  # exporters compute the variance of a narrow float in float32
        wide = DType(m.node("wider").output.dtype)
        if not wide.is_float or wide.bits < DType(m["x"].dtype).bits:
            return None
    return m.op("layer_norm", m["x"], axis=axes, epsilon=epsilon)


@rule(_by_root(_x, op("mean", _square(_x), bind="mean") + _eps))
def rms_norm(m: Match) -> Value | None:
    """x / √(mean x² + ε)"""
    axes, epsilon = reduced_axes(m.node("mean")), _epsilon(m)
    if axes is None or epsilon is None or not _is_last(axes, m.out):
        return None
    return m.op("rms_norm", m["x"], axis=axes, epsilon=epsilon)


@rule(op("layer_norm rms_norm", _x, bind="norm") * any_value("gamma"))
def scaled_norm(m: Match) -> Value | None:
    """norm(x) · gamma"""
    gamma = _fitting(m, m.node("norm"), m["gamma"])
    return None if gamma is None else m.op(m.node("norm").op, m["x"], gamma, **m.node("norm").attrs)


@rule(
    either(op("layer_norm", _x, any_value("gamma"), bind="norm"), op("layer_norm", _x, bind="norm")) + any_value("beta")
)
def shifted_norm(m: Match) -> Value | None:
    """layer_norm(x, gamma) + beta"""
    node = m.node("norm")
    beta = _fitting(m, node, m["beta"])
    gamma = m["gamma"] if "gamma" in m else None
    return None if beta is None else m.op("layer_norm", m["x"], gamma, beta, **node.attrs)


def _is_last(axes: tuple[int, ...], x: Value) -> bool:
    return axes == tuple(range(x.ndim - len(axes), x.ndim))


def _fitting(m: Match, norm: Node, v: Value) -> Value | None:
    """Returns ``v`` in the shape of the normalized dimensions, when it is a constant or has that shape already."""
    (x, *_) = norm.given
    if m.readers(norm.output) > 1 or v.dtype != x.dtype or m.out.shape != x.shape:
        return None
    axes = axes_without_negatives(norm.attrs.get("axis", -1), x.ndim)
    if not _is_last(axes, x):
        return None
    shape = tuple([x.shape[a] for a in axes])
    if v.shape == shape and m.data(v) is not None:
        return v
    data = m.data(v)
    if data is None or any(not isinstance(d, int) for d in shape):
        return None
    lead = data.shape[: max(data.ndim - len(shape), 0)]
    inner = data.shape[len(lead) :]
    if any(d != 1 for d in lead) or len(lead) + len(shape) > x.ndim:
        return None
    full = np.broadcast_to(data.reshape(inner), shape)
    return m.constant(np.asarray(full, order="C"), v.dtype)


# Softmax written out: exponentials over their sum, with the row's maximum taken off.
#
# For all types of floats; a row with NaN, with +inf, or of nothing but -inf is NaN either way. Without the maximum an element
# of +inf makes one NaN and zeros, not a row of NaN, and large elements overflow: that stays as it is written. Float16 and
# bfloat16 are rounded once, at the end.

_exp = op("exp", _x - op("max", _x, bind="max"), bind="exp")


@rule(_exp / op("sum", _exp, bind="sum"))
def softmax(m: Match) -> Value | None:
    """exp(x - max x) / Σ exp(x - max x) along one axis"""
    axes = reduced_axes(m.node("sum"))
    if m.node("max").attrs.get("initial") is not None:
        return None
    if axes is None or axes != reduced_axes(m.node("max")) or len(axes) != 1 or not m.fits(m["x"]):
        return None
    return m.op("softmax", m["x"], axis=axes[0])


# Scaled dot-product attention written out: two products with a softmax between them.
#
# For float32. Scales of the operands move behind their product, where q · kᵀ without them has to stay within the range of the
# type. Scales between 2⁻²⁴ and 2²⁴ are moved, so that it does for operands up to 2⁶⁰ with 128 features.

_q, _k, _v = any_value("q"), any_value("k"), any_value("v")


def _scaled(inner: Pattern, name: str) -> Pattern:
    """Returns a pattern that fits ``inner``, ``inner`` times a constant, and ``inner`` divided by a constant."""
    return either(inner * constant(name), inner / constant(f"{name}_under"), inner)


_LARGEST = 2.0**24
"""Scales between this number and its reciprocal are moved."""

_scores = op("matmul", _scaled(_q, "scale_q"), _scaled(_k, "scale_k"), bind="scores")
_weighed = _scaled(_scores, "scale")
_softmax = op("softmax", either(_weighed + any_value("mask"), _weighed), bind="softmax")


@rule(op("matmul", _softmax, _v, bind="product"))
def attention(m: Match) -> Value | None:
    """Finds attention, softmax(q · kᵀ · scale + mask) · v. The scale may stand at the scores or at the operands, and
    the mask may be left out."""
    scores, product, softmax = m.node("scores"), m.node("product"), m.node("softmax")
    n = m.out.ndim
    scale = _scale(m)
    flags = [node.attrs.get(f, False) for node in (scores, product) for f in ("transpose_a", "out_dtype")]
    if n < 3 or scale is None or any(flags) or product.attrs.get("transpose_b", False) or m.out.dtype != "float32":
        return None
    if softmax.attrs.get("axis", -1) % n != n - 1 or m.readers(softmax.output) > 1 or m.readers(scores.output) > 1:
        return None
    q, k, v = m["q"], m["k"], m["v"]
    mask = m["mask"] if "mask" in m else None
    if any(x.dtype != "float32" for x in (q, k, v, mask) if x is not None):
        return None
    given = zip((q, k, scores.output), (*scores.inputs, softmax.output), strict=True)
    if any(w is None or x.shape != w.shape for x, w in given):
        return None  # a scale or a mask broadcasts
    if not q.ndim == k.ndim == v.ndim == n or q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        return None
    if not scores.attrs.get("transpose_b", False):
        k = m.op("transpose", k, axes=(*range(n - 2), n - 1, n - 2))
    if mask is not None and mask.ndim > n:
        return None
    safe = {"safe": True} if softmax.attrs.get("safe", False) else {}
    return m.op("attention", q, k, v, mask, scale=scale, **safe)


def _scale(m: Match) -> float | None:
    """Returns the product of all scales; None when one is not a number."""
    total = 1.0
    for name in ("scale_q", "scale_k", "scale"):
        for key, power in ((name, 1), (f"{name}_under", -1)):
            if key not in m:
                continue
            data = m.array(key)
            if not data.size or np.any(data != data.reshape(-1)[0]) or data.ndim > m.out.ndim:
                return None
            factor = float(data.reshape(-1)[0])
            if not 1 / _LARGEST <= abs(factor) <= _LARGEST:
                return None
            total *= factor**power
    return total


# Rotary position embedding (Su et al., 2021) written out: both halves of a row, turned by an angle per position.

_turned = op(
    "concatenate", op("negative", produced("strided_slice", "upper")), produced("strided_slice", "lower"), bind="turned"
)


@rule(_x * any_value("cos") + _turned * any_value("sin"))
def rotary(m: Match) -> Value | None:
    """x · cos + concatenate(-x[h:], x[:h]) · sin along the last dimension, exactly, for all types of floats"""
    x, upper, lower = m["x"], m.node("upper"), m.node("lower")
    last = x.ndim - 1
    if x.shape != m.out.shape or not x.is_static or m.node("turned").attrs.get("axis", 0) % x.ndim != last:
        return None
    if not m.fits(x) or any(m[name].dtype != x.dtype for name in ("cos", "sin")):
        return None
    half = x.shape[last] // 2
    if x.shape[last] % 2 or not _is_part(upper, x, half, 2 * half) or not _is_part(lower, x, 0, half):
        return None
    if m.node("turned").output.shape != x.shape or m["cos"].ndim > x.ndim or m["sin"].ndim > x.ndim:
        return None
    return m.op("rotary", x, m["cos"], m["sin"])


def _is_part(node: Node, x: Value, begin: int, end: int) -> bool:
    """Returns whether a slice takes exactly ``begin`` to ``end`` of the last dimension of ``x``."""
    strides = node.attrs.get("strides", 1)
    steps = strides if isinstance(strides, (tuple, list)) else [strides]
    if (
        node.attrs.get("slice_mode", "end") != "end"
        or node.inputs[0] is not x
        or any(s != 1 for s in steps)
        or not x.is_static
    ):
        return False
    kept = [slice(a, b).indices(d)[:2] for a, b, d in zip(node.attrs["begin"], node.attrs["end"], x.shape, strict=True)]
    return kept == [*[(0, d) for d in x.shape[:-1]], (begin, end)]


_NETWORKS = (
    layer_norm,
    rms_norm,
    scaled_norm,
    shifted_norm,
    softmax,
    attention,
    rotary,
)


_BITS = 8
"""Numbers of so many bits are multiplied as integers; sums of their products are int32."""


def _shifted(name: str, inner: Pattern) -> Pattern:
    """Returns a pattern of number - zero point, in int32."""
    whole = op("cast", inner, dtype="int32")
    return either(whole - constant(f"{name}_zero"), whole, inner)


def _widened(name: str, inner: Pattern) -> Pattern:
    """Returns a pattern of (number - zero point) · scale, as dequantizing is written."""
    return op("cast", _shifted(name, inner), dtype="float32") * constant(f"{name}_scale")


_data = optional("reshape", _widened("x", any_value("x")), bind="view")
_weight = _widened("w", constant("w"))


@rule(op(PRODUCTS, _data, _weight))
def product_of_quantized(m: Match) -> Value | None:
    """A product of quantized operands becomes a product of integers that is scaled. (x - z) · s times w · t is (x · w -
    z · w) · (s · t)."""
    return _integer_product(m, None)


@rule(op("conv1d conv2d conv3d depthwise_conv2d dense", _data, _weight, any_value("bias")))
def product_of_quantized_with_bias(m: Match) -> Value | None:
    """The same with a bias, which is added at the end."""
    return _integer_product(m, m["bias"])


@rule(
    op(
        PRODUCTS,
        optional("reshape", _shifted("x", any_value("x")), bind="view"),
        _shifted("w", constant("w")),
        out_dtype="int32",
    )
)
def product_of_shifted(m: Match) -> Value | None:
    """A product of shifted integers becomes a product of narrow ones. (x - z) · w is x · w - z · w."""
    found = _narrow_total(m)
    return None if found is None else found[0]


@rule(
    op(
        "conv1d conv2d conv3d depthwise_conv2d dense",
        optional("reshape", _shifted("x", any_value("x")), bind="view"),
        _shifted("w", constant("w")),
        any_value("bias"),
        out_dtype="int32",
    )
)
def product_of_shifted_with_bias(m: Match) -> Value | None:
    """The same with a bias of int32, added at the end. Sums of int32 wrap around alike in any order."""
    found = _narrow_total(m) if m["bias"].dtype == "int32" else None
    return None if found is None else _biased(m, found[0], m["bias"], found[1])


def _narrow_total(m: Match) -> tuple[Value, Channels, _Weight] | None:
    """Returns :func:`_total` of a product whose data is shifted; None where it is narrow as it stands."""
    narrow = m["x"] is (m.root.inputs[0] if "view" not in m else m.node("view").inputs[0])
    return None if narrow else _total(m)


@rule(
    op(
        PRODUCTS,
        optional("reshape", op("cast", any_value("x"), dtype="int32") - any_value("zero"), bind="view"),
        _shifted("w", constant("w")),
        out_dtype="int32",
    )
)
def product_of_moved(m: Match) -> Value | None:
    """A product of integers less a zero point of the call becomes one of narrow integers. (x - z) · w is x · w - z · w,
    exactly: sums of int32 wrap around alike."""
    node, zero = m.root, m["zero"]
    if zero.dtype != "int32" or not zero.is_static or math.prod(zero.shape) != 1:  # type: ignore[arg-type]
        return None
    operands = _operands(m)
    if operands is None:
        return None
    x, channels, weight = operands
    attrs = dict(node.attrs)
    if not sums_whole_windows(node):
        narrow = _narrow(m, zero, x.dtype)
        padded = None if narrow is None else _padded(m, x, attrs, narrow)
        if padded is None:
            return None
        x, attrs = padded, {**attrs, "padding": 0}
    total = _weighted_sum(m, x, weight, channels, attrs)
    if total is None:
        return None
    sums = m.constant(_along(_sums_of(weight.centered, channels), m.out, channels).astype(np.int32))
    return m.op("subtract", total, m.op("multiply", m.op("reshape", zero, shape=()), sums))


def _narrow(m: Match, zero: Value, dtype: str) -> Value | None:
    """Returns a zero point of the call in the type of the numbers; None where it may be another number."""
    made = m.producer(zero)
    while made is not None and made.op == "reshape":
        (zero,) = made.given
        made = m.producer(zero)
    if made is None or made.op != "cast":
        return None
    (zero,) = made.given
    if zero.dtype != dtype:
        return None
    return zero if not zero.ndim else m.op("reshape", zero, shape=())


def _operands(m: Match) -> tuple[Value, Channels, _Weight] | None:
    """Returns the narrow data of a product in its shape there, where the channels are, and the weights.

    None for numbers that are not narrow integers, and where a scale or a zero point broadcasts them.
    """
    node, x = m.root, m["x"]
    if not all(DType(v.dtype).is_int and DType(v.dtype).bits <= _BITS for v in (x, m["w"])):
        return None
    shaped = node.inputs[0] if "view" not in m else m.node("view").inputs[0]
    if (
        node.inputs[1] is None
        or m["w"].shape != node.inputs[1].shape
        or shaped is None
        or not same_shape(x.shape, shaped.shape)
    ):
        return None
    if "view" in m:
        x = m.op("reshape", x, shape=m.node("view").output.shape)
    channels = channels_of(Node(node.op, (x, m["w"]), node.outputs, node.attrs))
    weight = None if channels is None else _weight_of(m, channels)
    return None if channels is None or weight is None else (x, channels, weight)


@dataclass(frozen=True)
class _Weight:
    """The weights of a product of integers. ``value`` holds numbers of 8 bits, which stand for themselves less ``zero``, one
    number for each channel. ``centered`` has the differences."""

    value: Value
    zero: Array
    centered: Array


def _weight_of(m: Match, channels: Channels) -> _Weight | None:
    """Returns the weights of a product. Where the differences fit int8, they take the place of numbers and zero points;
    None for zero points that differ within a channel."""
    numbers = m.array("w")
    none = np.zeros(1, np.int64)
    if "w_zero" not in m:
        return _Weight(m["w"], none, numbers.astype(np.int64))
    given = m.array("w_zero").astype(np.int64)
    shape = [1] * (numbers.ndim - given.ndim) + list(given.shape)
    if len(shape) > numbers.ndim or any(e != 1 for d, e in enumerate(shape) if d not in channels.weight_out):
        return None
    given = given.reshape(shape)
    centered = numbers.astype(np.int64) - given
    if centered.min(initial=0) >= -128 and centered.max(initial=0) <= 127:
        return _Weight(m.constant(centered.astype(np.int8)) if given.any() else m["w"], none, centered)
    count = [numbers.shape[d] if d in channels.weight_out else 1 for d in range(numbers.ndim)]
    each = np.broadcast_to(given, count).reshape(-1)
    if numbers.dtype == np.int8:
        return _Weight(m["w"], each, centered)
    return _Weight(m.constant((numbers.astype(np.int16) - 128).astype(np.int8)), each - 128, centered)


def _weighted_sum(m: Match, x: Value, weight: _Weight, channels: Channels, attrs: Mapping[str, Any]) -> Value | None:
    """Returns the product of ``x`` and the weights less their zero points; None where nothing sums its windows."""
    total = m.op(m.root.op, x, weight.value, **attrs)
    if not weight.zero.any():
        return total
    sums = _window_sums(m, x, attrs)
    if sums is None:
        return None
    zeros = m.constant(_along(weight.zero, m.out, channels).astype(np.int32))
    return m.op("subtract", total, m.op("multiply", sums, zeros))


def _window_sums(m: Match, x: Value, attrs: Mapping[str, Any]) -> Value | None:
    """Returns the sum of the numbers of ``x`` that each result takes, in int32; None for groups of channels."""
    op, weight = m.root.op, m["w"]
    if op in ("dense", "matmul"):
        return m.op("sum", x, axis=(x.ndim - 1,), keepdims=True)
    if op == "depthwise_conv2d" or attrs.get("groups", 1) != 1:
        return None
    return m.op(op, x, m.constant(np.ones((1, *weight.shape[1:]), np.int8)), **attrs)


def _integer_product(m: Match, bias: Value | None) -> Value | None:
    if m.root.output.dtype != "float32" or m.root.attrs.get("out_dtype"):
        return None
    found = _total(m)
    if found is None:
        return None
    total, channels, weight = found
    scale = _scales(m, channels) if _sums_fit(m, weight, channels) else None
    if scale is None:
        return None
    with np.errstate(over="ignore"):
        scale32 = scale.astype(np.float32)
    if not (np.isfinite(scale32) & (np.abs(scale32) >= np.finfo(np.float32).tiny) | (scale == 0)).all():
        return None
    out = m.op("multiply", m.op("cast", total, dtype="float32"), m.constant(scale32))
    return out if bias is None else _biased(m, out, bias, channels)


def _biased(m: Match, total: Value, bias: Value, channels: Channels) -> Value:
    """Returns the results of a product with a bias, one number per channel."""
    shape = _along(np.empty(bias.shape), m.out, channels).shape
    return m.op("add", total, bias if bias.shape == shape else m.op("reshape", bias, shape=shape))


def _total(m: Match) -> tuple[Value, Channels, _Weight] | None:
    """Returns the int32 sums of products of the numbers less the zero points, where the channels are, and the weights.
    None stands for numbers that are not narrow integers."""
    node, zero, operands = m.root, _number(m, "x_zero"), _operands(m)
    if zero is None or operands is None:
        return None
    x, channels, weight = operands
    attrs = {**node.attrs, "out_dtype": "int32"}
    if zero and not sums_whole_windows(node) and not min_value(x.dtype) <= zero <= max_value(x.dtype):
        return None
    if zero and not sums_whole_windows(node):
        padded = _padded(m, x, attrs, zero)
        if padded is None:
            return None
        x, attrs = padded, {**attrs, "padding": 0}
    total = _weighted_sum(m, x, weight, channels, attrs)
    if total is None:
        return None
    if zero:
        moved = -zero * _sums_of(weight.centered, channels)
        total = m.op("add", total, m.constant(_along(moved, m.out, channels).astype(np.int32)))
    return total, channels, weight


def _sums_fit(m: Match, weight: _Weight, channels: Channels) -> bool:
    """Returns whether each sum of (number - zero point) · weight, and of its parts, is below 2³¹ for all numbers."""
    sums = _sums_of(np.abs(weight.centered), channels)
    largest = 255 + abs(_number(m, "x_zero") or 0)
    return int(sums.max(initial=0)) * largest < 1 << 31


def _sums_of(weight: Array, channels: Channels) -> Array:
    """Returns the sum of the weights of each channel, in int64."""
    every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
    return weight.astype(np.int64).sum(axis=every).reshape(-1)


def _number(m: Match, name: str) -> int | None:
    """Returns the zero point, 0 where none is written; None when there are several."""
    if name not in m:
        return 0
    data = m.array(name)
    return None if not data.size or np.any(data != data.reshape(-1)[0]) else int(data.reshape(-1)[0])


def _scales(m: Match, channels: Channels) -> Array | None:
    """Returns the product of both scales in a shape that broadcasts to the result. None stands for scales that are not
    one per channel."""
    data, weight = m.numbers("x_scale").astype(np.float64), m.numbers("w_scale").astype(np.float64)
    if data.size != 1:
        return None
    if weight.size == 1:
        return np.asarray(data.reshape(-1)[0] * weight.reshape(-1)[0])
    shape = [1] * (m["w"].ndim - weight.ndim) + list(weight.shape)
    if any(extent != 1 for d, extent in enumerate(shape) if d not in channels.weight_out):
        return None
    count = math.prod(m["w"].shape[d] for d in channels.weight_out)
    inner = [m["w"].shape[d] if d in channels.weight_out else 1 for d in range(m["w"].ndim)]
    each = np.broadcast_to(weight.reshape(shape), inner).reshape(count)
    return _along(each * data.reshape(-1)[0], m.out, channels)


def _along(vector: Array, out: Value, channels: Channels) -> Array:
    """Returns one number per channel in a shape that broadcasts to the result."""
    return vector.reshape((-1,) + (1,) * (out.ndim - 1 - channels.result))


def _padded(m: Match, x: Value, attrs: Mapping[str, Any], zero: int | Value) -> Value | None:
    """Returns the data with zero points around them, which stand for the zeros of a padded convolution."""
    padding, n = attrs.get("padding", 0), x.ndim - 2
    every = padding if isinstance(padding, (tuple, list)) else (padding,) * n
    if any(not isinstance(p, int) for p in every) or len(every) not in (n, 2 * n):
        return None
    before, after = (every[:n], every[n:]) if len(every) == 2 * n else (every, every)
    ends = {"pad_before": (0, 0, *before), "pad_after": (0, 0, *after)}
    return m.op("pad", x, zero, **ends) if isinstance(zero, Value) else m.op("pad", x, **ends, value=zero)


_QUANTIZED: tuple[Rule, ...] = (
    product_of_quantized,
    product_of_quantized_with_bias,
    product_of_shifted,
    product_of_shifted_with_bias,
    product_of_moved,
)


RULES: list[Rule] = [*_WRITTEN_OUT, *_NETWORKS, *_QUANTIZED]
