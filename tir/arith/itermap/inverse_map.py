"""This module solves ``indices == values`` for the axes in the indices.

Solvable indices are axes, digits of axes (``v // a``, ``v % b``, ``v % b // a``), sums of digits in a mixed radix
(``v0 * 16 + v1``), and any of these plus a constant, provided that all digits of each axis occur. This is the inverse
of a quasi-affine iteration map (the same family that TVM's iter-affine-map analysis inverts). A size may take the place
of a constant: added (``v + n``, and descending ``n - v``), or as the divisor of an axis (``v // n`` and ``v % n``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from ...expr import (
    LT,
    Add,
    BinaryOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Range,
    Reason,
    Sub,
    Var,
    const,
    is_const_int,
    make_binary,
    same,
)
from ...expr.traversal import pre_order, substitute, uses_var
from ..affine import eval_interval
from ..analyzer import Analyzer
from .iter_map import Digit, divides, read_digit

Solution = tuple[dict[Var, Expr], list[Expr]]
"""The axes as expressions of the values, and the conditions for a solution within the domains of the axes."""


@dataclass(frozen=True, slots=True, eq=False)
class _Solved:
    """States that the digit of an axis has the value ``value``."""

    digit: Digit
    value: Expr


def invert(
    analyzer: Analyzer,
    doms: Mapping[Var, Range],
    indices: Sequence[Expr],
    values: Sequence[Expr],
    as_written: bool = False,
) -> Solution | Reason:
    """Return the axes of ``doms`` as expressions of ``values``, and the conditions for a solution within their domains.

    ``analyzer`` knows the ranges of the axes and of the variables in ``values``. With ``as_written`` a digit that can
    only be 0, because its axis is too short for it, takes part. The first of the reason's nodes does not determine the
    axes.
    """
    digits = _digits_of_axes(Analyzer() if as_written else analyzer, doms, list(zip(indices, values, strict=True)))
    if isinstance(digits, Reason):
        return digits
    solved: dict[Var, Expr] = {}
    for v, dom in doms.items():
        found = _complete(analyzer, v, dom, digits[v])
        if isinstance(found, Reason):
            return found
        if not found:
            solved[v] = dom.min
            continue
        parts = [(s.digit, s.value if isinstance(s.value, Var) else analyzer.simplify(s.value)) for s in found]
        total: Expr = const(0, v.dtype)
        for digit, value in parts:
            total = total + value * digit.lower
        plain = all(isinstance(value, Var) for _, value in parts)  # a sum of variables stays in this order
        solved[v] = total if plain else analyzer.simplify(total)
    tests: list[Expr] = []
    for v, dom in doms.items():
        last = analyzer.simplify(dom.min + dom.extent)
        if not analyzer.can_prove(solved[v] >= dom.min):
            tests.append(dom.min <= solved[v])
        if not _below(analyzer, solved[v], last):
            tests.append(solved[v] < last)
    for index, value in zip(indices, values, strict=True):  # a value that no axes produce has no solution
        back = substitute(index, solved)
        if not analyzer.can_prove_equal(back, value):
            tests.append(analyzer.simplify(back).equal(value))
    return solved, tests


def invert_sums(
    analyzer: Analyzer, doms: Mapping[Var, Range], indices: Sequence[Expr], values: Sequence[Expr], as_written: bool
) -> Solution | Reason:
    """Return the result of :func:`invert`, also where indices are digits of one sum.

    For ``(i * 56 + j) // 64`` and ``(i + 1) % 4`` the equations are solved for the sum first, then for the variables in
    it.
    """
    sums = [
        n.a
        for e in indices
        for n in pre_order(e)
        if isinstance(n, (FloorDiv, FloorMod)) and isinstance(n.b, IntImm) and isinstance(n.a, Add)
        and uses_var(n.a, lambda v: v in doms)
    ]  # fmt: skip
    if not sums or not all(same(sums[0], other) for other in sums):
        return invert(analyzer, doms, indices, values, as_written)
    whole = sums[0]
    ends = eval_interval(whole, doms, analyzer)
    if ends is None or not analyzer.can_prove(ends[0] >= 0):
        return invert(analyzer, doms, indices, values, as_written)
    var = Var("s", whole.dtype)
    span = Range.from_extent(analyzer.simplify(ends[1] + 1))
    analyzer.bind(var, span)

    def walk(e: Expr) -> Expr:
        if isinstance(e, Add) and same(e, whole):
            return var
        return make_binary(type(e), walk(e.a), walk(e.b)) if isinstance(e, BinaryOp) else e

    inside = {n for n in pre_order(whole) if isinstance(n, Var)}
    others = {v: r for v, r in doms.items() if v not in inside}
    around = invert(analyzer, {var: span, **others}, [walk(e) for e in indices], values, as_written)
    if isinstance(around, Reason):
        return around
    outer, tests = around
    place = outer.pop(var)
    within = invert(analyzer, {v: r for v, r in doms.items() if v in inside}, [whole], [place])
    if isinstance(within, Reason):
        return within
    inner, more = within
    # the bounds of the parts imply the bounds of the sum
    tests = [t for t in tests if not (isinstance(t, LT) and t.a is place)]
    return {v: {**outer, **inner}[v] for v in doms}, [*tests, *more]


def inverse(
    analyzer: Analyzer, doms: Mapping[Var, Range], indices: Sequence[Expr]
) -> tuple[list[Var], dict[Var, Expr]] | Reason:
    """Return a variable for each index, and the axes of ``doms`` as expressions of these variables.

    The solution holds for values that the indices do take; it says nothing about others. The expressions have the form
    of TVM's inverse of an iteration map: the digits of an axis in the order of the indices from the last to the first.
    """
    places = [Var(f"i{n}", index.dtype) for n, index in enumerate(indices)]
    digits = _digits_of_axes(analyzer, doms, list(zip(indices, places, strict=True))[::-1])
    if isinstance(digits, Reason):
        return digits
    solved: dict[Var, Expr] = {}
    for v, found in digits.items():
        complete = _complete(analyzer, v, doms[v], found)
        if isinstance(complete, Reason):
            return complete
        terms = [s.value if is_const_int(s.digit.lower, 1) else s.value * s.digit.lower for s in found]
        solved[v] = sum(terms[1:], start=terms[0]) if terms else doms[v].min
    return places, solved


def _not_determined(index: Expr) -> Reason:
    return Reason(f"the axes do not follow from {index}", (index,))


def _digits_of_axes(
    reader: Analyzer, doms: Mapping[Var, Range], equations: Sequence[tuple[Expr, Expr]]
) -> dict[Var, list[_Solved]] | Reason:
    """Return the digits of each axis that the equations ``index == value`` determine."""
    out: dict[Var, list[_Solved]] = {v: [] for v in doms}
    for index, value in equations:
        e = index if isinstance(index, Var) and index in doms else reader.simplify(index)
        if isinstance(e, IntImm):
            continue
        e, value = _without_rest(e, value, doms)
        parts = _parts(e, doms)
        if parts is None:
            return _not_determined(index)
        for n, (digit, scale) in enumerate(parts):
            part = value if scale == 1 else value // scale
            if n + 1 < len(parts):
                part = part % (parts[n + 1][1] // scale)
            out[digit.number].append(_Solved(digit, part))  # type: ignore[index]
    return out


def _complete(analyzer: Analyzer, v: Var, dom: Range, found: Sequence[_Solved]) -> list[_Solved] | Reason:
    """Return the digits of an axis, the lowest first, when together they are the axis."""
    if not found:
        return [] if is_const_int(dom.extent, 1) else _not_determined(v)
    left, out = list(found), []
    reached: Expr | None = const(1, v.dtype)
    while left and reached is not None:
        at = reached
        following = next((s for s in left if analyzer.can_prove_equal(s.digit.lower, at)), None)
        if following is None:
            break
        left = [s for s in left if s is not following]
        out.append(following)
        reached = following.digit.upper
        if reached is not None and not divides(analyzer, following.digit.lower, reached):
            break
    if left or (reached is not None and not analyzer.can_prove(dom.min + dom.extent <= reached)):
        return _not_determined(v)
    return out


def _without_rest(e: Expr, value: Expr, doms: Container[Var]) -> tuple[Expr, Expr]:
    """Return ``e == value`` with all terms without an axis on the right side. No axis has a negative factor."""
    terms: list[tuple[Expr, int]] = []
    stack = [(e, 1)]
    while stack:
        n, sign = stack.pop()
        if isinstance(n, (Add, Sub)):
            stack += [(n.b, sign if isinstance(n, Add) else -sign), (n.a, sign)]
        else:
            terms.append((n, sign))
    moving = [(n, sign) for n, sign in terms if uses_var(n, lambda v: v in doms)]
    if not moving or len({sign for _, sign in moving}) > 1 or (len(moving) == len(terms) and moving[0][1] > 0):
        return e, value
    for n, sign in terms:
        if not uses_var(n, lambda v: v in doms) and not is_const_int(n, 0):
            value = value - n if sign > 0 else value + n
    left = moving[0][0]
    for n, _ in moving[1:]:
        left = left + n
    return left, value if moving[0][1] > 0 else value * const(-1, value.dtype)


def _below(analyzer: Analyzer, e: Expr, end: Expr) -> bool:
    """Return whether ``e < end`` is proven; ``n // c < end`` is ``n < end * c``."""
    if analyzer.can_prove(e < end):
        return True
    return isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0 and analyzer.can_prove(e.a < end * e.b)


def _parts(e: Expr, doms: Mapping[Var, Range]) -> list[tuple[Digit, int]] | None:
    """Return the digits of axes and their scales whose sum ``e`` is, lowest first. None stands for digits that
    overlap."""
    parts: list[tuple[Digit, int]] = []
    stack: list[tuple[Expr, int]] = [(e, 1)]
    while stack:
        n, scale = stack.pop()
        if isinstance(n, Add):
            stack += [(n.a, scale), (n.b, scale)]
            continue
        if isinstance(n, Mul) and isinstance(n.b, IntImm) and n.b.value > 0:
            stack.append((n.a, scale * n.b.value))
            continue
        digit = Digit(n, const(1, n.dtype), None) if isinstance(n, Var) else read_digit(n)
        if digit is None or digit.number not in doms:
            return None
        if any(uses_var(end, lambda v: v in doms) for end in (digit.lower, digit.upper) if end is not None):
            return None
        if digit.constant and not is_const_int(doms[digit.number].min, 0):  # type: ignore[index]
            return None
        parts.append((digit, scale))
    parts.sort(key=lambda part: part[1])
    for (digit, scale), (_, above) in zip(parts, parts[1:], strict=False):
        whole = doms[digit.number].extent if digit.upper is None else digit.upper  # type: ignore[index]
        if not isinstance(whole, IntImm) or not isinstance(digit.lower, IntImm):
            return None
        if scale * -(-whole.value // digit.lower.value) > above or above % scale:
            return None
    return parts
