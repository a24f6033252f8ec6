"""This module says whether a solver may be asked where the analyzer's rules cannot decide, and asks it.

The solver registers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..expr import Expr
from ..expr.base.slot import Slot

if TYPE_CHECKING:
    from .analyzer import Analyzer

_ON: ContextVar[bool] = ContextVar("solver", default=False)


def _no_solver() -> Any:
    raise ImportError("no solver is registered")


LOAD: Slot[Callable[[], Any]] = Slot(_no_solver)
"""Loads the solver's package; ImportError when it is missing."""

PROVES: Slot[Callable[[Analyzer, Expr], bool]] = Slot(lambda analyzer, condition: False)
"""Says whether the solver proves that a condition is never false."""


@contextmanager
def solving(on: bool = True) -> Iterator[None]:
    """Let the analyzer ask the solver inside the ``with``. ImportError when it is not installed."""
    if on:
        LOAD.value()
    token = _ON.set(on)
    try:
        yield
    finally:
        _ON.reset(token)


def is_solving() -> bool:
    """Return whether the analyzer may ask the solver. Stored proofs must be kept apart for the two cases."""
    return _ON.get()


def solver_proves(analyzer: Analyzer, condition: Expr) -> bool:
    """Return whether the solver is on and proves that ``condition`` is never false."""
    return _ON.get() and PROVES.value(analyzer, condition)
