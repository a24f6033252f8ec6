"""What rows of ``tl`` are: types, functions that kernels in blocks call, and what these take that is known beforehand.

Each function is one row: its meaning to the :class:`.kernel_builder.KernelBuilder`, which is its first parameter. Kernels are read,
not run, so that outside of a kernel these names only stand for themselves.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..tir.expr import IntImm
from ..tir.expr.dtype import BOOL, DType
from .block_values import BlockValue, PointerType

int1 = BOOL
int8, int16, int32, int64 = DType("int8"), DType("int16"), DType("int32"), DType("int64")
uint8, uint16, uint32, uint64 = DType("uint8"), DType("uint16"), DType("uint32"), DType("uint64")
float16, bfloat16, float32, float64 = DType("float16"), DType("bfloat16"), DType("float32"), DType("float64")
float8e4nv, float8e5 = DType("float8_e4m3fn"), DType("float8_e5m2")
pointer_type = PointerType
dtype = DType


class constexpr:
    """A value that is known when a kernel is compiled. It is the annotation of a parameter, or a global that kernels may name."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"


class Builtin:
    """A function of ``tl``, which the reader of kernels calls with its builder."""

    def __init__(self, meaning: Callable[..., Any]) -> None:
        functools.update_wrapper(self, meaning)
        self.meaning = meaning
        signature = inspect.signature(meaning)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __repr__(self) -> str:
        return f"tl.{self.__name__}"  # type: ignore[attr-defined]

    def __call__(self, *args: Any, **named: Any) -> NoReturn:
        raise RuntimeError(
            f"{self!r} is called in functions with @triton.jit, which are compiled; it computes nothing itself"
        )


MEMBERS: dict[str, Builtin] = {}
"""What can be called on a block: ``x.to(tl.float32)``."""


def builtin(meaning: Callable[..., Any]) -> Builtin:
    """Return a function of ``tl`` with this meaning."""
    return Builtin(meaning)


def member(meaning: Callable[..., Any]) -> Builtin:
    """Return a function of ``tl`` that is a method of blocks, too."""
    row = Builtin(meaning)
    MEMBERS[meaning.__name__] = row
    return row


def to_named(compute: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    """Return a function under a name of its own."""
    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = doc
    return compute


def whole(x: Any, what: str) -> int:
    """Returns a whole number that is known when the kernel is compiled."""
    if isinstance(x, BlockValue) and not x.shape and isinstance(x.scalar, IntImm):
        x = x.scalar.value
    if isinstance(x, bool) or not isinstance(x, int):
        raise TypeError(f"{what} must be known when the kernel is compiled (tl.constexpr), unlike {x!r}")
    return x


def shape_of(sizes: Sequence[Any]) -> tuple[int, ...]:
    flat = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    shape = tuple([whole(n, "the size of a block") for n in flat])
    for n in shape:
        if n < 1 or n & (n - 1):
            raise ValueError(f"sizes of blocks are powers of two, unlike {list(shape)}")
    return shape


def axis_of(value: BlockValue, axis: Any) -> int:
    n = whole(axis, "the axis")
    if not -len(value.shape) <= n < len(value.shape):
        raise ValueError(f"axis {n} of {value.type_text()}, which has {len(value.shape)} dimensions")
    return n % len(value.shape)


TYPE_TESTS: dict[str, Callable[[DType], bool]] = {
    "is_bf16": lambda t: t == "bfloat16",
    "is_bool": lambda t: t.is_bool,
    "is_floating": lambda t: t.is_float,
    "is_fp8": lambda t: t.is_storage and t.is_float,
    "is_fp8e4nv": lambda t: t == float8e4nv,
    "is_fp8e5": lambda t: t == float8e5,
    "is_int": lambda t: t.is_int or t.is_bool,
    "is_int_signed": lambda t: t.is_int and t.is_signed,
    "is_int_unsigned": lambda t: t.is_int and not t.is_signed,
    "is_standard_floating": lambda t: t.is_float and not t.is_storage,
    **{f"is_fp{t.bits}": functools.partial(operator.is_, t) for t in (float16, float32, float64)},
    **{
        f"is_{t}": functools.partial(operator.is_, t)
        for t in (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
    },
    "is_int1": lambda t: t.is_bool,
}
"""What kernels ask of types: ``x.dtype.is_fp16()``."""

TYPE_PARTS: dict[str, Callable[[DType], Any]] = {
    "primitive_bitwidth": lambda t: t.bits,
    "itemsize": lambda t: t.bytes,
    "scalar": lambda t: t,
}
"""What kernels read of types: ``x.dtype.primitive_bitwidth``."""


def type_of(t: Any) -> DType:
    if not isinstance(t, DType):
        raise TypeError(f"{t!r} is no type such as tl.float32")
    return t
