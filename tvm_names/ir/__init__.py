"""``tvm.ir``: modules of functions, and comparisons of programs."""

from __future__ import annotations

from ...tir import IRModule as IRModule
from ...tir import assert_structural_equal as assert_structural_equal
from ...tir import structural_equal as structural_equal
from ...tir import structural_hash as structural_hash
from . import module as module
