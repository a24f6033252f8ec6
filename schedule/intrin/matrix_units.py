"""This module defines products of tiles for matrix units: AMX of x86, and the tensor cores of GPUs.

The sums ``C[16, 16]`` stay in registers over the whole reduction, in a buffer whose last two dimensions are one tile,
``C[.., m // 16, n // 16, m % 16, n % 16]`` (``transform_layout``).

With AMX, whose registers hold 16 rows of 64 bytes, that buffer has the scope ``local``, and the loops over the tiles of one step
are unrolled. Eight registers hold two tiles of A, two tiles of B and their four of C. B is stored with four (for bfloat16: two)
steps next to each other, ``B[n // 16, k // 4, n % 16, k % 4]``, so that a tile of it is 1 KiB of consecutive memory. A is read
in place, 64 bytes of each of 16 rows.

With tensor cores, whose tiles are 16 by 16 by 16, the buffer has the scope ``wmma.accumulator`` and stays in registers of a warp.
A and B are read in place, in shared memory usually. ``threadIdx.x`` has the 32 threads of a warp, and no loop around the tiles is
bound to it.

With the warp groups of sm_90a (``wgmma``) the sums ``C[64, n]`` stay in registers of the 128 threads of four warps, in a buffer of
scope ``wgmma.accumulator`` whose last two dimensions are one tile. The operands are read in place, in shared memory: buffers of
scope ``shared.swizzled`` with rows of 64 numbers, ``A[m, k % 64]`` and ``B[n // 64, k, n % 64]``. ``threadIdx.x`` has the 128
threads of a group, and no loop around the tiles is bound to it. One intrinsic multiplies 64 steps: four instructions, then the
wait for them.
"""

from __future__ import annotations

from ...tir.expr.intrinsics.matrix_operations import GROUP_ROWS, GROUP_STEPS, PANEL
from ...tir.parser import parse
from ...tir.stmt import PrimFunc

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
def wmma_{a}_{role}(a: T.handle, b: T.handle, c: T.handle):
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
                C[vi, vj] = C[vi, vj] + {wide}(A[vi, vk]{to}) * {wide}(B[vk, vj]{to})
"""

_WARP_DOT_IMPL = """
        C.vstore([0, 0], T.wmma_dot(
            C.vload([0, 0], "{c}x256"),
            T.wmma_load_a("{a}x256", T.address_of(A[0, 0]), A.strides[0]),
            T.wmma_load_b("{a}x256", T.address_of(B[0, 0]), B.strides[0]),
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

    ``a``, ``b``: int8 by int8 or uint8 by int8 into int32 (w is 4; exact but for wrapping sums), or bfloat16 by bfloat16
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


def wmma_dot(a: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, j and k. A and B are of type ``a``: float16, bfloat16, int8, or
    float32, which ``round_tf32`` rounds."""
    c = "int32" if a.endswith("int8") else "float32"
    wide, to = ("T.round_tf32", "") if a == c else ("T.cast", f', "{c}"')
    return pair(_WARP_DOT, _WARP_DOT_DESC, _WARP_DOT_IMPL, a=a, c=c, wide=wide, to=to)


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
    return _pair(_GROUP_FILL, _GROUP_FILL_DESC, _GROUP_FILL_IMPL, n)


def wgmma_store(n: int) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for 64 rows of ``n`` sums; the rows of D may lie apart."""
    return _pair(_GROUP_STORE, _GROUP_STORE_DESC, _GROUP_STORE_IMPL, n)
