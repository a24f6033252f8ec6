"""This module decides which iterations of loops are independent, by dependence tests on the accesses in them.

It also recognizes conflicts that do no harm: reductions, and buffers that each iteration fills.

Two iterations are independent when neither writes an element that the other accesses. For a store and another access to
the same buffer, the test solves "both address the same element" for the loop variables. An index ``c*i + rest``
determines ``i`` when ``rest`` takes fewer than ``|c|`` values; a variable that is determined helps to determine the
next one (``i_0*8 + i_1``: first ``i_0``, then ``i_1``). Quotients and remainders (fused loops) are first written as
digits. If all loop variables are determined, elements are shared within one iteration only. This is the classic
separability test (Banerjee, *Dependence Analysis*, 1997) with symbolic ranges, in the mixed-radix form of TVM's
iteration maps.

Most indices are sums of loops, or of digits of fused loops, times constants, as ``split`` and ``fuse`` make them.
:func:`undetermined_by_integers` decides these without an analyzer or new variables; the general test does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ..arith import Analyzer, linear_coefficients
from ..arith.affine import as_bound
from ..arith.itermap import DigitSum, digit_of, write_digits
from ..arith.normal_form.forms import Linear, collect, expression_key
from ..expr import (
    BufferLoad,
    Call,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Range,
    Reason,
    Var,
    const,
    is_const_int,
    pre_order,
    reads_memory,
    substitute,
    transform,
    uses_var,
    value_key,
    vars_in,
)
from ..stmt import Block, BlockRealize, Buffer, BufferRegion, For, PrimFunc, Stmt, While, loads_and_stores
from .access import Access, Accesses, Around, accesses_below, opaque_buffers
from .known_ranges import bind_loops
from .reductions import find_reducer, updates_of
from .region_cover import why_not_covered
from .scope import scope_at
from .tree import Tree, blocks_below


def accessed_boxes_below(stmt: Stmt) -> list[Access] | Reason:
    """Return all boxes that are read or written below ``stmt``. Buffers allocated below it are left out.

    A block that uses pointers (calls, match_buffers) contributes the regions that it declares. A reason is returned when
    a pointer or an external call stands outside such a block, because what it accesses is not known.
    """
    found = accesses_below(stmt)
    unknown = _unknown(found)
    if unknown is not None:
        return Reason(
            f"`{unknown}` may touch anything, so iterations are not known to be independent",
            (stmt,),
            hint="put it into a block of its own that declares its reads and writes",
        )
    boxes = list(found.outside_of(found.opaque.__contains__))
    stored = {a.buffer.data for a in boxes if a.is_store}
    return [_with_moving(a, stored) for a in boxes if a.buffer not in found.allocated]


def all_accessed_boxes(func: PrimFunc) -> list[Access] | None:
    """Return all boxes that a function reads or writes, its own buffers included; None when they are not known."""
    found = accesses_below(func.body)
    return None if _unknown(found) is not None else list(found.outside_of(found.opaque.__contains__))


def _unknown(found: Accesses) -> Expr | None:
    """Return a use of memory that no block declares; None when there is none."""
    loose = [p for p in found.pointers if found.opaque.isdisjoint(p.around.blocks)]
    calls = [p.node for p in loose if isinstance(p.node, Call) and not (p.around.blocks and p.data is None)]
    return next((p.node for p in reversed(loose) if isinstance(p.node, Var)), calls[0] if calls else None)


def _with_moving(a: Access, stored: Set[Var]) -> Access:
    """Return ``a`` with a new variable in place of each load through one of the pointers ``stored``.

    The variables (``moving``) differ from iteration to iteration.
    """
    used = (*a.indices, *a.extents, *[e for lp in a.loops for e in (lp.min, lp.extent)])
    if not any([reads_memory(e) for e in used if type(e) is not IntImm and type(e) is not Var]):
        return a
    moving: list[Var] = []

    def pre(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer.data in stored:
            moving.append(Var(n.buffer.name, n.dtype))
            return moving[-1]
        return None

    first, extents = (tuple([transform(e, pre) for e in part]) for part in (a.indices, a.extents))
    loops = tuple([lp.with_(min=transform(lp.min, pre), extent=transform(lp.extent, pre)) for lp in a.loops])
    if not moving:
        return a
    box = BufferRegion(a.buffer, tuple([Range(f, e) for f, e in zip(first, extents, strict=True)]))
    return Access(box, a.is_store, Around(loops, a.blocks), tuple(moving))


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """A ``Conflict`` is a store and another access that may meet in different iterations of ``loops``."""

    store: Access
    other: Access
    loops: tuple[Var, ...]

    def place(self) -> str:
        """Return the text of the element that is stored to, for messages."""
        return _shown(self.store)

    def text(self) -> str:
        """Return the text of the two accesses that meet, for messages."""
        return f"{_shown(self.store)} is written" + (
            f" and {_shown(self.other)} {'written' if self.other.is_store else 'read'}"
            if self.other is not self.store
            else ""
        )


def _shown(t: Access) -> str:
    parts = [
        str(first) if is_const_int(extent, 1) else f"{first}:{first + extent}"
        for first, extent in zip(t.indices, t.extents, strict=True)
    ]
    return f"{t.buffer.name}[{', '.join(parts)}]"


def conflicts(
    analyzer: Analyzer,
    chain: Sequence[For],
    touches: Sequence[Access],
    asked: Iterable[Var] | None = None,
    harmless: Callable[[Buffer], bool] = lambda buffer: False,
) -> Iterator[Conflict]:
    """Return pairs of accesses below the nest ``chain`` that may share an element in different iterations of it.

    ``analyzer`` knows all variables outside the chain; the loops of the chain are told to it here. ``asked`` are the
    variables that matter (by default all of the chain); the others may take any values. Pairs in ``harmless`` buffers
    are left out; it is asked where the faster test does not show that there are none.
    """
    # a loop of one iteration cannot tell iterations apart
    several = [loop.loop_var for loop in chain if not is_const_int(loop.extent, 1)]
    wanted = several if asked is None else [v for v in asked if v in several]
    bind_loops(analyzer, chain)
    second = {v: Var(f"{v.name}'", v.dtype) for v in several}
    for loop in chain:
        if loop.loop_var in second:
            analyzer.bind(second[loop.loop_var], _range(loop, second))
    written: dict[tuple[Access, bool], _Digits] = {}
    for store, other in _pairs(touches):
        missing = undetermined_by_integers(chain, store, other, wanted)
        if missing != () and harmless(store.buffer):
            continue
        if missing is None:
            # an element is accessed, so no extent is 0
            with analyzer.nonempty(*store.buffer.shape, *[lp.extent for lp in store.loops]):
                for as_written in (False, True):  # simplifying may tear the digits of one number apart
                    if (store, as_written) not in written:
                        bind_loops(analyzer, store.loops, nonempty=False)
                        own = [lp.loop_var for lp in store.loops]
                        indices = _within_guards(analyzer, store.indices, store.guards, own)
                        written[store, as_written] = write_digits(analyzer, indices, as_written)
                    missing = _undetermined(
                        analyzer, second, wanted, (store, written[store, as_written]), other, as_written
                    )
                    if not missing or not _has_digits((*store.indices, *other.indices)):
                        break
                if missing and (limits := _shared_limits(analyzer, second, store, other)):
                    own = [lp.loop_var for lp in store.loops]
                    at = [substitute(e, {one.loop: one.rest for one in limits}) for e in store.indices]
                    at = _within_guards(analyzer, [analyzer.simplify(e) for e in at], store.guards, own)
                    digits = write_digits(analyzer, at, False)
                    missing = _undetermined(analyzer, second, wanted, (store, digits), other, False, limits)
        if missing:
            yield Conflict(store, other, missing)


_Digits = tuple[list[Expr], list[DigitSum]] | None
"""Indices in terms of digits, as :func:`write_digits` returns them."""


def _pairs(touches: Sequence[Access]) -> Iterator[tuple[Access, Access]]:
    """Return each store with itself and the other accesses to its buffer; a pair of stores occurs once."""
    by_buffer: dict[Buffer, list[Access]] = {}
    for t in touches:
        by_buffer.setdefault(t.buffer, []).append(t)
    for group in by_buffer.values():
        if any(t.is_store for t in group):
            group = _distinct(group)  # stores come first
            for number, store in enumerate(group):
                if store.is_store:
                    yield from [(store, other) for other in group[number:]]


def _distinct(group: list[Access]) -> list[Access]:
    """Return one access for each group of a block's accesses with equal indices: a store where the group has one."""
    seen: dict[Any, Access] = {}
    for t in sorted(group, key=lambda t: not t.is_store):
        key = (t.realize, *map(value_key, (*t.indices, *t.extents)))
        if key not in seen:
            seen[key] = t
    return list(seen.values())


def _range(loop: For, values: Mapping[Var, Expr]) -> Range:
    """Return the range of a loop, with values for variables."""
    return Range(substitute(loop.min, values), substitute(loop.extent, values))


def _undetermined(
    analyzer: Analyzer,
    second: dict[Var, Var],
    wanted: Sequence[Var],
    stored: tuple[Access, _Digits],
    other: Access,
    as_written: bool,
    limits: Sequence[_Limit] = (),
) -> tuple[Var, ...]:
    """Return the variables of ``wanted`` that may differ although both accesses address the same element.

    ``stored`` is the store and its indices as sums of digits, in terms of the ``limits``; ``analyzer`` knows its loops.
    """
    store, left = stored
    rename: dict[Var, Expr] = {**second, **{v: Var(f"{v.name}''", v.dtype) for v in other.moving}}
    for loop in other.loops:
        var = Var(f"{loop.loop_var.name}''", loop.loop_var.dtype)
        analyzer.bind(var, _range(loop, rename))
        rename[loop.loop_var] = var
    own = [v for lp in other.loops if isinstance(v := rename[lp.loop_var], Var)]
    there, guards = ([substitute(e, rename) for e in part] for part in (other.indices, other.guards))
    if limits:
        values = {one.loop: substitute(one.rest, {**rename, one.value: one.second}) for one in limits}
        again = {v: value for loop, value in values.items() if isinstance(v := rename[loop], Var)}
        there = [analyzer.simplify(substitute(e, again)) for e in there]
    right = write_digits(analyzer, _within_guards(analyzer, there, guards, own), as_written)
    if left is None or right is None:
        return tuple(wanted)
    pairs: list[tuple[Var, Var]] = [*second.items(), *[(one.value, one.second) for one in limits]]
    divided: list[tuple[DigitSum, DigitSum]] = []
    for a, b in zip(left[1], right[1], strict=False):
        if len(a.places) == len(b.places) and all(map(analyzer.can_prove_equal, a.places, b.places)):
            divided.append((a, b))
            pairs.extend(zip(a.digits, b.digits, strict=True))
    equations = [
        (f, g, e, substitute(h, rename))
        for f, g, e, h in zip(left[0], right[0], store.extents, other.extents, strict=True)
    ]
    one = IntImm(1)
    open_pairs = dict(pairs)
    lines: _Lines = {}
    known: dict[Var, Expr]
    while open_pairs:
        solved = next((v for v in open_pairs if _solves(analyzer, v, open_pairs[v], equations, lines)), None)
        if solved is None:
            break
        same: dict[Var, Expr] = {open_pairs.pop(solved): solved}
        equations = [(f, substitute(g, same), e, substitute(h, same)) for f, g, e, h in equations]
        for one_limit in limits:
            if one_limit.value is solved:
                known = {w: v for v, w in pairs if v not in open_pairs}
                number = substitute(substitute(one_limit.number, rename), known)
                equations.append((one_limit.number, number, one, one))
        for pair in list(divided):
            a, b = pair
            if all(d not in open_pairs for d in a.digits):
                divided.remove(pair)
                known = {w: v for v, w in pairs if v not in open_pairs}
                equations.append((a.value, substitute(b.value, known), one, one))
    missing = tuple([v for v in wanted if v in open_pairs])
    return () if missing and _apart(analyzer, equations) else missing


@dataclass(frozen=True)
class _Limit:
    """A ``number`` of loops that guards of both accesses limit, such as ``j * 64 + k`` below 96.

    ``value`` stands for it, and ``second`` in the other iteration; ``rest`` is what the variable ``loop`` is in terms of it.
    """

    number: Expr
    loop: Var
    value: Var
    second: Var
    rest: Expr


def _shared_limits(analyzer: Analyzer, second: Mapping[Var, Var], store: Access, other: Access) -> list[_Limit]:
    """Return the numbers of loops that a guard limits which both accesses have."""
    theirs = {lp.loop_var for lp in other.loops}
    shared = [lp.loop_var for lp in store.loops if lp.loop_var in theirs]
    alone = {lp.loop_var for lp in (*store.loops, *other.loops)}.difference(shared) | {*store.moving, *other.moving}
    found: dict[Var, _Limit] = {}
    for guard in store.guards:
        bound = as_bound(guard)
        if bound is None or not bound[2] or not isinstance(bound[1], IntImm):
            continue
        number, last, _ = bound
        used = [v for v in (*second, *shared) if uses_var(number, v)]
        if (
            len(used) < 2
            or uses_var(number, lambda v: v in alone)
            or all(value_key(guard) != value_key(g) for g in other.guards)
        ):
            continue
        line = linear_coefficients(number, used, analyzer)
        low, _ = analyzer.const_int_bound(number)
        if line is None or low is None:
            continue
        v = next((v for v, c in zip(used, line[0], strict=True) if is_const_int(c, 1)), None)
        if v is None or any(v in found or uses_var(one.number, v) for one in found.values()):
            continue
        values = [Var(f"limited{end}", v.dtype) for end in ("", "'")]
        for x in values:
            analyzer.bind(x, (low, last))
        found[v] = _Limit(number, v, values[0], values[1], values[0] - (number - v))
    return [*found.values()]


def _within_guards(
    analyzer: Analyzer, indices: Sequence[Expr], guards: Sequence[Expr], own: Sequence[Var]
) -> list[Expr]:
    """Return the indices of an access in terms of the numbers that its guards limit, which are new variables.

    Under ``j * 64 + k < 96``, which ends a loop that was split unevenly, ``i * 96 + (j * 64 + k)`` is ``i * 96 + x`` with
    x below 96. ``own`` are the loops of the access alone.
    """
    out = list(indices)
    for guard in guards:
        bound = as_bound(guard)
        if bound is None or not bound[2] or not isinstance(bound[1], IntImm):
            continue
        number, last, _ = bound
        used = [v for v in own if uses_var(number, v)]
        line = linear_coefficients(number, used, analyzer) if len(used) > 1 else None
        if line is None or not isinstance(line[1], IntImm):
            continue
        low, _ = analyzer.const_int_bound(number)
        v = next((v for v, c in zip(used, line[0], strict=True) if is_const_int(c, 1)), None)
        if low is None or v is None or not any(uses_var(e, v) for e in out):
            continue
        x = Var("limited", v.dtype)
        analyzer.bind(x, (low, last))
        # the others stay as they are: simplifying may tear their digits apart
        out = [analyzer.simplify(substitute(e, {v: x - (number - v)})) if uses_var(e, v) else e for e in out]
    return out


def _has_digits(indices: Iterable[Expr]) -> bool:
    return any(isinstance(n, (FloorDiv, FloorMod)) for e in indices for n in pre_order(e))


def _apart(analyzer: Analyzer, equations: Sequence[tuple[Expr, Expr, Expr, Expr]]) -> bool:
    """Return whether some equation has no solution, so that the two accesses never meet."""
    return any(analyzer.can_prove(g + h <= f) or analyzer.can_prove(f + e <= g) for f, g, e, h in equations)


_Lines = dict[tuple[int, int], tuple[Expr, "tuple[Expr, Expr] | None"]]
"""Linear forms found so far, by expression and variable."""


def _line(analyzer: Analyzer, e: Expr, v: Var, lines: _Lines) -> tuple[Expr, Expr] | None:
    """Return (c, rest) when ``e`` is ``c * v + rest``."""
    known = lines.get((id(e), id(v)))
    if known is None:
        found = linear_coefficients(e, [v], analyzer)
        known = lines[id(e), id(v)] = (e, None if found is None else (found[0][0], found[1]))
    return known[1]


def _solves(
    analyzer: Analyzer, v: Var, w: Var, equations: Sequence[tuple[Expr, Expr, Expr, Expr]], lines: _Lines
) -> bool:
    """Return whether some equation implies that ``v`` (of the store) equals ``w`` (of the other access)."""
    for f, g, e, h in equations:
        line_f = _line(analyzer, f, v, lines)
        if line_f is None or is_const_int(line_f[0], 0):
            continue
        line_g = _line(analyzer, g, w, lines)
        if line_g is None:
            continue
        c, rest_f = line_f
        d, rest_g = line_g
        if not analyzer.can_prove_equal(c, d):
            continue
        if is_const_int(c) and c.value < 0:  # type: ignore[attr-defined]
            c = const(-c.value, c.dtype)  # type: ignore[attr-defined]
        rest = rest_f - rest_g
        # f + i == g + j for some i in [0, e), j in [0, h):  c * (v - w) == j - i - rest
        if analyzer.can_prove(rest + (e - 1) < c) and analyzer.can_prove(rest - (h - 1) > 0 - c):
            return True
    return False


Span = tuple[int, int]
"""The first and the last value of a loop, or of a digit of it."""

Digit = tuple[Var, int, "int | None"]
"""``v % upper // lower`` as (v, lower, upper); a loop itself is (v, 1, None)."""


def undetermined_by_integers(
    chain: Sequence[For], store: Access, other: Access, wanted: Iterable[Var]
) -> tuple[Var, ...] | None:
    """Return the ``wanted`` loops of ``chain`` that may differ where both accesses address one element.

    None means that this is not known.
    """
    if store.moving or other.moving:
        return None
    system = _System(chain, store.loops, other.loops)
    rows = []
    for f, e, g, h in zip(store.indices, store.extents, other.indices, other.extents, strict=True):
        one, two = collect(f, system.term), collect(g, system.term)
        if one is not None and two is not None and isinstance(e, IntImm) and isinstance(h, IntImm):
            rows.append((one, e.value, two, h.value))
    system.solve(rows)
    missing = tuple([v for v in wanted if not system.is_known(v)])
    alike = len(rows) == len(store.indices) and all(f == g and e == h for f, e, g, h in rows)
    met = {term[0] for f, _, g, _ in rows for term in (*f.terms, *g.terms) if term in system.moving}
    return missing if not missing or (alike and met.isdisjoint(missing)) else None


class _System:
    """The equations between the indices of two accesses, and the digits ``known`` to be equal in both."""

    def __init__(self, chain: Sequence[For], mine: Sequence[For], others: Sequence[For]) -> None:
        self.chain, self.mine, self.others = (
            {lp.loop_var: _span(lp) for lp in loops} for loops in (chain, mine, others)
        )
        self.ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in (*chain, *mine, *others)}
        self.moving: set[Any] = set()
        self.known: set[Any] = set()

    def term(self, e: Expr) -> Linear | None:
        """Return ``e`` as one term: a digit of a loop, or the key of an expression without loops."""
        digit = digit_of(e, self.ranges)
        if digit is not None:
            self.moving.add(digit)
            return Linear(0, {digit: 1})
        return None if uses_var(e, self.ranges.__contains__) else Linear(0, {expression_key(e): 1})

    def solve(self, rows: Sequence[tuple[Linear, int, Linear, int]]) -> None:
        """Find the digits of the chain's loops that the equations make equal, each with the help of those before."""
        left = [(d, row) for row in rows for d in row[0].terms if d in self.moving and d[0] in self.chain]
        found = True
        while found:
            found = False
            for digit, row in left:
                if not self.is_equal(digit) and self.determines(digit, *row):
                    self.known.add(digit)
                    found = True

    def is_equal(self, digit: Digit) -> bool:
        """Return whether the digit is known to be equal in both accesses."""
        return digit in self.known or self.is_known(digit[0])

    def is_known(self, v: Var) -> bool:
        """Return whether the value of a loop of the chain is known to be equal in both accesses. It is when all its
        digits are."""
        span = self.chain[v]
        if span is not None and span[0] == span[1]:
            return True
        expected: int | None = 1
        for _, lower, upper in sorted([d for d in self.known if d[0] is v], key=lambda d: d[1]):
            if lower != expected or (upper is not None and upper % lower):
                return False
            expected = upper
        return expected is None or (span is not None and 0 <= span[0] and span[1] < expected)

    def determines(self, digit: Digit, f: Linear, e: int, g: Linear, h: int) -> bool:
        """Return whether ``f + i == g + j`` makes the digit equal. Here i goes from 0 to e - 1 and j from 0 to h -
        1."""
        factor = f.terms[digit]
        if g.terms.get(digit) != factor:
            return False
        low = high = f.const - g.const
        terms = {**f.terms, **g.terms}
        del terms[digit]
        for term in terms:
            found = self.difference(term, f.terms.get(term, 0), g.terms.get(term, 0))
            if found is None:
                return False
            low, high = low + found[0], high + found[1]
        return high + e - 1 < abs(factor) and h - 1 - low < abs(factor)

    def difference(self, term: Any, a: int, b: int) -> Span | None:
        """Return the least and the greatest value of ``a`` times the term here minus ``b`` times the term there."""
        if term not in self.moving:
            return (0, 0) if a == b else None
        if term[0] in self.chain:
            if self.is_equal(term):
                return _times(self.chain, term, a - b)
            one, two = _times(self.chain, term, a), _times(self.chain, term, -b)
        else:
            one, two = _times(self.mine, term, a), _times(self.others, term, -b)
        return None if one is None or two is None else (one[0] + two[0], one[1] + two[1])


def _span(loop: For) -> Span | None:
    first, count = loop.min, loop.extent
    if isinstance(first, IntImm) and isinstance(count, IntImm) and count.value > 0:
        return first.value, first.value + count.value - 1
    return None


def _times(spans: Mapping[Var, Span | None], digit: Digit, factor: int) -> Span | None:
    """Return the least and the greatest value of ``factor`` times the digit; None when that is not known."""
    if factor == 0:
        return 0, 0
    v, lower, upper = digit
    span = spans.get(v)
    if upper is not None:
        span = 0, (upper - 1 if span is None or span[0] < 0 else min(upper - 1, span[1]))
    if span is None:
        return None
    ends = span[0] // lower * factor, span[1] // lower * factor
    return min(ends), max(ends)


def binding_block(store: Access, other: Access, variables: Iterable[Var]) -> BlockRealize | None:
    """Return the outermost block with axes around both accesses, if it binds all the variables; else None."""
    for a, b in zip(store.blocks, other.blocks, strict=False):
        if a is not b:
            return None
        if a.iter_values:
            return a if (bound_variables(a, True) | bound_variables(a, False)).issuperset(variables) else None
    return None


def bound_variables(realize: BlockRealize, reduced: bool) -> set[Var]:
    """Return the variables to which the reduce axes of a block, or else its other axes, are bound."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {v for axis, value in pairs if (axis.kind == IterVar.REDUCE) == reduced for v in vars_in(value)}


def only_reduced(realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Return whether the block binds each of the variables, and binds them to reduce axes only."""
    wanted = set(variables)
    return wanted.isdisjoint(bound_variables(realize, False)) and wanted <= bound_variables(realize, True)


def same_instance(conflict: Conflict, realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Return whether conflicting iterations of the variables run the block with equal axes, storing the same value
    again.

    The block's axes that are bound to the variables are spatial, its stores to the buffer have exactly such axes as
    indices, and it does not read the buffer. A block that uses pointers is trusted to have independent spatial axes.
    """
    block, buffer = realize.block, conflict.store.buffer
    pairs = zip(block.iter_vars, realize.iter_values, strict=True)
    touched = [axis for axis, value in pairs if not vars_in(value).isdisjoint(variables)]
    if any(axis.kind != IterVar.SPATIAL for axis in touched) or next(blocks_below(block.body), None) is not None:
        return False
    if opaque_buffers(block):
        return True
    if conflict.other.realize is not realize or block.init is not None:
        return False
    for access in loads_and_stores(block.body):
        if access.buffer is not buffer:
            continue
        if isinstance(access, BufferLoad) or any(all(i is not axis.var for i in access.indices) for axis in touched):
            return False
    return True


def accumulates(block: Block) -> bool:
    """Return whether every leaf of the block combines its stored value with the old one by a known reducer.

    Then the order of its reduce axes does not matter, but for the rounding of floats and for which of equal elements an
    argmax names. Blocks that use pointers are trusted.
    """
    inner = list(blocks_below(block.body))
    if inner:  # a while around them may ask for what they have summed so far
        around = pre_order(block.body, lambda n: not isinstance(n, (Expr, Block)))
        return not any(isinstance(n, While) for n in around) and all(accumulates(r.block) for r in inner)
    if opaque_buffers(block):
        return True
    updates = updates_of(block.body)
    if isinstance(updates, str):
        return False
    left = [BufferLoad(store.buffer, store.indices) for store in updates.stores]
    found = find_reducer(None, left, [store.value for store in updates.stores])
    written = {store.buffer for store in updates.stores}
    return found is not None and not any(_reads(e, written) for e in (*found[1], *updates.conditions))


def _reads(e: Expr, buffers: Collection[Buffer]) -> bool:
    return any(a.buffer in buffers for a in loads_and_stores(e))


def why_not_privatizable(tree: Tree, loop: For, buffer: Buffer, touches: Sequence[Access]) -> str | None:
    """Return why iterations of ``loop`` cannot each have a private copy of ``buffer``; None when they can.

    ``touches`` are the accesses below the loop. A private copy is possible when nothing outside the loop accesses the buffer, and each iteration writes everything
    that it reads.
    """
    if any(buffer is b for b in tree.func.buffer_map.values()):
        return f"{buffer.name} is a parameter"
    mine = [t for t in touches if t.buffer is buffer]
    everywhere = all_accessed_boxes(tree.func)
    if everywhere is None:
        return "pointers are used elsewhere in the function"
    if len(mine) != sum(t.buffer is buffer for t in everywhere):
        return f"{buffer.name} is used outside loop {loop.loop_var.name} too"
    writers: dict[BlockRealize, None] = {}
    readers: dict[BlockRealize, None] = {}
    for t in mine:
        if not t.blocks:
            return f"{buffer.name} is used outside blocks"
        (writers if t.is_store else readers)[t.blocks[0]] = None
    order = scope_at(tree.scope(loop)).order
    for reader in readers:
        if reader in writers and reader.block.init is not None:
            # the reduction starts again in every iteration, unless a loop further outside carries it
            reduced = bound_variables(reader, True)
            outside = (up for up in tree.loops_above(reader) if tree.is_below(loop, up))
            carrier = next((up.loop_var for up in outside if up.loop_var in reduced), None)
            if carrier is not None:
                return f"loop {carrier.name} carries the reduction of block {reader.block.name_hint!r}"
            continue
        problem = f"block {reader.block.name_hint!r} reads {buffer.name} before it is written"
        for writer in writers:
            if order[writer] >= order[reader]:
                continue
            why = why_not_covered(tree, writer, reader, buffer)
            if why is None:
                break
            problem = why.text
        else:
            return problem
    return None
