"""Has one row for each operation of MLIR, templates of several operations, and a writer of single ones.

A writer and a reader use the same rows. What needs several operations of MLIR is a template.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import copysign, isfinite
from typing import Any

import numpy as np
from xdsl.dialects import arith, math, vector
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ..tir.expr import DType
from ..tir.expr import nodes as E
from ..tir.expr.dtype import round_float
from .wider_operations import CmpfOp, CmpiOp, RemFOp, SelectOp


def kind_of(dtype: DType) -> str:
    """Returns which column of the tables a data type belongs to: float, signed, unsigned or bool."""
    if dtype.is_float:
        return "float"
    return "bool" if dtype.is_bool else "signed" if dtype.is_signed else "unsigned"


_INTEGERS = ("signed", "unsigned")

BINARY: dict[tuple[type[E.BinaryOp], str], type[Any]] = {
    (E.Add, "float"): arith.AddfOp,
    (E.Sub, "float"): arith.SubfOp,
    (E.Mul, "float"): arith.MulfOp,
    (E.Div, "float"): arith.DivfOp,
    (E.Min, "float"): arith.MinimumfOp,
    (E.Max, "float"): arith.MaximumfOp,
    **{(E.Add, k): arith.AddiOp for k in _INTEGERS},
    **{(E.Sub, k): arith.SubiOp for k in _INTEGERS},
    **{(E.Mul, k): arith.MuliOp for k in _INTEGERS},
    (E.Min, "signed"): arith.MinSIOp,
    (E.Max, "signed"): arith.MaxSIOp,
    (E.Min, "unsigned"): arith.MinUIOp,
    (E.Max, "unsigned"): arith.MaxUIOp,
    (E.And, "bool"): arith.AndIOp,
    (E.Or, "bool"): arith.OrIOp,
}
"""Nodes by the kind of their operands, and the operation for them."""

CALLS: dict[str, tuple[type[Any], str]] = {
    **{
        f"tir.{name}": (getattr(math, f"{word}Op"), "float")
        for name, word in {
            "exp": "Exp", "exp2": "Exp2", "expm1": "ExpM1", "log": "Log", "log2": "Log2", "log10": "Log10", "log1p": "Log1p",
            "sqrt": "Sqrt", "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
            "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
            "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round": "RoundEven",
            "nearbyint": "RoundEven", "fabs": "AbsF", "pow": "PowF", "atan2": "Atan2", "copysign": "CopySign", "fma": "Fma",
        }.items()
    },
    "tir.clz": (math.CountLeadingZerosOp, "integer"),
    "tir.popcount": (math.CtPopOp, "integer"),
    "tir.bitwise_and": (arith.AndIOp, "integer"),
    "tir.bitwise_or": (arith.OrIOp, "integer"),
    "tir.bitwise_xor": (arith.XOrIOp, "integer"),
}  # fmt: skip
"""Calls, the operation for them, and the kind of their arguments."""

SECOND_NAMES = frozenset({"tir.nearbyint"})
"""Calls that share their operation with another one, whose name is read back where nothing says otherwise."""

NODE_OF: dict[type[Any], tuple[type[E.BinaryOp], str]] = {op: key for key, op in reversed(list(BINARY.items()))}
"""The node of each operation, and its kind."""

CALL_OF: dict[type[Any], str] = {
    op: name for name, (op, _) in CALLS.items() if name not in SECOND_NAMES and op not in NODE_OF
}
"""The call of each operation. Those on bits belong to nodes as well, which :mod:`.value_reader` tells by their types."""

ORDERED = {E.EQ: "oeq", E.NE: "une", E.LT: "olt", E.LE: "ole", E.GT: "ogt", E.GE: "oge"}
SIGNED = {E.EQ: "eq", E.NE: "ne", E.LT: "slt", E.LE: "sle", E.GT: "sgt", E.GE: "sge"}
UNSIGNED = {**SIGNED, E.LT: "ult", E.LE: "ule", E.GT: "ugt", E.GE: "uge"}
"""Comparisons and MLIR's words for them."""


# Writes single operations of MLIR at the end of a block: constants, comparisons, choices, casts.

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
        key = (value, copysign(1, value), kind)
        if key not in self._constants:
            if isinstance(kind, B.VectorType) and _is_printed_as_bits(value, kind):
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


# Has operations that take several operations of MLIR: division as NumPy has it, tests of floats, sigmoid.
#
# A template writes them for given operands. A reader recognizes them by writing the template again, over placeholders, and
# comparing operation by operation: :func:`recognized`.

Values = Sequence[SSAValue]


@dataclass(frozen=True, eq=False)
class Template:
    """A template is what ``node`` (a class, or the name of a call) becomes for operands of one ``kind``.

    ``constant`` says that the second operand has to be a constant other than 0 and -1.
    """

    node: Any
    kind: str
    arity: int
    write: Callable[[Operations, Values], SSAValue]
    constant: bool = False


TEMPLATES: list[Template] = []


def _row(node: Any, kinds: str, arity: int, constant: bool = False) -> Callable[[Any], Any]:
    def add(write: Callable[[Operations, Values], SSAValue]) -> Any:
        TEMPLATES.extend([Template(node, kind, arity, write, constant) for kind in kinds.split()])
        return write

    return add


def _divisor(e: Operations, b: SSAValue, signed: bool) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Returns whether ``b`` is 0, whether it is -1, and a number to divide by instead of these."""
    zero = e.compare("eq", b, e.constant(0, b.type))
    minus = e.compare("eq", b, e.constant(-1, b.type)) if signed else zero
    unfit = e.add(arith.OrIOp(zero, minus)) if signed else zero
    return zero, minus, e.choose(unfit, e.constant(1, b.type), b)


def _quotient(word: Any) -> Callable[[Operations, Values], SSAValue]:
    def write(e: Operations, x: Values) -> SSAValue:
        a, b = x
        none = e.constant(0, b.type)
        zero, minus, safe = _divisor(e, b, True)
        negated = e.add(arith.SubiOp(none, a))
        return e.choose(zero, none, e.choose(minus, negated, e.add(word(a, safe))))

    return write


_row(E.FloorDiv, "signed", 2)(_quotient(arith.FloorDivSIOp))
_row(E.TruncDiv, "signed", 2)(_quotient(arith.DivSIOp))


@_row(E.FloorDiv, "unsigned", 2)
def _unsigned_quotient(e: Operations, x: Values) -> SSAValue:
    a, b = x
    zero, _, safe = _divisor(e, b, False)
    return e.choose(zero, e.constant(0, b.type), e.add(arith.DivUIOp(a, safe)))


@_row(E.FloorMod, "signed", 2)
def _remainder(e: Operations, x: Values) -> SSAValue:
    a, b = x
    safe = _divisor(e, b, True)[2]
    return e.add(arith.SubiOp(a, e.add(arith.MuliOp(e.add(arith.FloorDivSIOp(a, safe)), safe))))


@_row(E.TruncMod, "signed", 2)
def _signed_rest(e: Operations, x: Values) -> SSAValue:
    return e.add(arith.RemSIOp(x[0], _divisor(e, x[1], True)[2]))


@_row(E.FloorMod, "unsigned", 2)
def _unsigned_rest(e: Operations, x: Values) -> SSAValue:
    return e.add(arith.RemUIOp(x[0], _divisor(e, x[1], False)[2]))


@_row(E.FloorMod, "signed index", 2, constant=True)
def _constant_remainder(e: Operations, x: Values) -> SSAValue:
    a, b = x
    return e.add(arith.SubiOp(a, e.add(arith.MuliOp(e.add(arith.FloorDivSIOp(a, b)), b))))


@_row("tir.isnan", "float", 1)
def _isnan(e: Operations, x: Values) -> SSAValue:
    return e.compare("uno", x[0], x[0])


@_row("tir.isinf", "float", 1)
def _isinf(e: Operations, x: Values) -> SSAValue:
    return e.compare("oeq", e.add(math.AbsFOp(x[0])), e.constant(float("inf"), x[0].type))


@_row("tir.isfinite", "float", 1)
def _isfinite(e: Operations, x: Values) -> SSAValue:
    return e.compare("olt", e.add(math.AbsFOp(x[0])), e.constant(float("inf"), x[0].type))


@_row("tir.sigmoid", "float", 1)
def _sigmoid(e: Operations, x: Values) -> SSAValue:
    one = e.constant(1.0, x[0].type)
    return e.add(arith.DivfOp(one, e.add(arith.AddfOp(one, e.add(math.ExpOp(e.add(arith.NegfOp(x[0]))))))))


@_row("tir.exp10", "float", 1)
def _exp10(e: Operations, x: Values) -> SSAValue:
    return e.add(math.PowFOp(e.constant(10.0, x[0].type), x[0]))


@_row("tir.fmod", "float", 2)
def _fmod(e: Operations, x: Values) -> SSAValue:
    return e.add(RemFOp.create(operands=list(x), result_types=[x[0].type]))


@_row("tir.bitwise_not", "signed unsigned", 1)
def _not(e: Operations, x: Values) -> SSAValue:
    return e.add(arith.XOrIOp(x[0], e.constant(-1, x[0].type)))


@_row(E.Not, "bool", 1)
def _negation(e: Operations, x: Values) -> SSAValue:
    return e.add(arith.XOrIOp(x[0], e.constant(-1, x[0].type)))


def _shift(word: Any, signed: bool) -> Callable[[Operations, Values], SSAValue]:
    """Returns the writer of a shift by any number. A number that is too large gives 0, or -1 for negative values."""

    def write(e: Operations, x: Values) -> SSAValue:
        a, n = x
        bits = _width(a.type)
        inside = e.compare("ult", n, e.constant(bits, n.type))
        last = e.constant(bits - 1, n.type)
        moved = e.add(word(a, e.choose(inside, n, last)))
        return moved if signed else e.choose(inside, moved, e.constant(0, a.type))

    return write


def _width(kind: Attribute) -> int:
    element: Any = kind.element_type if isinstance(kind, B.VectorType) else kind
    return int(element.width.data)


_row("tir.shift_left", "signed unsigned", 2)(_shift(arith.ShLIOp, False))
_row("tir.shift_right", "signed", 2)(_shift(arith.ShRSIOp, True))
_row("tir.shift_right", "unsigned", 2)(_shift(arith.ShRUIOp, False))


def template_for(node: Any, kind: str, constant: bool) -> Template | None:
    """Returns the template of a node for operands of a kind, the one for constant divisors where there is one."""
    found = [t for t in TEMPLATES if t.node == node and t.kind == kind and (constant or not t.constant)]
    return max(found, key=lambda t: t.constant, default=None)


def recognized(op: Operation) -> tuple[Template, list[SSAValue]] | None:
    """Returns the template that an operation ends, and its operands; the largest one where several fit."""
    if not op.operands or len(op.results) != 1:
        return None
    kind: Any = op.operands[-1].type
    root: Any = type(op)
    for template, last in _samples(kind, root):
        bound: dict[SSAValue, SSAValue] = {}
        if _fits(last, op, bound):
            block = last.parent_block()
            assert block is not None
            operands = [bound[arg] for arg in block.args]
            if not template.constant or isinstance(operands[1].owner, arith.ConstantOp):
                return template, operands
    return None


@cache
def _samples(kind: Attribute, root: Any) -> list[tuple[Template, Operation]]:
    """Returns the templates over placeholders of a type whose last operation is of a class, the longest ones first."""
    out: list[tuple[int, Template, Operation]] = []
    for template in TEMPLATES:
        if _column(kind) not in _COLUMNS[template.kind]:
            continue
        block = Block(arg_types=[kind] * template.arity)
        result = template.write(Operations(block), block.args)
        last = result.owner
        if isinstance(last, root):
            out.append((len(block.ops), template, last))
    return [(template, last) for _, template, last in sorted(out, key=lambda row: -row[0])]


_COLUMNS = {"float": "f", "signed": "i", "unsigned": "i", "bool": "b", "index": "x"}


def _column(kind: Attribute) -> str:
    element = kind.element_type if isinstance(kind, B.VectorType) else kind
    if isinstance(element, B.IndexType):
        return "x"
    if isinstance(element, B.IntegerType):
        return "b" if element.width.data == 1 else "i"
    return "f"


def _fits(sample: Operation, op: Operation, bound: dict[SSAValue, SSAValue]) -> bool:
    """Returns whether ``op`` is the operation of a template, over operands that it binds."""
    if type(sample) is not type(op) or sample.properties != op.properties or len(sample.operands) != len(op.operands):
        return False
    for a, b in zip(sample.operands, op.operands, strict=True):
        if isinstance(a.owner, Block):
            if bound.setdefault(a, b) is not b:
                return False
        elif isinstance(b.owner, Block) or not _fits(a.owner, b.owner, bound):
            return False
    return True


def _is_printed_as_bits(value: float, kind: Attribute) -> bool:
    """Returns whether xDSL prints a number as its bits, which it reads in a dense attribute as a whole number."""
    return not isfinite(value) or str(number(value, kind)).find("0x") >= 0
