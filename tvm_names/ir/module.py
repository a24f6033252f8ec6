"""``tvm.ir.module``: modules of functions."""

from __future__ import annotations

from ...tir import IRModule as IRModule
