"""This module finds which sizes of tensors in a function are the same size, from the operations that relate them.

A ``?`` in MLIR's types has no name. An operation of linalg makes sizes equal that one of its loops runs over.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import func, tensor
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.ir import SSAValue

from ..words.affine_indices import plain_dim

Place = tuple[SSAValue, int]
"""A dimension of a tensor."""


class SizeClasses:
    """The classes of equal sizes in a function: :meth:`find` returns a representative."""

    def __init__(self, function: func.FuncOp) -> None:
        self.parent: dict[Place, Place] = {}
        for op in function.body.block.ops:
            if isinstance(op, LinalgStructuredOperation):
                self._relate(op)
            elif isinstance(op, tensor.EmptyOp):
                self._sources(op)
            elif isinstance(op, tensor.CastOp):
                for n in range(_rank(op.source)):
                    self.join((op.source, n), (op.dest, n))

    def find(self, place: Place) -> Place:
        """Returns the first place of a class."""
        while place in self.parent:
            place = self.parent[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        """Say that two sizes are the same one."""
        first, second = self.find(a), self.find(b)
        if first != second:
            self.parent[second] = first

    def _relate(self, op: LinalgStructuredOperation) -> None:
        maps: Any = op.get_indexing_maps()
        by_dim: dict[int, Place] = {}
        for operand, attr in zip((*op.inputs, *op.outputs), maps.data, strict=False):
            for n, e in enumerate(attr.data.results):
                dim = plain_dim(e)
                if dim is not None and n < _rank(operand):
                    self.join(by_dim.setdefault(dim, (operand, n)), (operand, n))
        for out, result in zip(op.outputs, op.results, strict=False):
            for n in range(_rank(out)):
                self.join((out, n), (result, n))

    def _sources(self, op: tensor.EmptyOp) -> None:
        kind: Any = op.tensor.type
        dynamic = [n for n, size in enumerate(kind.get_shape()) if size == B.DYNAMIC_INDEX]
        for n, size in zip(dynamic, op.dynamic_sizes, strict=False):
            source = size.owner
            if isinstance(source, tensor.DimOp):
                place: Any = getattr(source.index.owner, "value", None)
                if isinstance(place, B.IntegerAttr):
                    self.join((source.source, place.value.data), (op.tensor, n))


def _rank(value: SSAValue) -> int:
    kind = value.type
    return len(kind.get_shape()) if isinstance(kind, B.TensorType) else 0
