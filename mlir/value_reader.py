"""Reads values of MLIR as expressions, and the parameters and sizes of functions, which both readers share.

A value that several operations use is one expression, which stands at each of its uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import affine, arith, func, math, scf, vector
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ..tir.expr import INDEX_TYPES, Broadcast, Call, Cast, DType, Expr, IntImm, Select, Var, const, is_const_int
from ..tir.expr import nodes as E
from ..tir.expr.deep_recursion import with_room
from ..tir.stmt import Buffer
from . import wider_operations as X
from .mlir_error import MlirError
from .mlir_types import (
    AS,
    ATTRIBUTES,
    DTYPE,
    INDEX_TYPE,
    SHAPE,
    SYMBOL,
    USUAL,
    dtype_of,
    evaluated,
    is_dynamic,
    mlir_type,
    plain_value,
    restored,
    signed_like,
)
from .operation_table import CALL_OF, NODE_OF, ORDERED, UNSIGNED, VALUE, recognized, shortest
from .wider_operations import CmpfOp, CmpiOp, RemFOp, SelectOp

WIDENED = "tilewright.widened"
"""The attribute of a conversion that stands for none: of an index that was added to a wider one."""

Rule = Callable[["ValueReader", Any], Expr]


class ValueReader:
    """Reads values. ``known`` has the expressions of some, ``rules`` the rules for operations besides the usual ones."""

    def __init__(self, known: dict[SSAValue, Expr], rules: dict[type[Any], Rule], index: DType, where: str) -> None:
        self.known, self.rules, self.index, self.where = known, rules, index, where
        self.waiting: set[SSAValue] = set()

    def refuse(self, op: Operation, why: str = "") -> MlirError:
        """Returns the error that an operation is not supported, with its place."""
        text = " ".join(str(op).split())
        short = text if len(text) < 160 else text[:157] + "..."
        return MlirError(f"{self.where}: {op.name} is not supported{f' ({why})' if why else ''}: {short}")

    @with_room
    def value(self, value: SSAValue) -> Expr:
        """Returns the expression of a value."""
        return self.read(value)

    def read(self, value: SSAValue) -> Expr:
        """Returns the expression of a value, within :meth:`value`."""
        found = self.known.get(value)
        if found is None:
            owner = value.owner
            if isinstance(owner, Block):
                raise MlirError(f"{self.where}: an argument of type {value.type} is used as a number")
            if value in self.waiting:
                raise MlirError(f"{self.where}: a value of {owner.name} depends on itself")
            self.waiting.add(value)
            found = self.known[value] = self._of(owner)
            self.waiting.discard(value)
        return found

    def _of(self, op: Operation) -> Expr:
        kind = type(op)
        rule = self.rules.get(kind)
        if rule is not None:
            return rule(self, op)
        if kind in _TEMPLATE_ENDS:
            found = recognized(op)
            if found is not None:
                template, operands = found
                node = _named(op, template.node)
                if template.arity == 2:
                    pair = self.pair(*operands)
                    return node(*pair) if isinstance(node, type) else Call(node, pair, pair[0].dtype)
                x = self.read(operands[0])
                return node(x) if isinstance(node, type) else Call(node, (x,), _result_type(op, x))
        if kind in NODE_OF and not (kind in _BITS and not _is_bool(op)):
            return self._node(op)
        if kind in CALL_OF:
            return self._call(op, CALL_OF[kind])
        rule = _RULES.get(kind)
        if rule is None:
            raise self.refuse(op)
        return rule(self, op)

    def _node(self, op: Operation) -> Expr:
        node, _ = NODE_OF[type(op)]
        a, b = self.pair(*op.operands)
        if type(op) in _UNSIGNED_EXTREMES:
            a, b = unsigned(a), unsigned(b)
        if node in (E.Add, E.Sub) and isinstance(b, IntImm):
            return restored(a, b.value, node)  # type: ignore[arg-type]
        ramp = ramp_of(a, b) if node is E.Add else None
        return node(a, b) if ramp is None else ramp

    def _call(self, op: Operation, name: str) -> Expr:
        args = [self.read(x) for x in op.operands]
        for other in args[1:]:
            args = [coerced(a, max((args[0].dtype, other.dtype), key=len)) if a.dtype != args[0].dtype else a for a in args]  # fmt: skip
        return Call(_named(op, name), tuple(args), args[0].dtype)

    def pair(self, x: SSAValue, y: SSAValue) -> tuple[Expr, Expr]:
        """Returns two operands in one data type; a constant takes the type of the other one."""
        a, b = self.read(x), self.read(y)
        if a.dtype == b.dtype:
            return a, b
        if _constant(a) or (not _constant(b) and a.dtype.bits < b.dtype.bits):
            return coerced(a, b.dtype), b
        return a, coerced(b, a.dtype)


def _constant(e: Expr) -> bool:
    return isinstance(e, E.IntImm) or (isinstance(e, Broadcast) and isinstance(e.value, E.IntImm))


def coerced(e: Expr, dtype: DType) -> Expr:
    """Returns an integer as one of another type: the same bits, or an index of another width."""
    if e.dtype == dtype:
        return e
    if isinstance(e, IntImm):
        return const(_wrapped(e.value, dtype), dtype)
    if isinstance(e, Broadcast) and isinstance(e.value, IntImm):
        return Broadcast(const(_wrapped(e.value.value, dtype.element), dtype.element), e.lanes)
    if e.dtype.bits == dtype.bits and e.dtype.is_int and dtype.is_int:
        return Call("tir.reinterpret", (e,), dtype)
    if e.dtype.element in INDEX_TYPES and dtype.element in INDEX_TYPES:
        return Cast(dtype, e)
    raise MlirError(f"a value of type {e.dtype} is used as {dtype}: {e}")


def _wrapped(value: int, dtype: DType) -> int:
    if dtype.is_bool:
        return value & 1
    low = value & ((1 << dtype.bits) - 1)
    return low - (1 << dtype.bits) if dtype.is_signed and low >> (dtype.bits - 1) else low


def unsigned(e: Expr) -> Expr:
    """Returns an integer with the same bits, without a sign."""
    return coerced(e, DType(e.dtype.replace("int", "uint", 1))) if e.dtype.is_signed else e


def signed(e: Expr) -> Expr:
    """Returns an integer with the same bits, with a sign."""
    return coerced(e, DType(e.dtype[1:])) if e.dtype.kind == "uint" else e


def _named(op: Operation, usual: Any) -> Any:
    """Returns the node or call that an operation stands for: the usual one, unless its attribute names another."""
    mark = op.attributes.get(AS)
    if mark is None:
        return usual
    name = plain_value(mark)
    node = {cls.__name__: cls for cls in (E.Div, E.TruncDiv, E.TruncMod, E.Cast)}.get(name)
    if node is None and not str(name).startswith("tir."):
        raise MlirError(f"{AS} = {mark} names no node")
    return node or name


def _result_type(op: Operation, x: Expr) -> DType:
    return x.dtype if op.results[0].type == op.operands[-1].type else dtype_of(op.results[0].type)


def _is_bool(op: Operation) -> bool:
    return dtype_of(op.results[0].type).is_bool


_BITS = (arith.AndIOp, arith.OrIOp)
_UNSIGNED_EXTREMES = (arith.MinUIOp, arith.MaxUIOp)
_TEMPLATE_ENDS = frozenset({
    SelectOp, CmpfOp, RemFOp, arith.SubiOp, arith.RemSIOp, arith.RemUIOp, arith.DivfOp, math.PowFOp, arith.XOrIOp, arith.ShRSIOp,
})  # fmt: skip


def _constant_value(r: ValueReader, op: Any) -> Expr:
    value, kind = op.value, op.result.type
    if isinstance(value, B.DenseIntOrFPElementsAttr):
        if not isinstance(kind, B.VectorType):
            raise r.refuse(op, "a tensor of constants; pass it as an argument")
        numbers = list(value.get_values())
        dtype = dtype_of(kind)
        if len(set(map(repr, numbers))) == 1:
            return Broadcast(_number(op, numbers[0], dtype.element), dtype.lanes)
        if numbers == list(range(len(numbers))):
            return E.Ramp(const(0, dtype.element), const(1, dtype.element), dtype.lanes)
        raise r.refuse(op, "a vector of different constants")
    dtype = r.index if isinstance(kind, B.IndexType) else dtype_of(kind)
    return _number(op, value.value.data, dtype)


def _number(op: Any, number: Any, dtype: DType) -> Expr:
    if dtype.is_float:
        given = op.attributes.get(VALUE)
        return const(shortest(number, mlir_type(dtype)) if given is None else plain_value(given), dtype)
    return const(abs(int(number)) if dtype.is_bool else number, dtype)


def _compare_integers(r: ValueReader, op: Any) -> Expr:
    a, b = r.pair(op.lhs, op.rhs)
    if AS in op.attributes:
        return Cast(dtype_of(op.result.type), a)
    word = op.word
    if word.startswith("u"):
        a, b = unsigned(a), unsigned(b)
    elif word.startswith("s"):
        a, b = signed(a), signed(b)
    for node, name in UNSIGNED.items():
        if name == word or name == f"u{word[1:]}":
            return node(a, b)
    raise r.refuse(op)


def _compare_floats(r: ValueReader, op: Any) -> Expr:
    a, b = r.pair(op.lhs, op.rhs)
    if AS in op.attributes:
        return Cast(dtype_of(op.result.type), a)
    for node, name in ORDERED.items():
        if name == op.word:
            return node(a, b)
    opposite = {"ueq": E.NE, "ugt": E.LE, "uge": E.LT, "ult": E.GE, "ule": E.GT, "one": E.EQ}
    if op.word == "ord":
        return E.And(E.EQ(a, a), E.EQ(b, b))
    if op.word == "uno":
        return E.Or(E.NE(a, a), E.NE(b, b))
    if op.word == "one":
        return E.Or(E.LT(a, b), E.GT(a, b))
    if op.word == "ueq":
        return E.Not(E.Or(E.LT(a, b), E.GT(a, b)))
    if op.word in opposite:
        return E.Not(opposite[op.word](a, b))
    raise r.refuse(op)


def _select(r: ValueReader, op: Any) -> Expr:
    if AS in op.attributes:  # a conversion of floats, with the ends of the type and NaN chosen around it
        inside = op
        while isinstance(inside, SelectOp):
            inside = inside.rhs.owner
        if isinstance(inside, (X.FPToSIOp, X.FPToUIOp)):
            return r.read(inside.results[0])
    return Select(r.read(op.cond), *r.pair(op.lhs, op.rhs))


def _divided(node: Any, convert: Callable[[Expr], Expr]) -> Rule:
    def read(r: ValueReader, op: Any) -> Expr:
        a, b = r.pair(*op.operands)
        return _named(op, node)(convert(a), convert(b))

    return read


def _cast(convert: Callable[[Expr], Expr] = lambda e: e) -> Rule:
    def read(r: ValueReader, op: Any) -> Expr:
        e = r.read(op.operands[0])
        if WIDENED in op.attributes:
            return e
        e = e if e.dtype.is_bool or e.dtype.is_float else convert(e)
        to = dtype_of(op.results[0].type)
        if e.dtype == to:  # truth values lie in memory as bytes
            return e
        if to.is_bool and e.dtype.is_int:
            return E.NE(Call("tir.bitwise_and", (e, const(1, e.dtype)), e.dtype), const(0, e.dtype))
        if isinstance(op, X.TruncIOp) and e.dtype.kind == "uint":
            to = DType(f"u{to}")
        if isinstance(op, X.FPToUIOp):
            to = DType(f"u{to}")
        return Cast(signed_like(to, op.attributes) if DTYPE in op.attributes else to, e)

    return read


def _truncated_float(r: ValueReader, op: Any) -> Expr:
    e, to = r.read(op.operands[0]), dtype_of(op.results[0].type)
    if isinstance(e, Cast) and e.value.dtype.is_float and e.value.dtype.bits == to.bits and e.value.dtype != to:
        return Cast(to, e.value)
    return Cast(to, e)


def _bitcast(r: ValueReader, op: Any) -> Expr:
    e = r.read(op.operands[0])
    to = signed_like(dtype_of(op.results[0].type), op.attributes)
    return Cast(to, e) if AS in op.attributes else Call("tir.reinterpret", (e,), to)


def _index_cast(r: ValueReader, op: Any) -> Expr:
    e, kind = r.read(op.operands[0]), op.results[0].type
    if isinstance(kind, B.IndexType):
        return e if e.dtype in INDEX_TYPES else Cast(r.index, e)
    return coerced(e, dtype_of(kind)) if isinstance(e, IntImm) else e if e.dtype == dtype_of(kind) else Cast(dtype_of(kind), e)  # fmt: skip


def _exclusive_or(r: ValueReader, op: Any) -> Expr:
    a, b = r.pair(*op.operands)
    return E.NE(a, b) if a.dtype.is_bool else Call("tir.bitwise_xor", (a, b), a.dtype)


def _bits(name: str) -> Rule:
    def read(r: ValueReader, op: Any) -> Expr:
        a, b = r.pair(*op.operands)
        return Call(name, (a, b), a.dtype)

    return read


def yielded(region: Region) -> SSAValue:
    """Returns the one value that a region yields. MlirError where there is none, or several."""
    last = region.block.last_op
    if last is None or len(last.operands) != 1:
        raise MlirError(f"a region yields {0 if last is None else len(last.operands)} values where one is expected")
    return last.operands[0]


def _if(r: ValueReader, op: Any) -> Expr:
    if len(op.results) != 1 or not op.false_region.blocks:
        raise r.refuse(op, "as a value it has one result and two sides")
    test, yes, no = r.read(op.cond), r.read(yielded(op.true_region)), r.read(yielded(op.false_region))
    if yes.dtype.is_bool and is_const_int(no, 0):
        return E.And(test, yes)
    if yes.dtype.is_bool and is_const_int(yes, 1):
        return E.Or(test, no)
    if yes.dtype != no.dtype:
        no = coerced(no, yes.dtype) if _constant(no) else no
        yes = coerced(yes, no.dtype)
    return Call("tir.if_then_else", (test, yes, no), yes.dtype)


def _apply(r: ValueReader, op: Any) -> Expr:
    values = [r.read(v) for v in op.mapOperands]
    found = op.map.data
    return evaluated(found, values[: found.num_dims], values[found.num_dims :], r.index)[0]


def _broadcast(r: ValueReader, op: Any) -> Expr:
    e, to = r.read(op.operands[0]), dtype_of(op.results[0].type)
    if e.dtype.lanes > 1:
        raise r.refuse(op, "of a vector")
    return Broadcast(e, to.lanes)


def ramp_of(a: Expr, b: Expr) -> Expr | None:
    """Returns the ramp that ``broadcast(base) + lanes * broadcast(stride)`` is, None for another sum."""
    if isinstance(a, Broadcast) and isinstance(b, E.Mul) and isinstance(b.a, E.Ramp) and isinstance(b.b, Broadcast):
        first = b.a
        if is_const_int(first.base, 0) and is_const_int(first.stride, 1):
            return E.Ramp(a.value, b.b.value, first.lanes)
    return None


def _extract(r: ValueReader, op: Any) -> Expr:
    places = op.static_position.get_values()
    if len(places) != 1 or op.dynamic_position:
        raise r.refuse(op, "at a place that is not constant")
    return E.Shuffle((r.read(op.vector),), (int(places[0]),))


def _shuffle(r: ValueReader, op: Any) -> Expr:
    a, b = r.read(op.v1), r.read(op.v2)
    mask = tuple(int(n) for n in op.mask.get_values())
    return E.Shuffle((a, b) if a is not b or any(n >= a.dtype.lanes for n in mask) else (a,), mask)


def _reduction(r: ValueReader, op: Any) -> Expr:
    names = {"add": "add", "mul": "mul", "maximumf": "max", "minimumf": "min", "maxsi": "max", "minsi": "min",
             "maxui": "max", "minui": "min", "maxnumf": "fmax", "minnumf": "fmin"}  # fmt: skip
    word = op.kind.data.value
    if word not in names or op.acc is not None:
        raise r.refuse(op)
    e = r.read(op.vector)
    return Call(f"tir.vector_reduce_{names[word]}", (unsigned(e) if word.endswith("ui") else e,), e.dtype.element)


def _fused(r: ValueReader, op: Any) -> Expr:
    args = tuple(r.read(v) for v in op.operands)
    return Call("tir.fma", args, args[0].dtype)


def _number_extreme(node: Any) -> Rule:
    def read(r: ValueReader, op: Any) -> Expr:
        a, b = r.pair(*op.operands)
        return Select(E.Or(Call("tir.isnan", (a,), E.EQ(a, a).dtype), node(b, a)), b, a)

    return read


def _magnitude(r: ValueReader, op: Any) -> Expr:
    x = r.read(op.operands[0])
    zero = const(0, x.dtype)
    return Select(E.GE(x, zero), x, E.Sub(zero, x))


_RULES: dict[type[Any], Rule] = {
    arith.ConstantOp: _constant_value,
    CmpiOp: _compare_integers,
    CmpfOp: _compare_floats,
    SelectOp: _select,
    arith.FloorDivSIOp: _divided(E.FloorDiv, signed),
    arith.DivSIOp: _divided(E.TruncDiv, signed),
    arith.RemSIOp: _divided(E.TruncMod, signed),
    arith.DivUIOp: _divided(E.FloorDiv, unsigned),
    arith.RemUIOp: _divided(E.FloorMod, unsigned),
    X.ExtSIOp: _cast(signed),
    arith.ExtSIOp: _cast(signed),  # in the hidden bodies of xDSL
    X.ExtUIOp: _cast(unsigned),
    X.TruncIOp: _cast(),
    X.SIToFPOp: _cast(signed),
    X.UIToFPOp: _cast(unsigned),
    X.FPToSIOp: _cast(),
    X.FPToUIOp: _cast(),
    X.ExtFOp: _cast(),
    X.TruncFOp: _truncated_float,
    arith.BitcastOp: _bitcast,
    vector.BitcastOp: _bitcast,
    arith.IndexCastOp: _index_cast,
    arith.XOrIOp: _exclusive_or,
    arith.AndIOp: _bits("tir.bitwise_and"),
    arith.OrIOp: _bits("tir.bitwise_or"),
    arith.ShLIOp: _bits("tir.shift_left"),
    arith.ShRSIOp: _bits("tir.shift_right"),
    arith.ShRUIOp: lambda r, op: Call("tir.shift_right", tuple(map(unsigned, r.pair(*op.operands))), unsigned(r.read(op.lhs)).dtype),
    arith.NegfOp: lambda r, op: E.Mul(r.read(op.operand), const(-1.0, r.read(op.operand).dtype)),
    arith.MaxnumfOp: _number_extreme(E.GT),
    arith.MinnumfOp: _number_extreme(E.LT),
    math.AbsIOp: _magnitude,
    scf.IfOp: _if,
    affine.ApplyOp: _apply,
    vector.BroadcastOp: _broadcast,
    vector.ExtractOp: _extract,
    vector.ShuffleOp: _shuffle,
    vector.ReductionOp: _reduction,
    vector.FMAOp: _fused,
}  # fmt: skip


# Reads what functions on tensors and on memory have in common: parameters, sizes, attributes.


@dataclass
class ReadArguments:
    """The arguments of a function as buffers and scalars, by their values, and the names that are taken."""

    op: func.FuncOp
    index: DType
    found: dict[SSAValue, Any] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def where(self) -> str:
        """What errors call the function."""
        return f"function {self.op.sym_name.data}"

    def name(self, value: SSAValue, usual: str) -> str:
        """Returns a name for a value that nothing else has: its own in the text, or ``usual``."""
        wish = value.name_hint or usual
        out, n = wish, 1
        while out in self.taken:
            out, n = f"{wish}_{n}", n + 1
        self.taken.add(out)
        return out

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes that the function has in TIR."""
        given = self.op.attributes.get(ATTRIBUTES)
        return {"global_symbol": self.op.sym_name.data, **(USUAL if given is None else plain_value(given))}


def read_arguments(op: func.FuncOp, same_size: Callable[[tuple[SSAValue, int]], Any]) -> ReadArguments:
    """Returns the arguments. ``same_size`` returns a key that is equal for sizes that are known to be equal."""
    index = DType("int64") if op.attributes.get(INDEX_TYPE) == B.i64 else DType("int32")
    out = ReadArguments(op, index)
    given: Any = op.arg_attrs.data if op.arg_attrs is not None else ()
    attrs: list[Mapping[str, Attribute]] = [d.data for d in given] or [{} for _ in op.body.block.args]
    symbols: dict[int, Var] = {}
    for value, own in zip(op.body.block.args, attrs, strict=True):
        if not isinstance(value.type, (B.TensorType, B.MemRefType)):
            var = Var(out.name(value, "n"), signed_like(dtype_of(value.type), own))
            out.found[value] = var
            if SYMBOL in own:
                symbols[plain_value(own[SYMBOL])] = var
    sizes: dict[Any, Var] = {}

    def size(value: SSAValue, n: int) -> Expr:
        key = same_size((value, n))
        if key not in sizes:
            sizes[key] = Var(f"{'mnpqrstuvw'[len(sizes) % 10]}{len(sizes) // 10 or ''}", index)
        return sizes[key]

    for value, own in zip(op.body.block.args, attrs, strict=True):
        kind = value.type
        if not isinstance(kind, (B.TensorType, B.MemRefType)):
            continue
        if SHAPE in own:
            map_: Any = own[SHAPE]
            for n in range(map_.data.num_symbols):
                symbols.setdefault(n, Var(f"n{n}", index))
            shape = evaluated(map_.data, (), [symbols[n] for n in range(map_.data.num_symbols)], index)
        else:
            shape = tuple([size(value, n) if is_dynamic(s) else const(s, index) for n, s in enumerate(kind.get_shape())])  # fmt: skip
        if len(shape) != len(kind.get_shape()):
            raise MlirError(f"{out.where}: {SHAPE} of an argument has {len(shape)} sizes for the type {kind}")
        out.found[value] = Buffer(out.name(value, "A"), shape, signed_like(dtype_of(kind.element_type), own))
    return out
