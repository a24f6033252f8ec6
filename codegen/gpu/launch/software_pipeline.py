"""Runs the statements of a loop at different iterations at a time. Copies for the next iteration then overlap with
computing.

The annotations are TVM's: ``software_pipeline_stage`` has for each statement of the loop's body by how many iterations it
lags behind, ``software_pipeline_order`` its place among the others. ``software_pipeline_async_stages`` lists the stages whose
copies from global to shared memory run beside the threads (:mod:`.asynchronous_copies`). A step then begins by waiting for the
copies that it uses, and by a barrier, as they were started by all threads of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....tir.expr import BufferLoad, Expr, IntImm, const
from ....tir.expr.base.node import Node
from ....tir.fresh_copy import fresh_copy
from ....tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, For, PrimFunc, Stmt, children_of, seq
from ....tir.walk import loads_and_stores, statements, transform, transform_statements
from .asynchronous_copies import commit, started, wait
from .barriers import barrier
from .thread_axes import GpuError, is_shared, tag_of

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
        if not (isinstance(loop.extent, IntImm) and isinstance(loop.min, IntImm) and loop.min.value == 0):
            self._refuse("its extent is no constant")
        self.count: int = loop.extent.value  # type: ignore[attr-defined]
        least = min(stages)
        self.asynchronous = {n - least for n in _numbers(loop, ASYNC, loop.annotations.get(ASYNC, []))}
        self.parts = [(stage - least, s) for _, stage, s in sorted(zip(order, stages, body, strict=True), key=_first)]
        self.last = max(stage for stage, _ in self.parts)
        self.wider = self._versions()
        self.lag = self._shortest_lag() if self.asynchronous else 0

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
                wanted[access.buffer] = max(wanted.get(access.buffer, 0), lag)
        return {b: _versioned(b, lag + 1) for b, lag in wanted.items() if lag > 0}

    def _shortest_lag(self) -> int:
        """Return how many iterations lie at least between the start of a copy and its use."""
        started = {
            access.buffer: stage
            for stage, s in self.parts
            for access in loads_and_stores(s)
            if stage in self.asynchronous and isinstance(access, BufferStore)
        }
        lags = [
            (stage - started[access.buffer], access.buffer.name)
            for stage, s in self.parts
            for access in loads_and_stores(s)
            if access.buffer in started and isinstance(access, BufferLoad)
        ]
        if self.asynchronous - {stage for stage, _ in self.parts}:
            self._refuse(f"{ASYNC} names a stage that no statement has")
        shortest, name = min(lags, default=(1, ""))
        if shortest < 1:
            self._refuse(f"{name}, which is copied asynchronously, is used in the stage that copies it")
        return shortest

    def applied(self, func: PrimFunc) -> PrimFunc:
        """Return ``func`` with the pipeline in place of the loop."""
        inside = {id(a) for a in loads_and_stores(self.loop)}
        for access in loads_and_stores(func.body):
            if access.buffer in self.wider and id(access) not in inside:
                self._refuse(f"{access.buffer.name} is used outside of it as well")
        if self.asynchronous:
            kernel = next(s for s in statements(func.body) if tag_of(s) and self.loop in statements(s))
            written = {a.buffer.data for a in loads_and_stores(kernel) if isinstance(a, BufferStore)}
            self.parts = [(n, started(s, written) if n in self.asynchronous else s) for n, s in self.parts]
        made = self.statement()

        def post(n: Node) -> Stmt | None:
            if n is self.loop:
                return made
            if isinstance(n, Allocate) and n.buffer in self.wider:
                return Allocate(self.wider[n.buffer], n.body, n.annotations)
            return None

        return transform_statements(func, post)

    def statement(self) -> Stmt:
        """Return the first steps, the loop over steps in which all stages run, and the last steps."""
        var, dtype = self.loop.loop_var, self.loop.loop_var.dtype
        full = max(0, self.count - self.last)
        head = [self._step(const(t - self.last, dtype), t - self.last) for t in range(min(self.last, self.count))]
        first = min(self.last, self.count)
        tail = [
            self._step(const(t - self.last, dtype), t - self.last) for t in range(first + full, self.count + self.last)
        ]
        notes = {k: v for k, v in self.loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)}
        loop = For(var, const(0, dtype), const(full, dtype), "serial", self._step(var, None), None, notes)
        return seq(*head, loop if full else None, *tail)

    def _step(self, at: Expr, known: int | None) -> Stmt:
        """Return what runs when the last stage is at iteration ``at``; ``known``: that number, which may be negative."""
        out: list[Stmt] = [] if self.lag == 0 else self._waiting(known)
        for stage, s in self.parts:
            ahead = self.last - stage
            if known is not None and not 0 <= known + ahead < self.count:
                continue
            iteration = at + ahead if known is None else const(known + ahead, at.dtype)
            copy = fresh_copy(_in_version(s, self.wider, self.loop.loop_var), {self.loop.loop_var: iteration})
            out.append(copy)
        if self.asynchronous and any(self._starts(stage, known) for stage in self.asynchronous):
            last = max(n for n, s in enumerate(out) if isinstance(s, AttrStmt))
            out.insert(last + 1, commit())
        return seq(*out)

    def _starts(self, stage: int, known: int | None) -> bool:
        """Return whether a stage runs in a step. All stages run, except in the first and the last steps."""
        return known is None or 0 <= known + self.last - stage < self.count

    def _waiting(self, known: int | None) -> list[Stmt]:
        """Return what waits for the copies that a step uses, where it uses any."""
        if not any(self._starts(stage, known) for stage, _ in self.parts if stage not in self.asynchronous):
            return []
        between = [None if known is None else known - n for n in range(1, self.lag)]
        later = sum(any(self._starts(stage, at) for stage in self.asynchronous) for at in between)
        return [wait(later), barrier()]


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

    def post(n: Node) -> Node | None:
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer in wider:
            new = wider[n.buffer]
            version = iteration % const(int(new.shape[0]), iteration.dtype)  # type: ignore[call-overload]
            dtype = n.indices[0].dtype.element if n.indices else version.dtype
            lead = version if dtype == version.dtype else version.astype(dtype)
            return n.with_(buffer=new, indices=(lead, *n.indices))
        return None

    return transform(s, post=post)
