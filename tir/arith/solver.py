"""This module says whether a solver may be asked where the analyzer's rules cannot decide, and asks it.

The solver registers itself with :func:`set_solver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..expr import Expr

if TYPE_CHECKING:
    from .analyzer import Analyzer

_ON: ContextVar[bool] = ContextVar("solver", default=False)
_SOLVER: list[tuple[Callable[[], Any], Callable[[Analyzer, Expr], bool]]] = []


def set_solver(load: Callable[[], Any], proves: Callable[[Analyzer, Expr], bool]) -> None:
    """Set the solver: ``load`` raises ImportError when its package is missing, ``proves`` says whether a condition is never
    false."""
    _SOLVER[:] = [(load, proves)]


@contextmanager
def solving(on: bool = True) -> Iterator[None]:
    """Let the analyzer ask the solver inside the ``with``. ImportError when it is not installed."""
    if on:
        if not _SOLVER:
            raise ImportError("no solver is registered")
        _SOLVER[0][0]()
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
    return _ON.get() and _SOLVER[0][1](analyzer, condition)
