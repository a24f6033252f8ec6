"""This module has softmax and its logarithm, in the stages of TVM's topi, which schedule rules recognize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....tir.expr import Expr, Range, cast, const
from ....tir.expr.intrinsics.float_operations import exp, log
from ...compute import compute
from ...reduce import max_, reduce_axis, sum_
from ...tensor import Tensor
from .operator_arguments import check_tensor, normalize_axis


class _Rows:
    """The parts of both functions: indices with and without the axis, and the row's maximum and sum."""

    def __init__(self, op: str, x: Tensor, axis: int) -> None:
        check_tensor(op, x)
        if not x.dtype.is_float:
            raise TypeError(f"{op}: the input is {x.dtype}; convert it to a float with te.ops.cast")
        if x.ndim == 0:
            raise ValueError(f"{op}: the input has no dimension")
        self.x, self.axis = x, normalize_axis(op, axis, x.ndim)
        self.wide = x.dtype if x.dtype.bits >= 32 else "float32"
        self.rows = [e for d, e in enumerate(x.shape) if d != self.axis]

    def row(self, i: Sequence[Expr]) -> list[Expr]:
        """Returns the index of the row that holds ``i``."""
        return [e for d, e in enumerate(i) if d != self.axis]

    def along(self, row: Sequence[Expr], k: Any) -> list[Any]:
        """Returns the index of the ``k``-th element of a row."""
        return [*row[: self.axis], k, *row[self.axis :]]

    def element(self, i: Sequence[Any]) -> Expr:
        """Returns an element, at least float32."""
        return cast(self.wide, self.x(*i))

    def highest(self, m: Any, name: str) -> Tensor:
        """Returns the maximum of each row, by a reduction over ``m``."""
        stage: Tensor = compute(
            self.rows, lambda *r: max_(self.element(self.along(r, m.var)), axis=m), name=f"{name}_maxelem"
        )
        return stage

    def axis_of(self) -> Any:
        return reduce_axis(Range.from_extent(self.x.shape[self.axis]), name="k")


def softmax(x: Tensor, axis: int = -1, name: str = "T_softmax") -> Tensor:
    """Returns exp(x - max x) / Σ exp(x - max x) along ``axis``.

    Stages ``T_softmax_maxelem``, ``T_softmax_exp``, ``T_softmax_expsum``, ``T_softmax_scale`` (one division per row in
    place of one per element; the sum is at least 1, so this costs one rounding), ``T_softmax_norm``. Narrow floats are
    computed in float32.
    """
    rows = _Rows("softmax", x, axis)
    k, m = rows.axis_of(), rows.axis_of()
    highest = rows.highest(m, name)
    exps = compute(x.shape, lambda *i: exp(rows.element(i) - highest(*rows.row(i))), name=f"{name}_exp")
    total = compute(rows.rows, lambda *r: sum_(exps(*rows.along(r, k.var)), axis=k), name=f"{name}_expsum")
    scale = compute(rows.rows, lambda *r: const(1.0, rows.wide) / total(*r), name=f"{name}_scale")
    out: Tensor = compute(
        x.shape,
        lambda *i: cast(x.dtype, exps(*i) * scale(*rows.row(i))),
        name=f"{name}_norm",
        tag="softmax_output",
        attrs={"axis": rows.axis},
    )
    return out


def log_softmax(x: Tensor, axis: int = -1, name: str = "T_log_softmax") -> Tensor:
    """Returns x - max x - log Σ exp(x - max x) along ``axis``."""
    rows = _Rows("log_softmax", x, axis)
    k, m = rows.axis_of(), rows.axis_of()
    highest = rows.highest(m, name)
    total = compute(
        rows.rows,
        lambda *r: sum_(exp(rows.element(rows.along(r, k.var)) - highest(*r)), axis=k),
        name=f"{name}_expsum",
    )
    logs = compute(rows.rows, lambda *r: log(total(*r)), name=f"{name}_log")
    out: Tensor = compute(
        x.shape,
        lambda *i: cast(x.dtype, rows.element(i) - highest(*rows.row(i)) - logs(*rows.row(i))),
        name=name,
        tag="softmax_output",
        attrs={"axis": rows.axis},
    )
    return out
