"""Runs the statements of a loop at different iterations at a time. Copies for the next iteration then overlap with
computing.

The annotations are TVM's: ``software_pipeline_stage`` has for each statement of the loop's body by how many iterations it
lags behind, ``software_pipeline_order`` its place among the others. ``software_pipeline_async_stages`` lists the stages whose
copies from global to shared memory run beside the threads (``cp.async``). A step then begins by waiting for the
copies that it uses, and by a barrier, as they were started by all threads of the block. Rows that are copied in bulk
(:mod:`.bulk_copies`) are awaited by their mbarriers. Where a listed stage has products of warp groups, those of a step go on during
the next one, and their operands have one more version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from ...tir.expr import Broadcast, BufferLoad, Call, Cast, Expr, FloatImm, IntImm, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    children_of,
    seq,
)
from ...tir.walk import fresh_copy, loads_and_stores, statements, transform, transform_statements
from .barriers import barrier
from .bulk_copies import Arrivals, Rows, copies, has_rows, number_of, only_rows
from .launch_form import GpuError, is_shared, tag_of

STAGE, ORDER, ASYNC = "software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"


def pipeline_loops(func: PrimFunc) -> PrimFunc:
    """Return ``func``, whose kernels are in launch form, with its annotated loops as pipelines.

    Before (the stages are 0 and 1)::

        for k in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            S[t] = A[k, t]
            L[0] = L[0] + S[7 - t]

    After::

        S[0, t] = A[0, t]
        for k in range(7):
            S[(k + 1) % 2, t] = A[k + 1, t]
            L[0] = L[0] + S[k % 2, 7 - t]
        L[0] = L[0] + S[1, 7 - t]

    Where the number ``n`` of iterations is known only at the launch, conditions take the place of the last steps::

        if 0 < n: S[0, t] = A[0, t]
        for k in range(n):
            if k + 1 < n: S[(k + 1) % 2, t] = A[k + 1, t]
            L[0] = L[0] + S[k % 2, 7 - t]

    GpuError for a loop whose annotations do not fit its body, and when something else than shared memory goes from one
    stage to a later one.
    """
    found = [s for s in statements(func.body) if isinstance(s, For) and STAGE in s.annotations]
    for loop in found:
        func = _Pipeline(loop).applied(func)
    return func


class _Pipeline:
    """The pipeline of one loop. ``parts``: the statements of its body with their stages, in the order in which they run;
    ``copies``: how many versions of each shared buffer are alive at a time."""

    def __init__(self, loop: For) -> None:
        self.loop = loop
        body = children_of(loop.body)
        stages = _numbers(loop, STAGE, loop.annotations[STAGE])
        order = _numbers(loop, ORDER, loop.annotations.get(ORDER, list(range(len(body)))))
        if len(stages) != len(body) or sorted(order) != list(range(len(body))):
            self._refuse(f"{STAGE} {stages} and {ORDER} {order} do not fit its {len(body)} statements")
        if not (isinstance(loop.min, IntImm) and loop.min.value == 0):
            self._refuse("it does not begin at 0")
        self.count = loop.extent.value if isinstance(loop.extent, IntImm) else None
        """The number of iterations; None where only the launch knows it."""
        least = min(stages)
        listed = {n - least for n in _numbers(loop, ASYNC, loop.annotations.get(ASYNC, []))}
        self.parts = [(stage - least, s) for _, stage, s in sorted(zip(order, stages, body, strict=True), key=_first)]
        self.flying = {stage for stage, s in self.parts if stage in listed and has_products(s)}
        self.asynchronous = listed - self.flying
        self.last = max(stage for stage, _ in self.parts)
        self.wider = self._versions()
        lags = self._lags() if self.asynchronous else []
        self.lag = min([lag for lag, _, in_rows in lags if not in_rows], default=1)
        self.bulk = {stage: min([n for n, at, in_rows in lags if in_rows and at == stage], default=1)
                     for stage, s in self.parts if stage in self.asynchronous and only_rows(s)}  # fmt: skip
        """The lags of the stages that copy rows in bulk."""
        self.groups = any(stage in self.asynchronous and not only_rows(s) for stage, s in self.parts)
        self.awaited: dict[int, Stmt] = {}
        self.arrivals: list[Arrivals] = []
        for stage, s in self.parts:
            if has_rows(s) and stage not in self.bulk:
                self._refuse(f"bulk copies run in a stage of their own that {ASYNC} names")

    def _refuse(self, why: str) -> None:
        raise GpuError(f"the loop {self.loop.loop_var.name} cannot be a pipeline: {why}")

    def _versions(self) -> dict[Buffer, Buffer]:
        writers: dict[Buffer, int] = {}
        for stage, s in self.parts:
            for access in loads_and_stores(s):
                if isinstance(access, BufferStore):
                    writers.setdefault(access.buffer, stage)
        wanted: dict[Buffer, int] = {}
        for stage, s in self.parts:
            for access in loads_and_stores(s):
                lag = stage - writers.get(access.buffer, stage)
                if lag > 0 and not is_shared(access.buffer.scope):
                    self._refuse(f"{access.buffer.name}, which goes from one stage to another, is not in shared memory")
                if access.buffer in writers and stage in self.flying and is_shared(access.buffer.scope):
                    lag += 1  # the products of the step before still read the version before
                wanted[access.buffer] = max(wanted.get(access.buffer, 0), lag)
        return {b: _versioned(b, lag + 1) for b, lag in wanted.items() if lag > 0}

    def _lags(self) -> list[tuple[int, int, bool]]:
        """Return the lag of each use of an asynchronous copy, its stage, and whether it is in bulk."""
        started = {
            access.buffer: (stage, only_rows(s))
            for stage, s in self.parts
            for access in loads_and_stores(s)
            if stage in self.asynchronous and isinstance(access, BufferStore)
        }
        if self.asynchronous - {stage for stage, _ in self.parts}:
            self._refuse(f"{ASYNC} names a stage that no statement has")
        uses = [
            (stage, access.buffer)
            for stage, s in self.parts
            for access in loads_and_stores(s)
            if access.buffer in started and isinstance(access, BufferLoad)
        ]
        early = sorted(buffer.name for stage, buffer in uses if stage <= started[buffer][0])
        if early:
            self._refuse(f"{early[0]}, which is copied asynchronously, is used in the stage that copies it")
        return [(stage - started[buffer][0], *started[buffer]) for stage, buffer in uses]

    def applied(self, func: PrimFunc) -> PrimFunc:
        """Return ``func`` with the pipeline in place of the loop."""
        inside = {id(a) for a in loads_and_stores(self.loop)}
        for access in loads_and_stores(func.body):
            if access.buffer in self.wider and id(access) not in inside:
                self._refuse(f"{access.buffer.name} is used outside of it as well")
        if self.asynchronous:
            kernel = next(s for s in statements(func.body) if tag_of(s) and self.loop in statements(s))
            self._start_copies(Rows.of(kernel), _around(kernel, self.loop))
        made = self.statement()

        def post(n: IRNode) -> Stmt | None:
            if n is self.loop:
                return made
            if isinstance(n, Allocate) and n.buffer in self.wider:
                return Allocate(self.wider[n.buffer], n.body, n.annotations)
            return None

        return transform_statements(func, post)

    def _start_copies(self, rows: Rows, around: Sequence[Stmt]) -> None:
        """Let the copies of asynchronous stages only start. ``around``: the loops and conditions around the pipeline."""
        parts = [
            (n, started(s, rows.written) if n in self.asynchronous and not only_rows(s) else s) for n, s in self.parts
        ]
        for stage, lag in self.bulk.items():
            number = number_of([*around, self.loop], rows.threads)
            arrivals = Arrivals.made("arrivals", lag + 1)
            self.arrivals.append(arrivals)
            self.awaited[stage] = arrivals.awaited(number)
            own = [n for n, (at, s) in enumerate(parts) if at == stage and only_rows(s)]
            total = sum(rows.bytes_of(parts[n][1]) for n in own)
            for n in own:
                parts[n] = (stage, arrivals.begun(parts[n][1], number, total if n == own[0] else 0, rows))
        self.parts = parts

    def statement(self) -> Stmt:
        """Return the first steps, the loop over steps in which all stages run, and the last steps."""
        var, dtype = self.loop.loop_var, self.loop.loop_var.dtype
        notes = {k: v for k, v in self.loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
        ends = [fresh_copy(last_waits(s), {var: const(0, dtype)}) for stage, s in self.parts if stage in self.flying]
        if self.count is None:
            begun = [self._step(const(t - self.last, dtype), t - self.last) for t in range(self.last)]
            steps = For(var, const(0, dtype), self.loop.extent, "serial", self._step(var, None), None, notes)
            return self._with_arrivals(seq(*begun, steps, *ends))
        full = max(0, self.count - self.last)
        head = [self._step(const(t - self.last, dtype), t - self.last) for t in range(min(self.last, self.count))]
        first = min(self.last, self.count)
        tail = [
            self._step(const(t - self.last, dtype), t - self.last) for t in range(first + full, self.count + self.last)
        ]
        loop = For(var, const(0, dtype), const(full, dtype), "serial", self._step(var, None), None, notes)
        return self._with_arrivals(seq(*head, loop if full else None, *tail, *ends))

    def _with_arrivals(self, out: Stmt) -> Stmt:
        for arrivals in self.arrivals:
            out = Allocate(arrivals.buffer, out, {})
        return out

    def _step(self, at: Expr, known: int | None) -> Stmt:
        """Return what runs when the last stage is at iteration ``at``; ``known``: that number, which may be negative."""
        out: list[Stmt] = self._waiting(at, known) if self.asynchronous else []
        last = 0
        for stage, s in self.parts:
            ahead = self.last - stage
            if not self._runs(ahead, known):
                continue
            iteration = at + ahead if known is None else const(known + ahead, at.dtype)
            s = in_flight(s) if stage in self.flying else s
            copy = fresh_copy(_in_version(s, self.wider, self.loop.loop_var), {self.loop.loop_var: iteration})
            if isinstance(s, AttrStmt) and s.attr_key == ASYNC_SCOPE:
                last = len(out) + 1
            out.append(self._if_inside(copy, iteration, ahead))
        if last:  # a group without copies counts as one, too
            out.insert(last, commit())
        return seq(*out)

    def _runs(self, ahead: int, known: int | None) -> bool:
        """Return whether what runs ``ahead`` of the last stage may run in a step. All of it does, except in the first and the
        last steps."""
        return known is None or (0 <= known + ahead and (self.count is None or known + ahead < self.count))

    def _if_inside(self, s: Stmt, iteration: Expr, ahead: int) -> Stmt:
        """Return ``s`` under the condition that the loop has the iteration, where only the launch knows that. The loop over
        steps has those that are 0 ``ahead``."""
        if self.count is not None or (ahead == 0 and not isinstance(iteration, IntImm)):
            return s
        return IfThenElse(iteration < self.loop.extent, s)

    def _starts(self, stage: int, known: int | None) -> bool:
        """Return whether a stage may run in a step."""
        return self._runs(self.last - stage, known)

    def _waiting(self, at: Expr, known: int | None) -> list[Stmt]:
        """Return what waits for the copies that a step uses, where it uses any."""
        if not any(self._starts(stage, known) for stage, _ in self.parts if stage not in self.asynchronous):
            return []
        between = [None if known is None else known - n for n in range(1, self.lag)]
        later = sum(any(self._starts(stage, n) for stage in self.asynchronous) for n in between)
        out = [wait(later)] if self.groups else []
        for stage, lag in self.bulk.items():
            ahead = self.last - stage - lag
            if self._runs(ahead, known):
                iteration = at + ahead if known is None else const(known + ahead, at.dtype)
                waits = fresh_copy(self.awaited[stage], {self.loop.loop_var: iteration})
                out.append(self._if_inside(waits, iteration, ahead))
        return [*out, barrier()]


def _around(s: Stmt, target: Stmt) -> list[Stmt]:
    """Returns the statements around another one inside a kernel in launch form, outermost first, besides the axes."""
    out: list[Stmt] = []
    while s is not target:
        if not tag_of(s):
            out.append(s)
        s = next(c for c in s.children() if isinstance(c, Stmt) and target in statements(c))
    return out


def _first(part: tuple[Any, ...]) -> Any:
    return part[0]


def _numbers(loop: For, key: str, given: Any) -> list[int]:
    try:
        return [int(n) for n in given]
    except TypeError:
        raise GpuError(f"{key} of the loop {loop.loop_var.name} is {given!r}, not a list of numbers") from None


def _versioned(buffer: Buffer, copies: int) -> Buffer:
    lead = const(copies, buffer.shape[0].dtype if buffer.shape else "int32")
    steps: Sequence[Expr] = buffer.strides
    strides = (steps[0] * buffer.shape[0], *steps) if steps else ()
    return buffer.with_(shape=(lead, *buffer.shape), strides=strides)


def _in_version(s: Stmt, wider: Mapping[Buffer, Buffer], iteration: Expr) -> Stmt:
    """Return ``s`` with its accesses in the version of each buffer that belongs to an iteration."""

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer in wider:
            new = wider[n.buffer]
            version = iteration % const(int(new.shape[0]), iteration.dtype)  # type: ignore[call-overload]
            dtype = n.indices[0].dtype.element if n.indices else version.dtype
            lead = version if dtype == version.dtype else version.astype(dtype)
            return n.with_(buffer=new, indices=(lead, *n.indices))
        return None

    return transform(s, post=post)


# copies that run beside the threads

ASYNC_SCOPE = "async_scope"
"""The attribute of a statement that only starts its copies."""
COMMIT_COPIES, WAIT_FOR_COPIES = "tir.ptx_commit_group", "tir.ptx_wait_group"
"""The calls that close a group of the copies that the thread has started, and that wait until at most so many groups are not
done."""


def started(s: Stmt, written: Set[Var]) -> Stmt:
    """Returns ``s``, whose copies are only started. ``written``: memory that the kernel writes.

    GpuError when ``s`` does anything else than copying elements of global memory, which no one writes, to shared memory. Padded copies
    are such, too: they hold a constant where a condition is false.
    """
    for access in loads_and_stores(s):
        if not isinstance(access, BufferStore):
            continue
        _, value, _ = padded_copy(access.value)
        if not copies(access.with_(value=value), written):
            raise GpuError(f"{access.buffer.name} cannot be filled by asynchronous copies, which move elements of global "
                           "memory to shared memory as they are")  # fmt: skip
    return AttrStmt(None, ASYNC_SCOPE, const(1, "int32"), s)


def padded_copy(value: Expr) -> tuple[list[Expr], Expr, list[Expr]]:
    """Returns the conditions of a padded copy, what it copies where they hold, and its constants elsewhere.

    Numbers of 16 bits may be widened in it and rounded afterwards, which leaves them as they are.
    """
    conditions: list[Expr] = []
    constants: list[Expr] = []
    given, rounded = value, isinstance(value, Cast) and value.dtype.is_float
    inner = value.value if isinstance(value, Cast) and rounded else value
    while isinstance(inner, Call) and inner.op == "tir.if_then_else":
        condition, inside, outside = inner.args
        lane = outside.value if isinstance(outside, Broadcast) else outside
        if not isinstance(lane, (IntImm, FloatImm)):
            break
        conditions.append(condition)
        constants.append(lane)
        inner = inside
    if rounded:
        if not (isinstance(inner, Cast) and inner.value.dtype == given.dtype and given.dtype.bits < inner.dtype.bits):
            return [], given, []
        inner = inner.value
    return conditions, inner, constants


def commit() -> Stmt:
    """Returns the statement that closes a group of copies."""
    return Evaluate(Call(COMMIT_COPIES, (), "int32"))


def wait(groups: int) -> Stmt:
    """Returns the statement that waits until at most so many groups are not done."""
    return Evaluate(Call(WAIT_FOR_COPIES, (const(groups, "int32"),), "int32"))


# Products of warp groups that go on beside the threads until the next step of a pipeline waits for them.

WAIT_FOR_PRODUCTS = "tir.wgmma_wait"


def has_products(s: Stmt) -> bool:
    """Returns whether a statement waits for products."""
    return any(_waits(n) for n in statements(s))


def _waits(s: IRNode) -> bool:
    return isinstance(s, BufferStore) and isinstance(s.value, Call) and s.value.op == WAIT_FOR_PRODUCTS


def in_flight(s: Stmt) -> Stmt:
    """Returns ``s``, whose waits leave the last group of products to the next one."""

    def post(n: IRNode) -> IRNode | None:
        if (
            not isinstance(n, Call)
            or n.op != WAIT_FOR_PRODUCTS
            or not (isinstance(n.args[1], IntImm) and n.args[1].value == 0)
        ):
            return None
        return Call(WAIT_FOR_PRODUCTS, (n.args[0], const(1, n.args[1].dtype)), n.dtype)

    return transform(s, post=post)


def last_waits(s: Stmt) -> Stmt:
    """Returns the waits of ``s`` alone, for all products.

    GpuError for other statements than products under loops and conditions.
    """
    if isinstance(s, SeqStmt):
        return seq(*[last_waits(child) for child in s.seq if has_products(child)])
    if isinstance(s, (For, AttrStmt)):
        return s.with_(body=last_waits(s.body))
    if isinstance(s, IfThenElse) and s.else_case is None:
        return s.with_(then_case=last_waits(s.then_case))
    if not _waits(s):
        raise GpuError(f"products in a {type(s).__name__} cannot go on during the next step of a pipeline")
    return s
