"""Random well-formed ONNX graphs, compared with ONNX Runtime.

``python -m tests.frontends.onnx_graphs --n 500 --seed 1`` makes graphs of 3 to 30 nodes, half of them with symbolic sizes,
which get 0 and 1 among other values at the call. Where the results differ and ONNX's reference agrees with ONNX Runtime,
or where another exception than the library's own is raised, the graph is a finding; it is shrunk. Refusals are counted by message.
"""

from __future__ import annotations

import argparse
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw

FLOAT, INT, BOOL = "float32", "int64", "bool"
_KINDS = {FLOAT: TensorProto.FLOAT, INT: TensorProto.INT64, BOOL: TensorProto.BOOL}
_OPSET = 20


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

    def add(self, op: str, inputs: list[str], dtype: str, shape: Any, **attrs: Any) -> V:
        v = V(self.fresh(), dtype, tuple(shape))
        self.nodes.append(helper.make_node(op, inputs, [v.name], **attrs))
        self.values.append(v)
        return v

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


def random_net(seed: int) -> Net:
    """Returns a graph of 3 to 30 nodes; every second one has symbolic sizes."""
    rng = random.Random(seed)
    n = Net(rng, bool(seed % 2))
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


def model_of(n: Net, nodes: list[Any], outputs: list[V]) -> Any:
    """Returns the model of the nodes that the outputs need."""
    needed, kept = {v.name for v in outputs}, []
    for node in reversed(nodes):
        if needed & set(node.output):
            kept.insert(0, node)
            needed.update(node.input)
    tensors = [numpy_helper.from_array(a, name) for name, a in n.constants.items() if name in needed]
    given = [helper.make_tensor_value_info(v.name, _KINDS[v.dtype], v.shape) for v in n.inputs if v.name in needed]
    results = [helper.make_tensor_value_info(v.name, _KINDS[v.dtype], None) for v in outputs]
    graph = helper.make_graph(kept, "net", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def _differ(got: Any, want: Any) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind == "f":
        scale = np.abs(want[np.isfinite(want)]).max(initial=1)
        return "" if np.allclose(got, want, 2e-3, 2e-4 * scale, equal_nan=True) else "other numbers"
    return "" if np.array_equal(got, want) else "other numbers"


SIZES = ({"n": 3, "m": 5}, {"n": 1, "m": 4}, {"n": 0, "m": 2}, {"n": 7, "m": 1}, {"n": 2, "m": 0})


def checked(model: Any, seed: int) -> tuple[str, str]:
    """Returns what came of a model: ``same``, ``refused`` or ``finding``, and a message."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception as error:
        return "unusable", str(error)[:200]
    symbolic = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    try:
        built = tw.build(tw.from_onnx(model), target="native -num-cores=1", bounds=dict.fromkeys(symbolic, 8))
    except Exception as error:
        own = type(error).__module__.startswith("tilewright") and "do not fit it (" not in str(error)
        return "refused" if own else "finding", f"{type(error).__name__}: {error}"
    rng = np.random.default_rng(seed)
    for sizes in SIZES if symbolic else SIZES[:1]:
        given = {}
        for i in model.graph.input:
            shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in i.type.tensor_type.shape.dim]
            given[i.name] = (rng.integers(-16, 16, shape) / 8).astype(np.float32)
        try:
            want = session.run(None, given)
        except Exception:
            continue  # sizes that the model does not take
        try:
            found = built(*given.values())
        except Exception as error:
            own = type(error).__module__.startswith("tilewright")
            return "refused at the call" if own else "finding", f"{sizes}: {type(error).__name__}: {error}"
        got = list(found) if isinstance(found, (tuple, list)) else [found]
        problem = next(filter(None, map(_differ, got, want)), "")
        if problem:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    judge = ReferenceEvaluator(model).run(None, given)
                except Exception:
                    judge = want
            if any(_differ(np.asarray(a), b) for a, b in zip(judge, want, strict=True)):
                return "doubtful", problem
            return "finding", f"{sizes}: {problem}"
    return "same", ""


def outcome(seed: int, shrink: bool = True) -> tuple[str, str, Any]:
    """Returns what came of the graph of a seed, the message, and the smallest graph that fails in the same way."""
    n = random_net(seed)
    read = {name for node in n.nodes for name in node.input}
    leaves = [v for v in n.values if v.name not in read and v not in n.inputs]
    model = model_of(n, n.nodes, leaves)
    kind, message = checked(model, seed)
    if kind in ("finding", "refused at the call") and shrink:
        made = {name for node in n.nodes for name in node.output}
        for v in [v for v in n.values if v.name in made]:
            smaller = model_of(n, n.nodes, [v])
            one, why = checked(smaller, seed)
            if one == kind:
                return _without_front(n, smaller, v, kind, why, seed)
    return kind, message, model


def _without_front(n: Net, model: Any, v: V, kind: str, message: str, seed: int) -> tuple[str, str, Any]:
    """Returns the failing graph with inputs in the place of values whose sizes are known, as many as go."""
    known = {
        u.name: u for u in n.values if u.dtype == FLOAT and all(isinstance(e, int) or e in ("n", "m") for e in u.shape)
    }
    for name in [name for node in reversed(model.graph.node) for name in node.input if name in known]:
        part = Net(
            n.rng, n.symbolic, n.nodes, [u for u in n.inputs if u.name != name] + [known[name]], n.values, n.constants
        )
        nodes = [node for node in model.graph.node if name not in node.output]
        smaller = model_of(part, nodes, [v])
        one, why = checked(smaller, seed)
        if one == kind and len(smaller.graph.node) < len(model.graph.node):
            return _without_front(part, smaller, v, kind, why, seed)
    return kind, message, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    seen: set[str] = set()
    for seed in range(asked.seed, asked.seed + asked.n):
        kind, message, model = outcome(seed)
        counts[kind] += 1
        plain = re.sub(r"'v\d+'|\d+", "#", message)
        if kind.startswith("refused"):
            refusals[f"{kind}: {plain[:160]}"] += 1
        if kind in ("finding", "refused at the call") and plain not in seen:
            seen.add(plain)
            print(f"seed {seed}: {kind}: {message[:400]}\n{onnx.printer.to_text(model.graph)}\n", flush=True)
    for text, count in refusals.most_common():
        print(count, text)
    print(dict(counts))


if __name__ == "__main__":
    main()
