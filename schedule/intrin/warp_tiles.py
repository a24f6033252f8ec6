"""This module defines products of tiles for the matrix units of GPUs (tensor cores), 16 by 16 by 16.

The sums ``C[16, 16]`` stay in registers of a warp over the whole reduction, in a buffer of scope ``wmma.accumulator`` whose last
two dimensions are one tile, ``C[.., m // 16, n // 16, m % 16, n % 16]`` (``transform_layout``). A and B are read in place, in
shared memory usually. ``threadIdx.x`` has the 32 threads of a warp, and no loop around the tiles is bound to it.
"""

from __future__ import annotations

from ...tir.parser import parse
from ...tir.stmt import PrimFunc

_DOT = """
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

_DOT_DESC = """
        for i, j, k in T.grid(16, 16, 16):
            with T.block("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "{c}") * T.cast(B[vk, vj], "{c}")
"""

_DOT_IMPL = """
        C.vstore([0, 0], T.wmma_dot(
            C.vload([0, 0], "{c}x256"),
            T.wmma_load_a("{a}x256", T.address_of(A[0, 0]), A.strides[0]),
            T.wmma_load_b("{a}x256", T.address_of(B[0, 0]), B.strides[0]),
        ))
"""

_FILL = """
@T.prim_func
def wmma_fill_{role}(c: T.handle):
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
def wmma_store_{role}(c: T.handle, d: T.handle):
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
        T.evaluate(T.wmma_store(T.address_of(D[0, 0]), D.strides[0], C.vload([0, 0], "{c}x256")))
"""


def _pair(head: str, description: str, implementation: str, **words: str) -> tuple[PrimFunc, PrimFunc]:
    out = []
    for role, body in (("desc", description), ("impl", implementation)):
        func = parse((head + body.lstrip("\n")).format(role=role, **words))
        assert isinstance(func, PrimFunc)
        out.append(func)
    return out[0], out[1]


def wmma_dot(a: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, k] * B[k, j]`` for 16 i, j and k; A and B are of type ``a``: float16, bfloat16, int8."""
    return _pair(_DOT, _DOT_DESC, _DOT_IMPL, a=a, c="int32" if a.endswith("int8") else "float32")


def wmma_fill(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] = 0`` for a tile of sums of type ``c``, int32 or float32."""
    return _pair(_FILL, _FILL_DESC, _FILL_IMPL, c=c)


def wmma_store(c: str) -> tuple[PrimFunc, PrimFunc]:
    """Return ``D[i, j] = C[i, j]`` for a tile of sums of type ``c``; the rows of D may lie apart."""
    return _pair(_STORE, _STORE_DESC, _STORE_IMPL, c=c)
