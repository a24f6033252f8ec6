"""Graphs drawn from the patterns of rewrite rules: small ones that a rule fits, with values at the edges of their types."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph import Builder, Graph, Node, Value
from tilewright.graph.graph_operators import OPERATORS
from tilewright.graph.rules import (
    ASSOCIATIVE,
    COMMUTATIVE,
    Attribute,
    _Anything,
    _Apply,
    _Constant,
    _Either,
    any_value,
    constant,
    numbers_of,
)
from tilewright.te.ops.elements import ELEMENTS
from tilewright.tir.expr import DType, to_numpy
from tilewright.tir.expr.dtype import bfloat16_to_bits

FINFO = {
    "float16": (65504.0, 2.0**-14, 2.0**-10), "bfloat16": (3.38953139e38, 2.0**-126, 2.0**-7),
    "float32": (float(np.finfo("float32").max), 2.0**-126, 2.0**-23),
    "float64": (float(np.finfo("float64").max), 2.0**-1022, 2.0**-52),
}  # fmt: skip
"""The largest number, the smallest normal one, and the distance from 1 to the next one."""

NARROW = ("int8", "uint8")
PRODUCTS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "depthwise_conv2d": 2, "conv2d_transpose": 2}


def stored(numbers, dtype):
    """Returns an array of a type; bfloat16 as its bits."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return np.asarray(bfloat16_to_bits(np.asarray(numbers, np.float32)), np.uint16).reshape(np.shape(numbers))
        return np.asarray(numbers).astype(to_numpy(dtype))


class Drawing:
    """Draws a graph that a pattern fits; ``tame`` keeps the operands within half the range of the exponent."""

    def __init__(self, rng, dtype, tame):
        self.rng, self.dtype, self.tame, self.b = rng, dtype, tame, Builder("f")
        self.bound, self.arrays = {}, []

    def one_of(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, p):
        return self.rng.random() < p

    def shape(self):
        sizes = (0, 1, 2, 4) if self.chance(0.1) else (1, 2, 3, 4)
        return tuple([int(self.rng.choice(sizes)) for _ in range(self.one_of(0, 1, 2, 3, 3, 4, 4, 5))])

    def numbers(self, shape, dtype, edges):
        """Returns random numbers, some of them at the edges of the type."""
        t = DType(dtype)
        if t.is_bool:
            return self.rng.integers(0, 2, shape).astype(bool)
        if t.is_int:
            low, high = np.iinfo(to_numpy(dtype)).min, np.iinfo(to_numpy(dtype)).max
            values = self.rng.integers(low, high, shape, np.int64 if t.is_signed else np.uint64, endpoint=True)
            return np.where(self.rng.random(shape) < edges, self.rng.choice([low, high, 0, 1], shape), values)
        most, tiny, eps = FINFO[dtype]
        special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5 / eps,
            math.sqrt(most) / 8,
            1 / math.sqrt(most),
            math.inf,
            -math.inf,
            math.nan,
        ]
        special += [] if self.tame else [most, -most, most / 2, tiny, tiny / 4, -tiny * eps]
        return np.where(
            self.rng.random(shape) < edges, self.rng.choice(special, shape), self.rng.standard_normal(shape) * 3
        )

    def input(self, shape, dtype):
        v = self.b.input(f"x{len(self.arrays)}", shape, dtype)
        self.arrays.append(stored(self.numbers(shape, dtype, self.one_of(0.0, 0.1, 0.4)), dtype))
        return v

    def anything(self, shape, dtype):
        """Returns an input, or a value of it that some rules ask for; of another type now and then."""
        dtype = self.one_of(*FINFO, *NARROW, "int32") if self.chance(0.03) else dtype
        if self.chance(0.5):
            return self.constant(shape, dtype) if self.chance(0.3) else self.input(shape, dtype)
        kind = self.one_of("square", "reshape", "abs", "negative", "reshape")
        if kind == "reshape":
            return self.b.op("reshape", self.input(self.regrouped(shape), dtype), shape=shape)
        return self.b.op(kind, self.input(shape, dtype))

    def regrouped(self, shape):
        """Returns another shape with as many elements."""
        if len(shape) > 1:
            merged = (*shape[:-2], shape[-2] * shape[-1])
            return self.one_of((math.prod(shape[:-1]), shape[-1]), (math.prod(shape),), merged, (1, *shape), shape)
        return self.one_of((1, *shape), (*shape, 1), shape)

    def constant(self, shape, dtype, whole=False):
        """Returns a constant that broadcasts to ``shape``, of it when ``whole``: numbers, one number, or edges."""
        if not whole:
            axis = int(self.rng.integers(len(shape))) if shape else 0
            along = tuple([d if n == axis else 1 for n, d in enumerate(shape)])[axis if self.chance(0.5) else 0 :]
            shape = self.one_of((), shape, along, along)
        data = self.numbers(shape, dtype, self.one_of(0.0, 0.0, 0.0, 0.2))
        if DType(dtype).is_float and self.chance(0.6):
            most = FINFO[dtype][0]
            root = math.sqrt(most)
            usual = self.one_of(1.0, 2.0, 0.5, 0.125, 33.94, 1e-3, -3.0, 1e-5)
            edge = self.one_of(
                root * 2, 2 / root, most, 1.5 / FINFO[dtype][2], -1.5 / FINFO[dtype][2], 0.0, -0.0, math.inf
            )
            factor = usual if self.chance(0.7) else edge
            data = np.full(shape, factor) if self.chance(0.6) else data * factor
        elif self.chance(0.3):
            data = np.full(shape, self.one_of(0, 1, 3))
        return self.b.constant(stored(data, dtype), dtype=dtype)

    def draw(self, p, shape, dtype, whole=False):
        if isinstance(p, _Either):
            return self.draw(self.one_of(*p.options), shape, dtype, whole)
        if getattr(p, "name", "") in self.bound and not isinstance(p, _Apply):
            return self.bound[p.name]
        if isinstance(p, _Anything):
            v = self.anything(shape, dtype)
        elif isinstance(p, _Constant) and p.number is not None:
            ones = self.one_of((), (), (), (1,) * int(self.rng.integers(1, 6)))
            v = self.b.constant(stored(np.full(ones, p.number), dtype), dtype=dtype)
        elif isinstance(p, _Constant):
            v = self.constant(shape, dtype, whole)
        else:
            return self.applied(p, shape, dtype)
        if p.name:
            self.bound[p.name] = v
        return v

    def applied(self, p, shape, dtype):
        if p.name in self.bound:
            return self.bound[p.name]
        made = self.operator(p, shape, dtype)
        if p.name:
            self.bound[p.name] = made
        return made

    def operator(self, p, shape, dtype):
        op = self.one_of(*p.ops)
        if op.startswith("bitwise") and DType(dtype).is_float:
            op = "abs"
        if op == "concatenate" and p.args is None:
            return self.joined(shape, dtype)
        shapes, attrs, whole = self.operands(op, shape, len(p.args or ()))
        types = [dtype] * len(shapes)
        if op == "cast":
            attrs["dtype"] = dtype
            types = [
                self.one_of(*NARROW) if "dtype" in p.attrs else self.one_of(*FINFO, *NARROW, "int16", "int32", "bool")
            ]
        elif op == "where":
            types[0] = "bool"
        if op in ELEMENTS and ELEMENTS[op].types == "order":
            types = [self.dtype] * 2
        first = p.args[0] if p.args else None
        if op == "subtract" and isinstance(first, _Apply) and first.ops == ("cast",) and "dtype" in first.attrs:
            types = [first.attrs["dtype"]] * 2  # a number less its zero point, which is one number for all
            shapes = [shapes[0], self.one_of((), shapes[1])]
        if op in OPERATORS and "out_dtype" in p.attrs:
            types = [self.one_of(*NARROW)] * len(shapes)
        attrs.update({k: self.attribute(v) for k, v in p.attrs.items() if op != "cast" or k != "dtype"})
        if op == "cast" and "dtype" in p.attrs:
            attrs["dtype"] = p.attrs["dtype"]
        if p.args is None:
            args = [any_value(), *[constant() for _ in shapes[1:]]]
        else:
            args = list(p.args)
        if op in ASSOCIATIVE and len(args) > 2:
            self.rng.shuffle(args)
            made = self.draw(args[0], shape, dtype)
            for arg in args[1:]:
                pair = [made, self.draw(arg, shape, dtype)]
                made = self.b.op(op, *pair[:: self.one_of(1, -1)])
            return made
        inner = [self.draw(a, s, t, w) for a, s, t, w in zip(args, shapes, types, whole, strict=False)]
        if op in COMMUTATIVE:
            inner = inner[:: self.one_of(1, -1)]
        return self.b.op(op, *inner, **attrs)

    def attribute(self, wanted):
        """Returns an attribute of a pattern as it is, or a number that it stands for."""
        if not isinstance(wanted, Attribute):
            return wanted
        return (
            wanted.number
            if not wanted.name
            else float(self.rng.integers(*((-3, 1) if wanted.name == "low" else (0, 7))))
        )

    def operands(self, op, shape, count):
        """Returns the shapes of the operands of an operator of a shape, its attributes, and which are taken whole."""
        lead, last = shape[:-1], shape[-1] if shape else 1
        n, k = len(shape), self.one_of(1, 2, 4)
        kind = OPERATORS[op].kind
        if op == "broadcast_to":
            inner = tuple([1 if self.chance(0.4) else d for d in shape])[
                int(self.rng.integers(0, n + 1)) * self.one_of(0, 1) :
            ]
            return [inner], {"shape": shape}, [True]
        if op == "transpose":
            axes = [int(a) for a in self.rng.permutation(n)] if self.chance(0.4) else [*range(n - 2), n - 1, n - 2][-n:]
            inner = [0] * n
            for d, a in enumerate(axes):
                inner[a] = shape[d]
            return [tuple(inner)], {"axes": tuple(axes)}, [True]
        if op == "reshape":
            return [self.regrouped(shape)], {"shape": shape}, [True]
        if op == "flatten":
            return [(shape[0], *self.regrouped(shape[1:2]))] if n == 2 else [shape], {}, [True]
        if op in ("squeeze", "expand_dims"):
            axis = int(self.rng.integers(n + (op == "squeeze"))) if n else 0
            inner = (*shape[:axis], 1, *shape[axis:]) if op == "squeeze" else (*shape[:axis], *shape[axis + 1 :])
            return [inner], {"axis": axis}, [True]
        if op == "strided_slice":
            return self.sliced(shape)
        if op == "matmul":
            flags = [self.chance(0.2), self.chance(0.4)]
            batch = lead[:-1] if self.chance(0.5) else ()
            a = (k, lead[-1]) if flags[0] else (lead[-1], k)
            b = (last, k) if flags[1] else (k, last)
            return [(*lead[:-1], *a), (*batch, *b)], {"transpose_a": flags[0], "transpose_b": flags[1]}, [True, True]
        if op == "dense":
            return [(*lead, k), (last, k), (last,)][: max(count, 2)], {}, [True] * 3
        if op in PRODUCTS:
            return self.convolved(op, shape, k, count)
        if op in ("max_pool2d", "max_pool3d"):
            return self.windows(int(op[-2]))
        if op == "batch_norm":
            return [shape, *[(shape[1],)] * 4], {}, [True] * 5
        if kind == "reduction":
            return [shape], {"axis": self.one_of(-1, n - 1, 0), "keepdims": True}, [True]
        if kind == "rows":
            return [shape, (last,), (last,)][: max(count, 1)], {"axis": -1}, [True] * 3
        if op == "clip":
            return [shape], {"low": float(self.rng.integers(-3, 1)), "high": float(self.rng.integers(0, 7))}, [True]
        if kind == "broadcast" and self.chance(0.3):
            narrow = [tuple([1 if self.chance(0.5) else d for d in shape]) for _ in range(2)]
            shapes = [shape, *narrow] if op == "where" else [shape, narrow[0]]
            return shapes[:: self.one_of(1, -1)], {}, [False] * 3
        return [shape] * max(count, 1), {}, [op == "where"] * 3

    def sliced(self, shape):
        steps = [1] * len(shape) if self.chance(0.6) else [int(self.rng.integers(1, 3)) for _ in shape]
        begin = [0] * len(shape) if self.chance(0.6) else [int(self.rng.integers(0, 3)) for _ in shape]
        inner = [b + max(d - 1, 0) * s + min(d, 1) for b, d, s in zip(begin, shape, steps, strict=True)]
        end = list(inner)
        if shape and self.chance(0.4):  # a block of the last dimension
            begin[-1], steps[-1] = shape[-1] * self.one_of(0, 1), 1
            end[-1], inner[-1] = begin[-1] + shape[-1], shape[-1] * 2
        return [tuple(inner)], {"begin": tuple(begin), "end": tuple(end), "strides": tuple(steps)}, [True]

    def convolved(self, op, shape, k, count):
        spatial = PRODUCTS[op]
        if len(shape) != spatial + 2:
            shape = (*self.b_shape(2), *[self.one_of(1, 2, 3) for _ in range(spatial)])
        batch, out, *places = shape
        size, attrs = [self.one_of(1, 2, 3) for _ in places], {}
        if op == "conv2d_transpose":
            data, weight = (batch, k, *places), (k, out, *size)
            attrs["stride"] = self.one_of(1, 2, (1, 2))
        else:
            data = (
                batch,
                out if op == "depthwise_conv2d" else k,
                *[p + s - 1 for p, s in zip(places, size, strict=True)],
            )
            weight = (out, 1 if op == "depthwise_conv2d" else k, *size)
            attrs["padding"] = self.one_of(0, 0, 1)
        biases = weight[1] if op == "conv2d_transpose" else out
        return [data, weight, (biases,)][: max(count, 2)], attrs, [True] * 3

    def windows(self, n):
        kernel, dilation = [tuple([self.one_of(*of) for _ in range(n)]) for of in ((1, 3, 4, 5), (1, 1, 2))]
        attrs = {"kernel": kernel, "dilation": dilation, "ceil_mode": self.chance(0.3)}
        attrs["stride"] = self.one_of(1, 2, tuple([self.one_of(1, 2, 3) for _ in range(n)]))
        attrs["padding"] = self.one_of(0, tuple([self.one_of(*range((k + 1) // 2)) for k in (*kernel, *kernel)]))
        reach = [(k - 1) * step + 1 for k, step in zip(kernel, dilation, strict=True)]
        return [(*self.b_shape(2), *[r + self.one_of(0, 1, 3) for r in reach])], attrs, [True]

    def b_shape(self, n):
        return tuple([self.one_of(1, 2, 3) for _ in range(n)])

    def joined(self, shape, dtype):
        axis = int(self.rng.integers(max(len(shape), 1)))
        x = self.input(shape, dtype)
        how = self.one_of("one", "parts", "joined")
        if how == "one" or shape[axis] < 2:
            return self.b.op("concatenate", x, axis=axis)
        if how == "joined":
            return self.b.op(
                "concatenate", self.b.op("concatenate", x, self.input(shape, dtype), axis=axis), x, axis=axis
            )
        return self.b.op("concatenate", *self.b.several("split", x, sections=(1,), axis=axis), axis=axis)


def drawn_rotary(self, shape, dtype):
    """Returns a rotary embedding written out: both slices are of the same value, which no pattern says."""
    shape = (*shape[:-1], 4)
    x, n, d = self.input(shape, dtype), len(shape), self.b
    parts = [d.op("strided_slice", x, begin=(0,) * (n - 1) + (a,), end=(*shape[:-1], a + 2)) for a in (2, 0)]
    turned = d.op("concatenate", d.op("negative", parts[0]), parts[1], axis=-1)
    return d.op("add", d.op("multiply", x, self.input((4,), dtype)), d.op("multiply", turned, self.input((4,), dtype)))


BY_HAND = {"rotary": drawn_rotary}


def drawn_graph(rule, rng, dtype, tame):
    """Returns a graph that may fit the pattern of a rule, and arrays for its inputs."""
    drawing = Drawing(rng, dtype, tame)
    shape = drawing.shape()
    make = BY_HAND.get(rule.name)
    out = make(drawing, shape, dtype) if make else drawing.draw(rule.pattern, shape, dtype)
    return drawing.b.graph([out]), drawing.arrays


def _converted(graph, dtype_of, data_of, node_of):
    new = {v: Value(v.name, dtype_of(v), v.shape) for v in graph.values()}
    nodes = []
    for node in graph.nodes:
        op, attrs = node_of(node)
        nodes.append(
            Node(
                op,
                tuple([None if v is None else new[v] for v in node.inputs]),
                tuple([new[v] for v in node.outputs]),
                attrs,
            )
        )
    constants = {new[v]: data_of(v, data) for v, data in graph.constants.items()}
    return Graph(
        graph.name,
        tuple([new[v] for v in graph.inputs]),
        tuple([new[v] for v in graph.outputs]),
        tuple(nodes),
        constants,
    )


def _wide(v):
    return "float64" if DType(v.dtype).is_float else v.dtype


def _wide_data(v, data):
    return numbers_of(data, v.dtype).astype(np.float64) if DType(v.dtype).is_float else data


def _wide_attrs(node):
    return {
        k: "float64" if k in ("dtype", "out_dtype") and v and DType(v).is_float else v for k, v in node.attrs.items()
    }


def widened(graph, arrays):
    """Returns the graph and its inputs with all floats in float64."""
    made = _converted(graph, _wide, _wide_data, lambda node: (node.op, _wide_attrs(node)))
    return made, [_wide_data(v, data) for v, data in zip(graph.inputs, arrays, strict=True)]


_MAGNITUDE = {"subtract": "add", "negative": "identity"}


def magnitudes(graph, arrays):
    """Returns a graph in float64 that computes the sum of the magnitudes of the terms of a product, and its inputs."""
    means = {node.inputs[3] for node in graph.nodes if node.op == "batch_norm"}

    def data_of(v, data):
        if not DType(v.dtype).is_float:
            return (
                data
                if data.dtype == bool
                else np.abs(np.maximum(data, np.iinfo(data.dtype).min + (data.dtype.kind == "i")))
            )
        return np.abs(_wide_data(v, data)) * (-1.0 if v in means else 1.0)

    made = _converted(graph, _wide, data_of, lambda node: (_MAGNITUDE.get(node.op, node.op), _wide_attrs(node)))
    return made, [data_of(v, data) for v, data in zip(graph.inputs, arrays, strict=True)]
