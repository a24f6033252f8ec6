"""Finds the operators of networks that exporters write out in parts, and puts one operator in their place.

Normalizations come first, then softmax, attention, and rotary position embedding. Element-wise operators are in
:mod:`.written_out`.
"""

from __future__ import annotations

import numpy as np

from ...tir.expr import DType
from ..axes import axes_without_negatives, reduced_axes
from ..graph import Node, Value
from ..rules import Match, Pattern, any_value, constant, either, op, optional, produced, rule

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


RULES = (
    layer_norm,
    rms_norm,
    scaled_norm,
    shifted_norm,
    softmax,
    attention,
    rotary,
)
