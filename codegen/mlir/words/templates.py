"""This module has operations that take several operations of MLIR: division as NumPy has it, tests of floats, sigmoid.

A template writes them for given operands. A reader recognizes them by writing the template again, over placeholders, and
comparing operation by operation: :func:`recognized`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from xdsl.dialects import arith, math
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Operation, SSAValue

from ....tir.expr.nodes import expr as E
from .operations import Operations
from .wider_operations import RemFOp

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
