"""Loads an exported shared library and calls its functions on NumPy arrays.

The library says itself what it has: its symbol ``tilewright_description`` is a text in JSON, which
``codegen/runtime/description.py`` writes. The compiler has checks of its own for functions that it has just built
(``codegen/runtime/arguments.py``); these here know no program, only names, types and sizes.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

DESCRIPTION = "tilewright_description"
"""The symbol of a library's description."""
FORMAT = 1
"""The number of the description's form. Libraries of a later one are refused."""

Extent = Any
"""A size in a description: a number, the name of a size, ``[operator, left, right]``, or None where it is not told."""


class LoadError(OSError):
    """Raised when a file is not a library that this machine can run."""


class ArrayError(TypeError, ValueError):
    """Raised for an argument that the function of a library does not take."""


def load_module(path: str | os.PathLike[str]) -> LoadedModule:
    """Return the functions of a shared library that ``export`` or ``tilewright build`` wrote.

    Nothing is compiled, and only NumPy is imported. Weights beside the library are mapped. :class:`LoadError` where the
    file is no such library, is for another machine, or its weights are missing.
    """
    file = Path(path)
    if not file.is_file():
        raise LoadError(f"there is no file {str(file)!r}")
    try:
        library = ctypes.CDLL(_name_of(file.resolve()))
    except OSError as error:
        raise LoadError(f"{str(file)!r} is not a shared library for this machine: {error}") from None
    try:
        text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, DESCRIPTION)))
    except ValueError:
        raise LoadError(
            f"{str(file)!r} does not describe its functions: it is no library of Tilewright, or of an earlier version; "
            "export it again, or call it by ctypes as its header says"
        ) from None
    described = json.loads(text)
    if described["format"] > FORMAT:
        raise LoadError(f"{str(file)!r} was written by Tilewright {described['version']}, which is newer than this one")
    missing = _lacking(described["features"])
    if missing:
        raise LoadError(
            f"{str(file)!r} is for {described['target']}, and this processor lacks {', '.join(missing)}; "
            "export it for a target that has none of them, such as llvm -mcpu=x86-64-v3"
        )
    return LoadedModule(library, file, described)


_NAMES: dict[Path, list[tuple[int, ...]]] = {}
"""The files that were loaded from each place, one after the other."""


def _name_of(path: Path) -> str:
    """Returns a name of the file that no other file was loaded by.

    The system's loader takes a name that it knows for the library that it has, though another one was exported to that place since.
    """
    told = os.stat(path)
    now = (told.st_dev, told.st_ino, told.st_mtime_ns, told.st_size)
    before = _NAMES.setdefault(path, [])
    if now not in before:
        if any(now[:2] == other[:2] for other in before):
            raise LoadError(
                f"{str(path)!r} was written over while it is loaded; write another file, and rename it to this one"
            )
        before.append(now)
    return str(path.parent) + "/." * before.index(now) + f"/{path.name}"


class LoadedModule(Mapping[str, "LoadedFunction"]):
    """A ``LoadedModule`` has the functions of an exported library by name. Calling it calls the only one, or ``main``."""

    def __init__(self, library: ctypes.CDLL, path: Path, described: dict[str, Any]) -> None:
        self.path, self.target, self.version = path, described["target"], described["version"]
        self._functions = {one["name"]: LoadedFunction(library, one) for one in described["functions"]}
        for one in described["functions"]:
            if one["weights"]:
                _map_weights(library, one["name"], path.with_suffix(one["weights"]))

    def __repr__(self) -> str:
        return f"<LoadedModule {', '.join(self)} of {self.path.name} for {self.target}>"

    def __getitem__(self, name: str) -> LoadedFunction:
        """Return a function by its C symbol. KeyError lists the names that there are."""
        if name not in self._functions:
            raise KeyError(f"no function {name!r} in {self.path.name}; there are {sorted(self._functions)}")
        return self._functions[name]

    get_function = __getitem__

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    @cached_property
    def entry(self) -> LoadedFunction:
        """Returns the only function that is no step of packing, or ``main``. ValueError where there are several."""
        names = [name for name, one in self._functions.items() if not one.is_packing]
        if len(names) != 1 and "main" not in names:
            raise ValueError(f"{self.path.name} has several functions, {sorted(names)}: pick one, module[name]")
        return self._functions[names[0] if len(names) == 1 else "main"]

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        return self.entry(*args, out=out, **named)


def _map_weights(library: ctypes.CDLL, name: str, weights: Path) -> None:
    code = library[f"{name}_load"](os.fsencode(weights))
    if code:
        why = "cannot be read" if code == 1 else "is not the file that was written with it"
        raise LoadError(f"the weights {str(weights)!r} of {name}: the file {why}; keep it beside the library")


@dataclass(frozen=True, eq=False)
class _Argument:
    """An argument of a function: an array with ``shape``, or a scalar, which has none. ``strides`` count elements, where
    they are its own."""

    name: str
    dtype: str
    shape: tuple[Extent, ...] | None
    strides: tuple[Extent, ...]
    written: bool
    numpy: np.dtype[Any]
    """The type of the arrays that are made; of bfloat16 the bits."""
    is_fixed: bool = field(init=False)

    def __post_init__(self) -> None:
        fixed = self.shape is not None and all(isinstance(extent, int) for extent in self.shape)
        object.__setattr__(self, "is_fixed", fixed and not self.strides)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype}[{', '.join(map(_text, self.shape))}]{' (written)' if self.written else ''}"


class LoadedFunction:
    """A ``LoadedFunction`` is a function of an exported library.

    Calling it takes its arguments in order or by name: NumPy arrays, what has ``__dlpack__``, and numbers. Arrays that it
    writes may be left out, or given as ``out=``; what is left out is made, and returned: one array, or a tuple. The arrays
    made for a kernel are zeros before the call. Several threads may call it. :class:`ArrayError` for arguments that do not
    fit, RuntimeError for what the program refuses.
    """

    def __init__(self, library: ctypes.CDLL, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self.is_packing: bool = described["packing"]
        """Whether the function packs a constant operand of another one."""
        params = [one for one in described["params"] if one["kind"] != "size"]
        self._arguments = [
            _Argument(
                one["name"], one["dtype"], None if one["shape"] is None else tuple(one["shape"]),
                tuple(one["strides"]), one["written"], _numpy_type(one["dtype"]),
            )
            for one in params
        ]  # fmt: skip
        self._sizes: list[str] = [one["name"] for one in described["params"] if one["kind"] == "size"]
        self._names = [one.name for one in self._arguments]
        self._first_written = next((n for n, one in enumerate(self._arguments) if one.written), len(self._arguments))
        self._failures: dict[int, str] = {code: text for code, text in described["failures"]}
        self._seen: dict[
            tuple[Any, ...], tuple[list[Any], dict[str, int]]
        ] = {}  # by the types of arrays checked before
        self._workspace: int | None = described["workspace"]
        self._make: Callable[..., Any] = np.zeros if self._workspace is None else np.empty
        self._function = library[self.name]
        self._function.restype = ctypes.c_int32
        types = [
            _C_TYPES.get(one.dtype, ctypes.c_int64) if one.shape is None else ctypes.c_void_p for one in self._arguments
        ]
        types += [ctypes.c_int64] * len(self._sizes)
        self._function.argtypes = types if self._workspace is None else [*types, ctypes.c_void_p]

    def __repr__(self) -> str:
        return f"<loaded {self.signature}>"

    @property
    def signature(self) -> str:
        """Return the arguments as text: ``f(A: float32[4, n], B: float32[4, n] (written))``."""
        return f"{self.name}({', '.join(map(str, self._arguments))})"

    @property
    def workspace_bytes(self) -> int:
        """Return the bytes that one call takes for intermediate results; of a kernel 0, which takes them from its pool."""
        return self._workspace or 0

    def __call__(self, *args: Any, out: Any = None, **named: Any) -> Any:
        if out is None and not named and len(args) == len(self._arguments):
            try:
                key = tuple([(a.shape, a.dtype, a.strides, a.flags.num) for a in args])
            except AttributeError:  # what is no array of NumPy
                key = None
            known = None if key is None else self._seen.get(key)
            if known is not None:
                self._check_apart([*enumerate(args)])
                self._run([*[a.__array_interface__["data"][0] for a in args], *known[0]], known[1])
                return None
            values, sizes, _ = self._values(self._in_order(args, None, {}))
            if key is not None and all(one.shape is not None for one in self._arguments):
                if len(self._seen) >= _KEPT:
                    self._seen.clear()
                self._seen[key] = values[len(args) :], sizes
            self._run(values, sizes)
            return None
        values, sizes, made = self._values(self._in_order(args, out, named))
        self._run(values, sizes)
        return out if out is not None else made[0] if len(made) == 1 else tuple(made) or None

    # -- inside --

    def _run(self, values: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Call the function on C values. RuntimeError where it returns that it has failed."""
        code = self._function(*values)
        if code:
            told = "; ".join([f"{name} = {size}" for name, size in sizes.items()])
            why = self._failures.get(code, f"failed with code {code}")
            raise RuntimeError(f"{self.name}: {why}{f' ({told})' if told else ''}")

    def _values(self, given: Sequence[Any]) -> tuple[list[Any], dict[str, int], list[Any]]:
        """Return the C values of checked arguments, the sizes that they tell, and the arrays made for ``None``."""
        sizes: dict[str, int] = {}
        values: list[Any] = [None] * len(given)
        arrays: list[tuple[int, np.ndarray[Any, Any]]] = []
        for n, (argument, value) in enumerate(zip(self._arguments, given, strict=True)):
            if value is None:
                continue
            if argument.shape is None:
                values[n] = self._scalar(n, argument, value, sizes)
                continue
            array = value if type(value) is np.ndarray else self._array(n, argument, value)
            self._check(n, argument, array)
            arrays.append((n, array))
        if any(not self._arguments[n].is_fixed for n, _ in arrays):
            self._bind(arrays, sizes)
        made = [self._made(n, sizes) for n, value in enumerate(given) if value is None]
        arrays += made
        for n, array in arrays:
            self._check_shape(n, self._arguments[n], array, sizes)
            values[n] = array.__array_interface__["data"][0]
        self._check_apart(arrays)
        for name in self._sizes:
            if name not in sizes:
                raise ArrayError(f"{self.name}: no argument tells the size {name}; it is {self.signature}")
            values.append(sizes[name])
        if self._workspace is not None:
            values.append(None)
        return values, sizes, [array for _, array in made]

    def _in_order(self, args: Sequence[Any], out: Any, named: Mapping[str, Any]) -> list[Any]:
        """Return the value of each argument, None for arrays that the call makes."""
        if len(args) > len(self._names):
            raise ArrayError(
                f"{self.name} takes {len(self._names)} arguments, {len(args)} were given; it is {self.signature}"
            )
        places: dict[int, Any] = dict(enumerate(args))
        for name, value in named.items():
            if self._names.count(name) != 1:
                raise ArrayError(f"{self.name} has no argument {name!r}; it is {self.signature}")
            if self._names.index(name) in places:
                raise ArrayError(f"{self.name}: the argument {name} is given twice")
            places[self._names.index(name)] = value
        if out is not None:
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            free = [n for n, one in enumerate(self._arguments) if one.written and n not in places]
            if len(outs) != len(free):
                raise ArrayError(f"{self.name} has {len(free)} outputs that are not given; out= has {len(outs)} arrays")
            places.update(zip(free, outs, strict=True))
        missing = [one.name for n, one in enumerate(self._arguments) if n not in places and not one.written]
        if missing:
            raise ArrayError(f"{self.name}: {', '.join(missing)} is not given; it is {self.signature}")
        for n, value in places.items():
            if value is None:
                raise self._fail(n, "expected an array or a number, got None")
        return [places.get(n) for n in range(len(self._arguments))]

    def _fail(self, n: int, message: str) -> ArrayError:
        return ArrayError(f"{self.name}: argument {n} ({self._arguments[n].name}): {message}")

    def _array(self, n: int, argument: _Argument, value: Any) -> np.ndarray[Any, Any]:
        """Return an array of another library, or a number for an array of no dimensions, as NumPy's array."""
        if isinstance(value, np.ndarray):
            return value
        if argument.shape == () and not argument.written and isinstance(value, (np.generic, int, float)):
            return np.asarray(value) if isinstance(value, np.generic) else np.asarray(value, argument.numpy)
        if not hasattr(value, "__dlpack__"):
            raise self._fail(n, f"expected an array, {argument}, got {type(value).__name__}; np.asarray makes one")
        try:
            return np.from_dlpack(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise self._fail(n, f"its memory cannot be read here: {error}") from None

    def _check(self, n: int, argument: _Argument, array: np.ndarray[Any, Any]) -> None:
        assert argument.shape is not None
        found = array.dtype
        if found != argument.numpy and not (found.name == argument.dtype and found.isnative):
            way = "pass the bits as uint16, or ml_dtypes.bfloat16" if argument.dtype == "bfloat16" else f'.astype("{argument.dtype}") converts it'  # fmt: skip
            raise self._fail(
                n, f"expected dtype {argument.dtype}, got {found.name if found.isnative else found.str}; {way}"
            )
        if array.ndim != len(argument.shape):
            raise self._fail(
                n, f"expected {len(argument.shape)} dimensions, {argument}, got {array.ndim}: shape {array.shape}"
            )
        flags = array.flags
        if not flags.aligned:
            raise self._fail(n, f"the array is not aligned to its elements of {array.itemsize} bytes; pass a .copy()")
        if argument.written and not flags.writeable:
            raise self._fail(n, "it is written to, but the array is read-only; pass a writable one, e.g. a copy")
        if not argument.strides and not flags.c_contiguous:
            raise self._fail(n, f"expected a row-major array without gaps, got strides {array.strides} (in bytes) for shape {array.shape}; np.asarray(x, order='C') makes one")  # fmt: skip

    def _scalar(self, n: int, argument: _Argument, value: Any, sizes: dict[str, int]) -> int | float:
        if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0:
            value = value.item()
        kind = argument.numpy.kind
        if argument.dtype == "bfloat16" or kind == "f":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise self._fail(n, f"expected a number, {argument.dtype}, got {type(value).__name__}")
            return _half_bits(float(value), argument.dtype) if argument.numpy.itemsize == 2 else float(value)
        if kind == "b":
            if not isinstance(value, (bool, int)) or value not in (0, 1):
                raise self._fail(n, f"expected a truth value, got {value!r}")
            return int(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise self._fail(n, f"expected a whole number, {argument.dtype}, got {type(value).__name__}")
        number = int(value.__index__())
        limits = np.iinfo(argument.numpy)
        if not int(limits.min) <= number <= int(limits.max):
            raise self._fail(n, f"{number} does not fit {argument.dtype} ({limits.min} … {limits.max})")
        sizes[argument.name] = number
        return number

    def _bind(self, arrays: Sequence[tuple[int, np.ndarray[Any, Any]]], sizes: dict[str, int]) -> None:
        """Learn the sizes that shapes and strides tell: names first, then sums and products with numbers."""
        told: list[tuple[Extent, int]] = []
        for n, array in arrays:
            argument = self._arguments[n]
            told += zip(argument.shape or (), array.shape, strict=True)
            if argument.strides:
                told += zip(argument.strides, [step // array.itemsize for step in array.strides], strict=True)
        for extent, value in sorted(told, key=lambda one: not isinstance(one[0], str)):
            solved = _solve(extent, value, sizes)
            if solved is not None:
                sizes.setdefault(*solved)

    def _check_shape(self, n: int, argument: _Argument, array: np.ndarray[Any, Any], sizes: dict[str, int]) -> None:
        assert argument.shape is not None
        if argument.is_fixed and array.shape == argument.shape:
            return
        for axis, (extent, got) in enumerate(zip(argument.shape, array.shape, strict=True)):
            want = _evaluated(extent, sizes)
            if want != got and extent is not None:
                raise self._fail(
                    n, f"expected {want if want is not None else _text(extent)}"
                    f"{'' if isinstance(extent, int) else f' ({_text(extent)}, bound by another argument)'} in dimension "
                    f"{axis}, got {got}: shape {array.shape} for {argument}",
                )  # fmt: skip
        for axis, extent in enumerate(argument.strides):
            want, step = _evaluated(extent, sizes), array.strides[axis]
            if array.shape[axis] > 1 and (want is None or step != want * array.itemsize):
                raise self._fail(n, f"expected a stride of {want} elements in dimension {axis}, got {step} bytes")

    def _made(self, n: int, sizes: dict[str, int]) -> tuple[int, np.ndarray[Any, Any]]:
        argument = self._arguments[n]
        shape = [_evaluated(extent, sizes) for extent in argument.shape or ()]
        if argument.strides or None in shape:
            raise ArrayError(
                f"{self.name}: the array {argument.name} has to be given: its shape does not follow from the others"
            )
        negative = next((axis for axis, size in enumerate(shape) if size is not None and size < 0), None)
        if negative is not None and argument.shape is not None:
            told = "; ".join([f"{name} = {size}" for name, size in sizes.items()])
            raise ArrayError(
                f"{self.name}: dimension {negative} of the output {argument.name} is {_text(argument.shape[negative])}, "
                f"which would be {shape[negative]} ({told})"
            )
        return n, _aligned([size for size in shape if size is not None], argument.numpy, self._make)

    def _check_apart(self, arrays: Sequence[tuple[int, np.ndarray[Any, Any]]]) -> None:
        for n, array in arrays:
            if self._arguments[n].written:
                for other, second in arrays:
                    if other != n and array.size and np.may_share_memory(array, second):
                        raise self._fail(
                            n, f"it is written to and shares memory with argument {other} ({self._arguments[other].name}); "
                            "pass arrays that do not overlap, e.g. a copy of the input",
                        )  # fmt: skip


_KEPT = 256
"""For how many kinds of arrays the checks of their types and shapes are kept."""

_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "//": int.__floordiv__,
    "%": int.__mod__,
    "min": min,
    "max": max,
}


def _evaluated(extent: Extent, sizes: Mapping[str, int]) -> int | None:
    """Returns the number that an extent is at these sizes; None where it is not told."""
    if extent is None or isinstance(extent, int):
        return extent
    if isinstance(extent, str):
        return sizes.get(extent)
    left, right = _evaluated(extent[1], sizes), _evaluated(extent[2], sizes)
    if left is None or right is None or (extent[0] in ("//", "%") and right == 0):
        return None
    return _OPERATORS[extent[0]](left, right)


def _solve(extent: Extent, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """Returns the one unknown size of ``extent``, and what it is where the extent is ``value``. None where that is not plain."""
    while isinstance(extent, list):
        operator, left, right = extent
        a, b = _evaluated(left, sizes), _evaluated(right, sizes)
        if (a is None) == (b is None) or operator not in ("+", "-", "*"):
            return None
        known = a if b is None else b
        assert known is not None
        if operator == "*":
            if known == 0 or value % known:
                return None
            value //= known
        elif operator == "+":
            value -= known
        else:
            value = value + known if a is None else known - value
        extent = left if a is None else right
    return (extent, value) if isinstance(extent, str) and extent not in sizes else None


def _text(extent: Extent) -> str:
    """Returns an extent as it is written in Python."""
    if not isinstance(extent, list):
        return "?" if extent is None else str(extent)
    operator, left, right = extent
    if operator.isalpha():
        return f"{operator}({_text(left)}, {_text(right)})"
    parts = [
        f"({_text(part)})" if isinstance(part, list) and not part[0].isalpha() else _text(part)
        for part in (left, right)
    ]
    return f"{parts[0]} {operator} {parts[1]}"


def _numpy_type(dtype: str) -> np.dtype[Any]:
    return np.dtype({"bfloat16": "uint16", "handle": "int64"}.get(dtype, dtype))


_C_TYPES: dict[str, Any] = {
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
    "float16": ctypes.c_uint16,
    "bfloat16": ctypes.c_uint16,
    "bool": ctypes.c_int8,
    **{f"int{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
}


def _half_bits(value: float, dtype: str) -> int:
    """Returns the 16 bits of a number as float16 or bfloat16, rounded to the nearest, ties to even."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return int(np.float16(value).view(np.uint16))
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _aligned(shape: Sequence[int], dtype: np.dtype[Any], make: Callable[..., Any]) -> np.ndarray[Any, Any]:
    """Returns a new array that begins at a line of the caches, for which the kernels are fastest."""
    size = math.prod(shape) * dtype.itemsize
    room = make(size + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    made: np.ndarray[Any, Any] = room[start : start + size].view(dtype).reshape(shape)
    return made


_LINUX_NAMES = {"dotprod": "asimddp", "fullfp16": "asimdhp"}
"""What Linux calls features of processors whose names are others in LLVM."""
_ASKED = re.compile(r"avx(?!10)|fma$|f16c|amx|sve|dotprod|fullfp16|bf16|i8mm")
"""The features that are asked for: those of vectors and matrices, whose names are alike on both sides."""


def _lacking(features: Sequence[str]) -> list[str]:
    """Returns the features of a library that this processor lacks, as far as Linux tells. Elsewhere the loader decides."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return []
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    if found is None:
        return []
    flags = {flag.replace("_", "") for flag in found[1].split()}
    plain = {name: re.sub(r"[-_.]", "", name) for name in features if _ASKED.match(name)}
    return [name for name, flag in plain.items() if _LINUX_NAMES.get(flag, flag) not in flags]
