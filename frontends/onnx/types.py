"""Loads the package onnx when it is needed, and maps its data types to those of TIR."""

from __future__ import annotations

import importlib
from typing import Any

from .call import Item, OnnxError, ValueList

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
"""The data types that are supported, by ONNX's number."""

STRING = 8
"""ONNX's number of the data type of strings, which is not supported."""

OUTSIDE = "string operators are not supported: tokenize outside of the model"
"""What to do with strings, as messages say it."""

SMALL_DTYPES = {21: "uint4", 22: "int4", 25: "uint2", 26: "int2"}
"""Types of less than a byte, by ONNX's number. The graph has their numbers as uint8 or int8."""


def bits_of(small: str) -> int:
    """Returns how many bits a number of a type in :data:`SMALL_DTYPES` has."""
    return int(small[-1])


def holding(small: str) -> str:
    """Returns the data type in which the graph has the numbers of a small one."""
    return small[:-1] + "8"


def dtype_of(number: int, label: str) -> str:
    """Returns the data type of an ONNX number; OnnxError names ``label`` for one that is not supported."""
    if number not in DTYPES:
        types = load_onnx().TensorProto.DataType
        name = types.Name(number) if number in types.values() else str(number)
        hint = f"; {OUTSIDE}" if number == STRING else ""
        raise OnnxError(f"{label}: the data type {name.lower()} is not supported{hint}")
    return DTYPES[number]


def stored_dtype(number: int, label: str) -> str:
    """Returns the data type in which the graph has a tensor of ONNX's type ``number``."""
    return holding(SMALL_DTYPES[number]) if number in SMALL_DTYPES else dtype_of(number, label)


def number_of(dtype: str) -> int:
    """Returns ONNX's number of a data type that is supported."""
    return next(number for number, name in DTYPES.items() if name == dtype)


def type_of(onnx: Any, v: Item | None) -> Any:
    """Returns ONNX's type of a value, an empty one for None."""
    if v is None:
        return onnx.TypeProto()
    number = number_of(v.dtype)
    if isinstance(v, ValueList):
        return onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(number, None))
    return onnx.helper.make_tensor_type_proto(number, [d if isinstance(d, int) else None for d in v.shape])


def load_onnx() -> Any:
    """Returns the package onnx; OnnxError with the pip command when it is not installed."""
    try:
        importlib.import_module("onnx.reference")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise OnnxError("reading ONNX models needs the package onnx: pip install 'tilewright[onnx]'") from error
