"""This module has the primitives that leave a computation as it is: queries, annotations, and how a loop runs.

Queries return blocks, loops, children, sizes, producers, consumers and output blocks. Annotations of loops and blocks, and
declared regions of blocks, say what the caller knows. A loop runs parallel, vectorized, unrolled, or on GPU threads.

A query changes nothing; unused ones are dropped from traces.

A loop has one kind. As in TVM the last of these steps on a loop decides which, and each step makes its own proof.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from ...tir.analysis.access import accesses
from ...tir.analysis.footprint import first_outside
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import blocks_below, symbols_of, tree_of
from ...tir.annotations import ATOMIC
from ...tir.arith import Analyzer
from ...tir.expr import Expr, FloatImm, IntImm, Range, StringImm, Var, match_types
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, PrimFunc
from ...tir.walk import blocks_of
from ..edit.buffers import pick_buffer
from ..edit.loop_nests import annotation_target, with_annotation, with_annotations
from ..errors import ScheduleError, bad_argument, nearest, unknown_handle
from ..handles import BlockRV
from ..index_map import IndexMap
from ..primitive import map_of_axes, primitive
from ..require.block_preconditions import check_no_pointers, consumers_of, find_block, find_loop, producers_of, root_of
from ..require.loop_preconditions import check_independent, check_kinds_for


@primitive(kind="query")
def get_block(func: PrimFunc, name: str, func_name: str | None = None) -> BlockRV:
    """Return the block of this name; the outermost one is called ``root``."""
    tree = tree_of(func)
    if name == "root" and name not in tree.blocks:
        return BlockRV(root_of(tree).block.name_hint)
    find_block(tree, name)
    return BlockRV(name)


@primitive
def work_on(func: PrimFunc, func_name: str) -> PrimFunc:
    """Let ``get_block`` and block names refer to this function of the module from now on."""
    return func


@primitive(kind="query")
def get_loops(func: PrimFunc, block: str) -> list[Var]:
    """Return the loops above a block within its scope, outermost first."""
    tree = tree_of(func)
    return [loop.loop_var for loop in tree.loops_above(find_block(tree, block))]


@primitive(kind="query")
def get_child_blocks(func: PrimFunc, block_or_loop: str | Var) -> list[BlockRV]:
    """Return the outermost blocks inside a block, or under a loop, in program order."""
    tree = tree_of(func)
    body = (
        find_loop(tree, block_or_loop).body
        if isinstance(block_or_loop, Var)
        else find_block(tree, block_or_loop).block.body
    )
    return [BlockRV(realize.block.name_hint) for realize in blocks_below(body)]


@primitive(kind="query")
def get_symbol(func: PrimFunc, name: str | int) -> Var:
    """Return the size variable or scalar parameter ``name``, for use in factors and index maps.

    A number counts the scalar parameters and then the sizes, for functions in which several have one name.
    """
    symbols = symbols_of(func)
    if isinstance(name, int) and 0 <= name < len(symbols):
        return symbols[name]
    found = [v for v in symbols if v.name == name]
    if not found:
        raise unknown_handle(
            f"function {func.name} has no size {name!r}", hint=nearest(str(name), [v.name for v in symbols])
        )
    if len(found) > 1:
        places = [n for n, v in enumerate(symbols) if v.name == name]
        raise ScheduleError(
            f"function {func.name} has {len(found)} sizes named {name!r}",
            hint=f"give the number of one: {', '.join(map(str, places))}, or use the variable of a buffer's shape",
        )
    return found[0]


@primitive(kind="query")
def get_producers(func: PrimFunc, block: str) -> list[BlockRV]:
    """Return the earlier blocks of the scope that write a buffer which the block reads or writes, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in producers_of(tree, find_block(tree, block))]


@primitive(kind="query")
def get_consumers(func: PrimFunc, block: str) -> list[BlockRV]:
    """Return the later blocks of the scope that read or overwrite what the block writes, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in consumers_of(tree, find_block(tree, block))]


@primitive(kind="query")
def get_output_blocks(func: PrimFunc, scope_block: str) -> list[BlockRV]:
    """Return the blocks inside a block, at any depth, that write buffers not allocated there, in program order."""
    tree = tree_of(func)
    scope = find_block(tree, scope_block).block
    inside = [realize.block for realize in blocks_of(scope.body)]
    own = {buffer for block in (scope, *inside) for buffer in block.alloc_buffers}
    return [BlockRV(block.name_hint) for block in inside if any(r.buffer not in own for r in block.writes)]


@primitive
def annotate(func: PrimFunc, block_or_loop: str | Var, ann_key: str, ann_val: Any) -> PrimFunc:
    """Set an annotation of a block or loop. An earlier one of that name is kept (unannotate it first to change it).

    ``ann_val`` is a number, a text, a list or a dict of those. Lowering reads the keys in
    :mod:`tilewright.tir.annotations`, and warns of other keys.
    """
    _, node = annotation_target(func, block_or_loop)
    value = _plain(ann_val)
    return func if ann_key in node.annotations else with_annotation(func, block_or_loop, ann_key, value)


@primitive
def unannotate(func: PrimFunc, block_or_loop: str | Var, ann_key: str) -> PrimFunc:
    """Remove an annotation of a block or loop; not ``atomic_update`` where the block's reduction runs on ``blockIdx``."""
    tree, node = annotation_target(func, block_or_loop)
    if ann_key not in node.annotations:
        raise ScheduleError(
            f"there is no annotation {ann_key!r} here", where=node, hint=nearest(ann_key, node.annotations)
        )
    left = {k: v for k, v in node.annotations.items() if k != ann_key}
    if ann_key == ATOMIC and isinstance(node, Block):  # loops of its reduction may run on blocks of a GPU
        realize = tree.parent[node]
        assert isinstance(realize, BlockRealize)
        check_kinds_for(tree, realize.with_(block=node.with_(annotations=left)), tree.loops_above(realize))
    return with_annotations(tree, node, left)


@primitive
def enter_postproc(func: PrimFunc) -> PrimFunc:
    """Mark in the trace that the steps from here on are post-processing, which replays may leave out."""
    return func


def _plain(value: Any) -> Any:
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str, Expr)):
        return value
    raise bad_argument(
        f"an annotation is a number, a text, a list or a dict, not {type(value).__name__}",
        hint="write it as one of these, a function or an object as its text",
    )


def _prepare(func: PrimFunc, block: Any, gen_new_ranges: Any, **rest: Any) -> dict[str, Any]:
    """Return the arguments with the ranges as the text of an index map. Per dimension it has two results, begin and
    end."""
    if not callable(gen_new_ranges) or isinstance(gen_new_ranges, IndexMap):
        return {}

    @functools.wraps(gen_new_ranges)
    def flat(*axes: Any) -> list[Any]:
        out: list[Any] = []
        for part in gen_new_ranges(*axes):
            if isinstance(part, (list, tuple)) and len(part) != 2:
                raise TypeError(f"a range is a place, or a begin and an end, not {len(part)} values")
            out.extend(part if isinstance(part, (list, tuple)) else (part, part + 1))
        return out

    return {"gen_new_ranges": map_of_axes(func, block, flat)}


@primitive(prepare=_prepare)
def annotate_buffer_access(
    func: PrimFunc, block: str, buffer_index: int | str, buf_type: str, gen_new_ranges: Any
) -> PrimFunc:
    """Declare which part of a buffer ``block`` reads or writes (``buf_type``: ``"read"`` or ``"write"``).

    ``gen_new_ranges`` gets the axes and returns, per dimension of the buffer, an index or a pair of begin and end. The
    block gets the annotation ``explicit_read_region`` (or ``_write_``) with the numbers of the buffers that were
    declared so. The step applies when the new region holds all that the block accesses; it may be larger. An index that
    is computed with floating-point numbers, as in resizing, is evaluated at each point of the axes, if there are few
    enough.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    ...     for i in range(8):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(8, i)
    ...             C[vi] = A[vi] * T.float32(2)
    ... '''))
    >>> sch.annotate_buffer_access("C", 0, "read", lambda vi: ((vi - 1, vi + 2),))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        # with T.block("root"):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi - 1:vi - 1 + 3])
                T.writes(C[vi])
                T.block_attr({"explicit_read_region": [0]})
                C[vi] = A[vi] * T.float32(2.0)
    """
    if buf_type not in ("read", "write"):
        raise bad_argument(f"buf_type is 'read' or 'write', not {buf_type!r}", hint="say which side it is about")
    tree = tree_of(func)
    realize = find_block(tree, block)
    old = realize.block
    buffer = pick_buffer(realize, buffer_index, buf_type)
    regions = old.reads if buf_type == "read" else old.writes
    number = next(n for n, r in enumerate(regions) if r.buffer is buffer)
    mapping = IndexMap.of(gen_new_ranges, len(old.iter_vars), symbols_of(func))
    ends = mapping.map_indices([iv.var for iv in old.iter_vars])
    if len(ends) != 2 * buffer.ndim:
        raise bad_argument(
            f"{len(ends) // 2} ranges are given for buffer {buffer.name} of {buffer.ndim} dimensions", where=realize,
            hint="give a place, or a pair of begin and end, for each dimension",
        )  # fmt: skip
    analyzer = analyzer_at(tree, old.body)
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    region = BufferRegion(buffer, tuple([Range(*match_types(lo, analyzer.simplify(hi - lo))) for lo, hi in pairs]))
    _check_holds(realize, buffer, buf_type, region, analyzer)
    changed = tuple([region if n == number else r for n, r in enumerate(regions)])
    block_now = old.with_(reads=changed) if buf_type == "read" else old.with_(writes=changed)
    new = tree.replace({realize: BlockRealize(realize.iter_values, realize.predicate, block_now)})
    key = f"explicit_{buf_type}_region"
    known = list(old.annotations.get(key, []))
    return with_annotation(new, block, key, known if number in known else [*known, number])


def _check_holds(
    realize: BlockRealize, buffer: Buffer, buf_type: str, region: BufferRegion, analyzer: Analyzer
) -> None:
    """Raise ScheduleError unless the region holds every element that the block accesses."""
    block = realize.block
    name = block.name_hint
    check_no_pointers(block, [buffer], "which cannot be followed", realize)
    box = [(r.min, analyzer.simplify(r.min + r.extent - 1)) for r in region.region]
    for stmt in (block.body, block.init):
        for access in accesses(stmt, buffer) if stmt is not None else ():
            if access.is_store is (buf_type == "read"):
                continue
            index = first_outside(analyzer, access, box)
            if index is not None:
                low, high = next(ends for i, ends in zip(access.indices, box, strict=True) if i is index)
                raise ScheduleError(
                    f"block {name!r} accesses {buffer.name}[{', '.join(map(str, access.indices))}], and it is not shown "
                    f"that {index} lies in {low}..{high}",
                    where=realize,
                    hint="the region may hold more than is accessed, and not less",
                )


_THREAD = re.compile(r"(blockIdx|threadIdx)\.[xyz]|vthread(\.[xyz])?")


@primitive
def parallel(func: PrimFunc, loop: Var) -> PrimFunc:
    """Run the iterations of a loop in parallel.

        for i in range(16): ...      =>      for i in T.parallel(16): ...

    It is proven that no iteration writes an element that another one accesses. A buffer that every iteration fills
    before it reads it is allowed, because after lowering each iteration has its own copy.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_independent(tree, target, "run in parallel", private=True)
    return tree.replace({target: target.with_(kind="parallel", thread_binding=None)})


@primitive
def vectorize(func: PrimFunc, loop: Var) -> PrimFunc:
    """Run the iterations of a loop as the lanes of vectors. Loops inside it are allowed.

        for i in range(16): ...      =>      for i in T.vectorized(16): ...

    It is proven that no iteration writes an element that another one accesses.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_independent(tree, target, "be the lanes of vectors")
    return tree.replace({target: target.with_(kind="vectorized", thread_binding=None)})


@primitive
def unroll(func: PrimFunc, loop: Var) -> PrimFunc:
    """Write out the iterations of a loop one after the other.

    This is always legal. A loop that was bound to a thread axis is no longer bound.

        for i in range(4): ...      =>      for i in T.unroll(4): ...
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    return tree.replace({target: target.with_(kind="unrolled", thread_binding=None)})


@primitive
def bind(func: PrimFunc, loop: Var, thread_axis: str) -> PrimFunc:
    """Run the iterations of a loop on the threads of a GPU axis (``blockIdx.x``, ``threadIdx.y``, ``vthread.x`` …).

        for i in range(16): ...      =>      for i in T.thread_binding(16, thread="threadIdx.x"): ...

    The conditions are those of :func:`parallel`. On ``threadIdx`` a reduction is allowed, which the lowering turns into
    a reduction across threads; on ``blockIdx`` one whose block has no init any more and the annotation ``atomic_update``.
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    if not _THREAD.fullmatch(thread_axis):
        raise bad_argument(
            f"{thread_axis!r} is not a thread axis",
            where=target,
            hint="blockIdx.x, threadIdx.y, vthread.z and their like",
        )
    reducing = thread_axis.startswith("threadIdx")
    check_independent(tree, target, f"run on {thread_axis}", private=True, reducing=reducing, atomic=True)
    return tree.replace({target: target.with_(kind="thread_binding", thread_binding=thread_axis)})
