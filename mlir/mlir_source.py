"""This module is the back end ``mlir`` of modules: scheduled functions as ``scf``, ``memref``, ``vector`` and
``arith``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.backend.registry import Backend
from ..codegen.lowered import LoweredFunc
from .words.mlir_error import require_xdsl


def with_xdsl() -> Any:
    """Returns the module that makes modules of MLIR. MlirError when xDSL is not installed."""
    require_xdsl()
    from . import mlir_modules

    return mlir_modules


def emit_mlir(functions: Sequence[LoweredFunc]) -> str:
    """Returns scheduled functions as MLIR: their loops over vectors, lowered less far than for machine code."""
    from .mlir_passes import lowered_for_mlir

    lowered = [
        (lowered_for_mlir(f.scheduled, f.target) if f.scheduled is not None else f.func).with_attr(
            "global_symbol", f.name
        )
        for f in functions
    ]
    return str(with_xdsl().loop_module(lowered)) + "\n"


MLIR = Backend("mlir", ".mlir", emit_mlir)
"""The back end ``mlir`` of modules."""
