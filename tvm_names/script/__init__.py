"""``tvm.script``: the words of programs written by hand, ``T`` and ``I``."""

from __future__ import annotations

from ...tir import parse as from_source  # noqa: F401
from ...tir import script as tir  # noqa: F401
from ...tir.script import ir as ir
from ...tir.script import ir_module as ir_module
