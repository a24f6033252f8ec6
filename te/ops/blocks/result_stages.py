"""This module makes the last stages of sums of products: the bias, and the conversion to the result's data type."""

from __future__ import annotations

from ....tir.expr import cast
from ...compute import compute
from ...tensor import Tensor
from .operator_arguments import BROADCAST, ELEMWISE, check_tensor, require_same


def converted(total: Tensor, out_dtype: str, name: str) -> Tensor:
    """Returns ``total`` when it has the data type already, else a stage that converts it."""
    if total.dtype == out_dtype:
        return total
    out: Tensor = compute(total.shape, lambda *i: cast(out_dtype, total(*i)), name=name, tag=ELEMWISE)
    return out


def with_bias(op: str, total: Tensor, bias: Tensor | None, channel: int, acc: str, out: str, name: str) -> Tensor:
    """Returns ``total`` plus one number per channel, converted to ``out``."""
    if bias is None:
        return converted(total, out, name)
    b = check_tensor(op, bias, 1, "the bias")
    requires = require_same(op, "the number of output channels", total.shape[channel], b.shape[0], total, b)
    shifted: Tensor = compute(
        total.shape,
        lambda *i: total(*i) + cast(acc, b(i[channel])),
        name=f"{name}_bias",
        tag=BROADCAST,
        requires=requires,
    )
    return converted(shifted, out, f"{name}_out")
