"""This module tells which steps of a trace use primitives, tensor intrinsics or reducers that the program
registered."""

from __future__ import annotations

from typing import Any

from ..tir.reducers import REDUCERS
from .primitive import REGISTRY
from .tensor_intrin import TensorIntrin
from .trace import Trace

_PACKAGE = __name__.partition(".")[0]


def needs_additions(trace: Trace) -> bool:
    """Return whether replaying ``trace`` may need registrations that exist in this process alone."""
    if any(_added(reducer.combine) for reducer in REDUCERS):
        return True
    added = TensorIntrin.added()
    for inst in trace.insts:
        step = REGISTRY.get(inst.name)
        if step is not None and _added(step.function):
            return True
        if any(isinstance(value, str) and value in added for value in inst.attrs.values()):
            return True
    return False


def _added(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] != _PACKAGE
