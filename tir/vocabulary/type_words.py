"""This module defines words such as ``T.float32``: types in annotations, constants or conversions when called."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..expr import INDEX, Cast, DType, Expr, FloatImm, IntImm, Var, cast, const, convert, max_value, min_value


class TypeWord:
    """Represents a data type.

    ``T.int64(3)`` and ``T.float32("inf")`` are constants, ``T.int64(x)`` converts ``x``, ``n = T.int32()`` declares a
    size.
    """

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        self.dtype = DType(dtype)

    def __call__(self, value: Any = None, *rest: Any, is_size_var: bool = False) -> Expr:
        if self.dtype == "handle":
            return Var("handle", "handle")
        if value is None:
            return Var("v", self.dtype)
        if isinstance(value, str):
            if not self.dtype.is_float:
                raise ValueError(f"T.{self.dtype} of the text {value!r}: only floating-point types take one")
            return const(float(value), self.dtype)
        if isinstance(value, (int, float)):
            if (
                isinstance(value, int)
                and self.dtype.is_int
                and not (min_value(self.dtype) <= value <= max_value(self.dtype))
            ):
                raise ValueError(f"{value} does not fit into {self.dtype}")
            return const(value, self.dtype)
        e = convert(value)
        if isinstance(e, (IntImm, FloatImm)) and e.dtype.lanes == 1:
            if isinstance(value, Expr) and e.dtype.is_float and not self.dtype.is_float:
                return Cast(self.dtype, e)
            return const(e.value, self.dtype)
        return cast(self.dtype.with_lanes(e.dtype.lanes), e)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


_SHORT = {"boolean": "bool", "int": INDEX, "ptr": "handle", "bf16": "bfloat16"} | {
    f"{letter}{bits}": f"{kind}{bits}"
    for letter, kind, widths in (
        ("f", "float", (16, 32, 64)),
        ("i", "int", (8, 16, 32, 64)),
        ("u", "uint", (8, 16, 32, 64)),
    )
    for bits in widths
}


@cache
def type_word(name: str) -> TypeWord:
    """Return the word for a data type's name; AttributeError when there is no such type."""
    name = _SHORT.get(name, name)
    try:
        DType(name)
    except ValueError:
        raise AttributeError(f"T has no word {name!r}") from None
    return TypeWord(name)
