"""Scaled dot-product attention written out: two products with a softmax between them.

For float32. Scales of the operands move behind their product, where q · kᵀ without them has to stay within the range of the
type. Scales between 2⁻²⁴ and 2²⁴ are moved, so that it does for operands up to 2⁶⁰ with 128 features.
"""

from __future__ import annotations

import numpy as np

from ..graph import Value
from ..rules import Match, Pattern, any_value, constant, either, op, rule

_q, _k, _v = any_value("q"), any_value("k"), any_value("v")


def _scaled(inner: Pattern, name: str) -> Pattern:
    """Returns a pattern of ``inner``, of it times a constant, and of it divided by one."""
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
    return m.op("attention", q, k, v, mask, scale=scale)


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


RULES = (attention,)
