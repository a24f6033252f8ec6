"""Builds the body of a kernel for GPUs: one block of threads runs one program.

A nest over a value's dimensions gives each thread its elements (:mod:`.thread_layout`). Values of several elements lie in shared
memory until :func:`.thread_layout.own_registers` finds those that each thread needs for itself; single ones are computed by every
thread. Barriers are not placed here: where threads use what others wrote is found when the kernel is lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..tir.analysis.simplify import simplify
from ..tir.expr import BufferLoad, Call, Expr, StringImm, Var, any_, const, transform
from ..tir.expr.dtype import DType
from ..tir.expr.intrinsics import operation_named
from ..tir.stmt import Buffer, BufferStore, Evaluate, For, IfThenElse, Stmt, loads_and_stores
from .block_values import BlockValue, PointerArgument, broadcast_make, broadcast_shape, converted, element
from .kernel_builder import KernelBuilder, Lanes, inner_type, reduction_of
from .staged_loops import STAGES, LoopStages
from .thread_layout import ThreadLayout, ThreadNest


def _count(shape: Sequence[int]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


class ThreadedBuilder(KernelBuilder):
    """Builds the body of one kernel for blocks of ``threads`` threads.

    ``written``: the arguments that the kernel may write; ``stages``: those of its loops, ``asked`` where a loop does not say.
    """

    def __init__(
        self, index: DType, faults: Buffer, known: set[Var], threads: int, written: frozenset[Buffer], stages: LoopStages,
        asked: int | None,
    ) -> None:  # fmt: skip
        super().__init__(index, faults, known, 1)
        self.stages, self.asked = stages, asked
        self.threads = threads
        self.written = written
        self.nests: dict[Var, ThreadNest] = {}
        self.stored: set[Buffer] = set()

    def allocated(self, shape: Sequence[int], dtype: DType, name: str) -> Buffer:
        """Return new memory of the current body: of a block's threads together, of each thread for a single value."""
        scope = "local" if _count(shape) == 1 else "shared"
        buffer = Buffer(name, tuple(map(self.number, shape or (1,))), dtype, scope)
        self.emit(buffer)
        return buffer

    # -- loop nests --------------------------------------------------------------------------------------------------

    def thread_nest(self, shape: Sequence[int], fast: int | None) -> ThreadNest:
        """Return the variables of a nest over a shape."""
        layout = ThreadLayout.of(tuple(shape), len(shape) - 1 if fast is None else fast, self.threads)
        made = layout.nest(self.index)
        self.nests[made.thread] = made
        return made

    def nest(self, shape: Sequence[int], body: Callable[[Lanes], Stmt], bits: int = 32) -> Stmt:
        """Return ``body`` for all elements of a shape, on threads. Neighbouring threads use neighbouring memory."""
        if _count(shape) == 1:
            return body(tuple([self.number(0)] * len(shape)))
        lanes = [Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)]
        made = self.thread_nest(shape, self.contiguous_axis(body(tuple(lanes)), lanes))
        return made.on_threads(made.around(body(made.lanes)))

    # -- memory ------------------------------------------------------------------------------------------------------

    def check(self, verb: str, pointer: BlockValue, mask: BlockValue | None) -> None:
        """Note the access of an element outside of its argument, where the mask holds."""
        argument = pointer.pointer
        assert argument is not None
        site = self.new_site(verb, argument.name)
        shape = pointer.shape if mask is None else broadcast_shape(pointer.shape, mask.shape)
        make = broadcast_make(pointer, shape)
        masked = None if mask is None else broadcast_make(mask, shape)
        extent = argument.buffer.shape[0]

        def note(lanes: Lanes) -> Stmt:
            wrong, noted = self.fault(make(lanes), extent, None if masked is None else masked(lanes))
            return IfThenElse(wrong, self.noted(site, noted))

        lanes = tuple([Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)])
        sizes = {v: n for v, n in zip(lanes, shape, strict=True) if isinstance(v, Var)}
        ends = self.ends(make(lanes), sizes)
        found = self.nest(shape, note)
        if not any(
            a.buffer.scope != "global" for a in loads_and_stores(found)
        ):  # no registers, which loops cannot index
            found = transform(found, post=_rolled)
        if ends is not None and sizes:
            low, high = simplify(ends[0]), simplify(ends[1])
            found = IfThenElse(any_(low < self.number(0), high >= extent), found)
        self.emit(found)

    def noted(self, site: int, number: Expr) -> Stmt:
        """Return the statement that notes a number for an access or an assertion, which any thread may do."""
        place = element(self.faults, (const(site, self.faults.shape[0].dtype),))
        return Evaluate(operation_named("atomic_exchange")(Call("tir.address_of", (place,), "handle"), number))

    def scalar_nest(self, shape: Sequence[int], body: Callable[[Lanes], Stmt]) -> Stmt:
        """Return ``body`` for all elements of a shape, on threads."""
        return self.nest(shape, body)

    def load(self, pointer: BlockValue, mask: Any, other: Any) -> BlockValue:
        """Return what pointers point to. One element of what the kernel writes is read by one thread, for all."""
        value = super().load(pointer, mask, other)
        assert pointer.pointer is not None
        if _count(value.shape) > 1 or pointer.pointer.buffer not in self.written:
            return value
        return self.for_all(value)

    def for_all(self, value: BlockValue) -> BlockValue:
        """Return a single value, computed by one thread."""
        cell = Buffer("one", (self.number(1),), value.dtype, "shared")
        self.emit(cell)
        lanes = tuple([self.number(0)] * len(value.shape))
        self.emit(BufferStore(cell, converted(value.make(lanes), value.dtype), (self.number(0),)))
        return BlockValue(value.shape, value.dtype, lambda _: element(cell, (self.number(0),)), buffer=cell)

    def spread(self, value: BlockValue, divided: bool = False) -> None:
        """Keep nothing: each thread computes its elements in registers, and memory of all would cost a barrier."""

    def is_whole(self, load: BufferLoad, sizes: dict[Var, int]) -> bool:
        """Return False: blocks lie in registers of several threads."""
        return False

    def wrote(self, argument: PointerArgument) -> None:
        """Note a store to an argument. What another statement or iteration stored there before is complete by then."""
        if argument.buffer in self.stored or self.in_loop():
            self.barrier()
        if not self.trial:
            self.stored.add(argument.buffer)

    def barrier(self) -> None:
        """Let the threads of the program wait for each other."""
        self.emit(Evaluate(Call("tir.tvm_storage_sync", (StringImm("shared"),), "int32")))

    def stage(self, loop: Var, stages: int | None) -> None:
        """Note the stages that a loop asks for, those of the launch where it does not say."""
        given = self.asked if stages is None else stages
        self.stages.wanted[loop] = STAGES if given is None else given
        if given is not None:
            self.stages.asked.add(loop)

    # -- reductions --------------------------------------------------------------------------------------------------

    def reduce(self, value: BlockValue, axis: int, op: str, keep_dims: bool = False) -> BlockValue:
        """Return the sum, product, maximum, minimum or exclusive or along one dimension. Sums of float16 are in float32.

        Each thread combines its elements; then half of the threads along the dimension take over those of the other half.
        """
        inner = inner_type(value.dtype)
        exact = self.cast_data(value, inner)
        kind, first, _ = reduction_of(op, inner)
        start = const(first, inner)
        kept_shape = tuple(n for d, n in enumerate(value.shape) if d != axis)
        if _count(value.shape) == 1:
            return self.reduced(value, exact, axis, inner, keep_dims)
        lanes = [Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(value.shape)]
        fast = self.contiguous_axis(Evaluate(exact.make(tuple(lanes))), lanes)
        nests = [self.thread_nest(value.shape, fast) for _ in range(3)]
        across, steps = nests[0].layout.along[axis], nests[0].layout.steps
        own = [n for d, n in enumerate(steps) if d != axis] or [1]
        held = Buffer("own", tuple(map(self.number, own)), inner, "local")
        parts = Buffer("parts", tuple(map(self.number, (*kept_shape, across))), inner, "shared")
        self.emit(held)
        self.emit(parts)
        places = [_dropped(nest.places, axis) or (self.number(0),) for nest in nests]
        clear, join, share = nests
        self.emit(clear.on_threads(clear.around(BufferStore(held, start, places[0]), (clear.places[axis],))))
        joined = kind(element(held, places[1]), exact.make(join.lanes))
        self.emit(join.on_threads(join.around(BufferStore(held, joined, places[1]))))
        lane = share.lanes[axis]
        mine = lane % self.number(across) if steps[axis] > 1 and across > 1 else lane if across > 1 else self.number(0)
        row = (*_dropped(share.lanes, axis), simplify(mine))
        shared = BufferStore(parts, element(held, places[2]), row)
        self.emit(share.on_threads(share.around(shared, (share.places[axis],))))
        half = across
        while half > 1:
            half //= 2
            far = self.number(half)

            def take_over(at: Lanes, far: Expr = far) -> Stmt:
                return BufferStore(parts, kind(element(parts, at), element(parts, (*at[:-1], at[-1] + far))), at)

            self.emit(self.nest((*kept_shape, half), take_over))
        zero = self.number(0)
        found = BlockValue(kept_shape, inner, lambda at: element(parts, (*at, zero)), buffer=None)
        return self.reduced(value, found, axis, inner, keep_dims, whole=False)

    def reduced(
        self, value: BlockValue, found: BlockValue, axis: int, inner: DType, keep_dims: bool, whole: bool = True
    ) -> BlockValue:
        """Return a result in the type and the shape that a reduction has. ``whole``: it still has the dimension."""
        found = found if inner == value.dtype else self.data(found, value.dtype)
        kept = tuple(n for d, n in enumerate(value.shape) if d != axis)
        if whole and not keep_dims:
            zero = self.number(0)
            return found.derived(kept, lambda at: found.make((*at[:axis], zero, *at[axis:])))
        if not whole and keep_dims:
            shape = tuple(1 if d == axis else n for d, n in enumerate(value.shape))
            return found.derived(shape, lambda at: found.make((*at[:axis], *at[axis + 1 :])))
        return found

    # -- products ----------------------------------------------------------------------------------------------------

    def multiply(self, out: Buffer, a: Buffer, b: Buffer) -> None:
        """Add the product of two blocks in memory to a third: each thread sums its elements of the result."""
        self.stages.operands |= {a, b}
        shape = tuple([int(n) for n in out.shape])  # type: ignore[call-overload]
        inner = int(a.shape[-1])  # type: ignore[call-overload]
        k = Var("k", self.index)
        if _count(shape) == 1:
            at: Lanes = tuple([self.number(0)] * len(shape))
            left, right = (*at[:-1], k), (*at[:-2], k, at[-1])
            added = BufferStore(out, element(out, at) + element(a, left) * element(b, right), at)
            self.emit(For(k, self.number(0), self.number(inner), "serial", added))
            return
        nest = self.thread_nest(shape, None)
        *lead, i, j = nest.lanes
        product = element(a, (*lead, i, k)) * element(b, (*lead, k, j))
        body = BufferStore(out, element(out, (*lead, i, j)) + product, (*lead, i, j))
        self.emit(nest.on_threads(For(k, self.number(0), self.number(inner), "serial", nest.around(body))))

    # -- changes of single elements ----------------------------------------------------------------------------------

    def change(
        self, pointer: BlockValue, given: Sequence[BlockValue], allowed: BlockValue | None, new: Callable[..., Expr],
        operation: str,
    ) -> BlockValue:  # fmt: skip
        """Return what pointers point to, after changing it at once where the mask holds; zero elsewhere."""
        argument = pointer.pointer
        assert argument is not None
        dtype = argument.element
        if dtype.bits < 32:
            raise TypeError(
                f"on GPUs atomic operations change integers and floats of 32 and 64 bits, and {argument.name} holds {dtype}; "
                "collect in an array of float32 or int32"
            )
        single = _count(pointer.shape) == 1
        old = Buffer("old", tuple(map(self.number, pointer.shape or (1,))), dtype, "shared")
        self.emit(old)
        zero = const(0, dtype)

        def body(lanes: Lanes) -> Stmt:
            offset = pointer.make(lanes)
            makes = [broadcast_make(v, pointer.shape)(lanes) for v in given]
            inside = self.inside(
                offset, argument, None if allowed is None else broadcast_make(allowed, pointer.shape)(lanes)
            )
            address = Call("tir.address_of", (element(argument.buffer, (offset,)),), "handle")
            changed = operation_named(operation)(address, *makes)
            place = self.place_of(lanes)
            return IfThenElse(inside, BufferStore(old, changed, place), BufferStore(old, zero, place))

        self.barrier()  # what was read and written before is complete
        self.emit(
            body(tuple([self.number(0)] * len(pointer.shape))) if single else self.nest(pointer.shape, body, dtype.bits)
        )
        self.barrier()
        return self.read_of(old, BlockValue(pointer.shape, dtype, pointer.make))


def _dropped(items: Sequence[Expr], axis: int) -> tuple[Expr, ...]:
    return tuple([e for d, e in enumerate(items) if d != axis])


def _rolled(n: Any) -> Any:
    """Returns a loop that was to be written out as one that is not."""
    return n.with_(kind="serial") if isinstance(n, For) and n.kind == "unrolled" else None
