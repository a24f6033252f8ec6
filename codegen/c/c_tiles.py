"""Writes operations on tiles (:mod:`tilewright.tir.expr.intrinsics.tile_operations`) in C, as plain loops that compilers vectorize."""

from __future__ import annotations

from ...tir.expr import BufferLoad, Call, DType, Expr
from ...tir.expr.intrinsics.tile_operations import TILE_DOTS
from ...tir.expr.intrinsics.tiles_in_memory import TILE_ROWS
from ..lower.tile_accesses import tile_access
from .c_scope import CScope
from .inline_functions import scalar_type


def _tile_load(em: CScope, e: Call) -> str:
    """Return sixteen rows as one vector."""
    kind, base, columns = em.helpers.vector(e.dtype), scalar_type(e.dtype.element), _columns(e.dtype)
    name = em.helpers.define(
        f"tw_tile_load_{kind}", kind, f"const {base} *p, int64_t step",
        f"{kind} r; for (int i = 0; i < {e.dtype.lanes}; ++i) {em.helpers.at('r', 'i')} = p[i / {columns} * step + i % {columns}]; return r;",
    )  # fmt: skip
    return f"{name}({_rows(em, e)})"


def _tile_store(em: CScope, e: Call) -> str:
    """Return a store of one vector as sixteen rows."""
    dtype = e.args[2].dtype
    kind, base, columns = em.helpers.vector(dtype), scalar_type(dtype.element), _columns(dtype)
    name = em.helpers.define(
        f"tw_tile_store_{kind}", "void", f"{base} *p, int64_t step, {kind} v",
        f"for (int i = 0; i < {dtype.lanes}; ++i) p[i / {columns} * step + i % {columns}] = {em.helpers.at('v', 'i')};",
    )  # fmt: skip
    return f"{name}({_rows(em, e)}, {em.value(e.args[2])})"


def _tile_dot4(em: CScope, e: Call) -> str:
    """Return a product of tiles, four (two) terms at a time. int32 wraps, so the sum is computed without sign."""
    c, a, b = e.args
    width, kind = TILE_DOTS[e.op], em.helpers.vector(c.dtype)
    left, right = (scalar_type(x.dtype.element) for x in (a, b))
    x, y = (f"{n}[{at}]" for n, at in (("a", f"i * sa + {width} * k + q"), ("b", f"k * sb + {width} * j + q")))
    if width == 2:
        wide = em.helpers.plain("bf16_to_f32")
        product = f"{wide}({x}) * {wide}({y})"
    else:
        product = f"(uint32_t)((int32_t){x} * {y})"
    total = "float" if width == 2 else "uint32_t"
    body = (
        f"{total} t[{TILE_ROWS * 16}]; memcpy(t, &c, sizeof t); for (int i = 0; i < {TILE_ROWS}; ++i) "
        f"for (int k = 0; k < 16; ++k) for (int j = 0; j < 16; ++j) for (int q = 0; q < {width}; ++q) "
        f"t[16 * i + j] += {product}; memcpy(&c, t, sizeof t); return c;"
    )
    params = f"{kind} c, const {left} *a, int64_t sa, const {right} *b, int64_t sb"
    name = em.helpers.define(f"tw_tile_dot{width}_{left[:-2]}", kind, params, body)
    return f"{name}({em.value(c)}, {_rows(em, a)}, {_rows(em, b)})"


def _rows(em: CScope, e: Expr) -> str:
    """Return the place of a tile: a pointer to its first row, and the distance of its rows in elements."""
    base = scalar_type((e.args[2].dtype if isinstance(e, Call) and e.op == "tir.tile_store" else e.dtype).element)
    first = tile_access(e)
    if first is not None:
        assert isinstance(e, Call)
        return f"{em.place(first.buffer, first.indices, 1)[0]}, {em.index(e.args[1])}"
    if isinstance(e, BufferLoad) and e.predicate is None and e.buffer not in em.registers:
        pointer, apart = em.place(e.buffer, e.indices, e.dtype.lanes)
        if apart is None:
            return f"{pointer}, {_columns(e.dtype)}"
    return f"(const {base} *)({em.helpers.vector(e.dtype)}[]){{{em.value(e)}}}, {_columns(e.dtype)}"


def _columns(dtype: DType) -> int:
    return dtype.lanes // TILE_ROWS


TILE_CALLS = {"tile_dot2_bf16": _tile_dot4, "tile_dot4": _tile_dot4, "tile_load": _tile_load, "tile_store": _tile_store}
"""Writers by the operation's name."""
