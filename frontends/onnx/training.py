"""Converters of optimizers, one step each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import OnnxCall, register_onnx_operator

_DOMAIN = "ai.onnx.preview.training"


def _per_tensor(c: OnnxCall, kinds: int, step: Callable[[Sequence[Value]], Sequence[Value]]) -> tuple[Value, ...]:
    """Returns the results of ``step`` for each tensor. The inputs after two scalars are all tensors of each kind."""
    count, rest = divmod(len(c.inputs) - 2, kinds)
    if rest or count < 1:
        raise c.error(f"{len(c.inputs)} inputs are not two and {kinds} for each tensor")
    made = [step([c.input(2 + n + k * count) for k in range(kinds)]) for n in range(count)]
    return tuple([v for kind in zip(*made, strict=True) for v in kind])


def _line(c: OnnxCall, a: Value, factor: Any, b: Value) -> Value:
    """Returns ``factor * a + b``; the factor is a number or a value."""
    scale = factor if isinstance(factor, Value) else c.like(float(factor), a)
    return c.op("add", c.op("multiply", scale, a), b)


def _number(c: OnnxCall, n: int, like: Value) -> Value:
    return c.op("reshape", c.cast(c.input(n), like.dtype), shape=())


def _is_first(c: OnnxCall) -> bool:
    return not int(np.ravel(c.known(1))[0]) > 0


def adagrad(c: OnnxCall) -> tuple[Value, ...]:
    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, h = given
        one = c.like(1.0, x)
        rate = c.op("divide", _number(c, 0, x), _line(c, _number(c, 1, x), c.attr("decay_factor", 0.0), one))
        whole = _line(c, x, c.attr("norm_coefficient", 0.0), g)
        total = c.op("add", h, c.op("square", whole))
        root = c.op("add", c.op("sqrt", total), c.like(float(c.attr("epsilon", 0.0)), x))
        return c.op("subtract", x, c.op("divide", c.op("multiply", rate, whole), root)), total

    return _per_tensor(c, 3, step)


def adam(c: OnnxCall) -> tuple[Value, ...]:
    alpha, beta = float(c.attr("alpha", 0.9)), float(c.attr("beta", 0.999))
    time = int(np.ravel(c.known(1))[0])
    correction = float(np.sqrt(1 - beta**time) / (1 - alpha**time)) if time > 0 else 1.0

    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, v, h = given
        whole = _line(c, x, c.attr("norm_coefficient", 0.0), g)
        first = _line(c, v, alpha, c.op("multiply", whole, c.like(1 - alpha, x)))
        second = _line(c, h, beta, c.op("multiply", c.op("square", whole), c.like(1 - beta, x)))
        root = c.op("add", c.op("sqrt", second), c.like(float(c.attr("epsilon", 0.0)), x))
        rate = c.op("multiply", _number(c, 0, x), c.like(correction, x))
        new = c.op("subtract", x, c.op("multiply", rate, c.op("divide", first, root)))
        shrunk = c.op("multiply", new, c.like(1 - float(c.attr("norm_coefficient_post", 0.0)), x))
        return shrunk, first, second

    return _per_tensor(c, 4, step)


def momentum(c: OnnxCall) -> tuple[Value, ...]:
    alpha, beta = float(c.attr("alpha")), 1.0 if _is_first(c) else float(c.attr("beta"))

    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, v = given
        whole = _line(c, x, c.attr("norm_coefficient", 0.0), g)
        new = _line(c, v, alpha, c.op("multiply", whole, c.like(beta, x)))
        move = new if c.attr("mode", "standard") == "standard" else _line(c, new, alpha, whole)
        return c.op("subtract", x, c.op("multiply", _number(c, 0, x), move)), new

    return _per_tensor(c, 3, step)


for _name, _convert in (("Adagrad", adagrad), ("Adam", adam), ("Momentum", momentum)):
    register_onnx_operator(_name, _convert, _DOMAIN)
