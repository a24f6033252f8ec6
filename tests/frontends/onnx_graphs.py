"""Random well-formed ONNX graphs, compared with ONNX Runtime.

``python -m tests.frontends.onnx_graphs --n 500 --seed 1`` makes graphs of 3 to 30 nodes, half of them with symbolic sizes,
which get 0 and 1 among other values at the call. Where the results differ and ONNX's reference agrees with ONNX Runtime,
or where another exception than the library's own is raised, the graph is a finding; it is shrunk. Refusals are counted by
message, and what is refused is left out, so that the rest of the graph is compared. Kernels are compiled as they are
written, which takes a tenth of the time; ``--full`` schedules them. ``--rows`` names a file of results, which a further
run goes on with.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tests.frontends.cheap_builds import cheap_builds

FLOAT, INT, BOOL = "float32", "int64", "bool"
_KINDS = {
    FLOAT: TensorProto.FLOAT, INT: TensorProto.INT64, BOOL: TensorProto.BOOL, "int32": TensorProto.INT32,
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8,
}  # fmt: skip
_OPSETS = (20, 20, 22, 24, 24, 26)


@dataclass(frozen=True)
class V:
    """A value of a graph: its name, data type, and sizes, where a text is a symbolic size or one that follows from these."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass
class Net:
    """A graph while it is made, with the numbers that each node's outputs have."""

    rng: random.Random
    symbolic: bool
    nodes: list[Any] = field(default_factory=list)
    inputs: list[V] = field(default_factory=list)
    values: list[V] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    opset: int = 20
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def size(self) -> int | str:
        return self.rng.choice(["n", "m", "n"]) if self.symbolic and self.rng.random() < 0.5 else self.rng.randint(1, 6)

    def input(self, rank: int) -> V:
        v = V(f"x{len(self.inputs)}", FLOAT, tuple(self.size() for _ in range(rank)))
        self.inputs.append(v)
        self.values.append(v)
        return v

    def const(self, data: Any, dtype: Any = np.int64) -> str:
        name = self.fresh()
        self.constants[name] = np.asarray(data, dtype)
        return name

    def weights(self, *shape: int) -> str:
        return self.const(np.array([self.rng.randint(-4, 4) / 4 for _ in range(int(np.prod(shape)))]).reshape(shape), np.float32)  # fmt: skip

    def add(self, op: str, inputs: list[str], dtype: str, shape: Any, /, **attrs: Any) -> V:
        v = V(self.fresh(), dtype, tuple(shape))
        self.nodes.append(helper.make_node(op, inputs, [v.name], **attrs))
        self.values.append(v)
        return v

    def several(self, op: str, inputs: list[str], results: list[tuple[str, Any]], **attrs: Any) -> list[V]:
        made = [V(self.fresh(), dtype, tuple(shape)) for dtype, shape in results]
        self.nodes.append(helper.make_node(op, inputs, [v.name for v in made], **attrs))
        self.values += made
        return made

    def pick(self, dtype: str = FLOAT, least: int = 0, most: int = 4) -> V | None:
        fit = [v for v in self.values if v.dtype == dtype and least <= len(v.shape) <= most]
        return self.rng.choice(fit[-6:] if self.rng.random() < 0.7 else fit) if fit else None

    def axis(self, v: V, fixed: bool = False) -> int | None:
        fit = [d for d, e in enumerate(v.shape) if not fixed or isinstance(e, int)]
        return self.rng.choice(fit) if fit else None

    def signed(self, axis: int, v: V) -> int:
        return axis - len(v.shape) if self.rng.random() < 0.5 else axis


MAKERS: list[Callable[[Net], Any]] = []


def maker(f: Callable[[Net], Any]) -> Callable[[Net], Any]:
    MAKERS.append(f)
    return f


def _with(shape: Any, axis: int, extent: Any) -> list[Any]:
    out = list(shape)
    out[axis] = extent
    return out


_UNARY = (
    "Relu Neg Abs Tanh Sigmoid Erf Floor Ceil Round Sign Softplus Softsign Elu Selu LeakyRelu HardSigmoid HardSwish Mish "
    "ThresholdedRelu Celu Sin Cos Atan Sinh Gelu Identity"
).split()


@maker
def unary(n: Net) -> Any:
    v = n.pick()
    return v and n.add(n.rng.choice(_UNARY), [v.name], FLOAT, v.shape)


@maker
def guarded(n: Net) -> Any:
    v = n.pick()
    if v is None:
        return None
    positive = n.add("Add", [n.add("Abs", [v.name], FLOAT, v.shape).name, n.const(0.5, np.float32)], FLOAT, v.shape)
    return n.add(n.rng.choice(["Sqrt", "Log", "Reciprocal"]), [positive.name], FLOAT, v.shape)


@maker
def binary(n: Net) -> Any:
    a = n.pick()
    if a is None:
        return None
    same = [v for v in n.values if v.dtype == FLOAT and v.shape == a.shape]
    ends = [v for v in n.values if v.dtype == FLOAT and v.shape and v.shape == a.shape[-len(v.shape) :]]
    kind, op = n.rng.randrange(3), n.rng.choice(["Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"])
    other = n.rng.choice(same if kind == 0 else ends or same).name if kind < 2 else n.weights()
    pair = [a.name, other] if n.rng.random() < 0.5 else [other, a.name]
    return n.add(op, pair, FLOAT, a.shape)


@maker
def compared(n: Net) -> Any:
    v = n.pick()
    if v is None:
        return None
    cond = n.add(n.rng.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]), [v.name, n.weights()], BOOL, v.shape)  # fmt: skip
    if n.rng.random() < 0.3:
        cond = n.add("Not", [cond.name], BOOL, v.shape)
    return n.add("Where", [cond.name, v.name, n.weights()], FLOAT, v.shape)


@maker
def clip(n: Net) -> Any:
    v = n.pick()
    return v and n.add("Clip", [v.name, n.const(-1, np.float32), n.const(1.5, np.float32)], FLOAT, v.shape)


@maker
def reduction(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    op = n.rng.choice("ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceProd ReduceLogSumExp".split())  # fmt: skip
    axes = n.rng.sample(range(len(v.shape)), n.rng.randint(1, len(v.shape)))
    keep = n.rng.randrange(2)
    shape = [1 if d in axes else e for d, e in enumerate(v.shape) if keep or d not in axes]
    return n.add(op, [v.name, n.const([n.signed(a, v) for a in axes])], FLOAT, shape, keepdims=keep)


@maker
def extreme(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis, keep = n.axis(v), n.rng.randrange(2)
    shape = [1 if d == axis else e for d, e in enumerate(v.shape) if keep or d != axis]
    op = n.rng.choice(["ArgMax", "ArgMin"])
    return n.add(op, [v.name], INT, shape, axis=n.signed(axis, v), keepdims=keep, select_last_index=n.rng.randrange(2))


@maker
def as_float(n: Net) -> Any:
    v = n.pick(INT) or n.pick(BOOL)
    return v and n.add("Cast", [v.name], FLOAT, v.shape, to=TensorProto.FLOAT)


@maker
def rows(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    op = n.rng.choice(["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"])
    return n.add(op, [v.name], FLOAT, v.shape, axis=n.signed(n.axis(v), v))


@maker
def norm(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    kind = n.rng.randrange(4)
    if kind == 0 and isinstance(v.shape[-1], int):
        return n.add("LayerNormalization", [v.name, n.weights(v.shape[-1])], FLOAT, v.shape, axis=-1)
    if len(v.shape) < 3 or not isinstance(v.shape[1], int):
        return None
    c = v.shape[1]
    if kind == 1:
        return n.add("InstanceNormalization", [v.name, n.weights(c), n.weights(c)], FLOAT, v.shape)
    if kind == 2:
        spread = n.const(np.full(c, 0.75), np.float32)
        return n.add("BatchNormalization", [v.name, n.weights(c), n.weights(c), n.weights(c), spread], FLOAT, v.shape)
    return n.add("LRN", [v.name], FLOAT, v.shape, size=3) if len(v.shape) == 4 else None


@maker
def product(n: Net) -> Any:
    v = n.pick(least=2)
    if v is None:
        return None
    if isinstance(v.shape[-1], int):
        k = n.rng.randint(1, 5)
        return n.add("MatMul", [v.name, n.weights(v.shape[-1], k)], FLOAT, [*v.shape[:-1], k])
    order = [*range(len(v.shape) - 2), len(v.shape) - 1, len(v.shape) - 2]
    turned = n.add("Transpose", [v.name], FLOAT, [v.shape[d] for d in order], perm=order)
    return n.add("MatMul", [v.name, turned.name], FLOAT, [*v.shape[:-1], v.shape[-2]])


@maker
def transpose(n: Net) -> Any:
    v = n.pick(least=2)
    if v is None:
        return None
    order = n.rng.sample(range(len(v.shape)), len(v.shape))
    return n.add("Transpose", [v.name], FLOAT, [v.shape[d] for d in order], perm=order)


def _product(sizes: Any) -> int | str:
    sizes = [e for e in sizes if e != 1]
    return int(np.prod(sizes)) if all(isinstance(e, int) for e in sizes) else sizes[0] if len(sizes) == 1 else f"({'*'.join(map(str, sizes))})"  # fmt: skip


@maker
def reshape(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    kind = n.rng.randrange(4)
    if kind == 0:
        axis = n.rng.randint(0, len(v.shape))
        return n.add("Flatten", [v.name], FLOAT, [_product(v.shape[:axis]), _product(v.shape[axis:])], axis=axis)
    if kind == 1:
        at = n.rng.randint(0, len(v.shape))
        return n.add("Unsqueeze", [v.name, n.const([at])], FLOAT, [*v.shape[:at], 1, *v.shape[at:]])
    if kind == 2:
        ones = [d for d, e in enumerate(v.shape) if e == 1]
        return ones and n.add("Squeeze", [v.name, n.const(ones[:1])], FLOAT, [e for d, e in enumerate(v.shape) if d != ones[0]])  # fmt: skip
    if len(v.shape) < 2:
        return None
    lead = n.part_of_shape(v, 0, 1)
    shape = n.add("Concat", [lead.name, n.const([-1])], INT, [2], axis=0)
    return n.add("Reshape", [v.name, shape.name], FLOAT, [v.shape[0], _product(v.shape[1:])])


def _part_of_shape(n: Net, v: V, begin: int, end: int) -> V:
    whole = n.add("Shape", [v.name], INT, [len(v.shape)])
    if n.rng.random() < 0.5:
        return n.add("Gather", [whole.name, n.const(list(range(begin, end)))], INT, [end - begin])
    return n.add("Slice", [whole.name, n.const([begin]), n.const([end])], INT, [end - begin])


Net.part_of_shape = _part_of_shape  # type: ignore[attr-defined]


@maker
def sizes_as_data(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    if n.rng.random() < 0.3:
        number = n.add("Size", [v.name], INT, [])
    else:
        whole = n.add("Shape", [v.name], INT, [len(v.shape)])
        number = n.add("Gather", [whole.name, n.const(n.signed(n.axis(v), v))], INT, [])
    for _ in range(n.rng.randrange(3)):
        op, other = n.rng.choice([("Add", 3), ("Sub", 2), ("Mul", -2), ("Div", 2), ("Mod", 3), ("Max", 2), ("Min", 3)])
        number = n.add(op, [number.name, n.const(other)], INT, [])
    real = n.add("Cast", [number.name], FLOAT, [], to=TensorProto.FLOAT)
    return n.add(n.rng.choice(["Add", "Mul", "Sub"]), [v.name, real.name], FLOAT, v.shape)


@maker
def counted(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    whole = n.add("Shape", [v.name], INT, [len(v.shape)])
    last = n.add("Gather", [whole.name, n.const(-1)], INT, [])
    numbers = n.add("Range", [n.const(0), last.name, n.const(1)], INT, [v.shape[-1]])
    real = n.add("Cast", [numbers.name], FLOAT, numbers.shape, to=TensorProto.FLOAT)
    return n.add("Add", [v.name, real.name], FLOAT, v.shape)


@maker
def filled(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    whole = n.add("Shape", [v.name], INT, [len(v.shape)])
    if n.rng.random() < 0.5:
        value = numpy_helper.from_array(np.array([0.5], np.float32))
        made = n.add("ConstantOfShape", [whole.name], FLOAT, v.shape, value=value)
    else:
        made = n.add("Expand", [n.weights(1), whole.name], FLOAT, v.shape)
    return n.add("Mul", [v.name, made.name], FLOAT, v.shape)


@maker
def cut(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    begin, end, step = n.rng.choice([-9, -3, -2, -1, 0, 1, 2]), n.rng.choice([-2, -1, 0, 2, 3, 2**31 - 1, 2**63 - 1]), 1
    if n.rng.random() < 0.3:
        begin, end, step = n.rng.choice([-1, 2, 2**31 - 1]), n.rng.choice([-(2**63), -(2**31), -3, 0]), n.rng.choice([-1, -2])  # fmt: skip
    elif n.rng.random() < 0.3:
        step = 2
    extent = v.shape[axis]
    left: Any = f"{extent}[{begin}:{end}:{step}]"
    if isinstance(extent, int):
        left = len(range(extent)[begin:end:step])
        if not left:
            return None
    tensors = [n.const([e]) for e in (begin, end, n.signed(axis, v), step)]
    return n.add("Slice", [v.name, *tensors], FLOAT, _with(v.shape, axis, left))


@maker
def cut_by_sizes(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    size = n.part_of_shape(v, axis, axis + 1)
    half = n.add("Div", [size.name, n.const([2])], INT, [1])
    front = n.rng.random() < 0.5
    ends = [n.const([0]), half.name] if front else [half.name, n.const([2**31 - 1])]
    extent = v.shape[axis]
    left = (
        (extent // 2 if front else extent - extent // 2)
        if isinstance(extent, int)
        else f"{extent}{'/' if front else '-/'}2"
    )
    return n.add("Slice", [v.name, *ends, n.const([axis])], FLOAT, _with(v.shape, axis, left)) if left else None


@maker
def gather(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    scalar = n.rng.random() < 0.5
    limit = v.shape[axis] if isinstance(v.shape[axis], int) else 1
    at = [n.rng.randint(-limit, limit - 1) for _ in range(n.rng.randint(1, 3))]
    shape = [*v.shape[:axis], *([] if scalar else [len(at)]), *v.shape[axis + 1 :]]
    return n.add("Gather", [v.name, n.const(at[0] if scalar else at)], FLOAT, shape, axis=n.signed(axis, v))


@maker
def joined(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    fit = [u for u in n.values if u.dtype == FLOAT and len(u.shape) == len(v.shape)
           and all(d == axis or a == b for d, (a, b) in enumerate(zip(u.shape, v.shape, strict=True)))]  # fmt: skip
    other = n.rng.choice(fit)
    sizes = v.shape[axis], other.shape[axis]
    total = sum(sizes) if all(isinstance(e, int) for e in sizes) else f"({sizes[0]}+{sizes[1]})"
    return n.add("Concat", [v.name, other.name], FLOAT, _with(v.shape, axis, total), axis=n.signed(axis, v))


@maker
def parted(n: Net) -> Any:
    v = n.pick(least=1)
    axis = None if v is None else n.axis(v, fixed=True)
    if v is None or axis is None or v.shape[axis] < 2:
        return None
    first = n.rng.randint(1, v.shape[axis] - 1)
    a, b = [V(n.fresh(), FLOAT, tuple(_with(v.shape, axis, e))) for e in (first, v.shape[axis] - first)]
    sizes = n.const([first, v.shape[axis] - first])
    n.nodes.append(helper.make_node("Split", [v.name, sizes], [a.name, b.name], axis=n.signed(axis, v)))
    n.values += [a, b]
    return a


@maker
def tiled(n: Net) -> Any:
    v = n.pick(least=1, most=3)
    if v is None:
        return None
    reps = [n.rng.randint(1, 2) for _ in v.shape]
    shape = [e if r == 1 else e * r if isinstance(e, int) else f"{r}*{e}" for e, r in zip(v.shape, reps, strict=True)]
    return n.add("Tile", [v.name, n.const(reps)], FLOAT, shape)


@maker
def padded(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    mode = n.rng.choice(["constant", "constant", "edge"])
    pads = [n.rng.choice([0, 0, 1, 2, -1] if mode == "constant" else [0, 1]) for _ in range(2 * len(v.shape))]
    pairs = list(zip(pads[: len(v.shape)], pads[len(v.shape) :], strict=True))
    shape = [e + a + b if isinstance(e, int) else e if a == b == 0 else f"{a}+{e}+{b}" for e, (a, b) in zip(v.shape, pairs, strict=True)]  # fmt: skip
    if any(isinstance(e, int) and e + min(a, 0) + min(b, 0) <= 0 for e, (a, b) in zip(v.shape, pairs, strict=True)):
        return None
    given = [v.name, n.const(pads), *([n.const(0.25, np.float32)] if mode == "constant" else [])]
    return n.add("Pad", given, FLOAT, shape, mode=mode)


@maker
def running(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    flags = {"exclusive": n.rng.randrange(2), "reverse": n.rng.randrange(2)}
    return n.add("CumSum", [v.name, n.const(n.signed(n.axis(v), v))], FLOAT, v.shape, **flags)


@maker
def triangle(n: Net) -> Any:
    v = n.pick(least=2)
    return v and n.add("Trilu", [v.name, n.const(n.rng.randint(-1, 1))], FLOAT, v.shape, upper=n.rng.randrange(2))


@maker
def best(n: Net) -> Any:
    v = n.pick(least=1)
    axis = None if v is None else n.axis(v, fixed=True)
    if v is None or axis is None:
        return None
    k = n.rng.randint(1, v.shape[axis])
    out, at = [V(n.fresh(), t, tuple(_with(v.shape, axis, k))) for t in (FLOAT, INT)]
    n.nodes.append(helper.make_node("TopK", [v.name, n.const([k])], [out.name, at.name], axis=n.signed(axis, v), largest=n.rng.randrange(2)))  # fmt: skip
    n.values.append(out)
    return out


@maker
def one_hot(n: Net) -> Any:
    v = n.pick(INT, most=2)
    values = n.const([0.0, 1.5], np.float32)
    return v and n.add("OneHot", [v.name, n.const(4), values], FLOAT, [*v.shape, 4])


@maker
def gathered_elements(n: Net) -> Any:
    v = n.pick(least=1, most=2)
    if v is None:
        return None
    axis = n.axis(v)
    at = n.add("ArgMax", [v.name], INT, _with(v.shape, axis, 1), axis=axis, keepdims=1)
    return n.add("GatherElements", [v.name, at.name], FLOAT, at.shape, axis=n.signed(axis, v))


@maker
def scattered(n: Net) -> Any:
    v = n.pick(least=1, most=3)
    if v is None or not all(isinstance(e, int) for e in v.shape[1:]):
        return None
    return n.add("ScatterND", [v.name, n.const([[-1]]), n.weights(1, *v.shape[1:])], FLOAT, v.shape, reduction=n.rng.choice(["none", "add", "max"]))  # fmt: skip


@maker
def window(n: Net) -> Any:
    v = n.pick(least=3, most=4)
    if v is None or not isinstance(v.shape[1], int):
        return None
    k = len(v.shape) - 2
    kind = n.rng.randrange(5)
    if kind == 0:
        out = n.rng.randint(1, 3)
        w = n.weights(out, v.shape[1], *[3] * k)
        return n.add("Conv", [v.name, w], FLOAT, [v.shape[0], out, *v.shape[2:]], pads=[1] * 2 * k)
    if kind == 1:
        return n.add("MaxPool", [v.name], FLOAT, v.shape, kernel_shape=[3] * k, pads=[1] * 2 * k)
    if kind == 2:
        attrs = {"count_include_pad": n.rng.randrange(2)}
        return n.add("AveragePool", [v.name], FLOAT, v.shape, kernel_shape=[3] * k, pads=[1] * 2 * k, **attrs)
    if kind == 3:
        op = n.rng.choice(["GlobalAveragePool", "GlobalMaxPool"])
        return n.add(op, [v.name], FLOAT, [*v.shape[:2], *[1] * k])
    scales = n.const([1, 1, *[2] * k], np.float32)
    shape = [*v.shape[:2], *[2 * e if isinstance(e, int) else f"2*{e}" for e in v.shape[2:]]]
    return n.add("Resize", [v.name, "", scales], FLOAT, shape, mode="nearest")


_BOUNDED = "Asin Acos Atanh Exp Tan Cosh Sinh".split()


@maker
def bounded(n: Net) -> Any:
    v = n.pick()
    if v is None:
        return None
    small = n.add("Mul", [n.add("Tanh", [v.name], FLOAT, v.shape).name, n.const(0.75, np.float32)], FLOAT, v.shape)
    if n.rng.random() < 0.3:
        wide = n.add("Add", [n.add("Abs", [v.name], FLOAT, v.shape).name, n.const(1.25, np.float32)], FLOAT, v.shape)
        return n.add("Acosh", [wide.name], FLOAT, v.shape)
    return n.add(n.rng.choice([*_BOUNDED, "Asinh"]), [small.name], FLOAT, v.shape)


@maker
def with_attributes(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    kind = n.rng.randrange(6)
    if kind == 0:
        return n.add("Shrink", [v.name], FLOAT, v.shape, lambd=0.3, bias=0.25)
    if kind == 1:
        return n.add("PRelu", [v.name, n.weights(1)], FLOAT, v.shape)
    if kind == 2:
        return n.add("Pow", [v.name, n.const(n.rng.choice([2, 3, 1]), np.float32)], FLOAT, v.shape)
    if kind == 3:
        return n.add("Dropout", [v.name], FLOAT, v.shape)
    if kind == 4 and n.opset >= 24:
        return n.add("Swish", [v.name], FLOAT, v.shape, alpha=1.5)
    return n.add("CastLike", [v.name, n.weights(1)], FLOAT, v.shape)


@maker
def questions(n: Net) -> Any:
    v = n.pick()
    if v is None:
        return None
    a = n.add(n.rng.choice(["IsNaN", "IsInf"]), [v.name], BOOL, v.shape)
    b = n.add("Greater", [v.name, n.weights()], BOOL, v.shape)
    return n.add(n.rng.choice(["And", "Or", "Xor"]), [a.name, b.name], BOOL, v.shape)


@maker
def whole_numbers(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    small = n.add("Clip", [v.name, n.const(-8, np.float32), n.const(8, np.float32)], FLOAT, v.shape)
    whole = n.add("Cast", [small.name], INT, v.shape, to=TensorProto.INT64)
    op = n.rng.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Mod", "Div", "Abs", "Mul"])
    given = [whole.name] if op in ("BitwiseNot", "Abs") else [whole.name, n.const(n.rng.choice([3, -2, 5]))]
    return n.add(op, given, INT, v.shape)


@maker
def shifted(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    small = n.add("Clip", [v.name, n.const(0, np.float32), n.const(8, np.float32)], FLOAT, v.shape)
    whole = n.add("Cast", [small.name], "uint8", v.shape, to=TensorProto.UINT8)
    moved = n.add("BitShift", [whole.name, n.const(2, np.uint8)], "uint8", v.shape, direction=n.rng.choice(["LEFT", "RIGHT"]))  # fmt: skip
    return n.add("Cast", [moved.name], FLOAT, v.shape, to=TensorProto.FLOAT)


@maker
def quantized(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    kind = n.rng.choice(["int8", "uint8"])
    axis = n.axis(v, fixed=True)
    zero = 3 if kind == "int8" else 120
    if axis is not None and n.rng.random() < 0.4:
        c = v.shape[axis]
        scale, at = n.const([0.05 + 0.025 * k for k in range(c)], np.float32), n.const([zero] * c, kind)
        attrs = {"axis": n.signed(axis, v)}
    else:
        scale, at, attrs = n.const(0.0625, np.float32), n.const(zero, kind), {}
    q = n.add("QuantizeLinear", [v.name, scale, at], kind, v.shape, **attrs)
    return n.add("DequantizeLinear", [q.name, scale, at], FLOAT, v.shape, **attrs)


@maker
def dynamically_quantized(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    q, scale, zero = n.several("DynamicQuantizeLinear", [v.name], [("uint8", v.shape), (FLOAT, []), ("uint8", [])])
    if n.rng.random() < 0.5 or len(v.shape) < 2 or not isinstance(v.shape[-1], int):
        return n.add("DequantizeLinear", [q.name, scale.name, zero.name], FLOAT, v.shape)
    k = n.rng.randint(1, 4)
    w = n.const([[n.rng.randint(-9, 9) for _ in range(k)] for _ in range(v.shape[-1])], np.int8)
    whole = n.add("MatMulInteger", [q.name, w, zero.name], "int32", [*v.shape[:-1], k])
    return n.add("Cast", [whole.name], FLOAT, whole.shape, to=TensorProto.FLOAT)


@maker
def quantized_products(n: Net) -> Any:
    v = n.pick(least=2)
    if v is None:
        return None
    scale, zero = n.const(0.125, np.float32), n.const(128, np.uint8)
    q = n.add("QuantizeLinear", [v.name, scale, zero], "uint8", v.shape)
    coarse, middle, ws, wz = n.const(0.5, np.float32), n.const(100, np.uint8), n.const(0.25, np.float32), n.const(0, np.int8)  # fmt: skip

    def numbers(*shape: int) -> str:
        return n.const(np.array([n.rng.randint(-9, 9) for _ in range(math.prod(shape))]).reshape(shape), np.int8)

    images = len(v.shape) == 4 and isinstance(v.shape[1], int)
    if images and n.rng.random() < 0.7:
        w, shape = numbers(2, v.shape[1], 3, 3), [v.shape[0], 2, *v.shape[2:]]
        if n.rng.random() < 0.5:
            whole = n.add("ConvInteger", [q.name, w, zero], "int32", shape, pads=[1] * 4)
            return n.add("Cast", [whole.name], FLOAT, shape, to=TensorProto.FLOAT)
        made = n.add("QLinearConv", [q.name, scale, zero, w, ws, wz, coarse, middle], "uint8", shape, pads=[1] * 4)
    elif isinstance(v.shape[-1], int):
        k = n.rng.randint(1, 4)
        given = [q.name, scale, zero, numbers(v.shape[-1], k), ws, wz, coarse, middle]
        made = n.add("QLinearMatMul", given, "uint8", [*v.shape[:-1], k])
    else:
        return None
    return n.add("DequantizeLinear", [made.name, coarse, middle], FLOAT, made.shape)


@maker
def gemm(n: Net) -> Any:
    v = n.pick(least=2, most=2)
    if v is None or not isinstance(v.shape[1], int):
        return None
    k, turned = n.rng.randint(1, 5), n.rng.randrange(2)
    w = n.weights(*((k, v.shape[1]) if turned else (v.shape[1], k)))
    return n.add("Gemm", [v.name, w, n.weights(k)], FLOAT, [v.shape[0], k], transB=turned, alpha=n.rng.choice([1.0, 0.5]), beta=n.rng.choice([1.0, 2.0]))  # fmt: skip


@maker
def einsum(n: Net) -> Any:
    v = n.pick(least=2, most=3)
    if v is None:
        return None
    last = "abc"[: len(v.shape)]
    kind = n.rng.randrange(3)
    if kind == 0 and isinstance(v.shape[-1], int):
        return n.add("Einsum", [v.name, n.weights(v.shape[-1], 2)], FLOAT, [*v.shape[:-1], 2], equation=f"{last},{last[-1]}k->{last[:-1]}k")  # fmt: skip
    if kind == 1:
        return n.add("Einsum", [v.name, v.name], FLOAT, v.shape[:1], equation=f"{last},{last}->a")
    order = n.rng.sample(range(len(last)), len(last) - n.rng.randrange(2))
    return n.add("Einsum", [v.name], FLOAT, [v.shape[d] for d in order], equation=f"{last}->{''.join(last[d] for d in order)}")  # fmt: skip


@maker
def eye(n: Net) -> Any:
    v = n.pick(least=2, most=2)
    if v is None:
        return None
    made = n.add("EyeLike", [v.name], FLOAT, v.shape, k=n.rng.randint(-1, 1), dtype=TensorProto.FLOAT)
    return n.add("Add", [v.name, made.name], FLOAT, v.shape)


@maker
def recurrent(n: Net) -> Any:
    v = n.pick(least=3, most=3)
    if v is None or not isinstance(v.shape[2], int):
        return None
    op = n.rng.choice(["RNN", "GRU", "LSTM"])
    gates, h = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 2
    direction = n.rng.choice(["forward", "reverse", "bidirectional"])
    d = 1 + (direction == "bidirectional")
    given = [v.name, n.weights(d, gates * h, v.shape[2]), n.weights(d, gates * h, h)]
    given.append(n.weights(d, 2 * gates * h) if n.rng.random() < 0.5 else "")
    if isinstance(v.shape[1], int) and isinstance(v.shape[0], int) and n.rng.random() < 0.4:
        given.append(n.const([n.rng.randint(1, v.shape[0]) for _ in range(v.shape[1])], np.int32))
    attrs: dict[str, Any] = {"linear_before_reset": n.rng.randrange(2)} if op == "GRU" else {}
    shapes = [(FLOAT, [v.shape[0], d, v.shape[1], h]), (FLOAT, [d, v.shape[1], h])]
    return n.several(op, given, shapes, hidden_size=h, direction=direction, **attrs)[n.rng.randrange(2)]


@maker
def grid(n: Net) -> Any:
    v = n.pick(least=4, most=4)
    if v is None:
        return None
    lead = n.part_of_shape(v, 0, 1)
    shape = n.add("Concat", [lead.name, n.const([1, 1, 1])], INT, [4], axis=0)
    places = n.add("Expand", [n.weights(1, 2, 3, 2), shape.name], FLOAT, [v.shape[0], 2, 3, 2])
    attrs = {
        "mode": n.rng.choice(["linear", "nearest", "cubic"]), "align_corners": n.rng.randrange(2),
        "padding_mode": n.rng.choice(["zeros", "border", "reflection"]),
    }  # fmt: skip
    return n.add("GridSample", [v.name, places.name], FLOAT, [*v.shape[:2], 2, 3], **attrs)


@maker
def resized(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    extent = v.shape[axis]
    mode = (
        n.rng.choice(["nearest", "linear", "cubic"]) if len(v.shape) in (2, 4) else n.rng.choice(["nearest", "linear"])
    )
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": n.rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])}  # fmt: skip
    if mode == "nearest":
        attrs["nearest_mode"] = n.rng.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if n.rng.random() < 0.5:
        scale = n.rng.choice([2.0, 0.5, 1.5, 3.0])
        if attrs["coordinate_transformation_mode"] == "align_corners":
            # where the scaled length is no whole number, ONNX Runtime takes the rounded one and ONNX's tests do not
            scale = n.rng.choice([2.0, 3.0])
        scales = [scale if d == axis else 1.0 for d in range(len(v.shape))]
        out = int(extent * scale) if isinstance(extent, int) else f"{scale}*{extent}"
        return out and n.add("Resize", [v.name, "", n.const(scales, np.float32)], FLOAT, _with(v.shape, axis, out), **attrs)  # fmt: skip
    size = n.rng.randint(1, 7)
    if all(isinstance(e, int) for e in v.shape):
        sizes = n.const(_with(v.shape, axis, size))
    else:
        whole = n.add("Shape", [v.name], INT, [len(v.shape)])
        keep = n.add("Mul", [whole.name, n.const([int(d != axis) for d in range(len(v.shape))])], INT, [len(v.shape)])
        extra = n.const([size * (d == axis) for d in range(len(v.shape))])
        sizes = n.add("Add", [keep.name, extra], INT, [len(v.shape)]).name
    return n.add("Resize", [v.name, "", "", sizes], FLOAT, _with(v.shape, axis, size), **attrs)


@maker
def tiled_by_sizes(n: Net) -> Any:
    v = n.pick(least=1, most=2)
    if v is None:
        return None
    axis = n.axis(v)
    size = n.part_of_shape(v, axis, axis + 1)
    if len(v.shape) == 2:
        ones = n.const([1])
        size = n.add("Concat", [size.name, ones] if n.rng.random() < 0.5 else [ones, size.name], INT, [2], axis=0)
        at = 0 if size and n.nodes[-1].input[1] == ones else 1
    else:
        at = 0
    return n.add("Tile", [v.name, size.name], FLOAT, _with(v.shape, at, f"({v.shape[at]}*{v.shape[axis]})" if not (isinstance(v.shape[at], int) and isinstance(v.shape[axis], int)) else v.shape[at] * v.shape[axis]))  # fmt: skip


@maker
def halves(n: Net) -> Any:
    """A split of a size that may be symbolic into parts of equal size, or into constant parts and the rest."""
    v = n.pick(least=1)
    if v is None:
        return None
    axis, parts = n.axis(v), n.rng.randint(2, 3)
    extent = v.shape[axis]
    if isinstance(extent, int):
        each = -(-extent // parts)
        sizes: list[Any] = [min(each, extent - each * k) for k in range(parts)]
        if min(sizes) < 1:
            return None
    else:
        sizes = [f"{extent}/{parts}[{k}]" for k in range(parts)]
    if n.rng.random() < 0.5 and not isinstance(extent, int):
        size = n.part_of_shape(v, axis, axis + 1)
        first = n.add("Div", [size.name, n.const([2])], INT, [1])
        rest = n.add("Sub", [size.name, first.name], INT, [1])
        both = n.add("Concat", [first.name, rest.name], INT, [2], axis=0)
        shapes = [(FLOAT, _with(v.shape, axis, e)) for e in (f"{extent}/2", f"{extent}-/2")]
        return n.several("Split", [v.name, both.name], shapes, axis=axis)[0]
    shapes = [(FLOAT, _with(v.shape, axis, e)) for e in sizes]
    return n.several("Split", [v.name], shapes, axis=n.signed(axis, v), num_outputs=parts)[n.rng.randrange(parts)]


@maker
def reversed_sequences(n: Net) -> Any:
    v = n.pick(least=2)
    if v is None:
        return None
    time, batch = n.rng.choice([(0, 1), (1, 0)])
    if isinstance(v.shape[batch], int) and isinstance(v.shape[time], int):
        lengths = n.const([n.rng.randint(1, v.shape[time]) for _ in range(v.shape[batch])])
    else:
        size, steps = n.part_of_shape(v, batch, batch + 1), n.part_of_shape(v, time, time + 1)
        lengths = n.add("Expand", [steps.name, size.name], INT, [v.shape[batch]]).name
    return n.add("ReverseSequence", [v.name, lengths], FLOAT, v.shape, time_axis=time, batch_axis=batch)


@maker
def few_best(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    k = n.rng.randint(1, 2) if n.rng.random() < 0.3 else 1
    if isinstance(v.shape[axis], int) and k > v.shape[axis]:
        return None
    shape = _with(v.shape, axis, k)
    out, at = n.several("TopK", [v.name, n.const([k])], [(FLOAT, shape), (INT, shape)], axis=n.signed(axis, v), largest=n.rng.randrange(2))  # fmt: skip
    return n.rng.choice([out, at])


@maker
def one_hot_by_sizes(n: Net) -> Any:
    v, of = n.pick(INT, most=2), n.pick(least=1)
    if v is None or of is None:
        return None
    whole = n.add("Shape", [of.name], INT, [len(of.shape)])
    depth = n.add("Gather", [whole.name, n.const(0)], INT, [])
    axis = n.rng.randint(-1, len(v.shape))
    shape = list(v.shape)
    shape.insert(len(v.shape) if axis == -1 else axis, of.shape[0])
    return n.add("OneHot", [v.name, depth.name, n.const([0.0, 1.5], np.float32)], FLOAT, shape, axis=axis)


@maker
def scattered_elements(n: Net) -> Any:
    v = n.pick(least=1, most=3)
    if v is None:
        return None
    axis = n.axis(v)
    at = n.add("ArgMax", [v.name], INT, _with(v.shape, axis, 1), axis=axis, keepdims=1)
    values = n.add("ReduceSum", [v.name, n.const([axis])], FLOAT, at.shape, keepdims=1)
    return n.add("ScatterElements", [v.name, at.name, values.name], FLOAT, v.shape, axis=n.signed(axis, v), reduction=n.rng.choice(["none", "add", "max", "min", "mul"]))  # fmt: skip


@maker
def gathered_nd(n: Net) -> Any:
    v = n.pick(least=1, most=3)
    if v is None:
        return None
    return n.add("GatherND", [v.name, n.const([[0], [-1]])], FLOAT, [2, *v.shape[1:]])


@maker
def cache_update(n: Net) -> Any:
    v = n.pick(least=3, most=4)
    if v is None or n.opset < 24 or not all(isinstance(e, int) for e in v.shape[1:]):
        return None
    steps = n.rng.randint(1, v.shape[-2])
    new = n.add("Slice", [v.name, n.const([0]), n.const([steps]), n.const([len(v.shape) - 2])], FLOAT, [*v.shape[:-2], steps, v.shape[-1]])  # fmt: skip
    new = n.add("Neg", [new.name], FLOAT, new.shape)
    begin = []
    if isinstance(v.shape[0], int) and n.rng.random() < 0.6:
        begin = [n.const([n.rng.randint(0, v.shape[-2] - steps) for _ in range(v.shape[0])])]
    return n.add("TensorScatter", [v.name, new.name, *begin], FLOAT, v.shape, mode=n.rng.choice(["linear", "circular"]))


@maker
def more_windows(n: Net) -> Any:
    v = n.pick(least=4, most=4)
    if v is None:
        return None
    kind, c = n.rng.randrange(9), v.shape[1]
    if kind == 0:
        return n.add("LpPool", [v.name], FLOAT, v.shape, kernel_shape=[3, 3], pads=[1] * 4, p=2)
    if kind == 1:
        return n.add("GlobalLpPool", [v.name], FLOAT, [*v.shape[:2], 1, 1])
    if kind == 2:
        return n.add("MeanVarianceNormalization", [v.name], FLOAT, v.shape)
    if not isinstance(c, int):
        return None
    if kind == 3:
        s = n.rng.randint(1, 2)
        shape = [v.shape[0], 2, *[(e - 1) * s + 3 if isinstance(e, int) else f"{e}~{s}" for e in v.shape[2:]]]
        return n.add("ConvTranspose", [v.name, n.weights(c, 2, 3, 3)], FLOAT, shape, strides=[s, s])
    if kind == 4:
        deep = n.add("Concat", [v.name] * 4, FLOAT, [v.shape[0], 4 * c, *v.shape[2:]], axis=1)
        shape = [*v.shape[:2], *[2 * e if isinstance(e, int) else f"2*{e}" for e in v.shape[2:]]]
        return n.add("DepthToSpace", [deep.name], FLOAT, shape, blocksize=2, mode=n.rng.choice(["DCR", "CRD"]))
    if kind == 5 and all(isinstance(e, int) and e % 2 == 0 for e in v.shape[2:]):
        return n.add("SpaceToDepth", [v.name], FLOAT, [v.shape[0], 4 * c, *[e // 2 for e in v.shape[2:]]], blocksize=2)
    if kind == 6 and c % 2 == 0:
        size = c if n.opset >= 21 else 2
        return n.add("GroupNormalization", [v.name, n.weights(size), n.weights(size)], FLOAT, v.shape, num_groups=2)
    if kind == 7 and isinstance(v.shape[0], int):
        rois = n.const([[0.0, 0.0, 1.5, 1.0], [0.5, 0.25, 2.0, 3.0]], np.float32)
        attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
        return n.add("RoiAlign", [v.name, rois, n.const([0, v.shape[0] - 1])], FLOAT, [2, c, 2, 2], **attrs)
    return n.add("Conv", [v.name, n.weights(c, 1, 3, 3)], FLOAT, [v.shape[0], c, *v.shape[2:]], pads=[1] * 4, group=c)


@maker
def deformed(n: Net) -> Any:
    v = n.pick(least=4, most=4)
    if v is None or not all(isinstance(e, int) and e > 1 for e in v.shape):
        return None
    area = [e - 1 for e in v.shape[2:]]
    moved = n.weights(v.shape[0], 8, *area)
    return n.add("DeformConv", [v.name, n.weights(2, v.shape[1], 2, 2), moved], FLOAT, [v.shape[0], 2, *area])


@maker
def overlapping(n: Net) -> Any:
    v = n.pick(least=3, most=3)
    if v is None or not isinstance(v.shape[0], int):
        return None
    c = v.shape[0]
    row = n.const([c, 4, 6])
    whole = n.add(
        "Reshape", [n.add("ReduceSum", [v.name], FLOAT, [1, 1, 1]).name, n.const([1, 1, 1])], FLOAT, [1, 1, 1]
    )
    wide = n.add("Expand", [whole.name, row], FLOAT, [c, 4, 6])
    return n.add("Col2Im", [wide.name, n.const([3, 4]), n.const([2, 2])], FLOAT, [c, 1, 3, 4])


@maker
def spectrum(n: Net) -> Any:
    v = n.pick(least=2, most=2)
    if v is None or not isinstance(v.shape[1], int):
        return None
    deep = n.add("Unsqueeze", [v.name, n.const([-1])], FLOAT, [*v.shape, 1])
    if n.rng.random() < 0.3 and v.shape[1] >= 4:
        frames = (v.shape[1] - 4) // 2 + 1
        return n.add("STFT", [deep.name, n.const(2), n.weights(4), n.const(4)], FLOAT, [v.shape[0], frames, 3, 2])
    half = n.rng.randrange(2)
    size = v.shape[1] // 2 + 1 if half else v.shape[1]
    return n.add("DFT", [deep.name, "", n.const(1)], FLOAT, [v.shape[0], size, 2], onesided=half)


@maker
def unpooled(n: Net) -> Any:
    v = n.pick(least=4, most=4)
    if v is None or not all(isinstance(e, int) and e % 2 == 0 for e in v.shape[2:]):
        return None
    half = [*v.shape[:2], *[e // 2 for e in v.shape[2:]]]
    best, at = n.several("MaxPool", [v.name], [(FLOAT, half), (INT, half)], kernel_shape=[2, 2], strides=[2, 2])
    return n.add("MaxUnpool", [best.name, at.name], FLOAT, v.shape, kernel_shape=[2, 2], strides=[2, 2])


@maker
def newer(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    if n.opset >= 26 and n.rng.random() < 0.5:
        return n.add("CumProd", [v.name, n.const(n.axis(v))], FLOAT, v.shape, exclusive=n.rng.randrange(2))
    if n.opset >= 23 and isinstance(v.shape[-1], int):
        return n.add("RMSNormalization", [v.name, n.weights(v.shape[-1])], FLOAT, v.shape)
    return n.add("ReduceLogSum", [n.add("Exp", [n.add("Tanh", [v.name], FLOAT, v.shape).name], FLOAT, v.shape).name, n.const([0])], FLOAT, [1, *v.shape[1:]])  # fmt: skip


def _graph(name: str, nodes: list[Any], given: list[tuple[str, int, Any]], results: list[tuple[str, int]]) -> Any:
    inputs = [helper.make_tensor_value_info(i, kind, shape) for i, kind, shape in given]
    outputs = [helper.make_tensor_value_info(o, kind, None) for o, kind in results]
    return helper.make_graph(nodes, name, inputs, outputs)


@maker
def branch(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    kind = n.rng.randrange(4)
    if kind == 0 and n.rng.random() < 0.3:  # the condition depends on a size, which may be symbolic
        size = n.part_of_shape(v, 0, 1)
        cond = n.add("Squeeze", [n.add("Greater", [size.name, n.const([2])], BOOL, [1]).name], BOOL, []).name
    elif kind == 1:
        whole = n.add("Shape", [n.add("Shape", [v.name], INT, [len(v.shape)]).name], INT, [1])
        rank = n.add("Squeeze", [whole.name], INT, [])
        cond = n.add("Greater", [rank.name, n.const(2)], BOOL, []).name
    else:
        cond = n.const(bool(n.rng.randrange(2)), bool)
    t, e = n.fresh(), n.fresh()
    then = _graph("then", [helper.make_node("Relu", [v.name], [t])], [], [(t, TensorProto.FLOAT)])
    other = _graph("other", [helper.make_node("Neg", [v.name], [e])], [], [(e, TensorProto.FLOAT)])
    return n.add("If", [cond], FLOAT, v.shape, then_branch=then, else_branch=other)


@maker
def loop(n: Net) -> Any:
    v = n.pick(least=1, most=3)
    if v is None:
        return None
    i, c, s, d, w, r, q = [n.fresh() for _ in range(7)]
    trips = n.rng.randint(1, 3)
    nodes = [
        helper.make_node("Identity", [c], [d]), helper.make_node("Tanh", [s], [w]), helper.make_node("Cast", [i], [q], to=1),
        helper.make_node("Add", [w, q], [r]),
    ]  # fmt: skip
    body = _graph("body", nodes, [(i, TensorProto.INT64, []), (c, TensorProto.BOOL, []), (s, TensorProto.FLOAT, None)], [(d, TensorProto.BOOL), (w, TensorProto.FLOAT), (r, TensorProto.FLOAT)])  # fmt: skip
    shapes = [(FLOAT, v.shape), (FLOAT, [trips, *v.shape])]
    return n.several("Loop", [n.const(trips), n.const(True, bool), v.name], shapes, body=body)[n.rng.randrange(2)]


@maker
def scan(n: Net) -> Any:
    v = n.pick(least=2, most=3)
    if v is None:
        return None
    s, x, t, r = [n.fresh() for _ in range(4)]
    nodes = [helper.make_node("Add", [s, x], [t]), helper.make_node("Tanh", [t], [r])]
    body = _graph("body", nodes, [(s, TensorProto.FLOAT, None), (x, TensorProto.FLOAT, None)], [(t, TensorProto.FLOAT), (r, TensorProto.FLOAT)])  # fmt: skip
    first = n.add("ReduceMax" if isinstance(v.shape[0], int) else "ReduceSum", [v.name, n.const([0])], FLOAT, v.shape[1:], keepdims=0)  # fmt: skip
    back = [n.rng.randrange(2)]
    shapes = [(FLOAT, v.shape[1:]), (FLOAT, v.shape)]
    return n.several("Scan", [first.name, v.name], shapes, body=body, num_scan_inputs=1, scan_input_directions=back)[n.rng.randrange(2)]  # fmt: skip


@maker
def sequence(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    twice = n.add("Add", [v.name, v.name], FLOAT, v.shape)
    made = n.fresh()
    n.nodes.append(helper.make_node("SequenceConstruct", [v.name, twice.name], [made]))
    kind = n.rng.randrange(5)
    if kind == 0:
        return n.add("SequenceAt", [made, n.const(n.rng.choice([-1, 0, 1]))], FLOAT, v.shape)
    if kind == 1:
        length = n.add("SequenceLength", [made], INT, [])
        real = n.add("Cast", [length.name], FLOAT, [], to=TensorProto.FLOAT)
        return n.add("Mul", [v.name, real.name], FLOAT, v.shape)
    if kind == 2:
        longer = n.fresh()
        n.nodes.append(helper.make_node("SequenceInsert", [made, v.name, n.const(1)], [longer]))
        return n.add("SequenceAt", [longer, n.const(2)], FLOAT, v.shape)
    if kind == 3 and isinstance(v.shape[0], int):
        parts = n.fresh()
        n.nodes.append(helper.make_node("SplitToSequence", [v.name, n.const(1)], [parts], axis=0))
        return n.add("SequenceAt", [parts, n.const(-1)], FLOAT, [1, *v.shape[1:]])
    return n.add("ConcatFromSequence", [made], FLOAT, [2, *v.shape], axis=0, new_axis=1)


@maker
def of_constants(n: Net) -> Any:
    """Operators whose results have a size that depends on values, of constants; seldom of values."""
    v = n.pick(least=1)
    if v is None:
        return None
    of_values = n.rng.random() < 0.05
    kind = n.rng.randrange(4)
    if kind == 0:
        boxes = n.const([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 0, 0.5, 0.5]]], np.float32)
        scores = n.const([[[0.9, 0.75, 0.6, 0.95]]], np.float32)
        made = n.add("NonMaxSuppression", [boxes, scores, n.const([2]), n.const([0.5], np.float32)], INT, ["nms", 3])
    elif kind == 1:
        made = n.add(
            "NonZero", [v.name if of_values else n.const([1, 0, 2])], INT, [len(v.shape) if of_values else 1, "nz"]
        )
    elif kind == 2:
        flags = n.add("Greater", [v.name, n.weights()], BOOL, v.shape).name if of_values and len(v.shape) == 1 else n.const([True, False, True], bool)  # fmt: skip
        made = n.add("Compress", [n.weights(3), flags], FLOAT, ["cp"])
    else:
        made = n.add("Unique", [v.name if of_values else n.weights(4)], FLOAT, ["uq"])
    real = made if made.dtype == FLOAT else n.add("Cast", [made.name], FLOAT, made.shape, to=TensorProto.FLOAT)
    total = n.add("ReduceSum", [real.name], FLOAT, [], keepdims=0)
    return n.add("Add", [v.name, total.name], FLOAT, v.shape)


@maker
def wrapped(n: Net) -> Any:
    v = n.pick(least=1)
    if v is None:
        return None
    axis = n.axis(v)
    mode = n.rng.choice(["wrap", "reflect"])
    if isinstance(v.shape[axis], int) and v.shape[axis] < 2:
        return None
    pads = [0] * 2 * len(v.shape)
    pads[axis] = pads[len(v.shape) + axis] = 1
    shape = _with(v.shape, axis, v.shape[axis] + 2 if isinstance(v.shape[axis], int) else f"2+{v.shape[axis]}")
    return n.add("Pad", [v.name, n.const(pads)], FLOAT, shape, mode=mode)


@maker
def attention(n: Net) -> Any:
    v = n.pick(least=4, most=4)
    if v is None or n.opset < 23:
        return None
    return n.add("Attention", [v.name, v.name, v.name], FLOAT, v.shape, is_causal=n.rng.randrange(2))


@maker
def plus_shapes(n: Net) -> Any:
    """A reshape to the shape of another value of as many elements, and an Expand to a broadcast of sizes."""
    v = n.pick(least=1, most=3)
    if v is None:
        return None
    flat = n.add("Flatten", [v.name], FLOAT, [*v.shape[:1], _product(v.shape[1:])], axis=1)
    whole = n.add("Shape", [v.name], INT, [len(v.shape)])
    back = n.add("Reshape", [n.add("Relu", [flat.name], FLOAT, flat.shape).name, whole.name], FLOAT, v.shape)
    if n.rng.random() < 0.5:
        return back
    less = n.add("ReduceMax" if isinstance(v.shape[0], int) else "ReduceSum", [v.name, n.const([0])], FLOAT, [1, *v.shape[1:]])  # fmt: skip
    return n.add("Expand", [less.name, whole.name], FLOAT, v.shape)


def random_net(seed: int) -> Net:
    """Returns a graph of 3 to 30 nodes; every second one has symbolic sizes."""
    rng = random.Random(seed)
    n = Net(rng, bool(seed % 2))
    n.opset = rng.choice(_OPSETS)
    for _ in range(rng.randint(1, 2)):
        n.input(rng.randint(1, 4))
    wanted = rng.randint(3, 30)
    while len(n.nodes) < wanted:
        before = len(n.nodes), len(n.values)
        made = rng.choice(MAKERS)(n)
        if (
            made
            and len(made.shape) > 5
            or any(isinstance(e, int) and e > 40 for v in n.values[before[1] :] for e in v.shape)
        ):
            del n.nodes[before[0] :], n.values[before[1] :]
    return n


def _read_by(node: Any) -> set[str]:
    """Returns the names that a node reads, also those that its subgraphs read from outside."""
    names = {name for name in node.input if name}
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            own = {i.name for i in a.g.input} | {o for inner in a.g.node for o in inner.output}
            names |= {name for inner in a.g.node for name in _read_by(inner)} - own
    return names


def model_of(n: Net, nodes: list[Any], outputs: list[V]) -> Any:
    """Returns the model of the nodes that the outputs need."""
    needed, kept = {v.name for v in outputs}, []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.insert(0, node)
            needed |= _read_by(node)
    tensors = [numpy_helper.from_array(a, name) for name, a in n.constants.items() if name in needed]
    given = [helper.make_tensor_value_info(v.name, _KINDS[v.dtype], v.shape) for v in n.inputs if v.name in needed]
    results = [helper.make_tensor_value_info(v.name, _KINDS[v.dtype], None) for v in outputs]
    graph = helper.make_graph(kept, "net", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", n.opset)], ir_version=10)


def _differ(got: Any, want: Any) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind == "f":
        scale = np.abs(want[np.isfinite(want)]).max(initial=1)
        return "" if np.allclose(got, want, 2e-3, 2e-4 * scale, equal_nan=True) else "other numbers"
    return "" if np.array_equal(got, want) else "other numbers"


SIZES = ({"n": 3, "m": 5}, {"n": 1, "m": 4}, {"n": 0, "m": 2}, {"n": 7, "m": 1}, {"n": 2, "m": 0})


Runner = Callable[[Mapping[str, Any]], Any]


def _runner(model: Any) -> Runner | None:
    """Returns what computes the model: ONNX Runtime, the reference for operators that it lacks, or None."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return lambda given: session.run(None, dict(given))
    except Exception as error:
        lacks = "NOT_IMPLEMENTED" in str(error) or "opset" in str(error)
        # the reference does not stack the results of a loop of one step, nor look at lengths of sequences
        otherwise = {"Loop", "LSTM", "GRU", "RNN"}
        return _reference(model) if lacks and not otherwise & {n.op_type for n in model.graph.node} else None


def _reference(model: Any) -> Runner:
    def run(given: Mapping[str, Any]) -> Any:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, dict(given))]

    return run


def _is_own(error: BaseException) -> bool:
    """Returns whether an error is one of the library's, made by it and not around one of Python's."""
    return type(error).__module__.startswith("tilewright") and "do not fit it (" not in str(error)


def checked(model: Any, seed: int, full: bool = False) -> tuple[str, str]:
    """Returns what came of a model: ``same``, ``refused`` or ``finding``, and a message."""
    run = _runner(model)
    if run is None:
        return "unusable", ""
    symbolic = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    try:
        with nullcontext() if full else cheap_builds():
            graph = tw.from_onnx(model)
            built = tw.build(graph, target="native -num-cores=1", bounds=dict.fromkeys(symbolic, 8), processes=0)
    except Exception as error:
        refused = (
            _is_own(error) and type(error).__name__ != "GraphError"
        )  # which a rule of the graph raises, not a model
        return "refused" if refused else "finding", f"{type(error).__name__}: {error}"
    rng = np.random.default_rng(seed)
    compared, doubtful = 0, ""
    for sizes in SIZES if symbolic else SIZES[:1]:
        given = {}
        for i in model.graph.input:
            shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim]
            given[i.name] = (rng.integers(-16, 16, shape) / 8).astype(np.float32)
        recurrent = any(n.op_type in ("LSTM", "GRU", "RNN") for n in model.graph.node)
        if 0 in sizes.values() and any(n.op_type == "DynamicQuantizeLinear" for n in model.graph.node):
            continue  # an extreme of no elements is infinite, and such numbers are not quantized
        try:  # no steps and no batch end ONNX Runtime's process in recurrent layers
            want = (_reference(model) if recurrent and 0 in [sizes[s] for s in symbolic] else run)(given)
        except Exception:
            continue  # sizes that the model does not take
        compared += 1
        try:
            found = built(*given.values())
        except Exception as error:
            kind = "refused at the call" if _is_own(error) or "assert" in str(error) else "finding"
            return kind, f"{sizes}: {type(error).__name__}: {error}"
        got = list(found) if isinstance(found, (tuple, list)) else [found]
        apart = {k: why for k, (a, b) in enumerate(zip(got, want, strict=True)) if (why := _differ(a, b))}
        doubt = _doubt(model, run, given, got, want, apart) if apart else {}
        for k, why in apart.items():
            if k not in doubt:
                return "finding", f"{sizes}: {why}"
            if doubt[k]:
                doubtful = doubtful or f"{sizes}: {why}; {doubt[k]}"
    if doubtful:
        return "doubtful", doubtful
    return ("same", "") if compared else ("unusable", "the oracle takes none of the sizes")


def _doubt(
    model: Any, run: Runner, given: Mapping[str, Any], got: Any, want: Any, apart: Iterable[int]
) -> dict[int, str]:
    """Returns why ``want`` is no measure for some of the results that are apart from it.

    The reference has others, or they jump where inputs change a little. The text is empty where the reference agrees
    with what was got.
    """
    doubt: dict[int, str] = {}
    try:
        judge = _reference(model)(given)
    except Exception:
        judge = want
    for k in apart:
        if not _differ(got[k], judge[k]):
            doubt[k] = ""
        elif _differ(judge[k], want[k]):
            doubt[k] = "the reference differs from ONNX Runtime"
    if len(model.graph.node) > 2:
        for factor in (1 - 1e-6, 1 + 1e-6):
            try:
                near = run({name: (v * np.float32(factor)).astype(v.dtype) for name, v in given.items()})
            except Exception:
                continue
            for k in apart:
                if k not in doubt and _differ(near[k], want[k]):
                    doubt[k] = "the results jump where the inputs change a little"
    return doubt


@dataclass(frozen=True)
class Outcome:
    """What came of a graph, the smallest graph that fails in the same way, and the refusals on the way to it."""

    kind: str
    message: str
    model: Any
    refusals: tuple[str, ...] = ()


def outcome(seed: int, shrink: bool = True, full: bool = False) -> Outcome:
    """Returns what came of the graph of a seed. A node that is refused is left out, with all that needs it."""
    n = random_net(seed)
    nodes, refusals = n.nodes, []
    while True:
        read = {name for node in nodes for name in _read_by(node)}
        made = {name for node in nodes for name in node.output}
        leaves = [v for v in n.values if v.name in made and v.name not in read]
        if not leaves:
            return Outcome("refused", "", None, tuple(refusals))
        model = model_of(n, nodes, leaves)
        kind, message = checked(model, seed, full)
        gone = set(re.findall(r"'(v\d+)'", message)) & made if kind == "refused" else set()
        if not gone:
            break
        refusals.append(message)
        gone = {sorted(gone, key=lambda name: int(name[1:]))[-1]}
        kept = []
        for node in nodes:
            if _read_by(node) & gone or set(node.output) & gone:
                gone |= set(node.output)
            else:
                kept.append(node)
        nodes = kept
    if kind == "refused":
        refusals.append(message)
    if kind in ("finding", "refused at the call", "refused") and shrink:
        for v in [v for v in n.values if v.name in made]:
            smaller = model_of(n, nodes, [v])
            one, why = checked(smaller, seed, full)
            if one == kind:
                return Outcome(*_without_front(n, smaller, v, kind, why, seed, full), tuple(refusals))
    return Outcome(kind, message, model, tuple(refusals))


def _without_front(n: Net, model: Any, v: V, kind: str, message: str, seed: int, full: bool) -> tuple[str, str, Any]:
    """Returns the failing graph with inputs in the place of values whose sizes are known, as many as go."""
    known = {
        u.name: u for u in n.values if u.dtype == FLOAT and all(isinstance(e, int) or e in ("n", "m") for e in u.shape)
    }
    for name in [name for node in reversed(model.graph.node) for name in node.input if name in known]:
        part = replace(n, inputs=[*[u for u in n.inputs if u.name != name], known[name]])
        nodes = [node for node in model.graph.node if name not in node.output]
        smaller = model_of(part, nodes, [v])
        if len(smaller.graph.node) < len(model.graph.node):
            one, why = checked(smaller, seed, full)
            if one == kind:
                return _without_front(part, smaller, v, kind, why, seed, full)
    return kind, message, model


def plain(message: str) -> str:
    """Returns a message without the names and numbers of one graph."""
    return re.sub(r"'?\b[vx]\d+(_\w+)?\b'?|-?\d+", "#", message)[:200]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _work(seeds: Sequence[int], path: Path, full: bool) -> None:
    """Add a row for each seed, and print what is found."""
    seen = {plain(row["message"]) for row in _rows(path) if row["model"]}
    for seed in seeds:
        begin = time.perf_counter()
        try:
            found = outcome(seed, True, full)
        except Exception as error:
            raise RuntimeError(f"the graph of seed {seed} cannot be checked") from error
        short = plain(found.message)
        told = found.kind in ("finding", "refused at the call") and short not in seen
        text = onnx.printer.to_text(found.model.graph) if told else ""
        row = {
            "seed": seed, "kind": found.kind, "message": found.message[:600], "refusals": [r[:600] for r in found.refusals],
            "nodes": len(random_net(seed).nodes), "seconds": round(time.perf_counter() - begin, 2), "model": text,
        }  # fmt: skip
        _append(path, row)
        if told:
            seen.add(short)
            print(f"seed {seed}: {found.kind}: {found.message[:400]}\n{text}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", help="a file of JSON lines, one a graph; seeds that it has are not run again")
    parser.add_argument("--full", action="store_true", help="schedule and optimize kernels as builds usually do")
    asked = parser.parse_args()
    path = Path(asked.rows) if asked.rows else Path(tempfile.mkstemp(suffix=".jsonl")[1])
    seeds = range(asked.seed, asked.seed + asked.n)
    while left := sorted(set(seeds) - {row["seed"] for row in _rows(path)}):
        worker = multiprocessing.get_context("fork").Process(target=_work, args=(left, path, asked.full))
        worker.start()
        worker.join()
        if worker.exitcode:  # ONNX Runtime, or a kernel, ended the process
            seed = min(set(seeds) - {row["seed"] for row in _rows(path)})
            row = {
                "seed": seed,
                "kind": "crash",
                "message": f"exit status {worker.exitcode}",
                "refusals": [],
                "model": "",
            }
            _append(path, row)
            print(f"seed {seed}: crash: {row['message']}", flush=True)
    rows = _rows(path)
    for text, count in Counter(plain(r) for row in rows for r in row["refusals"]).most_common():
        print(count, text)
    print(len(rows), "graphs:", dict(Counter(row["kind"] for row in rows)))


if __name__ == "__main__":
    main()
