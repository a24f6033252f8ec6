"""Operators that look labels up: texts or numbers in a table, which gives texts or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....graph.host_graph import TEXT, as_texts
from .text_call import TextCall, mapped, text_operator

_DOMAIN = "ai.onnx.ml"
_KINDS = {"strings": TEXT, "int64s": "int64", "floats": "float32"}
_DEFAULTS: dict[str, tuple[str, Any]] = {
    TEXT: ("default_string", "_Unused"), "int64": ("default_int64", -1), "float32": ("default_float", -0.0),
}  # fmt: skip


def _column(c: TextCall, name: str) -> tuple[list[Any], str]:
    """Returns the keys or values of a table, and their data type."""
    tensor = c.attr(f"{name}_tensor")
    if tensor is not None:
        return np.ravel(tensor).tolist(), TEXT if tensor.dtype.kind in "OUS" else str(tensor.dtype)
    for kind, dtype in _KINDS.items():
        found = c.attr(f"{name}_{kind}")
        if found is not None:
            return list(found), dtype
    raise c.error(f"it has no {name}")


def _encoder(c: TextCall) -> tuple[dict[Any, Any], Any, str]:
    """Returns the table, what other keys give, and the data type of its values."""
    classes = c.attr("classes_strings")
    if classes is not None:  # version 1: a text gives its place
        return {text: n for n, text in enumerate(classes)}, c.attr("default_int64", -1), "int64"
    (keys, _), (values, dtype) = _column(c, "keys"), _column(c, "values")
    if len(keys) != len(values):
        raise c.error(f"{len(keys)} keys for {len(values)} values")
    name, default = _DEFAULTS.get(dtype, ("", -1))
    tensor = c.attr("default_tensor") if c.attr("values_tensor") is not None else None
    other = c.attr(name, default) if tensor is None else np.ravel(tensor)[0]
    return {_key(k): v for k, v in zip(keys, values, strict=True)}, other, dtype


def _key(one: Any) -> Any:
    return "" if one != one else one  # NaN is a key like another; no table has texts and numbers as keys


@text_operator("LabelEncoder", ".", lambda c: (_encoder(c)[2],), domain=_DOMAIN, always=True)
def label_encoder(c: TextCall, x: Any) -> Any:
    table, other, dtype = _encoder(c)
    if x.dtype.kind in "iu" and c.attr("classes_strings") is not None:
        raise c.error("labels of numbers need version 2 of the operator")
    return mapped(lambda one: table.get(_key(one), other), x, dtype)


def _mapper_type(c: TextCall) -> Sequence[str]:
    numbers, texts = c.attr("cats_int64s", ()), c.attr("cats_strings", ())
    if len(numbers) != len(texts):
        raise c.error(f"{len(numbers)} numbers for {len(texts)} texts")
    return ("int64",)


@text_operator("CategoryMapper", "t", _mapper_type, domain=_DOMAIN, always=True)
def category_mapper(c: TextCall, x: Any) -> Any:
    table = dict(zip(c.attr("cats_strings", ()), c.attr("cats_int64s", ()), strict=True))
    return mapped(lambda one: table.get(one, c.attr("default_int64", -1)), x, "int64")


@text_operator("ArrayFeatureExtractor", "tn", shapes=lambda c, x, n: [(*(x[:-1] if len(x) > 1 else (1,)), c.size(0, 1))], domain=_DOMAIN)  # fmt: skip
def array_feature_extractor(c: TextCall, x: Any, indices: Any) -> Any:
    out = as_texts(np.take(x, np.ravel(indices), axis=-1))
    return out if x.ndim > 1 else out.reshape(1, -1)
