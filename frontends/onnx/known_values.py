"""This module evaluates nodes whose inputs are known while the graph is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import OnnxError


def evaluate(onnx: Any, node: Any, inputs: Sequence[Any], opsets: Mapping[str, int]) -> list[Any] | None:
    """Returns the results of a node by ONNX's reference implementation, or None where it has none."""
    try:
        session = onnx.reference.ReferenceEvaluator(node, opsets={"": 1, **opsets})
        names = [name for name in node.input if name]
        given = dict(zip(names, [data for data in inputs if data is not None], strict=True))
        results = session.run(None, given)
    except Exception:  # the reference raises whatever NumPy or it itself raises; the converter explains what is wrong
        return None
    arrays = [np.asarray(r) for r in results]
    return arrays if all(a.dtype.kind in "fiub" for a in arrays) else None


def computed_dims(
    op: str,
    inputs: Sequence[Value | None],
    shapes: Mapping[Value, Sequence[Any]],
    constants: Mapping[Value, Any],
    attributes: Mapping[str, Any],
) -> list[Any] | None:
    """Returns the extents that a node computes from extents of which some are symbolic; None for another operator."""

    def dims(n: int) -> list[Any]:
        value = inputs[n] if n < len(inputs) else None
        if value is None:
            raise OnnxError(f"{op}: input {n} is missing")
        if value in shapes:
            return list(shapes[value])
        return [int(d) for d in np.ravel(constants[value])]

    if op == "Concat":
        return [d for n in range(len(inputs)) for d in dims(n)]
    if op in ("Unsqueeze", "Squeeze", "Identity", "Reshape") or (op == "Cast" and attributes.get("to") in (6, 7)):
        return dims(0)
    if op == "Gather":
        own = dims(0)
        return [own[k] for k in dims(1)]
    if op == "Slice":
        own, begin, end = dims(0), dims(1)[0], dims(2)[0]
        step = dims(4)[0] if len(inputs) > 4 and inputs[4] is not None else 1
        return own[max(begin, -len(own)) : min(end, len(own)) : step]
    combine = _ARITHMETIC.get(op)
    if combine is not None:
        a, b = dims(0), dims(1)
        count = max(len(a), len(b))
        return [combine(x, y) for x, y in zip(a * (count // len(a)), b * (count // len(b)), strict=True)]
    return None


_ARITHMETIC = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a // b,
}
