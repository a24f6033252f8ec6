"""This module says where the channels of products with constant weights are: in the result, and in the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Node

Array = np.ndarray[Any, Any]

PRODUCTS = "conv1d conv2d conv3d depthwise_conv2d dense matmul"
"""Operators with weights as their second input."""


@dataclass(frozen=True)
class Channels:
    """The dimension of the result's channels, that of the operand's, and those of the weight: output, input."""

    result: int
    operand: int
    weight_out: tuple[int, ...]
    weight_in: int
    groups: int = 1

    def scaled(self, weight: Array, scale: Array) -> Array:
        """Returns the weight times one number per channel of the result."""
        return _rounded(weight * self.along(weight, scale), weight)

    def along(self, weight: Array, scale: Array) -> Array:
        """Returns one number per channel of the result in a shape that broadcasts to the weight."""
        shape = [1] * weight.ndim
        for d in self.weight_out:
            shape[d] = weight.shape[d]
        return scale.reshape(shape).astype(np.float64)

    def scaled_inputs(self, weight: Array, scale: Array) -> Array:
        """Returns the weight times one number per channel of the operand."""
        return _rounded(weight * self.along_inputs(weight, scale), weight)

    def shifted(self, weight: Array, shift: Array) -> Array:
        """Returns what each channel of the result gains when ``shift`` is added to the operand. ``shift`` has one number per
        channel, the same at every position."""
        every = tuple([d for d in range(weight.ndim) if d not in self.weight_out])
        return (weight * self.along_inputs(weight, shift)).sum(axis=every).reshape(-1)

    def along_inputs(self, weight: Array, vector: Array) -> Array:
        """Returns one number per channel of the operand in a shape that broadcasts to the weight."""
        shape = [1] * weight.ndim
        if len(self.weight_out) == 2:  # one input channel for each of the first dimension
            shape[self.weight_in] = weight.shape[self.weight_in]
            return vector.reshape(shape).astype(np.float64)
        out = self.weight_out[0]
        shape[self.weight_in] = weight.shape[self.weight_in]
        parts = vector.astype(np.float64).reshape(self.groups, -1)
        if self.groups == 1:
            return parts.reshape(shape)
        each = weight.shape[out] // self.groups
        rows = np.repeat(parts, each, axis=0)  # (output channels, input channels per group)
        shape[out] = weight.shape[out]
        return (rows if out < self.weight_in else rows.T).reshape(shape)


def channels_of(node: Node) -> Channels | None:
    """Returns where the channels of a product are; None when it has no second input of two dimensions or more."""
    weight, result = node.inputs[1], node.output
    assert weight is not None
    if node.op == "dense":
        return Channels(result.ndim - 1, result.ndim - 1, (0,), 1)
    if node.op == "matmul":
        if weight.ndim != 2 or node.attrs.get("transpose_a", False):
            return None
        rows = bool(node.attrs.get("transpose_b", False))
        return Channels(result.ndim - 1, result.ndim - 1, (0 if rows else 1,), 1 if rows else 0)
    if node.attrs.get("kernel_layout") or node.attrs.get("layout", "NC").startswith("NC") is False:
        return None
    if node.op == "depthwise_conv2d":
        return Channels(1, 1, (0, 1), 0)
    if node.op == "conv2d_transpose":
        return Channels(1, 1, (1,), 0) if node.attrs.get("groups", 1) == 1 else None
    return Channels(1, 1, (0,), 1, node.attrs.get("groups", 1))


def per_channel(data: Array, ndim: int, axis: int, count: int) -> Array | None:
    """Returns one number per channel, when ``data`` broadcasts to a result and differs along ``axis`` only."""
    if data.ndim > ndim:
        return None
    shape = [1] * (ndim - data.ndim) + list(data.shape)
    if any(extent != 1 for d, extent in enumerate(shape) if d != axis):
        return None
    return np.broadcast_to(data.reshape(-1), (count,)).astype(np.float64)


def sums_whole_windows(node: Node) -> bool:
    """Returns whether each element of a product is a sum over the whole kernel, without padding or transpose."""
    if node.op == "conv2d_transpose":
        return False
    padding = node.attrs.get("padding", 0)
    every = padding if isinstance(padding, (tuple, list)) else (padding,)
    return all(p == 0 or p == "valid" for p in every)


def _rounded(data: Array, like: Array) -> Array:
    return data.astype(like.dtype)
