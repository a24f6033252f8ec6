"""This module makes the values of the operators ``Shape`` and ``Size``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Value


def shape_of(
    builder: Builder, shapes: dict[Value, list[Any]], node: Any, attributes: Mapping[str, Any], x: Value
) -> Value:
    """Returns the extents of ``x``, or their product. Where some are symbolic, ``shapes`` gets what is known of them."""
    dims = list(x.shape)[attributes.get("start", 0) : attributes.get("end")]
    if node.op_type == "Size":
        total: Any = 1
        for d in x.shape:
            total = d * total
        dims = [total]
    if all(isinstance(d, int) for d in dims):
        shape = np.array(dims[0] if node.op_type == "Size" else dims, np.int64)
        return builder.constant(shape, node.output[0], "int64")
    value = builder.constant(np.full((len(dims),), -1, np.int64), node.output[0], "int64")
    shapes[value] = dims
    return value
