"""This module removes conditions of te expressions that the domains of the axes decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tir.arith import Analyzer
from ..tir.expr import And, BufferLoad, Call, CmpOp, Expr, IntImm, Not, Or, Range, Select, Var, const
from ..tir.walk import pre_order, transform
from .tensor import ProducerLoad

_TRUE, _FALSE = const(True, "bool"), const(False, "bool")


def within(ranges: Iterable[tuple[Var, Range]], least_size: int) -> Analyzer:
    """Returns an analyzer that knows the axes' domains, and that sizes in them are at least ``least_size``."""
    analyzer = Analyzer()
    known = dict(ranges)
    for v, r in known.items():
        analyzer.bind(v, r)
        for size in pre_order(r.extent):
            if isinstance(size, Var) and size not in known:
                analyzer.bind(size, (least_size, None))
    return analyzer


def without_decided(e: Expr, analyzer: Analyzer) -> Expr:
    """``e`` without selections whose condition is always true or always false, and without terms of conditions that are
    always true. Other conditions stay as they were written."""

    def post(n: Any) -> Any:
        if isinstance(n, Select):
            condition, chosen, other = n.condition, n.true_value, n.false_value
        elif isinstance(n, Call) and n.op == "tir.if_then_else":
            condition, chosen, other = n.args
        else:
            return None
        known = decide(condition, analyzer)
        if isinstance(known, IntImm):
            return chosen if known.value else other
        if known is condition:
            return None
        return Select(known, chosen, other) if isinstance(n, Select) else Call(n.op, (known, chosen, other), n.dtype)

    out: Expr = transform(e, post=post)
    return out


def decide(condition: Expr, analyzer: Analyzer) -> Expr:
    """``condition`` without terms that are always true or always false; the same object when there is none."""
    if isinstance(condition, (And, Or)):
        a, b = decide(condition.a, analyzer), decide(condition.b, analyzer)
        neutral = _TRUE if isinstance(condition, And) else _FALSE
        for this, rest in ((a, b), (b, a)):
            if isinstance(this, IntImm):
                return rest if bool(this.value) == bool(neutral.value) else this  # type: ignore[attr-defined]
        return condition if a is condition.a and b is condition.b else type(condition)(a, b)
    if isinstance(condition, Not):
        inner = decide(condition.a, analyzer)
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
    return any(isinstance(n, (ProducerLoad, BufferLoad, Call)) for n in pre_order(e))
