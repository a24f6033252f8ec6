"""TfIdfVectorizer counts runs of words, which are texts or numbers, and weighs the counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..call import LARGEST_TABLE
from .text_call import Shape, TextCall, text_operator


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
