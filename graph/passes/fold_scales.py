"""This pass moves scales and shifts of channels into the weights and biases of products next to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.expr import DType
from ..graph import Graph, Node, Value
from ..rules import Match, any_value, constant, either, op, produced, rewritten, rule
from ..services import Services
from ..weighted import PRODUCTS, Channels, channels_of, per_channel, sums_whole_windows

_x, _c = any_value("x"), constant("c")
_LINEAR = f"{PRODUCTS} conv2d_transpose"
_WITH_BIAS = "conv1d conv2d conv3d conv2d_transpose depthwise_conv2d dense"


def fold_scales(graph: Graph, services: Services = Services()) -> Graph:
    """Fold batch norms, scales and shifts into constant weights.

    Before::

        a = conv2d(x, w)
        y = batch_norm(a, gamma, beta, mean, variance)

    After::

        y = conv2d(x, w_1, bias)

    A batch norm that stands behind no product becomes a product and a sum of constants, which fusion joins to others.
    """
    return rewritten(graph, (batch_norm, scale_of_product, shift_of_product, product_of_scaled, product_of_shifted))


@rule(op("batch_norm", _x, constant("gamma"), constant("beta"), constant("mean"), constant("variance")))
def batch_norm(m: Match) -> Value | None:
    """gamma · (x - mean) / √(variance + ε) + beta is x · s + t."""
    axis = m.root.attrs.get("axis", 1) % m.out.ndim
    gamma, beta, mean, variance = [m.array(n).astype(np.float64) for n in ("gamma", "beta", "mean", "variance")]
    if m["gamma"].dtype not in ("float32", "float64") or m.out.dtype != m["gamma"].dtype:
        return None
    if not isinstance(m.out.shape[axis], int):  # the channels agree, which the operator checks at the call
        return None
    scale = gamma / np.sqrt(variance + m.root.attrs.get("epsilon", 1e-5))
    shape = [-1] + [1] * (m.out.ndim - axis - 1)
    s, t = scale.reshape(shape), (beta - mean * scale).reshape(shape)
    dtype = m.out.dtype
    return m.op("add", m.op("multiply", m["x"], m.constant(s.astype(dtype))), m.constant(t.astype(dtype)))


def _weights(m: Match, node: Node, spare: bool = True) -> tuple[Channels, Any] | None:
    """Returns the channels and the weights of a product, when they are constant floats and nothing else reads it."""
    if spare and m.readers(node.output) > 1:
        return None
    weight = m.data(node.inputs[1]) if node.inputs[1] is not None else None
    if (
        weight is None
        or not DType(node.output.dtype).is_float
        or weight.dtype.kind != "f"
        or node.attrs.get("out_dtype")
    ):
        return None
    found = channels_of(node)
    return None if found is None else (found, weight)


def _of_channels(m: Match, node: Node) -> tuple[Channels, Any, Any] | None:
    """Returns the channels and the weights of a product, and a constant per channel that follows it. None stands for
    operands without these forms."""
    found = _weights(m, node)
    if found is None or m.out.shape != node.output.shape:
        return None
    channels, weight = found
    numbers = per_channel(m.array("c"), m.out.ndim, channels.result, m.out.shape[channels.result])
    return None if numbers is None else (channels, weight, numbers)


@rule(op("multiply divide", produced(_LINEAR, "product"), _c))
def scale_of_product(m: Match) -> Value | None:
    """(x · W + b) · s is x · (W · s) + b · s."""
    node = m.node("product")
    found = _of_channels(m, node)
    if found is None:
        return None
    channels, weight, scale = found
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and m.data(bias) is None:
        return None
    scale = 1.0 / scale if m.root.op == "divide" else scale
    if not np.all(np.isfinite(scale)):
        return None
    inputs: list[Value | None] = [node.inputs[0], m.constant(channels.scaled(weight, scale))]
    if bias is not None:
        data = m.data(bias)
        assert data is not None
        inputs.append(m.constant((data * scale).astype(data.dtype)))
    return m.op(node.op, *inputs, **node.attrs)


@rule(either(op("add", produced(_WITH_BIAS, "product"), _c), op("subtract", produced(_WITH_BIAS, "product"), _c)))
def shift_of_product(m: Match) -> Value | None:
    """(x · W + b) + t is x · W + (b + t)."""
    node = m.node("product")
    found = _of_channels(m, node)
    if found is None:
        return None
    _, _, shift = found
    return _with_shift(m, node, node.inputs[0], node.inputs[1], -shift if m.root.op == "subtract" else shift)


def _with_shift(m: Match, node: Node, x: Value | None, weight: Value | None, shift: Any) -> Value | None:
    """Returns the product with ``shift`` added to its bias."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    data = None if bias is None else m.data(bias)
    if bias is not None and data is None:
        return None
    total = shift if data is None else data + shift
    return m.op(node.op, x, weight, m.constant(total.astype(node.output.dtype)), **node.attrs)


@rule(either(op(_LINEAR, op("multiply", _x, _c, bind="scaled"), constant("w")),
             op(_WITH_BIAS, op("multiply", _x, _c, bind="scaled"), constant("w"), any_value("b"))))  # fmt: skip
def product_of_scaled(m: Match) -> Value | None:
    """(x · s) · W is x · (s · W)."""
    found = _weights(m, m.root, spare=False)
    scaled = m.node("scaled").output
    if found is None or m.readers(scaled) > 1 or m["x"].shape != scaled.shape:
        return None
    channels, weight = found
    scale = per_channel(m.array("c"), scaled.ndim, channels.operand % scaled.ndim, scaled.shape[channels.operand])
    if scale is None or not isinstance(scaled.shape[channels.operand], int):
        return None
    new = m.constant(channels.scaled_inputs(weight, scale))
    return m.op(m.root.op, m["x"], new, *m.root.inputs[2:], **m.root.attrs)


@rule(either(op(PRODUCTS, op("add", _x, _c, bind="moved"), constant("w")),
             op(_WITH_BIAS, op("add", _x, _c, bind="moved"), constant("w"), constant("b"))))  # fmt: skip
def product_of_shifted(m: Match) -> Value | None:
    """A constant that is added to an operand of a product is added to its result instead. (x + t) · W is x · W + t · W,
    where no padding of a convolution stands between."""
    found = _weights(m, m.root, spare=False)
    moved = m.node("moved").output
    if found is None or m.readers(moved) > 1 or m["x"].shape != moved.shape or not sums_whole_windows(m.root):
        return None
    channels, weight = found
    shift = per_channel(m.array("c"), moved.ndim, channels.operand, moved.shape[channels.operand])
    if shift is None:
        return None
    more = channels.shifted(weight, shift)
    if m.root.op == "matmul":
        product = m.op("matmul", m["x"], m["w"], **m.root.attrs)
        return m.op("add", product, m.constant(more.astype(m.out.dtype)))
    return _with_shift(m, m.root, m["x"], m["w"], more)
