"""Lets threads of GPUs copy several elements of global memory at once, where all of them are copied or none.

Elements side by side are read together if their conditions hold for all of them or for none. A comparison ``n + v < m`` of the elements
v = 0 … V - 1 of a vector does so if V divides n - m: then it is ``n < m``. Remainders ``(n + v) % m`` are ``n % m + v`` if V divides n and m, and
n is not negative.
That V divides a number is known of the loops, and of the numbers of the launch that are multiples of 16.
"""

from __future__ import annotations

from math import gcd

from ..tir.arith import Analyzer, linear_coefficients
from ..tir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    FloorMod,
    IntImm,
    Mul,
    Sub,
    TruncMod,
    Var,
    all_,
    conjuncts,
    const,
    is_const_int,
    same,
    transform,
    vars_in,
)
from ..tir.walk import substitute
from .block_values import guarded, is_not_negative

PIECE = 16
"""The bytes that a thread copies at once."""


def in_vectors(value: Expr, lane: Var, count: int, known: set[Var]) -> tuple[Expr, list[Expr]] | None:
    """Return an element of global memory as one of a vector of ``count``; None if it may not be one.

    ``lane`` is the element's number in its vector, and the conditions of the result do not depend on it; ``known`` are variables of
    numbers that are not negative. With it come the numbers that have to be 0 or more for that.
    """
    analyzer = Analyzer()
    dividends: list[Expr] = []

    def whole(e: Expr) -> bool:
        return _factor(e) % count == 0

    def split(e: Expr) -> tuple[int, Expr] | None:
        """Return the coefficient of the lane, if that is a constant, and the rest."""
        linear = linear_coefficients(e, [lane], analyzer)
        if linear is None or not isinstance(linear[0][0], IntImm):
            return None
        return linear[0][0].value, linear[1]

    def plain(n: object) -> Expr | None:
        if not isinstance(n, (FloorMod, TruncMod)) or lane in vars_in(n.b) or not is_not_negative(n.b, known):
            return None
        parts = split(n.a)
        if lane in vars_in(n.a) and (parts is None or parts[0] != 1 or not whole(parts[1]) or not whole(n.b)):
            return None
        if isinstance(n, TruncMod) and not is_not_negative(n.a, known):
            dividends.append(n.a)
        return FloorMod(n.a, n.b) if parts is None or parts[0] == 0 else FloorMod(parts[1], n.b) + lane

    def shared(condition: Expr, place: Expr, first: Expr, extent: Expr) -> Expr | None:
        """Return a condition of all lanes, the first of which reads at ``first``."""
        if lane not in vars_in(condition):
            return condition
        if isinstance(condition, LT) and same(condition.a, place) and same(condition.b, extent):
            return first + const(count - 1, lane.dtype) < extent  # elements outside are an error
        if isinstance(condition, LE) and is_const_int(condition.a, 0) and same(condition.b, place):
            return condition.a <= first
        if not isinstance(condition, (LT, LE, GT, GE)):
            return None
        parts = split(condition.a - condition.b)
        rising = isinstance(condition, (LT, GE))
        if parts is None or parts[0] != (1 if rising else -1) or not whole(parts[1]):
            return None
        return substitute(condition, {lane: const(0, lane.dtype)})

    conditions: list[Expr] = []
    inner, rest = transform(value, post=plain), None
    while isinstance(inner, Call) and inner.op == "tir.if_then_else":
        conditions += conjuncts(inner.args[0])
        rest, inner = inner.args[2], inner.args[1]
        if not isinstance(rest, (IntImm, FloatImm)) or rest.value != 0:
            return None
    if not isinstance(inner, BufferLoad) or inner.buffer.scope != "global":
        return None
    place = inner.indices[-1]
    parts = split(place)
    if parts is None or parts[0] != 1 or not whole(parts[1]):
        return None
    uniform = [shared(c, place, parts[1], inner.buffer.shape[0]) for c in conditions]
    if any(c is None for c in uniform):
        return None
    read = BufferLoad(inner.buffer, (parts[1] + lane,))
    found = read if rest is None else guarded(all_(*[c for c in uniform if c is not None]), read, rest)
    return found, dividends


def _factor(e: Expr) -> int:
    """Return a number that divides an index; 0 divides 0 alone."""
    if isinstance(e, IntImm):
        return abs(e.value)
    if isinstance(e, Mul):
        return _factor(e.a) * _factor(e.b)
    return gcd(_factor(e.a), _factor(e.b)) if isinstance(e, (Add, Sub, FloorMod, TruncMod)) else 1
