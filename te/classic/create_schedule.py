"""This module has TVM's classic schedules: ``s = te.create_schedule(C.op)``, then ``s[C].split(…)`` and other steps.

A thin layer over :class:`tilewright.schedule.Schedule`. A classic program may give its steps in any order (it may split
a stage before or after attaching it elsewhere). So the steps are collected, and :mod:`.apply_stages` applies them when
the result is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...pages.short_repr import short_repr
from ...schedule import Schedule as BlockSchedule
from ...schedule import ScheduleError
from ...tir.expr import IterVar, Range, Reduce, Var
from ...tir.stmt import IRModule, PrimFunc
from ..operation import ComputeOp, Operation, PlaceholderOp, ordered_operations
from ..scan import with_bodies
from ..tensor import ProducerLoad, Tensor
from .apply_stages import Applier
from .stage import Stage, caller


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
