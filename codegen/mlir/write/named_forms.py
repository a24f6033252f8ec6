"""This module finds the named operation of linalg that means exactly what a ``linalg.generic`` does.

A candidate is built from the operands, and taken when its maps, its loops and its body are those of the generic one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects.linalg import ops as L
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineMap

from ..words.affine_indices import plain_dim
from ..words.wider_operations import BatchMatmulOp, ReduceOp

_COMMUTATIVE = (
    "addi",
    "addf",
    "muli",
    "mulf",
    "maximumf",
    "minimumf",
    "maxsi",
    "minsi",
    "maxui",
    "minui",
    "andi",
    "ori",
)


def named_form(op: L.GenericOp) -> Any:
    """Returns a named operation with the same meaning, not yet in a block, or None."""
    if len(op.outputs) != 1 or not op.inputs:
        return None
    for make in _MAKERS:
        made = make(op)
        if made is not None and _same(made, op):
            return made
    return None


def _same(a: Any, b: L.GenericOp) -> bool:
    if a.get_indexing_maps() != b.get_indexing_maps() or a.get_iterator_types() != b.get_iterator_types():
        return False
    ends = [op.body.block.last_op.operands for op in (a, b)]
    return len(ends[0]) == len(ends[1]) and all(map(_equal, *ends))


def _equal(a: SSAValue, b: SSAValue) -> bool:
    """Returns whether two values of bodies are computed alike; operands of commutative operations in any order."""
    if isinstance(a.owner, Block) or isinstance(b.owner, Block):
        return isinstance(a.owner, Block) and isinstance(b.owner, Block) and a.index == b.index  # type: ignore[attr-defined]
    left, right = a.owner, b.owner
    if left.name != right.name or a.type != b.type or len(left.operands) != len(right.operands):
        return False
    if all(map(_equal, left.operands, right.operands)):
        return True
    swapped = left.name.removeprefix("arith.") in _COMMUTATIVE
    return swapped and all(map(_equal, left.operands, reversed(right.operands)))


def _element_types(op: L.GenericOp) -> set[Any]:
    return {v.type.element_type for v in op.operands if isinstance(v.type, B.TensorType)}


def _product(op: L.GenericOp) -> Any:
    if len(op.inputs) != 2 or len(_element_types(op)) != 1:
        return None
    rank = len(op.iterator_types.data)
    made = {3: L.MatmulOp, 4: BatchMatmulOp}.get(rank)
    return None if made is None else made(list(op.inputs), list(op.outputs))


def _convolution(kind: type[Any], rows: int, window: int, image: int) -> Callable[[L.GenericOp], Any]:
    """Returns the maker of a convolution. ``rows`` and ``window`` are the first of its two loops over places and over
    the kernel, ``image`` the first of the two dimensions of the image."""

    def make(op: L.GenericOp) -> Any:
        if len(op.inputs) != 2 or len(op.iterator_types.data) != 7:
            return None
        read: AffineMap = op.indexing_maps.data[0].data
        if len(read.results) != 4:
            return None
        steps = [_coefficient(read, image + n, rows + n) for n in range(2)]
        apart = [_coefficient(read, image + n, window + n) for n in range(2)]
        if min(*steps, *apart) < 1 or (len(_element_types(op)) > 1 and not _widens(op)):
            return None
        pairs = {"strides": _pair(steps), "dilations": _pair(apart)}
        return kind(list(op.inputs), list(op.outputs), [o.type for o in op.outputs], **pairs)

    return make


def _widens(op: L.GenericOp) -> bool:
    """Returns whether narrow integers of one type are multiplied."""
    kinds = [v.type.element_type for v in op.operands]  # type: ignore[attr-defined]
    return kinds[0] == kinds[1] and all(isinstance(k, B.IntegerType) for k in kinds)


def _coefficient(map_: AffineMap, result: int, dim: int) -> int:
    e = map_.results[result]
    zero, one = [0] * map_.num_dims, [int(n == dim) for n in range(map_.num_dims)]
    return int(e.eval(one, []) - e.eval(zero, []))


def _pair(numbers: list[int]) -> Any:
    return B.DenseIntElementsAttr.from_list(B.TensorType(B.i64, [2]), numbers)


def _transpose(op: L.GenericOp) -> Any:
    if len(op.inputs) != 1 or op.attributes:
        return None
    dims = [plain_dim(e) for e in op.indexing_maps.data[0].data.results]
    if None in dims or sorted(dims) != list(range(len(op.iterator_types.data))) or dims == sorted(dims):  # type: ignore[type-var]
        return None
    order: Any = B.DenseArrayBase.from_list(B.i64, [dims.index(n) for n in range(len(dims))])
    return L.TransposeOp(op.inputs[0], op.outputs[0], order)


def _reduce(op: L.GenericOp) -> Any:
    kinds = list(op.iterator_types.data)
    if len(op.inputs) != 1 or IteratorTypeAttr.reduction() not in kinds or len(_element_types(op)) != 1:
        return None
    dims = [plain_dim(e) for e in op.indexing_maps.data[0].data.results]
    along = [d for d, n in enumerate(dims) if n is not None and kinds[n] == IteratorTypeAttr.reduction()]
    if None in dims or len(along) != kinds.count(IteratorTypeAttr.reduction()) or len(op.body.block.ops) != 2:
        return None
    region: Region = op.body.clone()
    return ReduceOp.of(op.inputs[0], op.outputs[0], along, region)


_MAKERS: tuple[Callable[[L.GenericOp], Any], ...] = (
    _product,
    _convolution(L.Conv2DNchwFchwOp, 2, 5, 2),
    _convolution(L.Conv2DNhwc_HwcfOp, 1, 4, 1),
    _transpose,
    _reduce,
)
"""What makes a candidate of a generic operation, or None where it cannot mean the same."""
