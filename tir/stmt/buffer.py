"""This module defines buffers (memory with a name, a shape and a data type) and regions of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from ..expr import (
    Add,
    BufferLoad,
    DType,
    Expr,
    IntImm,
    Range,
    Var,
    as_exprs,
    const,
    convert,
    is_const_int,
    product,
    same,
    shape_text,
)
from ..expr.base.node import Part, counts, holds, matches, node, uses


@node
class Buffer(Part):
    """Represents memory with a shape and a data type. Two buffers are the same only if they are the same object.

    ``shape``, ``strides`` and ``elem_offset`` count elements; empty ``strides`` mean row-major without gaps.
    ``scope`` is ``global`` (memory; an empty text means the same), ``local`` (registers or stack, one per thread),
    ``shared`` … . A buffer with shape ``()`` has one element. ``data`` is the variable of the pointer.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType = DType("float32")
    scope: str = "global"
    strides: tuple[Expr, ...] = ()
    elem_offset: Expr = field(default_factory=lambda: IntImm(0))
    data_alignment: int = 64
    offset_factor: int = 1
    axis_separators: tuple[int, ...] = ()
    data: Var = field(default=None)  # type: ignore[assignment]

    parts = counts("shape", "strides", "elem_offset")
    identity = "buffer"

    def __post_init__(self) -> None:
        if self.scope == "":
            object.__setattr__(self, "scope", "global")
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(f"buffer {self.name}: {len(self.strides)} strides for {len(self.shape)} dimensions")
        if self.data is None:
            object.__setattr__(self, "data", Var(self.name, "handle"))

    def __repr__(self) -> str:
        return f"Buffer({self.name}: {self.dtype}[{shape_text(self.shape)}], scope={self.scope})"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def element_strides(self) -> tuple[Expr, ...]:
        """Return the strides in elements, the row-major ones when the buffer names none."""
        if self.strides or not self.shape:
            return self.strides
        out: list[Expr] = [const(1, self.shape[-1].dtype)]
        for extent in reversed(self.shape[1:]):
            out.append(product((out[-1], extent)))
        return tuple(reversed(out))

    def num_bytes(self) -> int | None:
        """Return the bytes of all elements when the shape is constant and the elements have no gaps, else None."""
        total = self.dtype.bytes
        for extent in self.shape:
            if not isinstance(extent, IntImm):
                return None
            total *= extent.value
        return total

    def with_(self, **changes: Any) -> Buffer:
        """Return a new buffer that differs in the named fields; its ``data`` variable is new unless one is given."""
        return Part.with_(self, **{"data": None, **changes})

    def rebuilt(self, *values: Any) -> Buffer:
        """Return the buffer of these values but the last one: its ``data`` variable is new."""
        return Buffer(*values[:-1])

    def full_region(self) -> BufferRegion:
        """Return the whole buffer as a region."""
        return BufferRegion(self, tuple([Range.from_extent(e) for e in self.shape]))

    def vload(self, indices: Any, dtype: str | None = None, predicate: Expr | None = None) -> BufferLoad:
        """Return a load at ``indices`` (one vector index at most). A given ``dtype`` must be the type that is read."""
        load = BufferLoad(self, as_exprs(indices if isinstance(indices, (tuple, list)) else (indices,)), predicate)
        if dtype is not None and load.dtype != dtype:
            raise ValueError(f"vload of {self.name} reads {load.dtype}, not {dtype}")
        return load

    def __getitem__(self, key: Any) -> Any:
        """Return a :class:`BufferLoad` for ``A[i, j]``, and a :class:`BufferRegion` for slices (``A[0:4, j]``)."""
        items = key if isinstance(key, tuple) else (key,)
        if len(items) != len(self.shape):
            raise IndexError(f"buffer {self.name} has {len(self.shape)} dimensions, indexed with {len(items)}")
        if not any(isinstance(item, (slice, Range)) for item in items):
            return BufferLoad(self, as_exprs(items))
        return BufferRegion(self, tuple([_range(i, e) for i, e in zip(items, self.shape, strict=True)]))


def _range(item: Any, extent: Expr) -> Range:
    if isinstance(item, Range):
        return item
    if not isinstance(item, slice):
        item = convert(item)
        return Range(item, const(1, item.dtype))
    if item.step not in (None, 1):
        raise IndexError("a region's slices have no step")
    start = convert(0 if item.start is None else item.start)
    stop = extent if item.stop is None else convert(item.stop)
    if is_const_int(start, 0):
        return Range(const(0, stop.dtype), stop)
    return Range(start, _extent(start, stop))


def _extent(start: Expr, stop: Expr) -> Expr:
    """Return ``stop - start``; for ``x + a`` and ``x + b`` this is a constant."""
    x, a = (start.a, start.b.value) if isinstance(start, Add) and isinstance(start.b, IntImm) else (start, 0)
    y, b = (stop.a, stop.b.value) if isinstance(stop, Add) and isinstance(stop.b, IntImm) else (stop, 0)
    return const(b - a, stop.dtype) if same(x, y) else stop - start


@node
class BufferRegion(Part):
    """Represents a box in a buffer: one range per dimension."""

    buffer: Buffer
    region: tuple[Range, ...]

    parts = uses("buffer") + holds("region")

    def __repr__(self) -> str:
        def text(r: Range) -> str:
            return str(r.min) if is_const_int(r.extent, 1) else f"{r.min}:{r.min + r.extent}"

        return f"{self.buffer.name}[{', '.join(map(text, self.region))}]"


@node
class MatchBufferRegion(Part):
    """Declares that inside a block ``buffer`` is another name and shape for the region ``source``."""

    buffer: Buffer
    source: BufferRegion

    parts = holds("source") + matches("buffer")


def decl_buffer(
    shape: Sequence[Any] | Any,
    dtype: str = "float32",
    name: str = "buffer",
    *,
    scope: str = "global",
    strides: Sequence[Any] = (),
    **rest: Any,
) -> Buffer:
    """Return a new buffer from plain numbers or expressions.

    >>> decl_buffer((4, 8), "int8", "A").ndim
    2
    """
    dims = shape if isinstance(shape, (tuple, list)) else (shape,)
    return Buffer(name, as_exprs(dims), DType(dtype), scope, as_exprs(strides), **rest)
