"""The names of ``tl``: types, and the functions that kernels in blocks call.

What a row is stands in :mod:`..rows`. The rows themselves: :mod:`..basic_rows` has programs, elements, shapes, reductions
by name and products; :mod:`..combining_rows` reductions and scans by any function; :mod:`..order_rows` sorting; :mod:`..memory_rows` loads, stores, atomic
operations and windows; :mod:`..random_rows` random numbers; :mod:`..device_rows` what else GPUs' libraries have (:mod:`.extra`).
"""

from __future__ import annotations

from typing import Any

from ..basic_rows import (
    PropagateNan,
    abs,
    add,
    arange,
    argmax,
    argmin,
    assume,
    broadcast_to,
    cast,
    cdiv,
    ceil,
    clamp,
    cos,
    debug_barrier,
    div_rn,
    dot,
    erf,
    exp,
    exp2,
    expand_dims,
    fdiv,
    floor,
    fma,
    full,
    log,
    log2,
    max,
    max_constancy,
    max_contiguous,
    maximum,
    min,
    minimum,
    mul,
    multiple_of,
    num_programs,
    permute,
    program_id,
    range,
    ravel,
    reduce_or,
    reshape,
    rsqrt,
    sigmoid,
    sin,
    softmax,
    sqrt,
    sqrt_rn,
    squeeze,
    static_assert,
    static_print,
    static_range,
    sub,
    sum,
    swizzle2d,
    to,
    trans,
    unsqueeze,
    view,
    where,
    xor_sum,
    zeros,
    zeros_like,
)
from ..combining_rows import associative_scan, cat, cumprod, cumsum, flip, interleave, join, reduce, split
from ..combining_rows import broadcast_pair as broadcast
from ..device_rows import device_assert, device_print, dot_scaled, inline_asm_elementwise, map_elementwise
from ..memory_rows import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from ..order_rows import bitonic_merge, gather, histogram, sort, topk
from ..random_rows import (
    pair_uniform_to_normal,
    philox,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
    umulhi,
)
from ..rows import (
    bfloat16,
    constexpr,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pointer_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from . import extra, math

__all__ = [
    "PropagateNan",
    "abs", "add", "advance", "arange", "argmax", "argmin", "associative_scan", "assume", "atomic_add", "atomic_and",
    "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "bfloat16",
    "bitonic_merge", "broadcast", "broadcast_to", "cast", "cat", "cdiv", "ceil", "clamp", "constexpr", "cos",
    "cumprod", "cumsum", "debug_barrier", "device_assert", "device_print", "div_rn", "dot", "dot_scaled", "dtype", "extra", "erf", "exp", "exp2", "expand_dims",
    "fdiv", "flip", "float16", "float32", "float64", "float8e4nv", "float8e5", "floor", "fma", "full", "gather", "histogram", "inline_asm_elementwise", "int1",
    "int16", "int32", "int64", "int8", "interleave", "join", "load", "load_tensor_descriptor", "log", "log2",
    "make_block_ptr", "make_tensor_descriptor", "map_elementwise", "math", "max", "max_constancy", "max_contiguous", "maximum", "min", "minimum",
    "mul", "multiple_of", "num_programs", "pair_uniform_to_normal", "permute", "philox", "pointer_type",
    "program_id", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "range", "ravel", "reduce",
    "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "sqrt_rn",
    "squeeze", "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor", "sub",
    "sum", "swizzle2d", "to", "topk", "trans", "uint16", "uint32", "uint64", "uint8", "uint_to_uniform_float",
    "umulhi", "unsqueeze", "view", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise AttributeError(f"tl.{name} is not known here; kernels may use {', '.join(__all__)}")
