"""This module has products of matrices, also of groups of rows, Einstein sums, attention, and rotary position embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...tir.annotations import CACHED
from ...tir.expr import Expr, IntImm, Range, all_, cast, const, convert, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import rsqrt
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Requirement, Tensor
from .arguments import (
    BROADCAST,
    ELEMWISE,
    INJECTIVE,
    accumulator,
    broadcast_shape,
    check_tensor,
    constant,
    converted,
    element,
    require_same,
    shape_text,
)
from .reductions import softmax


def matmul(
    A: Tensor,
    B: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: str | None = None,
    name: str = "matmul",
) -> Tensor:
    """Returns the matrix product. A: (…, M, K), or (…, K, M) when transposed; B: (…, K, N), or (…, N, K).

    Leading dimensions broadcast as in NumPy. Integers of at most 16 bits add up in int32, which is the result's type;
    float16 and bfloat16 add up in float32. ``out_dtype`` asks for another result.

    >>> from tilewright import te
    >>> C = matmul(te.placeholder((4, 8), name="A"), te.placeholder((16, 8), name="B"), transpose_b=True)
    >>> [int(d) for d in C.shape]
    [4, 16]
    """
    for t, what in ((A, "the left operand"), (B, "the right operand")):
        check_tensor("matmul", t, None, what)
        if t.ndim < 2:
            raise ValueError(f"matmul: {what} has the shape {shape_text(t)}; at least 2 dimensions are expected")
    rows, depth_a = (A.shape[-1], A.shape[-2]) if transpose_a else (A.shape[-2], A.shape[-1])
    depth_b, columns = (B.shape[-1], B.shape[-2]) if transpose_b else (B.shape[-2], B.shape[-1])
    requires = require_same("matmul", "the length of the sum", depth_a, depth_b, A, B)
    batch, alike = broadcast_shape("matmul", A.shape[:-2], B.shape[:-2], (A, B))
    acc, out = accumulator("matmul", [A.dtype, B.dtype], out_dtype)
    k = reduce_axis(Range.from_extent(depth_a), name="k")

    def f(*i: Expr) -> Any:
        *lead, row, column = i
        left = (*lead, k.var, row) if transpose_a else (*lead, row, k.var)
        right = (*lead, column, k.var) if transpose_b else (*lead, k.var, column)
        a = element(A, left, (*batch, *A.shape[-2:]))
        b = element(B, right, (*batch, *B.shape[-2:]))
        return sum_(cast(acc, a) * cast(acc, b), axis=k)

    names = [*(["b"] if len(batch) == 1 else [f"b{n}" for n in range(len(batch))]), "i", "j"]
    total = compute(
        (*batch, rows, columns), f, _first(name, acc, out), "matmul", varargs_names=names, requires=[*requires, *alike]
    )
    return converted(total, out, name)


def _first(name: str, acc: str, out: str) -> str:
    return name if acc == out else f"{name}_acc"


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None, name: str = "dense"
) -> Tensor:
    """Returns a fully connected layer. data: (…, K); weight: (N, K), as TVM and PyTorch have it; bias: (N,). Result (…,
    N)."""
    check_tensor("dense", data, None, "the data")
    check_tensor("dense", weight, 2, "the weight")
    if not data.ndim:
        raise ValueError("dense: the data has no dimension")
    requires = require_same("dense", "the number of features", data.shape[-1], weight.shape[1], data, weight)
    if bias is not None:
        check_tensor("dense", bias, 1, "the bias")
        requires += require_same("dense", "the number of outputs", weight.shape[0], bias.shape[0], weight, bias)
    acc, out = accumulator("dense", [data.dtype, weight.dtype], out_dtype)
    k = reduce_axis(Range.from_extent(data.shape[-1]), name="k")
    lead: Sequence[Expr] = data.shape[:-1]

    def f(*i: Expr) -> Any:
        return sum_(cast(acc, data(*i[:-1], k.var)) * cast(acc, weight(i[-1], k.var)), axis=k)

    names = [*(["i"] if len(lead) == 1 else [f"i{n}" for n in range(len(lead))]), "j"]
    total = compute(
        (*lead, weight.shape[0]), f, _first(name, acc, out), "dense", varargs_names=names, requires=requires
    )
    if bias is not None:
        b = bias
        total = compute(total.shape, lambda *i: total(*i) + cast(acc, b(i[-1])), name=f"{name}_bias", tag=BROADCAST)
    return converted(total, out, name if bias is None else f"{name}_out")


def batch_matmul(
    A: Tensor,
    B: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: str | None = None,
    name: str = "batch_matmul",
) -> Tensor:
    """Returns a product per batch. A: (B, M, K), B: (B, K, N), or transposed; a batch of 1 broadcasts. Result (B, M,
    N).

    Note that TVM's ``topi.nn.batch_matmul`` transposes B unless told otherwise; here nothing is transposed by default.
    """
    check_tensor("batch_matmul", A, 3, "the left operand")
    check_tensor("batch_matmul", B, 3, "the right operand")
    return matmul(A, B, transpose_a, transpose_b, out_dtype, name)


def grouped_matmul(
    A: Tensor, B: Tensor, ends: Tensor, out_dtype: str | None = None, name: str = "grouped_matmul"
) -> Tensor:
    """Returns products of groups of rows with a matrix each. A: (M, K); B: (G, K, N); ends: (G,), where groups end.

    Group ``g`` has the rows from ``ends[g - 1]`` to ``ends[g]``, which do not decrease; rows behind the last group give 0. Experts of a
    network are such matrices, and each row reads that of its own expert alone.
    """
    op = "grouped_matmul"
    for t, what, rank in ((A, "the rows", 2), (B, "the matrices", 3), (ends, "the ends of the groups", 1)):
        check_tensor(op, t, rank, what)
    if not ends.dtype.is_int:
        raise TypeError(f"{op}: the ends of the groups are {ends.dtype}, not integers")
    requires = require_same(op, "the length of the sum", A.shape[1], B.shape[1], A, B)
    requires += require_same(op, "the number of groups", B.shape[0], ends.shape[0], B, ends)
    acc, out = accumulator(op, [A.dtype, B.dtype], out_dtype)
    if isinstance(B.shape[0], IntImm) and not B.shape[0].value:  # there is no matrix that could be read
        none: Tensor = compute((A.shape[0], B.shape[2]), lambda i, j: const(0, out), name, BROADCAST, requires=requires)
        return none
    g = reduce_axis(Range.from_extent(B.shape[0]), name="g")
    ended: Tensor = compute(
        A.shape[:1], lambda i: sum_(cast("int32", ends(g.var) <= i), axis=g), f"{name}_groups", requires=requires
    )
    tile = _rows_of_a_tile(A.shape[0], B.shape[0])
    product = _product_of_rows if tile == 1 else _product_of_tiles
    total = product(A, B, ends, ended, tile, acc, name)
    inside = compute(
        (A.shape[0], B.shape[2]),
        lambda i, j: select(ended(i) < cast("int32", B.shape[0]), total(i, j), const(0, acc)),
        _first(name, acc, out),
        BROADCAST if tile == 1 else INJECTIVE,
    )
    return converted(inside, out, name)


_MOST_ROWS = 8
"""Rows of a tile of :func:`grouped_matmul`: those of a tile of accumulators, which share what is loaded of a matrix."""


def _rows_of_a_tile(rows: Expr, groups: Expr) -> int:
    """Returns the power of two from the average rows of a group on, at most :data:`_MOST_ROWS`.

    That it is where sizes are symbolic.
    """
    tile = 1
    while tile < _MOST_ROWS and not (
        isinstance(rows, IntImm) and isinstance(groups, IntImm) and rows.value <= tile * groups.value
    ):
        tile *= 2
    return tile


def _product_of_rows(A: Tensor, B: Tensor, ends: Tensor, ended: Tensor, tile: int, acc: str, name: str) -> Any:
    """Returns the elements of the products, each row's with the matrix of its own group."""
    k = reduce_axis(Range.from_extent(A.shape[1]), name="k")

    def product(i: Expr, j: Expr) -> Any:
        group = max_(min_(ended(i), cast("int32", B.shape[0] - 1)), 0)
        return sum_(cast(acc, A(i, k.var)) * cast(acc, B(group, k.var, j)), axis=k)

    return compute((A.shape[0], B.shape[2]), product, f"{name}_all", varargs_names=["i", "j"])


def _product_of_tiles(A: Tensor, B: Tensor, ends: Tensor, ended: Tensor, tile: int, acc: str, name: str) -> Any:
    """Returns the elements of the products, which are computed in tiles of rows of one group each.

    Of M rows in G groups there are at most (M + G (tile - 1)) / tile tiles, and at most M, as each has a row. The others compute what
    nothing reads.
    """
    rows, groups = cast("int32", A.shape[0]), cast("int32", B.shape[0])
    count = min_(A.shape[0], (A.shape[0] + B.shape[0] * (tile - 1)) // tile)
    k = reduce_axis(Range.from_extent(A.shape[1]), name="k")
    g = [reduce_axis(Range.from_extent(B.shape[0]), name="g") for _ in range(2)]

    def end(group: Expr) -> Expr:
        return max_(min_(cast("int32", ends(group)), rows), 0)

    def begin(group: Expr) -> Expr:
        return if_then_else(group > 0, end(max_(group - 1, 0)), 0)

    def tiles(group: Expr) -> Expr:
        return (max_(end(group) - begin(group), 0) + (tile - 1)) // tile

    first: Tensor = compute(
        B.shape[:1],
        lambda n: sum_(select(g[0].var < n, tiles(g[0].var), const(0, "int32")), axis=g[0]),
        f"{name}_first",
    )
    reached = compute((count,), lambda p: sum_(cast("int32", first(g[1].var) <= p), axis=g[1]), f"{name}_reached")
    own = compute((count,), lambda p: max_(min_(reached(p), groups) - 1, 0), f"{name}_own")
    start = compute((count,), lambda p: begin(own(p)) + (cast("int32", p) - first(own(p))) * tile, f"{name}_start")
    gathered = compute(
        (count, tile, A.shape[1]), lambda p, r, c: A(max_(min_(start(p) + r, rows - 1), 0), c), f"{name}_rows"
    )
    total = compute(
        (count, tile, B.shape[2]),
        lambda p, r, j: sum_(cast(acc, gathered(p, r, k.var)) * cast(acc, B(own(p), k.var, j)), axis=k),
        f"{name}_all",
    )

    def place(i: Expr) -> Expr:
        group = max_(min_(ended(i), groups - 1), 0)
        return max_(min_(first(group) * tile + cast("int32", i) - begin(group), cast("int32", count) * tile - 1), 0)

    at = compute(A.shape[:1], place, f"{name}_place")
    return lambda i, j: total(at(i) // tile, at(i) % tile, j)


def einsum(equation: str, *tensors: Tensor, name: str = "T_einsum") -> Tensor:
    """Returns the sum of products that ``equation`` names, as ``numpy.einsum``; ``...`` stands for leading dimensions.

    Floats of fewer than 32 bits are multiplied and added up in float32; the result has their type.

    >>> from tilewright import te
    >>> a, b = te.placeholder((2, 3, 4)), te.placeholder((4, 5))
    >>> [int(d) for d in einsum("...k,kn->...n", a, b).shape]
    [2, 3, 5]
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ValueError(f"einsum: {len(terms)} terms in {equation!r} for {len(tensors)} tensors")
    rest = max((check_tensor("einsum", t).ndim - len(term.replace("...", "")) for t, term in zip(tensors, terms, strict=True) if "..." in term), default=0)  # fmt: skip
    dots = tuple(f"...{n}" for n in range(rest))
    labels = [_labels(term, t, dots, equation) for term, t in zip(terms, tensors, strict=True)]
    extents: dict[str, Expr] = {}
    for t, mine in zip(tensors, labels, strict=True):
        for label, e in zip(mine, t.shape, strict=True):
            known = extents.get(label)
            if known is None or (isinstance(known, IntImm) and known.value == 1):
                extents[label] = e
            elif isinstance(known, IntImm) and isinstance(e, IntImm) and e.value not in (1, known.value):
                raise ValueError(f"einsum: {label} is {known.value} and {e.value} in {equation!r}")
    if arrow:
        result = _split(right, dots)
    else:
        flat = [label for mine in labels for label in mine]
        result = [*dots, *sorted(label for label in set(flat) - set(dots) if flat.count(label) == 1)]
    unknown = [label for label in result if label not in extents]
    if unknown:
        raise ValueError(f"einsum: {unknown[0]} of the result is in no term of {equation!r}")
    summed = [label for label in extents if label not in result]
    axes = {label: reduce_axis(Range.from_extent(extents[label]), name=f"k{n}") for n, label in enumerate(summed)}
    types = {t.dtype for t in tensors}
    (narrow,) = types if len(types) == 1 else (None,)
    widened = bool(axes) and narrow is not None and narrow.is_float and narrow.bits < 32
    out = f"{name}_acc" if widened else name

    def f(*i: Expr) -> Any:
        where: dict[str, Any] = {**dict(zip(result, i, strict=True)), **{k: axis.var for k, axis in axes.items()}}
        total: Any = None
        for t, mine in zip(tensors, labels, strict=True):
            index = [
                where[label] if not (isinstance(e, IntImm) and e.value == 1) else 0
                for label, e in zip(mine, t.shape, strict=True)
            ]
            factor = cast("float32", t(*index)) if widened else t(*index)
            total = factor if total is None else total * factor
        return sum_(total, axis=list(axes.values())) if axes else total

    total: Tensor = compute([extents[label] for label in result], f, name=out, tag="einsum")
    return converted(total, str(narrow), name) if widened else total


def _labels(term: str, t: Tensor, dots: tuple[str, ...], equation: str) -> list[str]:
    if "..." in term:
        mine = _split(term, dots[len(dots) - (t.ndim - len(term) + 3) :] if t.ndim > len(term) - 3 else ())
    else:
        mine = list(term)
    if len(mine) != t.ndim:
        raise ValueError(f"einsum: {term!r} in {equation!r} does not name the dimensions of {shape_text(t)}")
    return mine


def _split(term: str, dots: tuple[str, ...]) -> list[str]:
    before, _, after = term.partition("...")
    return [*before, *dots, *after] if "..." in term else list(term)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    safe: bool = False,
    name: str = "attention",
    *,
    window: int | None = None,
) -> Tensor:
    """Returns softmax(query · keyᵀ · scale + mask) · value (Vaswani et al., 2017).

    query: (…, S, D), key: (…, T, D), value: (…, T, E); leading dimensions (batch, heads) are equal. Result (…, S, E).
    ``scale`` is 1/√D unless given. ``mask`` broadcasts to (…, S, T): added when it is a float, false means "not
    allowed" when it is bool. ``causal``: position s sees t ≤ s + T - S only. ``window``: it sees the positions
    less than ``window`` away from s + T - S only. A row whose
    scores are all -inf, as one that may see nothing, is NaN; with ``safe`` it is 0.
    """
    shape, requires = _check(query, key, value, mask)
    lead, rows, columns = shape[:-2], shape[-2], shape[-1]
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ValueError(f"attention: the window is {window!r}, not a positive integer")
    wide = query.dtype if query.dtype.bits >= 32 else "float32"
    k, m = reduce_axis(Range.from_extent(query.shape[-1]), "k"), reduce_axis(Range.from_extent(columns), "k")
    letters = ["b", "h"] if len(lead) == 2 else [f"b{n}" for n in range(len(lead))]

    def product(*i: Expr) -> Any:
        return sum_(cast(wide, query(*i[:-1], k.var)) * cast(wide, key(*i[:-2], i[-1], k.var)), axis=k)

    scores = compute(shape, product, f"{name}_qk", varargs_names=[*letters, "i", "j"], requires=requires)
    factor: Expr
    if scale is not None:
        factor = const(scale, wide)
    elif isinstance(query.shape[-1], IntImm):
        factor = const(1.0 / math.sqrt(query.shape[-1].value), wide)
    else:
        factor = rsqrt(cast(wide, query.shape[-1]))

    def scaled(*i: Expr) -> Any:
        e = scores(*i) * factor
        never = const(float("-inf"), wide)
        if mask is not None:
            bias = element(mask, i, shape)
            e = if_then_else(bias, e, never) if bias.dtype == "bool" else e + cast(wide, bias)
        own = i[-2] + (columns - rows)
        sees = [i[-1] <= own] if causal else []
        if window is not None:
            sees += [own - i[-1] < window, *([] if causal else [i[-1] - own < window])]
        return if_then_else(all_(*sees), e, never) if sees else e

    weights = softmax(compute(shape, scaled, f"{name}_scores", tag=ELEMWISE), safe=safe, name=f"{name}_softmax")

    def weighted(*i: Expr) -> Any:
        return sum_(weights(*i[:-1], m.var) * cast(wide, value(*i[:-2], m.var, i[-1])), axis=m)

    result = (*lead, rows, value.shape[-1])
    names = [*letters, "i", "e"]
    if query.dtype == wide:
        out: Tensor = compute(result, weighted, name, varargs_names=names)
        return out
    total = compute(result, weighted, f"{name}_acc", varargs_names=names)
    narrow: Tensor = compute(result, lambda *i: cast(query.dtype, total(*i)), name, ELEMWISE)
    return narrow


def attention_cached(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    length: Any,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    name: str = "attention_cached",
) -> Tensor:
    """Returns attention of some queries over the filled part of a cache of keys and values.

    query: (H, S, D); key: (G, B, D) and value: (G, B, E), of floats or int8, for B positions at most, of which the first
    ``length`` are filled. Heads share keys in groups of H / G (Ainslie et al., 2023). The work grows with ``length``, which
    is a number, a size (:func:`tilewright.te.var`), or a vector that is as long and is not read. Result (H, S, E).

    The queries are the last S filled positions: with ``causal``, query s sees the positions t ≤ s + length - S.
    ``scale`` is 1/√D unless given. A cache of int8 has floats as scales, (G, B): position t of group g stands for
    ``key_scales[g, t] * key[g, t]``.
    """
    op = "attention_cached"
    for t, what in ((query, "the query"), (key, "the key"), (value, "the value")):
        check_tensor(op, t, 3, what)
    if not query.dtype.is_float:
        raise TypeError(f"{op}: the query is {query.dtype}, not a float")
    (heads, rows, depth), (groups, bound, _) = query.shape, key.shape
    count, shared = constant(op, "the number of heads", heads), constant(op, "the number of groups", groups)
    if not shared or count % shared:
        raise ValueError(f"{op}: {count} heads do not share the keys of {shared} in groups of equal size")
    many = count // shared
    end = length.shape[0] if isinstance(_check_length(op, length), Tensor) else convert(length)
    requires = [
        *require_same(op, "the number of features", depth, key.shape[2], query, key),
        *require_same(op, "the number of groups", groups, value.shape[0], key, value),
        *require_same(op, "the number of positions", bound, value.shape[1], key, value),
        *_require_at_most(op, "the length", end, "the positions of the cache", bound),
    ]
    if causal:
        requires += _require_at_most(op, "the number of queries", rows, "the length", end)
    for t, scales, what in ((key, key_scales, "key"), (value, value_scales, "value")):
        if t.dtype != "int8" and not t.dtype.is_float:
            raise TypeError(f"{op}: the {what} is {t.dtype}, not a float or int8")
        if (scales is not None) != (t.dtype == "int8"):
            raise ValueError(f"{op}: a {what} of int8 comes with {what}_scales, others without; this one is {t.dtype}")
        if scales is not None:
            check_tensor(op, scales, 2, f"{what}_scales")
            for a, b in zip(scales.shape, t.shape, strict=False):
                requires += require_same(op, f"a size of {what}_scales", a, b, scales, t)
    wide = query.dtype if query.dtype.bits >= 32 else "float32"
    factor = rsqrt(cast(wide, depth)) if not isinstance(depth, IntImm) else const(1 / math.sqrt(depth.value), wide)
    factor = factor if scale is None else const(scale, wide)
    k, m = reduce_axis(Range.from_extent(depth), "k"), reduce_axis(Range.from_extent(end), "m")

    def product(g: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        return sum_(cast(wide, query(g * many + h, i, k.var)) * cast(wide, key(g, j, k.var)), axis=k)

    shape = (groups, many, rows, end)
    scores: Tensor = compute(shape, product, f"{name}_qk", attrs={CACHED: "scores"}, requires=requires)

    def scaled(g: Expr, h: Expr, i: Expr, j: Expr) -> Any:
        e = scores(g, h, i, j) * factor
        e = e if key_scales is None else e * cast(wide, key_scales(g, j))
        sees_all = not causal or (isinstance(rows, IntImm) and rows.value == 1)
        return e if sees_all else if_then_else(j <= i + (end - rows), e, const(float("-inf"), wide))

    weights = softmax(compute(shape, scaled, f"{name}_scores", tag=ELEMWISE), name=f"{name}_softmax")

    def weighted(g: Expr, h: Expr, i: Expr, e: Expr) -> Any:
        weight = weights(g, h, i, m.var)
        weight = weight if value_scales is None else weight * cast(wide, value_scales(g, m.var))
        return sum_(weight * cast(wide, value(g, m.var, e)), axis=m)

    total: Tensor = compute((groups, many, rows, value.shape[2]), weighted, f"{name}_grouped", attrs={CACHED: "result"})
    out: Tensor = compute(
        (heads, rows, value.shape[2]),
        lambda h, i, e: cast(query.dtype, total(h // many, h % many, i, e)),
        name,
        INJECTIVE,
    )
    return out


def _check_length(op: str, length: Any) -> Any:
    """Returns ``length``, a number, an expression of integers, or a vector; TypeError or ValueError when it is none."""
    if isinstance(length, Tensor):
        return check_tensor(op, length, 1, "the length")
    if isinstance(length, bool) or not (isinstance(length, int) or (isinstance(length, Expr) and length.dtype.is_int)):
        raise TypeError(f"{op}: the length is {length!r}, not a number, a size, or a vector of that many elements")
    return length


def _require_at_most(op: str, what: str, a: Any, most: str, b: Any) -> list[Requirement]:
    """Returns that a ≤ b as a condition for the call, or nothing where it holds for sure. ValueError when it does not."""
    a, b = convert(a), convert(b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        if a.value > b.value:
            raise ValueError(f"{op}: {what}, {a}, is larger than {most}, {b}")
        return []
    return [(a <= b, f"{op}: {what}, {a}, has to be at most {most}, {b}")]


def _check(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[tuple[Expr, ...], list[Requirement]]:
    """Returns the shape of the scores, (…, S, T), and what has to hold of the sizes. TypeError or ValueError when the
    arguments do not fit together."""
    op = "attention"
    requires: list[Requirement] = []
    for t, what in ((query, "the query"), (key, "the key"), (value, "the value")):
        check_tensor(op, t, None, what)
        if t.ndim < 2 or t.ndim != query.ndim:
            raise ValueError(
                f"{op}: {what} has the shape {shape_text(t)}, the query {shape_text(query)}; "
                "both need the same number of dimensions, at least 2"
            )
        if not t.dtype.is_float:
            raise TypeError(f"{op}: {what} is {t.dtype}, not a float")
        for a, b in zip(query.shape[:-2], t.shape[:-2], strict=True):
            requires += require_same(op, "a leading dimension", a, b, query, t)
    requires += require_same(op, "the number of features", query.shape[-1], key.shape[-1], query, key)
    requires += require_same(op, "the number of positions", key.shape[-2], value.shape[-2], key, value)
    shape = (*query.shape[:-1], key.shape[-2])
    if mask is not None:
        check_tensor(op, mask, None, "the mask")
        common, more = broadcast_shape(op, mask.shape, shape, (mask, query))
        requires += more
        if len(common) != len(shape):
            raise ValueError(f"{op}: the mask {shape_text(mask)} does not broadcast to {shape_text(shape)}")
        for a, b in zip(common, shape, strict=True):
            requires += require_same(op, "the mask's shape", a, b, mask, query)
    return shape, requires


def rotary(x: Tensor, cos: Tensor, sin: Tensor, name: str = "T_rotary") -> Tensor:
    """Returns x with each pair of elements rotated along the last dimension (Su et al., 2021). That is x · cos +
    (-upper half of x, lower half of x) · sin.

    cos and sin broadcast to the shape of ``x``: (…, S, D), D even, one angle for each position and pair of elements.
    """
    op = "rotary"
    for t, what in ((x, "the data"), (cos, "cos"), (sin, "sin")):
        check_tensor(op, t, None, what)
    size = constant(op, "the number of features", x.shape[-1])
    if size % 2:
        raise ValueError(f"{op}: {size} features; their number has to be even")
    requires: list[Requirement] = []
    for t in (cos, sin):
        common, more = broadcast_shape(op, t.shape, x.shape, (t, x))
        requires += more
        if len(common) != x.ndim:
            raise ValueError(f"{op}: cos and sin have more dimensions than the data")
        for a, b in zip(common, x.shape, strict=True):
            requires += require_same(op, "the shape of an angle", a, b, t, x)
    half = size // 2

    def f(*i: Expr) -> Expr:
        d = i[-1]
        turned = if_then_else(d < half, -x(*i[:-1], d + half), x(*i[:-1], d - half))
        return x(*i) * element(cos, i, x.shape) + turned * element(sin, i, x.shape)

    out: Tensor = compute(x.shape, f, name=name, tag=INJECTIVE, requires=requires)
    return out
