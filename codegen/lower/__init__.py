"""Lowering: from a scheduled function of blocks to loops over vectors and register values.

Each pass is one file and takes a PrimFunc to a PrimFunc; :data:`.pipeline.PASSES` is their order.
"""

from __future__ import annotations

from typing import Any

from ...tir.function import PrimFunc
from ..lowered import LoweredFunc, abi_of
from ..target import Target
from .pipeline import PASSES, Pass, PassReport, run_passes

__all__ = ["PASSES", "Pass", "PassReport", "lower", "run_passes"]


def lower(
    func_or_schedule: Any, target: Target | str = "native", name: str | None = None, **options: Any
) -> LoweredFunc:
    """Run all passes on a PrimFunc (or on a Schedule's function).

    ``options`` are :func:`run_passes`'s: ``show``, ``check``, ``report``. Returns the function, its C parameters and
    its name, ready for code generation.
    """
    func = func_or_schedule if isinstance(func_or_schedule, PrimFunc) else func_or_schedule.func
    chosen = target if isinstance(target, Target) else Target(target)
    lowered = run_passes(func, chosen, **options)
    return LoweredFunc(lowered, name or func.name, chosen, abi_of(func), func)
