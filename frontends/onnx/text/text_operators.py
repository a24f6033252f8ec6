"""Operators that compare, join, divide and convert texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....graph.host_graph import TEXT, as_texts
from ..types import dtype_of
from .text_call import Shape, TextCall, broadcast_shape, mapped, same_shape, text_operator

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
