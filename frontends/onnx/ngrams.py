"""The converter of ``TfIdfVectorizer``: how often each n-gram of a pool occurs in rows of tokens, which are numbers.

Every place of a row and every n-gram of the pool are compared, for each length of n-grams and each distance between tokens;
that comparison and the sum over the places are one kernel, which has no table of what it compares.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import OUTSIDE, OnnxCall, converter


def _pools(c: OnnxCall) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Returns all n-grams in the order of the pool, by their lengths."""
    pool, starts = c.attr("pool_int64s"), [*c.attr("ngram_counts")]
    if pool is None:
        raise c.error(f"its pool is of strings; {OUTSIDE}")
    ends = [*starts[1:], len(pool)]
    out = []
    for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            raise c.error(f"its {n}-grams are the numbers {start} to {end} of a pool of {len(pool)}")
        grams = [tuple(pool[k : k + n]) for k in range(start, end, n)]
        if len(set(grams)) < len(grams):
            raise c.error(f"a {n}-gram is twice in the pool")
        out.append((n, grams))
    return out


@converter("TfIdfVectorizer")
def tf_idf(c: OnnxCall) -> Value:
    """Returns the counts of each column's n-grams.

    The mode TF is the counts alone, IDF says whether there are any, and TFIDF is the counts; the last two are times the
    n-grams' weights.
    """
    given, mode, columns = c.input(0), c.attr("mode"), np.asarray(c.attr("ngram_indexes"), np.int64)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise c.error(f"the mode {mode} is unknown; there are TF, IDF and TFIDF")
    if given.ndim > 2 or given.dtype not in ("int32", "int64"):
        raise c.error(f"tokens are {given.type_text}, and not a vector or a matrix of int32 or int64")
    pools, weights = _pools(c), c.attr("weights") if mode != "TF" else None
    known = sum(len(grams) for _, grams in pools)
    if known != len(columns) or columns.min(initial=0) < 0:
        raise c.error(f"there are {len(columns)} columns, the least {columns.min(initial=0)}, for {known} n-grams")
    if weights and len(weights) != known:
        raise c.error(f"there are {len(weights)} weights for {known} n-grams")
    if weights and mode == "IDF" and len(np.unique(columns)) < known:
        raise c.error("several n-grams, whose weights may differ, have one column")
    width = int(columns.max(initial=-1)) + 1
    length = given.shape[-1] if given.ndim else 1
    x = c.cast(c.op("reshape", given, shape=(given.shape[0] if given.ndim == 2 else 1, length)), "int64")
    counted, chosen, first = [], list[int](), 0
    for n, grams in pools:
        if grams and c.attr("min_gram_length") <= n <= c.attr("max_gram_length"):
            table, apart = np.array(grams, np.int64), range(1, int(c.attr("max_skip_count")) + 2 if n > 1 else 2)
            counted.append(reduce(lambda a, b: c.op("add", a, b), [_occurrences(c, x, table, d) for d in apart]))
            chosen += range(first, first + len(grams))
        first += len(grams)
    out = c.op("broadcast_to", c.constant(0, "float32"), shape=(x.shape[0], width))
    if counted:
        counts = c.cast(c.op("concatenate", *counted, axis=1) if len(counted) > 1 else counted[0], "float32")
        counts = c.op("minimum", counts, c.like(1, counts)) if mode == "IDF" else counts
        if weights:
            counts = c.op("multiply", counts, c.constant(np.array(weights, np.float32)[chosen], "float32"))
        places = c.op("broadcast_to", c.constant(columns[chosen], "int64"), shape=counts.shape)
        how = "max" if mode == "IDF" and not weights else "add"
        out = c.op("scatter_elements", out, places, counts, axis=1, reduction=how)
    return out if given.ndim == 2 else c.op("reshape", out, shape=(width,))


def _occurrences(c: OnnxCall, x: Value, grams: np.ndarray[Any, Any], distance: int) -> Value:
    """Returns how often each n-gram occurs in each row, with its tokens ``distance`` apart: int64, (rows, n-grams)."""
    rows, length = x.shape
    count, n = grams.shape
    if length == 0:
        return c.op("broadcast_to", c.constant(0, "int64"), shape=(rows, count))
    last = c.op("subtract", c.size(length, "int64"), c.constant(1, "int64"))
    begin, holds = c.places(length), None
    for k in range(n):
        at = c.op("add", begin, c.constant(k * distance, "int64"))
        token = c.op("take", x, c.op("minimum", at, last), axis=1)
        one = c.op("equal", c.op("expand_dims", token, axis=2), c.constant(grams[:, k], "int64"))
        holds = one if holds is None else c.op("logical_and", holds, one)
    inside = c.op("less", c.op("add", begin, c.constant((n - 1) * distance, "int64")), c.size(length, "int64"))
    assert holds is not None
    holds = c.op("logical_and", holds, c.op("expand_dims", inside, axis=1))
    return c.op("sum", c.cast(holds, "int64"), axis=1)
