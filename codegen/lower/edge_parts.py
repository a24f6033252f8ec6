"""Computes the rows at the edge of a tile in parts: of 11 rows first 8, then 2, then 1.

A tile of unrolled rows at the end of a symbolic size has fewer rows than others, and how many is known at the call. With a
check around each row, values do not stay in registers, and a row costs more than several of a whole tile. Here the number
of rows is written in binary: for each power of two there is code without checks, which runs where that digit is one. A tile of at
most 4 rows, and one of sums, has code for each number of rows instead: parts would each read the whole other operand of a
product, and few rows wait for their own sums. Of the steps of a sum fewer are then written out.

Some checks may hold for fewer rows than others: a window of three rows reads a row behind that of its result. Such rows
stand before or behind those for which all checks hold, and are computed one by one.

A row may be a vector of a tile of several vectors, or 16 lanes of one loop over more lanes. What is left behind the last
whole one is then one vector with a mask. There the checks that choose between values, as at the ends of padded rows, stay
masks of each part.

The rows of a tile must be independent: what a row writes, inside the tile, only the same row reads. What is only read, or is
no index, may depend on rows in any way, as in packed operands: the tile's number in one dimension, the row in another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from ...tir.arith import Analyzer, constant_coefficients, linear_coefficients
from ...tir.arith.affine import as_difference
from ...tir.expr import (
    And,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    Let,
    Max,
    Min,
    Select,
    Var,
    conjuncts,
    const,
    floordiv,
    floormod,
    is_const_int,
    structural_equal,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, LetStmt, Stmt, seq
from ...tir.walk import all_nodes, fresh_copy, substitute, transform, uses_var, vars_in
from .loop_annotations import TAIL

MOST_PARTS = 4
"""The most parts of an edge; tiles of more than 16 rows keep their checks."""

_EACH = 4
"""Tiles of up to so many rows have code for each number of rows; larger ones where sums become short code."""

_STEPS = 2
"""The steps of a sum that are written out for each number of rows."""


@dataclass(frozen=True, slots=True)
class _TileRows:
    """The rows of a tile, ``tall`` in number.

    ``loops`` and ``lanes`` are the variables of the loops over rows, and over the ``wide`` lanes of each where it is a
    vector; ``joined``: one loop goes over the lanes of all rows. ``step`` is the distance of two tiles, and ``left`` says how
    many elements there are from the first one of this tile on. For the last ``less`` of them, and for as many as ``before`` at
    the beginning, some checks do not hold. ``ends``: the checks that hold for no row behind the last one; ``sure``: those of them that
    hold for all rows that are left.
    """

    loops: frozenset[Var]
    lanes: frozenset[Var]
    tall: int
    wide: int
    step: int
    left: Expr
    joined: bool = False
    less: int = 0
    before: Expr | None = None
    ends: tuple[Expr, ...] = ()
    sure: tuple[Expr, ...] = ()


_LANES = 16
"""The lanes of a row where a loop goes over the lanes of several: a vector of 64 bytes of float32."""


def edge_in_parts(
    var: Var,
    body: Stmt,
    terms: Sequence[Expr],
    assume: Callable[[Stmt, list[Expr]], Stmt],
    idle: Callable[[Stmt], Sequence[Expr]],
    analyzer: Analyzer,
) -> Stmt | None:
    """Returns what ``body`` does where not all ``terms`` hold, as parts without these checks, or None.

    ``var`` counts the tiles, ``assume(body, terms)`` takes checks as true, and ``idle(body)`` returns checks without any of
    which it changes nothing. None stands for bodies whose rows are not independent, or are not the unrolled rows of one
    tile. Rows for which some checks hold and others do not, as at the ends of a padded image, are computed one by one.
    """
    loops = {n.loop_var: n for n in all_nodes(body) if type(n) is For}
    rows, whole_too = _rows_of(var, terms, loops, analyzer), False
    if rows is not None and rows.wide > 1:
        if _keeps_sums(body, rows):
            return _sums_by_vectors(var, body, terms, rows, assume, idle)
        rows = None if rows.less or rows.before is not None else rows
    if rows is None and len(guards := _guards(body, terms)) < len(terms):
        rows = _rows_of(var, guards, loops, analyzer)
        if rows is None or rows.wide == 1:
            return None
        terms, whole_too = guards, True  # the others choose between values, in the lanes of each part
    own = {n.buffer for n in all_nodes(body) if type(n) is Allocate}
    if rows is None or not _stores_only_where(body, rows.ends, own):
        return None
    plain = assume(body, [*terms])
    if not _are_independent(var, rows, plain, own):
        return None
    zero, tall = const(0, var.dtype), const(rows.tall, var.dtype)
    left, before = Var(f"{var.name}_left", var.dtype), Var(f"{var.name}_before", var.dtype)
    start: Expr = zero if rows.before is None else before
    whole = rows.left - rows.less if rows.less else rows.left
    whole = Max(whole if rows.before is None else Min(whole, tall) - before, zero)
    if whole_too:
        whole = Min(whole, tall * rows.wide)
    parts: list[Stmt] = []
    short = _rolled(plain) if rows.wide == 1 else plain
    if rows.wide == 1 and (rows.tall <= _EACH or short is not plain):
        for count in range(1, rows.tall):
            part = _moved(rows, short, own, count, start)
            parts.append(IfThenElse(left.equal(count), fresh_copy(part)))
    else:
        most = rows.tall if whole_too else rows.tall - 1
        length = 1 << most.bit_length() - 1
        while length:
            unit = length * rows.wide
            first = floordiv(left, 2 * unit) * (2 * length) if 2 * length <= most else zero
            runs = floormod(floordiv(left, unit), 2).equal(1)
            first = first if rows.before is None else first + before
            parts.append(IfThenElse(runs, fresh_copy(_moved(rows, plain, own, length, first))))
            length //= 2
    if rows.wide > 1:
        first = floordiv(left, rows.wide)
        parts.append(IfThenElse(first * rows.wide < left, fresh_copy(_moved(rows, body, own, 1, first))))
    elif rows.less or rows.before is not None:
        row = Var(f"{var.name}_row", var.dtype)
        at = row + left if rows.before is None else row + Select(row < before, zero, left)
        one = fresh_copy(_moved(rows, assume(body, [*rows.sure]), own, 1, at))
        parts.append(For(row, zero, Max(Min(rows.left, tall) - left, zero), "serial", one, None, {TAIL: "mask"}))
    made: Stmt = LetStmt(left, whole, seq(*parts))
    return made if rows.before is None else LetStmt(before, Max(rows.before, zero), made)


_MOST_VECTORS = 8
"""The most vectors of a tile whose sums get code for each of them."""


def _keeps_sums(body: Stmt, rows: _TileRows) -> bool:
    """Returns whether all that ``body`` stores are sums that outlive the tile, each of one vector of the row."""
    if rows.tall > _MOST_VECTORS or any(type(n) is Allocate for n in all_nodes(body)):
        return False
    stored = {n.buffer for n in all_nodes(body) if type(n) is BufferStore}
    accesses = [n for n in all_nodes(body) if isinstance(n, (BufferLoad, BufferStore)) and n.buffer in stored]
    named = rows.loops | rows.lanes
    places = [(n.buffer, d, i) for n in accesses for d, i in enumerate(n.indices) if vars_in(i) & named]
    one_each = len(places) == len(accesses) and len({(buffer, d) for buffer, d, _ in places}) == len(stored)
    return one_each and all(_is_own_row(i, rows) for _, _, i in places)


def _sums_by_vectors(
    var: Var,
    body: Stmt,
    terms: Sequence[Expr],
    rows: _TileRows,
    assume: Callable[[Stmt, list[Expr]], Stmt],
    idle: Callable[[Stmt], Sequence[Expr]],
) -> Stmt:
    """Returns the edge of a tile of sums: each vector whole where all checks hold, else with a mask."""
    left, before = Var(f"{var.name}_left", var.dtype), Var(f"{var.name}_before", var.dtype)
    plain = assume(body, [*terms])
    ending = any(structural_equal(check, end) for check in idle(body) for end in rows.ends)
    parts: list[Stmt] = []
    for at in range(rows.tall):
        whole: Expr = const((at + 1) * rows.wide + rows.less, var.dtype) <= left
        if rows.before is not None:
            whole = And(whole, before <= at * rows.wide)
        first = const(at, var.dtype)
        masked: Stmt = fresh_copy(_moved(rows, body, (), 1, first))
        if ending and at:
            masked = IfThenElse(const(at * rows.wide, var.dtype) < left, masked)
        parts.append(IfThenElse(whole, fresh_copy(_moved(rows, plain, (), 1, first)), masked))
    made: Stmt = LetStmt(left, rows.left, seq(*parts))
    return made if rows.before is None else LetStmt(before, rows.before, made)


def _guards(body: Stmt, terms: Sequence[Expr]) -> list[Expr]:
    """Returns those of ``terms`` without which a statement does not run. Others choose between values."""
    guards = [n.condition for n in all_nodes(body) if type(n) is IfThenElse and n.else_case is None]
    parts = [part for guard in guards for part in conjuncts(guard)]
    return [term for term in terms if any(structural_equal(term, part) for part in parts)]


def _rows_of(var: Var, terms: Sequence[Expr], loops: dict[Var, For], analyzer: Analyzer) -> _TileRows | None:
    """Returns the rows that all checks are about, or None where they are about other things."""
    found: set[Var] = set()
    across: set[Var] = set()
    sizes: set[tuple[int, int, int, bool]] = set()
    ends: dict[Expr, Expr] = {}
    left: list[Expr] = []
    before: list[Expr] = []
    inner = [[loops[v] for v in vars_in(term) & loops.keys()] for term in terms]
    unrolled = [[loop for loop in inside if loop.kind == "unrolled"] for inside in inner]
    alone = {own[0] for own in unrolled if len(own) == 1}
    for term, inside, rows in zip(terms, inner, unrolled, strict=True):
        gap = as_difference(term)
        if gap is None or not all(_is_constant(loop) for loop in inside):
            return None
        steps = [loop for loop in rows if len(rows) > 1 and loop not in alone]
        rows = [loop for loop in rows if loop not in steps]
        lanes = [loop for loop in inside if loop.kind == "vectorized"]
        joined = not rows
        if joined and len(lanes) == 1 and _extent(lanes[0]) % _LANES == 0:
            rows, lanes = lanes, []
        if len(rows) != 1 or len(lanes) > 1 or len(rows) + len(lanes) + len(steps) != len(inside):
            return None
        wide = _extent(lanes[0]) if lanes else 1
        linear = linear_coefficients(gap, [var, rows[0].loop_var, *[loop.loop_var for loop in (*lanes, *steps)]])
        numbers = [c.value for c in linear[0] if isinstance(c, IntImm)] if linear is not None else []
        if linear is None or len(numbers) < len(linear[0]):
            return None
        by, slope = _LANES if joined else 1, numbers[1 : 2 + len(lanes)]
        most = sum(max(c * (_extent(loop) - 1), 0) for c, loop in zip(numbers[2 + len(lanes) :], steps, strict=True))
        if slope == [wide, *[1 for _ in lanes]]:
            left.append(analyzer.simplify(-linear[1] - most - var * numbers[0]))
            if not steps:
                ends[term] = left[-1]
        elif slope == [-1]:
            before.append(analyzer.simplify(linear[1] + most + 1 + var * numbers[0]))
            numbers[0] = -numbers[0]
        else:
            return None
        found.add(rows[0].loop_var)
        across.update(loop.loop_var for loop in lanes)
        sizes.add((_extent(rows[0]) // by, wide * by, numbers[0], joined))
    if len(sizes) != 1 or not ends:
        return None
    ((tall, wide, step, joined),) = sizes
    last, first = _farthest([*ends.values()], analyzer), _farthest([0 - e for e in left], analyzer)
    less = None if last is None or first is None else analyzer.simplify(last + first)
    ahead = _farthest(before, analyzer) if before else None
    if last is None or not isinstance(less, IntImm) or (before and ahead is None):
        return None
    less = less.value
    if not 1 < tall <= 1 << MOST_PARTS or step <= 0 or (wide == 1 and less >= tall):
        return None
    sure = tuple([term for term, end in ends.items() if is_const_int(analyzer.simplify(last - end), 0)])
    return _TileRows(
        frozenset(found), frozenset(across), tall, wide, step, last, joined, less, ahead, tuple(ends), sure
    )


def _farthest(places: Sequence[Expr], analyzer: Analyzer) -> Expr | None:
    """Returns the largest of expressions that differ by numbers, None for others."""
    found = places[0]
    for place in places[1:]:
        more = analyzer.simplify(place - found)
        if not isinstance(more, IntImm):
            return None
        found = place if more.value > 0 else found
    return found


def _is_constant(loop: For) -> bool:
    return isinstance(loop.extent, IntImm) and isinstance(loop.min, IntImm) and loop.min.value == 0


def _extent(loop: For) -> int:
    assert isinstance(loop.extent, IntImm)
    return loop.extent.value


def _stores_only_where(body: Stmt, terms: Sequence[Expr], own: Container[Buffer]) -> bool:
    """Returns whether ``body`` stores to memory that is not its own under the checks alone.

    Elsewhere rows behind the last one get a value, too: from the other side of ``if_then_else``.
    """
    if isinstance(body, BufferStore):
        return body.buffer in own
    if isinstance(body, IfThenElse) and any(
        structural_equal(part, term) for part in conjuncts(body.condition) for term in terms
    ):
        return body.else_case is None or _stores_only_where(body.else_case, terms, own)
    return all(_stores_only_where(part, terms, own) for part in body.children() if isinstance(part, Stmt))


def _are_independent(var: Var, rows: _TileRows, body: Stmt, own: Container[Buffer]) -> bool:
    """Returns whether rows can be computed one part after the other.

    Memory of the tile is addressed by the row in one dimension, or by no row and is then made anew by each part. What is
    stored elsewhere lies in the element's own row, and is read there only.
    """
    if any(
        isinstance(n, Call) and n.op in ("tir.address_of", "tir.call_extern", "tir.assume") for n in all_nodes(body)
    ):
        return False
    named = _names_of_rows(rows, body)
    dims: dict[Buffer, set[int | None]] = {}
    stored = {n.buffer for n in all_nodes(body) if type(n) is BufferStore}
    for n in all_nodes(body):
        if type(n) is BufferStore or (type(n) is BufferLoad and n.buffer in stored):
            if any(vars_in(i) & named for i in n.indices):
                return False
            dims.setdefault(n.buffer, set()).add(_row_dim(n.indices, var, rows, inside=n.buffer in own))
    return all(len(found) == 1 and (b in own or None not in found) and -1 not in found for b, found in dims.items())


def _names_of_rows(rows: _TileRows, body: Stmt) -> set[Var]:
    """Returns the names in ``body`` of values that depend on the row."""
    found: set[Var] = set()
    before = -1
    lets = [n for n in all_nodes(body) if isinstance(n, (Let, LetStmt))]
    while len(found) > before:
        before = len(found)
        found |= {n.var for n in lets if vars_in(n.value) & (rows.loops | rows.lanes | found)}
    return found


def _row_dim(indices: Sequence[Expr], var: Var, rows: _TileRows, inside: bool) -> int | None:
    """Returns the dimension of an access that is the row. None: no row is in it, -1: rows are in it otherwise."""
    used = [
        d for d, i in enumerate(indices) if vars_in(i) & (rows.loops | rows.lanes) or (not inside and uses_var(i, var))
    ]
    if not used:
        return None
    if len(used) > 1:
        return -1
    index = indices[used[0]]
    return used[0] if (_is_own_row(index, rows) if inside else _is_row(index, var, rows)) else -1


def _is_row(e: Expr, var: Var, rows: _TileRows) -> bool:
    """Returns whether an index is one of this tile's row, plus what does not depend on the tile."""
    return _coefficients(e, [var], rows) == _of_row([rows.step], rows)


def _is_own_row(e: Expr, rows: _TileRows) -> bool:
    """Returns whether an index is a row of memory that the tile has for itself."""
    return _coefficients(e, [], rows) == _of_row([], rows) and not vars_in(e) - rows.loops - rows.lanes


def _of_row(before: list[int], rows: _TileRows) -> list[int]:
    """Returns the coefficients of the index of a row and its lane, behind those of other variables."""
    return [*before, *([1] if rows.joined or rows.wide == 1 else [rows.wide, 1])]


def _coefficients(e: Expr, variables: list[Var], rows: _TileRows) -> list[int] | None:
    """Returns the coefficients of variables, a row and its lane in an index; None for other indices."""
    used = vars_in(e)
    row, lane = [*used & rows.loops], [*used & rows.lanes]
    by = 1 if rows.joined else rows.wide
    if len(row) != 1 or len(lane) != (by > 1) or (linear := linear_coefficients(e, [*variables, *row, *lane])) is None:
        return None
    numbers = [c.value for c in linear[0] if isinstance(c, IntImm)]
    return numbers if len(numbers) == len(linear[0]) else None


def _rolled(body: Stmt) -> Stmt:
    """Returns ``body`` with fewer steps of loops written out: where 8 are, 2 are.

    Before::

        for k_o in range(32):
            for k_i in T.unroll(8): f(k_o * 8 + k_i)

    After::

        for k_o in range(128):
            for k_i in T.unroll(2): f(k_o * 2 + k_i)
    """

    def post(n: IRNode) -> Stmt | None:
        if not (isinstance(n, For) and n.kind == "serial" and isinstance(n.body, For) and n.body.kind == "unrolled"):
            return None
        inner = n.body
        if not (_is_constant(n) and _is_constant(inner)) or n.annotations or inner.annotations:
            return None
        steps = _extent(inner)
        if steps <= _STEPS or steps % _STEPS or not _is_one_loop(inner.body, n.loop_var, inner.loop_var, steps):
            return None
        at = n.loop_var * _STEPS + inner.loop_var
        whole = substitute(inner.body, {n.loop_var: const(0, n.loop_var.dtype), inner.loop_var: at})
        return n.with_(
            extent=const(_extent(n) * (steps // _STEPS), n.extent.dtype),
            body=inner.with_(extent=const(_STEPS, inner.extent.dtype), body=whole),
        )

    return transform(body, post=post)  # type: ignore[no-any-return]


def _is_one_loop(body: Stmt, outer: Var, inner: Var, steps: int) -> bool:
    """Returns whether ``outer`` and ``inner`` are used as ``outer * steps + inner`` alone."""
    both = {outer, inner}

    def fits(n: IRNode) -> bool:
        if isinstance(n, Expr) and not isinstance(n, BufferLoad) and n.dtype.is_int and (used := vars_in(n) & both):
            found = constant_coefficients(n, [outer, inner])
            return used == both and found is not None and found[0] == steps * found[1]
        return all(fits(c) for c in n.children())

    return fits(body)


def _moved(rows: _TileRows, body: Stmt, own: Container[Buffer], length: int, first: Expr) -> Stmt:
    """Returns the code of ``length`` rows from the row number ``first`` of the tile on. Its own memory begins at row 0."""
    start = first * rows.wide if rows.joined else first

    def row(n: IRNode) -> IRNode | None:
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer in own:
            return n.map_children(
                lambda c: c if isinstance(c, Expr) and _is_own_row(c, rows) else transform(c, row, loop)
            )
        return n + start if n in rows.loops else None  # type: ignore[operator]

    def loop(n: IRNode) -> IRNode | None:
        if isinstance(n, For) and n.loop_var in rows.loops:
            return n.with_(extent=const(length * rows.wide if rows.joined else length, n.extent.dtype))
        return None

    return transform(body, row, loop)  # type: ignore[no-any-return]
