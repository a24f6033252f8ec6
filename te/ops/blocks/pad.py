"""This module pads tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....tir.expr import DType, Expr, IntImm, Not, all_, const, convert, is_const_int, max_, min_, select
from ....tir.expr.intrinsics.control_and_memory import if_then_else
from ...compute import compute
from ...operation import Requirement
from ...tensor import Tensor
from .operator_arguments import INJECTIVE, check_tensor, shape_text, sizes_analyzer


def pad(
    x: Tensor,
    pad_before: Sequence[Any],
    pad_after: Sequence[Any] | None = None,
    value: Any = 0,
    mode: str = "constant",
    name: str = "pad_temp",
) -> Tensor:
    """Returns ``x`` with elements added at both ends of each dimension (``pad_after`` defaults to ``pad_before``).

    ``mode``: ``constant`` (they are ``value``), ``edge`` (the nearest element), ``reflect`` (mirrored, the edge not
    repeated).
    """
    check_tensor("pad", x)
    before = [convert(p) for p in pad_before]
    after = before if pad_after is None else [convert(p) for p in pad_after]
    if len(before) != x.ndim or len(after) != x.ndim:
        raise ValueError(f"pad: {len(before)} and {len(after)} entries for the {x.ndim} dimensions of {shape_text(x)}")
    for p in (*before, *after):
        if hasattr(p, "value") and p.value < 0:
            raise ValueError(f"pad: a negative padding, {p}")
    if mode not in ("constant", "edge", "reflect"):
        raise ValueError(f"pad: mode={mode!r}; there are 'constant', 'edge' and 'reflect'")
    requires: list[Requirement] = []
    if mode == "edge":
        for d, (lo, hi, extent) in enumerate(zip(before, after, x.shape, strict=True)):
            problem = f"pad: dimension {d} of {shape_text(x)} has no elements to repeat"
            if is_const_int(extent, 0) and not (is_const_int(lo, 0) and is_const_int(hi, 0)):
                raise ValueError(problem)
            if not isinstance(extent, IntImm) and not (is_const_int(lo, 0) and is_const_int(hi, 0)):
                requires.append((extent > 0, problem))
    if mode == "reflect":
        for d, (lo, hi, extent) in enumerate(zip(before, after, x.shape, strict=True)):
            if is_const_int(lo, 0) and is_const_int(hi, 0):
                continue
            fits, sizes = all_(lo < extent, hi < extent), sizes_analyzer(lo, hi, extent)
            problem = f"pad: dimension {d} of {shape_text(x)} is too short to reflect {lo} and {hi} elements"
            if sizes.can_prove(Not(fits)):
                raise ValueError(problem)
            if not sizes.can_prove(fits):
                requires.append((fits, problem))
    shape = [lo + extent + hi for lo, extent, hi in zip(before, x.shape, after, strict=True)]
    padded = [not (is_const_int(lo, 0) and is_const_int(hi, 0)) for lo, hi in zip(before, after, strict=True)]

    def f(*i: Expr) -> Any:
        index, inside = [], []
        for e, lo, hi, extent, here in zip(i, before, after, x.shape, padded, strict=True):
            at = e - lo if here else e
            if here and mode == "edge":
                at = min_(max_(at, 0), extent - 1)
            elif here and mode == "reflect":
                at = select(at < 0, 0 - at, select(at >= extent, 2 * (extent - 1) - at, at))
            elif here:
                if not is_const_int(lo, 0):
                    inside.append(e >= lo)
                if not is_const_int(hi, 0):
                    inside.append(e < extent + lo)
            index.append(at)
        if not inside:
            return x(*index)
        return if_then_else(all_(*inside), x(*index), _constant(value, x.dtype))

    out: Tensor = compute(shape, f, name=name, tag=INJECTIVE + ",pad", requires=requires)
    return out


def _constant(value: Any, dtype: str) -> Expr:
    if isinstance(value, (int, float)):
        return const(value if DType(dtype).is_float else int(value), dtype)
    return convert(value).astype(dtype)
