"""Emits the instructions of NVIDIA GPUs that have no node of their own: atomic additions, asynchronous copies, tiles.

Copies are of words and of rows. Tiles are held together by the threads of a warp or of a warp group; they have products.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from ...codegen.backend.emitter import EXPRESSIONS, EmitError
from ...codegen.llvm.emit import TABLES
from ...codegen.llvm.function_builder import llvm_type, memory_type, sum_text
from ...codegen.llvm.llvm_scope import LlvmScope
from ...codegen.machine.target import WARP_GROUP
from ...tir.arith.normal_form.forms import Linear
from ...tir.expr import Broadcast, BufferLoad, Call, Cast, DType, Expr, FloatImm, IntImm, Ramp, Var, all_
from ...tir.expr.intrinsics.control_and_memory import CHANGES
from ...tir.expr.intrinsics.matrix_operations import (
    GROUP_LOADS,
    GROUP_ROWS,
    GROUP_STEPS,
    OPERANDS,
    ROW_TILE,
    TRANSPOSED_LOADS,
    WARP_LOADS,
    group_columns,
    group_steps,
    tile_columns,
)
from ...tir.stmt import Buffer, BufferStore
from ...tir.walk import substitute
from ..launch.barriers import BULK_WAIT
from ..launch.bulk_copies import COPY, EXPECT, INIT, PIECE
from ..launch.launch_form import SWIZZLED, SWIZZLED_ALIGNMENT, held_of, threads_of_tile
from ..launch.software_pipeline import COMMIT_COPIES, WAIT_FOR_COPIES, padded_copy
from ..launch.tile_arithmetic import elementwise

_BYTES = (4, 8, 16)
"""What one instruction copies."""
_COPIES = 80
"""The number of the first architecture that copies to shared memory by itself; on those before copies are plain stores."""


def architecture(em: LlvmScope) -> int:
    """Returns the number of the target's architecture: 90 of ``sm_90a``."""
    return int(re.sub(r"\D", "", em.target.mcpu) or 0)


def _require(em: LlvmScope, what: str, first: int) -> None:
    """Raise EmitError for a target before the ``first`` architecture that has ``what``: LLVM would end the process."""
    if architecture(em) < first:
        raise EmitError(f"{what} needs -arch=sm_{first} or newer; the target has {em.target.mcpu}")


def start_copy(em: LlvmScope, s: BufferStore) -> bool:
    """Emit the start of a copy, where one instruction does it; return whether it does. Where a padded copy has zeros, it
    reads no byte."""
    conditions, value, constants = padded_copy(s.value)
    if architecture(em) < _COPIES:
        return False
    if s.predicate is not None or not isinstance(value, BufferLoad) or value.predicate is not None:
        return False
    if not all(map(_is_plain_zero, constants)) or any(c.dtype.lanes > 1 for c in conditions):
        return False
    lanes = max([i.dtype.lanes for i in s.indices], default=1)
    dtype = s.buffer.dtype.with_lanes(lanes)
    if dtype.bytes not in _BYTES or value.dtype.lanes != lanes:
        return False
    places = [
        _copied_place(em, b, indices, dtype) for b, indices in ((s.buffer, s.indices), (value.buffer, value.indices))
    ]
    if not all(places):
        return False
    kind = "cg" if dtype.bytes == 16 else "ca"  # the wide ones bypass the first-level cache
    spaces = ["ptr addrspace(3)", "ptr addrspace(1)"]
    pointers = [em.fn.pure(f"addrspacecast ptr {p} to {space}") for p, space in zip(places, spaces, strict=True)]
    name = f"llvm.nvvm.cp.async.{kind}.shared.global.{dtype.bytes}"
    if conditions:
        inside = em.value(all_(*conditions))
        name, spaces = f"{name}.s", [*spaces, "i32"]
        pointers.append(em.fn.pure(f"select i1 {inside}, i32 {dtype.bytes}, i32 0"))
    em.fn.do(em.fn.intrinsic(name, "void", spaces, pointers))
    em.touch(s.buffer.data)
    return True


def _is_plain_zero(e: Expr) -> bool:
    """Returns whether all bits of a constant are 0."""
    return isinstance(e, (IntImm, FloatImm)) and e.value == 0 and math.copysign(1.0, e.value) > 0


def _copied_place(em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], dtype: DType) -> str | None:
    """Returns the address of elements that lie side by side at a multiple of their size."""
    where = em.lane_offsets(buffer, indices)
    if dtype.lanes > 1 and where.distance != 1:
        return None
    offset = em.total(where.start).times(where.unit)
    return em.pointer(buffer, offset) if em.alignment(buffer, offset, dtype) >= dtype.bytes else None


def _commit_copies(em: LlvmScope, e: Call) -> str:
    if architecture(em) >= _COPIES:
        em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [], []))
    return "0"


def _wait_for_copies(em: LlvmScope, e: Call) -> str:
    (groups,) = e.args
    if not isinstance(groups, IntImm):
        raise EmitError("the number of groups that may go on is no constant")
    if architecture(em) >= _COPIES:
        em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.wait.group", "void", ["i32"], [str(groups.value)]))
    em.touch(*em.bases)
    return "0"


COPY_CALLS = {
    COMMIT_COPIES.removeprefix("tir."): _commit_copies,
    WAIT_FOR_COPIES.removeprefix("tir."): _wait_for_copies,
}
"""The emitters of calls that belong to asynchronous copies."""


# Emits copies of whole rows (``cp.async.bulk``) and the mbarriers at which they arrive. The words are those of the PTX manual.

_FIRST = 90
"""The number of the first architecture with these instructions."""


def _pointer(em: LlvmScope, address: Expr, space: int) -> str:
    """Returns an address as a number of its space; EmitError for architectures without bulk copies."""
    known = re.match(r"sm_(\d+)", em.target.mcpu)
    if known is None or int(known[1]) < _FIRST:
        raise EmitError(f"bulk copies (cp.async.bulk) need -arch=sm_{_FIRST} or newer; the target has {em.target.mcpu}")
    load = address.args[0]  # type: ignore[attr-defined]
    assert isinstance(load, BufferLoad)
    text = em.fn.pure(f"addrspacecast ptr {em.address(load)} to ptr addrspace({space})")
    return em.fn.pure(f"ptrtoint ptr addrspace({space}) {text} to i64")


def _instruction(em: LlvmScope, text: str, *operands: str) -> str:
    constraints = ",".join(["l" if operand.startswith("i64") else "r" for operand in operands] + ["~{memory}"])
    em.fn.do(f'call void asm sideeffect "{text}", "{constraints}"({", ".join(operands)})')
    em.touch(*em.bases)
    return "0"


def _number(em: LlvmScope, e: Expr) -> str:
    return f"i32 {em.value(e.astype('int32'))}"


def _copy(em: LlvmScope, e: Call) -> str:
    to, of, size, arrivals = e.args
    for address in (to, of):
        load = address.args[0]  # type: ignore[attr-defined]
        offset = em.total(em.lane_offsets(load.buffer, load.indices).start)
        if em.alignment(load.buffer, offset, load.dtype) < PIECE:
            raise EmitError(
                f"a row of {load.buffer.name} does not begin at a multiple of {PIECE} bytes, as bulk copies need"
            )
    places = [_pointer(em, to, 3), _pointer(em, of, 1), _pointer(em, arrivals, 3)]
    return _instruction(em, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $3, [$2];",
                        *[f"i64 {place}" for place in places], _number(em, size))  # fmt: skip


def _expect(em: LlvmScope, e: Call) -> str:
    place = f"i64 {_pointer(em, e.args[0], 3)}"
    return _instruction(em, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", place, _number(em, e.args[1]))


def _made(em: LlvmScope, e: Call) -> str:
    place = f"i64 {_pointer(em, e.args[0], 3)}"
    return _instruction(em, "mbarrier.init.shared::cta.b64 [$0], $1;", place, _number(em, e.args[1]))


def _wait_for_rows(em: LlvmScope, e: Call) -> str:
    text = ("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @done bra arrived; bra again; "
            "arrived: }")  # fmt: skip
    return _instruction(em, text, f"i64 {_pointer(em, e.args[0], 3)}", _number(em, e.args[1]))


_EMITTERS = {COPY: _copy, EXPECT: _expect, INIT: _made, BULK_WAIT: _wait_for_rows}
BULK_CALLS = {name.removeprefix("tir."): emitter for name, emitter in _EMITTERS.items()}
"""The emitters of calls that belong to copies in bulk."""


# Emits atomic additions to global memory: ``red`` of PTX, which returns nothing.

_ADDED_WORDS = {
    "float32": ("f32", "f"), "float64": ("f64", "d"), "float16": ("noftz.f16", "h"), "bfloat16": ("noftz.bf16", "h"),
    "int32": ("s32", "r"), "uint32": ("u32", "r"), "int64": ("u64", "l"),
}  # fmt: skip
"""PTX's word for the addition of a type, and the constraint of its register."""
_HELD = {"float32": "float", "float64": "double", "int32": "i32", "uint32": "i32", "int64": "i64"}
_FIRST_ADDED = {"bfloat16": 90, "float16": 70, "float64": 60}
"""The numbers of the first architectures that add numbers of these types atomically; all add the others."""


def _added(em: LlvmScope, e: Call, word: str, register: str, operand: str) -> str:
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    dtype = first.buffer.dtype.element
    _require(em, f"{e.op.removeprefix('tir.')} of {dtype}", _FIRST_ADDED.get(dtype, 0))
    place = em.fn.pure(f"addrspacecast ptr {em.address(first)} to ptr addrspace(1)")
    em.fn.do(
        f'call void asm sideeffect "red.relaxed.gpu.global.add.{word} [$0], $1;", "l,{register},~{{memory}}"'
        f"(ptr addrspace(1) {place}, {operand})"
    )
    em.touch(first.buffer.data)
    return "0"


def _add(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    word, register = _ADDED_WORDS[dtype]
    text, held = em.value(e.args[1]), _HELD.get(dtype)
    if held is None:
        text, held = em.fn.pure(f"bitcast {memory_type(e.args[1].dtype)} {text} to i16"), "i16"
    return _added(em, e, word, register, f"{held} {text}")


def _add_pair(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    kind = memory_type(e.args[1].dtype)
    both = em.fn.joined(f"<2 x {kind}>", kind, [em.value(value) for value in e.args[1:]])
    return _added(em, e, _ADDED_WORDS[dtype][0] + "x2", "r", f"i32 {em.fn.pure(f'bitcast <2 x {kind}> {both} to i32')}")


# Emits changes of elements that return what was there. Fences around them order what threads of different blocks write and read.

_FENCE = 'fence syncscope("device") acq_rel'
_ORDER = 'syncscope("device") acq_rel'
_CHANGED_WORDS = {
    "atomic_fetch_add": ("add", "add", "fadd"), "atomic_fetch_max": ("max", "umax", "fmaximum"),
    "atomic_fetch_min": ("min", "umin", "fminimum"), "atomic_fetch_and": ("and", "and", ""), "atomic_fetch_or": ("or", "or", ""),
    "atomic_fetch_xor": ("xor", "xor", ""), "atomic_exchange": ("xchg", "xchg", "xchg"),
}  # fmt: skip
"""LLVM's word for a change of integers with and without a sign, and of floats."""


def _change(em: LlvmScope, e: Call) -> str:
    load = e.args[0].args[0]  # type: ignore[attr-defined]
    dtype = load.buffer.dtype
    kind = memory_type(dtype)
    place = em.fn.pure(f"addrspacecast ptr {em.address(load)} to ptr addrspace(1)")
    values = em.values(e.args[1:])
    name = e.op.removeprefix("tir.")
    em.fn.do(_FENCE)
    if name == "atomic_compare_exchange":
        whole = f"i{dtype.bits}"
        if dtype.is_float:
            values = [em.fn.pure(f"bitcast {kind} {v} to {whole}") for v in values]
        both = f'cmpxchg ptr addrspace(1) {place}, {whole} {values[0]}, {whole} {values[1]} syncscope("device") acq_rel acquire'
        old = em.fn.pure(f"extractvalue {{{whole}, i1}} {em.fn.emit(both)}, 0")
        old = em.fn.pure(f"bitcast {whole} {old} to {kind}") if dtype.is_float else old
    else:
        word = _CHANGED_WORDS[name][2 if dtype.is_float else 1 if dtype.kind == "uint" else 0]
        old = em.fn.emit(f"atomicrmw {word} ptr addrspace(1) {place}, {kind} {values[0]} {_ORDER}")
    em.fn.do(_FENCE)
    em.touch(load.buffer.data)
    return old


ATOMIC_CALLS = {
    "atomic_add": _add, "atomic_add_pair": _add_pair, **{row.name: _change for row in CHANGES},
}  # fmt: skip
"""Emitters by the operation's name."""


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
    if dtype == ROW_TILE:
        return "float", 2
    if tile_columns(dtype):
        return ("i32", tile_columns(dtype) // 4) if dtype.element in OPERANDS else ("float", group_columns(dtype) // 2)
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
    if any(n % dtype.lanes for n in (where.const, *where.terms.values())):
        raise EmitError(f"a tile of {buffer.name} does not begin where one ends")
    return em.pointer(
        buffer, Linear(held_of(buffer, where.const), {k: held_of(buffer, v) for k, v in where.terms.items()})
    )


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


def _whole(em: LlvmScope, dtype: DType, values: Sequence[str]) -> str:
    """Returns a tile of which this thread holds the registers ``values``."""
    type_, out = _fragment(dtype), "poison"
    for n, value in enumerate(values):
        out = em.fn.pure(f"insertvalue {_struct(*type_)} {out}, {type_[0]} {value}, {n}")
    return out


def tile_arithmetic(em: LlvmScope, e: Expr) -> str:
    """Returns the registers of arithmetic on tiles: that on the numbers of this thread, one after the other."""
    if (
        isinstance(e, Cast)
        and tile_columns(e.dtype)
        and e.dtype.element in OPERANDS
        and e.value.dtype.element == "float32"
    ):
        return _whole(em, e.dtype, _rounded_pairs(em, e))
    if e.dtype.element != "float32":
        raise EmitError(f"arithmetic on tiles is in float32, not in {e.dtype.element}; cast at the end")
    return _whole(em, e.dtype, _numbers(em, e))


_PAIRED = {"float16": ("<2 x half>", "f16x2"), "bfloat16": ("<2 x bfloat>", "bf16x2")}


def _rounded_pairs(em: LlvmScope, e: Cast) -> list[str]:
    """Returns neighbouring numbers of a tile rounded, two in a register."""
    values, (kind, word) = _numbers(em, e.value), _PAIRED[e.dtype.element]
    out = []
    for low, high in zip(values[::2], values[1::2], strict=True):
        pair = em.fn.pure(em.fn.intrinsic(f"llvm.nvvm.ff2{word}.rn", kind, ["float", "float"], [high, low]))
        out.append(em.fn.pure(f"bitcast {kind} {pair} to i32"))
    return out


def _numbers(em: LlvmScope, e: Expr) -> list[str]:
    """Returns the numbers of this thread of an expression on tiles.

    For each eight columns they are two neighbours in each of its two rows, which are eight apart.
    """
    leaves, number = elementwise(e)
    found = {var: _leaf(em, leaf) for var, leaf in leaves.items()}
    places = [var for var, leaf in leaves.items() if isinstance(leaf, Ramp) and leaf.dtype.is_int]
    out = []
    for n in range(_count(e.dtype)):
        # what indices are made of is emitted once, so that each number has variables of its own for its place
        own = {var: Var(var.name, var.dtype) for var in places}
        em.indices.update(own.values())
        em.vars.update({own.get(var, var): values[n] for var, values in found.items()})
        out.append(em.value(substitute(number, own) if own else number))
        for var in found:
            del em.vars[own.get(var, var)]
    return out


def _count(dtype: DType) -> int:
    return 2 if dtype.lanes == ROW_TILE.lanes else dtype.lanes // WARP_GROUP


def _leaf(em: LlvmScope, e: Expr) -> list[str]:
    """Returns the numbers of this thread of a part of an expression on tiles."""
    count = _count(e.dtype)
    if isinstance(e, Broadcast):
        return [em.value(e.value)] * count
    if isinstance(e, Ramp):
        return _lane_numbers(em, e)
    values = _parts(em, em.value(e), e.dtype)[1]
    if e.dtype.element == "float32":
        return values
    kind = _PAIRED[e.dtype.element][0]
    pairs = [em.fn.pure(f"bitcast i32 {v} to {kind}") for v in values]
    return [em.fn.pure(f"extractelement {kind} {pair}, i64 {k}") for pair in pairs for k in (0, 1)]


def _lane_numbers(em: LlvmScope, e: Ramp) -> list[str]:
    """Returns which numbers of a tile, counted row by row, are those of this thread."""
    row, column = _first_number(em)
    base, stride = em.index(e.base), em.index(e.stride)
    columns = e.lanes // GROUP_ROWS
    out = []
    for n in range(_count(e.dtype)):
        eight, half, k = (0, n, 0) if columns == 1 else (n // 4, n // 2 % 2, n % 2)
        at = em.fn.pure(f"mul i64 {em.fn.pure(f'add i64 {row}, {8 * half}')}, {columns}")
        if columns > 1:
            at = em.fn.pure(f"add i64 {at}, {em.fn.pure(f'add i64 {column}, {8 * eight + k}')}")
        out.append(em.fn.pure(f"add i64 {base}, {em.fn.pure(f'mul i64 {at}, {stride}')}"))
    return out


def _first_number(em: LlvmScope) -> tuple[str, str]:
    """Returns the row and the column of the first number of this thread in a tile of a warp group."""
    fn = em.fn
    thread = fn.pure(f"zext i32 {fn.pure(fn.intrinsic('llvm.nvvm.read.ptx.sreg.tid.x', 'i32', [], []))} to i64")
    row = fn.pure(f"add i64 {fn.pure(f'mul i64 {_part(em, thread, 5, 3)}, 16')}, {_part(em, thread, 2, 7)}")
    return row, fn.pure(f"shl i64 {_part(em, thread, 0, 3)}, 1")


def _halves(em: LlvmScope, e: Call) -> str:
    """Returns a tile of float32 as tf32: the registers of its first eight steps, then those of the others."""
    first, stride = e.args[0].args[0], em.index(e.args[1])  # type: ignore[attr-defined]
    start, whole = em.address(first), _struct("i32", _HALF)
    along = _side(e) == ("b" if is_transposed(e) else "a")  # the steps lie side by side
    apart = "8" if along else em.fn.pure(f"mul i64 {stride}, 8")
    out = "poison"
    for half in (0, 1):
        place = em.fn.pure(f"getelementptr float, ptr {start}, i64 {apart}") if half else start
        name = f"{_TF32_SHAPE}.load.{_side(e)}.{_layout(e)}.stride.tf32.p0"
        call = em.fn.intrinsic(name, whole, ["ptr", "i32"], [place, _narrow(em, e.args[1])])
        loaded_half = em.cached_load(first.buffer, call)
        for n in range(_HALF):
            bits = em.fn.pure(f"extractvalue {whole} {loaded_half}, {n}")
            number = em.fn.pure(f"bitcast i32 {bits} to float")
            rounded = em.fn.pure(em.fn.intrinsic("llvm.nvvm.f2tf32.rna", "i32", ["float"], [number]))
            out = em.fn.pure(f"insertvalue {_struct('i32', 2 * _HALF)} {out}, i32 {rounded}, {half * _HALF + n}")
    return out


_FIRST_UNITS = {"float16": 70, "int8": 72, "uint8": 72, "bfloat16": 80, "float32": 80}
"""The numbers of the first architectures whose matrix units take operands of these types."""


def _load(em: LlvmScope, e: Call) -> str:
    _require(em, f"{e.op.removeprefix('tir.')} of {e.dtype.element}", _FIRST_UNITS[e.dtype.element])
    if e.dtype.element == "float32":
        return _halves(em, e)
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    type_, count = _fragment(e.dtype)
    name = f"{_SHAPE}.load.{_side(e)}.{_layout(e)}.stride.{_WORDS[e.dtype.element]}.p0"
    args = [em.address(first), _narrow(em, e.args[1])]
    return em.cached_load(first.buffer, em.fn.intrinsic(name, _struct(type_, count), ["ptr", "i32"], args))


def _side(e: Call) -> str:
    return e.op.removeprefix("tir.wmma_load_")[0]


def is_transposed(operand: Expr) -> bool:
    """Returns whether memory holds an operand of a product transposed, which the product has to say too."""
    if isinstance(operand, Call) and operand.op in (*WARP_LOADS, *GROUP_LOADS):
        return operand.op in TRANSPOSED_LOADS
    if not isinstance(operand, BufferLoad):
        raise EmitError(f"a product takes operands from their loads or from buffers of a warp, not {operand}")
    return False


def _layout(operand: Expr) -> str:
    return "col" if is_transposed(operand) else "row"


def _layouts(e: Call) -> str:
    return f"{_layout(e.args[1])}.{_layout(e.args[2])}"


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
        sums = em.fn.pure(
            em.fn.intrinsic(f"{_TF32_SHAPE}.mma.{_layouts(e)}.tf32", _struct("float", _SUMS), types, values)
        )
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
    return em.fn.pure(em.fn.intrinsic(f"{_SHAPE}.mma.{_layouts(e)}.{suffix}", _struct(types[-1], _SUMS), types, values))


def _store(em: LlvmScope, e: Call) -> str:
    first, value = e.args[0].args[0], e.args[2]  # type: ignore[attr-defined]
    types, values = _parts(em, em.value(value), value.dtype)
    name = f"{_SHAPE}.store.d.row.stride.{_WORDS[value.dtype.element]}.p0"
    args: Sequence[str] = [em.address(first), *values, _narrow(em, e.args[1])]
    em.fn.do(em.fn.intrinsic(name, "void", ["ptr", *types, "i32"], args))
    em.touch(first.buffer.data)
    return "0"


WARP_TILE_CALLS = {
    **dict.fromkeys([op.removeprefix("tir.") for op in WARP_LOADS], _load), "wmma_dot": _dot, "wmma_store": _store,
}  # fmt: skip
"""Emitters by the operation's name."""


# Emits products of warp groups (``tir.wgmma_dot`` and its like): descriptors of operands in shared memory, sums in registers.
#
# The bits of descriptors, the rows and columns of a thread's sums, and the words of instructions are those of the PTX manual,
# "Asynchronous Warpgroup Level Matrix Instructions".

_ROW = 128
"""The bytes of a row of shared memory."""
_SWIZZLE_128 = 1 << 62
_NEXT_ROWS = (SWIZZLED_ALIGNMENT >> 4) << 32
"""Eight rows lie so many bytes behind the eight rows before."""
_ARCHITECTURE = "sm_90a"
"""The only architecture with these instructions."""
_GROUP_WORDS = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def swizzled_pointer(em: LlvmScope, buffer: Buffer, offset: Linear) -> str:
    """Returns the address of an element of a swizzled buffer. The bits 4 to 6 of its place in bytes are changed by the
    bits 7 to 9."""
    place = offset.times(buffer.dtype.element.bytes)
    whole = Linear(place.const // SWIZZLED_ALIGNMENT * SWIZZLED_ALIGNMENT,
                   {t: c for t, c in place.terms.items() if c % SWIZZLED_ALIGNMENT == 0})  # fmt: skip
    inner = sum_text(place.plus(whole, -1), em.fn)
    turned = em.fn.pure(f"and i64 {em.fn.pure(f'lshr i64 {inner}, 3')}, 112")
    start = em.fn.pure(f"getelementptr i8, ptr {em.base(buffer)}, i64 {sum_text(whole, em.fn)}")
    return em.fn.pure(f"getelementptr i8, ptr {start}, i64 {em.fn.pure(f'xor i64 {inner}, {turned}')}")


def _descriptor(em: LlvmScope, e: Call, steps_within: bool, panel: int = 0) -> str:
    """Returns the descriptor of an operand that begins at the address of ``e``. ``steps_within``: the steps of the product lie
    in the rows. ``panel``: the elements from one panel of columns to the next."""
    if em.target.mcpu != _ARCHITECTURE:
        raise EmitError(f"{e.op.removeprefix('tir.')} needs -arch={_ARCHITECTURE}; the target has {em.target.mcpu}")
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    buffer = first.buffer
    if buffer.scope != SWIZZLED:
        raise EmitError(f"an operand of a warp group lies in {SWIZZLED}, and {buffer.name} in {buffer.scope}")
    row = _ROW // buffer.dtype.bytes
    if _constant(e.args[1], buffer) != row:
        raise EmitError(f"the rows of {buffer.name} are {e.args[1]} elements apart, and those of {SWIZZLED} {row}")
    where = em.total(em.lane_offsets(buffer, first.indices).start)
    step = where.const % (8 * row)
    if any(c % (8 * row) for c in where.terms.values()) or (
        step and not (steps_within and step < row and step % group_steps(e.dtype) == 0)
    ):
        raise EmitError(f"an operand of a warp group begins in the middle of eight rows of {buffer.name}")
    start = em.fn.pure(f"addrspacecast ptr {em.base(buffer)} to ptr addrspace(3)")
    low = em.fn.pure(f"ptrtoint ptr addrspace(3) {start} to i64")
    place = em.fn.pure(f"add i64 {low}, {sum_text(where.times(buffer.dtype.bytes), em.fn)}")
    field = em.fn.pure(f"lshr i64 {em.fn.pure(f'and i64 {place}, {0x3FFFF}')}, 4")
    leading = panel * buffer.dtype.bytes >> 4 if panel else 1
    return em.fn.pure(f"or i64 {field}, {_SWIZZLE_128 | _NEXT_ROWS | leading << 16}")


def _constant(e: Expr, buffer: Buffer) -> int:
    if not isinstance(e, IntImm):
        raise EmitError(f"a stride of {buffer.name}, {e}, is no constant")
    return e.value


def _steps_within(em: LlvmScope, e: Call) -> str:
    return _descriptor(em, e, steps_within=True)


def _steps_apart(em: LlvmScope, e: Call) -> str:
    buffer = e.args[0].args[0].buffer  # type: ignore[attr-defined]
    return _descriptor(em, e, steps_within=False, panel=_constant(e.args[2], buffer) if len(e.args) > 2 else 0)


def _sums(e: Expr) -> tuple[str, list[str]]:
    """Returns the type of a thread's sums, and of each."""
    types = ["float"] * (group_columns(e.dtype) // 2)
    return "{ " + ", ".join(types) + " }", types


def _through(em: LlvmScope, sums: Expr, text: str, more: str = "", words: str = "") -> str:
    """Returns the sums of a thread after an instruction that names them as its results. ``more``: further operands, ``words``: their
    constraints. The instruction stays in its place, and nothing else touches the registers meanwhile."""
    whole, types = _sums(sums)
    value = em.value(sums)
    count = len(types)
    given = ", ".join(f"float {em.fn.pure(f'extractvalue {whole} {value}, {n}')}" for n in range(count))
    constraints = ",".join(["=f"] * count + [str(n) for n in range(count)]) + words
    return em.fn.emit(f'call {whole} asm sideeffect "{text}", "{constraints},~{{memory}}"({given}{more}) convergent')


def _fence(em: LlvmScope, e: Call) -> str:
    return _through(em, e.args[0], "wgmma.fence.sync.aligned;")


def _group_dot(em: LlvmScope, e: Call) -> str:
    sums, left, right = e.args
    columns = group_columns(sums.dtype)
    count, operands = columns // 2, ".".join(_GROUP_WORDS[operand.dtype.element] for operand in (left, right))
    # PTX calls operands transposed whose steps are rows of shared memory; those of float8 are not
    within = isinstance(left, Call) and left.op in GROUP_LOADS
    apart = [int((operand is right) != is_transposed(operand)) for operand in ((left, right) if within else (right,))]
    said = "" if left.dtype.bits == 8 else "".join(f", {n}" for n in apart)
    shape = f"wgmma.mma_async.sync.aligned.m64n{columns}k{group_steps(left.dtype)}.f32.{operands}"
    begins = isinstance(sums, Broadcast)
    if isinstance(sums, Broadcast):
        splat_of_tile(em, sums)  # zeros, or an error
    first = count if begins else 2 * count
    if within:
        given, words, a, at = f", i64 {em.value(left)}", ",l", f"${first}", first + 1
    else:
        registers = _parts(em, em.value(left), left.dtype)[1]
        at = first + len(registers)
        given, words = "".join(f", i32 {r}" for r in registers), ",r" * len(registers)
        a = f"{{{', '.join(f'${n}' for n in range(first, at))}}}"
    text = (
        f"{{ .reg .pred go; setp.{'ne' if begins else 'eq'}.b32 go, 0, 0; "
        f"{shape} {{{', '.join(f'${n}' for n in range(count))}}}, {a}, ${at}, go, 1, 1{said}; }}"
    )
    more, words = f"{given}, i64 {em.value(right)}", f"{words},l"
    if not begins:
        return _through(em, sums, text, more, words)
    whole, types = _sums(sums)
    constraints = ",".join(["=f"] * len(types)) + words
    return em.fn.emit(f'call {whole} asm sideeffect "{text}", "{constraints},~{{memory}}"({more[2:]}) convergent')


def _row_reduction(em: LlvmScope, e: Call, combine: Callable[[str, str], str]) -> str:
    """Returns the reductions of the two rows of which this thread holds numbers; four neighbouring threads hold a row together."""
    values = _parts(em, em.value(e.args[0]), e.args[0].dtype)[1]
    out = []
    for half in (0, 1):
        own = [v for n, v in enumerate(values) if n // 2 % 2 == half]
        while len(own) > 1:
            own = [*[combine(a, b) for a, b in zip(own[::2], own[1::2], strict=False)], *own[len(own) // 2 * 2 :]]
        (found,) = own
        for distance in (1, 2):
            name, types = "llvm.nvvm.shfl.sync.bfly.f32", ["i32", "float", "i32", "i32"]
            other = em.fn.emit(em.fn.intrinsic(name, "float", types, ["-1", found, str(distance), "31"]))
            found = combine(found, other)
        out.append(found)
    return _whole(em, ROW_TILE, out)


def _row_max(em: LlvmScope, e: Call) -> str:
    return _row_reduction(em, e, lambda a, b: em.fn.called("llvm.maximum.f32", "float", a, b))


def _row_sum(em: LlvmScope, e: Call) -> str:
    return _row_reduction(em, e, lambda a, b: em.fn.pure(f"fadd float {a}, {b}"))


def _across(em: LlvmScope, e: Call) -> str:
    rows = _parts(em, em.value(e.args[0]), ROW_TILE)[1]
    return _whole(em, e.dtype, [rows[n // 2 % 2] for n in range(_count(e.dtype))])


def _columns(em: LlvmScope, e: Call) -> str:
    tile, first = e.args
    registers = _parts(em, em.value(tile), tile.dtype)[1]
    begin = _constant_of(first) // 4
    return _whole(em, e.dtype, registers[begin : begin + GROUP_STEPS // 4])


def _constant_of(e: Expr) -> int:
    if not isinstance(e, IntImm):
        raise EmitError(f"the first column of an operand, {e}, is no constant")
    return e.value


def _exp2_approx(em: LlvmScope, e: Call) -> str:
    return em.fn.called("llvm.nvvm.ex2.approx.ftz.f", "float", em.value(e.args[0]))


def _wait(em: LlvmScope, e: Call) -> str:
    sums, groups = e.args
    if not isinstance(groups, IntImm):
        raise EmitError("the number of groups of products that may go on is no constant")
    return _through(em, sums, f"wgmma.wait_group.sync.aligned {groups.value};")


def _commit(em: LlvmScope, e: Call) -> str:
    em.fn.do(em.fn.intrinsic("llvm.nvvm.wgmma.commit_group.sync.aligned", "void", [], []))
    return "0"


def _group_store(em: LlvmScope, e: Call) -> str:
    """Write the sums of this thread: two neighbours of each eight columns in two rows, eight rows apart."""
    first, value = e.args[0].args[0], e.args[2]  # type: ignore[attr-defined]
    registers, fn = _parts(em, em.value(value), value.dtype)[1], em.fn
    start, stride = em.address(first), em.index(e.args[1])
    row, column = _first_number(em)
    size = value.dtype.element.bytes
    kind = "float" if size == 4 else "i16"
    align = 2 * size if isinstance(e.args[1], IntImm) and e.args[1].value % 2 == 0 else size
    for half in (0, 1):
        line = fn.pure(f"mul i64 {fn.pure(f'add i64 {row}, {8 * half}')}, {stride}")
        place = fn.pure(f"getelementptr {kind}, ptr {start}, i64 {fn.pure(f'add i64 {line}, {column}')}")
        for n in range(tile_columns(value.dtype) // 8):
            at = fn.pure(f"getelementptr {kind}, ptr {place}, i64 {8 * n}")
            if size == 2:
                fn.do(f"store i32 {registers[2 * n + half]}, ptr {at}, align {align}")
                continue
            pair = registers[4 * n + 2 * half : 4 * n + 2 * half + 2]
            fn.do(f"store <2 x float> {fn.joined('<2 x float>', 'float', pair)}, ptr {at}, align {align}")
    em.touch(first.buffer.data)
    return "0"


def _part(em: LlvmScope, thread: str, low: int, mask: int) -> str:
    return em.fn.pure(f"and i64 {em.fn.pure(f'lshr i64 {thread}, {low}')}, {mask}")


GROUP_TILE_CALLS = {
    "wgmma_left": _steps_within, "wgmma_left_t": _steps_apart, "wgmma_right": _steps_apart,
    "wgmma_right_t": _steps_within, "wgmma_fence": _fence, "wgmma_dot": _group_dot, "wgmma_commit": _commit,
    "wgmma_wait": _wait, "wgmma_store": _group_store, "wgmma_row_max": _row_max, "wgmma_row_sum": _row_sum,
    "wgmma_across": _across, "wgmma_columns": _columns, "exp2_approx": _exp2_approx,
}  # fmt: skip
"""Emitters by the operation's name. Operands are descriptors, 64-bit numbers; sums are what a thread has of them."""


# Emits products of fragments (``mma.sync``) and the exchange of rows in shared memory (``ldmatrix``).

_FRAGMENT_WORDS = {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "uint8": "u8"}
_FIRST_FRAGMENTS = 80
"""The number of the first architecture that has all of these instructions."""


def _registers_of(em: LlvmScope, e: Expr) -> list[str]:
    """Returns a vector as registers of 32 bits."""
    count = e.dtype.bytes // 4
    whole = em.fn.pure(f"bitcast {llvm_type(e.dtype)} {em.value(e)} to <{count} x i32>")
    return [em.fn.pure(f"extractelement <{count} x i32> {whole}, i32 {n}") for n in range(count)]


def _of_registers(em: LlvmScope, dtype: DType, type_: str, found: str, count: int) -> str:
    """Returns the registers of a result as a vector."""
    values = [em.fn.pure(f"extractvalue {_struct(type_, count)} {found}, {n}") for n in range(count)]
    vector = f"<{count} x {type_}>"
    joined = em.fn.joined(vector, type_, values)
    return joined if llvm_type(dtype) == vector else em.fn.pure(f"bitcast {vector} {joined} to {llvm_type(dtype)}")


def _mma(em: LlvmScope, e: Call) -> str:
    _require(em, "mma", _FIRST_FRAGMENTS)
    c, a, b = e.args
    word, sums = _FRAGMENT_WORDS[a.dtype.element], "f32" if c.dtype.is_float else "s32"
    type_, constraint = ("float", "f") if c.dtype.is_float else ("i32", "r")
    given = em.value(c)
    before = [f"{type_} {em.fn.lane(llvm_type(c.dtype), given, n)}" for n in range(4)]
    operands = [f"i32 {r}" for r in (*_registers_of(em, a), *_registers_of(em, b))]
    text = (
        f"mma.sync.aligned.m16n8k{2 * a.dtype.lanes}.row.col.{sums}.{word}.{word}.{sums} "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )
    words = ",".join([f"={constraint}"] * 4 + ["r"] * 6 + [str(n) for n in range(4)])
    found = em.fn.emit(
        f'call {_struct(type_, 4)} asm "{text}", "{words}"({", ".join((*operands, *before))}) convergent'
    )
    return _of_registers(em, e.dtype, type_, found, 4)


def _ldmatrix(em: LlvmScope, e: Call) -> str:
    _require(em, "ldmatrix", _FIRST_FRAGMENTS)
    (row,) = e.args
    assert isinstance(row, BufferLoad)
    first = tuple([i.base if isinstance(i, Ramp) else i for i in row.indices])
    offset = em.total(em.lane_offsets(row.buffer, first).start)
    if (
        row.buffer.scope not in ("shared", "shared.dyn")
        or em.alignment(row.buffer, offset, row.dtype) < row.dtype.bytes
    ):
        raise EmitError(f"ldmatrix reads rows of shared memory that begin at multiples of 16 bytes, and {row} is none")
    pointer = em.fn.pure(f"addrspacecast ptr {em.pointer(row.buffer, offset)} to ptr addrspace(3)")
    place = em.fn.pure(f"ptrtoint ptr addrspace(3) {pointer} to i32")
    kind = ".trans" if e.op == "tir.ldmatrix_t" else ""
    text = f"ldmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
    found = em.fn.emit(
        f'call {_struct("i32", 4)} asm sideeffect "{text}", "=r,=r,=r,=r,r,~{{memory}}"(i32 {place}) convergent'
    )
    return _of_registers(em, e.dtype, "i32", found, 4)


FRAGMENT_CALLS = {"mma": _mma, "ldmatrix": _ldmatrix, "ldmatrix_t": _ldmatrix}
"""Emitters by the operation's name. A fragment is a vector of the thread."""
