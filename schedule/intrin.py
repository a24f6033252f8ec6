"""Tensor intrinsics that come with the package; each is made when first asked for.

One instruction takes ``lanes`` rows of B, ``width`` numbers each, side by side in memory: lay the right operand of a
matrix product out as ``W[n // lanes, k // width, n % lanes, k % width]`` first (``transform_layout``).

The sums ``C[16, 16]`` stay in registers over the whole reduction, in a buffer whose last two dimensions are one tile,
``C[.., m // 16, n // 16, m % 16, n % 16]`` (``transform_layout``).

With AMX, whose registers hold 16 rows of 64 bytes, that buffer has the scope ``local``, and the loops over the tiles of one step
are unrolled. Eight registers hold two tiles of A, two tiles of B and their four of C. B is stored with four (for bfloat16: two)
steps next to each other, ``B[n // 16, k // 4, n % 16, k % 4]``, so that a tile of it is 1 KiB of consecutive memory. A is read
in place, 64 bytes of each of 16 rows.

With tensor cores, whose tiles are 16 by 16 by 16, the buffer has the scope ``wmma.accumulator`` and stays in registers of a warp.
A and B are read in place, in shared memory usually, as rows or as columns (below). ``threadIdx.x`` has the 32 threads of a warp, and no loop around the tiles is
bound to it.

With the warp groups of sm_90a (``wgmma``) the sums ``C[64, n]`` stay in registers of the 128 threads of four warps, in a buffer of
scope ``wgmma.accumulator`` whose last two dimensions are one tile. The operands are read in place, in shared memory: buffers of
scope ``shared.swizzled`` with rows of 64 numbers, ``A[m, k % 64]`` and ``B[n // 64, k, n % 64]``. ``threadIdx.x`` has the 128
threads of a group, and no loop around the tiles is bound to it. One intrinsic multiplies 64 steps: four instructions, then the
wait for them.

Both kinds take operands that lie the other way around; the names say so by letters as in BLAS, first A's, then B's. ``_nt`` multiplies by
``B[j, k]``, ``_tn`` takes ``A[k, i]``, ``_tt`` does both. Those of warp groups have the same rows of 64 numbers: ``_nt`` takes
``B[n, k % 64]``, ``_tn`` takes ``A[m // 64, k, m % 64]``, one panel of it at a time. Of float8 a row has 128 numbers, and there is ``_nt`` alone.

============================  ======================================================================================
``dot_16x4_vnni``             ``C[16] += A[4] · B[16, 4]``, uint8 by int8 into int32: one vpdpbusd of AVX-512 VNNI
``dot_16x4_i8u8_vnni``        ``C[16] += A[4] · B[16, 4]``, int8 by uint8: the same instruction
``dot_8x4_avx_vnni``          ``C[8] += A[4] · B[8, 4]``, the same with the 256 bits of AVX-VNNI
``dot_16x4_i8_vnni``          ``C[16] += A[4] · B[16, 4]``, int8 by int8: the same and what makes it signed
``dot_16x2_bf16``             ``C[16] += A[2] · B[16, 2]``, bfloat16 into float32: one vdpbf16ps of AVX-512 BF16
``dot_8x2_bf16``              ``C[8] += A[2] · B[8, 2]``, the same with 256 bits
``dot_8x4_i8u8``              ``C[8] += A[4] · B[8, 4]``, int8 by uint8: the same instruction
``dot_8x4_T``                 the same of two factors of one type, T = i8, u8: vpdpbssd and vpdpbuud of AVX-VNNI-INT8
``dot_4x4_T``                 ``C[4] += A[4] · B[4, 4]``: sdot, udot or usdot of AArch64, T = i8, u8, u8i8, i8u8
``dot_4x2_bf16``              ``C[4] += A[2] · B[4, 2]``, bfloat16 into float32: one bfdot of AArch64
``dot_Lx2_i16T``              ``C[L] += A[2] · B[L, 2]``, int16 by T = i8, u8 into int32: vpmaddwd and a sum, L = 16, 8, 4
``fma_RxL_f32``               ``C[R, L] += A[R, 1] * B[1, L]``: a row of multiply-adds, R L = 6x16, 14x32, 1x16, 1x8
``dot_16x16x64_s8s8_amx``     ``C[16, 16] += A[16, 64] · B[16, 16, 4]``, int8 by int8 into int32: one tdpbssd of AMX
``dot_16x16x64_u8s8_amx``     the same for uint8 by int8: one tdpbusd
``dot_16x16x64_s8u8_amx``     int8 by uint8: one tdpbsud; ``dot_16x16x64_u8u8_amx`` uint8 by uint8: one tdpbuud
``dot_16x16x32_bf16_amx``     ``C[16, 16] += A[16, 32] · B[16, 16, 2]``, bfloat16 into float32: one tdpbf16ps
``fill_16x16_T_amx``          ``C[16, 16] = 0`` in a tile register, T = i32, f32
``store_16x16_T_amx``         ``D[16, 16] = C[16, 16]``, the rows of D apart: from a tile register to memory
``wmma_16x16x16_T``           ``C[16, 16] += A[16, 16] · B[16, 16]`` by the warps of a GPU, T = f16, bf16, tf32, s8, u8
``wmma_16x16x16_T_nt``        the same by ``B[j, k]``; ``_tn`` takes ``A[k, i]``, ``_tt`` both
``wmma_fill_16x16_T``         ``C[16, 16] = 0`` in registers of a warp, T = f32, s32
``wmma_store_16x16_T``        ``D[16, 16] = C[16, 16]`` from registers of a warp, T = f32, s32
``wgmma_64xNx64_T``           ``C[64, N] += A[64, 64] · B[N // 64, 64, 64]`` by warp groups of sm_90a, T = f16, bf16, N = 64 .. 256
``wgmma_64xNx64_T_nt``        the same by ``B[N, 64]``, rows of steps; ``_tn`` takes ``A[k, i]``, ``_tt`` both
``wgmma_64xNx128_T_nt``       the same for 128 steps of T = e4m3, e5m2 (float8)
``wgmma_fill_64xN``           ``C[64, N] = 0`` in registers of a warp group
``wgmma_store_64xN``          ``D[64, N] = C[64, N]`` from registers of a warp group
============================  ======================================================================================

Those of processors run on every processor: where the instruction is missing, plain arithmetic does the same. Operands may lie in memory
of any scope, but for warp groups, whose operands lie in ``shared.swizzled``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..tir.expr.dtype import DType
from ..tir.expr.intrinsics.matrix_operations import GROUP_ROWS, PANEL, WIDTHS, group_steps
from ..tir.parser import parse
from ..tir.stmt import PrimFunc

_DESC = """
@T.prim_func
def {name}_desc(
    A: T.Buffer(({width},), "{a}", offset_factor=1),
    B: T.Buffer(({lanes}, {width}), "{b}", offset_factor=1),
    C: T.Buffer(({lanes},), "{c}", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0:{lanes}], A[0:{width}], B[0:{lanes}, 0:{width}])
        T.writes(C[0:{lanes}])
        for i, k in T.grid({lanes}, {width}):
            with T.block("update"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + T.cast(A[vk], "{c}") * T.cast(B[vi, vk], "{c}")
"""

_IMPL = """
@T.prim_func
def {name}_impl(
    A: T.Buffer(({width},), "{a}", offset_factor=1),
    B: T.Buffer(({lanes}, {width}), "{b}", offset_factor=1),
    C: T.Buffer(({lanes},), "{c}", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0:{lanes}], A[0:{width}], B[0:{lanes}, 0:{width}])
        T.writes(C[0:{lanes}])
        C[0:{lanes}] = T.{op}(
            C[0:{lanes}],
            {first},
            {second},
        )
"""
_SPREAD, _ROWS = "T.Shuffle([A[0:{width}]], {repeat})", 'B.vload([0, 0], "{b}x{total}")'
_STRAIGHT = _IMPL.replace("{first}", _SPREAD).replace("{second}", _ROWS)
_WIDENED = _IMPL.replace("{first}", _SPREAD).replace("{second}", f'T.Cast("int16x{{total}}", {_ROWS})')
_SWAPPED = _IMPL.replace("{first}", _ROWS).replace("{second}", _SPREAD)

_SIGNED = """
@T.prim_func
def {name}_impl(
    A: T.Buffer((4,), "int8", offset_factor=1),
    B: T.Buffer(({lanes}, 4), "int8", offset_factor=1),
    C: T.Buffer(({lanes},), "int32", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0:{lanes}], A[0:4], B[0:{lanes}, 0:4])
        T.writes(C[0:{lanes}])
        C[0:{lanes}] = T.dot4_u8i8(
            C[0:{lanes}],
            T.Shuffle(
                [T.bitwise_xor(T.Cast("uint8x4", A[0:4]), T.Broadcast(T.uint8(128), 4))], {repeat}
            ),
            B.vload([0, 0], "int8x{total}"),
        ) - T.dot4_u8i8(
            T.Broadcast(0, {lanes}), T.Broadcast(T.uint8(128), {total}), B.vload([0, 0], "int8x{total}")
        )
"""


def _dot(
    name: str, op: str, lanes: int, width: int, types: tuple[str, str, str], implementation: str = _STRAIGHT
) -> tuple[PrimFunc, PrimFunc]:
    words = {
        "name": name, "op": op, "lanes": lanes, "width": width, "a": types[0], "b": types[1], "c": types[2],
        "total": lanes * width, "repeat": list(range(width)) * lanes,
    }  # fmt: skip
    desc, impl = parse(_DESC.format(**words)), parse(implementation.format(**words))
    assert isinstance(desc, PrimFunc) and isinstance(impl, PrimFunc)
    return desc, impl


def int8_dot(lanes: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 4 k, of uint8 by int8 into int32. It is exact but for
    wrapping sums."""
    return _dot(f"dot_{lanes}x4_u8i8i32", "dot4_u8i8", lanes, 4, ("uint8", "int8", "int32"))


def int8_uint8_dot(lanes: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 4 k, of int8 by uint8 into int32. This is :func:`int8_dot`
    with the types exchanged."""
    return _dot(f"dot_{lanes}x4_i8u8i32", "dot4_u8i8", lanes, 4, ("int8", "uint8", "int32"), _SWAPPED)


def signed_int8_dot(lanes: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 4 k, of int8 by int8 into int32. It uses the instruction
    for uint8.

    A·B = (A + 128)·B - 128·B, where the right term is the same for all rows of A that meet one vector of B. Where there
    is room for a copy of B, ``shift_operand`` and :func:`int8_uint8_dot` take the right term out of the loop.
    """
    return _dot(f"dot_{lanes}x4_i8i8i32", "dot4_u8i8", lanes, 4, ("int8", "int8", "int32"), _SIGNED)


def bf16_dot(lanes: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 2 k: bfloat16 into float32.

    The order of the two sums is the machine's (see :func:`tilewright.tir.expr.intrinsics.matrix_operations.dot2_bf16`), so the last bits may differ
    from the description's.
    """
    return _dot(f"dot_{lanes}x2_bf16", "dot2_bf16", lanes, 2, ("bfloat16", "bfloat16", "float32"))


def alike_int8_dot(lanes: int, dtype: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 4 k, of two factors of ``dtype``, int8 or uint8, into int32.

    It is meant for processors whose instruction takes them so; elsewhere :func:`signed_int8_dot` takes less time.
    """
    short = {"int8": "i8i8", "uint8": "u8u8"}[dtype]
    return _dot(f"dot_{lanes}x4_{short}i32_alike", f"dot4_{short}", lanes, 4, (dtype, dtype, "int32"))


def int16_dot(lanes: int, dtype: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i] += A[k] * B[i, k]`` for ``lanes`` i and 2 k, of int16 by ``dtype``, int8 or uint8, into int32.

    B is widened where it is loaded. ``cache_read`` and ``unsafe_set_dtype`` make a copy of A in int16.
    """
    return _dot(f"dot_{lanes}x2_i16{dtype}i32", "dot2_i16", lanes, 2, ("int16", dtype, "int32"), _WIDENED)


_FMA_HEAD = """
@T.prim_func
def fma_{rows}x{lanes}_{role}(
    A: T.Buffer(({rows}, 1), "{dtype}", offset_factor=1),
    B: T.Buffer((1, {lanes}), "{dtype}", offset_factor=1),
    C: T.Buffer(({rows}, {lanes}), "{dtype}", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0:{rows}, 0:{lanes}], A[0:{rows}, 0:1], B[0:1, 0:{lanes}])
        T.writes(C[0:{rows}, 0:{lanes}])
"""

_FMA_DESC = """
        for i, j in T.grid({rows}, {lanes}):
            with T.block("update"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C[vi, vj] + A[vi, 0] * B[0, vj]
"""

_FMA_IMPL = """
        for i in T.unroll({rows}):
            C[i, 0:{lanes}] = C[i, 0:{lanes}] + T.Broadcast(A[i, 0], {lanes}) * B[0, 0:{lanes}]
"""


def fma_tile(rows: int, lanes: int, dtype: str = "float32") -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, 0] * B[0, j]`` for ``rows`` i and ``lanes`` j. It takes a vector of ``lanes`` at a time.

    Rounded as any other product and sum: twice in the interpreter, once where lowering forms a fused multiply-add.
    """

    def text(role: str, body: str) -> PrimFunc:
        words = {"rows": rows, "lanes": lanes, "dtype": dtype, "role": role}
        func = parse((_FMA_HEAD + body.lstrip("\n")).format(**words))
        assert isinstance(func, PrimFunc)
        return func

    return text("desc", _FMA_DESC), text("impl", _FMA_IMPL)


_TILE_DOT = """
@T.prim_func
def {name}_{role}(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({{"any_scope": True}})
    A = T.match_buffer(a, (16, {steps}), "{a}", strides=("a_row", 1), offset_factor=1)
    B = T.match_buffer(b, (16, 16, {width}), "{b}", strides=({steps}, {width}, 1), offset_factor=1)
    C = T.match_buffer(c, (16, 16), "{c}", strides=(16, 1), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:{steps}], B[0:16, 0:16, 0:{width}])
        T.writes(C[0:16, 0:16])
"""

_TILE_DOT_DESC = """
        for i, j, k in T.grid(16, 16, {steps}):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "{c}") * T.cast(B[vk // {width}, vj, vk % {width}], "{c}")
"""

_TILE_DOT_IMPL = """
        C.vstore([0, 0], T.{op}(
            C.vload([0, 0], "{c}x256"),
            T.tile_load("{a}x{total}", T.address_of(A[0, 0]), A.strides[0]),
            B.vload([0, 0, 0], "{b}x{total}"),
        ))
"""

_WARP_DOT = """
@T.prim_func
def wmma_{a}_{layout}_{role}(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({{"any_scope": True}})
    A = T.match_buffer(a, (16, 16), "{a}", strides=("a_row", 1), offset_factor=1)
    B = T.match_buffer(b, (16, 16), "{a}", strides=("b_row", 1), offset_factor=1)
    C = T.match_buffer(c, (16, 16), "{c}", strides=(16, 1), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
"""

_WARP_DOT_DESC = """
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + {wide}(A[{left}]{to}) * {wide}(B[{right}]{to})
"""

_WARP_DOT_IMPL = """
        C.vstore([0, 0], T.wmma_dot(
            C.vload([0, 0], "{c}x256"),
            T.wmma_load_a{a_t}("{a}x256", T.address_of(A[0, 0]), A.strides[0]),
            T.wmma_load_b{b_t}("{a}x256", T.address_of(B[0, 0]), B.strides[0]),
        ))
"""

_FILL = """
@T.prim_func
def {name}_{role}(c: T.handle):
    T.func_attr({{"any_scope": True}})
    C = T.match_buffer(c, (16, 16), "{c}", strides=(16, 1), offset_factor=1)
    with T.block("root"):
        T.writes(C[0:16, 0:16])
"""

_FILL_DESC = """
        for i, j in T.grid(16, 16):
            with T.block("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.{c}(0)
"""

_FILL_IMPL = """
        C.vstore([0, 0], T.Broadcast(T.{c}(0), 256))
"""

_STORE = """
@T.prim_func
def {name}_{role}(c: T.handle, d: T.handle):
    T.func_attr({{"any_scope": True}})
    C = T.match_buffer(c, (16, 16), "{c}", strides=(16, 1), offset_factor=1)
    D = T.match_buffer(d, (16, 16), "{c}", strides=("d_row", 1), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:16, 0:16])
        T.writes(D[0:16, 0:16])
"""

_STORE_DESC = """
        for i, j in T.grid(16, 16):
            with T.block("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj]
"""

_STORE_IMPL = """
        T.evaluate(T.{op}(T.address_of(D[0, 0]), D.strides[0], C.vload([0, 0], "{c}x256")))
"""


def tile_dot(a: str, b: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, 16 j and 64 bytes of k. B comes as ``B[k // w, j, k % w]``.

    ``a``, ``b``: int8 or uint8, each, into int32 (w is 4; exact but for wrapping sums), or bfloat16 by bfloat16
    into float32 (w is 2; sums in an order of the machine's, see :func:`tilewright.tir.expr.intrinsics.matrix_operations.tile_dot2_bf16`).
    """
    half = a == "bfloat16"
    width, steps = (2, 32) if half else (4, 64)
    op, c = ("tile_dot2_bf16", "float32") if half else ("tile_dot4", "int32")
    name = f"dot_16x16x{steps}_{a}_{b}"
    words = {"name": name, "op": op, "a": a, "b": b, "c": c, "width": width, "steps": steps, "total": 16 * steps}
    return pair(_TILE_DOT, _TILE_DOT_DESC, _TILE_DOT_IMPL, **words)


def tile_fill(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] = 0`` for a tile of 16 by 16 numbers of type ``c``, int32 or float32."""
    return pair(_FILL, _FILL_DESC, _FILL_IMPL, name=f"fill_16x16_{c}", c=c)


def tile_store(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for a tile of 16 by 16 numbers of type ``c``. The rows of D may lie apart."""
    return pair(_STORE, _STORE_DESC, _STORE_IMPL, name=f"store_16x16_{c}", op="tile_store", c=c)


LAYOUTS = ("nn", "nt", "tn", "tt")
"""How the operands of a product lie, A's letter first: n for ``A[i, k]`` and ``B[k, j]``, t for ``A[k, i]`` and ``B[j, k]``."""


def wmma_dot(a: str, layout: str = "nn") -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, j and k. A and B are of type ``a``: float16, bfloat16, int8, uint8, or
    float32, which ``round_tf32`` rounds. ``layout`` is one of ``LAYOUTS``."""
    left, right = _transposed(layout)
    c = "int32" if a.endswith("int8") else "float32"
    wide, to = ("T.round_tf32", "") if a == c else ("T.cast", f', "{c}"')
    return pair(_WARP_DOT, _WARP_DOT_DESC, _WARP_DOT_IMPL, a=a, c=c, wide=wide, to=to, layout=layout,
                left="vk, vi" if left else "vi, vk", right="vj, vk" if right else "vk, vj",
                a_t="_t" if left else "", b_t="_t" if right else "")  # fmt: skip


def _transposed(layout: str) -> tuple[bool, bool]:
    """Return whether each of the two operands lies transposed."""
    if layout not in LAYOUTS:
        raise ValueError(f"there is no layout {layout!r} of the operands of a product; there are {', '.join(LAYOUTS)}")
    return layout[0] == "t", layout[1] == "t"


def wmma_fill(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] = 0`` for a tile of sums of type ``c``, int32 or float32."""
    return pair(_FILL, _FILL_DESC, _FILL_IMPL, name="wmma_fill", c=c)


def wmma_store(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for a tile of sums of type ``c``. The rows of D may lie apart."""
    return pair(_STORE, _STORE_DESC, _STORE_IMPL, name="wmma_store", op="wmma_store", c=c)


def pair(head: str, description: str, implementation: str, **words: object) -> tuple[PrimFunc, PrimFunc]:
    """Returns what an intrinsic computes and how: ``head`` with each of the two bodies, where ``role`` is desc or impl."""
    bodies = (("desc", description), ("impl", implementation))
    desc, impl = [parse((head + body.lstrip("\n")).format(role=role, **words)) for role, body in bodies]
    assert isinstance(desc, PrimFunc) and isinstance(impl, PrimFunc)
    return desc, impl


STEPS = 64
"""The steps of the reduction in one intrinsic of half floats: a row of shared memory."""
_PRODUCTS = 4
"""The products of an intrinsic."""

_DOT = """
@T.prim_func
def wgmma_{n}_{a}_{layout}_{role}(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, ({a_shape}), "{a}", strides=("a_row", 1), offset_factor=1, scope="shared.swizzled")
    B = T.match_buffer(b, ({b_shape}), "{a}", strides=({b_strides}, 1), offset_factor=1, scope="shared.swizzled")
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    with T.block("root"):
        T.reads(C[0:64, 0:{n}], A[{a_whole}], B[{b_whole}])
        T.writes(C[0:64, 0:{n}])
"""

_DOT_DESC = """
        for i, j, k in T.grid(64, {n}, {steps}):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.cast(A[{left}], "float32") * T.cast(B[{right}], "float32")
"""

_SUMS = """C.vload([0, 0], "float32x{lanes}")"""
_DOT_STEP = """
        C.vstore([0, 0], T.wgmma_dot(
            C.vload([0, 0], "float32x{lanes}"),
            {a_load},
            {b_load},
        ))
"""
_LEFT = {
    False: {
        "left": "vi, vk", "a_shape": "64, {steps}", "a_whole": "0:64, 0:{steps}",
        "a_load": 'T.wgmma_left("{a}x{rows}", T.address_of(A[0, {k}]), A.strides[0])',
    },
    True: {
        "left": "vk, vi", "a_shape": "{steps}, 64", "a_whole": "0:{steps}, 0:64",
        "a_load": 'T.wgmma_left_t("{a}x{rows}", T.address_of(A[{k}, 0]), A.strides[0])',
    },
}  # fmt: skip
_RIGHT = {
    False: {
        "right": "vj // 64, vk, vj % 64", "b_shape": "{panels}, {steps}, 64", "b_strides": '"b_panel", "b_row"',
        "b_whole": "0:{panels}, 0:{steps}, 0:64",
        "b_load": 'T.wgmma_right("{a}x{numbers}", T.address_of(B[0, {k}, 0]), B.strides[1], B.strides[0])',
    },
    True: {
        "right": "vj, vk", "b_shape": "{n}, {steps}", "b_strides": '"b_row"', "b_whole": "0:{n}, 0:{steps}",
        "b_load": 'T.wgmma_right_t("{a}x{numbers}", T.address_of(B[0, {k}]), B.strides[0])',
    },
}  # fmt: skip
"""What the texts say of each operand, by whether it lies transposed."""

_GROUP_FILL = """
@T.prim_func
def wgmma_fill_{n}_{role}(c: T.handle):
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    with T.block("root"):
        T.writes(C[0:64, 0:{n}])
"""

_GROUP_FILL_DESC = """
        for i, j in T.grid(64, {n}):
            with T.block("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)
"""

_GROUP_FILL_IMPL = """
        C.vstore([0, 0], T.Broadcast(T.float32(0), {lanes}))
"""

_GROUP_STORE = """
@T.prim_func
def wgmma_store_{n}_{role}(c: T.handle, d: T.handle):
    T.func_attr({{"any_scope": True}})
    C = T.match_buffer(c, (64, {n}), "float32", strides=({n}, 1), offset_factor=1, scope="wgmma.accumulator")
    D = T.match_buffer(d, (64, {n}), "float32", strides=("d_row", 1), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:64, 0:{n}])
        T.writes(D[0:64, 0:{n}])
"""

_GROUP_STORE_DESC = """
        for i, j in T.grid(64, {n}):
            with T.block("store"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj]
"""

_GROUP_STORE_IMPL = """
        T.evaluate(T.wgmma_store(T.address_of(D[0, 0]), D.strides[0], C.vload([0, 0], "float32x{lanes}")))
"""


def _pair(head: str, description: str, implementation: str, n: int, **words: object) -> tuple[PrimFunc, PrimFunc]:
    return pair(head, description, implementation, n=n, lanes=GROUP_ROWS * n, **words)


def wgmma_dot(n: int, a: str, layout: str = "nn") -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 64 i, ``n`` j and 64 k, or 128 k of float8. C is float32.

    ``a`` is the type of A and B. ``layout`` is one of ``LAYOUTS``; float8 has ``"nt"`` alone.
    """
    left, right = _transposed(layout)

    def laid(text: str) -> str:
        for word, part in {**_LEFT[left], **_RIGHT[right], "layout": layout}.items():
            text = text.replace(f"{{{word}}}", part)
        return text

    one = group_steps(DType(a))
    steps = "".join(laid(_DOT_STEP).replace("{k}", str(one * n)) for n in range(_PRODUCTS))
    fence, wait = f"C.vstore([0, 0], T.wgmma_fence({_SUMS}))", f"C.vstore([0, 0], T.wgmma_wait({_SUMS}, 0))"
    implementation = f"\n        {fence}{steps}        T.evaluate(T.wgmma_commit())\n        {wait}\n"
    return _pair(laid(_DOT), laid(_DOT_DESC), implementation, n, a=a, panels=n // PANEL, steps=one * _PRODUCTS,
                 rows=one * GROUP_ROWS, numbers=one * n)  # fmt: skip


def wgmma_fill(n: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] = 0`` for 64 rows of ``n`` sums."""
    return _pair(_GROUP_FILL, _GROUP_FILL_DESC, _GROUP_FILL_IMPL, n)


def wgmma_store(n: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for 64 rows of ``n`` sums; the rows of D may lie apart."""
    return _pair(_GROUP_STORE, _GROUP_STORE_DESC, _GROUP_STORE_IMPL, n)


__all__ = [
    "AMX_DOT_BF16_INTRIN", "AMX_DOT_S8S8_INTRIN", "AMX_DOT_U8S8_INTRIN",
    "AVX_VNNI_DOT_8x4_INTRIN", "BF16_DOT_16x2_INTRIN", "BF16_DOT_4x2_INTRIN", "BF16_DOT_8x2_INTRIN", "INT16_DOT_INTRINS",
    "INT8_DOT_INTRINS", "SHIPPED", "VNNI_DOT_16x4_INTRIN", "VNNI_DOT_16x4_SIGNED_INTRIN", "VNNI_DOT_16x4_SWAPPED_INTRIN",
    "alike_int8_dot", "bf16_dot", "fma_tile", "int16_dot", "int8_dot", "int8_uint8_dot", "signed_int8_dot",
    "tile_dot", "tile_fill", "tile_store", "wgmma_dot", "wgmma_fill", "wgmma_store", "wmma_dot", "wmma_fill", "wmma_store",
]  # fmt: skip

VNNI_DOT_16x4_INTRIN = "dot_16x4_vnni"
VNNI_DOT_16x4_SIGNED_INTRIN = "dot_16x4_i8_vnni"
VNNI_DOT_16x4_SWAPPED_INTRIN = "dot_16x4_i8u8_vnni"
AVX_VNNI_DOT_8x4_INTRIN = "dot_8x4_avx_vnni"
BF16_DOT_16x2_INTRIN = "dot_16x2_bf16"
BF16_DOT_8x2_INTRIN = "dot_8x2_bf16"
BF16_DOT_4x2_INTRIN = "dot_4x2_bf16"
INT8_DOT_INTRINS = {
    (16, "uint8", "int8"): VNNI_DOT_16x4_INTRIN, (16, "int8", "uint8"): VNNI_DOT_16x4_SWAPPED_INTRIN,
    (8, "uint8", "int8"): AVX_VNNI_DOT_8x4_INTRIN, (8, "int8", "uint8"): "dot_8x4_i8u8",
    (8, "int8", "int8"): "dot_8x4_i8", (8, "uint8", "uint8"): "dot_8x4_u8",
    (4, "uint8", "int8"): "dot_4x4_u8i8", (4, "int8", "uint8"): "dot_4x4_i8u8",
    (4, "int8", "int8"): "dot_4x4_i8", (4, "uint8", "uint8"): "dot_4x4_u8",
}  # fmt: skip
"""Those of four steps, one instruction each where the processor has it, by lanes and types of the factors."""
INT16_DOT_INTRINS = {
    (lanes, dtype): f"dot_{lanes}x2_i16{short}"
    for lanes in (16, 8, 4)
    for dtype, short in (("int8", "i8"), ("uint8", "u8"))
}
"""Those of two steps of int16, by lanes and the type of the second factor."""
AMX_DOT_S8S8_INTRIN = "dot_16x16x64_s8s8_amx"
AMX_DOT_U8S8_INTRIN = "dot_16x16x64_u8s8_amx"
AMX_DOT_S8U8_INTRIN = "dot_16x16x64_s8u8_amx"
AMX_DOT_U8U8_INTRIN = "dot_16x16x64_u8u8_amx"
AMX_DOT_BF16_INTRIN = "dot_16x16x32_bf16_amx"


def _suffix(layout: str) -> str:
    return "" if layout == "nn" else f"_{layout}"


SHIPPED: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {
    VNNI_DOT_16x4_SIGNED_INTRIN: partial(signed_int8_dot, 16),
    BF16_DOT_16x2_INTRIN: partial(bf16_dot, 16),
    BF16_DOT_8x2_INTRIN: partial(bf16_dot, 8),
    **{
        name: partial(int8_dot, lanes) if left == "uint8" else partial(int8_uint8_dot, lanes)
        for (lanes, left, right), name in INT8_DOT_INTRINS.items()
        if left != right
    },
    **{
        name: partial(alike_int8_dot, lanes, left)
        for (lanes, left, right), name in INT8_DOT_INTRINS.items()
        if left == right
    },
    BF16_DOT_4x2_INTRIN: partial(bf16_dot, 4),
    **{name: partial(int16_dot, lanes, dtype) for (lanes, dtype), name in INT16_DOT_INTRINS.items()},
    AMX_DOT_S8S8_INTRIN: partial(tile_dot, "int8", "int8"),
    AMX_DOT_U8S8_INTRIN: partial(tile_dot, "uint8", "int8"),
    AMX_DOT_S8U8_INTRIN: partial(tile_dot, "int8", "uint8"),
    AMX_DOT_U8U8_INTRIN: partial(tile_dot, "uint8", "uint8"),
    AMX_DOT_BF16_INTRIN: partial(tile_dot, "bfloat16", "bfloat16"),
    **{f"fill_16x16_{t}_amx": partial(tile_fill, dtype) for t, dtype in (("i32", "int32"), ("f32", "float32"))},
    **{f"store_16x16_{t}_amx": partial(tile_store, dtype) for t, dtype in (("i32", "int32"), ("f32", "float32"))},
    **{
        f"wmma_16x16x16_{t}{_suffix(layout)}": partial(wmma_dot, a, layout)
        for t, a in (("f16", "float16"), ("bf16", "bfloat16"), ("tf32", "float32"), ("s8", "int8"), ("u8", "uint8"))
        for layout in LAYOUTS
    },
    **{f"wmma_fill_16x16_{t}": partial(wmma_fill, c) for t, c in (("f32", "float32"), ("s32", "int32"))},
    **{f"wmma_store_16x16_{t}": partial(wmma_store, c) for t, c in (("f32", "float32"), ("s32", "int32"))},
    **{
        f"wgmma_64x{n}x64_{t}{_suffix(layout)}": partial(wgmma_dot, n, a, layout)
        for n in WIDTHS
        for t, a in (("f16", "float16"), ("bf16", "bfloat16"))
        for layout in LAYOUTS
    },
    **{
        f"wgmma_64x{n}x128_{t}_nt": partial(wgmma_dot, n, a, "nt")
        for n in WIDTHS
        for t, a in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2"))
    },
    **{f"wgmma_fill_64x{n}": partial(wgmma_fill, n) for n in WIDTHS},
    **{f"wgmma_store_64x{n}": partial(wgmma_store, n) for n in WIDTHS},
    **{f"fma_{r}x{c}_f32": partial(fma_tile, r, c) for r, c in ((1, 8), (1, 16), (6, 16), (14, 32))},
}
"""How each is made: description and implementation by name."""
