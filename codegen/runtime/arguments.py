"""Checks Python arguments, completes them, and converts them to C arguments. This is the slow, careful path.

:mod:`.native_glue` has the fast path, and comes here when an argument is unusual.

Each error is an :class:`ArgumentError` (both a TypeError and a ValueError) that names the argument by position and
name and says what was expected, what was passed, and how to convert it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...tir.analysis.known_ranges import evaluate
from ...tir.expr import (
    Add,
    Cast,
    DType,
    Expr,
    IntImm,
    Mul,
    Sub,
    Var,
    max_value,
    min_value,
    shape_text,
    to_numpy,
    vars_in,
)
from ...tir.expr.dtype import float_bits
from ..lowered import Param
from .array_views import CPU_DEVICES, ArrayView, view_of


class ArgumentError(TypeError, ValueError):
    """Raised for an argument that a compiled function does not take."""


class SizeError(ArgumentError, RuntimeError):
    """Raised for sizes of arguments that do not fit together, as an assertion of the function says."""


def check_not_negative(
    function: str, output: str, shape: Sequence[Expr | int], sizes: Sequence[int], told: Mapping[Var, str]
) -> None:
    """Raise SizeError where the ``shape`` of an output has a negative size.

    ``sizes`` is its value. ``told`` says where symbolic sizes come from; see :meth:`Arguments.told_sizes`.
    """
    for axis, (extent, size) in enumerate(zip(shape, sizes, strict=True)):
        if size < 0:
            used = [told[v] for v in sorted(vars_in(extent), key=lambda v: v.name) if v in told]  # type: ignore[arg-type]
            raise SizeError(
                f"{function}: dimension {axis} of the output {output} is {extent}, which would be {size} "
                f"({'; '.join(used)}); pass an input for which it is at least 0"
            )


MOST_ARGUMENTS = 1000
"""The number of C arguments of a direct call, less than ctypes passes (1024); functions of more are called through slots."""


def in_slots(address: int, params: Sequence[Param], values: Sequence[int | float]) -> Any:
    """Returns the 8-byte slots through which ``tw_packed`` calls the function at ``address`` with these C values."""
    slots = (ctypes.c_int64 * (len(values) + 1))()
    start = ctypes.addressof(slots)
    slots[0] = address
    for i, (ctype, value) in enumerate(zip(c_types(params), values, strict=True)):
        ctype.from_address(start + 8 * (i + 1)).value = value
    return slots


def c_types(params: Sequence[Param]) -> list[Any]:
    """Returns the ctypes type of each C parameter."""
    return [_C_TYPES[p.llvm_type] for p in params]


_C_TYPES: dict[str, Any] = {
    "ptr": ctypes.c_void_p,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class Arguments:
    """A checker of arguments against the parameters of one function, which converts them into C values."""

    def __init__(self, name: str, params: Sequence[Param], devices: tuple[int, ...] = CPU_DEVICES) -> None:
        """``devices``: where arrays may lie, DLPack's numbers."""
        self.name, self.devices = name, devices
        self.given = [p for p in params if p.kind != "size"]
        self.sizes = [p.var for p in params if p.kind == "size"]

    def signature(self) -> str:
        """Return the parameters for a reader: ``f(A: float32[4, 8], B: float32[4, 8] (written))``."""
        return f"{self.name}({', '.join(map(_declared, self.given))})"

    def prepare(self, args: Sequence[Any]) -> tuple[list[int | float], list[Any]]:
        """Return the C values in the order of the parameters, sizes last, and the objects to keep alive."""
        if len(args) != len(self.given):
            raise ArgumentError(
                f"{self.name} takes {len(self.given)} arguments, {len(args)} were given; it is {self.signature()}"
            )
        views: list[ArrayView | None] = []
        values: list[Any] = []
        known: dict[Var, int] = {}
        for index, (param, arg) in enumerate(zip(self.given, args, strict=True)):
            if param.kind == "buffer":
                view = self.view(index, param, arg)
                views.append(view)
                values.append(view.pointer)
            else:
                views.append(None)
                values.append(self.scalar(index, param, arg, known))
        arrays = [(i, p, v) for i, (p, v) in enumerate(zip(self.given, views, strict=True)) if v is not None]
        self.bind_sizes(arrays, known)
        for index, param, view in arrays:
            self._check_shape(index, param, view, known)
            self._check_strides(index, param, view, known)
        self._check_aliasing(arrays)
        for var in self.sizes:
            if var not in known:
                raise ArgumentError(f"{self.name}: no argument tells the size {var.name}; it is {self.signature()}")
            values.append(known[var])
        return values, [v.owner for v in views if v is not None]

    def _fail(self, index: int, message: str) -> ArgumentError:
        return ArgumentError(f"{self.name}: argument {index} ({self.given[index].name}): {message}")

    def view(self, index: int, param: Param, arg: Any) -> ArrayView:
        """Return an argument as the array that the parameter ``index`` takes."""
        if isinstance(arg, (np.generic, int, float)) and not param.writes:
            arg = _single_element(arg, param)
        try:
            view = view_of(arg, self.devices)
        except (ValueError, BufferError, RuntimeError) as e:
            raise self._fail(index, str(e)) from None
        want = _declared(param)
        if view is None:
            hint = "; np.asarray makes one" if isinstance(arg, (list, tuple, int, float)) else ""
            raise self._fail(index, f"expected an array, {want}, got {type(arg).__name__}{hint}")
        if not _same_dtype(param.dtype, view.dtype):
            hint = "pass the bits as uint16, or ml_dtypes.bfloat16" if param.dtype == "bfloat16" else ""
            torch = type(arg).__module__.partition(".")[0] == "torch"
            way = f".to(torch.{param.dtype})" if torch else f'.astype("{param.dtype}")'
            hint = hint or f"convert it with {way}"
            raise self._fail(index, f"expected dtype {param.dtype}, got {view.dtype}; {hint}")
        assert param.buffer is not None
        if len(view.shape) != param.buffer.ndim:
            raise self._fail(
                index, f"expected {param.buffer.ndim} dimensions, {want}, got {len(view.shape)}: shape {view.shape}"
            )
        if param.writes and not view.writable:
            raise self._fail(index, "it is written to, but the array is read-only; pass a writable one, e.g. a copy")
        if not view.aligned or view.pointer % param.dtype.bytes:
            raise self._fail(
                index, f"the array is not aligned to its elements of {param.dtype.bytes} bytes; pass a .copy()"
            )
        return view

    def scalar(self, index: int, param: Param, arg: Any, known: dict[Var, int]) -> int | float:
        """Return an argument as the number that the parameter ``index`` takes; ``known`` learns it."""
        dtype = param.dtype
        if isinstance(arg, (np.ndarray, np.generic)) and arg.ndim == 0:
            arg = arg.item()
        if dtype == "handle":
            if isinstance(arg, int):
                return arg
            raise self._fail(index, f"expected an address as an int, got {type(arg).__name__}")
        if DType(dtype).is_float:
            if not isinstance(arg, (int, float)):
                raise self._fail(index, f"expected a number, {dtype}, got {type(arg).__name__}")
            return _float_value(float(arg), DType(dtype))
        if DType(dtype).is_bool:
            if not isinstance(arg, (bool, int)) or arg not in (0, 1):
                raise self._fail(index, f"expected a truth value, got {arg!r}")
            return int(arg)
        if isinstance(arg, bool) or not hasattr(arg, "__index__"):
            raise self._fail(index, f"expected a whole number, {dtype}, got {type(arg).__name__}")
        value = int(arg.__index__())
        if not min_value(dtype) <= value <= max_value(dtype):
            raise self._fail(index, f"{value} does not fit {dtype} ({min_value(dtype)} … {max_value(dtype)})")
        known[param.var] = value
        return value

    def told_sizes(self, args: Sequence[Any]) -> dict[Var, str]:
        """Returns the value of each size and scalar in ``args`` as text, with where it is from."""
        out: dict[Var, str] = {}
        for param, arg in zip(self.given, args, strict=False):
            if param.buffer is None:
                out.setdefault(param.var, f"{param.name} = {arg}")
                continue
            for axis, (extent, size) in enumerate(zip(param.buffer.shape, getattr(arg, "shape", ()), strict=False)):
                if isinstance(extent, Var):
                    out.setdefault(extent, f"{extent.name} = {size}, dimension {axis} of {param.name}")
        return out

    def bind_sizes(self, arrays: list[tuple[int, Param, ArrayView]], known: dict[Var, int]) -> None:
        """Determine the sizes: plain symbols first, then symbols inside sums and products with constants."""
        plain: list[tuple[int, Expr, int]] = []
        for index, param, view in arrays:
            buffer = param.buffer
            assert buffer is not None
            plain.extend((index, e, n) for e, n in zip(buffer.shape, view.shape, strict=True))
            if buffer.strides:
                plain.extend((index, e, n) for e, n in zip(buffer.strides, view.strides, strict=True))
            plain.append((index, buffer.elem_offset, 0))
        plain.sort(key=lambda item: not isinstance(item[1], Var))
        for index, expr, value in plain:
            solved = _solve(expr, value, known)
            if solved is None or solved[0] in known:
                continue
            var, size = solved
            if not min_value(var.dtype) <= size <= max_value(var.dtype):
                raise self._fail(index, f"the size {var.name} = {size} does not fit {var.dtype}")
            known[var] = size

    def _check_shape(self, index: int, param: Param, view: ArrayView, known: dict[Var, int]) -> None:
        assert param.buffer is not None
        for axis, (expr, got) in enumerate(zip(param.buffer.shape, view.shape, strict=True)):
            want = evaluate(expr, known)
            if want != got:
                what = "" if isinstance(expr, IntImm) else f" ({expr}, bound by another argument)"
                raise self._fail(
                    index,
                    f"expected {want}{what} in dimension {axis}, got {got}: shape {view.shape} for {_declared(param)}",
                )

    def _check_strides(self, index: int, param: Param, view: ArrayView, known: dict[Var, int]) -> None:
        assert param.buffer is not None
        if not param.buffer.strides:
            if not view.is_compact():
                raise self._fail(
                    index, f"expected a row-major array without gaps, got strides {view.strides} (in elements) "
                    f"for shape {view.shape}; np.ascontiguousarray makes one",
                )  # fmt: skip
            return
        for axis, (expr, got) in enumerate(zip(param.buffer.strides, view.strides, strict=True)):
            want = evaluate(expr, known)
            if want != got and view.shape[axis] > 1:
                raise self._fail(index, f"expected a stride of {want} elements in dimension {axis}, got {got}")

    def _check_aliasing(self, arrays: list[tuple[int, Param, ArrayView]]) -> None:
        spans = [(view.extent_bytes(), index, param) for index, param, view in arrays]
        if apart([(low, high, param.writes) for (low, high), _, param in spans]):
            return
        for (low, high), index, param in spans:
            if not param.writes:
                continue
            for (other_low, other_high), other, other_param in spans:
                if other != index and low < other_high and other_low < high:
                    raise self._fail(
                        index, f"it is written to and shares memory with argument {other} ({other_param.name}); "
                        "pass arrays that do not overlap, e.g. a copy of the input",
                    )  # fmt: skip


def apart(spans: Sequence[tuple[int, int, bool]]) -> bool:
    """Returns whether no span ``(begin, end, written)`` that is written meets another one; false for some empty spans
    within others. The time grows with the number of spans as sorting does."""
    any_end = written_end = 0
    for begin, end, written in sorted(spans):
        if begin < (any_end if written else written_end):
            return False
        any_end = max(any_end, end)
        if written:
            written_end = max(written_end, end)
    return True


def _solve(expr: Expr, value: int, known: dict[Var, int]) -> tuple[Var, int] | None:
    """Returns the unknown symbol of ``expr`` and its value, or None unless known sums and products lead to it."""
    while not isinstance(expr, Var):
        if isinstance(expr, Cast):
            expr = expr.value
        elif isinstance(expr, (Add, Sub, Mul)):
            a, b = evaluate(expr.a, known), evaluate(expr.b, known)
            if b is not None and a is None:
                if isinstance(expr, Mul) and (b == 0 or value % b):
                    return None
                value = value - b if isinstance(expr, Add) else value + b if isinstance(expr, Sub) else value // b
                expr = expr.a
            elif a is not None and b is None:
                if isinstance(expr, Mul) and (a == 0 or value % a):
                    return None
                value = value - a if isinstance(expr, Add) else a - value if isinstance(expr, Sub) else value // a
                expr = expr.b
            else:
                return None
        else:
            return None
    return expr, value


def _single_element(arg: Any, param: Param) -> Any:
    """Returns a number as an array of no dimensions for a parameter that is read as one. Its type must fit; NumPy's
    reductions return numbers. Otherwise returns ``arg``."""
    assert param.buffer is not None
    if param.buffer.ndim or param.dtype == "bfloat16":
        return arg
    if isinstance(arg, np.generic):
        return np.asarray(arg)
    kinds = {bool: "b", int: "iuf", float: "f"}[
        bool if isinstance(arg, bool) else int if isinstance(arg, int) else float
    ]
    dtype = np.dtype(to_numpy(param.dtype))
    try:
        return np.asarray(arg, dtype) if dtype.kind in kinds else arg
    except OverflowError:
        return arg


def _same_dtype(want: str, got: str) -> bool:
    return want == got or (want == "bfloat16" and got == "uint16")


def _float_value(value: float, dtype: DType) -> int | float:
    if dtype.bits > 16:
        return value
    raw = float_bits(value, dtype)
    return raw - 0x10000 if raw >= 0x8000 else raw


def _declared(param: Param) -> str:
    if param.buffer is None:
        return f"{param.name}: {param.dtype}"
    shape = shape_text(param.buffer.shape)
    return f"{param.name}: {param.dtype}[{shape}]{' (written)' if param.writes else ''}"


# Arguments by name, and new arrays for those that a function writes and that were not given.


def completed(
    arguments: Arguments, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], list[np.ndarray]]:
    """Return all arguments in order, and those made here: arrays that are written and were not given.

    ``args`` come first, ``named`` by the names of the parameters. ArgumentError when an input is missing, and for a
    name that there is not or that is given twice.
    """
    names = [p.name for p in arguments.given]
    places: dict[int, Any] = dict(enumerate(args))
    for name, value in named.items():
        if names.count(name) != 1:
            raise ArgumentError(f"{arguments.name} has no argument {name!r}; it is {arguments.signature()}")
        if names.index(name) in places:
            raise ArgumentError(f"{arguments.name}: the argument {name} is given twice")
        places[names.index(name)] = value
    missing = [index for index in range(len(arguments.given)) if index not in places]
    if len(args) > len(arguments.given) or any(not arguments.given[index].writes for index in missing):
        raise ArgumentError(
            f"{arguments.name} takes {len(arguments.given)} arguments, {len(places)} were given; it is {arguments.signature()}"
        )
    known = _known_sizes(arguments, places)
    told = arguments.told_sizes([places.get(index) for index in range(len(arguments.given))])
    fresh = {index: _fresh(arguments, arguments.given[index], known, told) for index in missing}
    return [{**places, **fresh}[index] for index in range(len(arguments.given))], list(fresh.values())


def _known_sizes(arguments: Arguments, places: Mapping[int, Any]) -> dict[Var, int]:
    """Return the sizes that the given arguments tell."""
    known: dict[Var, int] = {}
    arrays = []
    for index, arg in places.items():
        param = arguments.given[index]
        if param.kind == "buffer":
            arrays.append((index, param, arguments.view(index, param, arg)))
        else:
            arguments.scalar(index, param, arg, known)
    arguments.bind_sizes(arrays, known)
    return known


def _fresh(arguments: Arguments, param: Param, known: dict[Var, int], told: Mapping[Var, str]) -> np.ndarray:
    assert param.buffer is not None
    shape = [evaluate(extent, known) for extent in param.buffer.shape]
    if param.buffer.strides or None in shape:
        raise ArgumentError(
            f"{arguments.name}: the array {param.name} has to be given: its "
            f"{'strides are its own' if param.buffer.strides else 'shape does not follow from the others'}"
        )
    check_not_negative(arguments.name, param.name, param.buffer.shape, [n for n in shape if n is not None], told)
    return np.zeros([n for n in shape if n is not None], to_numpy(param.dtype))
