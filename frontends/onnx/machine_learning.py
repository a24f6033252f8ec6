"""Converters of the domain ai.onnx.ml: features, labels that are numbers, scaling and linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import OnnxCall, register_onnx_operator
from .types import OUTSIDE

_DOMAIN = "ai.onnx.ml"


def array_feature_extractor(c: OnnxCall) -> Value:
    x, indices = c.input(0), c.input(1)
    flat = c.op("reshape", indices, shape=(-1,))
    out = c.op("take", x, flat, axis=x.ndim - 1)
    return out if x.ndim > 1 else c.op("expand_dims", out, axis=0)


def binarizer(c: OnnxCall) -> Value:
    x = c.input(0)
    return c.op("cast", c.op("greater", x, c.like(float(c.attr("threshold", 0.0)), x)), dtype=x.dtype)


def scaler(c: OnnxCall) -> Value:
    x = c.cast(c.input(0), "float32")
    shift, scale = [c.constant(np.asarray(c.attr(n, (d,)), np.float32)) for n, d in (("offset", 0.0), ("scale", 1.0))]
    return c.op("multiply", c.op("subtract", x, shift), scale)


def normalizer(c: OnnxCall) -> Value:
    x, norm = c.cast(c.input(0), "float32"), c.attr("norm", "MAX")
    axis = x.ndim - 1
    if norm == "MAX":
        size = c.op("max", c.op("abs", x), axis=axis, keepdims=True)
    else:
        total = c.op("sum", c.op("abs" if norm == "L1" else "square", x), axis=axis, keepdims=True)
        size = total if norm == "L1" else c.op("sqrt", total)
    return c.op("divide", x, c.op("where", c.op("equal", size, c.like(0, size)), c.op("exp", size), size))


_DEFAULTS = {"int64s": ("int64", "default_int64", -1), "floats": ("float32", "default_float", -0.0)}
"""The data type of each kind of labels, and the attribute that says what a label gives that is no key."""


def _labels(c: OnnxCall, name: str) -> tuple[Any, Any]:
    """Returns the keys or values of a table of labels, and what the others give."""
    tensor = c.attr(f"{name}_tensor")
    if tensor is not None:
        default = c.attr("default_tensor")
        return np.ravel(tensor), -1 if default is None else np.ravel(default)[0]
    for kind, (dtype, attribute, default) in _DEFAULTS.items():
        if c.attr(f"{name}_{kind}") is not None:
            return np.asarray(c.attr(f"{name}_{kind}"), dtype), c.attr(attribute, default)
    if c.attr("classes_strings") is not None or c.attr(f"{name}_strings") is not None:
        raise c.error(f"its labels are strings; {OUTSIDE}")
    raise c.error(f"it has no {name}")


def label_encoder(c: OnnxCall) -> Value:
    x, (keys, _), (values, default) = c.input(0), _labels(c, "keys"), _labels(c, "values")
    if not 0 < len(keys) == len(values):
        raise c.error(f"{len(keys)} keys for {len(values)} values")
    wide, keys = c.op("expand_dims", x, axis=x.ndim), c.constant(keys.astype(x.dtype), x.dtype)
    same = c.op("equal", wide, keys)
    if x.dtype.startswith("float"):  # NaN is a key like another
        same = c.op(
            "logical_or", same, c.op("logical_and", c.op("not_equal", wide, wide), c.op("not_equal", keys, keys))
        )
    numbers = c.constant(np.arange(1, len(values) + 1), "int64")
    place = c.op("max", c.op("multiply", c.cast(same, "int64"), numbers), axis=x.ndim)
    return c.op("take", c.constant(np.concatenate([np.array([default], values.dtype), values])), place, axis=0)


def linear_regressor(c: OnnxCall) -> Value:
    return _post(c, _line(c, c.attr("targets", 1), "coefficients"))


def _line(c: OnnxCall, rows: int, name: str) -> Value:
    x = c.cast(c.input(0), "float32")
    x = x if x.ndim == 2 else c.op("reshape", x, shape=(1, -1))
    weights = np.asarray(c.attr(name, ()), np.float32)
    if rows < 1 or weights.size != rows * x.shape[1]:
        raise c.error(f"{weights.size} {name} for {rows} rows of {x.shape[1]}")
    out = c.op("dense", x, c.constant(weights.reshape(rows, -1)))
    shift = c.attr("intercepts", ())
    return c.op("add", out, c.constant(np.asarray(shift, np.float32))) if len(shift) else out


def _post(c: OnnxCall, x: Value) -> Value:
    kind = c.attr("post_transform", "NONE")
    if kind not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise c.error(f"the transformation {kind} is not supported")
    return x if kind == "NONE" else c.op("sigmoid", x) if kind == "LOGISTIC" else c.op("softmax", x, axis=1)


def linear_classifier(c: OnnxCall) -> tuple[Value, ...]:
    labels = c.attr("classlabels_ints")
    rows = len(c.attr("intercepts", ())) or len(labels or ())
    if labels is None or len(labels) != rows:
        raise c.error("labels that are strings, and one score for two labels, are not supported")
    scores = _line(c, rows, "coefficients")
    best = c.op("argmax", scores, axis=1, dtype="int64")
    return c.op("take", c.constant(np.asarray(labels, np.int64)), best, axis=0), _post(c, scores)


for _name, _convert in (
    ("ArrayFeatureExtractor", array_feature_extractor), ("Binarizer", binarizer), ("Scaler", scaler),
    ("LabelEncoder", label_encoder), ("Normalizer", normalizer), ("LinearRegressor", linear_regressor), ("LinearClassifier", linear_classifier),
):  # fmt: skip
    register_onnx_operator(_name, _convert, _DOMAIN)
