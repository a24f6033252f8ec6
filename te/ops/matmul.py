"""This module has products of matrices, and Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, IntImm, Range, cast
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.broadcast import broadcast_shape, element
from .blocks.operator_arguments import BROADCAST, accumulator, check_tensor, converted, require_same, shape_text


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


def einsum(equation: str, *tensors: Tensor, name: str = "T_einsum") -> Tensor:
    """Returns the sum of products that ``equation`` names, as ``numpy.einsum``; ``...`` stands for leading dimensions.

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

    def f(*i: Expr) -> Any:
        where: dict[str, Any] = {**dict(zip(result, i, strict=True)), **{k: axis.var for k, axis in axes.items()}}
        total: Any = None
        for t, mine in zip(tensors, labels, strict=True):
            index = [
                where[label] if not (isinstance(e, IntImm) and e.value == 1) else 0
                for label, e in zip(mine, t.shape, strict=True)
            ]
            total = t(*index) if total is None else total * t(*index)
        return sum_(total, axis=list(axes.values())) if axes else total

    out: Tensor = compute([extents[label] for label in result], f, name=name, tag="einsum")
    return out


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
