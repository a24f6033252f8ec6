"""Lowers scheduled functions of blocks to loops over vectors and register values.

Each pass maps a PrimFunc to a PrimFunc; :data:`.pipeline.PASSES` is their order.

What passes share has files of its own: :mod:`.scoped_transform` is a walk that knows the loops, values of variables and
conditions around a statement; others are :mod:`.lanes`, :mod:`.tile_accesses` and :mod:`.loop_annotations`. A row of the pipeline says what a program must contain for the pass to have something to do; other programs
skip it.
"""

from __future__ import annotations

from typing import Any, overload

from ...tir.stmt import PrimFunc
from ..lowered import LoweredFunc, functions_of
from ..machine.target import Target
from .pipeline import PASSES, PLAIN_PASSES, Pass, PassReport, run_passes

__all__ = ["PASSES", "PLAIN_PASSES", "Pass", "PassReport", "lower", "run_passes"]


@overload
def lower(
    func_or_schedule: PrimFunc, target: Target | str = "native", name: str | None = None, **options: Any
) -> LoweredFunc: ...


@overload
def lower(func_or_schedule: Any, target: Target | str = "native", name: str | None = None, **options: Any) -> Any: ...


def lower(func_or_schedule: Any, target: Target | str = "native", name: str | None = None, **options: Any) -> Any:
    """Run all passes on a PrimFunc, or on the functions of a Schedule or an IRModule.

    ``options`` are :func:`run_passes`'s: ``show``, ``check``, ``report``. Returns the function, its C parameters and
    its name, ready for code generation; for a module of several functions, those by name. TypeError for anything else,
    ValueError for a ``name`` of several functions.
    """
    chosen = Target.of(target)
    if isinstance(func_or_schedule, PrimFunc):
        func = func_or_schedule
        return LoweredFunc.of(run_passes(func, chosen, **options), chosen, name or func.name, func)
    functions = functions_of(func_or_schedule)
    if functions is None or not functions:
        what = "a module without functions" if functions is not None else type(func_or_schedule).__name__
        raise TypeError(f"cannot lower {what}; a PrimFunc, a Schedule or an IRModule is needed")
    if len(functions) == 1:
        return lower(next(iter(functions.values())), chosen, name, **options)
    if name is not None:
        raise ValueError(f"a name for {len(functions)} functions; they keep their own")
    return {key: lower(one, chosen, **options) for key, one in functions.items()}
