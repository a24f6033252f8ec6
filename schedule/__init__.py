"""A schedule changes how a function computes, one proven step at a time, and never what it computes.

:class:`Schedule` applies primitives (split, fuse, reorder, compute_at, …; one function each in :mod:`.primitives`) to a
function and keeps the :class:`Trace` of them. A step that cannot be proven legal raises :class:`ScheduleError`.
Primitives ask the analyses of :mod:`tilewright.tir.analysis`, state what they need with :mod:`.require`, and rewrite with
:mod:`.edit`.

A loop's handle is its loop variable; a block's handle is ``BlockRV(name)``. A primitive is a function whose first argument is the
PrimFunc and which returns the new PrimFunc and the handles of what it made; ``@primitive`` makes it a method of :class:`Schedule`,
which knows only the registry. A primitive says what it requires, then rewrites, and imports no other primitive. A trace refers to blocks by
name, and to the buffers of a block by number; ``retarget`` (:mod:`.trace_renaming`) translates it into the names of another program of
the same structure. A :class:`TensorIntrin` is a description and an implementation, both PrimFuncs, by name.
"""

from ..tir.expr.reducers import register_reducer
from . import primitives as _primitives  # noqa: F401  (registers them)
from .errors import ScheduleError
from .handles import BlockRV, ExprRV, LoopRV
from .primitive import primitive
from .schedule import Schedule
from .tensor_intrin import TensorIntrin
from .trace import Instruction, Trace, TraceError
from .trace_renaming import retarget

__all__ = [
    "BlockRV",
    "ExprRV",
    "Instruction",
    "LoopRV",
    "Schedule",
    "ScheduleError",
    "TensorIntrin",
    "Trace",
    "TraceError",
    "primitive",
    "register_reducer",
    "retarget",
]
