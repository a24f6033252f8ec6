"""This module evaluates the intrinsics of LLVM that tensor intrinsics use, for the interpreter.

``tir.call_llvm_pure_intrin("int32x16", "llvm.x86.avx512.vpdpbusd.512", c, a, b)`` names an intrinsic in full. It knows
the dot products of x86, pmaddubs and pmaddwd, and the overloaded ones that are operations of :mod:`..intrinsics`
(``llvm.fma.v8f32``, ``llvm.sqrt.f32`` …).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import DType
from ..expr.base.rounding import bfloat16_from_bits
from ..expr.intrinsics import operation_named
from ..expr.intrinsics.numpy_meaning import dot2_bf16, dot4_u8i8

_SAME = {
    "fma": "fma", "fmuladd": "fma", "sqrt": "sqrt", "fabs": "fabs", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "round", "roundeven": "round", "nearbyint": "nearbyint", "copysign": "copysign",
    "exp": "exp", "exp2": "exp2", "log": "log", "log2": "log2", "log10": "log10", "pow": "pow", "sin": "sin",
    "cos": "cos", "ctpop": "popcount",
}  # fmt: skip


def llvm_evaluator(name: str, dtype: DType, sources: tuple[DType, ...]) -> Callable[..., Any] | None:
    """Return the evaluator of the intrinsic ``name``; None when it is unknown here."""
    if re.fullmatch(r"llvm\.x86\.avx512\.vpdpbusd\.(128|256|512)", name):
        return _vpdpbusd
    if re.fullmatch(r"llvm\.x86\.avx512bf16\.dpbf16ps\.(128|256|512)", name):
        return _dpbf16
    if re.fullmatch(r"llvm\.x86\.(ssse3|avx2|avx512)\.(pmadd\.ub\.sw|pmaddubs\.w)(\.128|\.512)?", name):
        return _pmaddubs
    if re.fullmatch(r"llvm\.x86\.(sse2|avx2|avx512)\.(pmadd\.wd|pmaddw\.d)(\.512)?", name):
        return _pmaddwd
    match = re.fullmatch(r"llvm\.(\w+)(\.\w+)?", name)
    if match and match[1] in _SAME:
        evaluate = operation_named(_SAME[match[1]]).evaluate
        return None if evaluate is None else evaluate(dtype, sources)
    return None


def _bytes(v: Any, kind: Any) -> Any:
    return np.atleast_1d(v).view(kind)


def _vpdpbusd(c: Any, a: Any, b: Any) -> Any:
    return dot4_u8i8(c, _bytes(a, np.uint8), _bytes(b, np.int8))


def _dpbf16(c: Any, a: Any, b: Any) -> Any:
    def floats(v: Any) -> Any:
        return v if v.dtype == np.float32 and v.size == 2 * c.size else bfloat16_from_bits(_bytes(v, np.uint16))

    return dot2_bf16(c, floats(a), floats(b))


def _pmaddubs(a: Any, b: Any) -> Any:
    """Multiply uint8 and int8, and add adjacent products, saturating to int16."""
    products = _bytes(a, np.uint8).astype(np.int32) * _bytes(b, np.int8).astype(np.int32)
    return np.clip(products.reshape(-1, 2).sum(axis=1), -(1 << 15), (1 << 15) - 1).astype(np.int16)


def _pmaddwd(a: Any, b: Any) -> Any:
    """Multiply int16, and add adjacent products; the sum wraps only when all four factors are -32768."""
    products = _bytes(a, np.int16).astype(np.int64) * _bytes(b, np.int16).astype(np.int64)
    return products.reshape(-1, 2).sum(axis=1).astype(np.int32)
