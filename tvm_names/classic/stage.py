"""A stage of a classic te schedule records the steps on one operation's loops, in order.

Axes are :class:`IterVar` objects as in TVM: ``s[C].op.axis[0]``, what ``split`` and ``fuse`` return. A stage keeps the
list of its current loops (``leaf_iter_vars``), so that a step on an axis that no longer exists is refused at once, and
records the step; :mod:`.create_schedule` applies the records to a :class:`tilewright.schedule.Schedule`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...schedule import ScheduleError, TensorIntrin
from ...te.operation import ComputeOp, Operation
from ...te.tensor import Tensor
from ...tir.expr import Expr, IntImm, IterVar, Range, Var, ceildiv, const, convert

if TYPE_CHECKING:
    from .create_schedule import Schedule

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
                from .. import module_finders

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
