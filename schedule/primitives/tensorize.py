"""This module defines tensorize, which replaces loops by a tensor intrinsic that computes the same.

A :class:`Matcher` compares a statement of the program with the description of the intrinsic, and finds its buffer parts.
Both sides have the same loops, blocks and statements. A buffer of the description stands for a part of a buffer of the
program: an index of the program is ``base + index``, where ``base`` does not change inside the statement. The bases are
computed from the accesses. Operands of ``+``, ``*``, ``min`` and ``max`` may be in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer
from ...tir.expr import (
    Add,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    DType,
    Expr,
    FloatImm,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mul,
    Ramp,
    Range,
    Select,
    StringImm,
    Var,
    cast,
    const,
    is_const_int,
    make_binary,
    plain,
)
from ...tir.expr.node import IRNode, NodePart, declared_fields, plain_fields
from ...tir.index_width import with_index_dtype
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, MatchBufferRegion, PrimFunc, Stmt
from ...tir.walk import fresh_copy, pre_order, replace_buffers, uses_var
from ..edit.block_division import blockized
from ..errors import ScheduleError, nearest
from ..primitive import primitive
from ..require.block_preconditions import find_block, find_loop
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


_COMMUTATIVE = (Add, Mul, Min, Max)


class Mismatch(Exception):
    """A ``Mismatch`` says how program and description differ; ``where`` is the node of the program."""

    def __init__(self, what: str, where: IRNode) -> None:
        super().__init__(what)
        self.where = where


class Matcher:
    """A ``Matcher`` compares statements of a program with a description.

    Afterwards ``buffers`` holds the program's buffer for each buffer of the description, and ``bases`` the index per
    dimension of the program's buffer where that part begins. With ``any_scope`` storage scopes may differ.
    """

    def __init__(self, analyzer: Analyzer, any_scope: bool = False) -> None:
        self.analyzer = analyzer
        self.any_scope = any_scope
        self.buffers: dict[Buffer, Buffer] = {}
        self.bases: dict[Buffer, tuple[Expr, ...]] = {}
        self.vars: dict[Var, Expr] = {}
        self.inner: set[Var] = set()
        self.spot: Any = None

    def fail(self, what: str) -> Mismatch:
        return Mismatch(what, self.spot)

    # -- statements --------------------------------------------------------------------------------------------------

    def stmt(self, t: Any, d: Any) -> None:
        """Compare a statement of the program with one of the description; :class:`Mismatch` when they differ."""
        outer, self.spot = self.spot, t
        while _is_unit_loop(d) and not _is_unit_loop(t):
            self.vars[d.loop_var] = d.min
            d = d.body
        while _is_unit_loop(t) and not _is_unit_loop(d):
            self.analyzer.bind(t.loop_var, Range(t.min, t.extent))
            t = t.body
        if type(t) is not type(d):
            raise self.fail(f"it is a {type(t).__name__}, in the description a {type(d).__name__}")
        _STATEMENTS.get(type(t), Matcher.parts)(self, t, d)
        self.spot = outer

    def parts(self, t: NodePart, d: NodePart) -> None:
        """Compare two objects of one class by what the class declares: plain values first, then parts."""
        cls: Any = type(t)
        values = [(getattr(t, name), getattr(d, name)) for name in plain_fields(cls)]
        if any(x != y for x, y in values):
            raise self.fail(f"`{t}` is not `{d}` of the description")
        for role, name, many in declared_fields(cls):
            x, y = getattr(t, name), getattr(d, name)
            if many != "tuple":
                if (x is None) != (y is None):
                    raise self.fail(f"one side alone has {name}")
                x, y = (() if x is None else (x,)), (() if y is None else (y,))
            if len(x) != len(y):
                raise self.fail(f"{len(x)} {name}, in the description {len(y)}")
            for a, b in zip(x, y, strict=True):
                if role == "binds":
                    self.define(a, b, None)
                elif role == "nodes":
                    (self.stmt if isinstance(a, Stmt) else self.expr)(a, b)
                else:
                    raise self.fail(f"a {type(t).__name__} cannot be compared")

    def loop(self, t: For, d: For) -> None:
        name = t.loop_var.name
        if (t.kind, t.thread_binding) != (d.kind, d.thread_binding):
            raise self.fail(f"loop {name} is {t.kind}, in the description {d.kind}")
        self.same_index(t.extent, d.extent, f"the extent of loop {name}")
        self.same_index(t.min, d.min, f"the start of loop {name}")
        self.same_notes(t.annotations, d.annotations, f"loop {name}")
        self.define(t.loop_var, d.loop_var, Range(t.min, t.extent))
        self.stmt(t.body, d.body)

    def realize(self, t: BlockRealize, d: BlockRealize) -> None:
        left, right = self.axes(t), self.axes(d)
        if len(left) != len(right):  # an axis of one value may be left out
            for iv, _ in left:
                if is_const_int(iv.dom.extent, 1):
                    self.analyzer.bind(iv.var, iv.dom)
            self.vars.update({iv.var: iv.dom.min for iv, _ in right if is_const_int(iv.dom.extent, 1)})
            left, right = ([x for x in axes if not is_const_int(x[0].dom.extent, 1)] for axes in (left, right))
        if len(left) != len(right):
            raise self.fail(f"block {t.block.name_hint!r} has {len(left)} axes, in the description {len(right)}")
        for (axis, value), (_, wanted) in zip(left, right, strict=True):
            self.same_index(value, wanted, f"the value of axis {axis.var.name}")
        if is_const_int(d.predicate, 1) and not is_const_int(t.predicate, 1):
            raise self.fail(f"block {t.block.name_hint!r} runs where {t.predicate}, in the description always")
        self.expr(t.predicate, d.predicate)
        for (a, _), (b, _) in zip(left, right, strict=True):
            if a.kind != b.kind:
                raise self.fail(f"axis {a.var.name} is {a.kind}, in the description {b.kind}")
            self.same_index(a.dom.extent, b.dom.extent, f"the domain of axis {a.var.name}")
            self.define(a.var, b.var, a.dom)
        self.block(t.block, d.block)

    @staticmethod
    def axes(s: BlockRealize) -> list[tuple[IterVar, Expr]]:
        """Return the axes of a block with their values."""
        return list(zip(s.block.iter_vars, s.iter_values, strict=True))

    def block(self, t: Block, d: Block) -> None:
        """Compare two blocks: their declarations and their bodies."""
        if t.match_buffers or d.match_buffers:
            raise self.fail(f"block {t.name_hint!r} has matched buffers")
        if (t.init is None) != (d.init is None):
            has = "has an init, the description has none" if d.init is None else "lacks the description's init"
            raise self.fail(f"block {t.name_hint!r} {has}")
        if len(t.alloc_buffers) != len(d.alloc_buffers):
            raise self.fail(f"block {t.name_hint!r} allocates {len(t.alloc_buffers)} buffers, in the description "
                            f"{len(d.alloc_buffers)}")  # fmt: skip
        for x, y in zip(t.alloc_buffers, d.alloc_buffers, strict=True):
            for n, m in zip(x.shape, y.shape, strict=False):
                self.same_index(n, m, f"the shape of buffer {x.name}")
            self.buffer(x, y)
            self.bases[y] = tuple([IntImm(0, e.dtype) for e in x.shape])
        if t.init is not None:
            self.stmt(t.init, d.init)
        self.stmt(t.body, d.body)

    def store(self, t: BufferStore, d: BufferStore) -> None:
        self.access(t, d)
        self.expr(t.value, d.value)

    # -- definitions and indices -------------------------------------------------------------------------------------

    def define(self, t: Var, d: Var, domain: Range | None) -> None:
        self.vars[d] = t
        self.inner.add(t)
        if domain is not None:
            self.analyzer.bind(t, domain)

    def same_notes(self, t: Any, d: Any, what: str) -> None:
        if {k: plain(v) for k, v in t.items()} != {k: plain(v) for k, v in d.items()}:
            raise self.fail(f"the annotations of {what} are {dict(t)}, in the description {dict(d)}")

    def same_index(self, t: Expr, d: Expr, what: str) -> None:
        if not self.analyzer.can_prove_equal(t, _index_as(d, t.dtype, self.vars)):
            raise self.fail(f"{what} is {t}, in the description {d}")

    def buffer(self, t: Buffer, d: Buffer) -> None:
        """Check that ``d`` may stand for a part of ``t``, and record it."""
        known = self.buffers.get(d)
        if known is not None and known is not t:
            raise self.fail(f"{d.name} of the description would be both {known.name} and {t.name}")
        if t.dtype != d.dtype or (t.scope != d.scope and not self.any_scope):
            raise self.fail(
                f"buffer {t.name} is {t.dtype} in {t.scope} memory, {d.name} of the description {d.dtype} in {d.scope}"
            )
        self.buffers[d] = t

    def access(self, t: BufferLoad | BufferStore, d: BufferLoad | BufferStore) -> None:
        """Compare two accesses of buffers that correspond to each other."""
        self.buffer(t.buffer, d.buffer)
        if (t.predicate is None) != (d.predicate is None):
            raise self.fail("one side alone is masked")
        if t.predicate is not None:
            self.expr(t.predicate, d.predicate)
        lead = len(t.indices) - len(d.indices)
        if lead < 0:
            raise self.fail(
                f"buffer {t.buffer.name} has {len(t.indices)} dimensions, {d.buffer.name} of the description "
                f"{len(d.indices)}"
            )
        wanted = [None] * lead + [
            _index_as(i, x.dtype, self.vars) for i, x in zip(d.indices, t.indices[lead:], strict=True)
        ]
        known = self.bases.get(d.buffer)
        if known is None:
            known = tuple([self.base(t, i, w) for i, w in zip(t.indices, wanted, strict=True)])
            self.bases[d.buffer] = known
            return
        for i, w, base in zip(t.indices, wanted, known, strict=True):
            if not self.analyzer.can_prove_equal(i, base if w is None else base + w):
                raise self.fail(
                    f"{_shown(t)} is not {_shown(d)} of the description, where {d.buffer.name} begins at "
                    f"[{', '.join(map(str, known))}] of {t.buffer.name}"
                )

    def base(self, t: BufferLoad | BufferStore, index: Expr, wanted: Expr | None) -> Expr:
        """Return where the part begins in one dimension, computed from one access."""
        if index.dtype.lanes > 1 or (wanted is not None and wanted.dtype.lanes > 1):
            raise self.fail(f"{_shown(t)} is an access by vectors")
        out: Expr = self.analyzer.simplify(index if wanted is None else index - wanted)
        if uses_var(out, lambda v: v in self.inner):
            need = "stay in place" if wanted is None else f"be {wanted} plus something that stays"
            raise self.fail(f"the index {index} of {_shown(t)} should {need} inside the piece")
        return out

    # -- expressions -------------------------------------------------------------------------------------------------

    def expr(self, t: Any, d: Any) -> None:
        """Compare two expressions."""
        if _counts(t) and _counts(d) and not (isinstance(t, Var) and t.dtype == "handle"):
            self.same_index(t, d, "an index")
            if t.dtype != d.dtype and not self._follows(d):
                raise self.fail(f"`{t}` is {t.dtype}, `{d}` of the description {d.dtype}")
            return
        if type(t) is not type(d) or (t.dtype != d.dtype and not isinstance(t, Cast)):
            raise self.fail(f"`{t}` ({t.dtype}) is not `{d}` ({d.dtype}) of the description")
        if isinstance(t, BinaryOp):
            self.pair(t, d)
        elif isinstance(t, BufferLoad):
            self.access(t, d)
        elif isinstance(t, Var):
            if self.vars.get(d) is not t:
                raise self.fail(f"`{t.name}` is not `{d.name}` of the description")
        elif isinstance(t, (IntImm, FloatImm, StringImm)):
            if t.value != d.value and (t.value == t.value or d.value == d.value):
                raise self.fail(f"`{t}` is not `{d}` of the description")
        else:
            self.parts(t, d)

    def _follows(self, d: Expr) -> bool:
        """Return whether the type of ``d`` is the index type, which may differ between the sides."""
        return any(isinstance(n, Var) and n in self.vars for n in pre_order(d)) or isinstance(d, IntImm)

    def pair(self, t: BinaryOp, d: BinaryOp) -> None:
        """Compare two binary operations; where the order of operands does not matter, the other order is tried as
        well."""
        before = dict(self.buffers), dict(self.bases), dict(self.vars)
        try:
            self.expr(t.a, d.a)
            self.expr(t.b, d.b)
        except Mismatch:
            if not isinstance(t, _COMMUTATIVE):
                raise
            after = self.buffers, self.bases, self.vars
            self.buffers, self.bases, self.vars = before
            try:
                self.expr(t.a, d.b)
                self.expr(t.b, d.a)
                return
            except Mismatch:
                self.buffers, self.bases, self.vars = after
            raise


def _is_unit_loop(s: Any) -> bool:
    return isinstance(s, For) and is_const_int(s.extent, 1) and s.kind == "serial" and not s.annotations


def _counts(e: Any) -> bool:
    """Return whether ``e`` is index arithmetic: integers without loads from memory."""
    if not e.dtype.is_int or e.dtype.lanes > 1 or isinstance(e, (Cast, Call)):
        return False
    return not any(isinstance(n, (BufferLoad, Call, Let, Select)) for n in pre_order(e))


def _shown(access: BufferLoad | BufferStore) -> str:
    return f"{access.buffer.name}[{', '.join(map(str, access.indices))}]"


def _index_as(e: Expr, dtype: str, env: dict[Var, Expr]) -> Expr:
    """Return an index expression with variables replaced, computed in ``dtype``."""
    if isinstance(e, Var):
        return cast(dtype, env.get(e, e))
    if isinstance(e, IntImm):
        return const(e.value, dtype)
    if isinstance(e, Ramp):
        return Ramp(_index_as(e.base, dtype, env), _index_as(e.stride, dtype, env), e.lanes)
    if isinstance(e, Broadcast):
        return Broadcast(_index_as(e.value, dtype, env), e.lanes)
    if isinstance(e, BinaryOp) and not isinstance(e, CmpOp) and e.dtype.is_int:
        return make_binary(type(e), _index_as(e.a, dtype, env), _index_as(e.b, dtype, env))
    if isinstance(e, Cast) and e.dtype.is_int:
        return _index_as(e.value, dtype, env)
    return cast(dtype, e)


_STATEMENTS: dict[type, Callable[[Matcher, Any, Any], None]] = {
    For: Matcher.loop,
    BlockRealize: Matcher.realize,
    BufferStore: Matcher.store,
}
