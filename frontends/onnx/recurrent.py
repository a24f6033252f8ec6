"""Converters of recurrent layers, unrolled over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...graph.graph import Value
from .call import Call
from .table import converter

_FUNCTIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softsign": "", "softplus": "softplus"}


_LONGEST = 4096
"""More time steps are not unrolled."""


def _function(c: Call, name: str) -> Callable[[Value], Value]:
    if not _FUNCTIONS.get(name.lower()):
        raise c.error(f"the activation {name} is not supported")
    return lambda x: c.op(_FUNCTIONS[name.lower()], x)


class _Layer:
    """The parts that all recurrent layers have: directions, weights per gate, initial states, lengths."""

    def __init__(self, c: Call, gates: int, defaults: Sequence[str]) -> None:
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
        steps, batch = self.x.shape[0], self.x.shape[1]
        if not isinstance(steps, int):
            raise c.error("the number of time steps has to be known")
        if steps > _LONGEST:
            raise c.error(f"{steps} time steps are too many to be written out")
        self.steps, self.batch = steps, batch
        self.lengths = c.optional(4)

    def part(self, value: Value, direction: int) -> Value:
        """Returns one direction of a weight or state."""
        begin, end = [0] * value.ndim, list(value.shape)
        begin[0], end[0] = direction, direction + 1
        one = self.c.op("strided_slice", value, begin=tuple(begin), end=tuple(end))
        return self.c.op("squeeze", one, axis=0)

    def split(self, value: Value, axis: int, count: int | None = None) -> tuple[Value, ...]:
        """Returns the parts of a value for each gate."""
        count = count or self.gates
        return self.c.several("split", value, sections=count, axis=axis) if count > 1 else (value,)

    def state(self, n: int, direction: int) -> Value:
        given = self.c.optional(n)
        if given is None:
            zero = self.c.constant(0.0, self.x.dtype)
            return self.c.op("broadcast_to", zero, shape=(self.batch, self.size))
        if self.c.attr("layout", 0):
            given = self.c.op("transpose", given, axes=(1, 0, 2))
        return self.part(given, direction)

    def input_at(self, t: int) -> Value:
        one = self.c.op(
            "strided_slice", self.x, begin=(t, 0, 0), end=(t + 1, self.batch, self.x.shape[2])
        )  # fmt: skip
        return self.c.op("squeeze", one, axis=0)

    def alive(self, t: int, new: Value, old: Value) -> Value:
        """Returns the new state where the sequence is longer than ``t``, else the old one."""
        if self.lengths is None:
            return new
        c = self.c
        longer = c.op("greater", self.lengths, c.like(t, self.lengths))
        mask = c.op("broadcast_to", c.op("reshape", longer, shape=(self.batch, 1)), shape=new.shape)
        return c.op("where", mask, new, old)

    def run(self, step: Callable[[int, int, Any], Any], start: Callable[[int], Any]) -> tuple[list[Value], list[Any]]:
        """Returns the outputs (steps, directions, batch, size) as parts, and the last states of each direction.

        ``step(direction, t, states)`` returns the new states, of which the first is the output.
        """
        c, columns, finals = self.c, [], []
        for d, backwards in enumerate(self.reversed):
            states, rows = start(d), {}
            for t in reversed(range(self.steps)) if backwards else range(self.steps):
                new = step(d, t, states)
                states = tuple([self.alive(t, a, b) for a, b in zip(new, states, strict=True)])
                shown = new[0]
                if self.lengths is not None:
                    shown = self.alive(t, new[0], c.op("multiply", new[0], c.like(0, new[0])))
                rows[t] = shown
            columns.append([rows[t] for t in range(self.steps)])
            finals.append(states)
        every = []
        for t in range(self.steps):
            per = [c.op("reshape", column[t], shape=(1, 1, self.batch, self.size)) for column in columns]
            every.append(per[0] if len(per) == 1 else c.op("concatenate", *per, axis=1))
        return every, finals

    def results(self, every: list[Value], finals: list[Any]) -> tuple[Value, ...]:
        c = self.c
        outputs = every[0] if len(every) == 1 else c.op("concatenate", *every, axis=0)
        last = []
        for k in range(len(finals[0])):
            per = [c.op("expand_dims", states[k], axis=0) for states in finals]
            last.append(per[0] if len(per) == 1 else c.op("concatenate", *per, axis=0))
        if c.attr("layout", 0):
            outputs = c.op("transpose", outputs, axes=(2, 0, 1, 3))
            last = [c.op("transpose", v, axes=(1, 0, 2)) for v in last]
        return (outputs, *last)

    def bias(self, direction: int) -> tuple[Any, Any]:
        """Returns the biases of the input and of the state for each gate, or Nones."""
        given = self.c.optional(3)
        if given is None:
            return (None,) * self.gates, (None,) * self.gates
        parts = self.split(self.part(given, direction), 0, 2 * self.gates)
        return parts[: self.gates], parts[self.gates :]

    def line(self, x: Value, w: Value, bias: Value | None = None) -> Value:
        out = self.c.op("dense", x, w)
        return out if bias is None else self.c.op("add", out, bias)


@converter("RNN")
def rnn(c: Call) -> tuple[Value, ...]:
    layer = _Layer(c, 1, ["Tanh"])
    weights = [
        (layer.part(c.input(1), d), layer.part(c.input(2), d), layer.bias(d)) for d in range(len(layer.reversed))
    ]

    def step(d: int, t: int, states: Any) -> Any:
        w, r, (wb, rb) = weights[d]
        total = c.op("add", layer.line(layer.input_at(t), w, wb[0]), layer.line(states[0], r, rb[0]))
        return (layer.activations[d][0](total),)

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d),)))


@converter("GRU")
def gru(c: Call) -> tuple[Value, ...]:
    layer = _Layer(c, 3, ["Sigmoid", "Tanh"])
    weights = [
        (layer.split(layer.part(c.input(1), d), 0), layer.split(layer.part(c.input(2), d), 0), layer.bias(d))
        for d in range(len(layer.reversed))
    ]

    def step(d: int, t: int, states: Any) -> Any:
        (wz, wr, wh), (rz, rr, rh), (wb, rb) = weights[d]
        x, h, (f, g) = layer.input_at(t), states[0], layer.activations[d]
        z = f(c.op("add", layer.line(x, wz, wb[0]), layer.line(h, rz, rb[0])))
        r = f(c.op("add", layer.line(x, wr, wb[1]), layer.line(h, rr, rb[1])))
        if c.attr("linear_before_reset", 0):
            inner = c.op("multiply", r, layer.line(h, rh, rb[2]))
        else:
            inner = layer.line(c.op("multiply", r, h), rh, rb[2])
        new = g(c.op("add", layer.line(x, wh, wb[2]), inner))
        kept = c.op("subtract", c.like(1, z), z)
        return (c.op("add", c.op("multiply", kept, new), c.op("multiply", z, h)),)

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d),)))


@converter("LSTM")
def lstm(c: Call) -> tuple[Value, ...]:
    layer = _Layer(c, 4, ["Sigmoid", "Tanh", "Tanh"])
    peepholes = c.optional(7)
    if c.attr("input_forget", 0):
        raise c.error("coupled input and forget gates are not supported")
    weights = [
        (
            layer.split(layer.part(c.input(1), d), 0),
            layer.split(layer.part(c.input(2), d), 0),
            layer.bias(d),
            None if peepholes is None else layer.split(layer.part(peepholes, d), 0, 3),
        )
        for d in range(len(layer.reversed))
    ]

    def step(d: int, t: int, states: Any) -> Any:
        w, r, (wb, rb), peep = weights[d]
        x, h, cell = layer.input_at(t), states[0], states[1]
        f, g, last = layer.activations[d]
        i, o, forget, inner = [c.op("add", layer.line(x, w[n], wb[n]), layer.line(h, r[n], rb[n])) for n in range(4)]
        if peep is not None:
            i = c.op("add", i, c.op("multiply", peep[0], cell))
            forget = c.op("add", forget, c.op("multiply", peep[2], cell))
        new = c.op("add", c.op("multiply", f(forget), cell), c.op("multiply", f(i), g(inner)))
        if peep is not None:
            o = c.op("add", o, c.op("multiply", peep[1], new))
        return c.op("multiply", f(o), last(new)), new

    return layer.results(*layer.run(step, lambda d: (layer.state(5, d), layer.state(6, d))))
