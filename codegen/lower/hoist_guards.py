"""Moves bounds checks out of inner loops: a main version without them, and another version for the edge.

A tile that does not divide its extent leaves checks like ``i0 * 8 + i1 < 255`` in the innermost loops. For all but the
last ``i0`` the check holds for every ``i1``. This pass splits the iterations of ``i0`` into those where the check
always holds and the rest. Where the rest is one iteration, it replaces ``i0`` by its value, so that unrolled rows
beyond the edge vanish and vector checks become constant masks. It is index-set splitting (Banerjee 1979) driven by
conditions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...tir import op
from ...tir.arith import Analyzer, conjuncts, eval_interval, linear_coefficients, loop_values
from ...tir.dtype import is_int
from ...tir.equal import structural_equal
from ...tir.expr import And, Call, Expr, FloorDiv, FloorMod, IntImm, Range, Select, Var, const
from ...tir.fresh_copy import fresh_copy
from ...tir.function import PrimFunc
from ...tir.index_types import index_like
from ...tir.node import Node
from ...tir.stmt import For, IfThenElse, LetStmt, Stmt, seq
from ...tir.walk import pre_order, substitute, transform, vars_in
from .bound_checks import as_difference, inner_domains

TAIL = "pragma_tail"

_MAX_COPIES = 12


def name_quotients(func: PrimFunc) -> PrimFunc:
    """Give names to the quotients and remainders of a fused loop's variable, so that checks are affine in plain
    variables.

    Before::

        for f in T.parallel(60):
            ... f // 6 * 8 + i < 77 ...

    After::

        for f in T.parallel(60):
            f_0: T.int32 = f // 6
            ... f_0 * 8 + i < 77 ...
    """

    def post(n: Node) -> Stmt | None:
        if not isinstance(n, For) or n.kind in ("vectorized", "unrolled"):
            return None
        wanted: list[Expr] = []
        for cond in _conditions(n.body):
            for part in _maximal_quotients(cond, n.loop_var):
                if not any(structural_equal(part, w) for w in wanted):
                    wanted.append(part)
        if not wanted:
            return None
        body = n.body
        names: list[tuple[Var, Expr]] = []
        for part in wanted:
            name = Var(f"{n.loop_var.name}_{len(names)}", part.dtype)
            names.append((name, part))

        def rename(e: Node) -> Node | None:
            if isinstance(e, (FloorDiv, FloorMod)) and n.loop_var in vars_in(e):
                for name, part in names:
                    if structural_equal(e, part):
                        return name
            return None

        body = transform(body, rename)
        for name, part in reversed(names):
            body = LetStmt(name, part, body)
        return n.with_(body=body)

    return transform(func, post=post)  # type: ignore[no-any-return]


def hoist_guards(func: PrimFunc) -> PrimFunc:
    """Split loops (and named quotients) where inner checks no longer hold for all iterations.

    Before::

        for i0 in range(32):
            for i1 in T.unroll(8):
                if i0 * 8 + i1 < 255: f(i0 * 8 + i1)

    After::

        for i0 in range(31):
            for i1 in T.unroll(8): f(i0 * 8 + i1)
        for i1 in T.unroll(8):
            if 248 + i1 < 255: f(248 + i1)

    A loop with ``pragma_tail = "mask"`` stays whole: its checks become masks of vectors, computed in every iteration.
    That is smaller, and faster for loops of few iterations.
    """
    analyzer = Analyzer()

    def visit(node: Node, copies: int) -> Node:
        if isinstance(node, Expr):
            return node
        if isinstance(node, For):
            if isinstance(node.min, IntImm) or isinstance(node.extent, IntImm):
                analyzer.bind(node.loop_var, loop_values(node))
            if node.kind in ("serial", "parallel") and _has_edge_code(node):
                split = _split_loop(node, analyzer, copies)
                if split is not None:
                    return visit_pieces(split, copies)
        if isinstance(node, LetStmt):
            bounds = analyzer.const_int_bound(node.value) if is_int(node.value.dtype) else (None, None)
            if None not in bounds:
                low, high = bounds
                assert low is not None and high is not None
                analyzer.bind(node.var, Range(const(low, node.var.dtype), const(high - low + 1, node.var.dtype)))
                pieces = _split_let(node, low, high, analyzer, copies)
                if pieces is not None:
                    return visit_pieces(pieces, copies)
        return node.map_children(lambda c: visit(c, copies))

    def visit_pieces(pieces: list[tuple[str, Node]], copies: int) -> Node:
        """Visit the parts that a split made: their loop headers are done, their bodies are not."""
        count = sum(1 for kind, _ in pieces if kind != "glue")
        out: list[Stmt] = []
        for kind, piece in pieces:
            if kind == "glue":  # a loop or let around an if with two versions
                assert isinstance(piece, (For, LetStmt)) and isinstance(piece.body, IfThenElse)
                branch = piece.body
                assert branch.else_case is not None
                body = IfThenElse(
                    branch.condition, visit(branch.then_case, copies * 2), visit(branch.else_case, copies * 2)  # type: ignore[arg-type]
                )  # fmt: skip
                out.append(piece.map_children(lambda c, b=branch, new=body: new if c is b else c))  # type: ignore[misc]
            elif kind == "loop":
                assert isinstance(piece, For)
                analyzer.bind(piece.loop_var, loop_values(piece))
                out.append(piece.map_children(lambda c: visit(c, copies * count) if isinstance(c, Stmt) else c))
            else:
                out.append(visit(piece, copies * count))  # type: ignore[arg-type]
        return seq(*out)

    return func.with_body(visit(func.body, 1))  # type: ignore[arg-type]


def _has_edge_code(loop: For) -> bool:
    """Returns whether the edge of a loop gets code of its own. ValueError for an unknown value of the annotation."""
    wish = loop.annotations.get(TAIL, "peel")
    wish = getattr(wish, "value", wish)
    if wish not in ("peel", "mask"):
        raise ValueError(f'{TAIL} of loop {loop.loop_var.name} is {wish!r}; it is "peel" or "mask"')
    return bool(wish == "peel")


def _split_loop(loop: For, analyzer: Analyzer, copies: int) -> list[tuple[str, Node]] | None:
    if not (isinstance(loop.min, IntImm) and loop.min.value == 0):
        return None
    plan = _plan(loop.loop_var, loop.body, analyzer)
    if plan is None or copies * 2 > _MAX_COPIES:
        return None
    terms, low, high, rest = plan
    var, dtype = loop.loop_var, loop.loop_var.dtype
    main_body = _assume(loop.body, terms)
    extent = loop.extent.value if isinstance(loop.extent, IntImm) else None
    if rest is None and extent is not None:
        low, high = max(0, low if low is not None else 0), min(extent, high if high is not None else extent)
        if high <= low:
            return None
        if loop.kind == "serial":
            pieces: list[tuple[str, Node]] = []
            if low > 0:
                pieces.append(_edge(loop, 0, low))
            pieces.append(_piece(loop, low, high, main_body))
            if high < extent:
                pieces.append(_edge(loop, high, extent))
            return pieces
        tail = _edge_value(low, high, extent)
        edge = fresh_copy(loop.body, {} if tail is None else {var: const(tail, dtype)})
        tests = ([] if low == 0 else [var >= low]) + ([] if high == extent else [var < high])
        return [("glue", loop.with_(body=IfThenElse(op.all_(*tests), main_body, edge)))]
    condition = _full_condition(var, low, high, rest)
    return [("glue", loop.with_(body=IfThenElse(condition, main_body, fresh_copy(loop.body))))]


def _split_let(let: LetStmt, first: int, last: int, analyzer: Analyzer, copies: int) -> list[tuple[str, Node]] | None:
    plan = _plan(let.var, let.body, analyzer)
    if plan is None or copies * 2 > _MAX_COPIES:
        return None
    terms, low, high, rest = plan
    main_body = _assume(let.body, terms)
    values: dict[Var, Expr] = {}
    if rest is None:
        low, high = max(first, low if low is not None else first), min(last + 1, high if high is not None else last + 1)
        if high <= low:
            return None
        tail = _edge_value(low - first, high - first, last + 1 - first)
        if tail is not None:
            values = {let.var: const(tail + first, let.var.dtype)}
    condition = _full_condition(let.var, low if low != first else None, high if high != last + 1 else None, rest)
    return [("glue", LetStmt(let.var, let.value, IfThenElse(condition, main_body, fresh_copy(let.body, values))))]


def _edge_value(low: int, high: int, extent: int) -> int | None:
    """Returns the only value of ``[0, extent)`` outside ``[low, high)``, or None when there is not exactly one."""
    if low == 0 and high == extent - 1:
        return high
    if low == 1 and high == extent:
        return 0
    return None


def _full_condition(var: Var, low: int | None, high: int | None, rest: Expr | None) -> Expr:
    tests: list[Expr] = []
    if low is not None:
        tests.append(var >= low)
    if high is not None:
        tests.append(var < high)
    if rest is not None:
        tests.append(rest)
    return op.all_(*tests)


def _piece(loop: For, low: int, high: int, body: Stmt) -> tuple[str, Node]:
    dtype = loop.loop_var.dtype
    if low == 0:
        return "loop", loop.with_(extent=const(high, dtype), body=body)
    return "loop", loop.with_(
        extent=const(high - low, dtype), body=substitute(body, {loop.loop_var: loop.loop_var + low})
    )


def _edge(loop: For, low: int, high: int) -> tuple[str, Node]:
    dtype = loop.loop_var.dtype
    if high - low == 1:
        return "body", fresh_copy(loop.body, {loop.loop_var: const(low, dtype)})
    copy = fresh_copy(loop.with_(extent=const(high - low, dtype)))
    return "loop", copy.with_(body=substitute(copy.body, {copy.loop_var: copy.loop_var + low}))


def _plan(var: Var, body: Stmt, analyzer: Analyzer) -> tuple[list[Expr], int | None, int | None, Expr | None] | None:
    """Returns the checks in ``body`` that splitting at ``var`` decides, and the condition under which all of them hold:
    ``low <= var < high`` and ``rest`` (a condition on variables from outside)."""
    inner = inner_domains(body)
    terms: list[Expr] = []
    low: int | None = None
    high: int | None = None
    rest: list[Expr] = []
    for term in _terms(body):
        used = vars_in(term)
        if var not in used or any(structural_equal(term, t) for t in terms):
            continue
        inside = used & set(inner)
        if not inside or any(inner[v] is None for v in inside):
            continue
        gap = as_difference(term)
        if gap is None:
            continue
        span = eval_interval(gap, {v: inner[v] for v in inside})  # type: ignore[misc]
        if span is None:
            continue
        worst = analyzer.simplify(span[1])
        if vars_in(worst) & set(inner):
            continue
        linear = linear_coefficients(worst, [var])
        if linear is None:
            continue
        (slope,), base = linear
        slope, base = analyzer.simplify(slope), analyzer.simplify(base)
        if not isinstance(slope, IntImm) or slope.value == 0:
            continue
        if isinstance(base, IntImm):  # slope * var + base < 0
            if slope.value > 0:
                top = -((base.value) // slope.value)  # ceil(-base / slope)
                high = top if high is None else min(high, top)
            else:
                bottom = base.value // -slope.value + 1
                low = bottom if low is None else max(low, bottom)
        else:
            rest.append(worst < 0)
        terms.append(term)
    if not terms:
        return None
    return terms, low, high, op.all_(*rest) if rest else None


def _conditions(body: Node) -> Iterator[Expr]:
    for n in pre_order(body):
        if isinstance(n, (IfThenElse, Select)):
            yield n.condition
        elif isinstance(n, Call) and n.op == "tir.if_then_else":
            yield n.args[0]


def _terms(body: Node) -> Iterator[Expr]:
    for cond in _conditions(body):
        yield from conjuncts(cond)


def _maximal_quotients(e: Expr, var: Var) -> Iterator[Expr]:
    if isinstance(e, (FloorDiv, FloorMod)) and index_like(e) and vars_in(e) == {var}:
        yield e
        return
    for child in e.children():
        yield from _maximal_quotients(child, var)  # type: ignore[arg-type]


def _assume(body: Stmt, terms: list[Expr]) -> Stmt:
    """Returns ``body`` with the given checks taken as true."""

    def holds(e: Expr) -> bool:
        return any(e is t or structural_equal(e, t) for t in terms)

    def strip(cond: Expr) -> Expr:
        if isinstance(cond, And):
            a, b = strip(cond.a), strip(cond.b)
            if isinstance(a, IntImm) and a.value:
                return b
            if isinstance(b, IntImm) and b.value:
                return a
            return cond if a is cond.a and b is cond.b else And(a, b)
        return IntImm(1, "bool") if holds(cond) else cond

    def post(n: Node) -> Node | None:
        if isinstance(n, IfThenElse):
            cond = strip(n.condition)
            if isinstance(cond, IntImm) and cond.value:
                return n.then_case
            return None if cond is n.condition else IfThenElse(cond, n.then_case, n.else_case)
        if isinstance(n, Select):
            cond = strip(n.condition)
            if isinstance(cond, IntImm) and cond.value:
                return n.true_value
            return None if cond is n.condition else Select(cond, n.true_value, n.false_value)
        if isinstance(n, Call) and n.op == "tir.if_then_else":
            cond = strip(n.args[0])
            if isinstance(cond, IntImm) and cond.value:
                return n.args[1]
            return None if cond is n.args[0] else Call(n.op, (cond, *n.args[1:]), n.dtype)
        return None

    return transform(body, post=post)  # type: ignore[no-any-return]
