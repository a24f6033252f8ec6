"""This module writes the padding of a buffer that transform_layout has made larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.declared_regions import redeclared
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.scope import Scope
from ...tir.analysis.tree import Tree, symbols_of, tree_of, unique_block_name
from ...tir.expr import (
    GE,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    IterVar,
    Mul,
    Not,
    Or,
    Range,
    Var,
    all_,
    any_,
    const,
    is_const_int,
    structural_equal,
)
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, Evaluate, For, PrimFunc, Stmt, below_assertions, seq
from ...tir.walk import substitute, transform, uses_var
from ..errors import ScheduleError, bad_argument
from ..index_map import IndexMap
from ..require.block_form import has_trivial_bindings, own_nest
from ..require.lookup import root_of
from .element_blocks import element_block, in_own_loops, point
from .loop_nests import in_loops, nest


@dataclass(frozen=True, slots=True, eq=False)
class Padding:
    """A ``Padding`` describes the places of the buffer ``new`` to which no element of ``old`` goes, and their ``value``.

    ``places`` are variables for the indices of ``new``, ``back`` the indices of ``old`` in terms of these, and
    ``tests`` the conditions under which these exist.
    """

    old: Buffer
    new: Buffer
    back: tuple[Expr, ...]
    tests: Sequence[Expr]
    places: Sequence[Var]
    value: Expr

    @property
    def condition(self) -> Expr:
        """Return the condition for being in the padding.

        After a split it is expressed by the outer and the inner index: ``outer == n and m <= inner``.
        """
        extents = dict(zip(self.places, self.new.shape, strict=True))
        parts = [_split_tail(test, extents) if isinstance(test, LT) else _split_head(test) for test in self.tests]
        if len(parts) == 2 and isinstance(self.tests[0], LE) and isinstance(self.tests[1], LT) and None in parts:
            return Not(all_(*self.tests))  # both ends of one axis
        return any_(*[_negated(t) if part is None else part for t, part in zip(self.tests, parts, strict=True)])

    def axes(self, places: Sequence[Var]) -> list[IterVar]:
        """Return axes over the indices of ``new``."""
        return [IterVar(Range.from_extent(e), v) for v, e in zip(places, self.new.shape, strict=True)]


def fill_padding(func: PrimFunc, realize: BlockRealize, padding: Padding, root: Block | None) -> PrimFunc:
    """Return the function with the padding of a new buffer written. The block that fills the old one writes it, or a
    block after it.

    The filling block is one of those directly in ``root``, where the old buffer is allocated, or of the function when
    ``root`` is None.
    """
    old, new = padding.old, padding.new
    tree = tree_of(func)
    home = next(b for b in tree.path(realize) if isinstance(b, BlockRealize) and (root is None or b.block is root))
    writers = Scope(home).writers.get(old, [])
    if root is None and not writers:
        return _assume(tree, padding)
    if not writers:
        raise ScheduleError(
            f"no block inside block {home.block.name_hint!r}, which allocates {old.name}, writes it",
            where=home,
            hint="give no pad_value and leave_padding=True",
        )
    filled = [_filled(tree, w, padding) for w in writers]
    if None not in filled:
        return tree.replace(dict(f for f in filled if f is not None))
    if len(writers) != 1:
        raise ScheduleError(
            f"{old.name} is written by {len(writers)} blocks, so no one of them can fill its padding",
            where=writers,
            hint="give no pad_value and leave_padding=True, or merge the writers first",
        )
    writer = writers[0]
    name = unique_block_name(func, f"{writer.block.name_hint}_pad_{old.name}")
    store = BufferStore(new, padding.value, tuple(padding.places))
    pad = in_own_loops(element_block(name, padding.axes(padding.places), store, reads=()), padding.condition)
    top: Stmt = writer
    for up in tree.above(writer):
        if isinstance(up, Block):
            break
        top = up if isinstance(up, For) else top
    return tree.replace({}, {top: lambda s: seq(s, pad)})


def _negated(test: Expr) -> Expr:
    if isinstance(test, LT):
        return LE(test.b, test.a)
    if isinstance(test, GE):
        return LT(test.a, test.b)
    if isinstance(test, LE):
        return LT(test.b, test.a)
    return Not(test)


def _digits(e: Expr) -> tuple[Var, int, Expr] | None:
    """Return (outer, c, inner) when ``e`` is ``outer * c + inner``."""
    if not isinstance(e, Add):
        return None
    terms: list[Expr] = []
    rest: Expr = e
    while isinstance(rest, Add):
        terms.insert(0, rest.b)
        rest = rest.a
    outer, inner = rest, terms[0]
    for term in terms[1:]:
        inner = inner + term
    if not (isinstance(outer, Mul) and isinstance(outer.b, IntImm) and isinstance(outer.a, Var)):
        return None
    if not all(isinstance(t, Var) or (isinstance(t, Mul) and isinstance(t.a, Var)) for t in terms):
        return None
    return outer.a, outer.b.value, inner


def _split_tail(test: Expr, extents: Mapping[Var, Expr]) -> Expr | None:
    """Return the negation of ``outer * c + inner < n`` when it holds only in the last iteration of ``outer``, else
    None.

    That is so when the extent of ``outer`` is n / c, rounded up.
    """
    if not isinstance(test, LT) or not isinstance(test.b, IntImm):
        return None
    found = _digits(test.a)
    if found is None:
        return None
    outer, c, inner = found
    whole, left = divmod(test.b.value, c)
    if not left or not is_const_int(extents.get(outer), whole + 1):
        return None
    last = left == c - 1 and isinstance(inner, Var)
    return all_(outer.equal(whole), inner.equal(left) if last else LE(const(left, inner.dtype), inner))


def _split_head(test: Expr) -> Expr | None:
    """Return the negation of ``n <= outer * c + inner`` with n < c. It holds only in the first iteration of
    ``outer``."""
    if not isinstance(test, LE) or not isinstance(test.a, IntImm):
        return None
    found = _digits(test.b)
    if found is None or not 0 < test.a.value < found[1]:
        return None
    outer, _, inner = found
    return all_(outer.equal(0), LT(inner, test.a))


def pad_of(func: PrimFunc, buffer: Buffer, places: Sequence[Var], pad_value: Any) -> Expr:
    """Return the value of the padding at ``places``; ScheduleError unless it has the buffer's data type."""
    kind = buffer.dtype.kind
    value = pad_value
    if isinstance(value, (str, list)):
        found = IndexMap.of(value, len(places), symbols_of(func)).map_indices(places)
        value = found[0] if len(found) == 1 else value
    elif isinstance(value, float) and kind in ("float", "bfloat"):
        value = const(value, buffer.dtype)
    elif isinstance(value, int) and kind in ("int", "uint", "bool"):
        value = const(value, buffer.dtype)
    if not isinstance(value, Expr) or value.dtype != buffer.dtype:
        raise bad_argument(
            f"pad_value {pad_value!r} is not of type {buffer.dtype}, which buffer {buffer.name} holds",
            hint="write 0.0 for floats and 0 for integers",
        )
    return value


def _assume(tree: Tree, padding: Padding) -> PrimFunc:
    """Return a block that states what the caller has put into the padding of an input. It stands at the start of the
    function."""
    old, new, places = padding.old, padding.new, padding.places
    holds = Or(Not(padding.condition), BufferLoad(new, tuple(places)).equal(padding.value))
    says = Call("tir.assume", (holds,), "bool")
    name = unique_block_name(tree.func, f"buffer_{old.name}_assumptions")
    block = Block(tuple(padding.axes(places)), (point(new, places),), (), name, Evaluate(says))
    stage = in_own_loops(block)
    body = below_assertions(root_of(tree).block.body)
    return tree.replace({}, {body: lambda s: seq(stage, s)})


def _fills_alone(tree: Tree, writer: BlockRealize, old: Buffer) -> bool:
    """Return whether a block stores each element of ``old`` in one iteration of a plain nest that holds nothing else."""
    block, ndim = writer.block, old.ndim
    first = block.iter_vars[:ndim]
    if len(block.writes) != 1 or len(first) != ndim:
        return False
    for store in (block.body, *(() if block.init is None else (block.init,))):
        if not isinstance(store, BufferStore) or store.predicate is not None:
            return False
        if any(i is not iv.var for i, iv in zip(store.indices, first, strict=True)):
            return False
    whole = all(
        iv.kind == IterVar.SPATIAL and is_const_int(iv.dom.min, 0) and structural_equal(iv.dom.extent, e)
        for iv, e in zip(first, old.shape, strict=True)
    )
    if not whole or own_nest(tree, writer) is None or not has_trivial_bindings(tree, writer):
        return False
    loops = tree.loops_above(writer)
    plain = all(lp.kind == "serial" and not lp.annotations for lp in loops)
    outer = {lp.loop_var for lp in loops[:ndim]}
    if any(uses_var(e, outer.__contains__) for lp in loops[ndim:] for e in (lp.min, lp.extent)):
        return False  # the padding has no iterations of inner loops
    return plain and is_const_int(writer.predicate, 1) and covers_domain(tree, writer, once=True)


def _filled(tree: Tree, writer: BlockRealize, padding: Padding) -> tuple[Stmt, Stmt] | None:
    """Return the nest of a writer, and the one over the indices of the new buffer.

    The result is None unless the block stores one element in each iteration of a nest that holds nothing else.
    """
    old, new, block = padding.old, padding.new, writer.block
    top = own_nest(tree, writer)
    if top is None or not _fills_alone(tree, writer, old):
        return None
    axes = [iv.var for iv in block.iter_vars[: old.ndim]]
    at = [Var(v.name, v.dtype) for v in padding.places]
    fresh: dict[Var, Expr] = dict(zip(padding.places, at, strict=True))
    there = {v: substitute(e, fresh) for v, e in zip(axes, padding.back, strict=True)}
    condition, value = substitute(padding.condition, fresh), substitute(padding.value, fresh)

    def own(load: Any) -> Any:
        if isinstance(load, BufferLoad) and load.buffer is old:
            same = all(i is v for i, v in zip(load.indices, axes, strict=True))
            return BufferLoad(new, tuple(at)) if same else None
        return None

    def padded(n: Stmt) -> Stmt:
        assert isinstance(n, BufferStore)
        inside = substitute(transform(n.value, post=own), there)
        return BufferStore(new, if_then_else(condition, value, inside), tuple(at))

    new_block = block.with_(
        iter_vars=(*padding.axes(at), *block.iter_vars[old.ndim :]),
        reads=tuple([substitute(r, there) for r in block.reads]),
        writes=(),
        body=padded(block.body),
        init=None if block.init is None else padded(block.init),
    )
    inner = tree.loops_above(writer)[old.ndim :]
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    values = (*[v for v, _ in loops], *[lp.loop_var for lp in inner])
    realize = BlockRealize(values, const(True, "bool"), redeclared(new_block))
    return top, nest(loops, in_loops(inner, realize))
