"""This module maps data types, shapes and attributes to those of MLIR and back.

MLIR's integers have no sign. An ``ui8`` in an attribute :data:`DTYPE` says where memory or a value is unsigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, SSAValue

from ...tir.expr import DType, IntImm
from ...tir.expr.equal import plain
from .mlir_error import MlirError

DTYPE = "tilewright.dtype"
"""The attribute with the data type of an unsigned value, or of an index that is not int32."""
AS = "tilewright.as"
"""The attribute that names the node, where one operation of MLIR stands for several."""

_FLOATS = {"float16": B.f16, "bfloat16": B.bf16, "float32": B.f32, "float64": B.f64}
_DYNAMIC = B.DYNAMIC_INDEX


def mlir_type(dtype: DType) -> Attribute:
    """Returns the type of a value: a scalar, or a vector of lanes."""
    element = dtype.element
    if element in _FLOATS:
        one: Attribute = _FLOATS[element]
    elif element.is_bool:
        one = B.i1
    elif element.is_int:
        one = B.IntegerType(element.bits)
    else:
        raise MlirError(f"values of type {dtype} have no counterpart in MLIR")
    return one if dtype.lanes == 1 else B.VectorType(one, [dtype.lanes])


def dtype_of(kind: Attribute) -> DType:
    """Returns the data type of a value; that of an index is int32."""
    if isinstance(kind, B.VectorType):
        if len(kind.get_shape()) != 1 or any(s.value.data for s in kind.scalable_dims):
            raise MlirError(f"{kind} is no vector of one dimension and constant length")
        return dtype_of(kind.element_type).with_lanes(kind.get_shape()[0])
    for name, known in _FLOATS.items():
        if kind == known:
            return DType(name)
    if isinstance(kind, B.IndexType):
        return DType("int32")
    if isinstance(kind, B.IntegerType):
        bits = kind.width.data
        if bits == 1:
            return DType("bool")
        if bits in (8, 16, 32, 64):
            return DType(f"{'u' if kind.signedness.data is B.Signedness.UNSIGNED else ''}int{bits}")
    raise MlirError(f"the type {kind} is not supported")


def sign_attribute(dtype: DType) -> Attribute:
    """Returns a type with its sign, as attributes hold it."""
    element = dtype.element
    if element.is_int:
        sign = B.Signedness.SIGNED if element.is_signed else B.Signedness.UNSIGNED
        return B.IntegerType(element.bits, sign)
    return mlir_type(element)


def is_unsigned(dtype: DType) -> bool:
    """Returns whether a type needs :data:`DTYPE`."""
    return dtype.is_int and not dtype.is_signed


def signed_like(found: DType, attributes: Mapping[str, Attribute]) -> DType:
    """Returns the data type of a value, as the attributes beside it say."""
    wanted = attributes.get(DTYPE)
    if wanted is None:
        return found
    dtype = dtype_of(wanted)
    if dtype.is_bool and found.bits == 8:
        return dtype.with_lanes(found.lanes)
    if dtype.bits != found.bits or dtype.kind.lstrip("u") != found.kind.lstrip("u"):
        raise MlirError(f"{DTYPE} = {wanted} does not fit values of type {found}")
    return dtype.with_lanes(found.lanes)


def dimensions(shape: tuple[Any, ...]) -> list[int]:
    """Returns the sizes of a shape, with MLIR's number for those that are not constant."""
    return [e.value if isinstance(e, IntImm) else _DYNAMIC for e in shape]


def is_dynamic(size: int) -> bool:
    """Returns whether a size of a type is not constant."""
    return size == _DYNAMIC


def attribute(value: Any) -> Attribute:
    """Returns a plain value, a list or a mapping as an attribute."""
    value = plain(value)
    if isinstance(value, bool):
        return B.BoolAttr.from_bool(value)
    if isinstance(value, int):
        return B.IntegerAttr(value, 64)
    if isinstance(value, float):
        return B.FloatAttr(value, B.f64)
    if isinstance(value, str):
        return B.StringAttr(value)
    if isinstance(value, list):
        return B.ArrayAttr([attribute(v) for v in value])
    if isinstance(value, dict):
        return B.DictionaryAttr({k: attribute(v) for k, v in value.items()})
    raise MlirError(f"an attribute holds {value!r}, which is no number, text, list or mapping")


def plain_value(attr: Attribute) -> Any:
    """Returns what :func:`attribute` made an attribute of."""
    if isinstance(attr, B.IntegerAttr):
        is_bool = attr.type == B.i1
        return bool(attr.value.data) if is_bool else attr.value.data
    if isinstance(attr, B.FloatAttr):
        return attr.value.data
    if isinstance(attr, B.StringAttr):
        return attr.data
    if isinstance(attr, B.ArrayAttr):
        return [plain_value(a) for a in attr.data]
    if isinstance(attr, B.DictionaryAttr):
        return {k: plain_value(a) for k, a in attr.data.items()}
    raise MlirError(f"the attribute {attr} is no number, text, list or dictionary")


def text_attribute(text: str) -> Attribute:
    """Returns a text in ASCII, which is what xDSL reads back."""
    return B.StringAttr(text.replace("…", "...").encode("ascii", "replace").decode())


def hint(value: SSAValue, name: str) -> SSAValue:
    """Give a value a name, where the name may stand in MLIR; returns the value."""
    if name and SSAValue.is_valid_name(name):
        value.name_hint = name
    return value
