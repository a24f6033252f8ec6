"""This module evaluates nodes whose inputs are known while the graph is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.reference import evaluate as run_graph
from .call import OnnxCall, OnnxError
from .types import DTYPES, number_of

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


def _numbers(data: Any) -> list[int]:
    return [int(d) for d in np.ravel(data)]


def _range(data: Sequence[Any]) -> float:
    start, limit, delta = [float(np.ravel(d)[0]) for d in data]
    return abs((limit - start) / delta) if delta else 0


_BY_VALUES: dict[str, Callable[[Sequence[Any]], float]] = {
    "ConstantOfShape": lambda data: math.prod(_numbers(data[0])),
    "Range": _range,
    "Expand": lambda data: math.prod(_numbers(data[1])) * max(data[0].size, 1),
    "Tile": lambda data: math.prod(_numbers(data[1])) * data[0].size,
    "OneHot": lambda data: data[0].size * abs(_numbers(data[1])[0]),
    "MelWeightMatrix": lambda data: abs(_numbers(data[0])[0] * _numbers(data[1])[0]),
    "HannWindow": lambda data: _numbers(data[0])[0],
    "HammingWindow": lambda data: _numbers(data[0])[0],
    "BlackmanWindow": lambda data: _numbers(data[0])[0],
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
            session = onnx.reference.ReferenceEvaluator(alone, opsets={"": 1, **opsets})
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
    """Returns an array with the type that the reference uses, which differs for bfloat16."""
    return data.view(onnx.helper.tensor_dtype_to_np_dtype(number_of(dtype))) if dtype == "bfloat16" else data


def _as_known(array: Any) -> KnownData:
    name = array.dtype.name
    if name not in DTYPES.values():
        raise OnnxError(f"the data type {name} is not supported")
    return (array.view(np.uint16) if name == "bfloat16" else array), name
