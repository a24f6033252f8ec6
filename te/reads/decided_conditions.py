"""This module simplifies what computations read, by the domains of the axes: indices with divisions, and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tir.arith import Analyzer
from ...tir.expr import (
    And,
    BufferLoad,
    Call,
    CmpOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Not,
    Or,
    Range,
    Select,
    TruncDiv,
    TruncMod,
    Var,
    const,
)
from ...tir.expr.base.node_methods import map_tuple
from ...tir.walk import pre_order, transform

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
    if isinstance(condition, CmpOp) and condition.a.dtype.is_int and not _reads(condition):
        if analyzer.can_prove(condition):
            return _TRUE
        if analyzer.can_prove(Not(condition)):
            return _FALSE
    return condition


def _reads(e: Expr) -> bool:
    return any(isinstance(n, (BufferLoad, Call)) for n in pre_order(e))
