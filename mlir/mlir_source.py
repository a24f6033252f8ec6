"""This module is the back end ``mlir`` of modules: scheduled functions as ``scf``, ``memref``, ``vector`` and
``arith``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..codegen.backend.emitter import expand_dot
from ..codegen.late_tables import Backend
from ..codegen.lower.pipeline import PASSES, Pass, run_passes
from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..tir.expr import Call, Expr
from ..tir.expr.intrinsics.number_operations import DOT_PRODUCTS, FIXED_POINT, fixed_point_steps
from ..tir.stmt import PrimFunc
from ..tir.walk import transform
from .mlir_error import require_xdsl


def with_xdsl() -> Any:
    """Returns the module that makes modules of MLIR. MlirError when xDSL is not installed."""
    require_xdsl()
    from . import mlir_modules

    return mlir_modules


def emit_mlir(functions: Sequence[LoweredFunc]) -> str:
    """Returns scheduled functions as MLIR: their loops over vectors, lowered less far than for machine code."""
    lowered = [
        (lowered_for_mlir(f.scheduled, f.target) if f.scheduled is not None else f.func).with_attr(
            "global_symbol", f.name
        )
        for f in functions
    ]
    return str(with_xdsl().loop_module(lowered)) + "\n"


# The lowering of scheduled functions for MLIR: loops over vectors, with calls and half floats as they are.


_DOTS = {f"tir.{name}" for name in DOT_PRODUCTS}


def _written_out(func: PrimFunc, _: Target) -> PrimFunc:
    """Write operations on fixed-point numbers and dot products out; MLIR has none."""

    def steps(n: object) -> Expr | None:
        if not isinstance(n, Call):
            return None
        return fixed_point_steps(n) if n.op in FIXED_POINT else expand_dot(n) if n.op in _DOTS else None

    return transform(func, post=steps)


_KEPT = (
    "unify_indices", "drop_assumptions", "serialize_vector_loops", "place_init", "flatten_blocks", "check_accesses", "compact_buffers", "lower_storage_types",
    "remove_unit_loops", "legalize_vector_loops", "split_unroll_factors", "cut_idle_iterations", "simplify",
    "choose_unrolled", "lower_horizontal", "vectorize_loops", "unroll_loops",
)  # fmt: skip
MLIR_PASSES: tuple[Pass, ...] = (
    *[p for p in PASSES if p.name in _KEPT],
    Pass("written_out", _written_out, frozenset(FIXED_POINT | _DOTS)),
)
"""The passes whose work MLIR's own passes do not do; registers and mathematical functions are theirs."""


def lowered_for_mlir(func: PrimFunc, target: Target) -> PrimFunc:
    """Returns the loops of a scheduled function. What it warns of unread annotations is left to other lowering."""
    return run_passes(func, target, MLIR_PASSES)


MLIR = Backend("mlir", ".mlir", emit_mlir)
"""The back end ``mlir`` of modules."""
