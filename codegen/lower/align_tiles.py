"""Shifts tiles as wide as a line of memory to where the lines begin.

A kernel that takes the columns of a matrix in tiles of one line reads each row a line at a time. Where the rows begin in the
middle of a line, as those of arrays of callers often do, each tile would need two lines of each row and each line would be
fetched for two tiles. So tiles begin with the lines instead: one more tile is computed, and the first and the last one are
moved inside, over elements that their neighbours compute, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...tir.arith import Analyzer, constant_coefficients
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Max, Min, Var, const, same
from ...tir.expr.intrinsics import effect_of
from ...tir.expr.intrinsics.operation_row import Effect
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, Evaluate, For, LetStmt, PrimFunc, Stmt, While
from ...tir.walk import nodes_by_type, pre_order, substitute, transform, uses_var, vars_in
from ..lowered import ALIGNED_ARRAYS
from ..machine.target import Target
from .scoped_transform import ScopedTransform
from .transpose_in_registers import begins_with_lines

_FEWEST_TILES = 6


def align_tiles(func: PrimFunc, target: Target) -> PrimFunc:
    """Shift the tiles of serial loops to where the lines of the memory that they read or write begin.

    Before::

        for c in range(9):
            for i in range(3136):
                for v in T.vectorized(16): B[i, c * 16 + v] = f(A[i, c * 16 + v])

    After (``s``: the elements by which ``A[0, 0]`` lies behind the beginning of a line)::

        s: T.int32 = T.misaligned(T.address_of(A[0, 0]), 64) // 4
        for c in range(9 + T.min(s, 1)):
            start: T.int32 = T.max(T.min(c * 16 - s, 128), 0)
            for i in range(3136):
                for v in T.vectorized(16): B[i, start + v] = f(A[i, start + v])

    It applies where a tile is as wide as a line, all rows begin at the same place in a line, one iteration touches more
    memory than half of the first-level cache, and what becomes of an element does not depend on its place in a tile.
    """
    if target.is_hls or func.attrs.get(ALIGNED_ARRAYS):
        return func
    nodes = nodes_by_type(func.body)
    own = frozenset([n.buffer.data for n in nodes.get(Allocate, ())])
    outside = [
        n for kind in (BufferLoad, BufferStore) for n in nodes.get(kind, ()) if n.indices and n.buffer.data not in own
    ]
    line = target.caches.line
    loops = {loop.loop_var for loop in nodes.get(For, ()) if _may_be_tiles(loop)}
    if not any(_one_line(n, var, line) for n in outside for var in loops & vars_in(n.indices[-1])):
        return func

    def shifted(loop: For, _: ScopedTransform) -> Stmt | None:
        found = _tiles(loop, target, own) if _may_be_tiles(loop) else None
        return None if found is None else found.stmt()

    return ScopedTransform({For: shifted}).function(func)


@dataclass(frozen=True)
class _Tiles:
    """A loop over tiles of ``step`` elements; ``address`` is where its first one begins in the array that decides."""

    loop: For
    step: int
    address: Call
    bytes: int
    line: int

    def stmt(self) -> Stmt:
        """Return the loop over shifted tiles."""
        loop, tiles = self.loop, self.loop.extent.value  # type: ignore[attr-defined]
        var, dtype = loop.loop_var, loop.loop_var.dtype
        behind, start = Var(f"{var.name}_shift", dtype), Var(f"{var.name}_start", dtype)
        simplify = Analyzer().simplify

        def moved(index: Expr) -> Expr:
            if not uses_var(index, var):
                return index
            (step,) = constant_coefficients(index, [var])  # type: ignore[misc]
            return simplify(substitute(index, {var: const(0, dtype)}) + start * (step // self.step))

        def post(n: IRNode) -> IRNode | None:
            if isinstance(n, (BufferLoad, BufferStore)) and any(uses_var(i, var) for i in n.indices):
                return n.with_(indices=tuple([moved(i) for i in n.indices]))
            return None

        first = Max(Min(var * self.step - behind, const((tiles - 1) * self.step, dtype)), const(0, dtype))
        body = LetStmt(start, first, transform(loop.body, post=post))
        away = Call("tir.misaligned", (self.address, const(self.line)), dtype) // self.bytes
        return LetStmt(behind, away, loop.with_(extent=tiles + Min(behind, const(1, dtype)), body=body))


def _may_be_tiles(loop: For) -> bool:
    """Returns whether a loop is serial, begins at 0 and has enough iterations, a known number."""
    serial = loop.kind == "serial" and not loop.annotations and isinstance(loop.min, IntImm) and loop.min.value == 0
    return serial and isinstance(loop.extent, IntImm) and loop.extent.value >= _FEWEST_TILES


def _tiles(loop: For, target: Target, own: frozenset[Var]) -> _Tiles | None:
    """Returns the tiles of ``loop`` to shift, or None. ``own``: the function's scratch memory."""
    nodes = list(pre_order(loop.body))
    if any(
        isinstance(n, (Evaluate, While)) or (isinstance(n, Call) and effect_of(n) is not Effect.NONE) for n in nodes
    ):
        return None
    accesses = [n for n in nodes if isinstance(n, (BufferLoad, BufferStore))]
    touched = sum([b.num_bytes() or 0 for b in {n.buffer for n in accesses} if b.data not in own])
    touched //= loop.extent.value  # type: ignore[attr-defined]
    if 2 * touched <= target.l1_bytes:
        return None
    line = target.caches.line
    leaders = [n for n in accesses if n.buffer.data not in own and _one_line(n, loop.loop_var, line)]
    if not leaders or begins_with_lines(loop, target, own):
        return None
    leader = max(leaders, key=lambda n: n.buffer.num_bytes() or 0)
    step = line // leader.buffer.dtype.bytes
    if not _TileUses(loop, step).are_alike(nodes, accesses):
        return None
    inner = {n.loop_var: n.min for n in nodes if isinstance(n, For)}
    last = substitute(leader.indices[-1], {loop.loop_var: loop.min, **inner})
    if vars_in(last) & {n.var for n in nodes if isinstance(n, LetStmt)}:
        return None
    zeros: list[Expr] = [const(0, i.dtype) for i in leader.indices[:-1]]
    first = BufferLoad(leader.buffer, (*zeros, Analyzer().simplify(last)))
    return _Tiles(loop, step, Call("tir.address_of", (first,), "handle"), leader.buffer.dtype.bytes, line)


def _one_line(n: BufferLoad | BufferStore, var: Var, line_bytes: int) -> bool:
    """Returns whether each step of ``var`` goes one line further, in rows that begin at one place in a line."""
    buffer: Buffer = n.buffer
    if len(n.indices) < 2 or buffer.dtype.lanes != 1 or any(uses_var(i, var) for i in n.indices[:-1]):
        return False
    steps = constant_coefficients(n.indices[-1], [var])
    if steps is None or steps[0] * buffer.dtype.bytes != line_bytes:
        return False
    *rows, last = buffer.element_strides()
    lines = all(isinstance(s, IntImm) and s.value * buffer.dtype.bytes % line_bytes == 0 for s in rows)
    return lines and isinstance(last, IntImm) and last.value == 1


@dataclass(frozen=True)
class _TileUses:
    """How the body of ``loop`` uses the numbers of a tile and of its ``step`` elements."""

    loop: For
    step: int
    analyzer: Analyzer = field(default_factory=Analyzer)

    def are_alike(self, nodes: list[IRNode], accesses: list[BufferLoad | BufferStore]) -> bool:
        """Returns whether it does with each element what depends on the number of the element alone.

        Then elements may be divided into tiles in another way, and computed twice. All that is written are places of the
        element: in memory that is not read here, or in scratch memory of one tile, where each element has its own places.
        """
        inside = {n.buffer.data for n in nodes if isinstance(n, Allocate)}
        loops = [self.loop, *[n for n in nodes if isinstance(n, For)]]
        read = {n.buffer.data for n in accesses if isinstance(n, BufferLoad)}
        variables: set[Var] = {self.loop.loop_var}
        fine: set[int] = set()
        for n in accesses:
            of_tile = [index for index in n.indices if uses_var(index, self.loop.loop_var)]
            for index in of_tile:
                part = self.part(index, loops)
                if part is None:
                    return False
                variables.update(part[1])
                fine.add(id(index))
            if isinstance(n, BufferStore) and n.buffer.data not in inside and (not of_tile or n.buffer.data in read):
                return False
        local = [n for n in accesses if n.buffer.data in inside]
        axis = {n.buffer.data: k for n in local for k, index in enumerate(n.indices) if vars_in(index) & variables}
        starts: dict[Var, tuple[int, Expr]] = {}
        for n in local:
            data = n.buffer.data
            part = self.part(n.indices[axis[data]], loops, alone=True) if data in axis else None
            if part is None:
                return False
            step, counters, start = part
            before = starts.setdefault(data, (step, start))
            if before[0] != step or not same(before[1], start):
                return False
            variables.update(counters)
            fine.add(id(n.indices[axis[data]]))
        return not self.elsewhere(self.loop.body, frozenset(variables), fine)

    def part(self, index: Expr, loops: list[For], alone: bool = False) -> tuple[int, list[Var], Expr] | None:
        """Return how ``index`` counts elements: its step, the variables of a tile, and the start of it.

        ``alone``: it counts the elements of one tile, without the number of the tile. None: it counts otherwise.
        """
        used = vars_in(index)
        loops = [self.loop, *[loop for loop in loops[1:] if loop.loop_var in used]]
        variables = [loop.loop_var for loop in loops]
        steps = constant_coefficients(index, variables)
        if steps is None or (steps[0] == 0) != alone:
            return None
        counters = sorted([n for n in range(1, len(loops)) if steps[n]], key=lambda n: -steps[n])
        once = list(dict.fromkeys([variables[n] for n in counters]))
        if len(once) != len(counters) or not counters:
            return None
        reach = steps[counters[-1]]
        step = reach
        for n in reversed(counters):
            loop = loops[n]
            if steps[n] != reach or not isinstance(loop.extent, IntImm) or not isinstance(loop.min, IntImm):
                return None
            if loop.min.value:
                return None
            reach *= loop.extent.value
        if reach != step * self.step or (not alone and steps[0] != reach) or step < 1:
            return None
        zero: dict[Var, Expr] = {v: const(0, v.dtype) for v in variables}
        return step, once, self.analyzer.simplify(substitute(index, zero)) if alone else index

    def elsewhere(self, n: IRNode, variables: frozenset[Var], fine: set[int]) -> bool:
        """Return whether one of the variables occurs outside of these indices."""
        if id(n) in fine:
            return False
        if isinstance(n, For):
            return bool((vars_in(n.min) | vars_in(n.extent)) & variables) or self.elsewhere(n.body, variables, fine)
        return n in variables if isinstance(n, Var) else any(self.elsewhere(c, variables, fine) for c in n.children())
