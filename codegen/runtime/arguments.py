"""Checks Python arguments, completes them, and converts them to C arguments. This is the slow, careful path.

Arrays are read as pointer, dtype, shape and strides, without a copy: NumPy's, and those of other libraries by DLPack.

A DLPack capsule is read in place and not consumed: its owner keeps the memory, the capsule stays alive with the view.

:mod:`.native_glue` has the fast path, and comes here when an argument is unusual.

Each error is an :class:`ArgumentError` (both a TypeError and a ValueError) that names the argument by position and
name and says what was expected, what was passed, and how to convert it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from ...tir.expr.dtype import float_bits, pack
from ..lowered import Param

CPU_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that this processor reads


class ArrayView(NamedTuple):
    """An array of any library. Strides count elements. ``dtype`` is our name for it, or the library's own when we have
    none."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    writable: bool
    aligned: bool
    owner: Any

    def extent_bytes(self) -> tuple[int, int]:
        """Return the first used byte and the byte after the last one; equal for an array without elements."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.pointer + low * self.itemsize, self.pointer + (high + 1) * self.itemsize

    def is_compact(self) -> bool:
        """Return whether the array is row-major without gaps (dimensions of extent 1 may have any stride)."""
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != step and 0 not in self.shape:
                return False
            step *= n
        return True


def view_of(value: Any, devices: tuple[int, ...] = CPU_DEVICES) -> ArrayView | None:
    """Return ``value`` as an :class:`ArrayView`, or None when it is not an array. ValueError when its memory cannot be
    used here: it is on none of ``devices``, DLPack's numbers."""
    return _numpy_view(value) if isinstance(value, np.ndarray) else other_view(value, devices)


def _numpy_view(array: np.ndarray[Any, Any]) -> ArrayView:
    dtype, itemsize = array.dtype, array.dtype.itemsize
    name = "bool" if dtype.kind == "b" else dtype.name
    if not dtype.isnative:
        name = f"{name} of the other byte order"
    whole = itemsize > 0 and all(s % itemsize == 0 for s in array.strides)
    strides = tuple(s // itemsize for s in array.strides) if whole else tuple(0 for _ in array.strides)
    flags = array.flags
    return ArrayView(
        array.__array_interface__["data"][0], name, array.shape, strides, itemsize, bool(flags.writeable),
        bool(flags.aligned) and whole, array,
    )  # fmt: skip


_DEVICES = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed", 14: "oneapi"}
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}


class DLTensor(ctypes.Structure):
    """The struct DLTensor of dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """The struct DLManagedTensorVersioned of dlpack.h, version 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def other_view(value: Any, devices: tuple[int, ...]) -> ArrayView | None:
    """Returns an array of another library as a view, or None when it is not an array."""
    if hasattr(value, "array_view") and int(value.__dlpack_device__()[0]) in devices:
        found: ArrayView = value.array_view()
        return found
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, devices)
    if hasattr(value, CUDA_INTERFACE):
        return _interface_view(value, devices)
    return None


CUDA_INTERFACE = "__cuda_array_interface__"
"""What arrays on NVIDIA's GPUs have that know no DLPack, such as Numba's."""
CUDA_DEVICES = (2, 13)
"""DLPack's numbers for memory of a GPU, and memory that it shares with the processor."""


def lies_on_gpu(value: Any) -> bool:
    """Return whether an array says that it lies in the memory of one of NVIDIA's GPUs."""
    where = getattr(value, "__dlpack_device__", None)
    return int(where()[0]) in CUDA_DEVICES if where is not None else hasattr(value, CUDA_INTERFACE)


def _interface_view(value: Any, devices: tuple[int, ...]) -> ArrayView:
    """Returns an array by the CUDA array interface, versions 0 to 3. What a stream of its own still writes is awaited by the call."""
    if CUDA_DEVICES[0] not in devices:
        raise ValueError("its memory is on cuda, not in main memory; move it to the CPU first")
    given: dict[str, Any] = getattr(value, CUDA_INTERFACE)
    if given.get("mask") is not None:
        raise ValueError("it has a mask; pass the array without it")
    dtype, shape = np.dtype(given["typestr"]), tuple(map(int, given["shape"]))
    pointer, read_only = given["data"]
    steps = given.get("strides")
    if steps is None:
        steps = [int(np.prod(shape[n + 1 :], dtype=np.int64)) * dtype.itemsize for n in range(len(shape))]
    whole = all(s % dtype.itemsize == 0 for s in steps)
    name = "bool" if dtype.kind == "b" else dtype.name if dtype.isnative else f"{dtype.name} of the other byte order"
    strides = tuple([s // dtype.itemsize if whole else 0 for s in steps])
    aligned = whole and (pointer or 0) % dtype.itemsize == 0
    return ArrayView(pointer or 0, name, shape, strides, dtype.itemsize, not read_only, aligned, (value, given))


def _refuse_lazy(value: Any) -> None:
    """Raise ValueError for a tensor of PyTorch whose memory does not hold its elements as they are."""
    if (
        getattr(value, "is_sparse", False)
        or getattr(value, "is_sparse_csr", False)
        or getattr(value, "is_mkldnn", False)
    ):
        raise ValueError(f"its layout is {value.layout}; pass .to_dense()")
    for test, what, way in (
        ("is_neg", "a negated view", "resolve_neg"), ("is_conj", "a conjugated view", "resolve_conj")
    ):  # fmt: skip
        found = getattr(value, test, None)
        if callable(found) and found():
            raise ValueError(f"it is {what}, whose memory holds other numbers; pass .{way}()")


def _dlpack_view(value: Any, devices: tuple[int, ...]) -> ArrayView:
    _refuse_lazy(value)
    where = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (1, 0)
    if int(where[0]) not in devices:
        device = _DEVICES.get(int(where[0]), f"device type {int(where[0])}")
        raise ValueError(f"its memory is on {device}, not in main memory; move it to the CPU first")
    if int(where[0]) not in CPU_DEVICES and int(where[1]):
        device = _DEVICES.get(int(where[0]), f"device type {int(where[0])}")
        raise ValueError(f"its memory is on {device}:{int(where[1])}, and kernels run on {device}:0; move it there")
    if getattr(value, "requires_grad", False):
        raise ValueError("it requires a gradient, which is not recorded here; pass .detach()")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # made before DLPack 1.0
        capsule = value.__dlpack__()
    writable = not type(value).__module__.startswith(
        "jax"
    )  # JAX arrays are immutable, and old versions do not report this
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        tensor = managed.tensor
        writable = writable and not managed.flags & 1
    elif _is_capsule(capsule, b"dltensor"):
        tensor = DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    else:
        raise ValueError(f"its __dlpack__ returned {type(capsule).__name__}, not a fresh DLPack capsule")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(tensor.ndim))
    kind, itemsize = KINDS.get(tensor.code), (tensor.bits + 7) // 8
    whole = kind is not None and (kind == "bool" or kind.startswith("float8"))
    dtype = str(kind) if whole else f"{kind or f'DLPack type {tensor.code} of '}{tensor.bits}"
    if tensor.lanes != 1:
        dtype = f"{dtype}x{tensor.lanes}"
    pointer = (tensor.data or 0) + tensor.byte_offset
    return ArrayView(
        pointer, dtype, shape, strides, itemsize, writable, pointer % max(1, itemsize) == 0, (value, capsule)
    )


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
        if param.stored and isinstance(arg, np.ndarray):
            arg = self._packed(index, param, arg)
        try:
            view = view_of(arg, self.devices)
        except (ValueError, BufferError, RuntimeError) as e:
            raise self._fail(index, str(e)) from None
        want = _declared(param)
        if view is None:
            hint = "; np.asarray makes one" if isinstance(arg, (list, tuple, int, float)) else ""
            raise self._fail(index, f"expected an array, {want}, got {type(arg).__name__}{hint}")
        if not _same_dtype(param, view.dtype):
            hint = "pass the bits as uint16, or ml_dtypes.bfloat16" if param.dtype == "bfloat16" else ""
            if param.stored:
                raise self._fail(index, f"expected {want}, got {view.dtype}; {_stored_hint(param.stored)}")
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
            if want is None and param.stored:
                missing = ", ".join(sorted({v.name for v in vars_in(expr) if v not in known}))
                raise self._fail(
                    index,
                    f"no argument tells the size {missing} of {_declared(param)}; give it by another array's shape",
                )
            if want != got:
                what = "" if isinstance(expr, IntImm) else f" ({expr}, bound by another argument)"
                raise self._fail(
                    index,
                    f"expected {want}{what} in dimension {axis}, got {got}: shape {view.shape} for {_declared(param)}",
                )

    def _packed(self, index: int, param: Param, arg: np.ndarray) -> np.ndarray:
        """Returns the bytes of an array that holds one number of 2 or 4 bits in each element, else ``arg``.

        Such are arrays of int8, or of ml_dtypes' type of that name; uint8 stands for the bytes, unless a row has as many
        elements as numbers. A result cannot be given so: the call would write to a copy.
        """
        dtype, name = DType(param.stored), arg.dtype.name
        per_byte = dtype.per_byte
        if per_byte == 1 or arg.ndim == 0:
            return arg
        columns = int(arg.shape[-1])
        if name == "uint8":
            if dtype.is_signed or columns != param.numbers or columns == -(-param.numbers // per_byte):
                return arg
        elif name not in ("int8", param.stored):
            return arg
        if param.writes:
            raise self._fail(index, f"it is written to as bytes, {per_byte} numbers in each: {_declared(param)}")
        if param.numbers and columns != param.numbers:
            raise self._fail(
                index, f"expected {param.numbers} numbers of {param.stored} in a row, got {columns}: shape {arg.shape}"
            )
        wide = arg if name != param.stored else arg.astype(np.int8 if dtype.is_signed else np.uint8)
        low, high = min_value(dtype), max_value(dtype)
        if wide.size and not (low <= int(wide.min()) and int(wide.max()) <= high):
            outside = wide.min() if int(wide.min()) < low else wide.max()
            raise self._fail(index, f"{outside} is outside of {param.stored}, which is from {low} to {high}")
        return pack(wide, param.stored)

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


def _same_dtype(param: Param, got: str) -> bool:
    want = param.dtype
    if want == got or (want == "bfloat16" and got == "uint16"):
        return True
    return got == param.stored and DType(got).is_float


def _stored_hint(dtype: str) -> str:
    if DType(dtype).is_float:
        return f"pass the bytes as uint8, or ml_dtypes.{dtype}"
    return f'pass one number in each int8, or the bytes, which te.pack(array, "{dtype}") returns'


def _float_value(value: float, dtype: DType) -> int | float:
    if dtype.bits > 16:
        return value
    raw = float_bits(value, dtype)
    return raw - 0x10000 if raw >= 0x8000 else raw


def _declared(param: Param) -> str:
    if param.buffer is None:
        return f"{param.name}: {param.dtype}"
    shape, kept = shape_text(param.buffer.shape), f" ({param.stored})" if param.stored else ""
    return f"{param.name}: {param.dtype}[{shape}]{kept}{' (written)' if param.writes else ''}"


# Arguments by name, and new arrays for those that a function writes and that were not given.


def completed(
    arguments: Arguments, args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], list[np.ndarray]]:
    """Return all arguments in order, and those made here: arrays that are written and were not given.

    ``args`` come first, ``named`` by the names of the parameters. ArgumentError when an input is missing, and for a
    name that there is not or that is given twice.
    """
    if not named and len(args) == len(arguments.given):
        return list(args), []
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
    return aligned_array([n for n in shape if n is not None], to_numpy(param.dtype), np.zeros)


ALIGNMENT = 64
"""Arrays that a call makes begin at a multiple of so many bytes: a line of the caches, and the widest vector."""

_SMALL = 4096
"""Arrays of fewer bytes are made as NumPy makes them, because finding the place takes longer than it saves."""


def aligned_array(shape: Sequence[int], dtype: Any, make: Any = np.empty) -> np.ndarray:
    """Returns a new array that begins at a multiple of 64 bytes, where NumPy's own mostly begin 16 behind one.

    ``make``: ``np.empty``, or ``np.zeros`` for zeros.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _SMALL:
        return make(shape, dtype)  # type: ignore[no-any-return]
    return aligned_bytes(size, make).view(dtype).reshape(shape)


def aligned_bytes(size: int, make: Any = np.empty) -> np.ndarray:
    """Returns so many bytes that begin at a multiple of 64, whatever their number."""
    room = make(size + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + size]  # type: ignore[no-any-return]
