"""This module has the steps that several recipes take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedule import Schedule
from ...tir.expr import IntImm, Var
from ...tir.stmt import BlockRealize
from ...tir.walk import blocks_of, vars_in


def realize_of(sch: Schedule, name: str) -> BlockRealize:
    """Returns the realization of the block ``name`` as it is now."""
    return next(r for r in blocks_of(sch.func) if r.block.name_hint == name)


def loops_within(sch: Schedule, block: Any, outer: Any) -> list[Any]:
    """Returns the loops above ``block`` that lie inside the loop ``outer``."""
    loops = sch.get_loops(block)
    return list(loops[next(n for n, loop in enumerate(loops) if loop is outer) + 1 :])


def loops_of_axis(sch: Schedule, block: Any, loops: Sequence[Var], axis: int) -> list[Any]:
    """Returns the loops among ``loops`` that the block's axis number ``axis`` depends on."""
    used = vars_in(realize_of(sch, block.name).iter_values[axis])
    return [loop for loop in loops if loop in used]


def extent_of(sch: Schedule, loop: Any) -> int:
    """Returns the extent of a loop; 0 when it is not constant."""
    extent = sch.get(loop).extent
    return extent.value if isinstance(extent, IntImm) else 0


def spatial_axes(sch: Schedule, block: Any) -> list[int]:
    """Returns the numbers of the block's spatial axes."""
    return [n for n, axis in enumerate(realize_of(sch, block.name).block.iter_vars) if axis.kind == "spatial"]


def fuse_all(sch: Schedule, loops: Sequence[Any]) -> Any:
    """Returns one loop in place of ``loops``."""
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def unroll_factor(sch: Schedule, loop: Any, factor: int) -> None:
    """Unroll ``loop`` by ``factor``: entirely when that is all of it, with a remainder otherwise."""
    extent = extent_of(sch, loop)
    if factor <= 1 or extent <= 1:
        return
    if extent <= factor:
        sch.unroll(loop)
    else:
        sch.annotate(loop, "pragma_unroll_factor", factor)
