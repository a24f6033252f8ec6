"""Operators on texts, which Python computes: a table of them, and what their functions get of a node.

A row has a function of arrays, the data types that it takes and gives, and the shapes that it gives. Texts are arrays of
Python's ``str``. Operators look labels up, move texts, compare, join and divide them, and count runs of words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph.host_graph import TEXT, as_texts
from ..call import LARGEST_TABLE, OnnxError
from ..types import dtype_of

Shape = tuple[Any, ...]
"""Extents: numbers, and names of sizes that the data tell."""


@dataclass(frozen=True)
class TextCall:
    """One node. ``constants`` are the inputs that are known while the model is read, None for others."""

    op: str
    label: str
    attributes: Mapping[str, Any]
    constants: Sequence[Any]
    outputs: Sequence[str]

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute; texts as ``str``, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def error(self, message: str) -> OnnxError:
        """Returns an error that names the node."""
        return OnnxError(f"{self.label}: {message}")

    def ints(self, n: int, attribute: str = "") -> tuple[int, ...]:
        """Returns numbers that the attribute of older versions says, or a constant that is input ``n``."""
        found = self.attr(attribute)
        data = self.constants[n] if found is None and n < len(self.constants) else found
        if data is None:
            raise self.error(f"input {n} has to be a constant")
        return tuple([int(d) for d in np.ravel(data)])

    def size(self, output: int, axis: int) -> str:
        """Returns the name of a size that only the data tell."""
        return f"{self.outputs[output]}_{axis}"


@dataclass(frozen=True)
class TextOperator:
    """A row of the table.

    ``run(call, *arrays)`` returns an array, or a tuple of arrays. ``takes`` has a letter for each input, the last one for
    all that follow: ``t`` texts, ``n`` numbers, ``.`` both. ``gives``: the data types of the results, or a function of
    the call. ``shapes(call, *shapes)`` returns the shape of each result. ``always``: also without texts.
    """

    run: Callable[..., Any]
    takes: str
    gives: Sequence[str] | Callable[[TextCall], Sequence[str]]
    shapes: Callable[..., Sequence[Shape]]
    always: bool

    def dtypes(self, call: TextCall) -> Sequence[str]:
        """Returns the data types of the results."""
        return self.gives(call) if callable(self.gives) else self.gives

    def check(self, call: TextCall, names: Sequence[str | None], dtypes: Sequence[str | None]) -> None:
        """Raise OnnxError when an input has a data type that the operator does not take."""
        for n, (name, dtype) in enumerate(zip(names, dtypes, strict=True)):
            want = self.takes[min(n, len(self.takes) - 1)]
            fits = dtype == TEXT if want == "t" else dtype != "bfloat16" and (want == "." or dtype != TEXT)
            if name is not None and not fits:
                kind = {"t": "texts", "n": "numbers", ".": "texts or numbers"}[want]
                raise call.error(f"input {n}, {name}, is of the data type {dtype}; here it takes {kind}")


TEXT_OPERATORS: dict[tuple[str, str], TextOperator] = {}
"""The operators that work on texts, by domain and name."""


def same_shape(call: TextCall, *shapes: Shape) -> Sequence[Shape]:
    """Returns the shape of the first input, for each result."""
    return [shapes[0]] * len(call.outputs)


def broadcast_shape(call: TextCall, *shapes: Shape) -> Sequence[Shape]:
    """Returns the shape to which all inputs broadcast."""
    out: list[Any] = []
    for axis in range(1, max(map(len, shapes)) + 1):
        extents = [s[-axis] for s in shapes if len(s) >= axis and s[-axis] != 1]
        if len({e for e in extents if isinstance(e, int)}) > 1:
            raise call.error(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
        numbers = [e for e in extents if isinstance(e, int)]
        out.insert(0, (numbers or extents or [1])[0])
    return [tuple(out)]


def text_operator(
    name: str,
    takes: str = "t",
    gives: Sequence[str] | Callable[[TextCall], Sequence[str]] = (TEXT,),
    shapes: Callable[..., Sequence[Shape]] = same_shape,
    *,
    domain: str = "",
    always: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that enters a function as the row of an operator."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        TEXT_OPERATORS[domain, name] = TextOperator(run, takes, gives, shapes, always)
        return run

    return enter


def mapped(function: Callable[[Any], Any], data: Any, dtype: str) -> Any:
    """Returns ``function`` of each element, as an array of the data type."""
    out = np.empty(data.shape, object if dtype == TEXT else dtype)
    out.reshape(-1)[:] = [function(one) for one in data.reshape(-1).tolist()]
    return out


# Operators that look labels up: texts or numbers in a table, which gives texts or numbers.

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


# Operators that move texts without reading them: the same ones as for numbers, on arrays of objects.


@text_operator("Identity")
def identity(c: TextCall, x: Any) -> Any:
    return x


def _reshaped(c: TextCall, x: Shape, _: Shape = ()) -> Sequence[Shape]:
    want = c.ints(1, "shape")
    if any(d == 0 for d in want[len(x) :]) or want.count(-1) > 1:
        raise c.error(f"the shape {list(want)} does not fit {list(x)}")
    out = [x[n] if d == 0 else d for n, d in enumerate(want)]
    if -1 in out:
        at, rest = out.index(-1), [d for d in out if d != -1]
        known = all(isinstance(d, int) for d in (*x, *rest)) and math.prod(rest) > 0
        out[at] = math.prod(x) // math.prod(rest) if known else c.size(0, at)
    return [tuple(out)]


@text_operator("Reshape", "tn", shapes=_reshaped)
def reshape(c: TextCall, x: Any, _: Any = None) -> Any:
    want = c.ints(1, "shape")
    return x.reshape([x.shape[n] if d == 0 else d for n, d in enumerate(want)])


def _squeezed(c: TextCall, x: Shape, *_: Shape) -> Sequence[Shape]:
    axes = {a % len(x) for a in c.ints(1, "axes")}
    return [tuple([d for n, d in enumerate(x) if n not in axes])]


@text_operator("Squeeze", "tn", shapes=_squeezed)
def squeeze(c: TextCall, x: Any, *_: Any) -> Any:
    return np.squeeze(x, c.ints(1, "axes"))


def _unsqueezed(c: TextCall, x: Shape, *_: Shape) -> Sequence[Shape]:
    rank = len(x) + len(c.ints(1, "axes"))
    axes, rest = {a % rank for a in c.ints(1, "axes")}, iter(x)
    return [tuple([1 if n in axes else next(rest) for n in range(rank)])]


@text_operator("Unsqueeze", "tn", shapes=_unsqueezed)
def unsqueeze(c: TextCall, x: Any, *_: Any) -> Any:
    return np.expand_dims(x, c.ints(1, "axes"))


def _order(c: TextCall, rank: int) -> tuple[int, ...]:
    return tuple(c.attr("perm", range(rank)[::-1]))


@text_operator("Transpose", shapes=lambda c, x: [tuple([x[n] for n in _order(c, len(x))])])
def transpose(c: TextCall, x: Any) -> Any:
    return x.transpose(_order(c, x.ndim))


def _joined(c: TextCall, *shapes: Shape) -> Sequence[Shape]:
    axis, out = c.attr("axis") % len(shapes[0]), list(shapes[0])
    parts = [s[axis] for s in shapes]
    out[axis] = sum(parts) if all(isinstance(d, int) for d in parts) else c.size(0, axis)
    return [tuple(out)]


@text_operator("Concat", shapes=_joined)
def concat(c: TextCall, *parts: Any) -> Any:
    return np.concatenate(parts, c.attr("axis"))


def _gathered(c: TextCall, x: Shape, indices: Shape) -> Sequence[Shape]:
    axis = c.attr("axis", 0) % len(x)
    return [(*x[:axis], *indices, *x[axis + 1 :])]


@text_operator("Gather", "tn", shapes=_gathered)
def gather(c: TextCall, x: Any, indices: Any) -> Any:
    return np.take(x, indices, axis=c.attr("axis", 0))


@text_operator("Where", "ntt", shapes=broadcast_shape)
def where(c: TextCall, condition: Any, x: Any, y: Any) -> Any:
    return np.where(condition, x, y)


@text_operator(
    "Shape", gives=("int64",), shapes=lambda c, x: [(len(range(len(x))[c.attr("start", 0) : c.attr("end")]),)]
)
def shape(c: TextCall, x: Any) -> Any:
    return np.array(x.shape[c.attr("start", 0) : c.attr("end")], np.int64)


# Operators that compare, join, divide and convert texts.

_CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _normalized_shape(c: TextCall, x: Shape) -> Sequence[Shape]:
    if len(x) not in (1, 2) or (len(x) == 2 and x[0] != 1):
        raise c.error(f"it takes texts of the shape [C] or [1, C], not {list(x)}")
    if c.attr("case_change_action", "NONE") not in _CASES:
        raise c.error(f"the change of case {c.attr('case_change_action')!r} is not known")
    extent = c.size(0, len(x) - 1) if c.attr("stopwords") else x[-1]
    return [(*x[:-1], extent)]


@text_operator("StringNormalizer", shapes=_normalized_shape, always=True)
def string_normalizer(c: TextCall, x: Any) -> Any:
    key: Callable[[str], str] = str if c.attr("is_case_sensitive", 0) else str.lower
    stops = {key(word) for word in c.attr("stopwords") or ()}
    change = _CASES[c.attr("case_change_action", "NONE")]
    kept = [change(word) for word in x.reshape(-1) if key(word) not in stops] or [""]
    return as_texts(np.array(kept, object).reshape((*x.shape[:-1], len(kept))))


@text_operator("StringConcat", "tt", shapes=broadcast_shape, always=True)
def string_concat(c: TextCall, x: Any, y: Any) -> Any:
    return np.asarray(x + y, object)


def _split_shape(c: TextCall, x: Shape) -> Sequence[Shape]:
    return [(*x, c.size(0, len(x))), x]


@text_operator("StringSplit", gives=(TEXT, "int64"), shapes=_split_shape, always=True)
def string_split(c: TextCall, x: Any) -> tuple[Any, Any]:
    parts = [text.split(c.attr("delimiter") or None, c.attr("maxsplit", -1)) for text in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64)
    out = np.full((len(parts), int(counts.max(initial=0))), "", object)
    for row, texts in zip(out, parts, strict=True):
        row[: len(texts)] = texts
    return out.reshape((*x.shape, out.shape[1])), counts.reshape(x.shape)


def _match_shape(c: TextCall, x: Shape) -> Sequence[Shape]:
    try:
        re.compile(c.attr("pattern", ""))
    except re.error as error:
        raise c.error(f"the pattern {c.attr('pattern')!r} cannot be read: {error}") from error
    return [x]


@text_operator("RegexFullMatch", gives=("bool",), shapes=_match_shape, always=True)
def regex_full_match(c: TextCall, x: Any) -> Any:
    pattern = re.compile(c.attr("pattern", ""))
    return mapped(lambda text: pattern.fullmatch(text) is not None, x, "bool")


@text_operator("Equal", "tt", ("bool",), broadcast_shape)
def equal(c: TextCall, x: Any, y: Any) -> Any:
    return np.asarray(x == y, bool)


_NUMBERS: dict[str, Callable[[str], Any]] = {
    "f": float,
    "i": int,
    "u": int,
    "b": lambda text: {"true": True, "1": True}.get(text.lower(), False),
}


def _cast_type(c: TextCall) -> Sequence[str]:
    number = c.attr("to")
    dtype = TEXT if number == 8 else dtype_of(number, c.label)
    if dtype == "bfloat16":
        raise c.error("texts as bfloat16 are not supported")
    return (dtype,)


@text_operator("Cast", ".", _cast_type, same_shape)
def cast(c: TextCall, x: Any) -> Any:
    (dtype,) = _cast_type(c)
    if dtype == TEXT:
        return as_texts(x) if x.dtype.kind == "O" else mapped(str, x.astype(np.str_), TEXT)
    return mapped(_NUMBERS[np.dtype(dtype).kind], x, dtype)


# TfIdfVectorizer counts runs of words, which are texts or numbers, and weighs the counts.


def _columns(c: TextCall) -> int:
    indexes = c.attr("ngram_indexes", ())
    columns = max(indexes, default=-1) + 1
    if min(indexes, default=-1) < 0 or columns > LARGEST_TABLE:
        raise c.error(f"its results would have {columns} columns")
    if c.attr("mode") not in ("TF", "IDF", "TFIDF"):
        raise c.error(f"the mode {c.attr('mode')!r} is not known")
    weights = c.attr("weights")
    if weights is not None and len(weights) != len(indexes):
        raise c.error(f"{len(weights)} weights for {len(indexes)} runs of words")
    return columns


def _shape(c: TextCall, x: Shape) -> Sequence[Shape]:
    if len(x) > 2:
        raise c.error(f"it takes words of the shape [C] or [B, C], not {list(x)}")
    return [(*x[:-1], _columns(c))]


def _runs(c: TextCall) -> dict[tuple[Any, ...], int]:
    """Returns the column of each run of words that is counted."""
    pool, starts = c.attr("pool_strings") or c.attr("pool_int64s") or (), list(c.attr("ngram_counts", ()))
    out: dict[tuple[Any, ...], int] = {}
    columns = iter(c.attr("ngram_indexes"))
    for length, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        for at in range(begin, end - length + 1, length):
            column = next(columns)
            if c.attr("min_gram_length") <= length <= c.attr("max_gram_length"):
                out[tuple(pool[at : at + length])] = column
    return out


def _counts(c: TextCall, words: Sequence[Any], runs: dict[tuple[Any, ...], int], columns: int) -> Any:
    out = np.zeros(columns, np.float32)
    lengths = {len(run) for run in runs}
    for step in range(1, c.attr("max_skip_count") + 2):
        for length in lengths if step == 1 else lengths - {1}:
            for at in range(len(words) - step * (length - 1)):
                column = runs.get(tuple(words[at : at + step * (length - 1) + 1 : step]))
                if column is not None:
                    out[column] += 1
    return out


@text_operator("TfIdfVectorizer", ".", ("float32",), _shape, always=True)
def tf_idf_vectorizer(c: TextCall, x: Any) -> Any:
    runs, columns = _runs(c), _columns(c)
    counts = np.array([_counts(c, row, runs, columns) for row in x.reshape(-1, x.shape[-1] if x.ndim else 1).tolist()])
    weights = np.ones(columns, np.float32)
    if c.attr("weights") is not None:
        weights[list(c.attr("ngram_indexes"))] = c.attr("weights")
    counts = np.sign(counts) if c.attr("mode") == "IDF" else counts
    out = counts if c.attr("mode") == "TF" else counts * weights
    return out.astype(np.float32).reshape((*x.shape[:-1], columns))
