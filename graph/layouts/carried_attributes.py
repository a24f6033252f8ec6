"""This module says how an operator computes on arrays whose dimensions stand in another order.

A row takes the operator and the order ``axes`` (dimension ``d`` of the stored array is dimension ``axes[d]`` of the plain one),
and returns the attributes with which it makes the stored result of stored operands, or None when it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..graph import Node
from ..graph_operators import OPERATORS
from ..permutations import inverse
from ..reduced_axes import axes_without_negatives

Axes = tuple[int, ...]
Row = Callable[[Node, Axes], "Mapping[str, Any] | None"]

_WINDOWS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def channels_last(ndim: int) -> Axes:
    """Returns the order with the channels last, of arrays whose second dimension they are."""
    return (0, *range(2, ndim), 1)


def carried(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    """Returns the attributes of ``node`` for operands in the order ``axes``; None when it reads and makes plain ones."""
    data = node.inputs[0]
    if OPERATORS[node.op].kind != "broadcast" and (data is None or data.ndim != len(axes)):
        return None
    row = ROWS.get(node.op)
    return None if row is None else row(node, axes)


def _same(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    return node.attrs


def _broadcast(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    """Operands of fewer dimensions are given further ones in front, and so may stand at any place."""
    return node.attrs if node.output.ndim == len(axes) else None


def _one_axis(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    axis = node.attrs.get("axis", OPERATORS[node.op].defaults.get("axis"))
    named = axes_without_negatives(axis, len(axes))
    if axis is None or len(named) != 1:
        return None
    return {**node.attrs, "axis": inverse(axes)[named[0]]}


def _reduction(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    reduced = axes_without_negatives(node.attrs.get("axis"), len(axes))
    kept = [a for a in axes if a not in reduced]
    if not node.attrs.get("keepdims", False) and kept != sorted(kept):
        return None
    return {**node.attrs, "axis": tuple(sorted([inverse(axes)[a] for a in reduced]))}


def _per_dimension(*keys: str) -> Row:
    def row(node: Node, axes: Axes) -> Mapping[str, Any] | None:
        out = dict(node.attrs)
        for key in keys:
            value = node.attrs.get(key)
            if isinstance(value, (tuple, list)):
                out[key] = tuple([value[a] for a in axes])
            elif value is not None and key != "strides":
                return None
        return out

    return row


def _windows(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    plain, last = _WINDOWS.get(len(axes), ("", ""))
    if axes != channels_last(len(axes)) or node.attrs.get("layout") not in (None, "", plain):
        return None
    return None if node.attrs.get("kernel_layout") else {**node.attrs, "layout": last}


ROWS: dict[str, Row] = {
    **{name: _same for name, row in OPERATORS.items() if row.kind == "elementwise"},
    **{
        name: _broadcast
        for name, row in OPERATORS.items()
        if row.kind == "broadcast" and name not in ("prelu", "broadcast_to")
    },
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "concatenate", "split",
                     "prelu", "cumsum"), _one_axis),
    **dict.fromkeys(("sum", "prod", "max", "min", "mean"), _reduction),
    "pad": _per_dimension("pad_before", "pad_after"),
    "strided_slice": _per_dimension("begin", "end", "strides"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "max_pool1d", "max_pool2d", "max_pool3d",
                     "avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool", "global_max_pool",
                     "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
                     "adaptive_max_pool2d", "adaptive_max_pool3d", "depth_to_space", "resize1d", "resize2d", "resize3d"), _windows),
}  # fmt: skip
"""The operators that can work on another order."""

WEIGHTED = {"conv1d", "conv2d", "conv3d", "depthwise_conv2d"}
"""Operators whose second operand is stored in another order as well."""


def weight_order(node: Node) -> Axes:
    """Returns the order of the weights of a convolution on channels that stand last."""
    spatial = tuple(range(2, node.output.ndim))
    return (*spatial, 0, 1) if node.op == "depthwise_conv2d" else (*spatial, 1, 0)
