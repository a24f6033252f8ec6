"""This module holds the buffers of a running program: views of NumPy memory, with every access checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..expr import Expr, IntImm, Var, to_numpy
from ..expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from ..expr.intrinsics.numpy_values import wrapper
from ..stmt import Buffer, BufferRegion
from .interpret_expr import ExprCompiler, InterpretError

Box = tuple[tuple[int, int], ...]


class View:
    """Represents a buffer at run time.

    ``array`` has its shape (a vector type adds a dimension of lanes); ``reads`` and ``writes`` are the boxes that may
    be accessed, None for the whole buffer.
    """

    __slots__ = ("array", "buffer", "reads", "shape", "writes")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.array: Any = None
        self.shape: tuple[int, ...] = ()
        self.reads: list[Box] | None = None
        self.writes: list[Box] | None = None

    def set(self, array: np.ndarray) -> None:
        """Use ``array`` as the memory from now on."""
        self.array = array
        self.shape = array.shape if self.buffer.dtype.lanes == 1 else array.shape[:-1]

    def check(self, what: str, indices: tuple[Any, ...], mask: Any = None) -> None:
        """Raise InterpretError unless all ``indices`` (of the lanes that ``mask`` marks) are inside."""
        if mask is not None:
            indices = tuple([i[mask] if isinstance(i, np.ndarray) else i for i in indices])
            if not np.any(mask):
                return
        if self.array is None:
            raise InterpretError(f"{what} buffer {self.buffer.name}, which has no memory here")
        if len(indices) != len(self.shape) or not all(
            _inside(i, 0, n) for i, n in zip(indices, self.shape, strict=True)
        ):
            raise InterpretError(f"{what} {self.buffer.name}[{_text(indices)}] is outside its shape {self.shape}")
        boxes = self.reads if what == "reads" else self.writes
        if boxes is not None and not any(
            all(_inside(i, lo, hi) for i, (lo, hi) in zip(indices, box, strict=True)) for box in boxes
        ):
            raise InterpretError(
                f"{what} {self.buffer.name}[{_text(indices)}] is outside the regions that its block declares: {boxes}"
            )


def _inside(i: Any, lo: int, hi: int) -> bool:
    if isinstance(i, np.ndarray):
        return i.size == 0 or bool(lo <= i.min() and i.max() < hi)
    return bool(lo <= i < hi)


def _text(indices: tuple[Any, ...]) -> str:
    return ", ".join(str(i.tolist() if isinstance(i, np.ndarray) else i) for i in indices)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


class Memory:
    """Holds views by buffer and memory by data pointer; two buffers of one pointer share the same bytes."""

    def __init__(self, check_regions: bool, externs: dict[str, Any]) -> None:
        self.check_regions = check_regions
        self.exprs = ExprCompiler(self.loader, externs, self.locator)
        self.registers = self.exprs.registers
        self.owners: set[Buffer] = set()
        self._views: dict[Buffer, View] = {}
        self._flat: dict[Var, np.ndarray] = {}
        self._compiled: dict[int, tuple[Expr, Callable[[], Any]]] = {}

    def view(self, buffer: Buffer) -> View:
        """Return the view of ``buffer``, one for the whole run."""
        found = self._views.get(buffer)
        if found is None:
            found = self._views[buffer] = View(buffer)
            if buffer.dtype.lanes > 1 and buffer.dtype.kind == "bfloat":
                raise InterpretError(f"buffer {buffer.name}: vectors of bfloat16 are not stored")
        return found

    def value(self, e: Expr) -> Any:
        """Return the current value of ``e``."""
        if isinstance(e, IntImm):
            return e.value
        known = self._compiled.get(id(e))
        if known is None:
            known = self._compiled[id(e)] = (e, self.exprs.compile(e))
        return known[1]()

    # -- arguments ---------------------------------------------------------------------------------------------------

    def bind_argument(self, buffer: Buffer, arg: Any, position: int) -> None:
        """Bind ``buffer`` to the array ``arg``; variables in its shape and strides take their values from the array."""
        where = f"argument {position} ({buffer.name})"
        if not isinstance(arg, np.ndarray):
            raise InterpretError(f"{where} is a {type(arg).__name__}, not a NumPy array")
        wanted = to_numpy(buffer.dtype.element)
        if arg.dtype.name == "bfloat16":
            arg = arg.view(np.uint16)
        if arg.dtype != wanted:
            raise InterpretError(f"{where} has dtype {arg.dtype}, expected {wanted}")
        ndim = len(buffer.shape) + (buffer.dtype.lanes > 1)
        if arg.ndim != ndim:
            raise InterpretError(f"{where} has {arg.ndim} dimensions, expected {ndim}")
        for e, n in zip(buffer.shape, arg.shape, strict=False):
            self._bind_var(e, n)
        for e, n in zip(buffer.strides, arg.strides, strict=False):
            self._bind_var(e, n // arg.itemsize)
        self._bind_var(buffer.elem_offset, 0)
        if arg.flags.c_contiguous:
            flat = arg.reshape(-1)
        else:
            span = 1 + sum((n - 1) * s for n, s in zip(arg.shape, arg.strides, strict=True)) // arg.itemsize
            flat = as_strided(arg, (max(span, 0),), (arg.itemsize,))
        self.view(buffer).set(arg)
        self._own(buffer, flat)

    def check_argument(self, buffer: Buffer, arg: np.ndarray, position: int) -> None:
        """Check shape and strides against the declaration once every size is known, and set up other views of the
        array."""
        where = f"argument {position} ({buffer.name})"
        shape = tuple([self.value(e) for e in buffer.shape])
        if shape != arg.shape[: len(shape)]:
            raise InterpretError(f"{where} has shape {arg.shape}, expected {shape}")
        if buffer.strides:
            strides = tuple([self.value(e) for e in buffer.strides])
            given = tuple([s // arg.itemsize for s in arg.strides])
            if any(s != g for s, g, n in zip(strides, given, shape, strict=False) if n > 1):
                raise InterpretError(f"{where} has strides {given}, expected {strides}")
        self._set_aliases(buffer)

    def _bind_var(self, e: Expr, value: int) -> None:
        if isinstance(e, Var):
            slot = self.exprs.slot(e)
            if not isinstance(self.registers[slot], int):
                self.registers[slot] = value

    # -- inner buffers -----------------------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Give ``buffer`` new memory, filled with NaN or, for integers, with a pattern."""
        shape = tuple([self.value(e) for e in buffer.shape])
        strides = tuple([self.value(e) for e in buffer.strides]) or _row_major(shape)
        lanes = buffer.dtype.lanes
        size = 0 if 0 in shape else 1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
        kind = to_numpy(buffer.dtype.element)
        flat = np.empty(size * lanes, kind)
        if kind.kind == "f":
            flat.fill(np.nan)
        elif buffer.dtype.kind == "bfloat":
            flat.fill(0x7FC0)
        else:
            flat.view(np.uint8).fill(1 if kind.kind == "b" else 0x5A)
        self._own(buffer, flat)
        self._look_at(buffer, flat, shape, strides, 0)
        self._set_aliases(buffer)

    def match(self, buffer: Buffer, source: BufferRegion) -> None:
        """Bind ``buffer`` to the region ``source``; variables in its shape, strides and offset are set."""
        outer = self.view(source.buffer)
        lows = [self.value(r.min) for r in source.region]
        extents = [self.value(r.extent) for r in source.region]
        if outer.array is None or any(
            [lo < 0 or lo + n > size for lo, n, size in zip(lows, extents, outer.shape, strict=True)]
        ):
            raise InterpretError(f"match_buffer {buffer.name}: {source} is outside the shape {outer.shape}")
        part = outer.array[tuple([slice(lo, lo + n) for lo, n in zip(lows, extents, strict=True)])]
        extra = part.ndim - len(buffer.shape)
        if extra < 0 or any(n != 1 for n in part.shape[:extra]):
            raise InterpretError(f"match_buffer {buffer.name}: {source} does not have {len(buffer.shape)} dimensions")
        part = part[(*(0,) * extra, ...)]  # the ellipsis gives a view also when no dimension is left
        flat = self._flat[source.buffer.data]
        address = part.__array_interface__["data"][0] - flat.__array_interface__["data"][0]
        found = [(buffer.elem_offset, address // flat.itemsize), *zip(buffer.shape, part.shape, strict=True)]
        if buffer.strides:
            found.extend(zip(buffer.strides, [s // part.itemsize for s in part.strides], strict=True))
        for e, value in found:
            if isinstance(e, Var):
                self.registers[self.exprs.slot(e)] = value
        shape = tuple([self.value(e) for e in buffer.shape])
        if shape != part.shape:
            raise InterpretError(f"match_buffer {buffer.name}: {source} has shape {part.shape}, expected {shape}")
        strides = [self.value(e) for e in buffer.strides]
        given = [s // part.itemsize for s in part.strides]
        if any(s != g for s, g, n in zip(strides, given, shape, strict=False) if n > 1):
            raise InterpretError(f"match_buffer {buffer.name}: {source} has strides {given}, expected {strides}")
        self._own(buffer, flat)
        self.view(buffer).set(part)

    def _set_aliases(self, buffer: Buffer) -> None:
        for other in self._views:
            if other.data is buffer.data and other not in self.owners:
                shape = tuple([self.value(e) for e in other.shape])
                strides = tuple([self.value(e) for e in other.strides]) or _row_major(shape)
                self._look_at(other, self._flat[buffer.data], shape, strides, self.value(other.elem_offset))

    def _look_at(
        self, buffer: Buffer, flat: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        wanted = to_numpy(buffer.dtype.element)
        if flat.dtype != wanted:
            flat = flat.view(wanted)
        lanes = buffer.dtype.lanes
        if lanes > 1:
            shape, strides = (*shape, lanes), (*[s * lanes for s in strides], 1)
        last = offset + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
        if 0 not in shape and last >= flat.size:
            raise InterpretError(f"buffer {buffer.name} of shape {shape} reaches past its memory, {flat.size} elements")
        self.view(buffer).set(as_strided(flat[offset:], shape, [s * flat.itemsize for s in strides]))

    def _own(self, buffer: Buffer, flat: np.ndarray) -> None:
        """Set ``flat`` as the memory of the buffer's pointer. As a value, the pointer is this array."""
        self._flat[buffer.data] = flat
        self.registers[self.exprs.slot(buffer.data)] = flat

    # -- accesses ----------------------------------------------------------------------------------------------------

    def loader(self, buffer: Buffer, lanes: int, masked: bool) -> Callable[..., Any]:
        """Return the function ``([mask,] *indices) -> value`` that reads ``buffer``."""
        v = self.view(buffer)
        kind = buffer.dtype.kind
        if kind == "bfloat":
            finish: Callable[[Any], Any] = bfloat16_from_bits
        elif lanes > 1 or buffer.dtype.lanes > 1:
            finish = np.array
        else:
            finish = (lambda x: x) if buffer.dtype.is_float else (lambda x: x.item())
        if masked:

            def load_masked(mask: Any, *indices: Any) -> Any:
                v.check("reads", indices, mask)
                out = np.zeros(lanes, v.array.dtype)
                if not mask.any():
                    return finish(out)
                out[mask] = v.array[tuple([i[mask] if isinstance(i, np.ndarray) else i for i in indices])]
                return finish(out)

            return load_masked

        def load(*indices: Any) -> Any:
            v.check("reads", indices)
            return finish(v.array[indices])

        if self.check_regions or lanes > 1 or finish is np.array or kind == "bfloat":
            return load
        return _direct(v, len(buffer.shape), load, None if buffer.dtype.is_float else "item")

    def locator(self, buffer: Buffer) -> Callable[..., Any]:
        """Return the function ``(*indices) -> memory from that element on``, a flat array."""
        v = self.view(buffer)

        def address(*indices: Any) -> Any:
            v.check("reads", indices)
            flat = self._flat[buffer.data]
            start = v.array.__array_interface__["data"][0] - flat.__array_interface__["data"][0]
            apart = sum([i * s for i, s in zip(indices, v.array.strides, strict=False)])
            return flat[(start + apart) // flat.itemsize :]

        return address

    def storer(self, buffer: Buffer, masked: bool) -> Callable[..., None]:
        """Return the function ``([mask,] value, *indices)`` that writes ``buffer``."""
        v = self.view(buffer)
        kind = buffer.dtype.kind
        to_memory: Callable[[Any], Any] = bfloat16_to_bits if kind == "bfloat" else lambda x: x
        wrap = None if kind in ("bfloat", "float") or buffer.dtype.is_bool else wrapper(buffer.dtype.element)
        if masked:

            def store_masked(mask: Any, value: Any, *indices: Any) -> None:
                v.check("writes", indices, mask)
                if not mask.any():
                    return
                where = tuple([i[mask] if isinstance(i, np.ndarray) else i for i in indices])
                v.array[where] = to_memory(value)[mask]

            return store_masked

        def store(value: Any, *indices: Any) -> None:
            v.check("writes", indices)
            if wrap is not None and isinstance(value, int):
                value = wrap(value)
            v.array[indices] = to_memory(value)

        if self.check_regions or kind == "bfloat" or buffer.dtype.lanes > 1:
            return store
        return _direct_store(v, len(buffer.shape), store, wrap)


def _direct(v: View, ndim: int, careful: Callable[..., Any], method: str | None) -> Callable[..., Any]:
    """Return a loader of scalars that does not pack the indices first; it leaves to ``careful`` what is not inside.

    ``method``: what makes a number of an integer in memory.
    """
    names = [f"i{n}" for n in range(ndim)]
    at = ", ".join(names)
    value = f"v.array[{at or '()'}]" if method is None else f"v.array.{method}({at})"
    return _compiled(f"lambda {at}: {value} if {_all_inside(names)} else careful({at})", v=v, careful=careful)


def _direct_store(
    v: View, ndim: int, careful: Callable[..., None], wrap: Callable[[int], int] | None
) -> Callable[..., None]:
    """Return a function that stores scalars as :func:`_direct` loads them; ``wrap`` brings integers to the range of the type."""
    names = [f"i{n}" for n in range(ndim)]
    given = ", ".join(["value", *names])
    value = "value" if wrap is None else "wrap(value)"
    whole = [f"type({n}) is int" for n in (names if wrap is None else ["value", *names])]
    put = f"v.array.__setitem__(({''.join([n + ', ' for n in names])}), {value})"
    condition = " and ".join([*whole, _all_inside(names)])
    return _compiled(f"lambda {given}: {put} if {condition} else careful({given})", v=v, wrap=wrap, careful=careful)


def _all_inside(names: list[str]) -> str:
    """Return the text of a condition: the buffer has memory, and each index is in its dimension."""
    return " and ".join(["v.array is not None", *[f"0 <= {n} < v.shape[{d}]" for d, n in enumerate(names)]])


def _compiled(text: str, **names: Any) -> Callable[..., Any]:
    """Return the function that ``text`` is, over ``names``."""
    function: Callable[..., Any] = eval(
        compile(text, "<access>", "eval"), {**names, "type": type, "int": int, "__builtins__": {}}
    )
    return function
