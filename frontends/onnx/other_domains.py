"""Converters of the domains ai.onnx.ml and ai.onnx.preview.training: features, labels, linear models, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import OUTSIDE, OnnxCall, register_onnx_operator

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


def one_hot_encoder(c: OnnxCall) -> Value:
    """Returns 1 where a number is that category, along a new last axis. A number that is none has 0 everywhere."""
    if c.attr("cats_strings") is not None:
        raise c.error(f"its categories are strings; {OUTSIDE}")
    categories = c.attr("cats_int64s")
    if not categories:
        raise c.error("it has no categories")
    if not c.attr("zeros", 1):
        raise c.error("zeros=0 refuses numbers that are no category while it runs, which is not supported")
    x = c.cast(c.input(0), "int64")
    return c.cast(
        c.op("equal", c.op("expand_dims", x, axis=x.ndim), c.constant(np.asarray(categories), "int64")), "float32"
    )


def imputer(c: OnnxCall) -> Value:
    """Returns the input with other numbers in place of what is missing: one of each column, or the same."""
    x = c.input(0)
    kind = "floats" if x.dtype.startswith("float") else "int64s"
    values = c.attr(f"imputed_value_{kind}")
    if not values:
        raise c.error(f"it has no imputed_value_{kind} for {x.type_text}")
    missing = c.attr(f"replaced_value_{kind[:-1]}", 0)
    new = c.constant(np.asarray(values), x.dtype)
    if len(values) > 1 and x.shape[-1] != len(values):
        raise c.error(f"{len(values)} values for {x.type_text}")
    marked = c.op("not_equal", x, x) if missing != missing else c.op("equal", x, c.like(missing, x))
    return c.op("where", marked, c.op("broadcast_to", new, shape=x.shape), x)


def feature_vectorizer(c: OnnxCall) -> Value:
    """Returns the columns of all inputs side by side, as float32."""
    given = [c.cast(v, "float32") for v in c.inputs if v is not None]
    given = [v if v.ndim == 2 else c.op("reshape", v, shape=(v.shape[0], -1)) for v in given]
    sizes = c.attr("inputdimensions", ())
    if sizes and [v.shape[1] for v in given] != list(sizes):
        raise c.error(f"inputdimensions={tuple(sizes)} for {', '.join(v.type_text for v in given)}")
    return c.op("concatenate", *given, axis=1) if len(given) > 1 else c.op("identity", given[0])


def linear_regressor(c: OnnxCall) -> Value:
    return transformed(c, _line(c, c.attr("targets", 1), "coefficients"))


def _line(c: OnnxCall, rows: int, name: str) -> Value:
    x = c.cast(c.input(0), "float32")
    x = x if x.ndim == 2 else c.op("reshape", x, shape=(1, -1))
    weights = np.asarray(c.attr(name, ()), np.float32)
    if rows < 1 or weights.size != rows * x.shape[1]:
        raise c.error(f"{weights.size} {name} for {rows} rows of {x.shape[1]}")
    out = c.op("dense", x, c.constant(weights.reshape(rows, -1)))
    shift = c.attr("intercepts", ())
    return c.op("add", out, c.constant(np.asarray(shift, np.float32))) if len(shift) else out


def transformed(c: OnnxCall, x: Value, kind: str = "") -> Value:
    """Returns scores after a transformation: ``kind``, or the one that the node's ``post_transform`` names."""
    kind = kind or c.attr("post_transform", "NONE")
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
    return c.op("take", c.constant(np.asarray(labels, np.int64)), best, axis=0), transformed(c, scores)


for _name, _convert in (
    ("ArrayFeatureExtractor", array_feature_extractor), ("Binarizer", binarizer), ("Scaler", scaler),
    ("OneHotEncoder", one_hot_encoder), ("Imputer", imputer), ("FeatureVectorizer", feature_vectorizer),
    ("LabelEncoder", label_encoder), ("Normalizer", normalizer), ("LinearRegressor", linear_regressor), ("LinearClassifier", linear_classifier),
):  # fmt: skip
    register_onnx_operator(_name, _convert, _DOMAIN)


_TRAINING = "ai.onnx.preview.training"


def _per_tensor(c: OnnxCall, kinds: int, step: Callable[[Sequence[Value]], Sequence[Value]]) -> tuple[Value, ...]:
    """Returns the results of ``step`` for each tensor. The inputs after two scalars are all tensors of each kind."""
    count, rest = divmod(len(c.inputs) - 2, kinds)
    if rest or count < 1:
        raise c.error(f"{len(c.inputs)} inputs are not two and {kinds} for each tensor")
    made = [step([c.input(2 + n + k * count) for k in range(kinds)]) for n in range(count)]
    return tuple([v for kind in zip(*made, strict=True) for v in kind])


def _scaled_sum(c: OnnxCall, a: Value, factor: Any, b: Value) -> Value:
    """Returns ``factor * a + b``; the factor is a number or a value."""
    scale = factor if isinstance(factor, Value) else c.like(float(factor), a)
    return c.op("add", c.op("multiply", scale, a), b)


def _number(c: OnnxCall, n: int, like: Value) -> Value:
    return c.op("reshape", c.cast(c.input(n), like.dtype), shape=())


def _is_first(c: OnnxCall) -> bool:
    return not int(np.ravel(c.known(1))[0]) > 0


def adagrad(c: OnnxCall) -> tuple[Value, ...]:
    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, h = given
        one = c.like(1.0, x)
        rate = c.op("divide", _number(c, 0, x), _scaled_sum(c, _number(c, 1, x), c.attr("decay_factor", 0.0), one))
        whole = _scaled_sum(c, x, c.attr("norm_coefficient", 0.0), g)
        total = c.op("add", h, c.op("square", whole))
        root = c.op("add", c.op("sqrt", total), c.like(float(c.attr("epsilon", 0.0)), x))
        return c.op("subtract", x, c.op("divide", c.op("multiply", rate, whole), root)), total

    return _per_tensor(c, 3, step)


def adam(c: OnnxCall) -> tuple[Value, ...]:
    alpha, beta = float(c.attr("alpha", 0.9)), float(c.attr("beta", 0.999))
    time = int(np.ravel(c.known(1))[0])
    correction = float(np.sqrt(1 - beta**time) / (1 - alpha**time)) if time > 0 else 1.0

    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, v, h = given
        whole = _scaled_sum(c, x, c.attr("norm_coefficient", 0.0), g)
        first = _scaled_sum(c, v, alpha, c.op("multiply", whole, c.like(1 - alpha, x)))
        second = _scaled_sum(c, h, beta, c.op("multiply", c.op("square", whole), c.like(1 - beta, x)))
        root = c.op("add", c.op("sqrt", second), c.like(float(c.attr("epsilon", 0.0)), x))
        rate = c.op("multiply", _number(c, 0, x), c.like(correction, x))
        new = c.op("subtract", x, c.op("multiply", rate, c.op("divide", first, root)))
        shrunk = c.op("multiply", new, c.like(1 - float(c.attr("norm_coefficient_post", 0.0)), x))
        return shrunk, first, second

    return _per_tensor(c, 4, step)


def momentum(c: OnnxCall) -> tuple[Value, ...]:
    alpha, beta = float(c.attr("alpha")), 1.0 if _is_first(c) else float(c.attr("beta"))

    def step(given: Sequence[Value]) -> Sequence[Value]:
        x, g, v = given
        whole = _scaled_sum(c, x, c.attr("norm_coefficient", 0.0), g)
        new = _scaled_sum(c, v, alpha, c.op("multiply", whole, c.like(beta, x)))
        move = new if c.attr("mode", "standard") == "standard" else _scaled_sum(c, new, alpha, whole)
        return c.op("subtract", x, c.op("multiply", _number(c, 0, x), move)), new

    return _per_tensor(c, 3, step)


for _name, _convert in (("Adagrad", adagrad), ("Adam", adam), ("Momentum", momentum)):
    register_onnx_operator(_name, _convert, _TRAINING)
