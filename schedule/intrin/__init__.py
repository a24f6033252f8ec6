"""Tensor intrinsics that come with the package; each is made when first asked for.

============================  ======================================================================================
``dot_16x4_vnni``             ``C[16] += A[4] · B[16, 4]``, uint8 by int8 into int32: one vpdpbusd of AVX-512 VNNI
``dot_16x4_i8u8_vnni``        ``C[16] += A[4] · B[16, 4]``, int8 by uint8: the same instruction
``dot_8x4_avx_vnni``          ``C[8] += A[4] · B[8, 4]``, the same with the 256 bits of AVX-VNNI
``dot_16x4_i8_vnni``          ``C[16] += A[4] · B[16, 4]``, int8 by int8: the same and what makes it signed
``dot_16x2_bf16``             ``C[16] += A[2] · B[16, 2]``, bfloat16 into float32: one vdpbf16ps of AVX-512 BF16
``dot_8x2_bf16``              ``C[8] += A[2] · B[8, 2]``, the same with 256 bits
``fma_RxL_f32``               ``C[R, L] += A[R, 1] * B[1, L]``: a row of multiply-adds, R L = 6x16, 14x32, 1x16, 1x8
``dot_16x16x64_s8s8_amx``     ``C[16, 16] += A[16, 64] · B[16, 16, 4]``, int8 by int8 into int32: one tdpbssd of AMX
``dot_16x16x64_u8s8_amx``     the same for uint8 by int8: one tdpbusd
``dot_16x16x32_bf16_amx``     ``C[16, 16] += A[16, 32] · B[16, 16, 2]``, bfloat16 into float32: one tdpbf16ps
``fill_16x16_T_amx``          ``C[16, 16] = 0`` in a tile register, T = i32, f32
``store_16x16_T_amx``         ``D[16, 16] = C[16, 16]``, the rows of D apart: from a tile register to memory
``wmma_16x16x16_T``           ``C[16, 16] += A[16, 16] · B[16, 16]`` by the warps of a GPU, T = f16, bf16, tf32, s8
``wmma_fill_16x16_T``         ``C[16, 16] = 0`` in registers of a warp, T = f32, s32
``wmma_store_16x16_T``        ``D[16, 16] = C[16, 16]`` from registers of a warp, T = f32, s32
``wgmma_64xNx64_T``           ``C[64, N] += A[64, 64] · B[N // 64, 64, 64]`` by warp groups of sm_90a, T = f16, bf16, N = 64 .. 256
``wgmma_fill_64xN``           ``C[64, N] = 0`` in registers of a warp group
``wgmma_store_64xN``          ``D[64, N] = C[64, N]`` from registers of a warp group
============================  ======================================================================================

Those of processors run on every processor: where the instruction is missing, plain arithmetic does the same. Operands may lie in memory
of any scope, but for warp groups, whose operands lie in ``shared.swizzled``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...tir.expr.intrinsics.matrix_operations import WIDTHS
from ...tir.stmt import PrimFunc
from .matrix_units import (
    tile_dot,
    tile_fill,
    tile_store,
    wgmma_dot,
    wgmma_fill,
    wgmma_store,
    wmma_dot,
    wmma_fill,
    wmma_store,
)
from .vector_units import bf16_dot, fma_tile, int8_dot, int8_uint8_dot, signed_int8_dot

__all__ = [
    "AMX_DOT_BF16_INTRIN", "AMX_DOT_S8S8_INTRIN", "AMX_DOT_U8S8_INTRIN",
    "AVX_VNNI_DOT_8x4_INTRIN", "BF16_DOT_16x2_INTRIN", "BF16_DOT_8x2_INTRIN", "SHIPPED", "VNNI_DOT_16x4_INTRIN",
    "VNNI_DOT_16x4_SIGNED_INTRIN", "VNNI_DOT_16x4_SWAPPED_INTRIN",
    "bf16_dot", "fma_tile", "int8_dot", "int8_uint8_dot", "signed_int8_dot",
    "tile_dot", "tile_fill", "tile_store", "wgmma_dot", "wgmma_fill", "wgmma_store", "wmma_dot", "wmma_fill", "wmma_store",
]  # fmt: skip

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
VNNI_DOT_16x4_SIGNED_INTRIN = "dot_16x4_i8_vnni"
VNNI_DOT_16x4_SWAPPED_INTRIN = "dot_16x4_i8u8_vnni"
AVX_VNNI_DOT_8x4_INTRIN = "dot_8x4_avx_vnni"
BF16_DOT_16x2_INTRIN = "dot_16x2_bf16"
BF16_DOT_8x2_INTRIN = "dot_8x2_bf16"
AMX_DOT_S8S8_INTRIN = "dot_16x16x64_s8s8_amx"
AMX_DOT_U8S8_INTRIN = "dot_16x16x64_u8s8_amx"
AMX_DOT_BF16_INTRIN = "dot_16x16x32_bf16_amx"

SHIPPED: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {
    VNNI_DOT_16x4_INTRIN: partial(int8_dot, 16),
    VNNI_DOT_16x4_SIGNED_INTRIN: partial(signed_int8_dot, 16),
    VNNI_DOT_16x4_SWAPPED_INTRIN: partial(int8_uint8_dot, 16),
    AVX_VNNI_DOT_8x4_INTRIN: partial(int8_dot, 8),
    BF16_DOT_16x2_INTRIN: partial(bf16_dot, 16),
    BF16_DOT_8x2_INTRIN: partial(bf16_dot, 8),
    AMX_DOT_S8S8_INTRIN: partial(tile_dot, "int8", "int8"),
    AMX_DOT_U8S8_INTRIN: partial(tile_dot, "uint8", "int8"),
    AMX_DOT_BF16_INTRIN: partial(tile_dot, "bfloat16", "bfloat16"),
    **{f"fill_16x16_{t}_amx": partial(tile_fill, dtype) for t, dtype in (("i32", "int32"), ("f32", "float32"))},
    **{f"store_16x16_{t}_amx": partial(tile_store, dtype) for t, dtype in (("i32", "int32"), ("f32", "float32"))},
    **{
        f"wmma_16x16x16_{t}": partial(wmma_dot, a)
        for t, a in (("f16", "float16"), ("bf16", "bfloat16"), ("tf32", "float32"), ("s8", "int8"))
    },
    **{f"wmma_fill_16x16_{t}": partial(wmma_fill, c) for t, c in (("f32", "float32"), ("s32", "int32"))},
    **{f"wmma_store_16x16_{t}": partial(wmma_store, c) for t, c in (("f32", "float32"), ("s32", "int32"))},
    **{
        f"wgmma_64x{n}x64_{t}": partial(wgmma_dot, n, a)
        for n in WIDTHS
        for t, a in (("f16", "float16"), ("bf16", "bfloat16"))
    },
    **{f"wgmma_fill_64x{n}": partial(wgmma_fill, n) for n in WIDTHS},
    **{f"wgmma_store_64x{n}": partial(wgmma_store, n) for n in WIDTHS},
    **{f"fma_{r}x{c}_f32": partial(fma_tile, r, c) for r, c in ((1, 8), (1, 16), (6, 16), (14, 32))},
}
"""How each is made: description and implementation by name."""
