"""What a kernel for NVIDIA's GPUs is made of: parameters, sizes, memory, and what one thread does, as LLVM IR.

A function comes in launch form (:mod:`..launch.launch_form`), with its barriers placed (:mod:`..launch.barriers`), after the passes
over what one thread does (``THREAD_PASSES`` of :mod:`..launch`: vectors, unrolled loops, mathematics). Then
:class:`.cuda_module.CudaModule` calls the first two of these:

1. :func:`~..launch.kernels.kernels_in` finds its kernels: each outermost loop on an axis of blocks or threads. A ``GpuKernel`` says
   what it takes, and how many blocks, threads and bytes of shared memory its launch has;
2. :func:`kernel_ir` writes each kernel as a module of LLVM IR: the parameters, the shared memory (:class:`PtxUnit`), and what one
   thread does (:class:`PtxEmitter`);
3. :mod:`.cuda_module` lets LLVM make PTX of it and launches it, and :mod:`.cuda_driver` calls NVIDIA's driver, which makes
   machine code of PTX.

What becomes of the parts of a program:

=============================  =====================================================================================
in the program                 in the kernel
=============================  =====================================================================================
loops on ``blockIdx.x``        the number ``%ctaid.x``; their extents, which may be sizes of the call, are the grid
loops on ``threadIdx.x``       the number ``%tid.x``; their extents, constants, are the threads of a block
arrays that it uses            parameters: pointers to global memory, aligned to 32 bytes; also those that the function
                               allocates around its kernels
sizes and other variables      parameters: numbers
buffers of the scope shared    one after the other in shared memory, at multiples of 64 bytes, swizzled ones of 1024. A
                               kernel of up to 48 KiB has them itself; of a larger one all are room that the launch gives
                               (``dynamic_shared``)
buffers of the scope local     memory of the thread, which LLVM keeps in registers where all indices are constants
tiles of ``wmma``, ``wgmma``   registers of the threads that hold the tile together (:mod:`.instruction_text`)
barriers                       ``bar.sync``, and a fence where units beside the threads use shared memory
stores in ``async_scope``      ``cp.async`` where they copy to shared memory, else stores
atomic additions               ``red``
copies in bulk, their barriers ``cp.async.bulk`` and ``mbarrier``, from sm_90 on
an assertion that fails        ``trap``: the kernel ends, and the driver's next call raises CudaError
all else                       the LLVM IR that processors get, too (:mod:`...codegen.llvm.emit`)
=============================  =====================================================================================

Before::

    for blockIdx_x in T.thread_binding(4, thread="blockIdx.x"):
        for threadIdx_x in T.thread_binding(256, thread="threadIdx.x"):
            B[blockIdx_x * 256 + threadIdx_x] = A[blockIdx_x * 256 + threadIdx_x] * T.float32(2)

After, as PTX (LLVM makes x + x of x * 2)::

    .visible .entry main_kernel0(.param .u64 main_kernel0_param_0, .param .u64 main_kernel0_param_1)
    .maxntid 256
    {   ...
        mov.u32         %r1, %ctaid.x;
        mov.u32         %r2, %tid.x;
        mul.wide.u32    %rd5, %r2, 4;
        mul.wide.u32    %rd6, %r1, 1024;
        ...
        ld.global.nc.b32 %r3, [%rd8];
        add.rn.f32      %r4, %r3, %r3;
        st.global.b32   [%rd9], %r4;
        ret;
    }

:class:`~..launch.launch_form.GpuError` for what no kernel can have: shared or local buffers whose sizes are not constants, and
statements that compute outside of all kernels.
"""

from __future__ import annotations

from math import gcd

from ...codegen.backend.emitter import CACHE_LINE, EmitError, EmitterTables, constant_elements
from ...codegen.llvm.emit import TABLES, LlvmEmitter, parameter_list
from ...codegen.llvm.function_builder import FunctionBuilder, align_of, memory_type
from ...codegen.llvm.llvm_scope import LlvmUnit
from ...codegen.llvm.llvm_stmt import attribute
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...tir.arith.normal_form.forms import Linear
from ...tir.expr import Broadcast, BufferLoad, Call, DType, Expr
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics.matrix_operations import TRANSPOSED_LOADS
from ...tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, For, PrimFunc, Stmt
from ...tir.walk import statements
from ..launch.barriers import BARRIER
from ..launch.bulk_copies import BARRIERS
from ..launch.kernels import GpuKernel, shared_alignment, shared_bytes, shared_places, shared_size
from ..launch.launch_form import (
    BLOCK_TAGS,
    SWIZZLED,
    SWIZZLED_ALIGNMENT,
    GpuError,
    held_of,
    is_shared,
    tag_of,
    threads_of_tile,
)
from ..launch.software_pipeline import ASYNC_SCOPE
from ..launch.tile_arithmetic import is_leaf
from .instruction_text import (
    ATOMIC_CALLS,
    BULK_CALLS,
    COPY_CALLS,
    GROUP_TILE_CALLS,
    LIBRARY_CALLS,
    WARP_TILE_CALLS,
    loaded,
    splat_of_tile,
    start_copy,
    store_fragment,
    swizzled_pointer,
    tile_arithmetic,
)

_PIECE = 16
"""The bytes that stay together in swizzled memory."""
PARAMETER_ALIGNMENT = 32
"""What kernels take arrays to be aligned to, in bytes: ``wmma`` stores need so many; four floats in one access need 16."""


@with_room
def kernel_ir(kernel: GpuKernel, target: Target) -> str:
    """Returns the LLVM IR module of a kernel."""
    func = PrimFunc((), kernel.loop, {})
    lowered = LoweredFunc(func, kernel.name, target, kernel.params)
    params = parameter_list(kernel.params)
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    unit = PtxUnit(lowered, _TABLES, bool(kernel.dynamic_shared))
    header = f'define ptx_kernel void @{kernel.name}({", ".join(params)}) nounwind "nvvm.maxntid"="{threads}"'
    fn = FunctionBuilder(header, unit.declarations)
    em = PtxEmitter(unit, fn)
    em.bind_parameters(kernel.params, [f"%a{n}" for n in range(len(params))])
    em.stmt(kernel.loop)
    fn.do("ret void")
    pieces = [f'target triple = "{target.triple}"', "", *unit.globals, "", *sorted(unit.declarations.values()), ""]
    pieces += [fn.text(), *unit.functions, *[f"!{n} = {text}" for n, text in enumerate(unit.metadata.values())]]
    return "\n".join(pieces) + "\n"


def uses_units_beside_threads(loop: Stmt) -> bool:
    """Returns whether units beside the threads use shared memory: products of warp groups, and copies in bulk."""
    return any(isinstance(s, Allocate) and s.buffer.scope in (SWIZZLED, BARRIERS) for s in statements(loop))


class PtxUnit(LlvmUnit):
    """What a module for processors has (:class:`LlvmUnit`), and the kernel's shared memory."""

    def __init__(self, lowered: LoweredFunc, tables: EmitterTables, dynamic: bool) -> None:
        super().__init__(lowered, tables)
        self.dynamic = dynamic
        self.async_proxy = uses_units_beside_threads(lowered.func.body)
        """Whether NVIDIA's async proxy uses shared memory, as ``wgmma`` and bulk copies do: barriers then fence it."""
        self.places = shared_places(lowered.func.body)
        align = SWIZZLED_ALIGNMENT if self.async_proxy else CACHE_LINE
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


# what one thread does


class PtxEmitter(LlvmEmitter):
    """This emitter writes what one thread does: as for processors, but for what its methods and ``_TABLES`` say."""

    unit: PtxUnit
    copying = False
    """Whether the statement stands in an ``async_scope``, so that its stores to shared memory are ``cp.async``."""

    def serial_loop(self, s: For) -> None:
        tag = tag_of(s)
        if not tag:
            LlvmEmitter.serial_loop(self, s)
            return
        word = ("ctaid" if tag in BLOCK_TAGS else "tid") + "." + tag[-1]
        number = self.fn.pure(self.fn.intrinsic(f"llvm.nvvm.read.ptx.sreg.{word}", "i32", [], []))
        self.vars[s.loop_var] = self.fn.pure(f"zext i32 {number} to i64")
        self.indices.add(s.loop_var)
        self.analyzer.bind(s.loop_var, (0, None))
        self.stmt(s.body)

    def value(self, e: Expr) -> str:
        """Return the value of an expression; of arithmetic on tiles, the registers of this thread."""
        if e.dtype.lanes > 1 and threads_of_tile(e.dtype) and not is_leaf(e):
            return tile_arithmetic(self, e)
        return LlvmEmitter.value(self, e)

    def store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
    ) -> None:
        if threads_of_tile(dtype):
            store_fragment(self, buffer, indices, value, dtype)
        else:
            LlvmEmitter.store(self, buffer, indices, value, dtype, predicate)

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
        """Return a guaranteed alignment in bytes; arrays of parameters begin at multiples of 32. LLVM joins neighbouring
        accesses of single elements where their alignment is known."""
        known = CACHE_LINE if self.bases.get(buffer.data) in self.own_memory else PARAMETER_ALIGNMENT
        step = self.step_of(offset) * dtype.element.bytes
        if buffer.scope == SWIZZLED:
            return min(gcd(step, _PIECE), _PIECE)
        return max(align_of(dtype), gcd(step, known))

    def pointer(self, buffer: Buffer, offset: Linear) -> str:
        """Return the address of an element."""
        return (
            swizzled_pointer(self, buffer, offset)
            if buffer.scope == SWIZZLED
            else LlvmEmitter.pointer(self, buffer, offset)
        )


def _allocate(em: PtxEmitter, s: Allocate) -> None:
    if is_shared(s.buffer.scope):
        pointer = em.unit.shared_memory(s.buffer)
        em.own_memory.add(pointer)
    else:
        elements = constant_elements(s.buffer)
        pointer = em.scratch_memory(s.buffer, elements and held_of(s.buffer, elements))
    em.bases[s.buffer.data] = pointer
    em.stmt(s.body)


def _attribute(em: PtxEmitter, s: AttrStmt) -> None:
    outer, em.copying = em.copying, em.copying or s.attr_key == ASYNC_SCOPE
    attribute(em, s)
    em.copying = outer


def _store(em: PtxEmitter, s: BufferStore) -> None:
    if isinstance(s.value, Call) and s.value.op in TRANSPOSED_LOADS:
        raise EmitError(
            f"{s.value.op.removeprefix('tir.')} stands in a product; registers of {s.buffer.name} don't say it"
        )
    if not (em.copying and start_copy(em, s)):
        TABLES.statements[BufferStore](em, s)


def _barrier(em: PtxEmitter, e: Call) -> str:
    if em.unit.async_proxy:
        em.fn.do('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')
    em.fn.do(em.fn.intrinsic("llvm.nvvm.barrier0", "void", [], []))
    em.touch(*em.bases)
    return "0"


_TABLES = EmitterTables(
    {**TABLES.statements, Allocate: _allocate, AttrStmt: _attribute, BufferStore: _store},
    {**TABLES.expressions, BufferLoad: loaded, Broadcast: splat_of_tile},
    {
        **TABLES.calls,
        **WARP_TILE_CALLS,
        **GROUP_TILE_CALLS,
        **BULK_CALLS,
        **COPY_CALLS,
        **ATOMIC_CALLS,
        **LIBRARY_CALLS,
        BARRIER.removeprefix("tir."): _barrier,
    },
)
