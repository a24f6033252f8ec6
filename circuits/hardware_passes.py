"""The lowering of functions for hardware: blocks become loops, and unrolled loops are written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..codegen.lower.assumptions import drop_assumptions
from ..codegen.lower.check_accesses import check_accesses
from ..codegen.lower.choose_unrolled import choose_unrolled
from ..codegen.lower.compact_buffers import compact_buffers
from ..codegen.lower.cut_idle_iterations import cut_idle_iterations
from ..codegen.lower.flatten_blocks import flatten_blocks
from ..codegen.lower.legalize_loops import remove_unit_loops
from ..codegen.lower.loop_annotations import without_partition
from ..codegen.lower.pipeline import Pass
from ..codegen.lower.place_init import place_init
from ..codegen.lower.promote_registers import promote_registers
from ..codegen.lower.split_unroll_factors import split_unroll_factors
from ..codegen.lower.unroll_loops import unroll_loops
from ..tir.analysis.simplify import simplify
from ..tir.expr import BinaryOp, Call, Cast, CmpOp
from ..tir.expr.base.node import Node
from ..tir.index_width import unified
from ..tir.stmt import For, PrimFunc
from ..tir.walk import distinct, transform_statements
from .memories import HardwareError


def _pass(rewrite: Callable[..., PrimFunc]) -> Pass:
    return Pass(rewrite.__name__, lambda func, _: rewrite(func))


def refuse_floats(func: PrimFunc) -> PrimFunc:
    """Return the function. HardwareError when it computes with floats, naming the operation."""
    for n in distinct(func.body):
        if isinstance(n, (BinaryOp, Call, Cast, CmpOp)) and (_is_float(n) or any(map(_is_float, n.children()))):
            what = n.op if isinstance(n, Call) else type(n).__name__
            dtype = n.dtype if _is_float(n) else next(c.dtype for c in n.children() if _is_float(c))
            raise HardwareError(
                f"{func.name}: {what} of {dtype} has no meaning in hardware, which computes with integers: {n}; "
                "fixed-point numbers are integers (T.q_multiply_shift)"
            )
    return func


def _is_float(n: Any) -> bool:
    dtype = getattr(n, "dtype", None)
    return dtype is not None and dtype.is_float


def lanes_as_units(func: PrimFunc) -> PrimFunc:
    """Return the function with vector loops as unrolled ones: each lane is a unit of its own."""

    def post(n: Node) -> Node | None:
        return n.with_(kind="unrolled") if isinstance(n, For) and n.kind == "vectorized" else None

    return func.with_body(transform_statements(func.body, post))


HARDWARE_PASSES: tuple[Pass, ...] = tuple([
    _pass(rewrite)
    for rewrite in (
        refuse_floats, unified, drop_assumptions, without_partition, place_init, flatten_blocks, check_accesses,
        compact_buffers,
        lanes_as_units, split_unroll_factors, remove_unit_loops, cut_idle_iterations, simplify, choose_unrolled,
        unroll_loops, promote_registers, simplify,
    )
])  # fmt: skip
"""From blocks to loops, stores and registers of single elements."""
