"""Rotary position embedding (Su et al., 2021) written out: both halves of a row, turned by an angle per position."""

from __future__ import annotations

from ..graph import Node, Value
from ..rules import Match, any_value, op, produced, rule

_x = any_value("x")
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


RULES = (rotary,)
