"""This package generates machine code from scheduled functions.

:func:`lower` runs the passes of :mod:`.lower`. :func:`compile` also generates code through :mod:`.llvm` and returns a
:class:`Module`, which is callable on NumPy arrays and on objects with DLPack, holds its sources, and has
:meth:`Module.export`. A :class:`Target` describes the machine. :mod:`.runtime` supports the compiled code: thread pool,
scratch memory, argument checks, timing.

It is the way to code for processors. Kernels for GPUs (``tilewright.gpu``), circuits (``tilewright.circuits``) and MLIR
(``tilewright.mlir``) stand beside it, and load when a target or a back end of theirs is first used.

The emitted function has the C signature ``int32_t NAME(<params>)``: a pointer per buffer, a scalar per scalar parameter, then one
``int64_t`` per symbolic size that is not a parameter, in order of first appearance. 0 means success, n > 0 that assertion n failed, -1 that
there was no scratch memory, -3 that an array is NULL. Only ``lowered.abi_of`` decides the parameters; emitters, calls and the C header use it.
A module of several functions is one object with distinct symbols. Kinds of targets that compile in a way of their own stand in
:mod:`.late_tables`; :func:`compile` asks that table first.
"""

from .compile import compile
from .fat_library import export_fat
from .late_tables import Backend, TargetKind, register_backend, register_target_kind
from .llvm.jit import JITError
from .lower import lower
from .lowered import LoweredFunc, Param, abi_of
from .machine.target import Target
from .machine.target_text import TargetError
from .object_cache import CODEGEN_VERSION
from .runtime.arguments import ArgumentError
from .runtime.export import ExportError
from .runtime.module import BoundCall, Function, Module, TimingResult

__all__ = [
    "CODEGEN_VERSION",
    "ArgumentError",
    "Backend",
    "BoundCall",
    "ExportError",
    "Function",
    "JITError",
    "LoweredFunc",
    "Module",
    "Param",
    "Target",
    "TargetError",
    "TargetKind",
    "TimingResult",
    "abi_of",
    "compile",
    "export_fat",
    "lower",
    "register_backend",
    "register_target",
    "register_target_kind",
]

register_target = register_target_kind
"""The name by which packages of the entry point ``tilewright.targets`` add a kind of target."""
