"""The walker: what a block costs in the loops that a candidate makes of it, for all candidates at once.

A rule describes the loops of a block from the innermost one outwards (:class:`WalkedLoop`); each has a number of trips per
candidate. The written-out loops inside the first serial one are the body: the instructions of one step. :class:`Walk` derives
the rest from the accesses, the same way for every rule:

- ``loads``, ``sums``, ``registers``: what the body loads, which sums stay in registers, and how many registers that takes;
- ``latency``: by what factor sums in hand take longer than the pipes need, because they wait for each other;
- ``counts``: cycles of arithmetic, loads, stores, loops and spills over all steps;
- ``traffic``: bytes that move between caches, lines that are evicted because they share sets, and jumps that prefetchers miss;
- ``properties``: what the learned model is told besides.

All figures are those of one core for one run of the whole block: cycles, bytes and vectors, an array over the candidates.
``l2_bytes`` come from the second-level cache, ``l3_bytes`` from the third and so on; the sizes of caches are the machine's
(``machine.l2_bytes``). ``machine_model.seconds`` makes seconds of it. A rule adds what the loops do not say: packing, fetching ahead,
tiles that are transposed in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...tir.expr import Add, Mul, Var, reads_memory
from ...tir.expr.dtype import bytes_each
from ...tir.stmt import BufferStore
from ...tir.walk import pre_order
from ..program import BlockInfo, Use
from .axis_roles import lane_loads
from .loop_nest import Nest, NestAccess, NestLoop, read_anywhere, shape_of, steps_through
from .machine_model import EVICTED, MachineModel, crowding

_UNEVEN = 0.08
"""The time that pipes are idle where as many sums are in hand as they need, or fewer, as a share. Operations do not begin in
the order of their chains, and more sums make up for it."""

_HELD = 0.6
"""The share of the second-level cache in which a panel stays. Its pages lie there by chance, and more of them than others
share sets."""

_AHEAD = 224.0
"""The instructions that a processor begins ahead of one that waits: about half of what reorder buffers of 2022 hold (320 to
512)."""

_SCALARS = 10.0
"""The registers in which scalars wait to be broadcast, where a body's loads run before its arithmetic (WebAssembly)."""

_FAR = 1024
"""The stride in bytes from which on prefetchers of the first-level cache lose the next line."""

_FROM_MEMORY = 7.0
"""What a jump to memory waits in addition, in times of one to the third-level cache; its page is often not known either."""

_FROM_SECOND = 0.2
"""The share of that time that a jump waits for the second-level cache, and for its page."""

_BEGINS = 20.0
"""The cycles in which the sums of a tile begin and end: a branch that is predicted wrongly, as at the end of a row, and until
the first sums of the next tile are there."""

_LONG = 16
"""More operations of an element than these are functions, such as exp, which have values of their own in registers."""

_OPERATIONS_OF_A_VALUE, _TOLERATED = 12.0, 2.0
"""After how many operations of a function one more value of a vector is in hand, and how many values more than registers do
no harm, because the compiler puts operations in another order."""

_IN_A_ROW = 0.7
"""The share of the operations of a function such as exp that follow one another. The steps of its polynomials do; constants,
signs and the cases at its ends do not."""

_FILLING = 4.0
"""The rows whose sums fill the waiting of one that is added up; more are too many for what a processor begins ahead."""

_STORED = 0.5
"""The share of the kept vectors without a register that is stored at most: the compiler uses the others up before more are
loaded (13 of 75, 15 of 117, 135 of 361 are stored)."""

_STEP = 0.5
"""The cycles of a step of a loop over elements beside its instructions: not all of them overlap with the next step's."""

_PREDICTED = 4
"""The iterations of a loop up to which its end is predicted."""

_TURNS = 12.0
"""The cycles at the end of a row of several steps: a branch that is predicted wrongly."""


_AT_ONCE = 8.0
"""The lines for which lanes at places that are read from memory wait together."""


WINDOW, WRITTEN = 49, 700
"""The most steps of a reduction over a window that are all written out, 7 x 7, and the instructions that they may be together
for a tile. Rows that slide over what they read load it once."""


@dataclass(frozen=True)
class WalkedLoop:
    """A loop over ``axis`` with ``trips`` iterations, one number per candidate.

    ``written_out``: all iterations stand in the code, as vectors or one after the other.
    """

    axis: Var
    trips: np.ndarray
    written_out: bool = False


class Walk:
    """A block in the loops of ``rows`` candidates, innermost loop first.

    ``vector``: the axis whose neighbours make vectors of ``lanes`` elements; None for scalar code. ``packed``: the operand
    that is contiguous in the order of the loops. ``unroll``: by how much the innermost serial loop is unrolled.
    ``masked``: whether elements are read under a condition, so that loads take a mask. ``periodic``: whether lanes at
    indices that are not affine, such as ``i % 3``, are at known places, so that whole vectors are permuted.
    ``elsewhere``: operands whose loads the rule counts itself. ``stores``: whether results go to memory.
    """

    def __init__(
        self, block: BlockInfo, machine: MachineModel, loops: Sequence[WalkedLoop], rows: int, *, vector: Var | None,
        lanes: int, packed: Use | None = None, unroll: np.ndarray | float = 1.0, masked: bool = False,
        periodic: bool = False, elsewhere: Sequence[Use] = (), stores: bool = True,
    ) -> None:  # fmt: skip
        self.block, self.machine, self.rows = block, machine, rows
        self.loops, self.packed, self.masked, self.periodic = tuple(loops), packed, masked, periodic
        self.elsewhere, self.stores = tuple(elsewhere), stores
        self.vector, self.lanes = vector, lanes if vector is not None else 1
        self.unroll = np.ones(rows) * unroll
        first = next((n for n, loop in enumerate(self.loops) if not loop.written_out), len(self.loops))
        ones = np.ones(rows)
        self.body: dict[Var, np.ndarray] = dict.fromkeys(block.axes, ones)
        """How many values of each axis one step takes."""
        for loop in self.loops[:first]:
            self.body[loop.axis] = self.body[loop.axis] * loop.trips
        self._reduced = frozenset(block.reduce)
        self._side_by_side = frozenset([v for v in block.spatial if v is not vector and np.any(self.body[v] > 1)])
        """The axes, besides that of the vectors, of which a step of some candidate takes several values."""
        self._slid: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.serial = self.loops[first:]
        spatial = next((n for n, loop in enumerate(self.serial) if loop.axis not in self._reduced), len(self.serial))
        inside = self.serial[:spatial] if block.is_reduction else ()
        self.within = _product(rows, [loop.trips for loop in inside])
        """The steps between the beginning and the end of a tile of sums: those of the reduction."""
        self.steps = _product(rows, [loop.trips for loop in self.serial])
        self.tiles = self.steps / self.within
        """How often a tile of sums is begun; one that is taken up again counts each time."""
        self.revisited = _product(rows, [loop.trips for loop in self.serial[spatial:] if loop.axis in self._reduced])
        """How often a tile of sums is taken up again: loops of the reduction around loops over results."""

    # -- the body ------------------------------------------------------------------------------------------------

    @cached_property
    def sums(self) -> np.ndarray:
        """The vectors of results that a step computes; of a reduction, the registers that hold them."""
        axes = [v for v in self.block.spatial if v is not self.vector]
        return _product(self.rows, [self.body[v] for v in axes]) * self.vectors

    @cached_property
    def vectors(self) -> np.ndarray:
        """The vectors side by side along the vector axis."""
        return np.ones(self.rows) if self.vector is None else np.ceil(self.body[self.vector] / self.lanes)

    @cached_property
    def instances(self) -> np.ndarray:
        """The vectors of instances of the block in a step."""
        axes = [v for v in self.block.axes if v is not self.vector]
        return _product(self.rows, [self.body[v] for v in axes]) * self.vectors

    @property
    def arithmetic(self) -> float:
        """Returns the instructions of an instance. In a short sum of products half of the operations are part of another
        one; in a long one those of one product and one choice. Extremes have no such, and products of integers take two."""
        operations, body = float(self.block.operations), self.block.block.body
        if not self.block.is_reduction:
            return operations
        products = [n for n in pre_order(body) if isinstance(n, Mul) and reads_memory(n)]
        if isinstance(body, BufferStore) and isinstance(body.value, Add) and any(n.dtype.is_float for n in products):
            return max(1.0, operations / 2, operations - 2.0)
        return max(1.0, operations + sum([not n.dtype.is_float and n.dtype.bits >= 32 for n in products]))

    def kept(self, use: Use) -> bool:
        """Returns whether what is loaded stays the same in the loops at hand.

        They are those of the reduction; without one, or where tiles are taken up again, the innermost serial loop of several
        iterations as well. It is decided once for all candidates.
        """
        return use.affine and use.axes().isdisjoint(self._moving)

    @cached_property
    def _moving(self) -> set[Var]:
        if self.block.is_reduction and np.all(self.revisited == 1):
            return set(self.block.reduce)
        inner = [loop.axis for loop in self.serial if np.any(loop.trips > 1)]
        return set(inner[:1]) | set(self.block.reduce)

    def each(self, use: Use) -> np.ndarray | float:
        """Returns how many instructions load one vector of ``use``."""
        if self.vector is None or use is self.packed or (self.periodic and not use.affine and self._in_line(use)):
            return 1.0
        each = lane_loads(use, self.vector, self.lanes)
        if self.masked:  # a mask for each load; in a window that is written out, many are known
            whole = self.unroll >= self.block.reduce_size
            return each * np.where(whole, 2.0, 3.0)
        return each

    def _in_line(self, use: Use) -> bool:
        """Returns whether the vector axis moves along the last dimension alone, as far as that is known."""
        return all(dim is not None and not dim.get(self.vector) for dim in use.dims[:-1])  # type: ignore[arg-type]

    @cached_property
    def loads(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vector loads and the broadcasts of a step.

        Loads of scalar code count as broadcasts. What is kept, and what the rule counts itself, is in neither.
        """
        vectors, broadcasts = np.zeros(self.rows), np.zeros(self.rows)
        for use in self.block.loads:
            copies = _product(self.rows, [self.body.get(v, 1.0) for v in use.axes() if v is not self.vector])
            if self.kept(use) or any(use is other for other in self.elsewhere):
                continue
            if use.affine and self.vector not in use.axes():
                broadcasts = broadcasts + copies
            else:
                vectors = vectors + copies * self.vectors * self.each(use) * self._slides(use)[0]
        return vectors, broadcasts

    @cached_property
    def _crossing(self) -> np.ndarray:
        """Returns how many lines of memory the loads of a step cross. Those of a window along the vector axis begin at any
        element."""
        found, share = np.zeros(self.rows), min(1.0, self.machine.vector_bytes / self.machine.line_bytes)
        for use in self.block.loads:
            last = (use.dims[-1] if use.dims else None) or {}
            window = any(v in last and self.block.extents[v] > 1 for v in self.block.reduce)
            if self.vector is None or self.vector in self.block.reduce:
                continue
            if window and last.get(self.vector) == 1:
                copies = _product(self.rows, [self.body.get(v, 1.0) for v in use.axes() if v is not self.vector])
                found = found + share * copies * self.vectors * self._slides(use)[0]
        return found

    def _slides(self, use: Use) -> tuple[np.ndarray, np.ndarray]:
        """Returns :meth:`_sliding`, computed once for each use."""
        if id(use) not in self._slid:
            self._slid[id(use)] = self._sliding(use)
        return self._slid[id(use)]

    def _sliding(self, use: Use) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share of a window's loads that remain, and the vectors that are kept. All steps of the window are
        written out and the tile's rows slide over what they read: what one step loads, the next step has."""
        share, kept = np.ones(self.rows), self.vectors * np.ones(self.rows)
        sliding = False
        for dim in use.dims:
            steps = {v: c for v, c in (dim or {}).items() if v in self._reduced and c}
            rows = {v: c for v, c in (dim or {}).items() if v in self._side_by_side and c}
            reads = math.prod(self.block.extents[v] for v in steps) * _product(self.rows, [self.body[v] for v in rows])
            if steps and rows:
                sliding = True
                span = 1.0 + sum(abs(c) * (self.block.extents[v] - 1) for v, c in steps.items())
                span = np.minimum(reads, span + sum(abs(c) * (self.body[v] - 1) for v, c in rows.items()))
                share, reads = share * span / reads, span
            kept = kept * reads
        whole = (self.unroll >= self.block.reduce_size) & sliding
        return np.where(whole, share, 1.0), np.where(whole, kept, 0.0)

    @cached_property
    def registers(self) -> np.ndarray:
        """Returns the vector registers in use: sums, one row of vectors, a broadcast, and what is kept."""
        vectors, broadcasts = self.loads
        kept = sum([self.vectors if self.vector in use.axes() else 1.0 for use in self.block.loads if self.kept(use)])
        return np.asarray(self.sums + kept + np.minimum(vectors, self.vectors) + np.minimum(broadcasts, 1))

    @cached_property
    def live(self) -> np.ndarray:
        """Registers in use in an unrolled body. Where the tile's rows slide over what the reduction reads (a window), a
        value broadcast in one step is one of the next step's, and the compiler keeps it: as many more as there are rows.
        Where each broadcast is of one use and takes a register, those of the next rows and steps are made ahead. A function such as exp has
        constants, and several values of each vector in hand."""
        kept = np.zeros(self.rows)
        reduced = [loop.axis for loop in self.serial if loop.axis in self._reduced]
        for use in self.block.loads:
            if self.vector in use.axes() or not reduced:
                continue
            sliding = [
                v for dim in use.dims if dim and dim.get(reduced[0])
                for v in self.block.spatial if v in self._side_by_side and dim.get(v)
            ]  # fmt: skip
            if sliding:
                kept = kept + _product(self.rows, [self.body[v] for v in sliding])
        waiting = np.where(self.unroll > 1, 2.0, 1.0) * (self.vectors == 1) * (self.loads[1] > 1)
        waiting = waiting * (not self.machine.broadcasts_operands)
        if self._is_long:  # what is loaded is used up at once
            return np.asarray(self.sums * (1.0 + self.block.operations / _OPERATIONS_OF_A_VALUE) - _TOLERATED)
        return np.asarray(self.registers + np.maximum(np.where(self.unroll > 1, kept, 0.0), waiting))

    @property
    def _is_long(self) -> bool:
        """Returns whether elements are made by functions such as exp."""
        return not self.block.is_reduction and self.block.operations > _LONG

    # -- cycles --------------------------------------------------------------------------------------------------

    @cached_property
    def latency(self) -> np.ndarray:
        """Returns by what factor the sums of the body take longer than the pipes need.

        The operations of a long element, such as exp, wait for each other as well: those of its polynomials, of which
        ``_IN_A_ROW`` follow one another.
        """
        vectors, broadcasts = self.loads
        if not self.block.is_reduction:
            if not self._is_long:
                return np.ones(self.rows)
            chains = self.instances * self.block.operations / (_IN_A_ROW * self.block.chain)
            instructions = self.instances * self.block.operations + vectors + broadcasts
            return np.maximum(1.0, chain_factor(chains, instructions, self.machine) - _UNEVEN)
        return chain_factor(self.sums, self.within * (self.instances + vectors + broadcasts), self.machine)

    @cached_property
    def _stored_again(self) -> np.ndarray:
        """Returns the vectors of a window that are kept for later steps and for which there are no registers."""
        kept = sum([self._slides(use)[1] for use in self.block.loads if self.vector in use.axes()])
        return np.where(kept > 0, np.maximum(0.0, kept + self.sums + 1 - self.machine.registers), 0.0)

    @cached_property
    def _waiting(self) -> np.ndarray:
        """Returns the values of a step that are loaded before registers are free for them. That happens on machines
        whose code runs the loads of a body first. Scalars that are broadcast wait in registers of their own."""
        if not self.machine.loads_first:
            return np.zeros(self.rows)
        vectors, broadcasts = self.loads
        sums = np.where(self.unroll >= self.block.reduce_size, 0.0, self.sums)
        crowded = np.maximum(self.unroll * vectors + sums + 1 - self.machine.registers, 0.0)
        return np.asarray((crowded + np.maximum(self.unroll * broadcasts - _SCALARS, 0.0)) / self.unroll)

    def counts(self) -> dict[str, np.ndarray]:
        """Returns the cycles of arithmetic, loads, stores, loops and spills over all steps, by the names of costs.

        Loads take as long as the issue of all instructions at least. Each iteration of the innermost loop issues 3 of its own,
        which its ``unroll`` steps share. A tile of sums that is taken up again is loaded and stored once each time. The lanes of
        sums along the vector axis are added up at the end of their reduction; half of that is waiting, which the sums of other
        rows fill, and a body of many sums takes a while to begin. A value without a register costs a store and a load in each
        step; vectors of a window that are kept, once in each tile.
        """
        machine, reduction = self.machine, self.block.is_reduction
        vectors, broadcasts = self.loads
        again = self.sums * (self.revisited > 1) / self.within
        arithmetic = self.instances * self.arithmetic
        stores = again if reduction else self.sums * self.stores
        loads = vectors + broadcasts + again
        issue = (arithmetic + loads + stores + 3.0 / self.unroll) / machine.issue_width
        counts = {
            "core_cycles": self.steps * arithmetic / machine.fma_pipes * self.latency,
            "load_cycles": self.steps * np.maximum((loads + self._crossing) / machine.loads_per_cycle, issue),
            "store_cycles": self.steps * stores / machine.stores_per_cycle,
            "loop_cycles": self.steps * (0.3 / self.unroll if reduction else _STEP),
            "spill_cycles": self.steps * 2.0 * (np.maximum(self.live - machine.registers, 0) + self._waiting),
        }
        if reduction:
            ends = self.tiles / self.revisited
            results = self.sums
            if self.vector in self.block.reduce:
                beside = self.sums / self.vectors
                across = 4.0 * np.log2(np.maximum(self.vectors * self.lanes, 2.0)) + 3.0 * self.vectors
                waits = (1.0 + 1.0 / np.minimum(beside, _FILLING)) / 2.0
                counts["loop_cycles"] += (
                    ends * beside * (waits * across + self.unroll * self.sums / 4.0 * (self.within > 1))
                )
                results = beside
            counts["store_cycles"] = counts["store_cycles"] + ends * results / machine.stores_per_cycle
            wide = max(1.0, machine.vector_bytes / 32)
            counts["spill_cycles"] += self.tiles * wide * _STORED * self._stored_again
        inner = np.ones(self.rows)
        for loop in self.serial:  # the innermost loop of several iterations
            inner = np.where(inner > 1, inner, loop.trips)
        turns = self.steps / inner * np.where(inner > _PREDICTED, _TURNS, 4.0)
        begins = self.tiles * (np.where(self.within > _PREDICTED, _BEGINS, 4.0) + self.sums)
        counts["loop_cycles"] += np.where(reduction & (self.revisited == 1), begins, turns)
        return counts

    # -- memory --------------------------------------------------------------------------------------------------

    @cached_property
    def nest(self) -> Nest:
        """The nest whose footprints say what moves between caches. A loop of the reduction goes in two steps, for a
        cache line holds some iterations of the innermost one."""
        line = max(1, self.machine.line_bytes // self.block.itemsize)
        loops = []
        for loop in self.loops:
            if loop.axis in self._reduced and not loop.written_out:
                some = np.minimum(loop.trips, float(line))
                loops += [NestLoop(loop.axis, some), NestLoop(loop.axis, np.ceil(loop.trips / some))]
            else:
                loops.append(NestLoop(loop.axis, np.ceil(loop.trips)))
        uses = [*self.block.loads, *self.block.stores[:1]]
        accesses = [
            NestAccess(
                self._of_axes(use), self.block.itemsize, contiguous=use is self.packed,
                write=number == len(self.block.loads), shape=shape_of(use.buffer), anywhere=read_anywhere(use),
            )
            for number, use in enumerate(uses)
        ]  # fmt: skip
        return Nest(loops, accesses, self.block.extents, self.rows)

    def _of_axes(self, use: Use) -> tuple[dict[Var, float], ...]:
        """Returns the coefficients of the block's axes. Loops inside the block, and arguments, count as one value."""
        return steps_through(use, self.block.extents, self.machine.line_bytes // self.block.itemsize)

    @cached_property
    def apart(self) -> list[Use]:
        """The operands that are read where they lie."""
        return [use for use in self.block.loads if use is not self.packed]

    def _stride_bytes(self, use: Use, axis: Var) -> int:
        """Returns by how many bytes a step of ``axis`` moves; 0 where that is not known."""
        return int(abs(use.step(axis) or 0) * bytes_each(use.buffer.dtype))

    @cached_property
    def conflict(self) -> np.ndarray:
        """Returns how much of the first-level cache's associativity the operands' strides lose, 0 to 1. Addresses that
        are a multiple of 4 KiB apart share their set."""
        worst = np.zeros(self.rows)
        for use in self.apart:
            strides = (
                [s for v in self.block.reduce if (s := self._stride_bytes(use, v))] if self.vector in use.axes() else []
            )
            if strides and min(strides) >= _FAR:
                worst = np.maximum(worst, math.gcd(min(strides), 4096) / 4096)
        return worst

    @cached_property
    def crowded_rows(self) -> np.ndarray:
        """Returns the bytes that come again from the second-level cache over all steps. The rows of a tile are then more
        lines than the ways of the sets that they share."""
        total = np.zeros(self.rows)
        for use in self.apart if self.block.is_reduction else ():
            for row in self.block.spatial if self.vector not in use.axes() else ():
                stride = self._stride_bytes(use, row)
                if stride >= _FAR and np.any(self.body[row] > 1):
                    crowd = crowding(self.body[row], stride, self.machine)
                    total = total + self.steps * self.body[row] * self.machine.line_bytes * crowd
        return np.asarray(total)

    def crowded_lanes(self, use: Use) -> np.ndarray:
        """Returns the lanes, loaded one by one, whose line was evicted since the lane beside them was loaded from it.

        From the innermost loop outwards, each loop whose steps stay in a line comes back to what the loops inside it
        touched. Lines of these that are a large power of two apart share few sets of the cache.
        """
        line = self.machine.line_bytes
        strides = {v: self._stride_bytes(use, v) for v in self.body}
        far = [stride for stride in strides.values() if stride >= line]
        found, lines, moved = np.zeros(self.rows), np.ones(self.rows), dict[Var, np.ndarray | float]()
        if self.vector is None or use is self.packed or not use.affine or strides[self.vector] < line:
            return found
        left = _product(self.rows, [loop.trips for loop in self.loops])
        for loop in self.loops:
            step = strides[loop.axis] * moved.get(loop.axis, 1.0)
            stays = np.minimum(loop.trips, np.maximum(1.0, line / np.maximum(step, 1e-9)))
            found = found + left * (1.0 - 1.0 / stays) * crowding(lines, max(line, math.gcd(*far, 4096)), self.machine)
            left, lines = left / stays, lines * loop.trips / stays
            moved[loop.axis] = moved.get(loop.axis, 1.0) * loop.trips
        return found

    def _evicted(self, use: Use, moved: np.ndarray) -> np.ndarray:
        """Returns the bytes of a load that come from beyond the second-level cache more often than its size says.

        Of lines that are S bytes apart a cache holds only its size over S, though most of it is empty. Those that are read
        again later are evicted; a line that is read once is not evicted before.
        """
        block, size = self.block, self.machine.l2_bytes
        strides = {v: self._stride_bytes(use, v) for v in block.reduce}
        far = [v for v, stride in strides.items() if stride >= _FAR]
        if not far:
            return np.zeros(self.rows)
        near = _product(self.rows, [self.body[v] for v in use.axes() if v in block.spatial])
        lines = np.ceil(near * block.itemsize / self.machine.line_bytes)
        spread = math.gcd(*(strides[v] for v in far), size)
        crowd = np.log2(lines * math.prod(block.extents[v] for v in far) * max(64, spread) / size)
        share = 1.0 / (1.0 + np.exp2(np.clip(2.0 - 4.0 * crowd, -60, 60)))
        return np.asarray(share * np.maximum(0.0, self.steps * lines * self.machine.line_bytes - moved))

    def jumps(self, use: Use, lines: np.ndarray, spans: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the cycles of waiting for ``lines`` that the reduction reaches by far steps.

        Steps of 1 KiB do not wait, those of 4 KiB and more all do. Each goes to a run too short for the prefetchers: as many
        elements as ``spans`` make.
        """
        step = min((s for v in self.block.reduce if (s := self._stride_bytes(use, v))), default=0)
        far = min(1.0, max(0.0, (step - _FAR) / 3072))
        run = np.ceil(_product(self.rows, spans) * self.block.itemsize / self.machine.line_bytes)
        return np.asarray(far * self.machine.jump_cycles * lines / run)

    def _together(self, use: Use) -> np.ndarray:
        """Returns the factor by which steps that are written out wait.

        It is 1.5 for one step, and falls towards 0.75 for many, whose lines arrive together. But lines of the steps at hand and of the next ones, fetched ahead, may share a set."""
        reduced = [loop.axis for loop in self.serial if loop.axis in self._reduced]
        step = self._stride_bytes(use, reduced[0]) if reduced else 0
        shared = crowding(2.0 * self.unroll, step, self.machine) if step >= _FAR else 0.0
        return np.asarray((0.75 + 0.75 / self.unroll) * (1.0 + 2.0 * shared))

    @cached_property
    def held(self) -> np.ndarray:
        """The bytes that come from beyond the second-level cache by its size alone."""
        return self.nest.traffic(_HELD * self.machine.l2_bytes)

    def traffic(self) -> dict[str, np.ndarray]:
        """Returns, by name, the bytes that come from caches and memory, and the cycles of waiting for lines."""
        machine, nest, block = self.machine, self.nest, self.block
        evicted, waiting = np.zeros(self.rows), np.zeros(self.rows)
        for number, use in enumerate(block.loads):
            if use is not self.packed and block.is_reduction:
                moved = nest.traffic(_HELD * machine.l2_bytes, only=number)
                again = self._evicted(use, moved)
                spans = [
                    self.body[v] * step for v in use.axes()
                    if v in block.spatial and 0 < (step := abs(use.stride(v) or 0)) * block.itemsize <= self.machine.line_bytes
                ]  # fmt: skip
                late = _FROM_MEMORY * nest.traffic(machine.l3_bytes, only=number)
                late = late + _FROM_SECOND * nest.traffic(machine.l1_bytes, only=number)
                waits = self.jumps(use, (moved + again + late) / self.machine.line_bytes, spans) * self._together(use)
                waiting = waiting + waits / (_AT_ONCE if any(use.looked_up) else 1.0)
                evicted = evicted + again
                waiting = waiting + EVICTED * self.crowded_lanes(use)
        return {
            "l2_bytes": nest.traffic(machine.l1_bytes) * (1.0 + self.conflict) + self.crowded_rows,
            "l3_bytes": self.held + evicted,
            "memory_bytes": nest.traffic(machine.l3_bytes),
            "jump_cycles": waiting,
        }

    def properties(self) -> dict[str, np.ndarray | float]:
        """Returns what the learned model is told of the loops, by the names of costs.

        ``inner_trips`` is the extent of the innermost serial loop's axis, ``loads_per_fma`` the loads for each sum.
        """
        vectors, broadcasts = self.loads
        inner = next((self.block.extents[loop.axis] for loop in self.serial), 1)
        return {
            "flops": self.block.flops,
            "lanes_used": float(self.lanes),
            "rows": self.sums / self.vectors,
            "columns": self.vectors,
            "accumulators": self.sums,
            "registers": self.live,
            "loads_per_fma": (vectors + broadcasts) / self.sums,
            "latency_bound": self.latency,
            "unroll": self.unroll,
            "body_size": self.unroll * (self.sums + vectors + broadcasts),
            "inner_trips": float(inner),
            "reduction": float(self.block.reduce_size),
            "l1_gap": self.nest.reuse_gap(self.machine.l1_bytes),
            "l2_gap": self.nest.reuse_gap(self.machine.l2_bytes),
            "conflict": self.conflict,
        }


def chain_factor(
    sums: np.ndarray, instructions: np.ndarray, machine: MachineModel, cycles: float | None = None
) -> np.ndarray:  # fmt: skip
    """Returns by what factor sums take longer than the pipes need, because they wait for each other.

    Each waits ``cycles`` (those of a fused multiply-add unless given) for the one before.

    As many are in hand as ``sums``, times the tiles at once: the processor begins the next tile, of so many
    ``instructions``, while the sums of a short reduction wait for each other. Where they are fewer than latency times pipes,
    pipes wait in proportion (the beginning of a tile counts as ``_BEGINS`` instructions). Where they are
    just as many, a share of ``_UNEVEN`` is still lost, which the fourth power lets vanish as there are more.
    """
    at_once = 1.0 + _AHEAD / (instructions + _BEGINS)
    latency = (machine.fma_latency if cycles is None else cycles) * machine.fma_pipes / sums / at_once
    return np.asarray(np.maximum(1.0, latency) + _UNEVEN * np.minimum(1.0, latency) ** 4)


def _product(rows: int, factors: Sequence[np.ndarray | float]) -> np.ndarray:
    """Returns the product of columns, one number per candidate."""
    out = np.ones(rows)
    for factor in factors:
        out = out * factor
    return out


def added(counts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the sums of the counts of several blocks, by name."""
    out: dict[str, np.ndarray] = {}
    for some in counts:
        for name, value in some.items():
            out[name] = out[name] + value if name in out else value
    return out


def most(counts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Returns the largest of several counts, by name."""
    out: dict[str, np.ndarray] = {}
    for some in counts:
        for name, value in some.items():
            out[name] = np.maximum(out[name], value) if name in out else value
    return out
