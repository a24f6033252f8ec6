"""Kernels for AMD's GPUs as LLVM IR: what :mod:`..thread_code` writes, and the words of LLVM's AMDGPU back end.

=============================  =====================================================================================
in the program                 in the kernel
=============================  =====================================================================================
loops on ``blockIdx.x``        the number ``llvm.amdgcn.workgroup.id.x``
loops on ``threadIdx.x``       the number ``llvm.amdgcn.workitem.id.x``
arrays that it uses            parameters: pointers to global memory (address space 1), aligned to 16 bytes
sizes and other variables      parameters: numbers
buffers of the scope shared    the workgroup's memory, LDS (address space 3)
buffers of the scope local     the thread's memory, "private" or scratch (address space 5), which LLVM keeps in vector registers
                               where all indices are constants
barriers                       ``s_barrier`` between fences of the workgroup
exchanges in a warp            ``ds_swizzle_b32``, which exchanges among 32 threads of a wavefront of 32 or of 64
asynchronous copies            plain stores, for which nothing waits
atomic additions               ``atomicrmw fadd`` and ``add``: an instruction where the GPU has one, else a loop
an assertion that fails        ``llvm.trap``
=============================  =====================================================================================

The words are those of the AMDGPU back end's manual, https://llvm.org/docs/AMDGPUUsage.html. Code objects are of version 5, which
ROCm 5.7 and later read.
"""

from __future__ import annotations

from ...codegen.backend.emitter import EmitterTables
from ...codegen.llvm.emit import parameter_list
from ...codegen.llvm.function_builder import FunctionBuilder, llvm_type
from ...codegen.llvm.llvm_calls import PLAIN_CALLS
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...tir.expr import Call, IntImm
from ...tir.expr.deep_recursion import with_room
from ...tir.stmt import PrimFunc
from ..launch.barriers import BARRIER
from ..launch.cross_thread_reduction import distance_of
from ..launch.kernels import GpuKernel
from ..launch.launch_form import BLOCK_TAGS, GpuError
from ..launch.software_pipeline import COMMIT_COPIES, WAIT_FOR_COPIES
from ..thread_code import THREAD_TABLES, KernelUnit, ThreadEmitter

PROCESSORS = (
    "gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx942", "gfx950",
    "gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
)  # fmt: skip
"""The processors that code is made for: GFX9 (Vega, Instinct), GFX10 to GFX12 (Radeon RX 5000 to 9000)."""

_VERSION = 500
"""The version of code objects times 100."""
_SHARED, _SHARED_OF = 64 << 10, {"gfx950": 160 << 10}
"""The bytes of shared memory that a workgroup may have, and those of processors with others."""
_THREADS = 1024
"""The most threads of a workgroup."""


@with_room
def kernel_ir(kernel: GpuKernel, target: Target) -> str:
    """Returns the LLVM IR module of a kernel. GpuError where it needs more than a workgroup may have."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    most = _SHARED_OF.get(target.mcpu, _SHARED)
    if kernel.shared_bytes > most:
        raise GpuError(
            f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory, and {target.mcpu} has {most}"
        )
    if threads > _THREADS:
        raise GpuError(f"{kernel.name} has {threads} threads in a block, and {target.mcpu} allows {_THREADS}")
    lowered = LoweredFunc(PrimFunc((), kernel.loop, {}), kernel.name, target, kernel.params)
    unit = RocmUnit(lowered, _TABLES)
    params = [p.replace("ptr", "ptr addrspace(1)", 1) for p in parameter_list(kernel.params)]
    header = (
        f'define amdgpu_kernel void @{kernel.name}({", ".join(params)}) nounwind "target-cpu"="{target.mcpu}" '
        f'"amdgpu-flat-work-group-size"="{threads},{threads}" "uniform-work-group-size"="true"'
    )
    fn = PrivateStack(header, unit.declarations)
    em = RocmEmitter(unit, fn)
    names = [
        f"%a{n}" if p.buffer is None else fn.emit(f"addrspacecast ptr addrspace(1) %a{n} to ptr")
        for n, p in enumerate(kernel.params)
    ]
    em.bind_parameters(kernel.params, names)
    em.stmt(kernel.loop)
    fn.do("ret void")
    return unit.text(fn)


class PrivateStack(FunctionBuilder):
    """A builder of a function whose stack is the private memory of a thread."""

    def alloca(self, count: int, element: str) -> str:
        own, name = self.fresh("private"), self.fresh("stack")
        self.allocas.append(f"  {own} = alloca [{count} x {element}], align 16, addrspace(5)")
        self.allocas.append(f"  {name} = addrspacecast ptr addrspace(5) {own} to ptr")
        return name


class RocmUnit(KernelUnit):
    """A module of one kernel for AMD's GPUs, which says the version of its code object."""

    def named_metadata(self) -> list[str]:
        version = self.node(f'!{{i32 1, !"amdhsa_code_object_version", i32 {_VERSION}}}')
        return [f"!llvm.module.flags = !{{{version}}}"]


class RocmEmitter(ThreadEmitter):
    """This emitter writes what one thread does on AMD's GPUs."""

    parameter_alignment = 16

    def axis_number(self, tag: str) -> str:
        word = "workgroup" if tag in BLOCK_TAGS else "workitem"
        return self.fn.pure(self.fn.intrinsic(f"llvm.amdgcn.{word}.id.{tag[-1]}", "i32", [], []))


def _barrier(em: RocmEmitter, e: Call) -> str:
    em.fn.do('fence syncscope("workgroup") release')
    em.fn.do(em.fn.intrinsic("llvm.amdgcn.s.barrier", "void", [], []))
    em.fn.do('fence syncscope("workgroup") acquire')
    em.touch(*em.bases)
    return "0"


def _nothing(em: RocmEmitter, e: Call) -> str:
    """Returns a value of what needs no instruction, as copies were plain stores."""
    return "0"


def _exchange(em: RocmEmitter, e: Call) -> str:
    """Returns an intrinsic of LLVM; of an exchange in a warp, the instruction of this GPU."""
    found = distance_of(e)
    if found is None:
        return PLAIN_CALLS["call_llvm_pure_intrin"](em, e)
    value, distance = found
    assert isinstance(distance, IntImm)
    # bits 0 to 4: what is kept of the lane's number; bits 10 to 14: its bits that change
    pattern, word = f"{distance.value << 10 | 31}", em.type(e)
    given = em.value(value)
    bits = given if word == "i32" else em.fn.pure(f"bitcast {word} {given} to i32")
    # it takes part in the control flow of all lanes, and so is not shared with another of the same value
    out = em.fn.emit(em.fn.intrinsic("llvm.amdgcn.ds.swizzle", "i32", ["i32", "i32"], [bits, pattern]))
    return out if word == "i32" else em.fn.pure(f"bitcast i32 {out} to {word}")


_ADDED = {"bfloat16": "bfloat"}
"""LLVM's type of a number that is added, where it is kept as another one."""


def _place(em: RocmEmitter, e: Call) -> str:
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    place = em.fn.pure(f"addrspacecast ptr {em.address(first)} to ptr addrspace(1)")
    em.touch(first.buffer.data)
    return place


def _atomic(em: RocmEmitter, place: str, word: str, kind: str, value: str, align: int) -> None:
    # arrays lie in the device's own memory, so that the memory's own additions may be used
    own = em.unit.node("!{}")
    promise = f", !amdgpu.no.fine.grained.memory {own}, !amdgpu.no.remote.memory {own}" if word == "fadd" else ""
    promise += f", !amdgpu.ignore.denormal.mode {own}" if kind == "float" and word == "fadd" else ""
    em.fn.do(
        f'atomicrmw {word} ptr addrspace(1) {place}, {kind} {value} syncscope("agent") monotonic, align {align}{promise}'
    )


def _add(em: RocmEmitter, e: Call) -> str:
    dtype = e.args[1].dtype.element
    value, held = em.value(e.args[1]), llvm_type(dtype)
    kind = _ADDED.get(dtype, held)
    if kind != held:
        value = em.fn.pure(f"bitcast {held} {value} to {kind}")
    _atomic(em, _place(em, e), "add" if dtype.is_int else "fadd", kind, value, dtype.bytes)
    return "0"


def _add_pair(em: RocmEmitter, e: Call) -> str:
    dtype = e.args[1].dtype.element
    held = llvm_type(dtype)
    both = em.fn.joined(f"<2 x {held}>", held, [em.value(value) for value in e.args[1:]])
    kind = _ADDED.get(dtype, held)
    if kind != held:
        both = em.fn.pure(f"bitcast <2 x {held}> {both} to <2 x {kind}>")
    _atomic(em, _place(em, e), "fadd", f"<2 x {kind}>", both, 2 * dtype.bytes)
    return "0"


_TABLES = EmitterTables(
    THREAD_TABLES.statements,
    THREAD_TABLES.expressions,
    {
        **THREAD_TABLES.calls,
        "call_llvm_pure_intrin": _exchange,
        "atomic_add": _add,
        "atomic_add_pair": _add_pair,
        BARRIER.removeprefix("tir."): _barrier,
        COMMIT_COPIES.removeprefix("tir."): _nothing,
        WAIT_FOR_COPIES.removeprefix("tir."): _nothing,
    },
)
