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
all else                       the LLVM IR that all GPUs get (:mod:`..thread_code`)
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

from ...codegen.backend.emitter import CACHE_LINE, EmitError, EmitterTables
from ...codegen.llvm.emit import parameter_list
from ...codegen.llvm.function_builder import FunctionBuilder
from ...codegen.llvm.llvm_stmt import attribute
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...tir.arith.normal_form.forms import Linear
from ...tir.expr import Broadcast, BufferLoad, Call, DType, Expr
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics.matrix_operations import TRANSPOSED_LOADS
from ...tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, PrimFunc, Stmt
from ...tir.walk import statements
from ..launch.barriers import BARRIER
from ..launch.bulk_copies import BARRIERS
from ..launch.kernels import GpuKernel
from ..launch.launch_form import (
    BLOCK_TAGS,
    SWIZZLED,
    SWIZZLED_ALIGNMENT,
    threads_of_tile,
)
from ..launch.software_pipeline import ASYNC_SCOPE
from ..launch.tile_arithmetic import is_leaf
from ..thread_code import THREAD_TABLES, KernelUnit, ThreadEmitter
from .instruction_text import (
    ATOMIC_CALLS,
    BULK_CALLS,
    COPY_CALLS,
    FRAGMENT_CALLS,
    GROUP_TILE_CALLS,
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
    return unit.text(fn)


def uses_units_beside_threads(loop: Stmt) -> bool:
    """Returns whether units beside the threads use shared memory: products of warp groups, and copies in bulk."""
    return any(isinstance(s, Allocate) and s.buffer.scope in (SWIZZLED, BARRIERS) for s in statements(loop))


class PtxUnit(KernelUnit):
    """A module of one kernel for NVIDIA's GPUs."""

    def __init__(self, lowered: LoweredFunc, tables: EmitterTables, dynamic: bool) -> None:
        self.async_proxy = uses_units_beside_threads(lowered.func.body)
        """Whether NVIDIA's async proxy uses shared memory, as ``wgmma`` and bulk copies do: barriers then fence it."""
        super().__init__(lowered, tables, dynamic, SWIZZLED_ALIGNMENT if self.async_proxy else CACHE_LINE)


# what one thread does


class PtxEmitter(ThreadEmitter):
    """This emitter writes what one thread does: as for all GPUs, but for what its methods and ``_TABLES`` say."""

    unit: PtxUnit
    copying = False
    """Whether the statement stands in an ``async_scope``, so that its stores to shared memory are ``cp.async``."""
    parameter_alignment = PARAMETER_ALIGNMENT

    def axis_number(self, tag: str) -> str:
        word = ("ctaid" if tag in BLOCK_TAGS else "tid") + "." + tag[-1]
        return self.fn.pure(self.fn.intrinsic(f"llvm.nvvm.read.ptx.sreg.{word}", "i32", [], []))

    def value(self, e: Expr) -> str:
        """Return the value of an expression; of arithmetic on tiles, the registers of this thread."""
        if e.dtype.lanes > 1 and threads_of_tile(e.dtype) and not is_leaf(e):
            return tile_arithmetic(self, e)
        return ThreadEmitter.value(self, e)

    def store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
    ) -> None:
        if threads_of_tile(dtype):
            store_fragment(self, buffer, indices, value, dtype)
        else:
            ThreadEmitter.store(self, buffer, indices, value, dtype, predicate)

    def alignment(self, buffer: Buffer, offset: Linear, dtype: DType) -> int:
        if buffer.scope == SWIZZLED:
            return min(gcd(self.step_of(offset) * dtype.element.bytes, _PIECE), _PIECE)
        return ThreadEmitter.alignment(self, buffer, offset, dtype)

    def pointer(self, buffer: Buffer, offset: Linear) -> str:
        """Return the address of an element."""
        return (
            swizzled_pointer(self, buffer, offset)
            if buffer.scope == SWIZZLED
            else ThreadEmitter.pointer(self, buffer, offset)
        )


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
        THREAD_TABLES.statements[BufferStore](em, s)


def _barrier(em: PtxEmitter, e: Call) -> str:
    if em.unit.async_proxy:
        em.fn.do('call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()')
    em.fn.do(em.fn.intrinsic("llvm.nvvm.barrier0", "void", [], []))
    em.touch(*em.bases)
    return "0"


_TABLES = EmitterTables(
    {**THREAD_TABLES.statements, AttrStmt: _attribute, BufferStore: _store},
    {**THREAD_TABLES.expressions, BufferLoad: loaded, Broadcast: splat_of_tile},
    {
        **THREAD_TABLES.calls,
        **WARP_TILE_CALLS,
        **GROUP_TILE_CALLS,
        **FRAGMENT_CALLS,
        **BULK_CALLS,
        **COPY_CALLS,
        **ATOMIC_CALLS,
        BARRIER.removeprefix("tir."): _barrier,
    },
)
