"""This module is the ``I`` of TVMScript, the vocabulary of modules of functions.

from tilewright.tir.script import ir as I

@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((16,), "float32")):
        ...
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .decorators import MODULE_ATTRS, ir_module

__all__ = ["ir_module", "module_attrs"]


def module_attrs(attrs: Mapping[str, Any]) -> None:
    """Set attributes of the module; this is called in the class body."""
    sys._getframe(1).f_locals[MODULE_ATTRS] = dict(attrs)
