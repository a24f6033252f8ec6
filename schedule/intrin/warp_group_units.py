"""This module defines products of tiles by the four warps of a warp group (``wgmma`` of sm_90a).

The sums ``C[64, n]`` stay in registers of the group's 128 threads, in a buffer of scope ``wgmma.accumulator`` whose last two
dimensions are one tile (``transform_layout``). The operands are read in place, in shared memory: buffers of scope
``shared.swizzled`` with rows of 64 numbers, ``A[m, k % 64]`` and ``B[n // 64, k, n % 64]``. ``threadIdx.x`` has the 128 threads of a
group, and no loop around the tiles is bound to it. One intrinsic multiplies 64 steps: four instructions, then the wait for them.
"""

from __future__ import annotations

from ...tir.expr.intrinsics.group_matrix_operations import GROUP_ROWS, GROUP_STEPS, PANEL
from ...tir.stmt import PrimFunc
from .matrix_units import pair

STEPS = 64
"""The steps of the reduction in one intrinsic: a row of shared memory."""

_DOT = """
@T.prim_func
def wgmma_{n}_{a}_{role}(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (64, 64), "{a}", strides=("a_row", 1), offset_factor=1, scope="shared.swizzled")
    B = T.match_buffer(b, ({panels}, 64, 64), "{a}", strides=("b_panel", "b_row", 1), offset_factor=1, scope="shared.swizzled")
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    with T.block("root"):
        T.reads(C[0:64, 0:{n}], A[0:64, 0:64], B[0:{panels}, 0:64, 0:64])
        T.writes(C[0:64, 0:{n}])
"""

_DOT_DESC = """
        for i, j, k in T.grid(64, {n}, 64):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "float32") * T.cast(B[vj // 64, vk, vj % 64], "float32")
"""

_SUMS = """C.vload([0, 0], "float32x{lanes}")"""
_DOT_STEP = """
        C.vstore([0, 0], T.wgmma_dot(
            C.vload([0, 0], "float32x{lanes}"),
            T.wgmma_left("{a}x1024", T.address_of(A[0, {k}]), A.strides[0]),
            T.wgmma_right("{a}x{right}", T.address_of(B[0, {k}, 0]), B.strides[1], B.strides[0]),
        ))
"""

_FILL = """
@T.prim_func
def wgmma_fill_{n}_{role}(c: T.handle):
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    with T.block("root"):
        T.writes(C[0:64, 0:{n}])
"""

_FILL_DESC = """
        for i, j in T.grid(64, {n}):
            with T.block("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)
"""

_FILL_IMPL = """
        C.vstore([0, 0], T.Broadcast(T.float32(0), {lanes}))
"""

_STORE = """
@T.prim_func
def wgmma_store_{n}_{role}(c: T.handle, d: T.handle):
    T.func_attr({{"any_scope": True}})
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    D = T.match_buffer(d, (64, {n}), "float32", strides=("d_row", 1), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:64, 0:{n}])
        T.writes(D[0:64, 0:{n}])
"""

_STORE_DESC = """
        for i, j in T.grid(64, {n}):
            with T.block("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj]
"""

_STORE_IMPL = """
        T.evaluate(T.wgmma_store(T.address_of(D[0, 0]), D.strides[0], C.vload([0, 0], "float32x{lanes}")))
"""


def _pair(head: str, description: str, implementation: str, n: int, a: str = "") -> tuple[PrimFunc, PrimFunc]:
    words: dict[str, object] = {"n": n, "a": a, "panels": n // PANEL, "lanes": GROUP_ROWS * n, "right": GROUP_STEPS * n}
    return pair(head, description, implementation, **words)


def wgmma_dot(n: int, a: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 64 i, ``n`` j and 64 k. A and B are of type ``a``, C is float32."""
    steps = "".join(_DOT_STEP.replace("{k}", str(k)) for k in range(0, STEPS, GROUP_STEPS))
    fence, wait = f"C.vstore([0, 0], T.wgmma_fence({_SUMS}))", f"C.vstore([0, 0], T.wgmma_wait({_SUMS}, 0))"
    implementation = f"\n        {fence}{steps}        T.evaluate(T.wgmma_commit())\n        {wait}\n"
    return _pair(_DOT, _DOT_DESC, implementation, n, a)


def wgmma_fill(n: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] = 0`` for 64 rows of ``n`` sums."""
    return _pair(_FILL, _FILL_DESC, _FILL_IMPL, n)


def wgmma_store(n: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for 64 rows of ``n`` sums; the rows of D may lie apart."""
    return _pair(_STORE, _STORE_DESC, _STORE_IMPL, n)
