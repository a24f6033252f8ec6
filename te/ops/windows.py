"""This module describes the windows of convolutions and pooling, their layout, padding and output sizes, and pads tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.expr import DType, Expr, IntImm, Not, all_, const, convert, is_const_int, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Requirement, Tensor
from .arguments import INJECTIVE, check_tensor, constant, per_dimension, shape_text, sizes_analyzer

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

    ``mode``: ``constant`` (they are ``value``, a number or a tensor of no dimensions), ``edge`` (the nearest element), ``reflect`` (mirrored, the edge not
    repeated), ``wrap`` (from the other end).
    """
    check_tensor("pad", x)
    before = [convert(p) for p in pad_before]
    after = before if pad_after is None else [convert(p) for p in pad_after]
    if len(before) != x.ndim or len(after) != x.ndim:
        raise ValueError(f"pad: {len(before)} and {len(after)} entries for the {x.ndim} dimensions of {shape_text(x)}")
    for p in (*before, *after):
        if hasattr(p, "value") and p.value < 0:
            raise ValueError(f"pad: a negative padding, {p}")
    if isinstance(value, Tensor) and value.ndim:
        raise ValueError(f"pad: the value {shape_text(value)}; a tensor has one element and no dimensions")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ValueError(f"pad: mode={mode!r}; there are 'constant', 'edge', 'reflect' and 'wrap'")
    requires: list[Requirement] = []
    if mode == "edge":
        for d, (lo, hi, extent) in enumerate(zip(before, after, x.shape, strict=True)):
            problem = f"pad: dimension {d} of {shape_text(x)} has no elements to repeat"
            if is_const_int(extent, 0) and not (is_const_int(lo, 0) and is_const_int(hi, 0)):
                raise ValueError(problem)
            if not isinstance(extent, IntImm) and not (is_const_int(lo, 0) and is_const_int(hi, 0)):
                requires.append((extent > 0, problem))
    if mode in ("reflect", "wrap"):
        for d, (lo, hi, extent) in enumerate(zip(before, after, x.shape, strict=True)):
            if is_const_int(lo, 0) and is_const_int(hi, 0):
                continue
            fits = all_(lo < extent, hi < extent) if mode == "reflect" else all_(lo <= extent, hi <= extent)
            sizes = sizes_analyzer(lo, hi, extent)
            problem = f"pad: dimension {d} of {shape_text(x)} is too short to {mode} {lo} and {hi} elements"
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
                at = select(at >= 0, select(at < extent, at, extent - 1), 0)
            elif here and mode == "reflect":
                at = select(at >= 0, select(at < extent, at, 2 * (extent - 1) - at), 0 - at)
            elif here and mode == "wrap":
                at = select(at >= 0, select(at < extent, at, at - extent), at + extent)
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
    return convert(value() if isinstance(value, Tensor) else value).astype(dtype)


def depth_to_space(
    x: Tensor, block: Any = 2, layout: str = "NCHW", mode: str = "DCR", name: str = "T_depth_to_space"
) -> Tensor:
    """Returns images with ``block`` times as many rows and columns, whose channels are divided by the elements of a block.

    ``block``: a number, or one for the rows and one for the columns. The channels are numbered by row in the block, column
    in the block and channel of the result in ``mode`` ``DCR``, and by channel of the result first in ``CRD``, as in ONNX.
    """
    op = "depth_to_space"
    check_tensor(op, x, 4, "the data")
    channel, first = check_layout(op, layout, 2)
    rows, columns = per_dimension(op, "block", block, 2)
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"{op}: mode={mode!r}; there are 'DCR' and 'CRD'")
    depth = x.shape[channel]
    if isinstance(depth, IntImm) and depth.value % (rows * columns):
        raise ValueError(f"{op}: blocks of {rows} x {columns} do not divide {depth.value} channels")
    left = depth // (rows * columns)
    shape = list(x.shape)
    shape[channel], shape[first], shape[first + 1] = left, x.shape[first] * rows, x.shape[first + 1] * columns

    def f(*i: Expr) -> Any:
        index, place = list(i), i[first] % rows * columns + i[first + 1] % columns
        index[first], index[first + 1] = i[first] // rows, i[first + 1] // columns
        index[channel] = place * left + i[channel] if mode == "DCR" else i[channel] * (rows * columns) + place
        return x(*index)

    out: Tensor = compute(shape, f, name=name, tag=INJECTIVE)
    return out


def col2im(
    columns: Tensor, image: Sequence[int], kernel: Sequence[int], stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    name: str = "T_col2im",
) -> Tensor:  # fmt: skip
    """Returns the image ``(N, C, *image)`` that windows make. Each element is the sum of the window elements that lie
    on it.

    columns: ``(N, C · kernel elements, windows)``. ``padding``: one number, one per dimension, or all befores, then
    all afters, of the image from which the windows were cut.
    """
    op, n = "col2im", len(image)
    check_tensor(op, columns, 3, "the columns")
    sizes, taps = per_dimension(op, "image", image, n), per_dimension(op, "kernel", kernel, n)
    strides, dilations = per_dimension(op, "stride", stride, n), per_dimension(op, "dilation", dilation, n)
    given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * n
    pads = given if len(given) == 2 * n else (*given, *given)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    counts = [(e + pads[d] + pads[n + d] - reach[d]) // strides[d] + 1 for d, e in enumerate(sizes)]
    width, windows = math.prod(taps), math.prod(counts)
    rows, found = constant(op, "the rows", columns.shape[1]), constant(op, "the windows", columns.shape[2])
    if rows % width or found != windows or min(counts) < 1:
        raise ValueError(f"{op}: {rows}x{found} columns for windows of {width} elements, {windows} of them")
    axes = [reduce_axis((0, k), f"k{d}") for d, k in enumerate(taps)]

    def f(*i: Expr) -> Any:
        row, column, tests = i[1], const(0), []
        for d, axis in enumerate(axes):
            row = row * taps[d] + axis.var
            start = i[2 + d] + pads[d] - axis.var * dilations[d]
            at = start // strides[d]
            tests += [at >= 0, at < counts[d], (start % strides[d]).equal(0)]
            column = column * counts[d] + at
        return sum_(if_then_else(all_(*tests), columns(i[0], row, column), const(0, columns.dtype)), axis=axes)

    shape = (columns.shape[0], const(rows // width), *[const(e) for e in sizes])
    out: Tensor = compute(shape, f, name, tag="comm_reduce")
    return out
