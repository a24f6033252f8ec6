"""What transform_layout stores where the new shape is larger than the old one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.arith import Analyzer
from ...tir.buffer import Buffer, BufferRegion
from ...tir.expr import GE, LE, LT, Add, Expr, IntImm, IterVar, Mul, Not, Range, Var, const, convert
from ...tir.function import PrimFunc
from ...tir.op import all_, any_, if_then_else
from ...tir.regions import access_regions
from ...tir.stmt import Block, BlockRealize, BufferStore, For, Stmt, seq
from ...tir.walk import substitute
from ..analysis import (
    scope_of,
    why_not_complete,
)
from ..errors import ScheduleError
from ..regions import covers_domain
from ..tree import Tree, tree_of, unique_block_name
from ._layouts import own_nest, tidy
from ._moving import nest, rebuild

__all__ = ["fill_padding"]


def fill_padding(
    func: PrimFunc,
    realize: BlockRealize,
    old: Buffer,
    new: Buffer,
    back: tuple[Expr, ...],
    tests: Sequence[Expr],
    places: Sequence[Var],
    pad_value: Any,
    root: Block | None,
) -> PrimFunc:
    """The function with the padding of ``new`` written by the block that fills ``old``, or by a block behind it."""
    tree = tree_of(func)
    scope = scope_of(tree, realize)
    writers = scope.writers.get(old, [])
    if root is None and not writers:
        raise ScheduleError(
            f"{old.name} is an input: what its padding holds is up to the caller",
            where=realize,
            hint="leave pad_value out, or cache_read it first and transform the copy",
        )
    if root is not None and root is not scope.root.block:
        raise ScheduleError(
            f"{old.name} is allocated outside the scope of block {realize.block.name_hint!r}, so others may write it too",
            where=realize,
            hint="leave pad_value out, or transform the layout from a block of the outer scope",
        )
    if len(writers) != 1:
        raise ScheduleError(
            f"{old.name} is written by {len(writers)} blocks, so no one of them can fill its padding", where=writers
        )
    writer = writers[0]
    value = convert(pad_value, old.dtype) if isinstance(pad_value, (int, float)) else pad_value
    if not isinstance(value, Expr) or value.dtype != old.dtype:
        raise ScheduleError(f"pad_value {pad_value!r} is no {old.dtype} constant")
    filled = _fill_in_place(tree, writer, old, new, back, tests, places, value)
    if filled is not None:
        return filled
    name = unique_block_name(func, f"{writer.block.name_hint}_pad_{old.name}")
    axes = [IterVar(Range.from_extent(e), v) for v, e in zip(places, new.shape, strict=True)]
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    at = {v: loop for v, (loop, _) in zip(places, loops, strict=True)}
    point = tuple([Range(v, const(1, v.dtype)) for v in places])
    block = Block(tuple(axes), (), (BufferRegion(new, point),), name, BufferStore(new, value, tuple(places)))
    pad = nest(loops, BlockRealize(tuple(at.values()), substitute(_padding(tests), at), block))
    top: Stmt = writer
    for up in tree.above(writer):
        if isinstance(up, Block):
            break
        top = up if isinstance(up, For) else top
    return rebuild(tree, {}, {top: lambda s: seq(s, pad)})


def _padding(tests: Sequence[Expr]) -> Expr:
    """Where the padding is, given the conditions for not being there; a split's tail as ``outer == n and m <= inner``."""
    parts: list[Expr] = []
    for test in tests:
        tail = _split_tail(test)
        parts.append(_negated(test) if tail is None else tail)
    if len(parts) == 2 and isinstance(tests[0], LE) and isinstance(tests[1], LT):
        return Not(all_(*tests))  # both ends of one axis
    return any_(*parts)


def _negated(test: Expr) -> Expr:
    if isinstance(test, LT):
        return LE(test.b, test.a)
    if isinstance(test, GE):
        return LT(test.a, test.b)
    if isinstance(test, LE):
        return LT(test.b, test.a)
    return Not(test)


def _split_tail(test: Expr) -> Expr | None:
    """``outer * c + inner < n`` fails in the last turn of ``outer`` alone, where its extent is n / c, rounded up."""
    if not (isinstance(test, LT) and isinstance(test.b, IntImm) and isinstance(test.a, Add)):
        return None
    terms: list[Expr] = []
    rest: Expr = test.a
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
    whole, left = divmod(test.b.value, outer.b.value)
    return all_(outer.a.equal(whole), LE(const(left, inner.dtype), inner)) if left else None


def _fill_in_place(
    tree: Tree,
    writer: BlockRealize,
    old: Buffer,
    new: Buffer,
    back: tuple[Expr, ...],
    tests: Sequence[Expr],
    places: Sequence[Var],
    value: Expr,
) -> PrimFunc | None:
    """The writer over the places of ``new`` in a new nest; None when it does not store each element once, alone."""
    block = writer.block
    body = block.body
    if not isinstance(body, BufferStore) or block.init is not None or len(block.writes) != 1:
        return None
    axes = [iv.var for iv in block.iter_vars]
    if len(axes) != old.ndim or any(i is not v for i, v in zip(body.indices, axes, strict=True)):
        return None
    if why_not_complete(scope_of(tree, writer), block) is not None or not covers_domain(tree, writer, once=True):
        return None
    top = own_nest(tree, writer)
    if top is None or any(lp.kind != "serial" or lp.annotations for lp in tree.loops_above(writer)):
        return None
    analyzer = Analyzer()
    for v, e in zip(places, new.shape, strict=True):
        analyzer.bind(v, Range.from_extent(e))
    there = {v: e for v, e in zip(axes, back, strict=True)}
    inside = tidy(substitute(body.value, there), analyzer)
    new_body = BufferStore(new, if_then_else(_padding(tests), value, inside), tuple(places))
    reads, writes = access_regions(new_body)
    new_block = block.with_(
        iter_vars=tuple([IterVar(Range.from_extent(e), v) for v, e in zip(places, new.shape, strict=True)]),
        reads=reads,
        writes=writes,
        body=new_body,
    )
    loops = [(Var(f"ax{i}", e.dtype), e) for i, e in enumerate(new.shape)]
    stage = nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), new_block))
    return tree.replace({top: stage})
