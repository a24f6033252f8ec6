"""The operator ``Gradient`` of ONNX's training domain: derivatives of a tensor of the model, added in reverse order.

Each operator of the graph on the way needs a rule. Source: Griewank and Walther, Evaluating Derivatives (SIAM 2008),
chapter 3, "Fundamentals of forward and reverse".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...graph.builder import Builder
from ...graph.graph import Node, Value
from .call import Item, OnnxError, shown

Rule = Callable[[Builder, Node, Value], Sequence[Value | None]]
"""Takes the builder, the operator and the derivative by its result; returns the derivatives by its inputs."""


def gradient(
    builder: Builder,
    label: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Item | None],
    scope: Mapping[str, Item],
) -> list[Value]:
    """Returns the derivatives of the sum of ``y`` by each of ``xs``; OnnxError where an operator between has no rule."""
    names = [*attributes.get("xs", ()), *attributes.get("zs", ())]
    y = scope.get(attributes.get("y", ""))
    if not isinstance(y, Value):
        raise OnnxError(f"{label}: y, {shown(attributes.get('y', ''))}, is not a tensor that is computed before it")
    if [scope.get(n) for n in names] != list(inputs):
        raise OnnxError(f"{label}: derivatives at other values than those of xs and zs are not supported")
    targets = [v for v in inputs[: len(attributes.get("xs", ()))] if isinstance(v, Value)]
    for v in targets:
        if v in builder.constants:
            raise OnnxError(f"{label}: {v.name} is a constant")
    found = _derivatives(builder, label, targets, y)
    return [found[v] if v in found else _filled(builder, 0.0, v) for v in targets]


def _derivatives(builder: Builder, label: str, targets: Sequence[Value], y: Value) -> dict[Value, Value]:
    """Returns the derivatives of the sum of ``y`` by the values that depend on ``targets``, and by these."""
    depends = set(targets)
    before = list(builder.nodes)
    for node in before:
        if any(v in depends for v in node.given):
            depends.update(node.outputs)
    found = {y: _filled(builder, 1.0, y)}
    for node in reversed(before):
        arriving = [v for v in node.outputs if v in found]
        if not arriving or not any(v in depends for v in node.given):
            continue
        rule = RULES.get(node.op)
        if rule is None or len(node.outputs) != 1:
            raise OnnxError(f"{label}: the operator {node.op} has no rule for its derivative")
        parts = rule(builder, node, found[arriving[0]])
        for v, part in zip(node.inputs, parts, strict=True):
            if v is not None and part is not None and v in depends:
                fitting = _summed_to(builder, part, v.shape)
                found[v] = builder.op("add", found[v], fitting) if v in found else fitting
    return found


def _filled(builder: Builder, number: float, like: Value) -> Value:
    return builder.op("broadcast_to", builder.constant(number, "c", like.dtype), shape=like.shape)


def _summed_to(builder: Builder, part: Value, shape: tuple[Any, ...]) -> Value:
    """Returns the sum over the dimensions along which a value of ``shape`` was repeated."""
    added = part.ndim - len(shape)
    axes = [d for d in range(part.ndim) if d < added or (shape[d - added] == 1 and part.shape[d] != 1)]
    if axes:
        part = builder.op("sum", part, axis=tuple(axes), keepdims=True)
    return builder.op("reshape", part, shape=shape) if part.shape != shape else part


def _first(node: Node) -> Value:
    return next(iter(node.given))


def _two(node: Node) -> tuple[Value, Value]:
    a, b = node.given
    return a, b


def _unary(derivative: Callable[[Builder, Value, Value], Value]) -> Rule:
    """Returns the rule of an operator on single elements; ``derivative`` takes its input and its result."""

    def rule(b: Builder, node: Node, g: Value) -> Sequence[Value | None]:
        return (b.op("multiply", g, derivative(b, _first(node), node.outputs[0])),)

    return rule


def _scaled(b: Builder, number: float, x: Value) -> Value:
    return b.op("multiply", b.constant(number, "c", x.dtype), x)


def _plus(b: Builder, number: float, x: Value) -> Value:
    return b.op("add", b.constant(number, "c", x.dtype), x)


def _one(b: Builder, condition: str, x: Value, y: Value) -> Value:
    """Returns 1 where the comparison holds, else 0."""
    return b.op("cast", b.op(condition, x, y), dtype=x.dtype)


def _zero(b: Builder, x: Value) -> Value:
    return b.constant(0.0, "c", x.dtype)


def _inverse(b: Builder, x: Value) -> Value:
    return b.op("divide", b.constant(1.0, "c", x.dtype), x)


def _multiply(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    x, y = _two(node)
    return b.op("multiply", g, y), b.op("multiply", g, x)


def _divide(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    part = b.op("divide", g, _two(node)[1])
    return part, b.op("negative", b.op("multiply", part, node.outputs[0]))


def _subtract(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    return g, b.op("negative", g)


def _extreme(condition: str) -> Rule:
    def rule(b: Builder, node: Node, g: Value) -> Sequence[Value]:
        x, y = _two(node)
        first = b.op("multiply", g, _one(b, condition, x, y))
        return first, b.op("subtract", g, first)

    return rule


def _matmul(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    x, y = _two(node)
    if x.ndim != 2 or y.ndim != 2 or node.attrs.get("out_dtype", x.dtype) != x.dtype:
        raise OnnxError(f"{node.outputs[0].name}: only products of two matrices of one type have a derivative")
    flipped = [b.op("transpose", v, axes=(1, 0)) for v in (x, y)]
    return b.op("matmul", g, flipped[1]), b.op("matmul", flipped[0], g)


def _reduced(mean: bool) -> Rule:
    def rule(b: Builder, node: Node, g: Value) -> Sequence[Value]:
        x, axis = _first(node), node.attrs.get("axis")
        given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {a % x.ndim for a in given}
        kept = tuple([1 if d in axes else e for d, e in enumerate(x.shape)])
        if mean:
            g = _scaled(b, 1 / math.prod([int(x.shape[d]) for d in axes]), g)
        return (b.op("broadcast_to", b.op("reshape", g, shape=kept), shape=x.shape),)

    return rule


def _reshaped(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    return (b.op("reshape", g, shape=_first(node).shape),)


def _transposed(b: Builder, node: Node, g: Value) -> Sequence[Value]:
    order = node.attrs.get("axes") or tuple(reversed(range(g.ndim)))
    return (b.op("transpose", g, axes=tuple(sorted(range(g.ndim), key=[a % g.ndim for a in order].__getitem__))),)


RULES: dict[str, Rule] = {
    "identity": lambda b, node, g: (g,),
    "add": lambda b, node, g: (g, g),
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _extreme("greater_equal"),
    "minimum": _extreme("less_equal"),
    "matmul": _matmul,
    "sum": _reduced(mean=False),
    "mean": _reduced(mean=True),
    "reshape": _reshaped,
    "expand_dims": _reshaped,
    "squeeze": _reshaped,
    "broadcast_to": lambda b, node, g: (g,),
    "transpose": _transposed,
    "negative": lambda b, node, g: (b.op("negative", g),),
    "abs": _unary(lambda b, x, y: b.op("sign", x)),
    "square": _unary(lambda b, x, y: _scaled(b, 2.0, x)),
    "sqrt": _unary(lambda b, x, y: _inverse(b, _scaled(b, 2.0, y))),
    "exp": _unary(lambda b, x, y: y),
    "log": _unary(lambda b, x, y: _inverse(b, x)),
    "sin": _unary(lambda b, x, y: b.op("cos", x)),
    "cos": _unary(lambda b, x, y: b.op("negative", b.op("sin", x))),
    "tanh": _unary(lambda b, x, y: _plus(b, 1.0, b.op("negative", b.op("square", y)))),
    "sigmoid": _unary(lambda b, x, y: b.op("multiply", y, _plus(b, 1.0, b.op("negative", y)))),
    "relu": _unary(lambda b, x, y: _one(b, "greater", x, _zero(b, x))),
    "softplus": _unary(lambda b, x, y: b.op("sigmoid", x)),
    "erf": _unary(lambda b, x, y: _scaled(b, 2 / math.sqrt(math.pi), b.op("exp", b.op("negative", b.op("square", x))))),
}
"""The rules by the graph's operator."""
