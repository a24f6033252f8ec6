"""This module computes the results that candidates are compared with, and how far rounding may take a right one away.

The unscheduled function is evaluated as it is written. Where its arithmetic is float32 and continuous, and rounding adds
up over many steps (a long reduction, or a recurrence, in which each step starts from the results of the one before), it
is evaluated in float64 as well: those are the results then, and the distance of the float32 ones from them says what
rounding in another order may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...codegen.compile import compile as compile_func
from ...codegen.lower import PLAIN_PASSES, lower
from ...codegen.machine.target import Target
from ...schedule import Schedule, ScheduleError
from ...tir.expr import BinaryOp, BufferLoad, Call, Cast, CmpOp, DType, FloatImm, IntImm, Var
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.node import Mapper
from ...tir.interpret import InterpretError, interpret
from ...tir.stmt import Block, Buffer, BufferStore, PrimFunc
from ...tir.walk import pre_order
from ..program import ProgramInfo
from .inputs import KernelInputs, reduction_length

_INTERPRETED_STEPS = 30_000
"""The number of iterations up to which a reference is interpreted, which takes a few tenths of a second."""

_LONG = 4096
"""Reductions of so many steps and more are evaluated in float64 as well."""

_SINGLE, _DOUBLE = DType("float32"), DType("float64")

_JUMPS = frozenset(
    "atan2 bitwise_and bitwise_not bitwise_or bitwise_xor dot2_bf16 fmod isfinite isinf isnan reinterpret round_rest "
    "round_tf32 times_exp2".split()
)
"""Operations on floats, besides the exact ones such as floor, whose results may jump or that see bits."""


def _is_continuous(name: str) -> bool:
    """Returns whether an operation's result changes little where its float arguments do."""
    row = OPERATIONS.get(name)
    return row is not None and (not row.exact or row.name in ("abs", "fabs")) and row.name not in _JUMPS


def is_recurrence(func: PrimFunc) -> bool:
    """Returns whether a result depends on other elements of itself, as in a scan or a triangular system. Rounding errors
    grow along it."""
    reads: dict[Buffer, set[Buffer]] = {}
    for node in pre_order(func.body):
        if isinstance(node, Block) and any(isinstance(n, BufferStore) for n in pre_order(node.body)):
            if any(isinstance(n, Block) for n in pre_order(node.body)):
                continue
            stores = [n for n in pre_order(node.body) if isinstance(n, BufferStore)]
            for store in stores:
                own = {expr for expr in store.indices}
                for load in (n for n in pre_order(store) if isinstance(n, BufferLoad)):
                    same = load.buffer is store.buffer and set(load.indices) == own
                    if not same:  # the accumulator of a reduction
                        reads.setdefault(store.buffer, set()).add(load.buffer)
    return any(buffer in _reached(reads, buffer) for buffer in reads)


def _reached(edges: dict[Buffer, set[Buffer]], start: Buffer) -> set[Buffer]:
    found: set[Buffer] = set()
    todo = list(edges.get(start, ()))
    while todo:
        buffer = todo.pop()
        if buffer not in found:
            found.add(buffer)
            todo += edges.get(buffer, ())
    return found


def in_double(func: PrimFunc) -> PrimFunc | None:
    """Returns ``func`` with float64 in place of float32.

    None where it has other floats, or where a small change of a value may change a result by much or by a type's own
    rules: comparisons of floats, conversions to integers, roundings.
    """
    dtypes = {n.buffer.dtype for n in pre_order(func.body) if isinstance(n, (BufferLoad, BufferStore))}
    if any(d.is_float and d != _SINGLE for d in dtypes) or _SINGLE not in dtypes:
        return None
    for node in pre_order(func.body):
        if isinstance(node, CmpOp) and node.a.dtype.is_float:
            return None
        if isinstance(node, Cast) and node.value.dtype.is_float and not node.dtype.is_float:
            return None
        if isinstance(node, Call):
            of_floats = node.dtype.is_float or any(a.dtype.is_float for a in node.args)
            if not (_is_continuous(node.op) if of_floats else node.op in OPERATIONS):
                return None
        if (
            isinstance(node, BinaryOp)
            and type(node).__name__ in ("FloorDiv", "FloorMod", "TruncMod")
            and node.dtype.is_float
        ):
            return None
    return _Doubled().visit(func)  # type: ignore[no-any-return]


class _Doubled(Mapper):
    """Gives everything of type float32 the type float64."""

    def __init__(self) -> None:
        self.vars: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def visit(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self.vars.get(n, n)
        if kind is IntImm:
            return n
        if kind is FloatImm:
            return FloatImm(n.value, _DOUBLE) if n.dtype == _SINGLE else n
        n = n.map_parts(self)
        if isinstance(n, (Cast, Call)) and n.dtype == _SINGLE:
            n = n.with_(dtype=_DOUBLE)
        return n

    def bind(self, var: Var) -> Var:
        if var.dtype == _SINGLE:
            self.vars[var] = Var(var.name, _DOUBLE)
        return self.vars.get(var, var)

    def use(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:
            new = Buffer(buffer.name, buffer.shape, _DOUBLE) if buffer.dtype == _SINGLE else buffer
            self.buffers[buffer] = new
        return self.buffers[buffer]


def reference_run(func: PrimFunc, target: Target, arguments: KernelInputs) -> Callable[[], object]:
    """Compute the outputs of the unscheduled function; returns a function that does so again.  A small function is
    interpreted, because the interpreter shares no code with the compiler. Others are compiled by as few passes as they
    need."""

    def interpreted() -> None:
        with np.errstate(all="ignore"):
            interpret(func, *arguments.values, max_steps=_INTERPRETED_STEPS)

    arguments.reset_outputs()
    try:
        interpreted()
        return interpreted
    except (InterpretError, ArithmeticError, RecursionError):  # too many steps; a function of C; a division by zero
        arguments.reset_outputs()
    module = _plainly_compiled(func, target)
    module(*arguments.values)
    return lambda: module(*arguments.values)


def _plainly_compiled(func: PrimFunc, target: Target) -> Any:
    here = Target("native -num-cores=1") if target.is_gpu else target
    plain = lower(reference_schedule(func).func, here, "tw_reference", passes=PLAIN_PASSES)
    return compile_func(plain, here, "tw_reference", cache=False)


def double_results(func: PrimFunc, target: Target, arguments: KernelInputs) -> list[np.ndarray] | None:
    """Returns the outputs computed in float64, or None where that is not possible or rounding does not add up."""
    if not (is_recurrence(func) or reduction_length(func) >= _LONG):
        return None
    wide = in_double(func)
    if wide is None:
        return None
    arguments.reset_outputs()
    values = [
        v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v for v in arguments.values
    ]
    _plainly_compiled(wide, target)(*values)
    return [values[position] for position in arguments.outputs]


_AROUND = 64
"""The number of neighbours whose errors together say how large the error of one may be."""

_SPREAD = 16.0
"""How many times as large as those of the order as written the errors of another order may be."""


def spread_of(single: np.ndarray, double: np.ndarray) -> np.ndarray:
    """Returns for each element how far another order of the same arithmetic may be from ``double``. That follows from what
    ``single``, the same in float32, is off among its neighbours."""
    with np.errstate(all="ignore"):
        off = np.abs(single.astype(np.float64) - double).reshape(-1)
    off[~np.isfinite(off)] = 0.0
    pieces = np.pad(off, (0, -len(off) % _AROUND)).reshape(-1, _AROUND)
    rms = np.sqrt((pieces**2).mean(axis=1))
    padded = np.pad(rms, 1, mode="edge")
    near = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
    around = np.repeat(near, _AROUND)[: len(off)]
    return (_SPREAD * np.maximum(around, off)).astype(np.float32).reshape(single.shape)


_TELLING, _IN_RANGE = 2e-3, 1e4


def tells(doubles: Sequence[np.ndarray], spreads: Sequence[np.ndarray]) -> bool:
    """Returns whether a wrong result of a recurrence would show. Its results differ, lie in a range in which small
    ones count as well, and rounding takes right ones hardly away from each other."""
    for exact, spread in zip(doubles, spreads, strict=True):
        sizes = np.abs(exact[np.isfinite(exact) & (exact != 0)])
        if exact.size and not sizes.size:
            return False
        if np.unique(exact).size < exact.size / 4:  # a function that saturates hides what goes into it
            return False
        if not np.isfinite(exact).all() or sizes.max() > _IN_RANGE * np.sqrt(np.median(sizes**2)):
            return False
        if np.sqrt((spread.astype(np.float64) ** 2).mean()) > _TELLING * np.sqrt((sizes**2).mean()):
            return False
    return True


def reference_schedule(func: PrimFunc) -> Schedule:
    """Returns the function as it stands: scalar, one loop nest per stage. Only where a large reduction would crawl
    through memory column by column, its innermost spatial loop goes inside; each element is still summed in the same
    order."""
    sch = Schedule(func)
    for info in ProgramInfo(func).blocks:
        if info.is_reduction and info.spatial and info.spatial_size * info.reduce_size > 1 << 24:
            loops = dict(zip(info.axes, sch.get_loops(sch.get_block(info.name)), strict=False))
            try:
                sch.reorder(*(loops[axis] for axis in info.reduce), loops[info.spatial[-1]])
            except (ScheduleError, KeyError):
                continue
    return sch
