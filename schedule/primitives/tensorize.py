"""This module defines tensorize, which replaces loops by a tensor intrinsic that computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer
from ...tir.expr import DType, Expr, IntImm, Range, Var, const
from ...tir.fresh_copy import fresh_copy
from ...tir.index_retyping import with_index_dtype
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, For, MatchBufferRegion, PrimFunc, Stmt
from ...tir.walk import replace_buffers
from ..edit.blockized_loops import blockized
from ..edit.intrinsic_matcher import Matcher, Mismatch
from ..errors import ScheduleError, nearest
from ..primitive import primitive
from ..require.lookup import find_block, find_loop
from ..tensor_intrin import TensorIntrin


def _by_name(func: PrimFunc, block_or_loop: Any, tensor_intrin: Any, preserve_unit_iters: bool) -> dict[str, Any]:
    return {"tensor_intrin": tensor_intrin.name} if isinstance(tensor_intrin, TensorIntrin) else {}


@primitive(prepare=_by_name)
def tensorize(
    func: PrimFunc, block_or_loop: Var | str, tensor_intrin: str, preserve_unit_iters: bool = True
) -> PrimFunc:
    """Replace a block, or a loop and all in it, by a tensor intrinsic.

    ``tensor_intrin`` is the name of a registered :class:`~tilewright.schedule.TensorIntrin`. A loop is blockized first
    (``preserve_unit_iters`` as there). The loops, blocks and accesses must be those of the intrinsic's description, on
    parts of buffers that do not move while it runs. The implementation then runs on those parts, by match_buffer. That
    it computes the same as the description is not proven here: :meth:`TensorIntrin.check` compares the two.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((64, 1)), B: T.Buffer((1, 32)), C: T.Buffer((64, 32))):
    ...     for i, j_0, j_1 in T.grid(64, 4, 8):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(64, i)
    ...             vj = T.axis.spatial(32, j_0 * 8 + j_1)
    ...             C[vi, vj] = C[vi, vj] + A[vi, 0] * B[0, vj]
    ... '''))
    >>> i, j_0, j_1 = sch.get_loops("C")
    >>> sch.tensorize(j_1, "fma_1x8_f32")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((64, 1), "float32"), B: T.Buffer((1, 32), "float32"), C: T.Buffer((64, 32), "float32")):
        # with T.block("root"):
        for i, j_0 in T.grid(64, 4):
            with T.block("C_o"):
                vi_o, vj_o = T.axis.remap("SS", [i, j_0])
                T.reads(C[vi_o, vj_o * 8:vj_o * 8 + 8], A[vi_o, 0], B[0, vj_o * 8:vj_o * 8 + 8])
                T.writes(C[vi_o, vj_o * 8:vj_o * 8 + 8])
                A_elem_offset = T.int32()
                A_1 = T.match_buffer(A[vi_o, 0], (1, 1), "float32", elem_offset=A_elem_offset)
                B_elem_offset = T.int32()
                B_1 = T.match_buffer(B[0, vj_o * 8:vj_o * 8 + 8], (1, 8), "float32", elem_offset=B_elem_offset)
                C_elem_offset = T.int32()
                C_1 = T.match_buffer(C[vi_o, vj_o * 8:vj_o * 8 + 8], (1, 8), "float32", elem_offset=C_elem_offset)
                for i_1 in T.unroll(1):
                    C_1[i_1, 0:8] = C_1[i_1, 0:8] + T.Broadcast(A_1[i_1, 0], 8) * B_1[0, 0:8]
    """
    tree = tree_of(func)
    intrin = TensorIntrin.get(tensor_intrin, allow_missing=True)
    if intrin is None:
        raise ScheduleError(
            f"there is no tensor intrinsic {tensor_intrin!r}", hint=nearest(str(tensor_intrin), TensorIntrin.names())
        )
    if isinstance(block_or_loop, Var):
        target: Stmt = find_loop(tree, block_or_loop)
        assert isinstance(target, For)
        realize = blockized(tree, target, preserve_unit_iters)
    else:
        target = realize = find_block(tree, block_or_loop)
        if realize is func.body:
            raise ScheduleError(
                "the root block cannot be an intrinsic", where=realize, hint="choose a block or a loop below the root"
            )
    block = _implemented(tree, target, realize, intrin)
    return tree.replace({target: BlockRealize(realize.iter_values, realize.predicate, block)})


def _implemented(tree: Tree, target: Stmt, realize: BlockRealize, intrin: TensorIntrin) -> Block:
    """Return the block with the implementation as its body."""
    block = realize.block
    if block.init is not None:
        raise ScheduleError(
            f"block {block.name_hint!r} starts with an init, which the description of {intrin.name!r} does not",
            where=target,
            hint="decompose_reduction first, so that the update stands alone",
        )
    analyzer = analyzer_at(tree, target)
    for iv in block.iter_vars:
        if not (isinstance(iv.dom.extent, IntImm) and iv.dom.extent.value == 1):
            analyzer.bind(iv.var, iv.dom)
    desc = intrin.desc.body
    assert isinstance(desc, BlockRealize)
    matcher = Matcher(analyzer, intrin.any_scope)
    try:
        matcher.spot = target
        matcher.stmt(block.body, desc.block.body)
    except Mismatch as error:
        raise ScheduleError(
            f"this is not what {intrin.name!r} describes: {error}",
            where=_in_program(tree, target, error.where),
            hint=f"the description is\n{_indented(intrin.desc.script())}",
        ) from None
    missing = [b.name for b in intrin.desc.buffers if b not in matcher.buffers]
    if missing:
        raise ScheduleError(
            f"{', '.join(missing)} of {intrin.name!r} is not used in its description",
            where=target,
            hint="a description uses all of its buffers; leave the others out",
        )
    scopes = [matcher.buffers[b].scope for b in intrin.desc.buffers]
    buffers, body = _instantiated(intrin.impl, _index_type(block), scopes)
    matches = [
        MatchBufferRegion(new, _part(matcher, old, new, block, analyzer, target))
        for old, new in zip(intrin.desc.buffers, buffers, strict=True)
    ]
    _check_apart(intrin, matches, desc.block, target)
    sources = {m.source.buffer: m.source for m in matches}
    known = {r.buffer for r in (*block.reads, *block.writes)}
    return block.with_(
        reads=(*block.reads, *[r for b, r in sources.items() if b not in known]),
        body=body.body,
        alloc_buffers=(*[b for b in block.alloc_buffers if b in sources], *body.alloc_buffers),
        match_buffers=tuple(matches),
        annotations={**body.annotations, **block.annotations},
    )


def _index_type(block: Block) -> str:
    """Return the index type of the program: the widest of the block's regions."""
    types = [r.min.dtype for region in (*block.reads, *block.writes) for r in region.region]
    return "int64" if "int64" in types else "int32"


def _part(matcher: Matcher, desc: Buffer, impl: Buffer, block: Block, analyzer: Analyzer, target: Stmt) -> BufferRegion:
    """Return the part of the program's buffer that ``impl`` stands for; ScheduleError unless it is inside the
    buffer."""
    source, base = matcher.buffers[desc], matcher.bases[desc]
    lead = len(base) - len(impl.shape)
    sizes = [const(1, e.dtype) for e in base[:lead]]
    sizes += [e.astype(b.dtype) for e, b in zip(impl.shape, base[lead:], strict=True)]
    region = BufferRegion(source, tuple([Range(b, n) for b, n in zip(base, sizes, strict=True)]))
    declared = [r.region for r in (*block.reads, *block.writes) if r.buffer is source]
    inside = any(_covers(analyzer, whole, region.region) for whole in declared) or all(
        analyzer.can_prove(r.min >= 0) and analyzer.can_prove(r.min + r.extent <= size)
        for r, size in zip(region.region, source.shape, strict=True)
    )
    if not inside:
        raise ScheduleError(
            f"the intrinsic touches {region}, which is not known to lie inside buffer {source.name}",
            where=target,
            hint="pad the buffer, or split so that the tile fits",
        )
    strides = source.element_strides()[lead:]
    for wanted, given in zip(impl.strides, strides, strict=False):
        if isinstance(wanted, IntImm) and not analyzer.can_prove_equal(given, wanted.astype(given.dtype)):
            shown = ", ".join(map(str, impl.strides))
            raise ScheduleError(
                f"{impl.name} of the intrinsic has the strides [{shown}], {region} has "
                f"[{', '.join(map(str, strides))}]",
                where=target,
                hint="copy that part with cache_read or cache_write, or change the layout",
            )
    if impl.offset_factor > 1:
        offset: Expr = source.elem_offset
        for r, step in zip(region.region, source.element_strides(), strict=True):
            offset = offset + r.min * step
        if not analyzer.can_prove_equal(offset % impl.offset_factor, 0):
            raise ScheduleError(
                f"{region} begins at element {offset}, which is not known to be a multiple of {impl.offset_factor} as "
                f"{impl.name} of the intrinsic must",
                where=target,
                hint="split so that the tile starts at such a multiple",
            )
    return region


def _covers(analyzer: Analyzer, whole: Sequence[Range], part: Sequence[Range]) -> bool:
    return all(
        analyzer.can_prove(w.min <= p.min) and analyzer.can_prove(p.min + p.extent <= w.min + w.extent)
        for w, p in zip(whole, part, strict=True)
    )


def _check_apart(intrin: TensorIntrin, matches: Sequence[MatchBufferRegion], desc: Block, target: Stmt) -> None:
    """Raise ScheduleError when a buffer that the intrinsic writes is also another of its buffers."""
    written = {r.buffer for r in desc.writes}
    outputs = [m for m, b in zip(matches, intrin.desc.buffers, strict=True) if b in written]
    for out in outputs:
        for other in matches:
            if other is not out and other.source.buffer is out.source.buffer:
                raise ScheduleError(
                    f"{out.buffer.name} and {other.buffer.name} of {intrin.name!r} would both be parts of "
                    f"{out.source.buffer.name}, which it writes",
                    where=target,
                    hint="an intrinsic writes to a buffer that it does not read elsewhere",
                )


def _in_program(tree: Tree, target: Stmt, where: Any) -> list[Stmt]:
    """Return the statements to mark: ``where``, if it is part of the program, and the target."""
    if isinstance(where, For) and where.loop_var in tree.loops:
        return [target, tree.loops[where.loop_var]]
    if isinstance(where, BlockRealize) and where.block.name_hint in tree.blocks:
        return [target, *tree.blocks[where.block.name_hint]]
    return [target]


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines() if not line.startswith("#"))


def _instantiated(
    func: PrimFunc, index_type: str, scopes: Sequence[str] | None = None
) -> tuple[tuple[Buffer, ...], Block]:
    """Return new buffers for the parameters of ``func`` (in these ``scopes``, when given). With them comes its root
    block in terms of them.

    Loops, axes, sizes and indices have the type ``index_type``; computed values keep their types.
    """
    if scopes is not None:
        func = replace_buffers(
            func, {b: b.with_(scope=scope, data=b.data) for b, scope in zip(func.buffers, scopes, strict=True)}
        )
    copy = fresh_copy(with_index_dtype(func, DType(index_type)), outside=())
    return copy.buffers, copy.body.block
