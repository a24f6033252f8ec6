"""This module finds programs whose sizes or indices need 64 bits, and gives them 64 bits in all index arithmetic.

Loop variables, sizes and indices are int32 by default. A program needs 64 bits when a buffer has more elements than
int32 counts, or when an index expression may leave int32 (``i * 50000 + j`` with i and j below 50000). Such a program
is rewritten as a whole, so that index expressions have one type and constants that are folded into each other cannot
overflow. A nest of loops that only has more iterations in all than int32 counts, such as a matrix product, stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from .arith.normal_form.interval import EVERYTHING, Interval
from .expr import (
    INDEX,
    INDEX_TYPES,
    WIDE,
    Add,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    distinct,
    max_value,
    pre_order,
)
from .index_retyping import ARITHMETIC, with_index_dtype
from .stmt import Block, Buffer, For, PrimFunc, Stmt, statements

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
    wide = len(_index_types(func)) > 1 or _vectors_over_products(func)
    return with_index_dtype(func, DType(WIDE), params=False, keep_data=True) if wide else func


@lru_cache(maxsize=16)
def needs_wide_indices(func: PrimFunc) -> bool:
    """Return whether int32 is too narrow for the sizes, loops or indices of ``func``; False when they are int64
    already."""
    if INDEX not in _index_types(func):
        return False
    if any(_span(buffer) > _LIMIT for buffer in _buffers(func)):
        return True
    return _Scan().stmt(func.body)


def _index_types(func: PrimFunc) -> set[str]:
    """Return the types of the loops' variables and of the blocks' axes."""
    found: set[str] = set()
    for n in statements(func.body):
        if isinstance(n, For):
            found.add(n.loop_var.dtype)
        elif isinstance(n, Block):
            found.update(iv.var.dtype for iv in n.iter_vars)
    return found & INDEX_TYPES


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


def _buffers(func: PrimFunc) -> Iterator[Buffer]:
    yield from func.declared_buffers()
    for n in statements(func):
        yield from n.declared_buffers()


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
