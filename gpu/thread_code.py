"""What one thread of a kernel does as LLVM IR: what all GPUs share that LLVM makes machine code for.

Memory is addressed by generic pointers, of which LLVM finds out the address spaces. The text of a kind of GPUs
(:mod:`.ptx.kernel_text`, :mod:`.rocm.kernel_text`) adds the numbers of blocks and threads, barriers and instructions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import gcd
from typing import ClassVar

from ..codegen.backend.emitter import CACHE_LINE, EmitterTables, constant_elements
from ..codegen.llvm.emit import TABLES, LlvmEmitter
from ..codegen.llvm.function_builder import FunctionBuilder, align_of, llvm_type, memory_type
from ..codegen.llvm.llvm_scope import LlvmScope, LlvmUnit
from ..codegen.lowered import LoweredFunc
from ..tir.arith.normal_form.forms import Linear
from ..tir.expr import Call, DType
from ..tir.stmt import Allocate, Buffer, For
from .launch.kernels import shared_alignment, shared_bytes, shared_places, shared_size
from .launch.launch_form import GpuError, held_of, is_shared, tag_of


class KernelUnit(LlvmUnit):
    """What a module for processors has (:class:`LlvmUnit`), and the kernel's shared memory.

    ``dynamic``: the launch gives the shared memory; ``align``: where that of all buffers together begins.
    """

    def __init__(
        self, lowered: LoweredFunc, tables: EmitterTables, dynamic: bool = False, align: int = CACHE_LINE
    ) -> None:
        super().__init__(lowered, tables)
        self.places = shared_places(lowered.func.body)
        self.together = dynamic or shared_bytes(lowered.func.body) < sum(map(shared_size, self.places))
        """Whether all shared buffers are parts of one, as those have to be that the launch gives or that have one place."""
        total = 0 if dynamic else shared_bytes(lowered.func.body)
        kind, start = ("external", "") if dynamic else ("internal", " poison")
        room = f"@{lowered.name}_room = {kind} addrspace(3) global [{total} x i8]{start}, align {align}"
        self.globals: list[str] = [room] * self.together

    def shared_memory(self, buffer: Buffer) -> str:
        """Return the address of a shared buffer."""
        if self.together:
            start = f"addrspacecast (ptr addrspace(3) @{self.name}_room to ptr)"
            return f"getelementptr (i8, ptr {start}, i64 {self.places[buffer]})"
        name = f"@{self.name}_shared{len(self.globals)}"
        element = memory_type(buffer.dtype.element)
        count = (constant_elements(buffer) or 0) * buffer.dtype.lanes
        self.globals.append(
            f"{name} = internal addrspace(3) global [{count} x {element}] poison, align {shared_alignment(buffer)}"
        )
        return f"addrspacecast (ptr addrspace(3) {name} to ptr)"

    def text(self, fn: FunctionBuilder) -> str:
        """Return the module with the kernel ``fn``."""
        pieces = [f'target triple = "{self.target.triple}"', "", *self.globals, "", *sorted(self.declarations.values())]
        pieces += ["", fn.text(), *self.functions, *self.named_metadata()]
        return "\n".join([*pieces, *[f"!{n} = {text}" for text, n in self.metadata.items()]]) + "\n"


class ThreadEmitter(LlvmEmitter):
    """This emitter writes what one thread does: as for processors, but for what its methods and :data:`THREAD_TABLES` say."""

    unit: KernelUnit
    parameter_alignment: ClassVar[int]
    """What kernels take arrays to be aligned to, in bytes. LLVM joins neighbouring accesses of single elements where it is known."""

    @abstractmethod
    def axis_number(self, tag: str) -> str:
        """Return the number of a block or a thread along an axis, 32 bits."""

    def serial_loop(self, s: For) -> None:
        tag = tag_of(s)
        if not tag:
            LlvmEmitter.serial_loop(self, s)
            return
        self.vars[s.loop_var] = self.fn.pure(f"zext i32 {self.axis_number(tag)} to i64")
        self.indices.add(s.loop_var)
        self.analyzer.bind(s.loop_var, (0, None))
        self.stmt(s.body)

    def scratch_memory(self, buffer: Buffer, elements: int | None) -> str:
        if elements is None:
            raise GpuError(f"the size of the local buffer {buffer.name} is not a constant")
        return self.stack_memory(buffer, elements)

    def free(self, pointer: str) -> None:
        """Local memory goes with the thread."""

    def check(self, holds: str, code: str) -> None:
        fine, failed = self.fn.new_label("fine"), self.fn.new_label("failed")
        self.fn.branch_if(holds, fine, failed)
        self.fn.label(failed)
        self.fn.do(self.fn.intrinsic("llvm.trap", "void", [], []))
        self.fn.do("unreachable")
        self.fn.label(fine)

    def alignment(self, buffer: Buffer, offset: Linear, dtype: DType) -> int:
        """Return a guaranteed alignment in bytes."""
        given = min(self.parameter_alignment, buffer.data_alignment)
        known = CACHE_LINE if self.bases.get(buffer.data) in self.own_memory else given
        return max(align_of(dtype), gcd(self.step_of(offset) * dtype.element.bytes, known))


def _allocate(em: ThreadEmitter, s: Allocate) -> None:
    if is_shared(s.buffer.scope):
        pointer = em.unit.shared_memory(s.buffer)
        em.own_memory.add(pointer)
    else:
        elements = constant_elements(s.buffer)
        pointer = em.scratch_memory(s.buffer, elements and held_of(s.buffer, elements))
    em.bases[s.buffer.data] = pointer
    em.stmt(s.body)


# The remainder of floats, which no instruction has, and no library that code for GPUs is linked with.

_FMOD = """(T %x, T %y) nounwind {
  %a = call T @llvm.fabs.S(T %x)
  %b = call T @llvm.fabs.S(T %y)
  %unordered = fcmp uno T %a, %b
  %by_zero = fcmp oeq T %b, 0.0
  %infinite = fcmp oeq T %a, 0x7FF0000000000000
  %either = or i1 %unordered, %by_zero
  %undefined = or i1 %either, %infinite
  br i1 %undefined, label %nan, label %ordered
nan:
  ret T 0x7FF8000000000000
ordered:
  %less = fcmp olt T %a, %b
  br i1 %less, label %whole, label %up
whole:
  ret T %x
up:
  %low = phi T [ %b, %ordered ], [ %high, %up ]
  %high = fadd T %low, %low
  %fits = fcmp ole T %high, %a
  br i1 %fits, label %up, label %down
down:
  %r = phi T [ %a, %up ], [ %rest, %next ]
  %t = phi T [ %low, %up ], [ %half, %next ]
  %part = fcmp ole T %t, %r
  %taken = fsub T %r, %t
  %rest = select i1 %part, T %taken, T %r
  %last = fcmp oeq T %t, %b
  br i1 %last, label %done, label %next
next:
  %half = fmul T %t, 0.5
  br label %down
done:
  %signed = call T @llvm.copysign.S(T %rest, T %x)
  ret T %signed
}"""


def _fmod(em: LlvmScope, e: Call) -> str:
    """Returns the remainder by long division. It is exact, as each difference is of values less than a factor of two apart."""
    element = e.dtype.element
    scalar, word = llvm_type(element), f"f{element.bits}"
    for function, count in (("fabs", 1), ("copysign", 2)):
        name = f"llvm.{function}.{word}"
        em.fn.declarations.setdefault(name, f"declare {scalar} @{name}({', '.join([scalar] * count)})")
    name = em.unit.outline(scalar, "fmod", _FMOD.replace("T", scalar).replace(".S(", f".{word}("))

    def one(operands: Sequence[str]) -> str:
        return em.fn.pure(f"call {scalar} @{name}({', '.join([f'{scalar} {o}' for o in operands])})")

    values, lanes = em.values(e.args), e.dtype.lanes
    if lanes == 1:
        return one(values)
    picked = [[em.fn.lane(em.type(e), value, n) for value in values] for n in range(lanes)]
    return em.fn.joined(em.type(e), scalar, map(one, picked))


THREAD_TABLES = EmitterTables(
    {**TABLES.statements, Allocate: _allocate}, TABLES.expressions, {**TABLES.calls, "fmod": _fmod}
)
"""The emitters of nodes. Those of a kind of GPUs begin with these."""
