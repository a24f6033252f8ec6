"""This pass moves scales and shifts of channels into the weights and biases of products next to them.

Sums are then made of other numbers, so that they round differently. For float32 and float64 this is accepted, for operands
within half of the range of the exponent (2⁶³ for float32), up to the error that such a sum has anyhow: n + 4 units of
roundoff times the sum of the magnitudes of its terms, shifts included, where n is the number of terms; and an absolute error
of n · 2⁻¹⁰⁰ where numbers underflow. The conditions below see to it that neither the written steps nor the folded ones
overflow there, that no weight loses digits, and that no shift is so large that the written steps round the rest away.
Narrower floats have too few digits for rounded weights beside sums in float32: there only exact scales are folded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.expr import DType
from ..graph import Graph, Node, Value
from ..graph_operators import PRODUCTS, Channels, channels_of, per_channel, sums_whole_windows
from ..kernels import Services
from ..rules import Match, Rule, any_value, constant, either, op, produced, rewritten, rule

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
    return rewritten(graph, RULES)


_LARGEST = {"float32": 2.0**32, "float64": 2.0**256}
"""The largest magnitudes of scales and of the sums of a channel's weights: a quarter of the range of the exponent."""

_SHIFT = 2.0**10
"""How large a shift may be beside the numbers that it is added to: so many units of roundoff are lost at most."""


def _all_normal(data: Any, zero: Any) -> bool:
    """Returns whether all numbers are finite and normal; they may be 0 where ``zero`` says so."""
    size = np.abs(data)
    return bool(np.all(np.isfinite(size) & ((size >= np.finfo(data.dtype).tiny) | zero)))


def _is_foldable(channels: Channels, weight: Any, scale: Any, new: Any, dtype: str) -> bool:
    """Returns whether ``new``, the rounded products of weights and scales, may stand for them."""
    with np.errstate(all="ignore"):
        exact = weight.astype(np.float64) * scale
    if not np.all(np.isfinite(scale)) or not _all_normal(new, (weight == 0) | (scale == 0)):
        return False
    if (
        dtype not in _LARGEST
    ):  # the product is rounded to the type before it is scaled: it must not overflow there alone
        return bool(np.all(new == exact) and np.all(np.abs(scale) >= 1))
    every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
    sums = [np.abs(w).astype(np.float64).sum(axis=every).max(initial=0.0) for w in (weight, new)]
    return bool(max(*sums, np.abs(scale).max(initial=0.0)) <= _LARGEST[dtype])


@rule(op("batch_norm", _x, constant("gamma"), constant("beta"), constant("mean"), constant("variance")))
def batch_norm(m: Match) -> Value | None:
    """gamma · (x - mean) / √(variance + ε) + beta is x · s + t.

    For float32 and float64. The difference from the written steps is at most 4 units of roundoff times |x · s| + |mean · s| +
    |beta|; where |mean · s| is beyond 2¹⁰ |gamma| and |beta|, too many digits would cancel, and the batch norm stays.
    """
    axis = m.root.attrs.get("axis", 1) % m.out.ndim
    gamma, beta, mean, variance = [m.array(n).astype(np.float64) for n in ("gamma", "beta", "mean", "variance")]
    if m["gamma"].dtype not in ("float32", "float64") or m.out.dtype != m["gamma"].dtype:
        return None
    if not isinstance(m.out.shape[axis], int):  # the channels agree, which the operator checks at the call
        return None
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + m.root.attrs.get("epsilon", 1e-5))
        moved = mean * scale
        small = np.abs(moved) <= _SHIFT * np.maximum(np.abs(gamma), np.abs(beta))
        s, t = scale.astype(m.out.dtype), (beta - moved).astype(m.out.dtype)
    if not np.all(small) or not _all_normal(s, gamma == 0) or not np.all(np.isfinite(t)):
        return None
    shape = [-1] + [1] * (m.out.ndim - axis - 1)
    return m.op("add", m.op("multiply", m["x"], m.constant(s.reshape(shape))), m.constant(t.reshape(shape)))


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
    """(x · W + b) · s is x · (W · s) + b · s.

    In float16 only where W · s is exact and |s| is at least 1, as with 2.
    """
    node = m.node("product")
    found = _of_channels(m, node)
    if found is None:
        return None
    channels, weight, scale = found
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and m.data(bias) is None:
        return None
    with np.errstate(all="ignore"):
        scale = 1.0 / scale if m.root.op == "divide" else scale
        scaled = channels.scaled(weight, scale)
        if not _is_foldable(channels, weight, channels.along(weight, scale), scaled, m.out.dtype):
            return None
        inputs: list[Value | None] = [node.inputs[0], m.constant(scaled)]
        if bias is not None:
            data = m.data(bias)
            assert data is not None
            moved = (data * scale).astype(data.dtype)
            exact = m.out.dtype in _LARGEST or np.all(moved == data.astype(np.float64) * scale)
            if not exact or not _all_normal(moved, (data == 0) | (scale == 0)):
                return None
            inputs.append(m.constant(moved))
    return m.op(node.op, *inputs, **node.attrs)


@rule(either(op("add", produced(_WITH_BIAS, "product"), _c), op("subtract", produced(_WITH_BIAS, "product"), _c)))
def shift_of_product(m: Match) -> Value | None:
    """(x · W + b) + t is x · W + (b + t).

    For float32 and float64. Where b + t is much smaller than b, the written steps have rounded x · W to the digits of b: both
    are folded only beside weights of a size that this is a rounding as any other.
    """
    node = m.node("product")
    found = _of_channels(m, node)
    if found is None:
        return None
    channels, weight, shift = found
    shift = -shift if m.root.op == "subtract" else shift
    bias = m.data(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if bias is not None:
        every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
        beside = _SHIFT * np.abs(weight).astype(np.float64).sum(axis=every).reshape(-1)
        larger = np.maximum(np.abs(bias), np.abs(shift))
        if not np.all((larger <= beside) | (np.abs(bias + shift) * 16 >= larger)):
            return None
    return _with_shift(m, node, node.inputs[0], node.inputs[1], shift)


def _with_shift(m: Match, node: Node, x: Value | None, weight: Value | None, shift: Any) -> Value | None:
    """Returns the product with ``shift`` added to its bias."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    data = None if bias is None else m.data(bias)
    if bias is not None and data is None:
        return None
    with np.errstate(all="ignore"):
        total = (shift if data is None else data + shift).astype(node.output.dtype)
    if node.output.dtype not in _LARGEST or not np.all(np.isfinite(total)):
        return None
    return m.op(node.op, x, weight, m.constant(total), **node.attrs)


@rule(either(op(_LINEAR, op("multiply", _x, _c, bind="scaled"), constant("w")),
             op(_WITH_BIAS, op("multiply", _x, _c, bind="scaled"), constant("w"), any_value("b"))))  # fmt: skip
def product_of_scaled(m: Match) -> Value | None:
    """(x · s) · W is x · (s · W), for float32 and float64."""
    found = _weights(m, m.root, spare=False)
    scaled = m.node("scaled").output
    if found is None or m.readers(scaled) > 1 or m["x"].shape != scaled.shape:
        return None
    channels, weight = found
    if not isinstance(scaled.shape[channels.operand], int) or m.out.dtype not in _LARGEST:
        return None
    scale = per_channel(m.array("c"), scaled.ndim, channels.operand % scaled.ndim, scaled.shape[channels.operand])
    if scale is None:
        return None
    with np.errstate(all="ignore"):
        new = channels.scaled_inputs(weight, scale)
    if not _is_foldable(channels, weight, channels.along_inputs(weight, scale), new, m.out.dtype):
        return None
    return m.op(m.root.op, m["x"], m.constant(new), *m.root.inputs[2:], **m.root.attrs)


@rule(either(op(PRODUCTS, op("add", _x, _c, bind="moved"), constant("w")),
             op(_WITH_BIAS, op("add", _x, _c, bind="moved"), constant("w"), constant("b"))))  # fmt: skip
def product_of_shifted(m: Match) -> Value | None:
    """A constant that is added to an operand of a product is added to its result instead. (x + t) · W is x · W + t · W,
    where no padding of a convolution stands between.

    For float32 and float64 and |t| up to 2¹⁰: x + t rounds x to the digits of t, and the folded program does not.
    """
    found = _weights(m, m.root, spare=False)
    moved = m.node("moved").output
    if found is None or m.readers(moved) > 1 or m["x"].shape != moved.shape or not sums_whole_windows(m.root):
        return None
    channels, weight = found
    if not isinstance(moved.shape[channels.operand], int) or m.out.dtype not in _LARGEST:
        return None
    shift = per_channel(m.array("c"), moved.ndim, channels.operand, moved.shape[channels.operand])
    if shift is None or not np.all(np.abs(shift) <= _SHIFT) or not np.all(np.isfinite(weight)):
        return None
    more = channels.shifted(weight, shift)
    if m.root.op == "matmul":
        product = m.op("matmul", m["x"], m["w"], **m.root.attrs)
        return m.op("add", product, m.constant(more.astype(m.out.dtype)))
    return _with_shift(m, m.root, m["x"], m["w"], more)


RULES: tuple[Rule, ...] = (batch_norm, scale_of_product, shift_of_product, product_of_scaled, product_of_shifted)
