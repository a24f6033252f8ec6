"""``tvm.script.parser``: the same words under their newer place."""

from __future__ import annotations

from ...tir import script as tir  # noqa: F401
from ...tir.script import ir as ir
from ...tir.script import ir_module as ir_module
