"""Emits operations on tiles (:mod:`tilewright.tir.expr.intrinsics.matrix_operations`) as instructions of AMX, or as rows
of vectors without AMX.

A tile is an SSA vector of all its numbers, which loops carry like any other value. Before and after each instruction it
is cast to LLVM's type of a tile register and back. LLVM removes the casts, so that a tile used only by such
instructions stays in its register, and configures the registers once in front of the loops.
"""

from __future__ import annotations

from ...tir.expr import Broadcast, BufferLoad, Call, DType, Expr, Var, const
from ...tir.expr.intrinsics.matrix_operations import TILE_BYTES, TILE_DOTS, TILE_ROWS
from ..backend.emitter import expand_dot
from ..lowered import NO_TILES, LoweredFunc
from .function_builder import FunctionBuilder, align_of, llvm_type, memory_type, suffix
from .llvm_calls import may_write
from .llvm_scope import LlvmScope

_SHAPE = ["i16", "i16"]
_FULL = [str(TILE_ROWS), str(TILE_BYTES)]
_DOTS = {
    ("int8", "int8"): "tdpbssd", ("int8", "uint8"): "tdpbsud", ("uint8", "int8"): "tdpbusd", ("uint8", "uint8"): "tdpbuud",
    ("bfloat16", "bfloat16"): "tdpbf16ps",
}  # fmt: skip
"""The instructions by the types of both factors."""


def _has_instruction(em: LlvmScope, op: str) -> bool:
    target = em.target
    if op == "tir.tile_dot4":
        return bool(target.has_amx_int8)
    return bool(target.has_amx_bf16 if op == "tir.tile_dot2_bf16" else target.has_amx)


# -- tile registers ------------------------------------------------------------------------------------------------------


def _request(em: LlvmScope) -> None:
    """Let the function request the tile registers first: :func:`tile_request`."""
    em.unit.declarations["tw_tiles"] = "declare i32 @tw_tiles()"


def tile_request(fn: FunctionBuilder, lowered: LoweredFunc, params: list[str]) -> list[str]:
    """Returns an exported function that requests the tile registers and then calls the function that ``fn`` becomes. It
    is empty where no instruction uses tile registers.

    The two functions are separate so that no instruction for tiles can execute before the request.
    """
    if "tw_tiles" not in fn.declarations:
        return []
    name, attributes = f"{lowered.name}_tiles", lowered.target.llvm_attributes
    fn.header = f"define internal i32 @{name}({', '.join(params)}) noinline nounwind {attributes}"
    outer = FunctionBuilder(f"define i32 @{lowered.name}({', '.join(params)}) nounwind {attributes}")
    allowed, refused = outer.new_label("allowed"), outer.new_label("refused")
    outer.branch_if(outer.emit(f"icmp eq i32 {outer.emit('call i32 @tw_tiles()')}, 0"), allowed, refused)
    outer.label(refused)
    outer.do(f"ret i32 {NO_TILES}")
    outer.label(allowed)
    plain = ", ".join(f"{p.split()[0]} {p.split()[-1]}" for p in params)
    outer.do(f"ret i32 {outer.emit(f'call i32 @{name}({plain})')}")
    return [outer.text()]


def _register(em: LlvmScope, e: Expr) -> str:
    """Returns the value of ``e`` in a tile register."""
    _request(em)
    if isinstance(e, Call) and e.op in TILE_DOTS and _has_instruction(em, e.op):
        return _multiplied(em, e)
    place = _place(em, e)
    if place is not None and isinstance(e, (BufferLoad, Call)):
        pointer, step = place
        text = em.fn.intrinsic(
            "llvm.x86.tileloadd64.internal", "x86_amx", [*_SHAPE, "ptr", "i64"], [*_FULL, pointer, step]
        )
        return em.cached_load(_loaded(e).buffer, text)
    type_ = em.type(e)
    return em.fn.pure(
        em.fn.intrinsic(f"llvm.x86.cast.vector.to.tile.{suffix(e.dtype)}", "x86_amx", [type_], [em.value(e)])
    )


def _vector(em: LlvmScope, tile: str, dtype: str) -> str:
    """Returns the numbers of a tile register as a vector."""
    name = f"llvm.x86.cast.tile.to.vector.{suffix(dtype)}"
    return em.fn.pure(em.fn.intrinsic(name, llvm_type(dtype), ["x86_amx"], [tile]))


def _multiplied(em: LlvmScope, e: Call) -> str:
    c, a, b = e.args
    name = f"llvm.x86.{_DOTS[a.dtype.element, b.dtype.element]}.internal"
    operands = [_register(em, x) for x in (c, a, b)]
    types = ["i16"] * 3 + ["x86_amx"] * 3
    return em.fn.pure(em.fn.intrinsic(name, "x86_amx", types, [*_FULL, str(TILE_BYTES), *operands]))


# -- memory --------------------------------------------------------------------------------------------------------------


def _loaded(e: BufferLoad | Call) -> BufferLoad:
    """Returns the access that says where a tile is read or written."""
    where: Expr = e
    while isinstance(where, Call):
        where = where.args[0]
    assert isinstance(where, BufferLoad)
    return where


def _place(em: LlvmScope, e: Expr) -> tuple[str, str] | None:
    """Returns the address of a tile's first row, and the distance of its rows in bytes."""
    if isinstance(e, Call) and e.op in ("tir.tile_load", "tir.tile_store"):
        load = _loaded(e)
        step = e.args[1] * const(load.buffer.dtype.element.bytes, e.args[1].dtype)
        return em.address(load), em.index(step)
    if isinstance(e, BufferLoad) and e.buffer not in em.registers:
        pointer = em.contiguous_address(e)
        return None if pointer is None else (pointer, str(TILE_BYTES))
    return None


def _in_memory(em: LlvmScope, e: Expr) -> tuple[str, str]:
    """Returns :func:`_place`, for a copy on the stack where the tile is not in memory."""
    place = _place(em, e)
    if place is not None:
        return place
    pointer = em.fn.alloca(e.dtype.lanes, memory_type(e.dtype.element))
    em.fn.do(f"store {em.type(e)} {em.value(e)}, ptr {pointer}, align 64")
    return pointer, str(TILE_BYTES)


def _load(em: LlvmScope, e: Call) -> str:
    if _has_instruction(em, e.op):
        return _vector(em, _register(em, e), e.dtype)
    place = _place(em, e)
    assert place is not None
    lanes = e.dtype.lanes // TILE_ROWS
    row = memory_type(e.dtype.element.with_lanes(lanes))
    parts = [
        em.cached_load(_loaded(e).buffer, f"load {row}, ptr {_row(em, place, n)}, align {align_of(e.dtype)}")
        for n in range(TILE_ROWS)
    ]
    while len(parts) > 1:
        half = memory_type(e.dtype.element.with_lanes(lanes))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [em.fn.shuffled(half, low, high, range(2 * lanes)) for low, high in pairs]
        lanes *= 2
    return parts[0]


def _store(em: LlvmScope, e: Call) -> str:
    value = e.args[2]
    place = _place(em, e)
    assert place is not None
    if _has_instruction(em, e.op):
        types = [*_SHAPE, "ptr", "i64", "x86_amx"]
        args = [*_FULL, *place, _register(em, value)]
        em.fn.do(em.fn.intrinsic("llvm.x86.tilestored64.internal", "void", types, args))
    else:
        text, type_, lanes = em.value(value), em.type(value), value.dtype.lanes // TILE_ROWS
        row = memory_type(value.dtype.element.with_lanes(lanes))
        for n in range(TILE_ROWS):
            part = em.fn.shuffled(type_, text, "poison", range(n * lanes, (n + 1) * lanes))
            em.fn.do(f"store {row} {part}, ptr {_row(em, place, n)}, align {align_of(value.dtype)}")
    may_write(em, (e.args[0],))
    return ""


def _row(em: LlvmScope, place: tuple[str, str], n: int) -> str:
    """Returns the address of a tile's row."""
    pointer, step = place
    if n == 0:
        return pointer
    far = str(n * int(step)) if step.isdigit() else em.fn.pure(f"mul nsw i64 {step}, {n}")
    return em.fn.pure(f"getelementptr i8, ptr {pointer}, i64 {far}")


# -- products ------------------------------------------------------------------------------------------------------------


def _dot(em: LlvmScope, e: Call) -> str:
    if _has_instruction(em, e.op):
        _request(em)
        return _vector(em, _multiplied(em, e), e.dtype)
    c, a, b = e.args
    fn, type_ = em.fn, em.type(e)
    total = fn.alloca(c.dtype.lanes, memory_type(c.dtype.element))
    fn.do(f"store {type_} {em.value(c)}, ptr {total}, align 64")
    places = [text for operand in (a, b) for text in _in_memory(em, operand)]
    types = ["ptr", "i64"] * 2
    passed = ", ".join(f"{t} {x}" for t, x in zip(types, places, strict=True))
    fn.do(f"call void @{_by_rows(em, e)}(ptr {total}, {passed})")
    return fn.emit(f"load {type_}, ptr {total}, align 64")


def _by_rows(em: LlvmScope, e: Call) -> str:
    """Returns the name of a function that adds a product of tiles to ``c``, a row at a time.

    Its parameters are ``(ptr c, ptr a, i64 step of a, ptr b, i64 step of b)``. It uses dot products of vectors.
    """
    _, a, b = e.args
    width = TILE_DOTS[e.op]
    kinds = e.dtype.element.with_lanes(16), a.dtype.element.with_lanes(16 * width)
    row_type, left_type = (llvm_type(k) for k in kinds)
    acc, left = Var("c", kinds[0]), Var("a", kinds[1])
    right = Var("b", b.dtype.element.with_lanes(16 * width))
    inner = FunctionBuilder(
        f"(ptr %c, ptr noalias %a, i64 %astep, ptr noalias %b, i64 %bstep) noinline nounwind {em.target.llvm_attributes}",
        em.unit.declarations,
    )

    def row(r: str, _: list[str]) -> list[str]:
        sums = inner.emit(f"getelementptr i8, ptr %c, i64 {inner.emit(f'shl i64 {r}, 6')}")
        before = inner.emit(f"load {row_type}, ptr {sums}, align 64")
        line = inner.emit(f"getelementptr i8, ptr %a, i64 {inner.emit(f'mul i64 {r}, %astep')}")

        def step(k: str, total: list[str]) -> list[str]:
            place = inner.emit(f"getelementptr i8, ptr {line}, i64 {inner.emit(f'shl i64 {k}, 2')}")
            four = inner.splat(inner.emit(f"load i32, ptr {place}, align 1"), "i32", 16)
            spread = inner.emit(f"bitcast <16 x i32> {four} to {left_type}")
            panel = inner.emit(f"getelementptr i8, ptr %b, i64 {inner.emit(f'mul i64 {k}, %bstep')}")
            columns = inner.emit(f"load {llvm_type(right.dtype)}, ptr {panel}, align 1")
            em.vars, em.indices = {acc: total[0], left: spread, right: columns}, set()
            return [em.value(_row_dot(em, e.op, acc, left, right))]

        (after,) = inner.repeat("0", "16", [(row_type, before)], step)
        inner.do(f"store {row_type} {after}, ptr {sums}, align 64")
        return []

    outer = em.fn, em.vars, em.indices
    em.fn = inner
    try:
        inner.repeat("0", str(TILE_ROWS), [], row)
    finally:
        em.fn, em.vars, em.indices = outer
    inner.do("ret void")
    return em.unit.outline("void", "tile_dot", inner.text())


def _row_dot(em: LlvmScope, op: str, c: Var, a: Var, b: Var) -> Expr:
    """Returns one step of one row. The unsigned factor is the left one of the instruction; where there is none, one is
    converted."""
    if op == "tir.tile_dot2_bf16":
        return Call("tir.dot2_bf16", (c, a, b), c.dtype)
    if a.dtype.element == b.dtype.element == "uint8":
        both = Call("tir.dot4_u8u8", (c, a, b), c.dtype)
        return both if em.target.dot_lanes(both.op) else expand_dot(both)
    if b.dtype.element == "uint8":
        a, b = b, a
    plain = Call("tir.dot4_u8i8", (c, a, b), c.dtype)
    if a.dtype.element == "uint8":
        return plain
    if not em.target.dot_lanes(plain.op):
        return expand_dot(plain)
    unsigned = DType("uint8").with_lanes(a.dtype.lanes)
    middle = Broadcast(const(128, "uint8"), a.dtype.lanes)
    shifted = Call("tir.bitwise_xor", (Call("tir.reinterpret", (a,), unsigned), middle), unsigned)
    zero = Broadcast(const(0, "int32"), c.dtype.lanes)
    return Call(plain.op, (c, shifted, b), c.dtype) - Call(plain.op, (zero, middle, b), c.dtype)


TILE_CALLS = {"tile_dot2_bf16": _dot, "tile_dot4": _dot, "tile_load": _load, "tile_store": _store}
"""Emitters by the operation's name."""
