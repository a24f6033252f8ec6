"""From a scheduled function to machine code, to the limit of the machine.

:func:`lower` runs the passes of :mod:`.lower`, :func:`compile` goes on through :mod:`.llvm` to a :class:`Module`:
callable on NumPy arrays and anything with DLPack, with its sources and :meth:`Module.export`. A :class:`Target` says
which machine. :mod:`.runtime` is what runs beside the code: thread pool, scratch memory, argument checks, timing.
"""

from .compile import compile
from .cpu_features import TargetError
from .export import ExportError
from .llvm.jit import JITError
from .lower import lower
from .lowered import LoweredFunc, Param, abi_of
from .runtime.argument_checks import ArgumentError
from .runtime.module import BoundCall, Function, Module
from .runtime.timing import TimingResult
from .target import Target
from .version import CODEGEN_VERSION

__all__ = [
    "CODEGEN_VERSION",
    "ArgumentError",
    "BoundCall",
    "ExportError",
    "Function",
    "JITError",
    "LoweredFunc",
    "Module",
    "Param",
    "Target",
    "TargetError",
    "TimingResult",
    "abi_of",
    "compile",
    "lower",
]
