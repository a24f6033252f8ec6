"""This module writes expressions: one operation of MLIR for a node, by the rows of :mod:`.operation_table`.

Indices are values of type ``index`` as long as they consist of variables and constants; where they meet data they
become integers of their type.

The writer is no :class:`~tilewright.codegen.backend.emitter.Emitter`. That one asks a target for words, one for each meaning of a node, and
computes indices in 64 bits. Here an operation is a row of the table that the reader takes backwards, so that a word for
it would be a second place, and an index is a type of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, scf, vector
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Region, SSAValue

from ..tir.expr import BufferLoad, Call, DType, Expr, IntImm, Var, index_like, pre_order, reads_memory
from ..tir.expr import nodes as E
from ..tir.expr.dtype import max_value, min_value, round_float
from . import wider_operations as X
from .mlir_error import MlirError
from .mlir_types import hint, is_unsigned, mlir_type, sign_attribute
from .operation_table import BINARY, CALLS, ORDERED, SECOND_NAMES, SIGNED, UNSIGNED, Operations, kind_of, template_for

INDEX = B.IndexType()
_ON_INDICES: dict[type[Expr], Any] = {
    E.Add: arith.AddiOp,
    E.Sub: arith.SubiOp,
    E.Mul: arith.MuliOp,
    E.FloorDiv: arith.FloorDivSIOp,
    E.Min: arith.MinSIOp,
    E.Max: arith.MaxSIOp,
}


class ValueWriter:
    """Writes expressions at the end of a block.

    ``vars`` has the values of variables, ``load`` writes a load, ``where`` says in errors what is being written.
    """

    def __init__(
        self,
        ops: Operations,
        vars: dict[Var, SSAValue],
        load: Callable[[ValueWriter, BufferLoad], SSAValue],
        where: str = "",
    ) -> None:
        self.ops, self.vars, self.load, self.where = ops, vars, load, where
        self.known: dict[tuple[Expr, bool], SSAValue] = {}
        self.is_free: Callable[[BufferLoad], bool] = lambda load: False
        """Whether a read may be done before it is known that it is needed."""

    def refuse(self, what: object) -> MlirError:
        """Returns the error that something has no counterpart, with its place."""
        return MlirError(f"{self.where}: {what} has no counterpart in MLIR")

    def inside(self, block: Block) -> ValueWriter:
        """Returns a writer for a block within this one, which may use what was written so far."""
        out = ValueWriter(self.ops.inside(block), dict(self.vars), self.load, self.where)
        out.known, out.is_free = dict(self.known), self.is_free
        return out

    def forget(self) -> None:
        """Forget values that were read from memory, before memory changes."""
        self.known = {key: v for key, v in self.known.items() if not reads_memory(key[0])}

    # values

    def value(self, e: Expr) -> SSAValue:
        """Returns the value of an expression, in the type of its data type."""
        return self._once(e, False)

    def index(self, e: Expr) -> SSAValue:
        """Returns the value of an integer as an index."""
        return self._once(e, True)

    def _once(self, e: Expr, as_index: bool) -> SSAValue:
        key = (e, as_index)
        if key not in self.known:
            self.known[key] = self._index(e) if as_index else self._value(e)
        return self.known[key]

    def _index(self, e: Expr) -> SSAValue:
        kind = type(e)
        if isinstance(e, IntImm):
            return self.ops.constant(e.value, INDEX)
        if isinstance(e, Var) and self.variable(e).type == INDEX:
            return self.vars[e]
        if kind in _ON_INDICES and index_like(e):
            a, b = self.index(e.a), self.index(e.b)  # type: ignore[attr-defined]
            return self.ops.add(_ON_INDICES[kind](a, b))
        if isinstance(e, E.FloorMod) and index_like(e) and isinstance(e.b, IntImm):
            template = template_for(E.FloorMod, "index", True)
            assert template is not None
            return template.write(self.ops, (self.index(e.a), self.index(e.b)))
        return self.ops.add(arith.IndexCastOp(self.value(e), INDEX))

    def variable(self, var: Var) -> SSAValue:
        """Returns the value of a variable."""
        if var not in self.vars:
            raise self.refuse(f"the variable {var.name}")
        return self.vars[var]

    def _value(self, e: Expr) -> SSAValue:
        if isinstance(e, BufferLoad):
            return self.load(self, e)
        if isinstance(e, Var):
            value = self.variable(e)
            return self.ops.add(arith.IndexCastOp(value, mlir_type(e.dtype))) if value.type == INDEX else value
        if isinstance(e, (E.IntImm, E.FloatImm)):
            return self.ops.constant(e.value, mlir_type(e.dtype))
        if e.dtype.lanes == 1 and type(e) in (*_ON_INDICES, E.FloorMod) and self._is_index(e):
            return self.ops.add(arith.IndexCastOp(self.index(e), mlir_type(e.dtype)))
        rule = _RULES.get(type(e))
        if rule is None:
            raise self.refuse(f"{type(e).__name__} in `{e}`")
        return rule(self, e)

    def _is_index(self, e: Expr) -> bool:
        """Returns whether an expression is computed as an index: its variables are indices."""
        if not index_like(e):
            return False
        found = [self.variable(v).type == INDEX for v in _variables(e)]
        return all(found) and bool(found)

    def branches(self, condition: Expr, sides: Sequence[Expr], kind: Attribute) -> SSAValue:
        """Returns the value of the side that a condition chooses; the other one is not evaluated."""
        blocks = []
        test = self.value(condition)
        for side in sides:
            block = Block()
            inner = self.inside(block)
            value = inner.value(side)
            block.add_op(scf.YieldOp(value))
            blocks.append(Region(block))
        return self.ops.add(scf.IfOp(test, [kind], blocks[0], blocks[1]))

    def marked(self, value: SSAValue, **attributes: Attribute) -> SSAValue:
        """Returns a value whose operation has more attributes."""
        if not isinstance(value.owner, Block):
            value.owner.attributes.update({f"tilewright.{k}": v for k, v in attributes.items()})
        return value


def _variables(e: Expr) -> list[Var]:
    if isinstance(e, Var):
        return [e]
    return [v for child in e.children() for v in _variables(child)]


def _loads(e: Expr) -> list[BufferLoad]:
    return [n for n in pre_order(e) if isinstance(n, BufferLoad)]


def _binary(w: ValueWriter, e: Any) -> SSAValue:
    kind = kind_of(e.dtype)
    row = BINARY.get((type(e), kind))
    if row is not None:
        if kind == "bool" and e.dtype.lanes == 1 and not all(map(w.is_free, _loads(e.b))):
            no = IntImm(0, e.dtype) if isinstance(e, E.And) else IntImm(1, e.dtype)
            sides = (e.b, no) if isinstance(e, E.And) else (no, e.b)
            return w.branches(e.a, sides, mlir_type(e.dtype))
        return w.ops.add(row(w.value(e.a), w.value(e.b)))
    return _division(w, e, kind)


_EXACT = {
    (E.FloorDiv, "signed"): arith.FloorDivSIOp,
    (E.TruncDiv, "signed"): arith.DivSIOp,
    (E.TruncMod, "signed"): arith.RemSIOp,
    (E.FloorDiv, "unsigned"): arith.DivUIOp,
    (E.FloorMod, "unsigned"): arith.RemUIOp,
}
"""Divisions whose divisor is neither 0 nor -1."""
_SAME: dict[Any, dict[str, Any]] = {
    E.Div: {"signed": E.TruncDiv, "unsigned": E.FloorDiv},
    E.TruncDiv: {"unsigned": E.FloorDiv},
    E.TruncMod: {"unsigned": E.FloorMod},
}
"""Divisions that another node means as well, for operands of a kind."""


def _division(w: ValueWriter, e: Any, kind: str) -> SSAValue:
    node = _SAME.get(type(e), {}).get(kind, type(e))
    divisor = e.b.value if isinstance(e.b, E.Broadcast) else e.b
    constant = isinstance(divisor, IntImm) and divisor.value not in (0, -1)
    operands = (w.value(e.a), w.value(e.b))
    if constant and (node, kind) in _EXACT:
        out = w.ops.add(_EXACT[node, kind](*operands))
    else:
        template = template_for(node, kind, constant)
        if template is None:
            raise w.refuse(f"{type(e).__name__} of {e.dtype} in `{e}`")
        out = template.write(w.ops, operands)
    return out if node is type(e) else w.marked(out, **{"as": B.StringAttr(type(e).__name__)})


def _comparison(w: ValueWriter, e: Any) -> SSAValue:
    dtype = e.a.dtype
    if dtype.is_float:
        return w.ops.compare(ORDERED[type(e)], w.value(e.a), w.value(e.b))
    if dtype.lanes == 1 and (w._is_index(e.a) and index_like(e.b) or w._is_index(e.b) and index_like(e.a)):
        return w.ops.compare(SIGNED[type(e)], w.index(e.a), w.index(e.b))
    words = SIGNED if dtype.is_signed else UNSIGNED
    return w.ops.compare(words[type(e)], w.value(e.a), w.value(e.b))


def _not(w: ValueWriter, e: Any) -> SSAValue:
    template = template_for(E.Not, "bool", False)
    assert template is not None
    return template.write(w.ops, (w.value(e.a),))


def _select(w: ValueWriter, e: Any) -> SSAValue:
    return w.ops.choose(w.value(e.condition), w.value(e.true_value), w.value(e.false_value))


def _cast(w: ValueWriter, e: Any) -> SSAValue:
    source, to = e.value.dtype, e.dtype
    kind, x = mlir_type(to), w.value(e.value)
    if to.is_bool:
        word = "une" if source.is_float else "ne"
        return w.marked(w.ops.compare(word, x, w.ops.constant(0, x.type)), **{"as": B.StringAttr("Cast")})
    out = _converted(w, x, source, to, kind)
    return w.marked(out, dtype=sign_attribute(to)) if is_unsigned(to) else out


def _converted(w: ValueWriter, x: SSAValue, source: DType, to: DType, kind: Any) -> SSAValue:
    add, unsigned = w.ops.add, not source.is_signed
    if source.is_float and to.is_float:
        if source.bits == to.bits:  # float16 and bfloat16: every value of either is a float32
            wide: Any = mlir_type(DType("float32").with_lanes(to.lanes))
            return add(X.TruncFOp.of(add(X.ExtFOp.of(x, wide)), kind))
        return add((X.ExtFOp if to.bits > source.bits else X.TruncFOp).of(x, kind))
    if source.is_float:
        return _saturated(w, x, source, to, kind)
    if to.is_float:
        return add((X.UIToFPOp if unsigned else X.SIToFPOp).of(x, kind))
    if to.bits == source.bits:
        return w.marked(add(arith.BitcastOp(x, kind)), **{"as": B.StringAttr("Cast"), "dtype": sign_attribute(to)})
    if to.bits < source.bits:
        return w.marked(add(X.TruncIOp.of(x, kind)), dtype=sign_attribute(to))
    return add((X.ExtUIOp if unsigned else X.ExtSIOp).of(x, kind))


def _saturated(w: ValueWriter, x: SSAValue, source: DType, to: DType, kind: Any) -> SSAValue:
    """Returns a float as an integer: beyond the type's ends the nearer end, for NaN 0. MLIR's own conversion has no
    value there, so that it is chosen only inside.

    The ends are compared as floats. An end that the type of floats does not reach is an infinity.
    """
    ops, low, high = w.ops, int(min_value(to)), int(max_value(to))
    inside = ops.add((X.FPToSIOp if to.is_signed else X.FPToUIOp).of(x, kind))
    above = ops.compare("oge", x, ops.constant(round_float(float(high + 1), source.element), x.type))
    out = ops.choose(above, ops.constant(high, kind), inside)
    below = ops.compare("ole", x, ops.constant(round_float(float(low), source.element), x.type))
    out = ops.choose(below, ops.constant(low, kind), out)
    out = ops.choose(ops.compare("uno", x, x), ops.constant(0, kind), out)
    return w.marked(out, **{"as": B.StringAttr("Cast")})


def _call(w: ValueWriter, e: Any) -> SSAValue:
    if e.op in _CALL_RULES:
        return _CALL_RULES[e.op](w, e)
    row = CALLS.get(e.op)
    if row is not None:
        out = w.ops.add(row[0](*map(w.value, e.args)))
        return w.marked(out, **{"as": B.StringAttr(e.op)}) if e.op in SECOND_NAMES else out
    template = template_for(e.op, kind_of(e.args[0].dtype) if e.args else "", False)
    if template is None:
        raise w.refuse(f"{e.op} in `{e}`")
    return template.write(w.ops, [w.value(a) for a in e.args])


def _let(w: ValueWriter, e: Any) -> SSAValue:
    w.vars[e.var] = hint(w.value(e.value), e.var.name)
    return w.value(e.body)


def _ramp(w: ValueWriter, e: Any) -> SSAValue:
    kind: Any = mlir_type(e.dtype)
    lanes = w.ops.add(arith.ConstantOp(B.DenseIntOrFPElementsAttr.from_list(kind, list(range(e.lanes))), kind))
    steps = w.ops.add(arith.MuliOp(lanes, w.ops.add(vector.BroadcastOp(w.value(e.stride), kind))))
    return w.ops.add(arith.AddiOp(w.ops.add(vector.BroadcastOp(w.value(e.base), kind)), steps))


def _broadcast(w: ValueWriter, e: Any) -> SSAValue:
    kind: Any = mlir_type(e.dtype)
    if isinstance(e.value, (E.IntImm, E.FloatImm)):
        return w.ops.constant(e.value.value, kind)
    return w.ops.add(vector.BroadcastOp(w.value(e.value), kind))


def _shuffle(w: ValueWriter, e: Any) -> SSAValue:
    if len(e.indices) == 1 and len(e.vectors) == 1:
        return w.ops.add(vector.ExtractOp(w.value(e.vectors[0]), [e.indices[0]], mlir_type(e.dtype)))
    if len(e.vectors) > 2 or any(v.dtype.lanes == 1 for v in e.vectors) or len(e.indices) == 1:
        raise w.refuse(f"a shuffle of {len(e.vectors)} vectors in `{e}`")
    vectors = [w.value(v) for v in (e.vectors * 2)[:2]]
    mask: Any = B.DenseArrayBase.from_list(B.i64, list(e.indices))
    return w.ops.add(vector.ShuffleOp(vectors[0], vectors[1], mask, result_type=mlir_type(e.dtype)))


def _if_then_else(w: ValueWriter, e: Any) -> SSAValue:
    if e.args[0].dtype.lanes > 1:
        raise w.refuse(f"if_then_else of vectors in `{e}`")
    return w.branches(e.args[0], e.args[1:], mlir_type(e.dtype))


def _reinterpret(w: ValueWriter, e: Any) -> SSAValue:
    out = w.ops.add(arith.BitcastOp(w.value(e.args[0]), mlir_type(e.dtype)))
    return w.marked(out, dtype=sign_attribute(e.dtype)) if is_unsigned(e.dtype) else out


_REDUCTIONS = {
    "add": ("add", "add", "add"),
    "mul": ("mul", "mul", "mul"),
    "max": ("maximumf", "maxsi", "maxui"),
    "min": ("minimumf", "minsi", "minui"),
    "fmax": ("maxnumf", "", ""),
    "fmin": ("minnumf", "", ""),
}


def _lanes(how: str) -> Callable[[ValueWriter, Any], SSAValue]:
    def write(w: ValueWriter, e: Any) -> SSAValue:
        (v,) = e.args
        if e.dtype.lanes > 1 or v.dtype.is_bool:
            raise w.refuse(f"{e.op} to {e.dtype} in `{e}`")
        column = ("float", "signed", "unsigned").index(kind_of(e.dtype))
        flag: Attribute = vector.CombiningKindAttr(vector.CombiningKindFlag(_REDUCTIONS[how][column]))
        properties = {"kind": flag, "fastmath": arith.FastMathFlagsAttr("none")}
        made = vector.ReductionOp.create(
            operands=[w.value(v)], result_types=[mlir_type(e.dtype)], properties=properties
        )
        return w.ops.add(made)

    return write


_CALL_RULES: dict[str, Callable[[ValueWriter, Any], SSAValue]] = {
    "tir.if_then_else": _if_then_else,
    "tir.likely": lambda w, e: w.value(e.args[0]),
    "tir.reinterpret": _reinterpret,
    **{f"tir.vector_reduce_{how}": _lanes(how) for how in _REDUCTIONS},
}
_RULES: dict[type[Expr], Callable[[ValueWriter, Any], SSAValue]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max, E.And, E.Or), _binary),
    **dict.fromkeys((E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod), _binary),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), _comparison),
    E.Not: _not,
    E.Select: _select,
    E.Cast: _cast,
    Call: _call,
    E.Let: _let,
    E.Ramp: _ramp,
    E.Broadcast: _broadcast,
    E.Shuffle: _shuffle,
}
