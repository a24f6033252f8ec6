"""Random graphs: operators drawn from the table with shapes and constants that fit, and parts that passes look for."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph import Builder, GraphError
from tilewright.graph.graph_operators import OPERATORS

UNARY = ("abs", "relu", "negative", "square", "sign", "floor", "sigmoid", "tanh", "identity", "erf", "hardswish")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
SIZES = (1, 2, 3, 4, 7)


class RandomGraph:
    """Draws operators; values stay small, so that float errors do."""

    def __init__(self, rng, size=12):
        self.rng, self.b = rng, Builder("net")
        shape = self.shape(int(rng.integers(2, 5)))
        self.values = [self.b.input("x", shape), self.b.input("y", shape), self.b.input("z", self.shape(2))]
        moves = [getattr(self, name) for name in dir(self) if name.startswith("draw_")]
        while size:
            move = moves[int(rng.integers(len(moves)))]
            try:
                made = move(self.pick())
            except GraphError:
                continue
            if math.prod(made.shape) <= 2000 and made.dtype == "float32":
                self.values.append(made)
                size -= 1
        picked = [self.values[int(k)] for k in rng.integers(0, len(self.values), 2)]
        self.graph = self.b.graph([self.values[-1], *picked])

    def shape(self, n):
        return tuple([int(self.rng.choice(SIZES)) for _ in range(n)])

    def pick(self):
        return self.values[int(self.rng.integers(max(len(self.values) - 6, 0), len(self.values)))]

    def number(self, low=-4, high=5):
        return float(self.rng.integers(low, high)) / 2

    def array(self, *shape):
        return self.b.constant((self.rng.integers(-4, 5, shape) / 4).astype(np.float32))

    def one_of(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def draw_unary(self, v):
        return self.b.op(self.one_of(*UNARY), v)

    def draw_binary(self, v):
        same = [o for o in self.values if o.shape == v.shape]
        return self.b.op(self.one_of(*BINARY), v, self.one_of(*same))

    def draw_broadcast(self, v):
        shape = [d if self.rng.integers(2) else 1 for d in v.shape][int(self.rng.integers(v.ndim + 1)) :]
        operands = [v, self.array(*shape)]
        return self.b.op(self.one_of(*BINARY), *(operands if self.rng.integers(2) else operands[::-1]))

    def draw_number(self, v):
        c = self.one_of(0.0, 1.0, -1.0, 0.5, self.number())
        if c and self.rng.integers(2):
            return self.b.op("divide", v, self.b.constant(c))
        operands = [v, self.b.constant(c)]
        return self.b.op(self.one_of(*BINARY), *(operands if self.rng.integers(2) else operands[::-1]))

    def draw_transpose(self, v):
        return self.b.op("transpose", v, axes=tuple([int(a) for a in self.rng.permutation(v.ndim)]))

    def draw_there_and_back(self, v):
        axes = [int(a) for a in self.rng.permutation(v.ndim)]
        middle = self.b.op(self.one_of(*UNARY), self.b.op("transpose", v, axes=tuple(axes)))
        return self.b.op("transpose", middle, axes=tuple([axes.index(d) for d in range(v.ndim)]))

    def draw_reshape(self, v):
        size, shape = math.prod(v.shape), []
        for d in (2, 3, 7, 4):
            if size % d == 0 and self.rng.integers(2):
                shape.append(d)
                size //= d
        order = [size, *shape]
        self.rng.shuffle(order)
        return self.b.op("reshape", v, shape=tuple(order[:5])) if len(order) < 6 else v

    def draw_ones(self, v):
        if v.ndim < 5 and self.rng.integers(2):
            return self.b.op("expand_dims", v, axis=int(self.rng.integers(v.ndim + 1)))
        return self.b.op("squeeze", v) if 1 in v.shape and math.prod(v.shape) > 1 else self.b.op("flatten", v)

    def draw_reduction(self, v):
        axis = tuple(sorted({int(a) for a in self.rng.integers(0, v.ndim, 2)}))
        keep = bool(self.rng.integers(2)) or len(axis) == v.ndim
        return self.b.op(self.one_of("mean", "max", "min"), v, axis=axis, keepdims=keep)

    def draw_rows(self, v):
        return self.b.op(self.one_of("softmax", "layer_norm", "rms_norm"), v, axis=int(self.rng.integers(v.ndim)))

    def draw_slice(self, v):
        begin = tuple([int(self.rng.integers(0, d)) if self.rng.integers(2) else 0 for d in v.shape])
        strides = tuple([int(self.rng.integers(1, 3)) for _ in v.shape])
        return self.b.op("strided_slice", v, begin=begin, end=v.shape, strides=strides)

    def draw_parts(self, v):
        axis = int(self.rng.integers(v.ndim))
        if v.shape[axis] < 2:
            return self.b.op("concatenate", v, v, axis=axis)
        parts = self.b.several("split", v, sections=(int(self.rng.integers(1, v.shape[axis])),), axis=axis)
        return self.b.op("concatenate", *(parts if self.rng.integers(2) else parts[::-1]), axis=axis)

    def draw_matmul(self, v):
        n, flag = int(self.rng.choice(SIZES)), bool(self.rng.integers(2))
        w = self.array(n, v.shape[-1]) if flag else self.array(v.shape[-1], n)
        return self.b.op("matmul", self.bounded(v), w, transpose_b=flag)

    def draw_gram(self, v):
        axes = (*range(v.ndim - 2), v.ndim - 1, v.ndim - 2)
        v = self.bounded(v)
        return self.b.op("matmul", v, self.b.op("transpose", v, axes=axes))

    def draw_dense(self, v):
        n = int(self.rng.choice(SIZES))
        bias = self.array(n) if self.rng.integers(2) else None
        return self.b.op("dense", self.bounded(v), self.array(n, v.shape[-1]), bias)

    def draw_conv(self, v):
        if v.ndim != 4 or min(v.shape[2:]) < 2:
            raise GraphError("four dimensions")
        n, k, c = int(self.rng.choice(SIZES)), int(self.rng.integers(1, 3)), v.shape[1]
        attrs = {"stride": int(self.rng.integers(1, 3)), "padding": int(self.rng.integers(0, 2))}
        if self.rng.integers(3) == 0:
            return self.b.op("depthwise_conv2d", self.bounded(v), self.array(c, 2, k, k), self.array(2 * c), **attrs)
        bias = self.array(n) if self.rng.integers(2) else None
        return self.b.op("conv2d", self.bounded(v), self.array(n, c, k, k), bias, **attrs)

    def draw_pool(self, v):
        if v.ndim != 4 or min(v.shape[2:]) < 2:
            raise GraphError("four dimensions")
        return self.b.op(self.one_of("max_pool2d", "avg_pool2d"), v, kernel=2, stride=int(self.rng.integers(1, 3)))

    def draw_batch_norm(self, v):
        axis = 1 if v.ndim > 1 else 0
        c = v.shape[axis]
        variance = self.b.constant((self.rng.integers(1, 5, c) / 4).astype(np.float32))
        return self.b.op("batch_norm", v, self.array(c), self.array(c), self.array(c), variance, axis=axis)

    def draw_cast(self, v):
        return self.b.op("cast", self.b.op("cast", v, dtype="float64"), dtype="float32")

    def draw_gelu(self, v):
        erf = self.b.op("erf", self.b.op("divide", v, self.b.constant(math.sqrt(2.0))))
        inner = self.b.op("multiply", v, self.b.op("add", erf, self.b.constant(1.0)))
        return self.b.op("multiply", inner, self.b.constant(0.5))

    def draw_constant(self, v):
        c = self.array(*v.shape)
        return self.b.op("add", v, self.b.op("relu", self.b.op("transpose", self.b.op("transpose", c))))

    def bounded(self, v):
        return self.b.op("clip", v, low=-2.0, high=2.0)

    def inputs(self):
        return [(self.rng.integers(-8, 9, v.shape) / 4).astype(np.float32) for v in self.graph.inputs]


def random_graph(seed, size=12):
    """Returns a random graph and its inputs."""
    made = RandomGraph(np.random.default_rng(seed), size)
    assert all(n.op in OPERATORS for n in made.graph.nodes)
    return made.graph, made.inputs()
