"""This module has TVM's classic schedules: ``s = te.create_schedule(C.op)``, then ``s[C].split(…)`` and other steps.

A :class:`Stage` records the steps on an operation's loops, and :class:`Schedule` applies them to a block schedule.

Axes are :class:`IterVar` objects as in TVM: ``s[C].op.axis[0]``, what ``split`` and ``fuse`` return. A stage keeps the
list of its current loops (``leaf_iter_vars``), so that a step on an axis that no longer exists is refused at once, and
records the step.

This is a thin layer over :class:`tilewright.schedule.Schedule`. A classic program may give its steps in any order (it may split
a stage before or after attaching it elsewhere). So the steps are collected, and :class:`Applier` applies them to a fresh
function when the result is asked for. Its order is: stages that ``cache_read``, ``cache_write`` and ``rfactor`` add;
inlining; for each stage, consumers before producers, its place and its loops; and last the kinds of loops. An error
names the classic step and its line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..driver.building import request
from ..pages.messages import short_repr
from ..schedule import BlockRV, ScheduleError, TensorIntrin
from ..schedule import Schedule as BlockSchedule
from ..schedule.require.block_preconditions import find_block
from ..te.create_prim_func import lower_with_blocks
from ..te.scan import with_bodies
from ..te.tensor import ComputeOp, Operation, PlaceholderOp, ProducerLoad, Tensor, ordered_operations
from ..tir.analysis.tree import tree_of
from ..tir.expr import Expr, IntImm, IterVar, Range, Reduce, Var, ceildiv, const, convert
from ..tir.stmt import BlockRealize, IRModule, PrimFunc
from ..tir.walk import vars_in

__all__ = ["Schedule", "Stage", "create_schedule", "lower"]


_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@dataclass(frozen=True)
class Record:
    """One step: its name, its axes and arguments, and the user's line that asked for it."""

    step: str
    axes: tuple[IterVar, ...]
    outputs: tuple[IterVar, ...] = ()
    values: tuple[Any, ...] = ()
    line: str = ""


def caller() -> str:
    """Returns the ``file:line`` of the call that entered this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


class Stage:
    """A stage is one operation of a schedule. ``op`` is what it computes now (``cache_write`` and ``rfactor`` change it)."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = None
            if not name.startswith("_"):
                from . import module_finders

                hint = module_finders.ABSENT_IN_STAGES.get(name)
            raise AttributeError(f"a stage has no {name!r}{f': {hint}' if hint else ''}")

    def __init__(self, schedule: Schedule, op: Operation) -> None:
        self.schedule = schedule
        self.op = op
        self.records: list[Record] = []
        self.attach: tuple[Stage, IterVar] | None = None
        self.inlined = False
        self.attach_line = ""
        self.scope: str | None = None
        self.alignments: list[tuple[int, int, int, str]] = []
        self.leaf_iter_vars: list[IterVar] = [*op.axis, *op.reduce_axis]

    @property
    def name(self) -> str:
        """Returns the operation's name."""
        return self.op.name

    @property
    def origin_op(self) -> Operation:
        """Returns the operation, under TVM's name."""
        return self.op

    def __repr__(self) -> str:
        return f"Stage({self.name}: {', '.join(iv.var.name for iv in self.leaf_iter_vars)})"

    def reset(self, op: Operation) -> None:
        """Start over with another operation."""
        self.op, self.records = op, []
        self.leaf_iter_vars = [*op.axis, *op.reduce_axis]

    # loops

    def split(self, parent: IterVar, factor: Any = None, nparts: Any = None) -> tuple[IterVar, IterVar]:
        """Split a loop into two: ``factor`` iterations inside, or ``nparts`` outside. Returns (outer, inner).

        The factor need not divide the extent; iterations beyond the extent are masked.
        """
        at = self._position("split", parent)
        if (factor is None) == (nparts is None):
            raise ValueError(f"s[{self.name}].split: give either factor or nparts")
        given = convert(factor if nparts is None else nparts)
        if not given.dtype.is_int:
            raise TypeError(
                f"s[{self.name}].split: {'factor' if nparts is None else 'nparts'} is {given.dtype}, not an integer"
            )
        if isinstance(given, IntImm) and given.value < 1:
            raise ValueError(f"s[{self.name}].split: {'factor' if nparts is None else 'nparts'}={given.value}")
        other = ceildiv(parent.dom.extent, given)
        sizes = (other, given) if nparts is None else (given, other)
        outer, inner = (
            IterVar(Range.from_extent(size), Var(f"{parent.var.name}.{end}", parent.var.dtype), parent.kind)
            for size, end in zip(sizes, ("outer", "inner"), strict=True)
        )
        self.leaf_iter_vars[at : at + 1] = [outer, inner]
        number = given.value if isinstance(given, IntImm) else given
        values = (None, number) if nparts is None else (number, None)
        self._add("split", (parent,), (outer, inner), values)
        return outer, inner

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split both axes and reorder: returns (x_outer, y_outer, x_inner, y_inner), in this order."""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *args: IterVar) -> IterVar:
        """Returns one loop for several neighbours, outermost first."""
        axes = self._several("fuse", args)
        if not axes:
            raise ValueError(f"s[{self.name}].fuse: no axes")
        places = [self._position("fuse", a) for a in axes]
        if places != list(range(places[0], places[0] + len(places))):
            raise ValueError(
                f"s[{self.name}].fuse: {', '.join(a.var.name for a in axes)} are not neighbours in this order; the loops "
                f"are {self._loops()}"
            )
        if len(axes) == 1:
            return axes[0]
        extent: Expr = const(1)
        for a in axes:
            extent = extent * a.dom.extent
        kind = IterVar.SPATIAL if all(a.kind == IterVar.SPATIAL for a in axes) else IterVar.REDUCE
        fused = IterVar(Range.from_extent(extent), Var(".".join(a.var.name for a in axes) + ".fused"), kind)
        self.leaf_iter_vars[places[0] : places[-1] + 1] = [fused]
        self._add("fuse", axes, (fused,))
        return fused

    def reorder(self, *args: IterVar) -> None:
        """Put these loops into this order, at the positions that they occupy together."""
        axes = self._several("reorder", args)
        places = [self._position("reorder", a) for a in axes]
        if len(set(places)) != len(places):
            raise ValueError(f"s[{self.name}].reorder: an axis is given twice")
        for place, a in zip(sorted(places), axes, strict=True):
            self.leaf_iter_vars[place] = a
        self._add("reorder", axes)

    # how loops run

    def vectorize(self, var: IterVar) -> None:
        """Run the loop in the lanes of vectors. Loops inside it stay loops, over vectors."""
        self._mark("vectorize", var)

    def unroll(self, var: IterVar) -> None:
        """Write the iterations out one after the other."""
        self._mark("unroll", var)

    def parallel(self, var: IterVar) -> None:
        """Run the iterations on several threads."""
        self._mark("parallel", var)

    def bind(self, ivar: IterVar, thread_ivar: IterVar | str) -> None:
        """Run the iterations on a thread axis, made by ``te.thread_axis``."""
        tag = thread_ivar if isinstance(thread_ivar, str) else thread_ivar.thread_tag
        self._mark("bind", ivar, tag)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Any = None) -> None:
        """Annotate a loop for the code generator, e.g. ``auto_unroll_max_step`` with a number."""
        self._mark("annotate", var, f"pragma_{pragma_type}", 1 if pragma_value is None else pragma_value)

    def tensorize(self, var: IterVar, tensor_intrin: Any) -> None:
        """Replace the loop and all inside it by a tensor intrinsic.

        ``tensor_intrin`` is a :class:`tilewright.schedule.TensorIntrin` or the name of one. A reduction's init becomes
        loops of its own.
        """
        if not isinstance(tensor_intrin, (str, TensorIntrin)):
            raise TypeError(
                f"s[{self.name}].tensorize takes a TensorIntrin or the name of one, not {type(tensor_intrin).__name__}; "
                "tilewright.schedule.TensorIntrin.register makes one of two functions"
            )
        self._mark("tensorize", var, tensor_intrin)

    def set_scope(self, scope: str) -> None:
        """Set the memory that holds the stage's result: ``global``, ``local``, ``shared``."""
        self.scope = scope
        self.attach_line = caller()
        self.schedule.changed()

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Make the stride of ``axis``, an axis of the stage's tensor, ``factor * k + offset`` elements."""
        dims = [n for n, a in enumerate(self.op.axis) if a is axis]
        if not dims:
            name = axis.var.name if isinstance(axis, IterVar) else repr(axis)
            raise ValueError(f"s[{self.name}].storage_align: {name} is not an axis of the tensor {self.name}")
        self.alignments.append((dims[0], factor, offset, caller()))
        self.schedule.changed()

    # where it is computed

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute what one iteration of ``parent``'s loop ``scope`` needs, inside this loop."""
        if not isinstance(parent, Stage):
            raise TypeError(f"s[{self.name}].compute_at takes a stage, e.g. s[{self.name}].compute_at(s[C], axis)")
        parent._position("compute_at", scope)
        self.attach, self.inlined, self.attach_line = (parent, scope), False, caller()
        self.schedule.changed()

    def compute_root(self) -> None:
        """Compute all of the stage before its consumers, which is the default."""
        self.attach, self.inlined = None, False
        self.schedule.changed()

    def compute_inline(self) -> None:
        """Compute each element where it is read."""
        self.attach, self.inlined, self.attach_line = None, True, caller()
        self.schedule.changed()

    # cache and factor, TVM's s.cache_write and so on, from the stage

    def cache_write(self, scope: str) -> Tensor:
        """:meth:`Schedule.cache_write` of this stage's tensor."""
        return self.schedule.cache_write(self.op.output(0), scope)

    def cache_read(self, scope: str, readers: Sequence[Any]) -> Tensor:
        """:meth:`Schedule.cache_read` of this stage's tensor."""
        return self.schedule.cache_read(self.op.output(0), scope, readers)

    def rfactor(self, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """:meth:`Schedule.rfactor` of this stage's tensor."""
        return self.schedule.rfactor(self.op.output(0), axis, factor_axis)

    # helpers

    def _mark(self, step: str, axis: IterVar, *values: Any) -> None:
        self._position(step, axis)
        self._add(step, (axis,), (), values)

    def _add(self, step: str, axes: tuple[IterVar, ...], outputs: Any = (), values: Any = ()) -> None:
        if not isinstance(self.op, ComputeOp):
            raise ScheduleError(f"s[{self.name}].{step}: {self.name} is an {type(self.op).__name__}, it has no loops")
        self.records.append(Record(step, axes, tuple(outputs), tuple(values), caller()))
        self.schedule.changed()

    def _position(self, step: str, axis: Any) -> int:
        if not isinstance(axis, IterVar):
            raise TypeError(f"s[{self.name}].{step} takes axes, got {axis!r} ({type(axis).__name__})")
        for n, leaf in enumerate(self.leaf_iter_vars):
            if leaf is axis:
                return n
        used = next((r for r in self.records if any(a is axis for a in r.axes) and r.outputs), None)
        why = f"it was used up by {used.step} at {used.line}" if used else f"it is not an axis of {self.name}"
        raise ValueError(f"s[{self.name}].{step}: {axis.var.name}: {why}; the loops are {self._loops()}")

    def _several(self, step: str, args: Any) -> tuple[IterVar, ...]:
        flat: list[Any] = []
        for a in args:
            flat.extend(a if isinstance(a, (list, tuple)) else [a])
        for a in flat:
            self._position(step, a)
        return tuple(flat)

    def _loops(self) -> str:
        return ", ".join(a.var.name for a in self.leaf_iter_vars) or "none"


Apply = Callable[[Record], None]


def create_schedule(ops: Operation | Tensor | Sequence[Any]) -> Schedule:
    """Returns a schedule for operations (or tensors) and all that they read.

    >>> from tilewright import te
    >>> A = te.placeholder((64,), name="A")
    >>> B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
    >>> s[B].vectorize(inner)
    >>> [loop.name for loop in s.schedule.get_loops("B")]
    ['i_0', 'i_1']
    """
    many: Sequence[Any] = ops if isinstance(ops, (list, tuple)) else [ops]
    return Schedule(many)


class Schedule:
    """A classic schedule; ``s[C]`` is the :class:`Stage` of a tensor or operation.

    ``s.schedule`` is the block schedule that results, ``s.func`` and ``s.mod`` the scheduled function;
    ``prim_func(args, name)`` and ``to_schedule(args, name)`` do the same for a list of arguments.
    """

    __repr__ = short_repr("outputs", "stages")

    def __init__(self, ops: Sequence[Operation | Tensor]) -> None:
        self.outputs: list[Operation] = [o.op if isinstance(o, Tensor) else o for o in ops]
        for o in self.outputs:
            if not isinstance(o, Operation):
                raise TypeError(f"create_schedule takes operations and tensors, got {o!r} ({type(o).__name__})")
        self._original = with_bodies(ordered_operations(self.outputs))
        self.stages: list[Stage] = [Stage(self, op) for op in self._original]
        self._stage_of: dict[Operation, Stage] = {stage.op: stage for stage in self.stages}
        self._roots = dict(self._stage_of)
        self._added: list[tuple[str, Stage, Any]] = []
        self._cached: BlockSchedule | None = None

    # stages

    def __getitem__(self, tensor: Tensor | Operation | Stage) -> Stage:
        if isinstance(tensor, Stage):
            return tensor
        op = tensor.op if isinstance(tensor, Tensor) else tensor
        try:
            return self._stage_of[op]
        except (KeyError, TypeError):
            names = ", ".join(stage.name for stage in self.stages)
            raise KeyError(f"{op!r} is not part of this schedule; there are {names}") from None

    def changed(self) -> None:
        """Drop the results that were computed from the steps so far."""
        self._cached = None

    def _new_stage(self, op: ComputeOp, beside: Stage, after: bool) -> Stage:
        stage = Stage(self, op)
        self.stages.insert(self.stages.index(beside) + after, stage)
        self._stage_of[op] = stage
        self.changed()
        return stage

    def cache_write(self, tensor: Tensor, scope: str) -> Tensor:
        """Compute ``tensor`` into memory of ``scope`` first; its own stage becomes a copy. Returns the new tensor.

        The new stage has axes of its own and the reduction's; the old one keeps ``tensor.op.axis``.
        """
        stage = self[tensor]
        op = stage.op
        if not isinstance(op, ComputeOp) or op.num_outputs != 1:
            raise ScheduleError(f"cache_write: {op.name} is not a computation of one tensor")
        for record in stage.records:
            if any(a.kind == IterVar.REDUCE for a in record.axes):
                raise ScheduleError(
                    f"cache_write: {op.name}'s reduction was scheduled already, at {record.line}",
                    hint="call cache_write first, then schedule the reduction on the new stage",
                )
        axis = tuple([IterVar(iv.dom, Var(f"{iv.var.name}.c", iv.var.dtype), iv.kind) for iv in op.axis])
        cached = ComputeOp(f"{op.name}.{scope}", axis, op.body, op.tag, op.attrs, op.requires)
        copy = ComputeOp(op.name, op.axis, (ProducerLoad(cached.output(0), tuple([iv.var for iv in op.axis])),))
        new = self._new_stage(cached, stage, after=False)
        stage.op = copy
        stage.leaf_iter_vars = [a for a in stage.leaf_iter_vars if a.kind != IterVar.REDUCE]
        self._stage_of[copy] = stage
        self._added.append(("cache_write", stage, (new, scope, caller())))
        return cached.output(0)

    def cache_read(self, tensor: Tensor, scope: str, readers: Sequence[Any] | Any) -> Tensor:
        """Copy ``tensor`` to memory of ``scope``, from where ``readers`` (tensors or operations) read it."""
        stage = self[tensor]
        many: Sequence[Any] = readers if isinstance(readers, (list, tuple)) else [readers]
        which = [self[r] for r in many]
        if not which:
            raise ValueError("cache_read: no readers")
        axis = tuple([IterVar(Range.from_extent(e), Var(f"ax{n}", e.dtype)) for n, e in enumerate(tensor.shape)])
        copy = ComputeOp(f"{tensor.name}.{scope}", axis, (ProducerLoad(tensor, tuple([iv.var for iv in axis])),))
        new = self._new_stage(copy, stage, after=True)
        self._added.append(("cache_read", stage, (new, scope, which, caller())))
        return copy.output(0)

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Split a reduction into one partial result per value of ``axis``, kept as dimension ``factor_axis`` of the new
        tensor. The stage of ``tensor`` then reduces over that dimension.

        ``axis`` is a loop of the reduction; the other loops of the reduction stay in the new stage.
        """
        stage = self[tensor]
        op = stage.op
        place = stage._position("rfactor", axis)
        if axis.kind != IterVar.REDUCE or not isinstance(op.body[0] if isinstance(op, ComputeOp) else None, Reduce):
            raise ScheduleError(f"rfactor: {axis.var.name} is not a loop of a reduction")
        for record in stage.records:
            if record.step != "split" or record.axes[0].kind != IterVar.REDUCE:
                raise ScheduleError(
                    f"rfactor: {op.name} was scheduled already, at {record.line}",
                    hint="split the reduction's axis, call rfactor, then schedule both stages",
                )
        if not -len(op.axis) - 1 <= factor_axis <= len(op.axis):
            raise ValueError(f"rfactor: factor_axis={factor_axis} for {len(op.axis)} dimensions")
        position = factor_axis % (len(op.axis) + 1)
        assert isinstance(op, ComputeOp)
        fresh = [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.kind) for iv in op.axis]
        fresh.insert(position, IterVar(axis.dom, Var(axis.var.name, axis.var.dtype)))
        rest = [a for n, a in enumerate(stage.leaf_iter_vars) if n != place and a.kind == IterVar.REDUCE]
        partial = _Axes(f"{op.name}.rf", tuple(fresh), tuple(rest), op)
        summed = IterVar(axis.dom, Var(f"{axis.var.name}.v", axis.var.dtype), IterVar.REDUCE)
        final = _Axes(op.name, op.axis, (summed,), op)
        before = list(stage.records)
        new = self._new_stage(partial, stage, after=False)
        stage.reset(final)
        self._stage_of[final] = stage
        self._added.append(("rfactor", stage, (new, before, axis, position, caller())))
        return partial.output(0)

    # results

    @property
    def schedule(self) -> BlockSchedule:
        """Returns the block schedule, of a function of all inputs (in the order of first use) and the outputs."""
        if self._cached is None:
            inputs = [op.output(0) for op in self._original if isinstance(op, PlaceholderOp)]
            self._cached = self.to_schedule([*inputs, *[t for op in self.outputs for t in op.outputs]])
        return self._cached

    @property
    def func(self) -> PrimFunc:
        """Returns the scheduled function."""
        return self.schedule.func

    @property
    def mod(self) -> IRModule:
        """Returns the scheduled function in a module."""
        return self.schedule.mod

    def prim_func(self, args: Sequence[Tensor | Var], name: str = "main") -> PrimFunc:
        """Returns the scheduled function with these parameters."""
        return self.to_schedule(args, name).func

    def to_schedule(self, args: Sequence[Tensor | Var], name: str = "main") -> BlockSchedule:
        """Returns the block schedule of a function with these parameters. ScheduleError names the classic step that
        does not apply, and the line it is on."""
        return Applier(self._roots, self.stages, self._added, args, name).run()

    def normalize(self) -> Schedule:
        """Returns this schedule; loops start at 0 anyway."""
        return self


class _Axes(ComputeOp):
    """An operation that only holds the axes of the stage that ``rfactor`` leaves."""

    __slots__ = ()

    def __init__(self, name: str, axis: tuple[IterVar, ...], reduce_axis: tuple[IterVar, ...], like: ComputeOp) -> None:
        ComputeOp.__init__(self, name, axis, like.body, like.tag, like.attrs)
        self.reduce_axis = reduce_axis


_STRUCTURE = ("split", "fuse", "reorder")


class Applier:
    """Applies the steps of a classic schedule to a fresh function."""

    def __init__(
        self,
        roots: Mapping[Operation, Stage],
        stages: Sequence[Stage],
        added: Sequence[tuple[str, Stage, Any]],
        args: Sequence[Tensor | Var],
        name: str,
    ) -> None:
        self.roots, self.stages, self.added = roots, stages, added
        func, blocks = lower_with_blocks(args, name)
        self.sch: Any = BlockSchedule(func)
        self.params: dict[Any, Var] = dict(zip(args, func.params, strict=False))
        self.block: dict[Stage, str] = {}
        for op, names in blocks.items():
            stage = roots.get(op)
            if stage is None:
                raise ValueError(f"{op.name} is computed for the arguments but is not part of the schedule")
            self.block[stage] = names[0]
        self.loop: dict[IterVar, Var] = {}

    def run(self) -> BlockSchedule:
        for kind, stage, what in self.added:
            getattr(self, kind)(stage, *what)
        for stage in self.stages:
            if stage.inlined:
                self.step(f"s[{stage.name}].compute_inline", stage.attach_line, self.sch.compute_inline, self.rv(stage))
        scheduled = [s for s in self._consumers_first() if not s.inlined and s in self.block]
        for stage in scheduled:
            self.place(stage)
            for record in stage.records:
                if record.step in _STRUCTURE:
                    self.apply(stage, record)
        for stage in scheduled:
            for record in stage.records:
                if record.step not in _STRUCTURE:
                    self.apply(stage, record)
            if stage.scope is not None:
                text = f"s[{stage.name}].set_scope({stage.scope})"
                method = self.method("set_scope", text, stage.attach_line)
                self.step(text, stage.attach_line, method, self.rv(stage), 0, stage.scope)
            for dim, factor, offset, line in stage.alignments:
                text = f"s[{stage.name}].storage_align"
                self.step(text, line, self.sch.storage_align, self.rv(stage), 0, dim, factor, offset)
        out: BlockSchedule = self.sch
        return out

    def _consumers_first(self) -> list[Stage]:
        """Returns the stages in reverse order of their operations; a stage follows the one that it is attached to."""
        out: list[Stage] = []

        def put(stage: Stage, below: tuple[Stage, ...]) -> None:
            if stage in out:
                return
            if stage in below:
                raise ScheduleError(f"s[{stage.name}].compute_at: the stages are attached to each other in a circle")
            if stage.attach is not None:
                put(stage.attach[0], (*below, stage))
            out.append(stage)

        for stage in reversed(self.stages):
            put(stage, ())
        return out

    def rv(self, stage: Stage) -> BlockRV:
        if stage not in self.block:
            raise ScheduleError(f"s[{stage.name}]: {stage.name} is an input, it is not computed")
        return BlockRV(self.block[stage])

    def method(self, name: str, text: str, line: str) -> Any:
        """Returns the primitive ``name``; ScheduleError when there is none yet."""
        method = getattr(self.sch, name, None)
        if method is None:
            raise ScheduleError(f"{text} ({line}): the schedule layer has no {name}")
        return method

    def step(self, text: str, line: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a primitive; an error names the classic step."""
        try:
            return method(*args, **kwargs)
        except ScheduleError as error:
            at = f" ({line})" if line else ""
            raise type(error)(
                f"{text}{at}: {error.problem}",
                where=error.where,
                hint=error.hint,
                primitive=error.primitive,
                func=error.func,
            ) from None

    # stages that are added

    def cache_write(self, stage: Stage, new: Stage, scope: str, line: str) -> None:
        copy = self.step(f"s.cache_write({stage.name})", line, self.sch.cache_write, self.rv(stage), 0, scope)
        self.block[new], self.block[stage] = self.block[stage], copy.name

    def cache_read(self, stage: Stage, new: Stage, scope: str, readers: Sequence[Stage], line: str) -> None:
        names = [self.rv(r).name for r in readers]
        first = self.realize(names[0])
        number = next((n for n, r in enumerate(first.block.reads) if r.buffer is self.buffer(stage)), None)
        if number is None:
            raise ScheduleError(f"s.cache_read ({line}): {readers[0].name} does not read {stage.name}")
        copy = self.step(
            f"s.cache_read({stage.name})", line, self.sch.cache_read, BlockRV(names[0]), number, scope, names
        )
        self.block[new] = copy.name

    def rfactor(
        self, stage: Stage, new: Stage, before: Sequence[Record], axis: IterVar, position: int, line: str
    ) -> None:
        block = self.block[stage]
        original: list[IterVar] = [*self._axes_before(stage, before)]
        self._bind(block, original, {})
        for record in before:
            self.apply(stage, record)
        target = self.loop[axis]
        place = self.sch.get_loops(self.rv(stage)).index(target)
        partial = self.step(f"s.rfactor({stage.name})", line, self.sch.rfactor, target, position)
        # The loops of the partial stage are those of the reduction, in the same order.
        self.block[new] = partial.name
        realize = self.realize(partial.name)
        loops = self.sch.get_loops(partial)
        kinds = dict(zip(realize.iter_values, realize.block.iter_vars, strict=True))
        spatial = [v for v in loops if v in kinds and kinds[v].kind == IterVar.SPATIAL]
        reduce = [v for v in loops if v not in spatial]
        factored = loops[place]
        spatial.remove(factored)
        spatial.insert(position, factored)
        self._fresh(new, [*spatial, *reduce])
        loops = self.sch.get_loops(self.rv(stage))
        realize = self.realize(self.block[stage])
        kinds = dict(zip(realize.iter_values, realize.block.iter_vars, strict=True))
        self._fresh(stage, sorted(loops, key=lambda v: v in kinds and kinds[v].kind == IterVar.REDUCE))

    def _axes_before(self, stage: Stage, before: Sequence[Record]) -> list[IterVar]:
        origin = next(op for op, s in self.roots.items() if s is stage)
        return [*origin.axis, *origin.reduce_axis]

    def _fresh(self, stage: Stage, loops: Sequence[Var]) -> None:
        for iv, loop in zip([*stage.op.axis, *stage.op.reduce_axis], loops, strict=True):
            self.loop[iv] = loop

    def buffer(self, stage: Stage) -> Any:
        """Returns the buffer that a stage writes, or that an input is."""
        if stage in self.block:
            return self.realize(self.block[stage]).block.writes[0].buffer
        return self.sch.func.buffer_map[self.params[stage.op.output(0)]]

    def realize(self, block: str) -> BlockRealize:
        return find_block(tree_of(self.sch.func), block)

    # a stage's place and loops

    def place(self, stage: Stage) -> None:
        outer: list[Var] = []
        if stage.attach is not None:
            parent, axis = stage.attach
            if axis not in self.loop:
                raise ScheduleError(f"s[{stage.name}].compute_at ({stage.attach_line}): {parent.name} has no such loop")
            at = self.loop[axis]
            text = f"s[{stage.name}].compute_at(s[{parent.name}], {axis.var.name})"
            self.step(text, stage.attach_line, self.sch.compute_at, self.rv(stage), at, preserve_unit_loops=True)
            above = self.sch.get_loops(self.rv(stage))
            outer = above[: above.index(at) + 1]
        elif all(iv in self.loop for iv in (*stage.op.axis, *stage.op.reduce_axis)):
            return  # rfactor has bound them
        if isinstance(stage.op, ComputeOp):
            self._bind(self.block[stage], [*stage.op.axis, *stage.op.reduce_axis], set(outer))

    def _bind(self, block: str, axes: Sequence[IterVar], outer: Any) -> None:
        """Find the loop of each axis: the block's own loop in the binding of the block's axis."""
        realize = self.realize(block)
        values: Sequence[Expr] = realize.iter_values
        own = [v for v in self.sch.get_loops(BlockRV(block)) if v not in outer]
        if isinstance(realize.block.iter_vars, tuple) and len(values) == len(axes) + 1 and not axes:
            return  # a tensor of rank 0
        order = self._block_order(realize, axes)
        for iv, value in zip(order, values, strict=True):
            mine = [v for v in own if v in vars_in(value)]
            if len(mine) > 1:
                raise ScheduleError(f"axis {iv.var.name} runs over several loops: {', '.join(v.name for v in mine)}")
            self.loop[iv] = mine[0] if mine else self.sch.add_unit_loop(BlockRV(block))

    @staticmethod
    def _block_order(realize: BlockRealize, axes: Sequence[IterVar]) -> list[IterVar]:
        """Returns ``axes`` in the order of the block's axes: by kind, which is all that rfactor changes."""
        spatial = [a for a in axes if a.kind != IterVar.REDUCE]
        reduce = [a for a in axes if a.kind == IterVar.REDUCE]
        return [(reduce if b.kind == IterVar.REDUCE else spatial).pop(0) for b in realize.block.iter_vars]

    def apply(self, stage: Stage, record: Record) -> None:
        loops = [self.loop[a] for a in record.axes]
        names = ", ".join(a.var.name for a in record.axes)
        text = f"s[{stage.name}].{'pragma' if record.step == 'annotate' else record.step}({names})"
        if record.step == "split":
            out = self.step(text, record.line, self.sch.split, loops[0], list(record.values))
        elif record.step in ("fuse", "reorder"):
            out = self.step(text, record.line, getattr(self.sch, record.step), *loops)
        elif record.step == "tensorize":
            self.tensorize(text, record.line, stage, loops[0], record.values[0])
            return
        else:
            out = self.step(text, record.line, self.method(record.step, text, record.line), *loops, *record.values)
        made = out if isinstance(out, (list, tuple)) else [out]
        for iv, loop in zip(record.outputs, made, strict=False):
            self.loop[iv] = loop

    def tensorize(self, text: str, line: str, stage: Stage, loop: Var, intrin: str | TensorIntrin) -> None:
        """Replace a stage's loop by an intrinsic. The init of a reduction becomes a nest of its own before it: where
        the reduction begins, or directly before the intrinsic when that computes all of the reduction."""
        realize = self.realize(self.rv(stage).name)
        if realize.block.init is not None:
            own = self.sch.get_loops(self.rv(stage))
            reduced = [
                v
                for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)
                if iv.kind == IterVar.REDUCE
            ]
            carries = [v for v in own if any(v in vars_in(e) for e in reduced)]
            first = min([own.index(v) for v in (*carries, loop)])
            self.step(text, line, self.sch.decompose_reduction, self.rv(stage), own[first])
        block = self.step(text, line, self.sch.blockize, loop)
        self.step(text, line, self.sch.tensorize, block, intrin)
        self.block[stage] = block.name


def lower(
    inputs: Any, args: Sequence[Any] | None = None, name: str = "main", simple_mode: bool = False
) -> IRModule:  # fmt: skip
    """Returns the module of one function that ``inputs`` computes, as scheduled. ``simple_mode`` changes nothing: the
    text is always short. ``tilewright.codegen.lower`` shows what code is made from."""
    func = request(inputs, args).func
    return IRModule({name: func.with_attr("global_symbol", name)})
