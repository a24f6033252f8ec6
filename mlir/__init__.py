"""This package writes programs as MLIR, and reads MLIR, through the package xdsl, which loads when it is needed.

:func:`to_linalg` writes functions as te makes them: ``linalg`` on tensors. :func:`to_loops` writes scheduled functions:
``scf``, ``memref``, ``vector``, ``arith`` and ``math``. :func:`read_mlir` reads both. :mod:`.mlir_types` and
:mod:`.operation_table`, with one row for an operation, have what both directions share; each form has a reader and a writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.machine.target import Target
from ..tir.stmt import PrimFunc
from .mlir_error import MlirError
from .mlir_source import MLIR, emit_mlir, lowered_for_mlir, with_xdsl

__all__ = ["MLIR", "MlirError", "emit_mlir", "read_mlir", "to_linalg", "to_loops"]


def to_linalg(functions: Sequence[PrimFunc], named: bool = False) -> Any:
    """Returns a module of xDSL with functions on tensors. MlirError names the block that linalg cannot express.

    ``named``: with ``matmul``, ``reduce`` and others where a block is exactly one of these, instead of ``generic``.
    """
    return with_xdsl().linalg_module(functions, named)


def to_loops(functions: Sequence[PrimFunc], target: Target) -> Any:
    """Returns a module of xDSL with scheduled functions as loops over memory, with vectors as wide as the target's."""
    return with_xdsl().loop_module([lowered_for_mlir(f, target) for f in functions])


def read_mlir(source: Any, blocks: bool | None = None) -> list[PrimFunc]:
    """Returns the functions of MLIR's text, or of a module of xDSL; ``blocks`` is that of :func:`.mlir_modules.read_functions`."""
    found: list[PrimFunc] = with_xdsl().read_functions(source, blocks)
    return found
