"""This module describes a block with one store, whose axes are functions of the stored place, for inlining."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.declared_regions import redeclared
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.scope import Scope
from ...tir.analysis.tree import Tree
from ...tir.arith.itermap import inverse
from ...tir.expr import BufferLoad, Expr, Let, Reason, Var
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, LetStmt, Stmt
from ...tir.walk import pre_order
from ..errors import ScheduleError
from ..require.block_form import check_no_pointers, the_store
from ..require.block_preconditions import check_read_by_blocks_alone


def single_store(realize: BlockRealize) -> BufferStore:
    """Return the only store of a block without init; ScheduleError otherwise."""
    return the_store(realize, realize.block.body if realize.block.init is None else None)


def check_pointers(scope: Scope, buffer: Buffer) -> None:
    """Raise ScheduleError when the buffer has to exist: for pointers, or for bounds and conditions outside of blocks."""
    check_read_by_blocks_alone(scope, buffer)
    check_no_pointers(scope.root.block, [buffer], "so it has to exist", scope.root)


def axes_of_store(tree: Tree, realize: BlockRealize, store: BufferStore) -> tuple[list[Var], dict[Var, Expr]]:
    """Return a variable for each index of the store, and the block's axes as expressions of these variables."""
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    analyzer = analyzer_at(tree, realize.block.body)
    found = inverse(analyzer, doms, store.indices)
    if isinstance(found, Reason):
        where = f"{store.buffer.name}[{', '.join(map(str, store.indices))}]"
        raise ScheduleError(
            f"block {realize.block.name_hint!r} stores at {where}, from which its axes do not follow (see {found.nodes[0]})",
            where=realize,
            hint="the indices must be its axes, or splits and fusions of them, each used once",
        )
    return found


def with_regions(block: Block, more: Sequence[BufferRegion]) -> Block:
    """Return the block with regions computed anew, and ``more`` added to its reads.

    Loads in the indices of the old regions come first, as in TVM.
    """
    ends = [e for old in (*block.reads, *block.writes) for r in old.region for e in (r.min, r.extent)]
    indexing = [n.buffer for e in ends for n in pre_order(e) if isinstance(n, BufferLoad)]
    first = {b: n for n, b in enumerate(dict.fromkeys(indexing))}
    new = redeclared(block, more)
    return new.with_(reads=tuple(sorted(new.reads, key=lambda r: first.get(r.buffer, len(first)))))


def defined_in(stmt: Stmt) -> set[Var]:
    """Return the variables of loops, let statements and block axes below ``stmt``."""
    out: set[Var] = set()
    for n in pre_order(stmt):
        if isinstance(n, For):
            out.add(n.loop_var)
        elif isinstance(n, Block):
            out.update(iv.var for iv in n.iter_vars)
        elif isinstance(n, (LetStmt, Let)):
            out.add(n.var)
    return out
