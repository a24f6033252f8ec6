"""Tensor expressions declare what to compute.

:func:`placeholder` declares an input, :func:`compute` a tensor by the expression of its elements, :func:`sum` and other
reducers reduce over a :func:`reduce_axis`, and :func:`create_prim_func` makes a function of loops and blocks from them.

>>> from tilewright import te
>>> A, B = te.placeholder((128, 64), name="A"), te.placeholder((64, 32), name="B")
>>> k = te.reduce_axis((0, 64), name="k")
>>> C = te.compute((128, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
>>> func = te.create_prim_func([A, B, C])

:mod:`tilewright.te.ops` has operators that are written this way; :func:`create_schedule` makes TVM's classic schedules.
"""

from typing import TYPE_CHECKING, Any

from ..tir.expr import cast, ceildiv, const, div, floordiv, floormod, infinity, not_, select, truncdiv, truncmod
from ..tir.expr import floordiv as indexdiv
from ..tir.expr import floormod as indexmod
from ..tir.expr import max_value_of as max_value
from ..tir.expr import min_value_of as min_value
from ..tir.expr.dtype import pack, unpack
from ..tir.expr.intrinsics.control_and_memory import if_then_else, likely
from ..tir.expr.intrinsics.matrix_operations import round_tf32
from ..tir.expr.intrinsics.number_operations import abs_ as abs
from ..tir.expr.intrinsics.number_operations import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    clz,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    expm1,
    fabs,
    floor,
    fma,
    fmod,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    nearbyint,
    popcount,
    q_multiply_shift,
    q_multiply_shift_per_axis,
    reinterpret,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from ..tir.expr.intrinsics.number_operations import pow_ as pow
from ..tir.expr.intrinsics.number_operations import pow_ as power
from ..tir.expr.intrinsics.number_operations import round_ as round
from . import ops
from .compute import compute, extern, extern_primfunc, placeholder, size_var, thread_axis, var
from .create_prim_func import create_prim_func
from .reduce import all_ as all
from .reduce import any_ as any
from .reduce import comm_reducer, prod, reduce_axis
from .reduce import max_ as max
from .reduce import min_ as min
from .reduce import sum_ as sum
from .scan import ScanOp, scan
from .tensor import ComputeOp, ExternOp, Operation, PlaceholderOp, ProducerLoad, Tensor, TensorSlice

if TYPE_CHECKING:
    from ..tvm_names.classic import Schedule, Stage, create_schedule
else:

    def __getattr__(name: str) -> Any:
        """Return what classic schedules are made with. AttributeError for a name that there is not, which says what takes
        the place of TVM's."""
        if name in ("Schedule", "Stage", "create_schedule"):
            from ..tvm_names import classic

            return getattr(classic, name)
        hint = None
        if not name.startswith("_"):
            from ..tvm_names import module_finders

            hint = module_finders.ABSENT_IN_TE.get(name)
        raise AttributeError(f"module 'tilewright.te' has no attribute {name!r}{f': {hint}' if hint else ''}")


__all__ = [
    "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ProducerLoad", "ScanOp", "Schedule", "Stage", "Tensor", "TensorSlice", "abs", "acos",
    "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "cast", "ceil", "ceildiv", "clz", "comm_reducer", "compute", "const", "copysign", "cos", "cosh",
    "create_prim_func", "create_schedule", "div", "erf", "exp", "exp10", "exp2", "expm1", "extern", "extern_primfunc", "fabs", "floor", "floordiv",
    "floormod", "fma", "fmod", "hypot", "if_then_else", "indexdiv", "indexmod", "infinity", "isfinite", "isinf",
    "isnan", "likely", "log", "log10", "log1p", "log2", "max", "max_value", "min", "min_value", "nearbyint", "not_", "ops", "pack",
    "placeholder", "popcount", "pow", "power", "prod", "q_multiply_shift", "q_multiply_shift_per_axis", "reduce_axis", "reinterpret", "round", "round_tf32", "rsqrt", "scan", "select",
    "shift_left", "shift_right", "sigmoid", "sin", "sinh", "size_var", "sqrt", "sum", "tan", "tanh", "thread_axis",
    "trunc", "truncdiv", "truncmod", "unpack", "var",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
