"""This module converts the elements of a tensor, and has the rectifier whose slopes are data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, const, select
from ...tir.expr import cast as converted
from ...tir.expr.intrinsics.number_operations import reinterpret as as_bits
from ..compute import compute
from ..tensor import Tensor
from .arguments import BROADCAST, ELEMWISE, check_tensor, normalize_axis, require_same


def _elementwise(x: Tensor, f: Callable[[Expr], Any], name: str) -> Tensor:
    """Returns a stage ``name`` whose elements are ``f`` of those of ``x``."""
    check_tensor(name, x)
    out: Tensor = compute(x.shape, lambda *i: f(x(*i)), name=name, tag=ELEMWISE)
    return out


def cast(x: Tensor, dtype: str, name: str = "T_cast") -> Tensor:
    """Returns the elements converted to ``dtype``."""
    return _elementwise(x, lambda e: converted(dtype, e), name)


def reinterpret(x: Tensor, dtype: str, name: str = "T_reinterpret") -> Tensor:
    """Returns the bits of the elements as another data type of the same width."""
    return _elementwise(x, lambda e: e if e.dtype == dtype else as_bits(dtype, e), name)


def prelu(x: Tensor, slope: Tensor, axis: int = 1, name: str = "T_prelu") -> Tensor:
    """Returns ``x`` where positive, else ``slope * x`` with one slope per index along ``axis``."""
    check_tensor("prelu", x)
    check_tensor("prelu", slope, 1, "the slope")
    axis = normalize_axis("prelu", axis, x.ndim)
    requires = require_same("prelu", f"axis {axis}", x.shape[axis], slope.shape[0], x, slope)
    out: Tensor = compute(
        x.shape,
        lambda *i: select(x(*i) > const(0, x.dtype), x(*i), x(*i) * slope(i[axis])),
        name=name,
        tag=BROADCAST,
        requires=requires,
    )
    return out
