"""This module finds programs whose sizes or indices need 64 bits, and gives them 64 bits in all index arithmetic.

:func:`with_index_dtype` rewrites a function so that its loops, block axes, sizes and indices have one data type.

Loop variables, sizes and indices are int32 by default. A program needs 64 bits when a buffer has more elements than
int32 counts, or when an index expression may leave int32 (``i * 50000 + j`` with i and j below 50000). Such a program
is rewritten as a whole, so that index expressions have one type and constants that are folded into each other cannot
overflow. A nest of loops that only has more iterations in all than int32 counts, such as a matrix product, stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .arith.normal_form.forms import EVERYTHING, Interval
from .expr import (
    INDEX,
    INDEX_TYPES,
    WIDE,
    Add,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    cast,
    distinct,
    is_const_int,
    max_value,
    min_value,
    pre_order,
)
from .expr.node import Mapper
from .stmt import Block, Buffer, For, LetStmt, PrimFunc, Stmt, statements

ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max)


def with_index_dtype(func: PrimFunc, dtype: DType, *, params: bool = True, keep_data: bool = False) -> PrimFunc:
    """Return ``func`` with loops, block axes, sizes and indices of type ``dtype``, int32 or int64.

    With ``params`` scalar parameters that are sizes or indices get the type as well. With ``keep_data`` arithmetic on
    values from memory keeps its type inside indices, and wraps around there as before; otherwise ``i * 50000 + T[i]`` gets
    the new type. ValueError when ``dtype`` is neither int32 nor int64, or does not hold a constant among the sizes.
    """
    if dtype not in INDEX_TYPES:
        raise ValueError(f"indices are int32 or int64, not {dtype!r}")
    return _Retyper(func, dtype, params, keep_data).run()


class _Retyper(Mapper):
    """Rewrites one function. :meth:`index` returns index expressions in the new type, :meth:`data` keeps the type of a
    value."""

    def __init__(self, func: PrimFunc, dtype: DType, params: bool, keep_data: bool) -> None:
        self.func = func
        self.dtype = dtype
        self.keep_data = keep_data
        self.vars: dict[Var, Expr] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        self.kept: set[Var] = set()
        sizes = {n for b in func.buffers for e in _sizes(b) for n in pre_order(e) if isinstance(n, Var)}
        for var in func.params:
            if var.dtype in INDEX_TYPES and var not in func.buffer_map:
                if params and (var in sizes or var.dtype == INDEX):
                    self.bind(var)
                elif var.dtype != dtype:
                    self.kept.add(var)
                    self.vars[var] = Cast(dtype, var)
        for var in sorted(sizes - set(func.params), key=lambda v: v.name):
            self.bind(var)

    def run(self) -> PrimFunc:
        """Return the new function; the same object when nothing changes."""
        func = self.func
        buffers = {p: self.buffer(b) for p, b in func.buffer_map.items()}
        body = self.visit(func.body)
        parameters: list[Var] = []
        for p in func.params:
            new = self.vars.get(p, p)
            parameters.append(new if isinstance(new, Var) else p)
        same = all(a is b for a, b in zip(parameters, func.params, strict=True))
        if body is func.body and same and all(b is func.buffer_map[p] for p, b in buffers.items()):
            return func
        return PrimFunc(tuple(parameters), body, buffers, func.attrs)

    def bind(self, var: Var) -> Var:
        """Return the variable that replaces ``var``."""
        if var.dtype not in INDEX_TYPES:
            return var
        made = self.vars.get(var)
        if not isinstance(made, Var):
            made = self.vars[var] = var if var.dtype == self.dtype else Var(var.name, self.dtype)
        return made

    # buffers and ranges

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return the buffer that replaces ``buffer``, with the same pointer."""
        known = self.buffers.get(buffer)
        if known is None:
            new = [self.size(e) for e in _sizes(buffer)]
            if all(n is o for n, o in zip(new, _sizes(buffer), strict=True)):
                known = buffer
            else:
                rank = len(buffer.shape)
                known = buffer.with_(
                    shape=tuple(new[:rank]), strides=tuple(new[rank:-1]), elem_offset=new[-1], data=buffer.data
                )
            self.buffers[buffer] = known
        return known

    def size(self, e: Expr) -> Expr:
        """Rewrite an expression of a buffer's shape, strides or offset; one over a parameter that keeps its type
        stays."""
        if is_const_int(e, 0) or any(isinstance(n, Var) and n in self.kept for n in pre_order(e)):
            return e
        return self.index(e)

    def use(self, buffer: Buffer) -> Buffer:
        return self.buffer(buffer)

    def match(self, buffer: Buffer) -> Buffer:
        own = {n for e in _sizes(buffer) for n in pre_order(e) if isinstance(n, Var)}
        for var in sorted(own - set(self.vars), key=lambda v: v.name):
            self.bind(var)
        return self.buffer(buffer)

    # statements

    def visit(self, n: Any) -> Any:
        """Rewrite a statement, or a value in a statement."""
        if isinstance(n, Expr):
            return self.data(n)
        return self.let(n) if isinstance(n, LetStmt) else n.map_parts(self)

    def let(self, s: LetStmt | Let) -> Any:
        """Rewrite a variable with a value, which gets the new type if it is an index."""
        if not self.is_index(s.value):
            return s.map_children(self.visit)
        var, value = self.bind(s.var), self.index(s.value)
        body = self.visit(s.body)
        return s if var is s.var and value is s.value and body is s.body else type(s)(var, value, body)

    # expressions

    def is_index(self, e: Expr) -> bool:
        """Return whether ``e`` is index arithmetic over variables that may change their type."""
        return _plain(e) and any(isinstance(n, Var) and n in self.vars for n in pre_order(e))

    def index(self, e: Expr) -> Expr:
        """Return ``e``, an integer used as an index or a size, in the new type."""
        if e.dtype.element not in INDEX_TYPES:
            return self.data(e)
        if isinstance(e, IntImm):
            return e if e.dtype == self.dtype else self.constant(e.value)
        if isinstance(e, Var):
            new = self.vars.get(e)
            return cast(self.dtype, e) if new is None else new
        if isinstance(e, ARITHMETIC) and (not self.keep_data or _plain(e)):
            return self._operands(e)
        if isinstance(e, Cast) and _plain(e.value):
            return self.index(e.value)
        if isinstance(e, (Ramp, Broadcast)):
            return e.map_children(self.index)
        if isinstance(e, Select):
            condition, yes, no = self.data(e.condition), self.index(e.true_value), self.index(e.false_value)
            same = condition is e.condition and yes is e.true_value and no is e.false_value
            return e if same else Select(condition, yes, no)
        if isinstance(e, Call) and e.op == "tir.if_then_else":
            args = (self.data(e.args[0]), self.index(e.args[1]), self.index(e.args[2]))
            same = all(n is o for n, o in zip(args, e.args, strict=True))
            return e if same else Call(e.op, args, args[1].dtype)
        return cast(self.dtype, self.data(e))

    def _operands(self, e: BinaryOp) -> Expr:
        """Return ``e`` with both operands in the new type."""
        a, b = self.index(e.a), self.index(e.b)
        return e if a is e.a and b is e.b else type(e)(a, b)

    def pointer(self, e: Call) -> Call:
        """Rewrite a ``tvm_access_ptr``, whose offset and extent count elements."""
        args = tuple([self.index(a) if n in (2, 3) else self.data(a) for n, a in enumerate(e.args)])
        return e if all(n is o for n, o in zip(args, e.args, strict=True)) else Call(e.op, args, e.dtype)

    def constant(self, value: int) -> Expr:
        """Return a constant size or index of the new type; ValueError when the type does not hold it."""
        if not min_value(self.dtype) <= value <= max_value(self.dtype):
            raise ValueError(f"{value} is no {self.dtype}: the function's indices need 64 bits")
        return IntImm(value, self.dtype)

    def data(self, e: Expr) -> Expr:
        """Return ``e`` in its own type, with the indices inside it rewritten."""
        if isinstance(e, Var):
            new = self.vars.get(e)
            if new is None or new is e:
                return e
            return e if e in self.kept else cast(e.dtype, new)
        if isinstance(e, BufferLoad):
            return e.map_parts(self)
        if isinstance(e, CmpOp) and (self.is_index(e.a) or self.is_index(e.b)):
            if self.dtype == WIDE or (_plain(e.a) and _plain(e.b)):
                return self._operands(e)
        if isinstance(e, Cast) and self.is_index(e.value):
            value = self.index(e.value)
            return e if value is e.value else cast(e.dtype.element, value)
        if isinstance(e, (*ARITHMETIC, Ramp, Broadcast)) and self.is_index(e):
            return cast(e.dtype.element, self.index(e))
        if isinstance(e, Let):
            return self.let(e)
        if isinstance(e, Call) and e.op == "tir.tvm_access_ptr":
            return self.pointer(e)
        return e.map_children(self.data)


def _sizes(buffer: Buffer) -> tuple[Expr, ...]:
    return (*buffer.shape, *buffer.strides, buffer.elem_offset)


def _plain(e: Expr) -> bool:
    """Return whether ``e`` consists of variables and constants of index types and of operations on indices."""
    if isinstance(e, (Var, IntImm)):
        return e.dtype in INDEX_TYPES
    if isinstance(e, ARITHMETIC):
        return _plain(e.a) and _plain(e.b)
    if isinstance(e, Ramp):
        return _plain(e.base) and _plain(e.stride)
    return isinstance(e, (Broadcast, Cast)) and e.dtype.element in INDEX_TYPES and _plain(e.value)


_LIMIT = int(max_value(INDEX))


def widened(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with 64-bit indices when it needs them (see the module's docstring), else the same object.

    Scalar parameters keep their types, so the function is called as before.
    """
    return with_index_dtype(func, DType(WIDE), params=False) if needs_wide_indices(func) else func


def unified(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with indices of one width.

    It is :func:`widened`, also where loops and axes have both widths, so that no index contains a conversion, and where
    vectors of indices run over a product of sizes (``n * m``), which int32 may not hold. In these two cases values from
    memory keep their arithmetic, which wraps around, as in the interpreter.
    """
    if needs_wide_indices(func):
        return with_index_dtype(func, DType(WIDE), params=False)
    wide = len(_index_types(func.body)) > 1 or _vectors_over_products(func)
    return with_index_dtype(func, DType(WIDE), params=False, keep_data=True) if wide else func


def needs_wide_indices(func: PrimFunc) -> bool:
    """Return whether int32 is too narrow for the sizes, loops or indices of ``func``; False when they are int64
    already."""
    return (
        any(_span(buffer) > _LIMIT for buffer in func.declared_buffers())
        and INDEX in _index_types(func.body)
        or _body_needs(func.body)
    )


@lru_cache(maxsize=16)
def _body_needs(body: Stmt) -> bool:
    """Return whether int32 is too narrow for something in the body of a function. Functions that differ in attributes
    share their bodies."""
    if INDEX not in _index_types(body):
        return False
    if any(_span(buffer) > _LIMIT for n in statements(body) for buffer in n.declared_buffers()):
        return True
    return _Scan().stmt(body)


@lru_cache(maxsize=16)
def _index_types(body: Stmt) -> frozenset[str]:
    """Return the types of the loops' variables and of the blocks' axes."""
    found: set[str] = set()
    for n in statements(body):
        if isinstance(n, For):
            found.add(n.loop_var.dtype)
        elif isinstance(n, Block):
            found.update(iv.var.dtype for iv in n.iter_vars)
    return frozenset(found & INDEX_TYPES)


def _vectors_over_products(func: PrimFunc) -> bool:
    """Return whether there are vector loops, and an int32 loop whose extent multiplies sizes."""
    loops = [n for n in statements(func.body) if isinstance(n, For)]
    return any(loop.kind == "vectorized" for loop in loops) and any(
        isinstance(n, Mul) and not isinstance(n.a, IntImm) and not isinstance(n.b, IntImm)
        for loop in loops
        if loop.loop_var.dtype == INDEX
        for n in pre_order(loop.extent)
    )


def _span(buffer: Buffer) -> int:
    """Return how many elements the constant part of a buffer's shape spans at most."""
    sizes = [e.value if isinstance(e, IntImm) else 1 for e in buffer.shape]
    if not buffer.strides:
        total = 1
        for n in sizes:
            total *= n
        return total
    steps = [e.value if isinstance(e, IntImm) else 1 for e in buffer.strides]
    return 1 + sum((n - 1) * abs(s) for n, s in zip(sizes, steps, strict=True))


class _Scan:
    """Searches for index expressions whose values int32 does not hold."""

    def __init__(self) -> None:
        self.ranges: dict[Var, Interval] = {}
        self.seen: dict[int, Interval] = {}
        self.found = False

    def stmt(self, s: Stmt) -> bool:
        """Return whether something in ``s`` needs 64 bits."""
        if isinstance(s, For):
            self.bind(s.loop_var, s.min, s.extent)
        elif isinstance(s, Block):
            for iv in s.iter_vars:
                self.bind(iv.var, iv.dom.min, iv.dom.extent)
        for child in s.children():
            if isinstance(child, Expr):
                self.check(child)
            elif self.stmt(child):  # type: ignore[arg-type]
                return True
        return self.found

    def bind(self, var: Var, low: Expr, extent: Expr) -> None:
        """Record the range of a variable, where it is known."""
        first, count = self.interval(low), self.interval(extent)
        if None not in (*first, *count):
            self.ranges[var] = Interval(first.lo, max(first.lo, first.hi + count.hi - 1))  # type: ignore

    def check(self, e: Expr) -> None:
        """Record whether ``e`` holds index arithmetic whose values int32 does not hold."""
        for n in distinct(e):
            if isinstance(n, ARITHMETIC) and n.dtype == INDEX:
                self.interval(n)

    def interval(self, e: Expr) -> Interval:
        """Return the range of index arithmetic; unknown as a whole for values from memory."""
        if isinstance(e, IntImm):
            return Interval(e.value, e.value)
        if isinstance(e, Var):
            return self.ranges.get(e, EVERYTHING)
        combined = _COMBINED.get(type(e))
        if combined is None:
            return EVERYTHING
        out = self.seen.get(id(e))
        if out is None:
            out = combined(self.interval(e.a), self.interval(e.b))  # type: ignore[attr-defined]
            out = self.seen[id(e)] = EVERYTHING if None in out else out
            self.found = self.found or (e.dtype == INDEX and None not in out and not out.fits(INDEX))
        return out


def _truncated(a: Interval, b: Interval) -> Interval:
    """Return the interval of ``a // b`` rounded towards zero, for a positive ``b``."""
    out = a.divided(b)
    return out.plus(Interval(0, 1)) if a.lo is not None and a.lo < 0 else out


def _truncated_rest(a: Interval, b: Interval) -> Interval:
    """Return the interval of the remainder of :func:`_truncated`."""
    rest = EVERYTHING.remainder(b)
    return rest if a.lo is not None and a.lo >= 0 else rest.union(rest.negated())


_COMBINED: dict[type, Callable[[Interval, Interval], Interval]] = {
    Add: Interval.plus,
    Sub: Interval.minus,
    Mul: Interval.times,
    Min: Interval.minimum,
    Max: Interval.maximum,
    FloorDiv: Interval.divided,
    FloorMod: Interval.remainder,
    TruncDiv: _truncated,
    TruncMod: _truncated_rest,
}
