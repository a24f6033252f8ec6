"""This module describes the windows of convolutions and pooling, their layout, padding and output sizes, and pads tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....tir.expr import DType, Expr, IntImm, Not, all_, const, convert, is_const_int, max_, min_, select
from ....tir.expr.intrinsics.control_and_memory import if_then_else
from ...compute import compute
from ...operation import Requirement
from ...tensor import Tensor
from .operator_arguments import INJECTIVE, check_tensor, constant, per_dimension, shape_text, sizes_analyzer

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""The letters of the spatial dimensions, by their number."""

AXES = {"N": "nn", "C": "cc", "O": "ff", "D": "zz", "H": "yy", "W": "xx"}
"""The names of output axes in TVM's topi, by the letter of the dimension."""


def check_layout(op: str, layout: str, n: int) -> tuple[int, int]:
    """Returns where the channels and the first spatial dimension are: N, C, spatial… or N, spatial…, C."""
    spatial = SPATIAL[n]
    if layout == "NC" + spatial:
        return 1, 2
    if layout == "N" + spatial + "C":
        return n + 1, 1
    raise ValueError(f"{op}: layout={layout!r}; there are {'NC' + spatial!r} and {'N' + spatial + 'C'!r}")


def arranged(batch: Any, channels: Any, spatial: Sequence[Any], channel: int) -> list[Any]:
    """Returns the batch, the channels and the spatial dimensions in the order of the layout."""
    return [batch, channels, *spatial] if channel == 1 else [batch, *spatial, channels]


@dataclass(frozen=True)
class Windows:
    """Describes windows over the spatial dimensions of ``data``; one entry per dimension in each tuple."""

    op: str
    data: Tensor
    channel: int
    first: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @staticmethod
    def of(op: str, data: Tensor, layout: str, sizes: Any, stride: Any, padding: Any, dilation: Any) -> Windows:
        """Returns the windows that an operator's arguments ask for; ``stride=None`` means the windows' size."""
        n = data.ndim - 2
        channel, first = check_layout(op, layout, n)
        kernel = per_dimension(op, "kernel", sizes, n)
        strides = kernel if stride is None else per_dimension(op, "stride", stride, n)
        dilations = per_dimension(op, "dilation", dilation, n)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        before, after = window_padding(op, padding, reach, strides, data.shape[first : first + n])
        return Windows(op, data, channel, first, kernel, strides, dilations, tuple(before), tuple(after))

    @property
    def reach(self) -> list[int]:
        """Returns the extent of a window, dilation included."""
        return [(k - 1) * d + 1 for k, d in zip(self.sizes, self.dilations, strict=True)]

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Returns the spatial extents of the data."""
        return self.data.shape[self.first : self.first + len(self.sizes)]

    def count(self, d: int, more: int = 0) -> Expr:
        """Returns how many windows fit along dimension ``d`` with ``more`` elements of padding; ValueError for none."""
        extent, window, before, after = self.extents[d], self.reach[d], self.before[d], self.after[d] + more
        room = extent + before + after - window
        if isinstance(room, IntImm) and room.value < 0:
            raise ValueError(
                f"{self.op}: a window of {window} elements does not fit into {extent} with padding {before} and {after}; "
                f"the input has the shape {shape_text(self.data)}"
            )
        return room // self.strides[d] + 1

    def requires(self) -> list[Requirement]:
        """Returns that a window fits along each dimension whose extent only the call knows."""
        out: list[Requirement] = []
        for extent, window, before, after in zip(self.extents, self.reach, self.before, self.after, strict=True):
            if not isinstance(extent + before + after - window, IntImm):
                what = f"{self.op}: a window of {window} elements has to fit into {extent} with padding {before} and {after}"
                out.append(
                    (extent >= window - before - after, f"{what}; the input has the shape {shape_text(self.data)}")
                )
        return out

    def counts(self) -> list[Expr]:
        """Returns how many windows fit along each dimension: ``(extent + padding - window) // stride + 1``."""
        return [self.count(d) for d in range(len(self.sizes))]

    def padded(self, value: Any = 0, more: Sequence[int] = ()) -> Tensor:
        """Returns the data with its padding, and ``more`` elements after it, as a stage; the data itself without."""
        lo, hi = [0] * self.data.ndim, [0] * self.data.ndim
        for d, (b, a) in enumerate(zip(self.before, self.after, strict=True)):
            lo[self.first + d], hi[self.first + d] = b, a + (more[d] if more else 0)
        return pad(self.data, lo, hi, value) if any(lo) or any(hi) else self.data

    def index(self, i: Sequence[Any], channel: Any, window: Sequence[Any]) -> list[Any]:
        """Returns the index, in the padded data, of the element ``window`` of the window of the output ``i``."""
        index = list(i)
        index[self.channel] = channel
        for d, (at, s, step) in enumerate(zip(window, self.strides, self.dilations, strict=True), self.first):
            index[d] = i[d] * s + at * step
        return index


def window_padding(
    op: str, padding: Any, kernel: Sequence[int], stride: Sequence[int], extents: Sequence[Expr]
) -> tuple[list[Any], list[Any]]:
    """Returns the padding before and after each spatial dimension.

    ``padding``: one number; one per dimension; two per dimension, all befores first (TVM: top, left, bottom, right);
    pairs; ``"valid"`` (none); ``"same"`` (the output has ceil(size / stride) elements, the odd one goes after).
    ``kernel`` is the extent of the window, dilation included.
    """
    n = len(kernel)
    if isinstance(padding, str):
        if padding.lower() == "valid":
            return [0] * n, [0] * n
        if padding.lower() != "same":
            raise ValueError(f"{op}: padding={padding!r}; as a word there are 'same' and 'valid'")
        before, after = [], []
        for k, s, extent in zip(kernel, stride, extents, strict=True):
            if s == 1:
                total = k - 1
            else:
                size = constant(op, 'a size (padding="same" with a stride)', extent)
                total = max(((size + s - 1) // s - 1) * s + k - size, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        return before, after
    items = list(padding) if isinstance(padding, (tuple, list)) else [padding] * n
    if any(isinstance(p, (tuple, list)) for p in items):
        if len(items) != n or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in items):
            raise ValueError(f"{op}: padding={padding!r}; pairs have to be {n} of (before, after)")
        before, after = [p[0] for p in items], [p[1] for p in items]
    elif len(items) in (1, n):
        before = after = items * (n if len(items) == 1 else 1)
    elif len(items) == 2 * n:
        before, after = items[:n], items[n:]
    else:
        raise ValueError(f"{op}: padding={padding!r}; give 1, {n} or {2 * n} numbers, 'same' or 'valid'")
    numbers = [constant(op, "padding", p) for p in (*before, *after)]
    if min(numbers) < 0:
        raise ValueError(f"{op}: padding={padding!r} is negative")
    return numbers[:n], numbers[n:]


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
