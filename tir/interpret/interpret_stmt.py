"""This module interprets TIR on NumPy arrays, slowly and simply; schedules and lowering passes are compared with it.

It runs programs before and after lowering, checks every access against the buffer's shape, fills fresh memory with NaN
(integers: a pattern), and rounds after every operation. Statements become Python closures here, expressions Python
text (:mod:`.interpret_expr`); buffers are in :mod:`.interpret_memory`, the meaning of operations is in :mod:`..expr.intrinsics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..analysis.known_ranges import evaluate
from ..analysis.reductions import start_in_front
from ..blas_calls import MEANINGS
from ..expr import BufferLoad, Call, IntImm, Var, is_const_int, max_value, min_value, pre_order
from ..expr.deep_recursion import in_room, nesting
from ..expr.dtype import pack, to_numpy, unpack
from ..expr.intrinsics.numpy_values import scalar_type
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IRModule,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    loads_and_stores,
)
from ..storage_types import lower_storage_types
from .interpret_expr import InterpretError
from .interpret_memory import Memory, View

Run = Callable[[], None]
Points = set[tuple[Any, ...]]
_DEEP = 60
"""Programs that nest more deeply run on a large stack from the start; they cannot be started again, because they
write."""


def interpret(
    func: PrimFunc | IRModule,
    *args: Any,
    check_regions: bool = False,
    max_steps: int = 200_000_000,
    externs: Mapping[str, Callable[..., Any]] | None = None,
) -> None:
    """Run ``func`` on ``args``, in the order of the parameters; outputs are written in place.

    Arguments are NumPy arrays for buffers and numbers for scalars.
    bfloat16 buffers are ``uint16`` arrays of bits, those of storage types ``uint8`` arrays (:mod:`..storage_types`). Sizes that are variables are read off the arrays. With
    ``check_regions`` every access must also lie in the regions that its block declares, and block axes in their
    domains. ``externs`` gives the functions behind ``tir.call_extern``; those of :mod:`..blas_calls` are known. ``InterpretError`` says which access was wrong
    (buffer, index, shape), which argument does not fit, or that ``max_steps`` iterations of loops were not enough.

    >>> from tilewright.tir import For, BufferStore, PrimFunc, Var, decl_buffer, IntImm
    >>> A, i, a = decl_buffer((4,), "int32", "A"), Var("i"), Var("a", "handle")
    >>> loop = For(i, IntImm(0), IntImm(4), "serial", BufferStore(A, i * i, (i,)))
    >>> x = np.zeros(4, "int32"); interpret(PrimFunc((a,), loop, {a: A}), x); x.tolist()
    [0, 1, 4, 9]
    """
    if isinstance(func, IRModule):
        if len(func.functions) != 1:
            raise InterpretError(f"name the function to run; the module has {sorted(func.functions)}")
        func = next(iter(func.functions.values()))
    plain = lower_storage_types(func, packed=False)
    run = _Interpreter(plain, check_regions, max_steps, {**MEANINGS, **(externs or {})}).run
    given = args if plain is func else _numbers_of(func, args)
    if nesting(func) > _DEEP:
        in_room(run, given)
    else:
        run(given)
    for param, arg, values in zip(func.params, args, given, strict=True) if given is not args else ():
        buffer = func.buffer_map.get(param)
        if buffer is not None and buffer.dtype.per_byte > 1 and not np.array_equal(arg, pack(values, buffer.dtype)):
            arg[...] = pack(values, buffer.dtype)


def _numbers_of(func: PrimFunc, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with one number in each byte, and float8 as its bytes."""
    known = {}
    for param, arg in zip(func.params, args, strict=False):
        buffer = func.buffer_map.get(param)
        sizes = () if buffer is None else buffer.shape[: len(buffer.shape) - (buffer.dtype.per_byte > 1)]
        known.update({e: n for e, n in zip(sizes, np.shape(arg), strict=False) if isinstance(e, Var)})
        if buffer is None and isinstance(arg, int):
            known[param] = arg
    out = []
    for param, arg in zip(func.params, args, strict=False):
        buffer = func.buffer_map.get(param)
        if buffer is not None and buffer.dtype.is_float and getattr(arg, "dtype", None) == buffer.dtype:
            arg = arg.view(to_numpy(buffer.dtype)) if buffer.dtype.is_storage else arg
        if buffer is not None and buffer.dtype.per_byte > 1:
            last = evaluate(buffer.shape[-1], known) if buffer.shape else 1
            if last is None:
                raise InterpretError(f"no argument tells the size {buffer.shape[-1]} of {buffer.name}")
            if (
                not isinstance(arg, np.ndarray)
                or arg.dtype != np.uint8
                or arg.shape[-1:] != ((-(-last // buffer.dtype.per_byte),) if buffer.shape else ())
            ):
                raise InterpretError(
                    f"{buffer.name} is {buffer.dtype} with {last} numbers in a row; pass their bytes, as te.pack returns them"
                )
            arg = unpack(arg, buffer.dtype, last)
        out.append(arg)
    return (*out, *args[len(func.params) :])


class _Return(Exception):
    """Raised by ``tir.ret`` to end the run."""


class _Interpreter:
    def __init__(self, func: PrimFunc, check_regions: bool, max_steps: int, externs: dict[str, Any]) -> None:
        self.func = func
        self.memory = Memory(check_regions, externs)
        self.check_regions = check_regions
        self.max_steps = max_steps
        self.steps = 0
        self.exprs = self.memory.exprs
        self.registers = self.memory.registers
        self.path: tuple[Stmt, ...] = ()
        self.starts: dict[For, list[tuple[Points, Run]]] = {}
        self.started: dict[Block, Points] = {}
        """The points at which a reduction ran, by the block that runs its init at the others."""

    def run(self, args: tuple[Any, ...]) -> None:
        func, memory = self.func, self.memory
        if len(args) != len(func.params):
            raise InterpretError(f"{func.name} takes {len(func.params)} arguments, got {len(args)}")
        memory.owners.update(func.buffer_map.values())
        for node in pre_order(func.body):
            if isinstance(node, Allocate):
                memory.owners.add(node.buffer)
            elif isinstance(node, Block):
                memory.owners.update(node.alloc_buffers, [m.buffer for m in node.match_buffers])
        body = self.stmt(func.body)
        with np.errstate(all="ignore"):
            buffers = []
            for position, (param, arg) in enumerate(zip(func.params, args, strict=True)):
                if param in func.buffer_map:
                    buffers.append((func.buffer_map[param], arg, position))
                else:
                    self.registers[self.exprs.slot(param)] = _scalar(param, arg, position)
            for buffer, arg, position in buffers:
                memory.bind_argument(buffer, arg, position)
            try:
                for buffer, arg, position in buffers:
                    memory.check_argument(buffer, arg, position)
                body()
            except _Return:
                pass
            except TypeError as error:
                if "Unset" in str(error):
                    raise InterpretError(f"{func.name} uses a variable that has no value: {error}") from None
                raise

    # -- statements --------------------------------------------------------------------------------------------------

    def stmt(self, s: Any) -> Run:
        """Return the function that runs ``s``."""
        visit = _STATEMENTS.get(type(s))
        if visit is None:
            raise InterpretError(f"cannot run a {type(s).__name__}")
        return visit(self, s)

    def _for(self, s: For) -> Run:
        lo, extent = self.exprs.compile(s.min), self.exprs.compile(s.extent)
        slot, registers = self.exprs.slot(s.loop_var), self.registers
        body = self._within(s, s.body)
        inits = self.starts.pop(s, [])

        def run() -> None:
            start, trip_count = lo(), extent()
            self.steps += max(trip_count, 0)
            if self.steps > self.max_steps:
                raise InterpretError(
                    f"more than {self.max_steps} loop iterations, stopped in the loop {s.loop_var.name}"
                )
            for i in range(start, start + trip_count):
                registers[slot] = i
                body()

        def run_or_start() -> None:
            for points, _ in inits:
                points.clear()
            run()
            for _, init in inits:
                init()

        return run_or_start if inits else run

    def _within(self, outer: Stmt, body: Stmt) -> Run:
        """Return the function that runs ``body``, a part of ``outer``."""
        above = self.path
        self.path = (*above, outer)
        run = self.stmt(body)
        self.path = above
        return run

    def _store(self, s: BufferStore) -> Run:
        store = self.memory.storer(s.buffer, s.predicate is not None)
        args = [s.value, *s.indices] if s.predicate is None else [s.predicate, s.value, *s.indices]
        return self.exprs.compile_call(store, args)

    def _seq(self, s: SeqStmt) -> Run:
        parts = tuple([self.stmt(x) for x in s.seq])

        def run() -> None:
            for part in parts:
                part()

        return run

    def _if(self, s: IfThenElse) -> Run:
        condition, then_case = self.exprs.compile(s.condition), self._within(s, s.then_case)
        else_case = None if s.else_case is None else self._within(s, s.else_case)

        def run() -> None:
            if condition():
                then_case()
            elif else_case is not None:
                else_case()

        return run

    def _while(self, s: While) -> Run:
        condition, body = self.exprs.compile(s.condition), self._within(s, s.body)

        def run() -> None:
            while condition():
                self.steps += 1
                if self.steps > self.max_steps:
                    raise InterpretError(f"more than {self.max_steps} loop rounds, stopped in `while {s.condition}`")
                body()

        return run

    def _let(self, s: LetStmt) -> Run:
        value, slot, body, registers = (
            self.exprs.compile(s.value),
            self.exprs.slot(s.var),
            self._within(s, s.body),
            self.registers,
        )

        def run() -> None:
            registers[slot] = value()
            body()

        return run

    def _assert(self, s: AssertStmt) -> Run:
        condition, body = self.exprs.compile(s.condition), self.stmt(s.body)

        def run() -> None:
            if not condition():
                raise InterpretError(f"an assertion failed: {s.message}")
            body()

        return run

    def _attr(self, s: AttrStmt) -> Run:
        return self.stmt(s.body)

    def _allocate(self, s: Allocate) -> Run:
        self.memory.view(s.buffer)
        body, allocate, buffer = self.stmt(s.body), self.memory.allocate, s.buffer

        def run() -> None:
            allocate(buffer)
            body()

        return run

    def _evaluate(self, s: Evaluate) -> Run:
        if isinstance(s.value, Call) and s.value.op == "tir.ret":

            def leave() -> None:
                raise _Return

            return leave
        return self.exprs.compile(s.value)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _realize(self, s: BlockRealize) -> Run:
        block, registers, memory = s.block, self.registers, self.memory
        axes = [
            (self.exprs.slot(axis.var), self.exprs.compile(value))
            for axis, value in zip(block.iter_vars, s.iter_values, strict=True)
        ]
        predicate = None if is_const_int(s.predicate, 1) else self.exprs.compile(s.predicate)
        reductions = [
            (self.exprs.slot(axis.var), self.exprs.compile(axis.dom.min))
            for axis in block.iter_vars
            if axis.kind == "reduce"
        ]
        for buffer in (*block.alloc_buffers, *[m.buffer for m in block.match_buffers]):
            memory.view(buffer)
        spatial = [self.exprs.slot(axis.var) for axis in block.iter_vars if axis.kind != "reduce"]
        ran = None if block.init is None else self._start(s)
        started = self.started.pop(block, None)
        above, self.path = self.path, (*self.path, block)
        init = None if block.init is None else self.stmt(block.init)
        body = self.stmt(block.body)
        self.path = above
        allocs, matches = block.alloc_buffers, block.match_buffers
        guard = _Guard(self, block) if self.check_regions else None

        def run() -> None:
            if predicate is not None and not predicate():
                return
            for slot, value in axes:
                registers[slot] = value()
            if ran is not None:
                ran.add(tuple([registers[slot] for slot in spatial]))
            if started is not None and tuple([registers[slot] for slot in spatial]) in started:
                return
            for buffer in allocs:
                memory.allocate(buffer)
            for m in matches:
                memory.match(m.buffer, m.source)
            if guard is not None:
                guard.enter()
            if init is not None:
                for slot, start in reductions:
                    if registers[slot] != start():
                        break
                else:
                    init()
            body()
            if guard is not None:
                guard.leave()

        return run

    def _start(self, s: BlockRealize) -> Points | None:
        """Return the points at which a reduction runs, empty as yet.

        At the others its init runs after its outermost loop. None where it runs at all of them.
        """
        found = start_in_front(s, self.path)
        if found is None:
            return None
        loop, start = found
        inside = [n for n in self.path[self.path.index(loop) :] if isinstance(n, For)]
        if is_const_int(s.predicate, 1) and all(isinstance(n.extent, IntImm) and n.extent.value > 0 for n in inside):
            return None
        points: Points = set()
        self.started[next(n.block for n in pre_order(start) if isinstance(n, BlockRealize))] = points
        above, self.path = self.path, ()
        self.starts.setdefault(loop, []).append((points, self.stmt(start)))
        self.path = above
        return points


class _Guard:
    """Keeps the accesses of a block inside the regions that it declares, and its axes in their domains.

    A block without axes, reads and writes declares nothing and is not checked. A block may read what it writes.
    """

    def __init__(self, interpreter: _Interpreter, block: Block) -> None:
        self.memory = interpreter.memory
        self.block = block
        own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
        self.free: list[View] = [self.memory.view(b) for b in own]
        held = {n.buffer for n in loads_and_stores(block)} if block.iter_vars or block.reads or block.writes else set()
        inner = {b for n in pre_order(block) if isinstance(n, Block) for b in (*n.alloc_buffers,)}
        inner |= {m.buffer for n in pre_order(block) if isinstance(n, Block) for m in n.match_buffers}
        self.held = [self.memory.view(b) for b in sorted(held - own - inner, key=lambda b: b.name)]
        self.saved: list[list[tuple[View, Any, Any]]] = []

    def enter(self) -> None:
        value = self.memory.value
        for axis in self.block.iter_vars:
            v, lo, extent = value(axis.var), value(axis.dom.min), value(axis.dom.extent)
            if not lo <= v < lo + extent:
                raise InterpretError(
                    f"block {self.block.name}: the axis {axis.var.name} is {v}, outside its domain [{lo}, {lo + extent})"
                )
        self.saved.append([(v, v.reads, v.writes) for v in (*self.held, *self.free)])
        for view in self.free:
            view.reads = view.writes = None
        for view in self.held:
            writes = [self._box(r) for r in self.block.writes if r.buffer is view.buffer]
            view.reads = [self._box(r) for r in self.block.reads if r.buffer is view.buffer] + writes
            view.writes = writes

    def leave(self) -> None:
        for view, reads, writes in self.saved.pop():
            view.reads, view.writes = reads, writes

    def _box(self, region: BufferRegion) -> tuple[tuple[int, int], ...]:
        """Return the box of a region. A dimension whose ends are read from memory, perhaps under a condition, is
        whole."""
        value = self.memory.value
        out = []
        for r, extent in zip(region.region, region.buffer.shape, strict=True):
            if any(isinstance(n, BufferLoad) for e in (r.min, r.extent) for n in pre_order(e)):
                out.append((0, value(extent)))
            else:
                lo = value(r.min)
                out.append((lo, lo + value(r.extent)))
        return tuple(out)


def _scalar(param: Var, arg: Any, position: int) -> Any:
    where = f"argument {position} ({param.name})"
    if isinstance(arg, np.ndarray) and arg.ndim == 0:
        arg = arg[()]
    if isinstance(arg, np.generic):
        arg = arg.item()
    if not isinstance(arg, (int, float)):
        raise InterpretError(f"{where} is a {type(arg).__name__}, expected a number of type {param.dtype}")
    if param.dtype.is_float or param.dtype.is_bool:
        return scalar_type(param.dtype)(arg)
    if arg != int(arg) or not min_value(param.dtype) <= arg <= max_value(param.dtype):
        raise InterpretError(f"{where} is {arg}, which is no {param.dtype}")
    return int(arg)


_STATEMENTS: dict[type, Callable[[Any, Any], Run]] = {
    For: _Interpreter._for,
    BufferStore: _Interpreter._store,
    SeqStmt: _Interpreter._seq,
    IfThenElse: _Interpreter._if,
    LetStmt: _Interpreter._let,
    While: _Interpreter._while,
    AssertStmt: _Interpreter._assert,
    AttrStmt: _Interpreter._attr,
    Allocate: _Interpreter._allocate,
    Evaluate: _Interpreter._evaluate,
    BlockRealize: _Interpreter._realize,
}
