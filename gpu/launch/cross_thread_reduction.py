"""Reduces across threads: a block whose reduction runs on ``threadIdx`` is combined by shuffles or in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.machine.target import WARP
from ...tir.analysis.reductions import find_reducer, updates_of
from ...tir.expr import (
    BufferLoad,
    Call,
    Expr,
    IntImm,
    IterVar,
    StringImm,
    Var,
    all_,
    conjuncts,
    const,
    substitute,
    vars_in,
)
from ...tir.expr.node import IRNode
from ...tir.expr.reducers import Reducer
from ...tir.stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from ...tir.walk import blocks_of, loads_and_stores, transform, transform_statements
from .launch_form import THREAD_TAGS, GpuError, is_private, tag_of, thread_extents


def reduce_across_threads(func: PrimFunc, shuffles: bool = True) -> PrimFunc:
    """Replace reductions whose loops are bound to ``threadIdx``.

    Before::

        for k_o in range(4):
            for k in T.thread_binding(8, thread="threadIdx.x"):
                with T.block("B"): ...  B[vi] = B[vi] + A[vi, vk]

    After (``P`` is local, one element for each thread; ``S`` is shared)::

        for t in T.thread_binding(8, thread="threadIdx.x"): P[t] = 0
        for k_o in range(4):
            for k in T.thread_binding(8, thread="threadIdx.x"): P[k] = P[k] + A[i, k_o * 8 + k]
        for t in T.thread_binding(8, thread="threadIdx.x"): S[t] = P[t]
        for t in T.thread_binding(8, thread="threadIdx.x"):
            if t < 4: S[t] = S[t] + S[t + 4]
        ...
        B[i] = S[0]

    With ``shuffles``, the threads of a warp combine their values by exchanging registers. GpuError for a reduction that
    is not known to be associative, and when a loop of the result stands inside those of the reduction.
    """
    return func.with_body(_ReductionWalk(shuffles).visit(func.body))


class _ReductionWalk:
    """The walk over a program. ``path``: the statements around; ``done``: what replaces a loop, when it is known."""

    def __init__(self, shuffles: bool) -> None:
        self.shuffles = shuffles
        self.path: list[Stmt] = []
        self.done: dict[Stmt, _Reduction] = {}

    def visit(self, s: Stmt) -> Stmt:
        """Return ``s`` with its reductions across threads replaced."""
        if isinstance(s, BlockRealize):
            self._block(s)
        self.path.append(s)
        new = s.map_children(lambda c: self.visit(c) if isinstance(c, Stmt) else c)
        self.path.pop()
        made = self.done.pop(s, None)
        if made is None:
            return new
        out = made.statement(new, self.shuffles)
        if any(tag_of(p) for p in self.path):
            return out
        # its steps are one kernel: without a loop on threads around them, each would be one of its own
        return For(Var("blockIdx_x"), IntImm(0), IntImm(1), "thread_binding", out, "blockIdx.x")

    def _block(self, s: BlockRealize) -> None:
        reduce_vars: set[Var] = set()
        for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            if iv.kind == IterVar.REDUCE:
                reduce_vars |= vars_in(value)
        start = max((n for n, p in enumerate(self.path) if isinstance(p, Block)), default=-1) + 1
        outermost = next(
            (n for n in range(start, len(self.path)) if _var_of(self.path[n]) in reduce_vars), len(self.path)
        )
        inner = [p for p in self.path[outermost:] if isinstance(p, For)]
        across = [p for p in inner if tag_of(p) in THREAD_TAGS and p.loop_var in reduce_vars]
        if not across or s.block.init is None:
            return
        around = [p for p in self.path[:outermost] if isinstance(p, For) and tag_of(p) in THREAD_TAGS]
        root = next(p for p in self.path if tag_of(p))
        self.done[self.path[outermost]] = _Reduction(s, inner, across, around, thread_extents([root]))


def _var_of(s: Stmt) -> Var | None:
    return s.loop_var if isinstance(s, For) else None


@dataclass
class _StepThreads:
    """The loops over the threads of one step: fresh variables, and the number among the reducing threads."""

    variables: tuple[Var, ...]
    number: Expr


class _Reduction:
    """The replacement of one block. ``inner``: the loops from the outermost reducing one on; ``across``: those of them
    on threads; ``around``: the loops on threads around them; ``extents``: the threads of the kernel by axis."""

    def __init__(
        self, realize: BlockRealize, inner: Sequence[For], across: Sequence[For], around: Sequence[For],
        extents: dict[str, int],
    ) -> None:  # fmt: skip
        self.realize, self.block = realize, realize.block
        self.inner, self.across, self.around, self.extents = inner, across, around, extents
        self.sizes = [self._size(loop) for loop in across]
        self.total = 1
        for n in self.sizes:
            self.total *= n
        values = dict(zip([iv.var for iv in self.block.iter_vars], realize.iter_values, strict=True))
        self.values = values
        spatial = [v for iv, v in zip(self.block.iter_vars, realize.iter_values, strict=True) if iv.kind != "reduce"]
        inside = {loop.loop_var for loop in inner}
        if any(vars_in(v) & inside for v in spatial):
            self._refuse("a loop of its result stands inside those of the reduction; reorder them")
        updates, starts = updates_of(self.block.body), updates_of(self.block.init)  # type: ignore[arg-type]
        if isinstance(updates, str) or isinstance(starts, str):
            self._refuse(str(updates if isinstance(updates, str) else starts))
        first = {s.buffer: s.value for s in starts.stores}  # type: ignore[union-attr]
        self.stores = updates.stores  # type: ignore[union-attr]
        if any(s.buffer not in first for s in self.stores) or updates.conditions:  # type: ignore[union-attr]
            self._refuse("its init does not set what it updates, or it updates under a condition")
        self.identity = [first[s.buffer] for s in self.stores]
        left = [s.buffer.vload(s.indices) for s in self.stores]
        found = find_reducer(self.identity, left, [s.value for s in self.stores])
        if found is None:
            self._refuse("its reduction is none of the known ones; register_reducer makes one known")
        self.reducer: Reducer = found[0]  # type: ignore[index]
        self.partial = [decl_buffer(self.sizes, s.buffer.dtype, f"{s.buffer.name}_part", scope="local")
                        for s in self.stores]  # fmt: skip

    def _refuse(self, why: str) -> None:
        raise GpuError(f"block {self.block.name} cannot be reduced across threads: {why}")

    def _size(self, loop: For) -> int:
        if not isinstance(loop.extent, IntImm):
            self._refuse(f"the loop {loop.loop_var.name} has {loop.extent} threads, which is not a constant")
        return int(loop.extent)  # type: ignore[call-overload]

    # -- the steps -----------------------------------------------------------------------------------------------------

    def statement(self, loop: Stmt, shuffles: bool) -> Stmt:
        """Return the statement that replaces ``loop``, the outermost one of the reduction."""
        warp = self._lanes() if shuffles else 0
        steps: list[Stmt] = [self._each(lambda n: self._stores(self.partial, n.variables, self.identity))]
        steps.append(self._partial_sums(loop))
        buffers: list[Buffer] = list(self.partial)
        if warp:
            steps.extend(self._exchanged(warp))
        if warp == self.total:
            steps.append(self._each(self._result_of_lane))
        else:
            shared = self._shared(self.total // (warp or 1))
            buffers.extend(shared)
            steps.append(self._each(lambda n: self._to_shared(shared, n, warp)))
            if warp:
                own = [decl_buffer((1,), b.dtype, f"{b.name}_all", scope="local") for b in shared]
                buffers.extend(own)
                steps.extend(self._in_warps(shared, own, self.total // warp))
            else:
                steps.extend(self._tree(shared))
        body = seq(*steps)
        inside = {*buffers, *[b for r in blocks_of(body) for b in r.block.alloc_buffers]}
        touched = dict.fromkeys([a.buffer for a in loads_and_stores(body)])
        regions = tuple([b.full_region() for b in touched if b not in inside])
        block = Block((), regions, regions, f"{self.block.name}_across_threads", body, None, tuple(buffers))
        return BlockRealize((), IntImm(1, "bool"), block)

    def _each(self, make: object) -> Stmt:
        """Return loops over the reducing threads around what ``make`` returns for their names."""
        names = self._names()
        out: Stmt = make(names)  # type: ignore[operator]
        for var, loop in zip(reversed(names.variables), reversed(self.across), strict=True):
            out = For(var, const(0, var.dtype), loop.extent, "thread_binding", out, loop.thread_binding)
        return out

    def _names(self) -> _StepThreads:
        variables = tuple([Var(loop.loop_var.name, loop.loop_var.dtype) for loop in self.across])
        number: Expr = const(0, variables[0].dtype)
        for var, size in zip(variables, self.sizes, strict=True):
            number = number * size + var
        return _StepThreads(variables, number)

    def _stores(self, buffers: Sequence[Buffer], indices: Sequence[Expr], values: Sequence[Expr]) -> Stmt:
        return _at_once([BufferStore(b, v, tuple(indices)) for b, v in zip(buffers, values, strict=True)])

    def _partial_sums(self, loop: Stmt) -> Stmt:
        """Return ``loop`` with each thread's own accumulator in place of the result."""
        own = tuple([loop.loop_var for loop in self.across])
        instead = {s.buffer: p for s, p in zip(self.stores, self.partial, strict=True)}

        def post(n: IRNode) -> IRNode | None:
            if isinstance(n, BufferStore) and n.buffer in instead:
                return BufferStore(instead[n.buffer], n.value, own)
            if isinstance(n, BufferLoad) and n.buffer in instead:
                return instead[n.buffer].vload(own)
            return None

        body = substitute(transform(self.block.body, post=post), self.values)
        body = _guarded(body, conjuncts(self.realize.predicate))
        return transform_statements(loop, lambda n: body if n is self.realize else None)

    def _lanes(self) -> int:
        """Return how many neighbouring lanes of a warp hold values of one result: a power of two, or 0."""
        if len(self.across) != 1 or self.across[0].thread_binding != "threadIdx.x" or self.total < 2:
            return 0
        threads = 1
        for n in self.extents.values():
            threads *= n
        if self.extents["threadIdx.x"] != self.total or threads % WARP or any(b.dtype.bits != 32 for b in self.partial):
            return 0
        lanes = min(self.total, WARP)
        return lanes if lanes & (lanes - 1) == 0 and self.total % lanes == 0 and self.total <= WARP * WARP else 0

    def _exchanged(self, lanes: int) -> list[Stmt]:
        out, distance = [], lanes // 2
        while distance:
            out.append(self._each(lambda n, d=distance: self._with_other_lane(n, d)))
            distance //= 2
        return out

    def _with_other_lane(self, n: _StepThreads, distance: int) -> Stmt:
        mine = [p.vload(n.variables) for p in self.partial]
        theirs = [shuffled(value, distance) for value in mine]
        names = [Var(f"other_{k}", value.dtype) for k, value in enumerate(mine)]
        out = self._stores(self.partial, n.variables, self.reducer.combine(tuple(mine), tuple(names)))
        for name, value in zip(reversed(names), reversed(theirs), strict=True):
            out = LetStmt(name, value, out)
        return out

    def _shared(self, count: int) -> list[Buffer]:
        lead = [int(loop.extent) for loop in self.around]  # type: ignore[call-overload]
        return [decl_buffer((*lead, count), s.buffer.dtype, f"{s.buffer.name}_parts", scope="shared")
                for s in self.stores]  # fmt: skip

    def _place(self, number: Expr) -> tuple[Expr, ...]:
        return (*[loop.loop_var for loop in self.around], number)

    def _to_shared(self, shared: Sequence[Buffer], n: _StepThreads, warp: int) -> Stmt:
        values = [p.vload(n.variables) for p in self.partial]
        if not warp:
            return self._stores(shared, self._place(n.number), values)
        store = self._stores(shared, self._place(n.number // warp), values)
        return IfThenElse((n.number % warp).equal(const(0, n.number.dtype)), store)

    def _tree(self, shared: Sequence[Buffer]) -> list[Stmt]:
        out, left = [], self.total
        while left > 1:
            half = 1 << ((left - 1).bit_length() - 1)

            def step(n: _StepThreads, half: int = half, left: int = left) -> Stmt:
                mine = [b.vload(self._place(n.number)) for b in shared]
                theirs = [b.vload(self._place(n.number + half)) for b in shared]
                both = self.reducer.combine(tuple(mine), tuple(theirs))
                return IfThenElse(n.number < left - half, self._stores(shared, self._place(n.number), both))

            out.append(self._each(step))
            left = half
        first = const(0, self.across[0].loop_var.dtype)
        return [*out, self._result([b.vload(self._place(first)) for b in shared])]

    def _in_warps(self, shared: Sequence[Buffer], own: Sequence[Buffer], count: int) -> list[Stmt]:
        """Return the combination of the values of all warps, which every thread makes in the same order."""
        dtype = self.across[0].loop_var.dtype
        zero = (const(0, dtype),)
        steps = [self._stores(own, zero, [b.vload(self._place(zero[0])) for b in shared])]
        for k in range(1, count):
            theirs = [b.vload(self._place(const(k, dtype))) for b in shared]
            both = self.reducer.combine(tuple([b.vload(zero) for b in own]), tuple(theirs))
            steps.append(self._stores(own, zero, both))
        return [*steps, self._result([b.vload(zero) for b in own])]

    def _result_of_lane(self, n: _StepThreads) -> Stmt:
        store = self._result([p.vload(n.variables) for p in self.partial])
        if all(is_private(s.buffer.scope) for s in self.stores):
            return store
        return IfThenElse(n.number.equal(const(0, n.number.dtype)), store)

    def _result(self, values: Sequence[Expr]) -> Stmt:
        """Return the stores of the result, under the conditions that its own loops leave."""
        inside = {loop.loop_var for loop in self.inner}
        stores = [BufferStore(s.buffer, v, tuple([substitute(i, self.values) for i in s.indices]))
                  for s, v in zip(self.stores, values, strict=True)]  # fmt: skip
        return _guarded(_at_once(stores), [c for c in conjuncts(self.realize.predicate) if not vars_in(c) & inside])


def _guarded(body: Stmt, conditions: Sequence[Expr]) -> Stmt:
    kept = [c for c in conditions if not (isinstance(c, IntImm) and c.value)]
    return IfThenElse(all_(*kept), body) if kept else body


def _at_once(stores: Sequence[BufferStore]) -> Stmt:
    """Return stores whose values are all computed before the first of them."""
    if len(stores) == 1:
        return stores[0]
    names = [Var(f"new_{n}", s.value.dtype) for n, s in enumerate(stores)]
    out: Stmt = SeqStmt(tuple([BufferStore(s.buffer, name, s.indices) for s, name in zip(stores, names, strict=True)]))
    for name, s in zip(reversed(names), reversed(stores), strict=True):
        out = LetStmt(name, s.value, out)
    return out


# The exchange of a value between lanes of a warp, as a call of LLVM's intrinsic.

_ALL = -1
_CLAMP = 31


def shuffled(value: Expr, distance: int) -> Expr:
    """Returns the value of the lane whose number differs in the bit ``distance``; all lanes of the warp take part."""
    name = f"llvm.nvvm.shfl.sync.bfly.{'f32' if value.dtype.is_float else 'i32'}"
    args = (StringImm(name), const(_ALL, "int32"), value, const(distance, "int32"), const(_CLAMP, "int32"))
    return Call("tir.call_llvm_pure_intrin", args, value.dtype)


def distance_of(e: Call) -> tuple[Expr, Expr] | None:
    """Returns the value and the distance of a call that :func:`shuffled` made, or None for other calls."""
    name = e.args[0] if e.args else None
    if isinstance(name, StringImm) and name.value.startswith("llvm.nvvm.shfl.sync.bfly."):
        return e.args[2], e.args[3]
    return None
