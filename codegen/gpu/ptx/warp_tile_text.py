"""Emits tiles that a warp holds together, such as those of ``tir.wmma_dot``. Each thread has eight of the 256 sums, in
an order that only the instructions know. Sums of warp groups are kept in the same way (:mod:`.group_tile_text`)."""

from __future__ import annotations

from collections.abc import Sequence

from ....tir.arith.normal_form.linear import Linear
from ....tir.expr import Broadcast, BufferLoad, Call, DType, Expr, IntImm
from ....tir.expr.intrinsics.group_matrix_operations import group_columns
from ....tir.stmt import Buffer
from ...backend.emitter import EmitError
from ...backend.expressions import EXPRESSIONS
from ...llvm.emit import TABLES
from ...llvm.llvm_scope import LlvmScope
from ...llvm.llvm_types import llvm_type
from ..launch.held_tiles import threads_of_tile

_SHAPE, _TF32_SHAPE = "llvm.nvvm.wmma.m16n16k16", "llvm.nvvm.wmma.m16n16k8"
_HALF = 4
"""The registers that a thread has of eight steps of a tf32 operand."""
_PARTS = {"float16": ("<2 x half>", 8), "bfloat16": ("i32", 4), "int8": ("i32", 2), "uint8": ("i32", 2)}
"""What a thread has of an operand: LLVM's type of a register, and how many."""
_WORDS = {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "uint8": "u8", "float32": "f32", "int32": "s32"}
_SUMS = 8


def _struct(type_: str, count: int) -> str:
    return "{ " + ", ".join([type_] * count) + " }"


def _fragment(dtype: DType) -> tuple[str, int]:
    element = dtype.element
    if group_columns(dtype):
        return "float", group_columns(dtype) // 2
    return _PARTS[element] if element in _PARTS else (llvm_type(element), _SUMS)


def _operand(dtype: DType) -> tuple[str, int]:
    """Returns the registers of an operand; float32 is held as tf32, in two halves of eight steps."""
    return ("i32", 2 * _HALF) if dtype.element == "float32" else _fragment(dtype)


def _parts(em: LlvmScope, value: str, dtype: DType, operand: bool = False) -> tuple[list[str], list[str]]:
    """Returns the types and the values of the registers of a tile."""
    type_, count = _operand(dtype) if operand else _fragment(dtype)
    whole = _struct(type_, count)
    return [type_] * count, [em.fn.pure(f"extractvalue {whole} {value}, {n}") for n in range(count)]


def _place(em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], dtype: DType) -> str:
    """Returns the address of the sums that this thread has of a tile."""
    where = em.total(em.lane_offsets(buffer, indices).start)
    threads = threads_of_tile(dtype)
    if any(n % dtype.lanes for n in (where.const, *where.terms.values())):
        raise EmitError(f"a tile of {buffer.name} does not begin where one ends")
    return em.pointer(buffer, Linear(where.const // threads, {k: v // threads for k, v in where.terms.items()}))


def loaded(em: LlvmScope, e: BufferLoad) -> str:
    """Returns what a load reads; of a tile, the registers of this thread."""
    if not threads_of_tile(e.dtype):
        return TABLES.expressions[BufferLoad](em, e)
    text = f"load {_struct(*_fragment(e.dtype))}, ptr {_place(em, e.buffer, e.indices, e.dtype)}, align 4"
    return em.cached_load(e.buffer, text)


def store_fragment(em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType) -> None:
    """Write the registers of this thread."""
    type_ = _struct(*_fragment(dtype))
    em.fn.do(f"store {type_} {value}, ptr {_place(em, buffer, indices, dtype)}, align 4")
    em.touch(buffer.data)


def splat_of_tile(em: LlvmScope, e: Broadcast) -> str:
    """Returns a vector with one value in every lane; of a tile, zeros."""
    if not threads_of_tile(e.dtype):
        return EXPRESSIONS[Broadcast](em, e)
    if getattr(e.value, "value", None) != 0:
        raise EmitError(f"tiles of warps begin with zeros, not with {e.value}")
    return "zeroinitializer"


def _halves(em: LlvmScope, e: Call) -> str:
    """Returns a tile of float32 as tf32: the registers of its first eight steps, then those of the others."""
    first, stride = e.args[0].args[0], em.index(e.args[1])  # type: ignore[attr-defined]
    start, whole = em.address(first), _struct("i32", _HALF)
    apart = "8" if e.op[-1] == "a" else em.fn.pure(f"mul i64 {stride}, 8")
    out = "poison"
    for half in (0, 1):
        place = em.fn.pure(f"getelementptr float, ptr {start}, i64 {apart}") if half else start
        name = f"{_TF32_SHAPE}.load.{e.op[-1]}.row.stride.tf32.p0"
        call = em.fn.intrinsic(name, whole, ["ptr", "i32"], [place, _narrow(em, e.args[1])])
        loaded_half = em.cached_load(first.buffer, call)
        for n in range(_HALF):
            bits = em.fn.pure(f"extractvalue {whole} {loaded_half}, {n}")
            number = em.fn.pure(f"bitcast i32 {bits} to float")
            rounded = em.fn.pure(em.fn.intrinsic("llvm.nvvm.f2tf32.rna", "i32", ["float"], [number]))
            out = em.fn.pure(f"insertvalue {_struct('i32', 2 * _HALF)} {out}, i32 {rounded}, {half * _HALF + n}")
    return out


def _load(em: LlvmScope, e: Call) -> str:
    if e.dtype.element == "float32":
        return _halves(em, e)
    side = e.op[-1]
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    type_, count = _fragment(e.dtype)
    name = f"{_SHAPE}.load.{side}.row.stride.{_WORDS[e.dtype.element]}.p0"
    args = [em.address(first), _narrow(em, e.args[1])]
    return em.cached_load(first.buffer, em.fn.intrinsic(name, _struct(type_, count), ["ptr", "i32"], args))


def _narrow(em: LlvmScope, stride: Expr) -> str:
    text = em.index(stride)
    return text if isinstance(stride, IntImm) or text.isdigit() else em.fn.pure(f"trunc i64 {text} to i32")


def _dot_of_halves(em: LlvmScope, e: Call) -> str:
    """Returns the sums after two products of eight steps each."""
    sums = em.value(e.args[0])
    (_, a), (_, b) = [_parts(em, em.value(x), x.dtype, operand=True) for x in e.args[1:]]
    for half in (0, 1):
        own = slice(half * _HALF, (half + 1) * _HALF)
        types, values = _parts(em, sums, e.args[0].dtype)
        types, values = ["i32"] * (2 * _HALF) + types, [*a[own], *b[own], *values]
        sums = em.fn.pure(em.fn.intrinsic(f"{_TF32_SHAPE}.mma.row.row.tf32", _struct("float", _SUMS), types, values))
    return sums


def _dot(em: LlvmScope, e: Call) -> str:
    if e.args[1].dtype.element == "float32":
        return _dot_of_halves(em, e)
    types: list[str] = []
    values: list[str] = []
    for operand in (e.args[1], e.args[2], e.args[0]):
        more = _parts(em, em.value(operand), operand.dtype)
        types, values = [*types, *more[0]], [*values, *more[1]]
    element = e.args[1].dtype.element
    suffix = "f32.f32" if element == "float16" else _WORDS[element]
    return em.fn.pure(em.fn.intrinsic(f"{_SHAPE}.mma.row.row.{suffix}", _struct(types[-1], _SUMS), types, values))


def _store(em: LlvmScope, e: Call) -> str:
    first, value = e.args[0].args[0], e.args[2]  # type: ignore[attr-defined]
    types, values = _parts(em, em.value(value), value.dtype)
    name = f"{_SHAPE}.store.d.row.stride.{_WORDS[value.dtype.element]}.p0"
    args: Sequence[str] = [em.address(first), *values, _narrow(em, e.args[1])]
    em.fn.do(em.fn.intrinsic(name, "void", ["ptr", *types, "i32"], args))
    em.touch(first.buffer.data)
    return "0"


WARP_TILE_CALLS = {"wmma_dot": _dot, "wmma_load_a": _load, "wmma_load_b": _load, "wmma_store": _store}
"""Emitters by the operation's name."""
