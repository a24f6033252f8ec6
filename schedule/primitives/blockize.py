"""This module defines blockize, which turns loops and the blocks in them into one block."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.regions import regions_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.expr import Expr, IterVar, Var, cast, structural_equal
from ...tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    below_assertions,
    children_of,
    seq,
)
from ...tir.walk import substitute
from ..edit.block_division import (
    DividedBlock,
    blockized,
    check_closed,
    check_direct,
    divide_block,
    outer_regions,
    place_name,
    union_regions,
)
from ..edit.loop_nests import in_loops
from ..errors import ScheduleError, bad_argument
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import find_block, find_loop


@primitive
def blockize(
    func: PrimFunc, target: Var | str | Sequence[str], preserve_unit_iters: bool = True
) -> tuple[PrimFunc, BlockRV]:
    """Turn the loops from ``target`` on, and the block in them, into one block; return it.

    ``target`` is a loop, a block, or a list of blocks. Several blocks become one block, named ``outer_B_C_``, under the
    loops that they share. The old block keeps its name, and its axes become their inner digits; the new one has the
    outer digits and is named ``B_o``. ``preserve_unit_iters`` keeps loops of one iteration in the bindings.

    Applies when each binding is a sum of a part in outer loops and a part in inner ones (``i_0 * 16 + i_1``), and no
    predicate mixes the two. The init of a reduction moves into the new block; its loops must run each element once.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((128,)), B: T.Buffer((128,))):
    ...     for i_0, i_1 in T.grid(8, 16):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(128, i_0 * 16 + i_1)
    ...             B[vi] = A[vi] * T.float32(2)
    ... '''))
    >>> i_0, i_1 = sch.get_loops("B")
    >>> outer = sch.blockize(i_1)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        # with T.block("root"):
        for i_0 in range(8):
            with T.block("B_o"):
                vi_o = T.axis.spatial(8, i_0)
                T.reads(A[vi_o * 16:vi_o * 16 + 16])
                T.writes(B[vi_o * 16:vi_o * 16 + 16])
                for i_1 in range(16):
                    with T.block("B"):
                        vi_i = T.axis.spatial(16, i_1)
                        T.reads(A[vi_o * 16 + vi_i])
                        T.writes(B[vi_o * 16 + vi_i])
                        B[vi_o * 16 + vi_i] = A[vi_o * 16 + vi_i] * T.float32(2.0)
    """
    tree = tree_of(func)
    if isinstance(target, Var):
        loop = find_loop(tree, target)
        new = blockized(tree, loop, preserve_unit_iters)
        return tree.replace({loop: new}), BlockRV(new.block.name_hint)
    names = [target] if isinstance(target, str) else list(target)
    if not names:
        raise bad_argument("blockize takes a loop, a block, or a list of blocks", hint="name at least one block")
    if len(set(names)) != len(names):
        raise bad_argument(
            "blockize is given a block twice", where=[find_block(tree, n) for n in names], hint="name each block once"
        )
    return _side_by_side(tree, [find_block(tree, n) for n in names], preserve_unit_iters)


# -- several blocks ------------------------------------------------------------------------------------------------------


def _side_by_side(tree: Tree, blocks: Sequence[BlockRealize], preserve_unit_iters: bool) -> tuple[PrimFunc, BlockRV]:
    for realize in blocks:
        if realize is tree.func.body:
            raise ScheduleError(
                "the root block cannot be part of another one",
                where=realize,
                hint="choose blocks or a loop below the root",
            )
        if realize.block.init is not None:
            raise ScheduleError(
                f"block {realize.block.name_hint!r} reduces; blocks become one only without an init",
                where=realize,
                hint="decompose_reduction first",
            )
    top = _meeting_point(tree, blocks)
    children = children_of(below_assertions(top.body))
    places = _places(tree, blocks, top)
    first, last = places[0][0], places[-1][0]
    ordered = [realize for _, realize in places]
    names = [r.block.name_hint for r in ordered]
    shared: DividedBlock | None = None
    reads: list[BufferRegion] = []
    writes: list[BufferRegion] = []
    body: list[Stmt] = []
    for realize in ordered:
        loops = tree.loops_above(realize)
        cut = next((i + 1 for i, lp in enumerate(loops) if lp is top), 0)
        inner = loops[cut:]
        halves = divide_block(tree, realize, loops[:cut], inner, preserve_unit_iters, top)
        if shared is None:
            shared = halves
        halves, inner = _in_terms_of(shared, halves, inner, ordered[0], realize)
        known = {v: iv.var for v, iv in zip(shared.values, shared.axes, strict=True) if isinstance(v, Var)}
        inner = [lp.with_(min=substitute(lp.min, known), extent=substitute(lp.extent, known)) for lp in inner]
        inside = regions_of(halves.inner.block)
        for regions, found in zip((reads, writes), inside, strict=True):
            regions.extend(outer_regions(found, halves.domains(inner), halves.analyzer))
        body.append(in_loops(inner, halves.inner))
    assert shared is not None
    name = unique_block_name(tree.func, f"outer_{'_'.join(names)}_")
    block = Block(
        shared.axes,
        union_regions(reads, shared.analyzer)[::-1],  # the last buffer comes first, as in TVM
        union_regions(writes, shared.analyzer)[::-1],
        name,
        seq(*body),
    )
    check_closed(
        block, [*tree.all_loops_above(top), *([top] if isinstance(top, For) else [])], (), place_name(top), blocks
    )
    new = BlockRealize(shared.values, shared.predicate, block)
    rest = seq(*children[:first], new, *children[last + 1 :])
    return tree.replace({below_assertions(top.body): rest}), BlockRV(name)


def _places(tree: Tree, blocks: Sequence[BlockRealize], top: For | Block) -> list[tuple[int, BlockRealize]]:
    """Return the blocks with their positions in ``top``, in order; ScheduleError unless they follow each other."""
    beside = [r for r in blocks if not tree.is_below(r, top.body)]
    if beside:
        raise ScheduleError(
            f"block {beside[0].block.name_hint!r} stands in the init of {place_name(top)}",
            where=blocks,
            hint="blocks that become one stand side by side",
        )
    children = children_of(below_assertions(top.body))
    places: list[tuple[int, BlockRealize]] = []
    for realize in blocks:
        body = below_assertions(top.body)
        child = tree.child_of(body, realize) if isinstance(body, SeqStmt) else body
        places.append((next(i for i, c in enumerate(children) if c is child), realize))
        inside = list(blocks_below(child))
        if inside != [realize]:
            raise ScheduleError(
                f"{', '.join(repr(r.block.name_hint) for r in inside)} share loops below {place_name(top)}",
                where=inside,
                hint="blocks that become one stand side by side",
            )
        if child is not realize:
            check_direct(tree, realize, child)
    places.sort(key=lambda p: p[0])
    first, last = places[0][0], places[-1][0]
    if last - first + 1 != len(places):
        stranger = next(c for i, c in enumerate(children[first:last], first) if i not in {p for p, _ in places})
        raise ScheduleError(
            "the blocks do not follow one another",
            where=[stranger, *[r for _, r in places]],
            hint="name the blocks in between as well",
        )
    return places


def _meeting_point(tree: Tree, blocks: Sequence[BlockRealize]) -> For | Block:
    """Return the innermost loop or block around all of ``blocks``."""
    paths = [[s for s in tree.path(r)[:-1] if isinstance(s, (For, Block))] for r in blocks]
    out: For | Block = paths[0][0]
    for level in zip(*paths, strict=False):
        if any(s is not level[0] for s in level):
            break
        out = level[0]
    return out


def _in_terms_of(
    shared: DividedBlock, halves: DividedBlock, inner: Sequence[For], one: BlockRealize, other: BlockRealize
) -> tuple[DividedBlock, list[For]]:
    """Return ``halves`` with the outer axes of ``shared``; ScheduleError when they differ."""
    if halves is shared:
        return halves, list(inner)
    names = f"{one.block.name_hint!r} and {other.block.name_hint!r}"
    if len(shared.axes) != len(halves.axes):
        raise ScheduleError(
            f"blocks {names} have {len(shared.axes)} and {len(halves.axes)} axes, so no block is around both",
            where=(one, other),
            hint="split both alike first",
        )
    mapping: dict[Var, Expr] = {}
    for a, b, x, y in zip(shared.axes, halves.axes, shared.values, halves.values, strict=True):
        if not _same_axis(a, b, x, y, shared):
            raise ScheduleError(
                f"blocks {names} run over the shared loops in different ways: {a.var.name} in {a.dom.extent} steps is "
                f"{x}, {b.var.name} in {b.dom.extent} steps is {y}",
                where=(one, other),
                hint="split the loops of both blocks by the same factors",
            )
        mapping[b.var] = cast(b.var.dtype, a.var)
    if not structural_equal(shared.predicate, halves.predicate):
        raise ScheduleError(
            f"blocks {names} run under different conditions: {shared.predicate} and {halves.predicate}",
            where=(one, other),
            hint="split both alike first, or blockize each by itself",
        )
    realized = substitute(halves.inner, mapping)
    return (
        DividedBlock(shared.axes, shared.values, shared.predicate, realized, None, halves.analyzer),
        [substitute(lp.with_(body=realized), mapping) for lp in inner],
    )


def _same_axis(a: IterVar, b: IterVar, x: Expr, y: Expr, shared: DividedBlock) -> bool:
    return (
        a.kind == b.kind
        and shared.analyzer.can_prove_equal(a.dom.extent, b.dom.extent)
        and (structural_equal(x, y) or shared.analyzer.can_prove_equal(x, y))
    )
