"""Emits what reaches memory beside loads and stores: atomic additions, and asynchronous copies of words and of rows."""

from __future__ import annotations

import re

from ...codegen.backend.emitter import EmitError
from ...codegen.llvm.function_builder import memory_type
from ...codegen.llvm.llvm_scope import LlvmScope
from ...tir.expr import BufferLoad, Call, DType, Expr, IntImm
from ...tir.stmt import Buffer, BufferStore
from ..launch.asynchronous_copies import BULK_WAIT, COMMIT, WAIT
from ..launch.bulk_copies import COPY, EXPECT, INIT, PIECE

_BYTES = (4, 8, 16)
"""What one instruction copies."""


def start_copy(em: LlvmScope, s: BufferStore) -> bool:
    """Emit the start of a copy, where one instruction does it; return whether it does."""
    value = s.value
    if s.predicate is not None or not isinstance(value, BufferLoad) or value.predicate is not None:
        return False
    lanes = max([i.dtype.lanes for i in s.indices], default=1)
    dtype = s.buffer.dtype.with_lanes(lanes)
    if dtype.bytes not in _BYTES or value.dtype.lanes != lanes:
        return False
    places = [_place(em, b, indices, dtype) for b, indices in ((s.buffer, s.indices), (value.buffer, value.indices))]
    if not all(places):
        return False
    kind = "cg" if dtype.bytes == 16 else "ca"  # the wide ones bypass the first-level cache
    spaces = ["ptr addrspace(3)", "ptr addrspace(1)"]
    pointers = [em.fn.pure(f"addrspacecast ptr {p} to {space}") for p, space in zip(places, spaces, strict=True)]
    name = f"llvm.nvvm.cp.async.{kind}.shared.global.{dtype.bytes}"
    em.fn.do(em.fn.intrinsic(name, "void", spaces, pointers))
    em.touch(s.buffer.data)
    return True


def _place(em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], dtype: DType) -> str | None:
    """Returns the address of elements that lie side by side at a multiple of their size."""
    where = em.lane_offsets(buffer, indices)
    if dtype.lanes > 1 and where.distance != 1:
        return None
    offset = em.total(where.start).times(where.unit)
    return em.pointer(buffer, offset) if em.alignment(buffer, offset, dtype) >= dtype.bytes else None


def _commit(em: LlvmScope, e: Call) -> str:
    em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [], []))
    return "0"


def _wait(em: LlvmScope, e: Call) -> str:
    (groups,) = e.args
    if not isinstance(groups, IntImm):
        raise EmitError("the number of groups that may go on is no constant")
    em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.wait.group", "void", ["i32"], [str(groups.value)]))
    em.touch(*em.bases)
    return "0"


COPY_CALLS = {COMMIT.removeprefix("tir."): _commit, WAIT.removeprefix("tir."): _wait}
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

_WORDS = {
    "float32": ("f32", "f"), "float64": ("f64", "d"), "float16": ("noftz.f16", "h"), "bfloat16": ("noftz.bf16", "h"),
    "int32": ("s32", "r"), "uint32": ("u32", "r"), "int64": ("u64", "l"),
}  # fmt: skip
"""PTX's word for the addition of a type, and the constraint of its register."""
_HELD = {"float32": "float", "float64": "double", "int32": "i32", "uint32": "i32", "int64": "i64"}
_BFLOAT16 = 90
"""The number of the first architecture that adds bfloat16 atomically."""


def _added(em: LlvmScope, e: Call, word: str, register: str, operand: str) -> str:
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    if first.buffer.dtype.element == "bfloat16" and int(re.sub(r"\D", "", em.target.mcpu) or 0) < _BFLOAT16:
        raise EmitError(
            f"{e.op.removeprefix('tir.')} of bfloat16 needs -arch=sm_{_BFLOAT16} or newer; the target has {em.target.mcpu}"
        )
    place = em.fn.pure(f"addrspacecast ptr {em.address(first)} to ptr addrspace(1)")
    em.fn.do(
        f'call void asm sideeffect "red.relaxed.gpu.global.add.{word} [$0], $1;", "l,{register},~{{memory}}"'
        f"(ptr addrspace(1) {place}, {operand})"
    )
    em.touch(first.buffer.data)
    return "0"


def _add(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    word, register = _WORDS[dtype]
    text, held = em.value(e.args[1]), _HELD.get(dtype)
    if held is None:
        text, held = em.fn.pure(f"bitcast {memory_type(e.args[1].dtype)} {text} to i16"), "i16"
    return _added(em, e, word, register, f"{held} {text}")


def _add_pair(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    kind = memory_type(e.args[1].dtype)
    both = em.fn.joined(f"<2 x {kind}>", kind, [em.value(value) for value in e.args[1:]])
    return _added(em, e, _WORDS[dtype][0] + "x2", "r", f"i32 {em.fn.pure(f'bitcast <2 x {kind}> {both} to i32')}")


ATOMIC_CALLS = {"atomic_add": _add, "atomic_add_pair": _add_pair}
"""Emitters by the operation's name."""
