"""Layer norm and RMS norm written out, and their scale and shift.

For all types of floats, with NaN and the infinities where the steps have them. A division by a root becomes a product with
its reciprocal, one rounding more; the sums may be added in another order. Float16 and bfloat16 are computed in float32 and
rounded once, at the end, so that squares beyond their range no longer overflow.
"""

from __future__ import annotations

import numpy as np

from ...tir.expr import DType
from ..graph import Node, Value
from ..reduced_axes import axes_without_negatives, reduced_axes
from ..rules import Match, Pattern, any_value, constant, either, op, optional, rule

_x, _eps = any_value("x"), constant("epsilon")


def _square(inner: Pattern) -> Pattern:
    return either(op("square", inner), op("multiply", inner, inner))


def _over_root(top: Pattern, inner: Pattern) -> Pattern:
    return either(top / op("sqrt", inner), top * op("rsqrt", inner), top * (any_value("one") / op("sqrt", inner)))


_apart = _x - op("mean", _x, bind="mean")
_variance = op("mean", _square(optional("cast", _apart, bind="wider")), bind="variance")


def _epsilon(m: Match) -> float | None:
    """Returns what is added below the root; None unless it is one number."""
    data = m.numbers("epsilon")
    if "one" in m and (m.data(m["one"]) is None or not np.all(m.numbers("one") == 1.0)):
        return None
    if not m.fits(m["x"]):
        return None
    return float(data.reshape(-1)[0]) if data.size == 1 else None


@rule(_over_root(_apart, _variance + _eps))
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


@rule(_over_root(_x, op("mean", _square(_x), bind="mean") + _eps))
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


RULES = (layer_norm, rms_norm, scaled_norm, shifted_norm)
