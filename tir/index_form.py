"""This module gives functions the index types that they need; :mod:`.index_width` knows how, and registers itself."""

from __future__ import annotations

from collections.abc import Callable

from .expr import DType
from .stmt import PrimFunc

_form: list[tuple[Callable[[PrimFunc], PrimFunc], Callable[[PrimFunc, DType], PrimFunc]]] = []


def set_index_form(widen: Callable[[PrimFunc], PrimFunc], retype: Callable[[PrimFunc, DType], PrimFunc]) -> None:
    """Set what :func:`widened` and :func:`retyped` call."""
    _form[:] = [(widen, retype)]


def widened(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with 64-bit indices where int32 does not hold them, else the same object."""
    return _form[0][0](func) if _form else func


def retyped(func: PrimFunc, dtype: DType) -> PrimFunc:
    """Return ``func`` with sizes, loops and indices of one type."""
    if not _form:
        raise NotImplementedError("nothing here changes index types")
    return _form[0][1](func, dtype)
