"""This module gives functions the index types that they need; :mod:`.index_width` knows how, and registers itself."""

from __future__ import annotations

from collections.abc import Callable

from .expr import DType
from .expr.base.slot import Slot
from .stmt import PrimFunc


def _no_types(func: PrimFunc, dtype: DType) -> PrimFunc:
    raise NotImplementedError("nothing here changes index types")


WIDEN: Slot[Callable[[PrimFunc], PrimFunc]] = Slot(lambda func: func)
RETYPE: Slot[Callable[[PrimFunc, DType], PrimFunc]] = Slot(_no_types)
"""What :func:`widened` and :func:`retyped` call; :mod:`.index_width` sets them."""


def widened(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with 64-bit indices where int32 does not hold them, else the same object."""
    return WIDEN.value(func)


def retyped(func: PrimFunc, dtype: DType) -> PrimFunc:
    """Return ``func`` with sizes, loops and indices of one type."""
    return RETYPE.value(func, dtype)
