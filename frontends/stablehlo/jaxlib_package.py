"""This module loads the MLIR of the package jaxlib when it is needed, and maps its data types and attributes."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


class StableHloError(ValueError):
    """Raised for a StableHLO program that cannot be read."""


def load_jaxlib(module: str) -> Any:
    """Returns a module of jaxlib's MLIR; StableHloError with the pip command when jaxlib is not installed."""
    try:
        return importlib.import_module(f"jaxlib.mlir.{module}")
    except ImportError as error:
        raise StableHloError("reading StableHLO needs the package jaxlib: pip install 'tilewright[jax]'") from error


DTYPES = {
    "i1": "bool", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    **{f"{letters}{bits}": f"{name}{bits}" for bits in (8, 16, 32, 64)
       for letters, name in (("i", "int"), ("si", "int"), ("ui", "uint"))},
}  # fmt: skip
"""The data types that are supported, by their names in MLIR."""


def dtype_of(element: Any) -> str:
    """Returns an element type of MLIR as TIR names it; StableHloError for one that is not supported."""
    name = str(element)
    if name not in DTYPES:
        raise StableHloError(f"the data type {name} is not supported")
    return DTYPES[name]


def elements(attribute: Any) -> np.ndarray[Any, Any]:
    """Returns the numbers of a dense attribute; those of bfloat16 as float32, one number where all are equal."""
    if getattr(attribute, "is_splat", False):
        number = attribute.get_splat_value().value
        return np.asarray(number)
    try:
        found = np.array(attribute)
    except (TypeError, ValueError):
        found = np.asarray(None)
    if found.dtype != object:
        return found
    if str(attribute.type.element_type) == "bf16":
        return _brain_floats(attribute)
    raise StableHloError(f"a constant of the kind {type(attribute).__name__} is not supported")


def _brain_floats(attribute: Any) -> np.ndarray[Any, Any]:
    """Returns the numbers of an attribute of bfloat16, of which the bindings give single elements only."""
    count = int(np.prod(attribute.type.shape))
    return np.array([attribute[n] for n in range(count)], np.float32).reshape(attribute.type.shape)


def plain(attribute: Any) -> Any:
    """Returns an attribute as a number, a text, a truth value, or a list of them."""
    kind = type(attribute).__name__
    if kind in ("IntegerAttr", "FloatAttr", "StringAttr", "BoolAttr", "FlatSymbolRefAttr"):
        return attribute.value
    if kind == "ArrayAttr":
        return [plain(a) for a in attribute]
    if kind.startswith("Dense") and kind.endswith("ArrayAttr"):
        return list(attribute)
    if kind.startswith("Dense"):
        return np.broadcast_to(elements(attribute), attribute.type.shape).tolist()
    return attribute
