"""Which iterations of a loop may change places: dependence tests over the accesses below it.

Two iterations are independent when no element that one writes is touched by the other. The test solves, for a store
and another access to the same buffer, "both address the same element" for the loop variables: an index
``c*i + rest`` determines ``i`` when ``rest`` cannot reach ``|c|``; what is determined helps to determine the next one
(``i_0*8 + i_1``: first ``i_0``, then ``i_1``). Quotients and remainders (fused loops) are written in digits first. If
all loop variables turn out to be determined, elements are shared within one iteration only. This is the classic
separability test (Banerjee, *Dependence Analysis*, 1997) with symbolic ranges, in the mixed-radix form of TVM's
iteration maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any

from ..tir.arith import Analyzer, linear_coefficients
from ..tir.buffer import Buffer, BufferRegion
from ..tir.expr import BufferLoad, Expr, FloorDiv, FloorMod, IntImm, IterVar, Range, Var, const, is_const_int
from ..tir.function import PrimFunc
from ..tir.stmt import AttrStmt, Block, BlockRealize, BufferStore, For, Stmt
from ..tir.walk import pre_order, substitute
from .analysis import opaque_buffers
from .errors import ScheduleError
from .regions import check_cover
from .tree import Tree

__all__ = ["Conflict", "Touch", "binding_block", "conflicts", "local_to_turns", "only_reduced", "touches_below"]

_serial = count()


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """A box of a buffer that is read or written: ``first`` element and ``extents`` per dimension, in terms of the
    loops. ``loops`` are those between the statement asked about and the access; ``realize`` is the innermost block
    around it (None outside blocks), ``blocks`` all blocks around it, outermost first."""

    buffer: Buffer
    first: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    is_store: bool
    loops: tuple[For, ...]
    realize: BlockRealize | None
    blocks: tuple[BlockRealize, ...]


def touches_below(stmt: Stmt) -> list[Touch]:
    """Everything that is read or written below ``stmt``. Buffers allocated below it are left out.

    Blocks that use pointers (calls, match_buffers) count with the regions they declare.
    """
    walker = _Walker()
    walker.visit(stmt, {}, (), ())
    return [t for t in walker.found if t.buffer not in walker.private]


class _Walker:
    def __init__(self) -> None:
        self.found: list[Touch] = []
        self.private: set[Buffer] = set()

    def visit(self, n: Any, env: dict[Var, Expr], loops: tuple[For, ...], blocks: tuple[BlockRealize, ...]) -> None:
        if isinstance(n, (Var, IntImm)):
            return
        if isinstance(n, For):
            self.visit(n.min, env, loops, blocks)
            self.visit(n.extent, env, loops, blocks)
            if env:
                n = n.with_(min=substitute(n.min, env), extent=substitute(n.extent, env))
            self.visit(n.body, env, (*loops, n), blocks)
        elif isinstance(n, BlockRealize):
            for value in (*n.iter_values, n.predicate):
                self.visit(value, env, loops, blocks)
            block = n.block
            inner = dict(env)
            for axis, value in zip(block.iter_vars, n.iter_values, strict=True):
                inner[axis.var] = substitute(value, env) if env else value
            self.private.update(block.alloc_buffers)
            blocks = (*blocks, n)
            if opaque_buffers(block):
                for region in block.reads:
                    self.region(region, False, inner, loops, blocks)
                for region in block.writes:
                    self.region(region, True, inner, loops, blocks)
                return
            if block.init is not None:
                self.visit(block.init, inner, loops, blocks)
            self.visit(block.body, inner, loops, blocks)
        else:
            if isinstance(n, (BufferLoad, BufferStore)):
                indices = tuple([substitute(i, env) for i in n.indices]) if env else n.indices
                ones = tuple([const(1, i.dtype) for i in indices])
                self.add(n.buffer, indices, ones, isinstance(n, BufferStore), loops, blocks)
            if isinstance(n, AttrStmt) or not isinstance(n, Block):
                for child in n.children():
                    self.visit(child, env, loops, blocks)

    def region(
        self, r: BufferRegion, store: bool, env: dict[Var, Expr], loops: tuple[For, ...], blocks: tuple[Any, ...]
    ) -> None:
        first = tuple([substitute(d.min, env) for d in r.region])
        self.add(r.buffer, first, tuple([substitute(d.extent, env) for d in r.region]), store, loops, blocks)

    def add(self, buffer: Buffer, first: Any, extents: Any, store: bool, loops: Any, blocks: tuple[Any, ...]) -> None:
        self.found.append(Touch(buffer, first, extents, store, loops, blocks[-1] if blocks else None, blocks))


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """A store and another access that may meet in different iterations of ``loops`` (those not told apart)."""

    store: Touch
    other: Touch
    loops: tuple[Var, ...]

    def text(self) -> str:
        """What meets, for messages."""
        return f"{_shown(self.store)} is written" + (
            f" and {_shown(self.other)} {'written' if self.other.is_store else 'read'}"
            if self.other.first is not self.store.first
            else ""
        )


def _shown(t: Touch) -> str:
    parts = [
        str(first) if is_const_int(extent, 1) else f"{first}:{first + extent}"
        for first, extent in zip(t.first, t.extents, strict=True)
    ]
    return f"{t.buffer.name}[{', '.join(parts)}]"


def conflicts(
    analyzer: Analyzer, chain: Sequence[For], touches: Sequence[Touch], asked: Iterable[Var] | None = None
) -> Iterator[Conflict]:
    """Pairs of accesses below the nest ``chain`` that may share an element in different iterations of it.

    ``analyzer`` knows everything outside the chain; the loops of the chain are told to it here. ``asked`` are the
    variables that matter (default: all of the chain); the others are free to differ.
    """
    wanted = [loop.loop_var for loop in chain] if asked is None else list(asked)
    by_buffer: dict[Buffer, list[Touch]] = {}
    for t in touches:
        by_buffer.setdefault(t.buffer, []).append(t)
    # a loop of one iteration cannot tell iterations apart
    several = [loop.loop_var for loop in chain if not is_const_int(loop.extent, 1)]
    wanted = [v for v in wanted if v in several]
    second = {v: Var(f"{v.name}'", v.dtype) for v in several}
    for loop in chain:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))
    for loop in chain:
        if loop.loop_var not in second:
            continue
        analyzer.bind(
            second[loop.loop_var],
            Range(substitute(loop.min, second), substitute(loop.extent, second)),  # type: ignore[arg-type]
        )
    for group in by_buffer.values():
        if not any(t.is_store for t in group):
            continue
        group = _distinct(group)
        for number, store in enumerate(group):
            if not store.is_store:
                continue
            for other_number, other in enumerate(group):
                if other.is_store and other_number < number:
                    continue
                missing = _undetermined(analyzer, second, wanted, store, other)
                if missing:
                    yield Conflict(store, other, missing)


def _distinct(group: list[Touch]) -> list[Touch]:
    """One of those accesses of a block that address the same element the same way; stores stand for loads."""
    seen: dict[Any, Touch] = {}
    for t in sorted(group, key=lambda t: not t.is_store):
        key = (t.realize, _key(t))
        if key not in seen:
            seen[key] = t
    return list(seen.values())


def _key(t: Touch) -> Any:
    return tuple([(_shape(f), _shape(e)) for f, e in zip(t.first, t.extents, strict=True)])


def _shape(e: Any) -> Any:
    if isinstance(e, Var):
        return e
    if isinstance(e, IntImm):
        return e.value
    return (type(e), *[_shape(c) for c in e.children()], getattr(e, "op", None), getattr(e, "buffer", None))


@dataclass(slots=True, eq=False)
class _Family:
    """The digits of one expression that is divided: ``value = sum(digit * weight)``, most significant first."""

    value: Expr
    weights: list[Expr]
    digits: list[Var] = field(default_factory=list)


def _undetermined(
    analyzer: Analyzer,
    second: dict[Var, Var],
    wanted: Sequence[Var],
    store: Touch,
    other: Touch,
) -> tuple[Var, ...]:
    """The variables of ``wanted`` that may differ although both address one element."""
    for loop in store.loops:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))
    rename: dict[Var, Expr] = dict(second)
    for loop in other.loops:
        var = Var(f"{loop.loop_var.name}''", loop.loop_var.dtype)
        lo, extent = substitute(loop.min, rename), substitute(loop.extent, rename)
        rename[loop.loop_var] = var
        analyzer.bind(var, Range(lo, extent))
    left = _digits(analyzer, store.first)
    right = _digits(analyzer, [substitute(e, rename) for e in other.first])
    if left is None or right is None:
        return tuple(wanted)
    pairs: list[tuple[Var, Var]] = list(second.items())
    families: list[tuple[_Family, _Family]] = []
    for a, b in zip(left[1], right[1], strict=False):
        if len(a.weights) == len(b.weights) and all(map(analyzer.can_prove_equal, a.weights, b.weights)):
            families.append((a, b))
            pairs.extend(zip(a.digits, b.digits, strict=True))
    equations = [
        (f, g, e, substitute(h, rename))
        for f, g, e, h in zip(left[0], right[0], store.extents, other.extents, strict=True)
    ]
    one = IntImm(1)
    open_pairs = dict(pairs)
    while open_pairs:
        solved = next((v for v in open_pairs if _solves(analyzer, v, open_pairs[v], equations)), None)
        if solved is None:
            break
        same: dict[Var, Expr] = {open_pairs.pop(solved): solved}
        equations = [(f, substitute(g, same), e, substitute(h, same)) for f, g, e, h in equations]
        for pair in list(families):
            a, b = pair
            if all(d not in open_pairs for d in a.digits):
                families.remove(pair)
                known: dict[Var, Expr] = {w: v for v, w in pairs if v not in open_pairs}
                equations.append((a.value, substitute(b.value, known), one, one))
    missing = tuple([v for v in wanted if v in open_pairs])
    return () if missing and _apart(analyzer, equations) else missing


def _apart(analyzer: Analyzer, equations: Sequence[tuple[Expr, Expr, Expr, Expr]]) -> bool:
    """Whether some equation has no solution, so that the two never meet."""
    return any(analyzer.can_prove(g + h <= f) or analyzer.can_prove(f + e <= g) for f, g, e, h in equations)


def _solves(analyzer: Analyzer, v: Var, w: Var, equations: Sequence[tuple[Expr, Expr, Expr, Expr]]) -> bool:
    """Whether some equation lets ``v`` (of the store) and ``w`` (of the other access) be equal only."""
    for f, g, e, h in equations:
        line_f, line_g = linear_coefficients(f, [v], analyzer), linear_coefficients(g, [w], analyzer)
        if line_f is None or line_g is None:
            continue
        (c,), rest_f = line_f
        (d,), rest_g = line_g
        if is_const_int(c, 0) or not analyzer.can_prove_equal(c, d):
            continue
        if is_const_int(c) and c.value < 0:  # type: ignore[attr-defined]
            c = const(-c.value, c.dtype)  # type: ignore[attr-defined]
        rest = rest_f - rest_g
        # f + i == g + j for some i in [0, e), j in [0, h):  c * (v - w) == j - i - rest
        if analyzer.can_prove(rest + (e - 1) < c) and analyzer.can_prove(rest - (h - 1) > 0 - c):
            return True
    return False


def _digits(analyzer: Analyzer, exprs: Iterable[Expr]) -> tuple[list[Expr], list[_Family]] | None:
    """``exprs`` with quotients and remainders by constants written in digits; None when they do not fit together."""
    simple = [analyzer.simplify(e) for e in exprs]
    cuts: dict[Any, tuple[Expr, list[Expr]]] = {}
    for e in simple:
        for n in pre_order(e):
            part = _part(n)
            if part is not None:
                numerator, lower, upper = part
                _, found = cuts.setdefault(_shape(numerator), (numerator, []))
                found.extend(x for x in (lower, upper) if x is not None)
    if not cuts:
        return simple, []
    families: dict[Any, _Family] = {}
    for key, (value, found) in cuts.items():
        weights = _chain(analyzer, found)
        if weights is None:
            return None
        family = _Family(value, [w for w, _ in weights])
        lo, hi = analyzer.const_int_bound(value)
        for weight, ratio in weights:
            digit = Var(f"digit{next(_serial)}", value.dtype)
            if ratio is not None:
                analyzer.bind(digit, (0, ratio - 1))
            elif isinstance(weight, IntImm):
                size = weight.value
                analyzer.bind(digit, (None if lo is None else lo // size, None if hi is None else hi // size))
            elif lo is not None and lo >= 0:
                analyzer.bind(digit, (0, None))
            family.digits.append(digit)
        families[key] = family

    def rewrite(n: Any) -> Any:
        part = _part(n)
        if part is None:
            return n.map_children(rewrite)
        numerator, lower, upper = part
        family = families[_shape(numerator)]
        total: Expr = const(0, numerator.dtype)
        inside = upper is None
        for digit, weight in zip(family.digits, family.weights, strict=True):
            if inside:
                total = total + digit * analyzer.simplify(weight // lower)
            inside = (inside or _same(analyzer, weight, upper)) and not _same(analyzer, weight, lower)
        return total

    return [rewrite(e) for e in simple], list(families.values())


def _same(analyzer: Analyzer, a: Expr, b: Expr | None) -> bool:
    return b is not None and analyzer.can_prove_equal(a, b)


def _chain(analyzer: Analyzer, cuts: Sequence[Expr]) -> list[tuple[Expr, Expr | None]] | None:
    """The weights of a mixed radix that has all ``cuts``, most significant first, each with the number of values its
    digit takes (None for the first); None when one does not divide the next."""
    one = const(1, cuts[0].dtype)
    distinct: list[Expr] = [one]
    for cut in cuts:
        if not any(analyzer.can_prove_equal(cut, w) for w in distinct):
            distinct.append(cut)
    if all(isinstance(w, IntImm) for w in distinct):
        distinct.sort(key=lambda w: w.value)  # type: ignore[attr-defined]
    out: list[tuple[Expr, Expr | None]] = []
    low, rest = distinct[0], distinct[1:]
    while rest:
        # the next weight is the one that divides all others left
        found = next((w for w in rest if all(_divides(analyzer, w, other) for other in rest)), None)
        if found is None or not _divides(analyzer, low, found):
            return None
        out.insert(0, (low, analyzer.simplify(found // low)))
        rest.remove(found)
        low = found
    return [(low, None), *out]


def _divides(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return b.value % a.value == 0
    return analyzer.can_prove_equal((b // a) * a, b)


def _part(n: Any) -> tuple[Expr, Expr, Expr | None] | None:
    """(e, lower, upper) for ``(e % upper) // lower``, upper None for a plain quotient; divisors are positive."""
    lower: Expr | None = None
    upper: Expr | None = None
    if isinstance(n, FloorDiv) and _divisor(n.b):
        lower, n = n.b, n.a
    if isinstance(n, FloorMod) and _divisor(n.b):
        upper, n = n.b, n.a
    if lower is None and upper is None:
        return None
    return n, const(1, n.dtype) if lower is None else lower, upper


def _divisor(e: Expr) -> bool:
    return not isinstance(e, IntImm) or e.value > 0


def binding_block(store: Touch, other: Touch, variables: Iterable[Var]) -> BlockRealize | None:
    """The block that both accesses are in and that binds the variables; None when there is no such one."""
    for a, b in zip(store.blocks, other.blocks, strict=False):
        if a is not b:
            return None
        if a.iter_values:
            used = {n for value in a.iter_values for n in pre_order(value) if isinstance(n, Var)}
            return a if all(v in used for v in variables) else None
    return None


def only_reduced(realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Whether the block binds each of the variables, and to reduce axes alone."""
    spatial: set[Any] = set()
    reduced: set[Any] = set()
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (reduced if axis.kind == IterVar.REDUCE else spatial).update(n for n in pre_order(value) if isinstance(n, Var))
    return all(v in reduced and v not in spatial for v in variables)


def local_to_turns(tree: Tree, loop: For, buffer: Buffer, touches: Sequence[Touch]) -> str | None:
    """None when each turn of ``loop`` might as well have a copy of ``buffer`` of its own, else the reason why not.

    That is so when nothing outside the loop touches the buffer and everything a turn reads was written in that turn.
    """
    if any(buffer is b for b in tree.func.buffer_map.values()):
        return f"{buffer.name} is a parameter"
    mine = [t for t in touches if t.buffer is buffer]
    if len(mine) != sum(t.buffer is buffer for t in _all_touches(tree.func)):
        return f"{buffer.name} is used outside loop {loop.loop_var.name} too"
    writers: dict[BlockRealize, None] = {}
    readers: dict[BlockRealize, None] = {}
    for t in mine:
        if not t.blocks:
            return f"{buffer.name} is used outside blocks"
        (writers if t.is_store else readers)[t.blocks[0]] = None
    for reader in readers:
        if reader in writers and reader.block.init is not None:
            if any(
                axis.kind == IterVar.REDUCE and any(n is loop.loop_var for n in pre_order(value))
                for axis, value in zip(reader.block.iter_vars, reader.iter_values, strict=True)
            ):
                return f"loop {loop.loop_var.name} carries the reduction of block {reader.block.name_hint!r}"
            continue
        problem = f"block {reader.block.name_hint!r} reads {buffer.name} before it is written"
        for writer in writers:
            if writer is reader or not _before(tree, writer, reader):
                continue
            try:
                check_cover(tree, writer, reader, buffer)
                break
            except ScheduleError as error:
                problem = error.problem
        else:
            return problem
    return None


def _before(tree: Tree, a: Stmt, b: Stmt) -> bool:
    """Whether ``a`` stands before ``b`` in the program; neither holds the other."""
    fork: Stmt | None = None
    for x, y in zip(tree.path(a), tree.path(b), strict=False):
        if x is not y:
            return fork is not None and any(s is x for s in _until(fork, y))
        fork = x
    return False


def _until(stmt: Stmt, stop: Stmt) -> Iterator[Any]:
    for child in stmt.children():
        if child is stop:
            return
        yield child


@lru_cache(maxsize=4)
def _all_touches(func: PrimFunc) -> list[Touch]:
    walker = _Walker()
    walker.visit(func.body, {}, (), ())
    return walker.found
