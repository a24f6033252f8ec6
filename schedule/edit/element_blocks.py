"""This module makes blocks that store one element for each value of their axes, and loops that run them."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.access_regions import access_regions
from ...tir.expr import BufferLoad, Expr, IterVar, Range, Var, const
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, Stmt
from ...tir.walk import loads_and_stores, pre_order, substitute

_ALWAYS = const(True, "bool")


def point(buffer: Buffer, indices: Sequence[Expr]) -> BufferRegion:
    """Return the region of one element."""
    return BufferRegion(buffer, tuple([Range(i, const(1, i.dtype)) for i in indices]))


def element_block(
    name: str,
    axes: Sequence[IterVar],
    store: BufferStore,
    reads: Sequence[BufferRegion] | None = None,
    init: Stmt | None = None,
) -> Block:
    """Return the block that runs ``store``; it declares to read the elements that the value loads, or ``reads``."""
    if reads is None:
        loads = list(loads_and_stores(store.value))
        indirect = any(isinstance(n, BufferLoad) for a in (store, *loads) for i in a.indices for n in pre_order(i))
        reads = access_regions(store)[0] if indirect else [point(a.buffer, a.indices) for a in loads]
    return Block(tuple(axes), tuple(reads), (point(store.buffer, store.indices),), name, store, init)


def copying_block(name: str, axes: Sequence[IterVar], source: BufferLoad, target: BufferLoad, names: str = "") -> Block:
    """Return the block that copies the element ``source`` to the place of ``target``, over copies of ``axes``.

    Their names stay, or are ``names`` and a number.
    """
    mine = [IterVar(iv.dom, Var(f"{names}{n}" if names else iv.var.name, iv.var.dtype)) for n, iv in enumerate(axes)]
    at: dict[Var, Expr] = {iv.var: new.var for iv, new in zip(axes, mine, strict=True)}
    there = tuple([substitute(i, at) for i in target.indices])
    return element_block(name, mine, BufferStore(target.buffer, substitute(source, at), there))


def in_own_loops(block: Block, condition: Expr = _ALWAYS, prefix: str = "ax") -> Stmt:
    """Return serial loops over the domains of the block's axes, one for each.

    The block runs where the ``condition`` on its axes holds.
    """
    loops = [Var(f"{prefix}{n}", iv.var.dtype) for n, iv in enumerate(block.iter_vars)]
    at: dict[Var, Expr] = {iv.var: loop for iv, loop in zip(block.iter_vars, loops, strict=True)}
    body: Stmt = BlockRealize(tuple(loops), substitute(condition, at), block)
    for var, iv in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        body = For(var, iv.dom.min, iv.dom.extent, "serial", body)
    return body
