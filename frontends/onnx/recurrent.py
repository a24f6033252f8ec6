"""Converters of recurrent layers: a loop over time for each direction.

The input times its weights depends on no state, so that a pass of the graph takes it out of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...graph.builder import add_scan
from ...graph.graph import Value
from .call import OnnxCall, contributed, converter
from .quantized import by_extremes, scaled_product

_FUNCTIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softsign": "", "softplus": "softplus"}


def _function(c: OnnxCall, name: str) -> Callable[[Value], Value]:
    if not _FUNCTIONS.get(name.lower()):
        raise c.error(f"the activation {name} is not supported")
    return lambda x: c.op(_FUNCTIONS[name.lower()], x)


class _Layer:
    """The parts that all recurrent layers have: directions, weights per gate, initial states, lengths."""

    def __init__(self, c: OnnxCall, gates: int, defaults: Sequence[str]) -> None:
        self.c, self.gates = c, gates
        self.x = c.input(0) if not c.attr("layout", 0) else c.op("transpose", c.input(0), axes=(1, 0, 2))
        self.size = int(c.attr("hidden_size", c.input(2).shape[2]))
        directions = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[c.attr("direction", "forward")]
        self.reversed = [bool(d) for d in directions]
        names = c.attr("activations") or tuple(defaults) * len(directions)
        per = len(names) // len(directions)
        self.activations = [[_function(c, n) for n in names[d * per : (d + 1) * per]] for d in range(len(directions))]
        if c.attr("clip") is not None:
            raise c.error("clipping is not supported")
        self.steps, self.batch = self.x.shape[0], self.x.shape[1]
        self.inputs = [self.x] * len(directions)  # what the steps of each direction take
        self.lengths = c.optional(4)

    def part(self, value: Value, direction: int) -> Value:
        """Returns one direction of a weight or state."""
        begin, end = [0] * value.ndim, list(value.shape)
        begin[0], end[0] = direction, direction + 1
        one = self.c.op("strided_slice", value, begin=tuple(begin), end=tuple(end))
        return self.c.op("squeeze", one, axis=0)

    def parts(self, value: Value, count: int) -> list[Value]:
        """Returns the parts of the last dimension, each as wide as a state."""
        if count == 1:
            return [value]
        if not value.is_static:
            return list(self.c.several("split", value, sections=count, axis=value.ndim - 1))
        lead, bounds = [0] * (value.ndim - 1), [(n * self.size, (n + 1) * self.size) for n in range(count)]
        ends = value.shape[:-1]
        return [self.c.op("strided_slice", value, begin=(*lead, a), end=(*ends, b)) for a, b in bounds]

    def state(self, n: int, direction: int) -> Value:
        """Returns the first state of input ``n``, zeros without one."""
        given = self.c.optional(n)
        if given is None:
            zero = self.c.constant(0.0, self.x.dtype)
            return self.c.op("broadcast_to", zero, shape=(self.batch, self.size))
        if self.c.attr("layout", 0):
            given = self.c.op("transpose", given, axes=(1, 0, 2))
        one, shape = self.part(given, direction), (self.batch, self.size)
        return one if one.shape == shape else self.c.op("reshape", one, shape=shape)  # the call has equal batches

    def alive(self, t: Value | None, new: Value, old: Value) -> Value:
        """Returns the new state where the sequence is longer than ``t``, else the old one."""
        if t is None or self.lengths is None:
            return new
        longer = self.c.op("reshape", self.c.op("greater", self.lengths, t), shape=(self.batch, 1))
        return self.c.op("where", longer, new, old)

    def run(self, step: Callable[[int, Value, Any], Any], start: Callable[[int], Any]) -> tuple[list[Value], list[Any]]:
        """Returns the outputs (steps, batch, size) and the last states of each direction.

        ``step(direction, input, states)`` returns the new states, of which the first is the output.
        """
        c = self.c
        times: list[Value] = []
        if self.lengths is not None:
            times.append(c.places(self.steps, self.lengths.dtype))

        def one(d: int, states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
            made = step(d, parts[0], states)
            t = parts[1] if len(parts) > 1 else None
            kept = [self.alive(t, a, b) for a, b in zip(made, states, strict=True)]
            shown = kept[0] if t is None else self.alive(t, made[0], c.op("multiply", made[0], c.like(0, made[0])))
            return kept, [shown]

        rows, finals = [], []
        for d, backwards in enumerate(self.reversed):
            arrays = [self.inputs[d], *times]
            ends, (every,) = add_scan(c.builder, start(d), arrays, partial(one, d), reverse=backwards)
            rows.append(every)
            finals.append(ends)
        return rows, finals

    def results(self, rows: list[Value], finals: list[Any]) -> tuple[Value, ...]:
        c = self.c
        wide = [c.op("expand_dims", v, axis=1) for v in rows]
        outputs = wide[0] if len(wide) == 1 else c.op("concatenate", *wide, axis=1)
        last = []
        for k in range(len(finals[0])):
            per = [c.op("expand_dims", states[k], axis=0) for states in finals]
            last.append(per[0] if len(per) == 1 else c.op("concatenate", *per, axis=0))
        if c.attr("layout", 0):
            outputs = c.op("transpose", outputs, axes=(2, 0, 1, 3))
            last = [c.op("transpose", v, axes=(1, 0, 2)) for v in last]
        return (outputs, *last)

    def bias(self, direction: int) -> list[Value] | None:
        """Returns the biases of the input and of the state, for all gates; None when there are none."""
        given = self.c.optional(3)
        if given is None:
            return None
        return list(self.c.several("split", self.part(given, direction), sections=2, axis=0))

    def line(self, x: Value, w: Value, bias: Value | None = None) -> Value:
        return self.c.op("dense", x, w, *[] if bias is None else [bias])

    def sums(self, direction: int) -> Callable[[Value, Value], Value]:
        """Returns a function of the input and the state at one step: the sums of all gates, side by side."""
        w, r, bias = self.part(self.c.input(1), direction), self.part(self.c.input(2), direction), self.bias(direction)
        both = None if bias is None else self.c.op("add", *bias)
        return lambda x, h: self.c.op("add", self.line(x, w, both), self.line(h, r))


@converter("RNN")
def rnn(c: OnnxCall) -> tuple[Value, ...]:
    layer = _Layer(c, 1, ["Tanh"])
    sums = [layer.sums(d) for d in range(len(layer.reversed))]

    def step(d: int, x: Value, states: Any) -> Any:
        return (layer.activations[d][0](sums[d](x, states[0])),)

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d),)))


@converter("GRU")
def gru(c: OnnxCall) -> tuple[Value, ...]:
    layer = _Layer(c, 3, ["Sigmoid", "Tanh"])
    after = bool(c.attr("linear_before_reset", 0))
    cut = 2 * layer.size
    weights = []
    for d in range(len(layer.reversed)):
        r, bias = layer.part(c.input(2), d), layer.bias(d)
        rows = [
            c.op("strided_slice", r, begin=(a, 0), end=(b, r.shape[1])) for a, b in ((0, cut), (cut, 3 * layer.size))
        ]
        ends: list[Value | None] = [None, None]
        if bias is not None:
            ends = [c.op("strided_slice", bias[1], begin=(a,), end=(b,)) for a, b in ((0, cut), (cut, 3 * layer.size))]
        weights.append((layer.part(c.input(1), d), None if bias is None else bias[0], rows, ends))

    def step(d: int, x: Value, states: Any) -> Any:
        w, wb, (rows, rh), (rb, rhb) = weights[d]
        h, (f, g) = states[0], layer.activations[d]
        zx, rx, hx = layer.parts(layer.line(x, w, wb), 3)
        zh, rr = layer.parts(layer.line(h, rows, rb), 2)
        z, r = f(c.op("add", zx, zh)), f(c.op("add", rx, rr))
        if after:
            inner = c.op("multiply", r, layer.line(h, rh, rhb))
        else:
            inner = layer.line(c.op("multiply", r, h), rh, rhb)
        new = g(c.op("add", hx, inner))
        return (c.op("add", c.op("multiply", c.op("subtract", c.like(1, z), z), new), c.op("multiply", z, h)),)

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d),)))


@converter("LSTM")
def lstm(c: OnnxCall) -> tuple[Value, ...]:
    layer = _Layer(c, 4, ["Sigmoid", "Tanh", "Tanh"])
    return _lstm(layer, [layer.sums(d) for d in range(len(layer.reversed))])


@contributed("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(c: OnnxCall) -> tuple[Value, ...]:
    """An LSTM whose weights are integers. The input is rounded by its range, and so is the state of each step, by that of
    the whole batch, as ONNX Runtime does it on one thread."""
    layer = _Layer(c, 4, ["Sigmoid", "Tanh", "Tanh"])
    given, sums = by_extremes(c, layer.x), []
    for d in range(len(layer.reversed)):
        w, r = [
            (layer.part(c.input(a), d), layer.part(c.input(b), d), layer.part(c.input(b + 1), d))
            for a, b in ((1, 8), (2, 10))
        ]
        bias = layer.bias(d)
        sides = scaled_product(c, given, w)
        layer.inputs[d] = sides if bias is None else c.op("add", sides, c.op("add", *bias))
        sums.append(partial(_quantized_sums, c, r))
    return _lstm(layer, sums)


def _quantized_sums(c: OnnxCall, weights: tuple[Value, Value, Value], x: Value, h: Value) -> Value:
    return c.op("add", x, scaled_product(c, by_extremes(c, h), weights))


def _lstm(layer: _Layer, sums: Sequence[Callable[[Value, Value], Value]]) -> tuple[Value, ...]:
    """Returns the results of an LSTM whose gates are functions of ``sums`` of the input and the state."""
    c = layer.c
    peepholes = c.optional(7)
    if c.attr("input_forget", 0):
        raise c.error("coupled input and forget gates are not supported")
    directions = range(len(layer.reversed))
    peeps = [None if peepholes is None else layer.parts(layer.part(peepholes, d), 3) for d in directions]

    def step(d: int, x: Value, states: Any) -> Any:
        h, cell = states
        peep = peeps[d]
        f, g, last = layer.activations[d]
        i, o, forget, inner = layer.parts(sums[d](x, h), 4)
        if peep is not None:
            i = c.op("add", i, c.op("multiply", peep[0], cell))
            forget = c.op("add", forget, c.op("multiply", peep[2], cell))
        new = c.op("add", c.op("multiply", f(forget), cell), c.op("multiply", f(i), g(inner)))
        if peep is not None:
            o = c.op("add", o, c.op("multiply", peep[1], new))
        return c.op("multiply", f(o), last(new)), new

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d), layer.state(6, d))))
