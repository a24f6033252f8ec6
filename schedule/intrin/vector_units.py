"""This module defines instructions of vector units: dot products, and a tile of multiply-adds.

One instruction takes ``lanes`` rows of B, ``width`` numbers each, side by side in memory: lay the right operand of a
matrix product out as ``W[n // lanes, k // width, n % lanes, k % width]`` first (``transform_layout``).
"""

from __future__ import annotations

from ...tir.parser import parse
from ...tir.stmt import PrimFunc

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
