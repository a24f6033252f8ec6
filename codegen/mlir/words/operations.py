"""This module writes single operations of MLIR at the end of a block: constants, comparisons, choices, casts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ....tir.expr import DType
from ....tir.expr.base.rounding import round_float
from .wider_operations import CmpfOp, CmpiOp, SelectOp

VALUE = "tilewright.value"
"""The attribute of a constant whose number in TIR has more digits than its type."""


class Operations:
    """Writes operations at the end of ``block``; equal constants of one block are written once."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._constants: dict[tuple[Any, float, Attribute], SSAValue] = {}

    def inside(self, block: Block) -> Operations:
        """Returns a writer for a block within this one."""
        out = Operations(block)
        out._constants.update(self._constants)
        return out

    def add(self, op: Operation) -> SSAValue:
        """Returns the first result of an operation that is added."""
        self.block.add_op(op)
        return op.results[0]

    def constant(self, value: int | float, kind: Attribute) -> SSAValue:
        """Returns a number of a type; the same one in all lanes of a vector."""
        key = (value, math.copysign(1, value), kind)
        if key not in self._constants:
            if isinstance(kind, B.VectorType) and not math.isfinite(value):  # xDSL does not read such a dense attribute
                spread = vector.BroadcastOp(self.constant(value, kind.element_type), kind)
                return self._constants.setdefault(key, self.add(spread))
            op = arith.ConstantOp(number(value, kind), kind)
            if isinstance(value, float) and shortest(value, kind) != value and value == value:
                op.attributes[VALUE] = B.FloatAttr(value, B.f64)
            self._constants[key] = self.add(op)
        return self._constants[key]

    def compare(self, word: str, a: SSAValue, b: SSAValue) -> SSAValue:
        """Returns a comparison by MLIR's word; words that begin with o or u(n)o… are of floats."""
        element = a.type.element_type if isinstance(a.type, B.VectorType) else a.type
        is_float = not isinstance(element, (B.IntegerType, B.IndexType))
        return self.add((CmpfOp if is_float else CmpiOp).of(word, a, b))

    def choose(self, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        """Returns ``a`` where the condition holds, else ``b``."""
        return self.add(SelectOp.create(operands=[condition, a, b], result_types=[a.type]))


def number(value: int | float, kind: Attribute) -> Attribute:
    """Returns a number as an attribute of a type."""
    element: Any = kind.element_type if isinstance(kind, B.VectorType) else kind
    if isinstance(element, (B.IntegerType, B.IndexType)):
        one: Any = int(value)
        if isinstance(element, B.IntegerType):
            bits = element.width.data
            one &= (1 << bits) - 1
            one -= (one >> (bits - 1)) << bits
    else:
        one = float(value)
    if isinstance(kind, B.VectorType):
        return B.DenseIntOrFPElementsAttr.from_list(kind, [one])
    return B.IntegerAttr(one, element) if isinstance(one, int) else B.FloatAttr(one, element)


def shortest(value: float, kind: Attribute) -> float:
    """Returns the number of the fewest digits that is ``value`` when it is rounded to a type."""
    element: Any = kind.element_type if isinstance(kind, B.VectorType) else kind
    if isinstance(element, B.BFloat16Type):
        return round_float(value, DType("bfloat16"))
    numpy_type: Any = {B.f16: np.float16, B.f32: np.float32}.get(element, np.float64)
    with np.errstate(over="ignore"):
        return float(str(numpy_type(value)))
