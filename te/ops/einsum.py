"""This module has Einstein sums."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, IntImm, Range
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import check_tensor, shape_text


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
