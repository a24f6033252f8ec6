"""This module deals with blocks that access one element of a buffer for each value of their axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.analysis.access import Access, accesses, opaque_buffers
from ...tir.analysis.known_ranges import analyzer_at, analyzer_of, sized_analyzer
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.tree import Tree
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Expr, IterVar, Var
from ...tir.stmt import Block, BlockRealize, Buffer, PrimFunc
from ...tir.walk import pre_order
from ..errors import ScheduleError
from ..index_map import IndexMap
from ..require.block_form import check_from_zero, check_leaf, check_not_accumulating
from .buffer_replacement import moved_accesses
from .element_blocks import point


def accessed_point(realize: BlockRealize, buffer: Buffer) -> tuple[tuple[Expr, ...], list[Access]]:
    """Return the indices at which a block accesses ``buffer``, the same in all accesses, and these accesses.

    ScheduleError is raised when the indices differ, when they depend on a loop inside the block, when the block holds
    other blocks, and when it uses the buffer through a pointer or a match_buffer.
    """
    block = realize.block
    name = block.name_hint
    check_leaf(realize)
    if buffer.data in opaque_buffers(block):
        raise ScheduleError(
            f"block {name!r} uses buffer {buffer.name} through a pointer or a match_buffer", where=realize,
            hint="do this before tensorize",
        )  # fmt: skip
    found = accesses(block.body, buffer)
    if block.init is not None:
        found += accesses(block.init, buffer)
    if not found:
        raise ScheduleError(
            f"block {name!r} does not access buffer {buffer.name}",
            where=realize,
            hint="choose a buffer that the block reads or writes",
        )
    indices = found[0].indices
    if any(isinstance(n, BufferLoad) for i in indices for n in pre_order(i)):
        raise ScheduleError(
            f"block {name!r} accesses {found[0].node} at indices from memory, which are not a function of its axes",
            where=realize,
            hint="such indices cannot be turned into axes",
        )
    analyzer = analyzer_of(block.iter_vars)
    for other in found[1:]:
        if not all(analyzer.can_prove_equal(a, b) for a, b in zip(indices, other.indices, strict=True)):
            raise ScheduleError(
                f"block {name!r} accesses buffer {buffer.name} at more than one place: {_shown(buffer, indices)} and "
                f"{_shown(buffer, other.indices)}",
                where=realize,
                hint="each axis value has to stand for one element",
            )
    inside = {lp.loop_var for a in found for lp in a.loops}
    if any(isinstance(n, Var) and n in inside for i in indices for n in pre_order(i)):
        raise ScheduleError(
            f"{_shown(buffer, indices)} in block {name!r} moves with a loop inside the block", where=realize,
        hint="choose the block inside that loop")  # fmt: skip
    return indices, found


def _shown(buffer: Buffer, indices: Iterable[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


def axes_in(block: Block, indices: Iterable[Expr]) -> list[IterVar]:
    """Return the block's axes that occur in the indices, in the block's order."""
    used = {n for i in indices for n in pre_order(i) if isinstance(n, Var)}
    return [iv for iv in block.iter_vars if iv.var in used]


def bounds_within(analyzer: Analyzer, buffer: Buffer, indices: Sequence[Expr]) -> bool:
    """Return whether the indices are within the buffer for all values that ``analyzer`` allows."""
    return all(
        analyzer.can_prove(i >= 0) and analyzer.can_prove(i < extent)
        for i, extent in zip(indices, buffer.shape, strict=True)
    )


def check_readable(
    tree: Tree, realize: BlockRealize, buffer: Buffer, indices: Sequence[Expr], found: Sequence[Access]
) -> None:
    """Raise ScheduleError unless the elements exist for all values of the axes.

    Either the indices are within the buffer, or the block itself reads all these elements unconditionally.
    """
    if bounds_within(analyzer_at(tree, realize.block.body), buffer, indices):
        return
    if all(not a.guards for a in found) and covers_domain(tree, realize):
        return
    raise ScheduleError(
        f"block {realize.block.name_hint!r} reads {_shown(buffer, indices)} under a condition, and a copy made for all "
        "values of its axes would read outside the buffer",
        where=realize,
        hint="pad the buffer in a block of its own first",
    )


def check_written_once(tree: Tree, realize: BlockRealize, buffer: Buffer, found: Sequence[Access]) -> None:
    """Raise ScheduleError unless the block stores the element for all values of its axes and reads no old contents."""
    block = realize.block
    check_not_accumulating(realize, buffer, found)
    if any(a.is_store and a.guards for a in found):
        raise ScheduleError(
            f"block {block.name_hint!r} stores into {buffer.name} under a condition, so copying all back could overwrite "
            "other elements",
            where=realize,
            hint="do this before the block is split unevenly or masked",
        )


def check_distinct(func: PrimFunc, realize: BlockRealize, axes: Sequence[IterVar], indices: Sequence[Expr]) -> None:
    """Raise ScheduleError unless different values of ``axes`` are known to give different ``indices``."""
    analyzer = sized_analyzer(func)
    places = [Var(f"p{n}", i.dtype) for n, i in enumerate(indices)]
    check_from_zero(realize, axes)
    mapping = IndexMap(tuple([iv.var for iv in axes]), tuple(indices))
    try:
        mapping.inverse([iv.dom.extent for iv in axes], places, analyzer)
    except ScheduleError:
        raise ScheduleError(
            f"two values of the axes of block {realize.block.name_hint!r} may meet at [{', '.join(map(str, indices))}]",
            where=realize,
            hint="use indices made of splits, fusions and a reordering of the axes",
        ) from None


def put_point(realize: BlockRealize, old: Buffer, new: Buffer, indices: Sequence[Expr]) -> BlockRealize:
    """Return the block with its accesses to ``old`` replaced by accesses to ``new[indices]``."""
    at = tuple(indices)
    block = moved_accesses(realize.block, old, new, lambda _: at, lambda _: point(new, at))
    return BlockRealize(realize.iter_values, realize.predicate, block)
