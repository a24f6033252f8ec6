"""Builds the body of a kernel for GPUs: one block of threads runs one program.

A nest over a value's dimensions gives each thread its elements (:mod:`.thread_layout`). Values of several elements lie in shared
memory until :func:`.thread_layout.own_registers` finds those that each thread needs for itself; single ones are computed by every
thread. Barriers are not placed here: where threads use what others wrote is found when the kernel is lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..codegen.machine.target import WARP
from ..tir.analysis.simplify import simplify
from ..tir.annotations import ALIGN
from ..tir.expr import BufferLoad, Call, Expr, Ramp, StringImm, Var, any_, const, same, transform
from ..tir.expr.dtype import DType
from ..tir.expr.intrinsics import operation_named
from ..tir.expr.intrinsics.warp_fragments import FRAGMENT_SUMS, fragment_lanes, ldmatrix, ldmatrix_t, mma
from ..tir.stmt import Buffer, BufferStore, Evaluate, For, IfThenElse, Stmt, loads_and_stores, seq
from ..tir.walk import substitute
from .block_values import BlockValue, PointerArgument, broadcast_make, broadcast_shape, converted, element
from .kernel_builder import KernelBuilder, Lanes, inner_type, reduction_of
from .staged_loops import STAGES, LoopStages
from .thread_layout import FRAGMENT_TILE, THREAD_AXIS, FragmentLayout, ThreadLayout, ThreadNest
from .vector_copies import PIECE, in_vectors

MOST_PRODUCTS = 256
"""The most products of fragments of a thread that are written out; of more, the loop over steps is left."""


def _count(shape: Sequence[int]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


class ThreadedBuilder(KernelBuilder):
    """Builds the body of one kernel for blocks of ``threads`` threads.

    ``fragments``: how matrix units hold the sums of products, by their shapes, as :meth:`wanted_fragments` of an earlier building says;
    None where there are no matrix units, which ``aligned`` arrays alone take.
    ``written``: the arguments that the kernel may write; ``stages``: those of its loops, ``asked`` where a loop does not say.
    """

    def __init__(
        self, index: DType, faults: Buffer, known: set[Var], threads: int, written: frozenset[Buffer], stages: LoopStages,
        asked: int | None, fragments: Mapping[tuple[int, ...], FragmentLayout] | None, aligned: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(index, faults, known, 1)
        self.fragments = fragments
        self.aligned, self.left_out = aligned, False
        """Whether all arrays begin at a multiple of 16 bytes, and whether a product does without matrix units as they don't."""
        self.products: set[tuple[int, ...]] = set()
        self.row_reductions: set[tuple[int, ...]] = set()
        self.turned: dict[Buffer, bool] = {}
        """Of operands of matrix units, whether memory holds them transposed."""
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

    def thread_nest(
        self, shape: Sequence[int], fast: int | None, fragments: FragmentLayout | None = None
    ) -> ThreadNest:
        """Return the variables of a nest over a shape, as the fragments of products lie where these are given."""
        layout = fragments or ThreadLayout.of(tuple(shape), len(shape) - 1 if fast is None else fast, self.threads)
        made = layout.nest(self.index)
        self.nests[made.thread] = made
        return made

    def nest(self, shape: Sequence[int], body: Callable[[Lanes], Stmt], bits: int = 32) -> Stmt:
        """Return ``body`` for all elements of a shape, on threads. Neighbouring threads use neighbouring memory."""
        if _count(shape) == 1:
            return body(tuple([self.number(0)] * len(shape)))
        lanes = [Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)]
        found = body(tuple(lanes))
        made = self.thread_nest(shape, self.contiguous_axis(found, lanes), self.fragments_for(shape, found))
        return made.on_threads(made.around(body(made.lanes)))

    def fragments_for(self, shape: Sequence[int], found: Stmt) -> FragmentLayout | None:
        """Return the fragments for a nest over their shape; None for one that only moves global memory."""
        layout = (self.fragments or {}).get(tuple(shape))
        if layout is None:
            return None
        accesses = list(loads_and_stores(found))
        moves = any(a.buffer.scope == "global" for a in accesses)
        whole = tuple(map(self.number, shape))
        blocks = any(
            isinstance(a, BufferLoad) and a.buffer.scope == "shared" and all(map(same, a.buffer.shape, whole))
            for a in accesses
            if a.buffer.ndim == len(shape)
        )
        return layout if blocks or not moves else None

    def wanted_fragments(self) -> dict[tuple[int, ...], FragmentLayout]:
        """Return how matrix units hold the sums of the products that they can compute, by their shapes."""
        warps = self.threads // WARP
        return {
            (m, n): FragmentLayout.of_product((m, n), warps, (m, n) in self.row_reductions)
            for m, n in sorted(self.products)
        }

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
        read = Evaluate(exact.make(tuple(lanes)))
        fast, fragments = self.contiguous_axis(read, lanes), self.fragments_for(value.shape, read)
        if axis == 1:
            self.row_reductions.add(value.shape)
        nests = [self.thread_nest(value.shape, fast, fragments) for _ in range(3)]
        across, steps = nests[0].layout.along[axis], nests[0].layout.steps
        own = [n for d, n in enumerate(steps) if d != axis] or [1]
        held = Buffer("own", tuple(map(self.number, own)), inner, "local")
        parts = Buffer("parts", tuple(map(self.number, (*kept_shape, across))), inner, "shared")
        self.emit(held)
        self.emit(parts)
        places = [_dropped(nest.places, axis) or (self.number(0),) for nest in nests]
        clear, join, share = nests
        self.emit(clear.on_threads(clear.around(BufferStore(held, start, places[0]), axis)))
        joined = kind(element(held, places[1]), exact.make(join.lanes))
        self.emit(join.on_threads(join.around(BufferStore(held, joined, places[1]))))
        row = (*_dropped(share.lanes, axis), share.ranks[axis])
        shared = BufferStore(parts, element(held, places[2]), row)
        self.emit(share.on_threads(share.around(shared, axis)))
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
        if a in self.turned:
            self.multiply_on_units(out, a, b)
            return
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

    def operands_of_units(self, a: BlockValue, b: BlockValue) -> tuple[Buffer, Buffer] | None:
        """Return the factors of a product in shared memory; None where there is no unit for it."""
        dtype = a.dtype
        if self.fragments is None or len(a.shape) != 2 or dtype != b.dtype or dtype not in FRAGMENT_SUMS:
            return None
        (rows, steps), columns = a.shape, b.shape[1]
        if rows % FRAGMENT_TILE or columns % FRAGMENT_TILE or steps % (8 * fragment_lanes(dtype)):
            return None
        if not self.aligned:
            self.left_out = True
            return None
        self.products.add((rows, columns))
        if (rows, columns) not in self.fragments:
            return None
        return self.placed_operand(a, "left"), self.placed_operand(b, "right")

    def placed_operand(self, value: BlockValue, name: str) -> Buffer:
        """Return a factor in shared memory, transposed where its elements are read so.

        Rows are an odd number of 16 bytes apart, so that eight of them lie in different banks.
        """
        lanes = tuple([Var(f"i{n}", self.index) for n in range(2)])
        exact = self.data(value, value.dtype)
        turned = self.contiguous_axis(Evaluate(exact.make(lanes)), lanes) == 0
        if value.dtype.bytes < 2:  # the units read the steps of both factors side by side, and exchange none
            turned = name == "right"
        shape = value.shape[::-1] if turned else value.shape
        buffer, piece = self.allocated(shape, value.dtype, name), 16 // value.dtype.bytes
        self.scopes[-1].wishes[buffer] = {ALIGN: [(0, 2 * piece, piece)]}
        make = (lambda at: exact.make(at[::-1])) if turned else exact.make
        if not self.copied_in_vectors(buffer, make):
            self.fill(buffer, BlockValue(shape, value.dtype, make, value.cost, value.reads))
        self.turned[buffer] = turned
        return buffer

    def copied_in_vectors(self, buffer: Buffer, make: Callable[[Lanes], Expr]) -> bool:
        """Copy a block of global memory, several elements at once; return whether that is possible."""
        shape, wide = tuple([int(n) for n in buffer.shape]), PIECE // buffer.dtype.bytes  # type: ignore[call-overload]
        if shape[-1] % wide or not self.aligned:
            return False
        nest = ThreadLayout.of(shape, len(shape) - 1, self.threads, wide).nest(self.index)
        found = in_vectors(make(nest.lanes), nest.loops[-1][0], wide, {*self.not_negative, *nest.variables})
        if found is None:
            return False
        value, dividends = found
        sizes = {nest.thread: nest.layout.threads, **{var: n for var, n, _ in nest.loops}}
        ends = [self.ends(e, sizes) for e in dividends]
        if any(e is None for e in ends):
            return False
        self.nests[nest.thread] = nest
        copy = nest.on_threads(nest.around(BufferStore(buffer, value, nest.lanes)))
        negative = [simplify(e[0]) < self.number(0) for e in ends if e is not None]
        if negative:
            single = self.nest(shape, lambda lanes: BufferStore(buffer, make(lanes), lanes))
            copy = IfThenElse(any_(*negative), transform(single, post=_rolled), copy)
        self.emit(copy)
        return True

    def multiply_on_units(self, out: Buffer, a: Buffer, b: Buffer) -> None:
        """Add the product of two blocks in shared memory to a third. The sums are fragments of each warp meanwhile."""
        shape = tuple([int(n) for n in out.shape])  # type: ignore[call-overload]
        assert self.fragments is not None
        layout = self.fragments[shape]
        (rows, columns), u, number = layout.tiles, fragment_lanes(a.dtype), self.number
        sums = Buffer("sums", tuple(map(number, (rows, 2 * columns, 4))), out.dtype, "local")
        left = Buffer("a", (number(rows), number(4 * u)), a.dtype, "local")
        right = Buffer("b", (number(columns), number(4 * u)), b.dtype, "local")
        for buffer in (sums, left, right):
            self.emit(buffer)
        before, after = [self.thread_nest(shape, None, layout) for _ in range(2)]
        taken = BufferStore(sums, element(out, before.lanes), _in_fragment(before.places))
        self.emit(before.on_threads(before.around(taken)))
        thread, k, i, j = [Var(name, self.index) for name in ("thread", "k", "i", "j")]
        lane = thread % number(WARP)
        low, high, middle = lane % number(8), lane // number(16), lane // number(8) % number(2)
        first, second = layout.warp(thread)
        row = (i * number(layout.warps[0]) + first) * number(FRAGMENT_TILE)
        column = (j * number(layout.warps[1]) + second) * number(FRAGMENT_TILE)
        step, piece = k * number(8 * u), number(4 * u)
        if self.turned[a]:
            place = (step + high * piece + low, row + middle * number(8))
        else:
            place = (row + lane % number(16), step + high * piece)
        read = _read_rows(a, place, self.turned[a])
        loads: list[Stmt] = [_repeated(i, rows, BufferStore(left, read, (i, _lanes_from(number(0), 4 * u))))]
        if self.turned[b]:
            place = (column + high * number(8) + low, step + middle * piece)
        else:
            place = (step + lane % number(16), column + high * number(8))
        read = _read_rows(b, place, not self.turned[b])
        loads.append(_repeated(j, columns, BufferStore(right, read, (j, _lanes_from(number(0), 4 * u)))))
        half = Var("half", self.index)
        at = (i, j * number(2) + half, _lanes_from(number(0), 4))
        factors = [
            BufferLoad(left, (i, _lanes_from(number(0), 4 * u))),
            BufferLoad(right, (j, _lanes_from(half * number(2 * u), 2 * u))),
        ]
        added: Stmt = BufferStore(sums, mma(BufferLoad(sums, at), *factors), at)
        for var, count in ((half, 2), (j, columns), (i, rows)):
            added = _repeated(var, count, added)
        steps = int(a.shape[0 if self.turned[a] else 1]) // (8 * u)  # type: ignore[call-overload]
        kind = "unrolled" if 2 * rows * columns * steps <= MOST_PRODUCTS else "serial"
        body: Stmt = For(k, number(0), number(steps), kind, seq(*loads, added))
        self.emit(For(thread, number(0), number(layout.threads), "thread_binding", body, THREAD_AXIS))
        given = BufferStore(out, element(sums, _in_fragment(after.places)), after.lanes)
        self.emit(after.on_threads(after.around(given)))

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


def _repeated(var: Var, count: int, body: Stmt) -> Stmt:
    """Returns a loop of a thread that is written out."""
    own = Var(var.name, var.dtype)
    return For(own, const(0, own.dtype), const(count, own.dtype), "unrolled", substitute(body, {var: own}))


def _lanes_from(first: Expr, count: int) -> Expr:
    return Ramp(first, const(1, first.dtype), count)


def _read_rows(buffer: Buffer, place: Sequence[Expr], transposed: bool) -> Expr:
    """Returns what ``ldmatrix`` gives a thread that names the row which begins at a place."""
    row = BufferLoad(buffer, (place[0], _lanes_from(place[1], 16 // buffer.dtype.bytes)))
    return ldmatrix_t(row) if transposed else ldmatrix(row)


def _in_fragment(places: Sequence[Expr]) -> tuple[Expr, ...]:
    """Returns where a thread's number of a product lies in its fragments."""
    (row, column), two = places, const(2, places[0].dtype)
    return (row // two, column // two, row % two * two + column % two)


def _dropped(items: Sequence[Expr], axis: int) -> tuple[Expr, ...]:
    return tuple([e for d, e in enumerate(items) if d != axis])


def _rolled(n: Any) -> Any:
    """Returns a loop that was to be written out as one that is not."""
    return n.with_(kind="serial") if isinstance(n, For) and n.kind == "unrolled" else None
