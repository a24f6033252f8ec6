"""A schedule changes how a function computes, one proven step at a time, and never what it computes.

:class:`Schedule` applies primitives (split, fuse, reorder, compute_at, …; one function each in :mod:`.primitives`) to a
function and keeps the :class:`Trace` of them. A step that cannot be proven legal raises :class:`ScheduleError`.
Primitives ask the analyses of :mod:`tilewright.tir.analysis`, state what they need with :mod:`.require`, and rewrite with
:mod:`.edit`.
"""

from ..tir.expr.reducers import register_reducer
from . import primitives as _primitives  # noqa: F401  (registers them)
from .errors import ScheduleError
from .handles import BlockRV, ExprRV, LoopRV
from .instruction import Instruction, TraceError
from .primitive import primitive
from .schedule import Schedule
from .tensor_intrin import TensorIntrin
from .trace import Trace
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
