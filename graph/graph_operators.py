"""This module holds the table of operators: one row each, made of a function of tensor expressions.

After the table come questions about operators: over which axes one reduces, how it orders dimensions, and where the channels
of a product with constant weights are.

The shape and the data type of a result are those of the tensors that the function returns for placeholders, so an
operator needs no rule of its own for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import te
from ..pages import did_you_mean
from ..te.ops.elements import ELEMENTS
from ..te.tensor import Tensor
from ..tir.expr import Expr
from .graph import Graph, GraphError, Node, Value, dims


def attributes_key(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns a key that equal attributes share, whatever their order; 1, 1.0 and True differ."""
    return tuple(sorted([(name, _key(value)) for name, value in attrs.items()], key=lambda item: item[0]))


def _key(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return ("tuple", *[_key(v) for v in value])
    if isinstance(value, Expr):
        return ("expression", id(value))
    return (type(value).__name__, value)


KINDS = ("elementwise", "broadcast", "injective", "reduction", "rows", "anchor", "opaque")
"""What fusion may do with an operator:

- ``elementwise`` and ``broadcast`` results are computed where they are read, or where their last operand is made;
- ``injective`` reads each element at another place (transpose, concatenate, slice);
- ``reduction`` reduces over axes; ``rows`` are several steps over one row (softmax, norms);
- ``anchor`` is a kernel that others join (products, convolutions, pooling);
- ``opaque`` stays alone.
"""


@dataclass(frozen=True)
class Operator:
    """A row of the table. ``build(*tensors, **attrs)`` returns a tensor or a tuple of tensors; an input that is left
    out is None. ``defaults`` are the attributes with their values when they are not given."""

    name: str
    build: Callable[..., Any]
    kind: str
    defaults: Mapping[str, Any]

    def tensors(self, inputs: Sequence[Tensor | None], attrs: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Returns the results for ``inputs``. GraphError names the operator when they do not fit it."""
        try:
            made = self.build(*inputs, **attrs)
        except (ValueError, TypeError, IndexError) as error:
            raise GraphError(str(error) if str(error).startswith(self.name) else f"{self.name}: {error}") from error
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)


OPERATORS: dict[str, Operator] = {}
"""All operators by name."""


def register_operator(name: str, build: Callable[..., Any], kind: str = "opaque") -> Operator:
    """Add an operator, made of a function of te tensors; ``kind`` is one of :data:`KINDS`.

    Parameters of ``build`` with a default that is not None are attributes, and so are those after ``*``. ValueError
    for a name that is taken.

    >>> from tilewright import te
    >>> row = register_operator("twice", lambda x: te.compute(x.shape, lambda *i: x(*i) * 2.0), "elementwise")
    >>> del OPERATORS["twice"]
    """
    if name in OPERATORS:
        raise ValueError(f"there is an operator {name!r} already")
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}; there are {', '.join(KINDS)}")
    defaults = {
        p.name: p.default
        for p in inspect.signature(build).parameters.values()
        if p.default is not inspect.Parameter.empty and p.name != "name"
    }
    OPERATORS[name] = Operator(name, build, kind, defaults)
    return OPERATORS[name]


def operator(name: str) -> Operator:
    """Returns the row of an operator; GraphError when there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise GraphError(
            f"there is no operator {name!r}{did_you_mean(name, OPERATORS)}; register_operator adds one"
        ) from None


def placeholder_for(value: Value) -> Tensor:
    """Returns a te placeholder of the value's shape, data type and name."""
    return te.placeholder(value.shape, value.dtype, value.name)


def infer(op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Returns data type and shape of each result of an operator."""
    row = operator(op)
    key = _types_key(row, inputs, attrs)
    if key is not None and key in _inferred:
        return list(_inferred[key])
    given = [None if v is None else placeholder_for(v) for v in inputs]
    found: list[tuple[str, tuple[Any, ...]]] = [(t.dtype, dims(t.shape)) for t in row.tensors(given, attrs)]
    if key is not None:
        if len(_inferred) >= _KEPT:
            _inferred.clear()
        _inferred[key] = found
    return found


_KEPT = 4096
_inferred: dict[Any, list[tuple[str, tuple[Any, ...]]]] = {}
"""Types of results by operator, types of inputs and attributes: networks apply the same operators again and again."""


def _types_key(row: Operator, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Any:
    """Returns a key for :data:`_inferred`; None where sizes are symbolic, or attributes are not plain values."""
    if not all(v is None or v.is_static for v in inputs):
        return None
    key = row.build, tuple([None if v is None else (v.dtype, v.shape) for v in inputs]), attributes_key(attrs)
    try:
        hash(key)
    except TypeError:
        return None
    return None if _has_expression(attrs.values()) else key


def _has_expression(values: Iterable[Any]) -> bool:
    return any(_has_expression(v) if isinstance(v, (tuple, list)) else isinstance(v, (Expr, Graph)) for v in values)


def _register(kind: str, names: str, module: Any = te.ops) -> None:
    for name in names.split():
        register_operator(name, getattr(module, name), kind)


for _row in ELEMENTS.values():
    register_operator(_row.name, _row.function, "elementwise" if _row.operands == 1 else "broadcast")
_register("elementwise", "cast reinterpret")
_register("broadcast", "broadcast_to prelu quantize_by_scale")
_register("injective", "transpose reshape flatten squeeze expand_dims tile repeat flip strided_slice take one_hot "
          "gather_elements gather_nd triangle rotary depth_to_space")  # fmt: skip
_register("reduction", "sum prod max min mean argmax argmin extremes cumsum cumprod")
_register("rows", "quantize_groups softmax log_softmax layer_norm rms_norm group_norm batch_norm")
_register(
    "anchor",
    "matmul dense dense_nbits dense_packed_nbits batch_matmul max_pool1d max_pool2d max_pool3d "
    "avg_pool1d avg_pool2d avg_pool3d global_avg_pool global_max_pool adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d",
)


def _with_bias(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns the convolution with the bias as its third input."""

    def build(data: Tensor, weight: Tensor, bias: Tensor | None = None, **attrs: Any) -> Tensor:
        return convolution(data, weight, bias=bias, **attrs)

    return build


for _name in ("conv1d", "conv2d", "conv3d", "conv2d_transpose", "depthwise_conv2d", "winograd_conv2d"):
    register_operator(_name, _with_bias(getattr(te.ops, _name)), "anchor")
_register(
    "opaque",
    "attention attention_cached grouped_matmul resize1d resize2d resize3d resample grid_sample roi_align deformable_windows col2im topk scatter_elements "
    "scatter_nd max_pool_positions",
)
register_operator("einsum", lambda *tensors, equation: te.ops.einsum(equation, *tensors), "opaque")
register_operator("concatenate", lambda *tensors, axis=0: te.ops.concatenate(tensors, axis), "injective")
register_operator("stack", lambda *tensors, axis=0: te.ops.stack(tensors, axis), "injective")
register_operator("split", lambda x, sections=1, axis=0: te.ops.split(x, _sections(sections), axis), "injective")


def _size_number(*tensors: Tensor, number: Any, dtype: str = "int64") -> Tensor:
    """Returns an expression of the sizes of ``tensors`` as a tensor of no dimensions. A tuple of such becomes a vector."""
    if not isinstance(number, (tuple, list)):
        return te.compute((), lambda: te.cast(dtype, number), name="T_size")
    entries = [te.cast(dtype, n) for n in number]

    def pick(i: Expr, low: int, high: int) -> Expr:
        middle = (low + high) // 2
        return entries[low] if high - low == 1 else te.select(i < middle, pick(i, low, middle), pick(i, middle, high))

    return te.compute((len(entries),), lambda i: pick(i, 0, len(entries)), name="T_size")


def _pad(
    x: Tensor,
    fill: Tensor | None = None,
    *,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    value: Any = 0,
    mode: str = "constant",
) -> Tensor:
    """Returns ``x`` padded with ``value``, or with the element of ``fill`` where the second input is given."""
    return te.ops.pad(x, pad_before, pad_after, value if fill is None else fill, mode)


register_operator("pad", _pad, "injective")
register_operator("size_number", _size_number, "injective")
register_operator(
    "places", lambda x, axis=0, dtype="int64": te.compute(x.shape, lambda *i: te.cast(dtype, i[axis])), "injective"
)


def _sections(sections: Any) -> Any:
    return sections if isinstance(sections, int) else list(sections)


def axes_of(node: Node) -> tuple[int, ...]:
    """Returns the order of a transpose: dimension ``d`` of the result is dimension ``axes[d]`` of the operand."""
    n = node.output.ndim
    axes = node.attrs.get("axes")
    return tuple(reversed(range(n))) if axes is None else tuple([a % n for a in axes])


def inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """Returns the order that undoes ``axes``."""
    return tuple([list(axes).index(d) for d in range(len(axes))])


def moves_only_ones(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Returns whether a transpose leaves all elements where they are: other dimensions than those of extent 1 keep their
    order."""
    kept = [a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)]
    return kept == sorted(kept)


def axes_without_negatives(axis: object, ndim: int) -> tuple[int, ...]:
    """Returns the dimensions that ``axis`` (None: all, one, or several) names, in order."""
    if axis is None:
        return tuple(range(ndim))
    every = axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted({int(a) % max(ndim, 1) for a in every}))


def reduced_axes(node: Node) -> tuple[int, ...] | None:
    """Returns the dimensions that a reduction goes over; None unless it keeps them with the extent 1."""
    if not node.attrs.get("keepdims", False):
        return None
    (x,) = node.given
    return axes_without_negatives(node.attrs.get("axis"), x.ndim)


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
