"""This module solves ``indices == values`` for the axes in the indices.

Solvable indices are axes, digits of axes (``v // a``, ``v % b``, ``v % b // a``), sums of digits in a mixed radix
(``v0 * 16 + v1``), and any of these plus a constant, provided that all digits of each axis occur. This is the inverse
of a quasi-affine iteration map (the same family that TVM's iter-affine-map analysis inverts). A size may take the place
of a constant: added (``v + n``, and descending ``n - v``), or as the divisor of an axis (``v // n`` and ``v % n``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ...expr import Add, Expr, FloorDiv, FloorMod, IntImm, Mul, Range, Sub, Var, const, is_const_int
from ...walk import substitute, uses_var
from ..analyzer import Analyzer


class NotInvertible(Exception):
    """This exception names an ``index`` that does not determine the axes."""

    def __init__(self, index: Expr) -> None:
        super().__init__(f"the axes do not follow from {index}")
        self.index = index


Part = tuple[Var, int, "int | None", int]
"""``scale * (v % upper // lower)`` as (v, lower, upper, scale)."""


def invert(
    analyzer: Analyzer,
    doms: Mapping[Var, Range],
    indices: Sequence[Expr],
    values: Sequence[Expr],
    as_written: bool = False,
) -> tuple[dict[Var, Expr], list[Expr]]:
    """Return the axes of ``doms`` as expressions of ``values``, and the conditions for a solution within their domains.

    :class:`NotInvertible` is raised when they cannot be found.

    ``analyzer`` knows the ranges of the axes and of the variables in ``values``. With ``as_written`` a digit that can
    only be 0, because its axis is too short for it, takes part.
    """
    digits: dict[Var, dict[int, tuple[Expr, int | None]]] = {}
    halves: dict[Var, list[tuple[type, Expr, Expr]]] = {}
    reader = Analyzer() if as_written else analyzer
    tests: list[Expr] = []
    for index, value in zip(indices, values, strict=True):
        e = index if isinstance(index, Var) and index in doms else reader.simplify(index)
        if isinstance(e, IntImm):
            continue  # the comparison at the end covers it
        if isinstance(e, (Add, Sub)) and isinstance(e.b, IntImm):
            value = value - e.b if isinstance(e, Add) else value + e.b
            e = e.a
        e, value = _without_rest(e, value, doms)
        cut = _cut_by_size(e, doms)
        if cut is not None:
            halves.setdefault(cut[0], []).append((type(e), cut[1], value))
            continue
        parts = _parts(e, doms)
        if parts is None:
            raise NotInvertible(index)
        for i, (v, lower, upper, scale) in enumerate(parts):
            digit = value // scale
            if i + 1 < len(parts):
                digit = digit % (parts[i + 1][3] // scale)
            known = digits.setdefault(v, {})
            if lower in known:
                raise NotInvertible(index)
            known[lower] = (digit, upper)
    solved: dict[Var, Expr] = {}
    for v, dom in doms.items():
        if v in halves:
            solved[v] = _whole(analyzer, v, halves[v]) if v not in digits else _fail(v)
            continue
        if v not in digits:
            if not is_const_int(dom.extent, 1):
                raise NotInvertible(v)
            solved[v] = dom.min
            continue
        total: Expr = const(0, v.dtype)
        expected: int | None = 1
        plain = True  # a sum of variables stays in this order
        for lower, (digit, upper) in sorted(digits[v].items()):
            if lower != expected:
                raise NotInvertible(v)
            digit = digit if isinstance(digit, Var) else analyzer.simplify(digit)
            plain = plain and isinstance(digit, Var)
            total = total + digit * lower
            expected = upper
        if expected is not None and not analyzer.can_prove(dom.min + dom.extent <= expected):
            raise NotInvertible(v)
        solved[v] = total if plain else analyzer.simplify(total)
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


def _fail(index: Expr) -> Expr:
    raise NotInvertible(index)


def _without_rest(e: Expr, value: Expr, doms: Container[Var]) -> tuple[Expr, Expr]:
    """Return ``e == value`` with all terms without an axis on the right side, and no axis with a negative factor."""
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
        if not uses_var(n, lambda v: v in doms):
            value = value - n if sign > 0 else value + n
    left = moving[0][0]
    for n, _ in moving[1:]:
        left = left + n
    return left, value if moving[0][1] > 0 else 0 - value


def _cut_by_size(e: Expr, doms: Container[Var]) -> tuple[Var, Expr] | None:
    """Return (v, n) when ``e`` is ``v // n`` or ``v % n`` for an axis v and a size n that is not a constant."""
    if isinstance(e, (FloorDiv, FloorMod)) and isinstance(e.a, Var) and e.a in doms and not isinstance(e.b, IntImm):
        return None if uses_var(e.b, lambda v: v in doms) else (e.a, e.b)
    return None


def _whole(analyzer: Analyzer, v: Var, halves: Sequence[tuple[type, Expr, Expr]]) -> Expr:
    """Return ``v`` composed of the values of ``v // n`` and ``v % n``."""
    by_kind = {kind: (size, value) for kind, size, value in halves}
    if len(halves) != 2 or len(by_kind) != 2:
        raise NotInvertible(v)
    (size, high), (other, low) = by_kind[FloorDiv], by_kind[FloorMod]
    if not analyzer.can_prove_equal(size, other):
        raise NotInvertible(v)
    return high * size + low


def inverse(
    analyzer: Analyzer, doms: Mapping[Var, Range], indices: Sequence[Expr]
) -> tuple[list[Var], dict[Var, Expr]]:
    """Return a variable for each index, and the axes of ``doms`` as expressions of these variables.

    :class:`NotInvertible` is raised when the indices do not determine the axes.

    The solution holds for values that the indices do take; it says nothing about others. Beyond :func:`invert`, an
    index may descend (``9 - v``). The expressions have the form of TVM's inverse of an iteration map: the digits of an
    axis in the order of the indices from the last to the first.
    """
    places = [Var(f"i{n}", index.dtype) for n, index in enumerate(indices)]
    digits: dict[Var, list[tuple[int, Expr, int | None]]] = {v: [] for v in doms}
    for index, place in reversed(list(zip(indices, places, strict=True))):
        e = index if isinstance(index, Var) and index in doms else analyzer.simplify(index)
        value: Expr = place
        if isinstance(e, IntImm):
            continue
        if isinstance(e, (Add, Sub)) and isinstance(e.b, IntImm):
            value, e = value - e.b if isinstance(e, Add) else value + e.b, e.a
        elif isinstance(e, Sub) and isinstance(e.a, IntImm):
            value, e = (place if e.a.value == 0 else place - e.a) * const(-1, place.dtype), e.b
        parts = _parts(e, doms)
        if parts is None:
            raise NotInvertible(index)
        for i, (v, lower, upper, scale) in enumerate(parts):
            digit = value // scale if scale > 1 else value
            if i + 1 < len(parts):
                digit = digit % (parts[i + 1][3] // scale)
            digits[v].append((lower, digit, upper))
    solved: dict[Var, Expr] = {}
    for v, found in digits.items():
        expected: int | None = 1
        for lower, _, upper in sorted(found, key=lambda d: d[0]):
            if lower != expected:
                raise NotInvertible(v)
            expected = upper
        if expected is not None and not analyzer.can_prove(doms[v].min + doms[v].extent <= expected):
            raise NotInvertible(v)
        terms = [digit * lower if lower > 1 else digit for lower, digit, _ in found]
        solved[v] = sum(terms[1:], start=terms[0]) if terms else doms[v].min
    return places, solved


def _below(analyzer: Analyzer, e: Expr, end: Expr) -> bool:
    """Return whether ``e < end`` is proven; ``n // c < end`` is ``n < end * c``."""
    if analyzer.can_prove(e < end):
        return True
    return isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0 and analyzer.can_prove(e.a < end * e.b)


def _parts(e: Expr, doms: Mapping[Var, Range]) -> list[Part] | None:
    """Return the digits whose sum ``e`` is, lowest first, when they do not overlap; else None."""
    parts: list[Part] = []
    stack: list[tuple[Expr, int]] = [(e, 1)]
    while stack:
        n, scale = stack.pop()
        if isinstance(n, Add):
            stack += [(n.a, scale), (n.b, scale)]
            continue
        if isinstance(n, Mul) and isinstance(n.b, IntImm) and n.b.value > 0:
            stack.append((n.a, scale * n.b.value))
            continue
        digit = digit_of(n, doms)
        if digit is None or not is_const_int(doms[digit[0]].min, 0):
            return None
        parts.append((*digit, scale))
    parts.sort(key=lambda p: p[3])
    for (v, lower, upper, scale), above in zip(parts, parts[1:], strict=False):
        extent = doms[v].extent
        whole = upper if upper is not None else extent.value if isinstance(extent, IntImm) else None
        if whole is None or scale * -(-whole // lower) > above[3] or above[3] % scale:
            return None
    return parts


def digit_of(e: Expr, known: Container[Var]) -> tuple[Var, int, int | None] | None:
    """Return (v, lower, upper) when ``e`` is ``v % upper // lower`` for a known variable.

    ``v`` alone has lower 1 and upper None.
    """
    lower, upper = 1, None
    if isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0:
        lower, e = e.b.value, e.a
    if isinstance(e, FloorMod) and isinstance(e.b, IntImm) and e.b.value > 0:
        upper, e = e.b.value, e.a
    return (e, lower, upper) if isinstance(e, Var) and e in known else None
