"""This module checks that computations read their tensors inside the shapes, and simplifies what they read.

A read is inside when the analyzer proves it, outside when a point of the domain is found where it is not. What stays
open is decided in lowering, or at the call. :func:`by_domains` simplifies indices with divisions, and conditions, by the
domains of the axes.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tir.analysis.simplify import simplify
from ..tir.arith import Analyzer, eval_interval, linear_coefficients
from ..tir.expr import (
    GE,
    LT,
    Add,
    And,
    BufferLoad,
    Call,
    CmpOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Mul,
    Not,
    Or,
    Range,
    Reduce,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
    logical_not,
    shape_text,
)
from ..tir.expr.deep_recursion import with_room
from ..tir.expr.node import map_tuple
from ..tir.walk import pre_order, substitute, transform, vars_in
from .tensor import ComputeOp, ProducerLoad

log = logging.getLogger("tilewright")

_POINTS = 256
"""The number of points of the domain that are looked at where the analyzer proves nothing."""


@dataclass(frozen=True)
class _Read:
    """A read of ``load`` in dimension ``dim`` under ``conditions``, each of which holds or fails."""

    load: ProducerLoad
    dim: int
    conditions: tuple[Expr, ...]

    @property
    def index(self) -> Expr:
        return self.load.indices[self.dim]

    @property
    def extent(self) -> Expr:
        return self.load.producer.shape[self.dim]

    def inside(self) -> tuple[Expr, Expr]:
        """Returns the two conditions that make the index a place in the dimension."""
        return GE(self.index, const(0, self.index.dtype)), LT(*_alike(self.index, self.extent))


@with_room
def require_reads_inside(op: ComputeOp, steps_allowed: bool) -> None:
    """Raise IndexError when ``op`` reads an input outside of its shape.

    ``steps_allowed``: the operation may become a step of a recurrence, which starts later than its domain; so it may
    look back in the first dimension. Along another one a condition keeps the first step from looking back.
    """
    domains = [*op.axis, *op.reduce_axis]
    if any(isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value <= 0 for iv in domains):
        return
    known = {iv.var: ends for iv in domains if (ends := _ends_of_domain(iv)) is not None}
    open_reads = [read for read in _reads_of(op) if not _surely_inside(read, known)]
    if not open_reads:
        return
    analyzer = within({iv.var: iv.dom for iv in domains}, 1)
    for read in open_reads:
        with _all_of(analyzer, read.conditions):
            low, high = (analyzer.can_prove(c) for c in read.inside())
        if low and high:
            continue
        if steps_allowed and high and read.dim == 0 and op.axis:
            continue
        _refuse_outside(op, read, domains, analyzer)


def _ends_of_domain(iv: IterVar) -> tuple[int, int] | None:
    """Returns the first and the last number of an axis; None where they are symbolic."""
    low, extent = iv.dom.min, iv.dom.extent
    return (low.value, low.value + extent.value - 1) if isinstance(low, IntImm) and isinstance(extent, IntImm) else None


def _surely_inside(read: _Read, known: Mapping[Var, tuple[int, int]]) -> bool:
    """Returns whether the interval of the index lies in the dimension. Most reads need no analyzer, whose facts and normal
    forms cost far more."""
    if not isinstance(read.extent, IntImm):
        return False
    ends = _interval(read.index, known)
    return ends is not None and 0 <= ends[0] and ends[1] < read.extent.value


def _interval(e: Expr, known: Mapping[Var, tuple[int, int]]) -> tuple[int, int] | None:
    """Returns bounds of sums, differences and multiples of variables whose ends are known, else None."""
    if isinstance(e, IntImm):
        return e.value, e.value
    if isinstance(e, Var):
        return known.get(e)
    if not isinstance(e, (Add, Sub, Mul)) or (a := _interval(e.a, known)) is None:
        return None
    if (b := _interval(e.b, known)) is None:
        return None
    if isinstance(e, Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(e, Sub):
        return a[0] - b[1], a[1] - b[0]
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _reads_of(op: ComputeOp) -> Iterator[_Read]:
    for e in op.body[:1] if isinstance(op.body[0], Reduce) else op.body:
        yield from _reads(e, ())


def _reads(e: Expr, given: tuple[Expr, ...]) -> Iterator[_Read]:
    if isinstance(e, ProducerLoad):
        yield from (_Read(e, dim, given) for dim in range(len(e.indices)))
    if isinstance(e, Reduce):
        yield from _reads(e.condition, given)
        always = isinstance(e.condition, IntImm)
        for part in e.source:
            yield from _reads(part, given if always else (*given, e.condition))
        for part in e.init:
            yield from _reads(part, given)
    elif isinstance(e, (And, Or)):
        yield from _reads(e.a, given)
        yield from _reads(e.b, (*given, e.a if isinstance(e, And) else logical_not(e.a)))
    elif isinstance(e, Call) and e.op == "tir.if_then_else":  # a Select evaluates both of its values
        condition, chosen, other = e.args
        yield from _reads(condition, given)
        yield from _reads(chosen, (*given, condition))
        yield from _reads(other, (*given, logical_not(condition)))
    else:
        for child in e.children():
            if isinstance(child, Expr):
                yield from _reads(child, given)


def _refuse_outside(op: ComputeOp, read: _Read, domains: Sequence[IterVar], analyzer: Analyzer) -> None:
    """Raise IndexError when a point outside is found, or when the ends are outside whatever the sizes are."""
    involved = [read.index, read.extent, *read.conditions, *[e for iv in domains for e in (iv.dom.min, iv.dom.extent)]]
    from_memory = any(isinstance(n, (ProducerLoad, BufferLoad, Call)) for e in involved for n in pre_order(e))
    axes = {iv.var for iv in domains}
    sizes = {v for e in involved for v in vars_in(e)} - axes
    where = _describe(op, read)
    if from_memory:
        log.info("%s: whether the index is inside is not checked", where)
    elif not sizes:
        outside = _point_outside(read, domains)
        if outside is not None:
            value, point = outside
            at = ", ".join([f"{v.name} = {n}" for v, n in point.items()])
            raise IndexError(
                f"{where}: the index is {value} at {at or 'the only element'}, which is outside 0 … {_last(read)}"
            )
    elif not read.conditions and linear_coefficients(read.index, list(axes)) is not None:
        ends = eval_interval(read.index, {iv.var: iv.dom for iv in domains}, analyzer)
        if ends is not None:
            low, high = ends
            within_shape = And(GE(low, const(0, low.dtype)), LT(*_alike(high, read.extent)))
            if analyzer.can_prove(logical_not(within_shape)):
                raise IndexError(f"{where}: the indices {low} … {high} are outside 0 … {_last(read)}")


def _point_outside(read: _Read, domains: Sequence[IterVar]) -> tuple[int, dict[Var, int]] | None:
    """Returns an index outside the shape with the axes' values there, or None when no point looked at has one."""
    needed = {v for e in (read.index, *read.conditions) for v in vars_in(e)}
    for iv in reversed(domains):
        if iv.var in needed:
            needed |= vars_in(iv.dom.min) | vars_in(iv.dom.extent)
    for point in _points([iv for iv in domains if iv.var in needed]):
        constants = {v: const(n, v.dtype) for v, n in point.items()}

        def value(e: Expr, constants: dict[Var, Expr] = constants) -> int | None:
            known = simplify(substitute(e, constants))
            return int(known.value) if isinstance(known, IntImm) else None

        if all(value(c) for c in read.conditions):
            index, extent = value(read.index), value(read.extent)
            if index is not None and extent is not None and not 0 <= index < extent:
                return index, point
    return None


def _points(domains: Sequence[IterVar]) -> Iterator[dict[Var, int]]:
    """Yields corners of the domain, then all its points or some drawn with a fixed seed."""
    sizes = [iv.dom.extent.value if isinstance(iv.dom.extent, IntImm) else _POINTS + 1 for iv in domains]
    random = np.random.default_rng(0)
    corners = itertools.product(*[(1.0, 0.0)] * min(len(domains), 6))
    inner: Iterator[tuple[float, ...]] = itertools.product(*[np.linspace(0, 1, size) for size in sizes])
    if math.prod(sizes) > _POINTS:
        inner = (tuple(random.random(len(domains))) for _ in range(_POINTS))
    for shares in itertools.chain(corners, inner):
        point: dict[Var, int] = {}
        for iv, share in zip(domains, (*shares, *[0.0] * len(domains)), strict=False):
            known = {v: const(n, v.dtype) for v, n in point.items()}
            low, extent = (simplify(substitute(e, known)) for e in (iv.dom.min, iv.dom.extent))
            if not isinstance(low, IntImm) or not isinstance(extent, IntImm) or extent.value < 1:
                break
            point[iv.var] = int(low.value + round(share * (extent.value - 1)))
        else:
            yield point


def _all_of(analyzer: Analyzer, conditions: Sequence[Expr]) -> AbstractContextManager[None]:
    condition: Expr = const(True, "bool")
    for one in conditions:
        condition = And(condition, one)
    return analyzer.constraint(condition)


def _alike(index: Expr, extent: Expr) -> tuple[Expr, Expr]:
    """Returns both in the wider of their types."""
    wide = max(index.dtype, extent.dtype, key=lambda t: t.bits)
    return index.astype(wide), extent.astype(wide)


def _describe(op: ComputeOp, read: _Read) -> str:
    tensor = read.load.producer
    return f"compute {op.name} reads {read.load} of shape ({shape_text(tensor.shape)}), dimension {read.dim}"


def _last(read: _Read) -> Expr:
    return simplify(read.extent - 1)


_DIVISIONS = (FloorDiv, FloorMod, TruncDiv, TruncMod)
_TRUE, _FALSE = const(True, "bool"), const(False, "bool")


def within(known: Mapping[Var, Range], least_size: int) -> Analyzer:
    """Returns an analyzer that knows the axes' domains, and that sizes in them are at least ``least_size``."""
    analyzer = Analyzer()
    for v, r in known.items():
        analyzer.bind(v, r)
        for size in pre_order(r.extent):
            if isinstance(size, Var) and size not in known:
                analyzer.bind(size, (least_size, None))
    return analyzer


def by_domains(e: Expr, ranges: Mapping[Var, Range]) -> Expr:
    """Returns ``e`` without the conditions that the domains ``ranges`` of the axes decide. Indices that have divisions
    (those of a reshape, for example) are simplified."""
    if any(isinstance(n, Select) or (isinstance(n, Call) and n.op == "tir.if_then_else") for n in pre_order(e)):
        e = _without_decided(e, within(ranges, 0))
    analyzer: list[Analyzer] = []

    def simplified(index: Expr) -> Expr:
        if not any(isinstance(n, _DIVISIONS) for n in pre_order(index)):
            return index
        if not analyzer:
            analyzer.append(within(ranges, 1))
        simple: Expr = analyzer[0].simplify(index)
        return simple

    def post(n: Any) -> Any:
        if not isinstance(n, BufferLoad):
            return None
        indices = map_tuple(n.indices, simplified)
        return None if indices is n.indices else n.with_(indices=indices)

    out: Expr = transform(e, post=post)
    return out


def _without_decided(e: Expr, analyzer: Analyzer) -> Expr:
    """Returns ``e`` without selections whose condition is always true or always false. Terms of conditions that are
    always true go as well."""

    def post(n: Any) -> Any:
        if isinstance(n, Select):
            condition, chosen, other = n.condition, n.true_value, n.false_value
        elif isinstance(n, Call) and n.op == "tir.if_then_else":
            condition, chosen, other = n.args
        else:
            return None
        known = _decide(condition, analyzer)
        if isinstance(known, IntImm):
            return chosen if known.value else other
        if known is condition:
            return None
        return Select(known, chosen, other) if isinstance(n, Select) else Call(n.op, (known, chosen, other), n.dtype)

    out: Expr = transform(e, post=post)
    return out


def _decide(condition: Expr, analyzer: Analyzer) -> Expr:
    """Returns ``condition`` without terms that are always true or always false; the same object when there is none."""
    if isinstance(condition, (And, Or)):
        a, b = _decide(condition.a, analyzer), _decide(condition.b, analyzer)
        neutral = _TRUE if isinstance(condition, And) else _FALSE
        for this, rest in ((a, b), (b, a)):
            if isinstance(this, IntImm):
                return rest if bool(this.value) == bool(neutral.value) else this  # type: ignore[attr-defined]
        return condition if a is condition.a and b is condition.b else type(condition)(a, b)
    if isinstance(condition, Not):
        inner = _decide(condition.a, analyzer)
        if isinstance(inner, IntImm):
            return _FALSE if inner.value else _TRUE
        return condition if inner is condition.a else Not(inner)
    if isinstance(condition, CmpOp) and condition.a.dtype.is_int and not _has_reads(condition):
        if analyzer.can_prove(condition):
            return _TRUE
        if analyzer.can_prove(Not(condition)):
            return _FALSE
    return condition


def _has_reads(e: Expr) -> bool:
    return any(isinstance(n, (BufferLoad, Call)) for n in pre_order(e))
