"""This module finds the blocks and loops that handles name; what is not there is a ScheduleError."""

from __future__ import annotations

from ...tir.analysis.tree import Tree, blocks_below
from ...tir.expr import Var
from ...tir.stmt import BlockRealize, For, Stmt
from ..errors import ScheduleError, near_names, nearest, unknown_handle


def root_of(tree: Tree) -> BlockRealize:
    """Return the realization of the root block; an error for a lowered function, which has none."""
    if not isinstance(tree.func.body, BlockRealize):
        raise ScheduleError(
            f"function {tree.func.name} has no root block, so there is nothing to schedule",
            hint="schedule the function before it is lowered; T.prim_func gives functions a root block",
        )
    return tree.func.body


def find_block(tree: Tree, name: str) -> BlockRealize:
    """Return the realization of the block of this name; ScheduleError with similar names when there is none."""
    found = tree.blocks.get(name)
    if found is None:
        near = [b for other in near_names(name, tree.blocks) for b in tree.blocks[other] if b is not tree.func.body]
        raise unknown_handle(
            f"there is no block {name!r} in function {tree.func.name}", where=near, hint=nearest(name, tree.blocks)
        )
    if len(found) > 1:
        raise ScheduleError(f"there are {len(found)} blocks named {name!r}", where=found, hint="give each its own name")
    return found[0]


def find_loop(tree: Tree, var: Var) -> For:
    """Return the loop over ``var``; ScheduleError when it no longer exists."""
    found = tree.loops.get(var)
    if found is None:
        raise unknown_handle(
            f"loop {getattr(var, 'name', repr(var))} is not in function {tree.func.name} (any more)",
            hint=f"split, fuse and compute_at make new loops; ask get_loops again{_loops_there(tree)}",
        )
    return found


def _loops_there(tree: Tree) -> str:
    """Returns the loops around each block, the outermost first: ``. The loops are i_0, i_1, r of block 'C'``."""
    said = []
    for name, found in tree.blocks.items():
        loops = [v.name for v, loop in tree.loops.items() if any(b is found[0] for b in blocks_below(loop.body))]
        if loops:
            said.append(f"{', '.join(loops)} of block {name!r}")
    more = ", …" if len(said) > _MOST_BLOCKS else ""
    return f". The loops are {'; '.join(said[:_MOST_BLOCKS])}{more}" if said else ""


_MOST_BLOCKS = 6
"""The number of blocks that a message lists."""


def scope_around(tree: Tree, stmt: Stmt) -> BlockRealize:
    """Return the realization of the nearest block around ``stmt``; ScheduleError for the root block."""
    if stmt is tree.func.body:
        raise ScheduleError("the root block has no scope around it", where=stmt, hint="name a block inside it")
    return tree.scope(stmt)
