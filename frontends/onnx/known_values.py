"""This module computes what is known while a model is read: nodes with known inputs, and sizes.

A size that only the call knows is data for the kernels (the operator ``size_number``) and, for shapes, indices and trip
counts, a formula. Arrays of such formulas are NumPy's, of objects: numbers, and expressions of symbolic sizes.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import te
from ...graph.builder import Builder
from ...graph.graph import Value, dims
from ...graph.reference import evaluate as run_graph
from ...te.ops.arguments import sizes_analyzer
from ...tir.expr import Expr, convert, max_, min_, to_numpy
from ...tir.expr.dtype import kept_as_bits
from ..common.graph_call import add_sizes
from .call import DTYPES, OnnxCall, OnnxError, number_of

LARGEST_KNOWN = 1 << 22
"""A constant of more elements than that is not computed while the graph is made."""

LARGEST_INTERPRETED = 1 << 10
"""Constants of more elements than that are not computed by the interpreter while the graph is made."""

_BY_INPUTS = frozenset(
    "Abs Add And ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Compress Concat Cos "
    "CumSum DequantizeLinear Div Equal Erf Exp EyeLike Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual "
    "Identity Less LessOrEqual Log MatMul Max Mean Min Mod Mul Neg NonMaxSuppression NonZero Not Or Pow QuantizeLinear "
    "Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round "
    "ScatterElements ScatterND Sigmoid Sign Sin Slice Softmax Split Sqrt Squeeze Sub Sum Tanh TopK Transpose Trilu Unique "
    "Unsqueeze Where Xor".split()
)
"""Operators whose results have at most as many elements as the product of the sizes of their inputs."""


def _numbers_in(data: Any) -> list[int]:
    return [int(d) for d in np.ravel(data)]


def _range(data: Sequence[Any]) -> float:
    start, limit, delta = [float(np.ravel(d)[0]) for d in data]
    return abs((limit - start) / delta) if delta else 0


_BY_VALUES: dict[str, Callable[[Sequence[Any]], float]] = {
    "ConstantOfShape": lambda data: math.prod(_numbers_in(data[0])),
    "Range": _range,
    "Expand": lambda data: math.prod(_numbers_in(data[1])) * max(data[0].size, 1),
    "Tile": lambda data: math.prod(_numbers_in(data[1])) * data[0].size,
    "OneHot": lambda data: data[0].size * abs(_numbers_in(data[1])[0]),
    "MelWeightMatrix": lambda data: abs(_numbers_in(data[0])[0] * _numbers_in(data[1])[0]),
    "HannWindow": lambda data: _numbers_in(data[0])[0],
    "HammingWindow": lambda data: _numbers_in(data[0])[0],
    "BlackmanWindow": lambda data: _numbers_in(data[0])[0],
}
"""Operators whose results have as many elements as the values of their inputs say: the largest possible number."""

KnownData = tuple[Any, str]
"""An array as the graph holds it, and its data type."""


def _size(op: str, data: Sequence[Any]) -> float:
    """Returns the most elements that a result may have; infinite for an operator that is not evaluated here."""
    if op in _BY_VALUES:
        return _BY_VALUES[op](data)
    return math.prod([max(d.size, 1) for d in data]) if op in _BY_INPUTS else math.inf


def evaluate(
    onnx: Any, node: Any, inputs: Sequence[KnownData | None], opsets: Mapping[str, int]
) -> list[KnownData] | None:
    """Returns the results of a node by ONNX's reference implementation, or None where it has none."""
    if node.domain not in ("", "ai.onnx"):
        return None
    try:
        given = [as_onnx(onnx, data, dtype) for data, dtype in [known for known in inputs if known is not None]]
        if sum(d.size for d in given) > LARGEST_KNOWN or not _size(node.op_type, given) <= LARGEST_KNOWN:
            return None
        alone = onnx.NodeProto()  # a part of the model would keep all of it in memory for as long as the session lives
        alone.CopyFrom(node)
        with np.errstate(all="ignore"):
            reference = importlib.import_module("onnx.reference")  # it takes a while, and most models have no such node
            session = reference.ReferenceEvaluator(alone, opsets={"": 1, **opsets})
            results = session.run(None, dict(zip([name for name in node.input if name], given, strict=True)))
        return [_as_known(np.asarray(r)) for r in results]
    except Exception:  # the reference raises whatever NumPy or it itself raises; the converter explains what is wrong
        return None


def interpreted(convert: Callable[[OnnxCall], Any], call: OnnxCall) -> list[KnownData] | None:
    """Returns what a converter builds when all inputs are constants of the call's own builder. None stands for a result
    that is too large, or a converter that does not work."""
    builder = call.builder
    if sum(data.size for data in builder.constants.values()) > LARGEST_INTERPRETED:
        return None
    try:
        made = convert(call)
        outputs = made if isinstance(made, tuple) else (made,)
        if any(math.prod(v.shape) > LARGEST_INTERPRETED for n in builder.nodes for v in n.outputs):
            return None
        results = run_graph(builder.graph(outputs))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None  # the converter is asked once more, and its error is the model's
    return [(r, v.dtype) for r, v in zip(results, outputs, strict=True)]


def as_onnx(onnx: Any, data: Any, dtype: str) -> Any:
    """Returns an array with the type that the reference uses, which differs for bfloat16 and float8."""
    return data.view(onnx.helper.tensor_dtype_to_np_dtype(number_of(dtype))) if kept_as_bits(dtype) else data


def _as_known(array: Any) -> KnownData:
    name = array.dtype.name
    if name not in DTYPES.values():
        raise OnnxError(f"the data type {name} is not supported")
    return (array.view(to_numpy(name)) if kept_as_bits(name) else array), name


Formulas = Any
"""An array of objects: numbers, and expressions of symbolic sizes."""

LARGEST = 1 << 10
"""The most formulas of one array."""


def formulas(numbers: Sequence[Any]) -> Formulas:
    """Returns a list of numbers and expressions as an array."""
    out = np.empty(len(numbers), object)
    out[:] = dims(numbers)
    return out


def add_formulas(builder: Builder, shapes: dict[Value, Formulas], data: Formulas, dtype: str, name: str) -> Value:
    """Returns the value of formulas: a constant, or what the call computes, whose formulas ``shapes`` gets."""
    if not any(isinstance(e, Expr) for e in data.flat):
        return builder.constant(data.astype(np.int64), name, dtype)
    value = add_sizes(builder, data, dtype)
    shapes[value] = data
    return value


def shape_of(
    builder: Builder, shapes: dict[Value, Formulas], node: Any, attributes: Mapping[str, Any], x: Value
) -> Value:
    """Returns the extents of ``x``, or their product."""
    extents = list(x.shape)[attributes.get("start", 0) : attributes.get("end")]
    data = formulas(extents)
    if node.op_type == "Size":
        total: Any = 1
        for d in x.shape:
            total = d * total
        data = formulas([total]).reshape(())
    return add_formulas(builder, shapes, data, "int64", node.output[0])


class Undecided(Exception):
    """Raised where a formula of sizes is not known to be one: it depends on what the sizes are."""


_MOVES = frozenset(
    ("Cast", "Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Unsqueeze")
)
"""The operators that change no number."""


def computed_formulas(
    op: str,
    inputs: Sequence[Value | None],
    shapes: Mapping[Value, Formulas],
    constants: Mapping[Value, Any],
    attributes: Mapping[str, Any],
) -> tuple[Formulas, str] | None:
    """Returns the formulas that a node computes of formulas, and their data type; None where there are none.

    None does not mean that the node has no value: the kernels compute it of what its inputs are at the call.
    """
    given: list[Any] = []
    for v in inputs:
        found = None if v is None else shapes.get(v)
        if found is None and v is not None:
            data = constants[v]
            if data.dtype.kind not in "iub":
                return None
            found = data.astype(object)
        given.append(found)
    convert = _OPERATORS.get(op)
    if convert is None or (op not in _MOVES and any(v is not None and v.dtype.startswith("float") for v in inputs)):
        return None
    try:
        made = convert(given, attributes)
    except (Undecided, ArithmeticError, IndexError, KeyError, TypeError, ValueError):
        return None  # the converter explains what is wrong
    if made is None:
        return None
    made = np.asarray(made, object)
    if made.size > LARGEST:
        return None
    simple = formulas(list(made.flat)).reshape(made.shape)
    if op == "Cast":
        return simple, DTYPES[attributes["to"]]
    first = next(v for v in (inputs[1:] if op == "Where" else inputs) if v is not None)
    return simple, "bool" if op in _COMPARISONS else first.dtype


def _numbers(data: Formulas) -> list[int]:
    """Returns the elements as numbers; Undecided where one is a formula."""
    if any(isinstance(e, Expr) for e in data.flat):
        raise Undecided
    return [int(e) for e in data.flat]


def _axes(given: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[int, ...] | None:
    if "axes" in attributes:
        return tuple(attributes["axes"])
    return None if len(given) < 2 or given[1] is None else tuple(_numbers(given[1]))


_KEPT = ("float32", "float64", "int32", "int64")
"""The data types in which a size may be; one of a float type is only moved, and cast back."""


def _cast(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas | None:
    return given[0] if DTYPES.get(attributes["to"]) in _KEPT else None


def _slice(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas:
    x = given[0]
    starts, ends = [attributes[k] if k in attributes else _numbers(given[n]) for k, n in (("starts", 1), ("ends", 2))]
    axes = attributes.get("axes")
    if axes is None:
        axes = _numbers(given[3]) if len(given) > 3 and given[3] is not None else range(len(starts))
    steps = _numbers(given[4]) if len(given) > 4 and given[4] is not None else [1] * len(starts)
    cut = [slice(None)] * x.ndim
    for a, *ends_and_step in zip(axes, starts, ends, steps, strict=True):
        cut[a] = slice(*ends_and_step)
    return x[tuple(cut)]


def _reshape(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas:
    shape = attributes["shape"] if "shape" in attributes else _numbers(given[1])
    if not attributes.get("allowzero", 0):
        shape = [given[0].shape[n] if d == 0 else d for n, d in enumerate(shape)]
    return given[0].reshape(tuple(shape))


def _unsqueeze(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas:
    return np.expand_dims(given[0], _axes(given, attributes) or ())


def _proved(condition: Any, *values: Any) -> bool:
    """Returns a comparison of sizes decided; Undecided where it depends on what they are."""
    if isinstance(condition, (bool, np.bool_)):
        return bool(condition)
    an = sizes_analyzer(*values)
    if an.can_prove(condition):
        return True
    if an.can_prove(te.not_(condition)):
        return False
    raise Undecided


def _divided(a: Any, b: Any) -> Any:
    """Returns the quotient towards zero, as ONNX divides integers."""
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(b, Expr) or b <= 0:  # a size may be 0; the kernels divide
        raise Undecided
    return a // b if sizes_analyzer(a).can_prove(a >= 0) else te.truncdiv(a, b)


def _remainder(a: Any, b: Any) -> Any:
    if isinstance(b, Expr) or b <= 0:
        raise Undecided
    return a % b


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else max_(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else min_(a, b)


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return bool(a == b)
    return _proved(convert(a).equal(b), a, b)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Equal": _equal,
    "Less": lambda a, b: _proved(a < b, a, b),
    "LessOrEqual": lambda a, b: _proved(a <= b, a, b),
    "Greater": lambda a, b: _proved(a > b, a, b),
    "GreaterOrEqual": lambda a, b: _proved(a >= b, a, b),
}

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _divided,
    "Max": _larger,
    "Min": _smaller,
    "Sum": lambda a, b: a + b,
    **_COMPARISONS,
}

_REDUCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "ReduceSum": (lambda a, b: a + b, 0),
    "ReduceProd": (lambda a, b: a * b, 1),
    "ReduceMax": (_larger, None),
    "ReduceMin": (_smaller, None),
}


def _elementwise(combine: Callable[[Any, Any], Any]) -> Callable[[Sequence[Any], Mapping[str, Any]], Formulas]:
    each = np.frompyfunc(combine, 2, 1)

    def compute(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas:
        out = given[0]
        for other in given[1:]:
            out = each(out, other)
        return out

    return compute


def _reduction(op: str) -> Callable[[Sequence[Any], Mapping[str, Any]], Formulas]:
    combine, first = _REDUCTIONS[op]

    def compute(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas | None:
        axes = _axes(given, attributes)
        if given[0].ndim != 1 or axes not in (None, (0,), (-1,)) or attributes.get("noop_with_empty_axes", 0):
            return None
        entries = list(given[0]) if first is None else [first, *given[0]]
        total = entries[0]
        for other in entries[1:]:
            total = combine(total, other)
        return formulas([total]).reshape((1,) if attributes.get("keepdims", 1) else ())

    return compute


def _where(given: Sequence[Any], attributes: Mapping[str, Any]) -> Formulas:
    condition = np.array(_numbers(given[0]), bool).reshape(given[0].shape)
    return np.where(condition, given[1], given[2])


_OPERATORS: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Formulas | None]] = {
    "Identity": lambda given, attributes: given[0],
    "Cast": _cast,
    "Concat": lambda given, attributes: np.concatenate(given, attributes["axis"]),
    "Gather": lambda given, attributes: np.take(
        given[0], np.array(_numbers(given[1]), np.int64).reshape(given[1].shape), attributes.get("axis", 0)
    ),
    "Slice": _slice,
    "Reshape": _reshape,
    "Squeeze": lambda given, attributes: np.squeeze(given[0], _axes(given, attributes)),
    "Unsqueeze": _unsqueeze,
    "Transpose": lambda given, attributes: np.transpose(given[0], attributes.get("perm")),
    "Expand": lambda given, attributes: np.broadcast_to(
        given[0], np.broadcast_shapes(given[0].shape, tuple(_numbers(given[1])))
    ),
    "Tile": lambda given, attributes: np.tile(given[0], _numbers(given[1])),
    "Neg": lambda given, attributes: 0 - given[0],
    "Mod": lambda given, attributes: (
        None if attributes.get("fmod", 0) else np.frompyfunc(_remainder, 2, 1)(given[0], given[1])
    ),
    "Where": _where,
    **{op: _elementwise(combine) for op, combine in _ARITHMETIC.items()},
    **{op: _reduction(op) for op in _REDUCTIONS},
}
