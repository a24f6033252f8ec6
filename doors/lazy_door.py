"""This module is an array namespace with the names of the array API standard; arrays are computed when values are used.

``tilewright.lazy`` is another name of it.

>>> from tilewright import lazy as np_
>>> x = np_.asarray([1.0, 2.0, 3.0])
>>> y = np_.sum(x * x) + 1.0
>>> print(np_.graph_of(y))
def lazy(x: float32[3]):
    c: float32[()] = constant(1.0)
    multiply: float32[3] = multiply(x, x)
    sum: float32[()] = sum(multiply, axis=(0,), keepdims=False)
    add: float32[()] = add(sum, c)
    return add
>>> float(y)
15.0
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import broadcast_shapes as broadcast_shapes
from numpy import finfo as finfo
from numpy import iinfo as iinfo
from numpy import isdtype as isdtype

from ..frontends.integer_power import power_of_integers
from .lazy.compiled_expressions import configure as configure
from .lazy.compiled_expressions import graph_of as graph_of
from .lazy.expression import Expression, leaf, number, record
from .lazy.lazy_array import Array as Array
from .lazy.lazy_types import NAMES, DType, default_dtype, dtype_of, promoted, require_number
from .lazy.operands import axes_of, broadcast, cast, common, is_number, operand
from .lazy.parts import moved, positions

__array_api_version__ = "2024.12"
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi
bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 = [np.dtype(n) for n in NAMES]

# single elements


def _unary(name: str, kinds: str, kept: str = "", op: str = "") -> Callable[[Any], Array]:
    """Returns a function of one array of ``kinds`` of data types; those of the kinds ``kept`` come back as they are."""

    def function(x: Any, /) -> Array:
        one = operand(x)
        if one.dtype.kind not in kinds:
            raise TypeError(f"{name} takes no {one.dtype}")
        return Array(record(op or name, one) if one.dtype.kind not in kept else one)

    return _named(function, name)


def _binary(name: str, kinds: str, op: str = "") -> Callable[[Any, Any], Array]:
    """Returns a function of two arrays, or of an array and a number."""

    def function(x1: Any, x2: Any, /) -> Array:
        a, b = common(x1, x2)
        if a.dtype.kind not in kinds:
            raise TypeError(f"{name} takes no {a.dtype}")
        return Array(record(op or name, a, b))

    return _named(function, name)


def _named(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns {name}, as the standard has it."
    return function


def _unaries(names: str, kinds: str, kept: str = "", op: str = "{}") -> Any:
    return [_unary(n, kinds, kept, op.format(n)) for n in names.split()]


def _binaries(names: str, kinds: str, name: str = "{}", op: str = "") -> Any:
    return [_binary(name.format(n), kinds, op.format(n)) for n in names.split()]


acos, acosh, asin, asinh, atan, atanh = _unaries("acos acosh asin asinh atan atanh", "f")
cos, cosh, sin, sinh, tan, tanh = _unaries("cos cosh sin sinh tan tanh", "f")
exp, expm1, log, log10, log1p, log2, sqrt = _unaries("exp expm1 log log10 log1p log2 sqrt", "f")
ceil, floor, round, trunc = _unaries("ceil floor round trunc", "iuf", kept="iu")
abs, negative, sign, square = _unaries("abs negative sign square", "iuf")
isfinite, isinf, isnan = [_unary(f"is{n}", "iuf", op=f"is_{n}") for n in ("finite", "inf", "nan")]
bitwise_invert, logical_not = _unary("bitwise_invert", "biu", op="bitwise_not"), _unary("logical_not", "b")
positive, _floats = _unary("positive", "iuf", kept="iuf"), _unary("mean", "f", kept="f")
add, divide, floor_divide, multiply, subtract = _binaries("add divide floor_divide multiply subtract", "iuf")
maximum, minimum = _binaries("maximum minimum", "iuf")
remainder, _float_power = _binary("remainder", "iuf", "floor_mod"), _binary("pow", "f", "power")
atan2, copysign, hypot, logaddexp, nextafter = _binaries("atan2 copysign hypot logaddexp nextafter", "f")
bitwise_and, bitwise_or, bitwise_xor = _binaries("and or xor", "biu", "bitwise_{}")
logical_and, logical_or, logical_xor = _binaries("and or xor", "b", "logical_{}")
bitwise_left_shift, bitwise_right_shift = _binaries("left_shift right_shift", "iu", "bitwise_{}", "{}")
greater, greater_equal, less, less_equal = _binaries("greater greater_equal less less_equal", "iuf")
equal, not_equal = _binaries("equal not_equal", "biuf")


def pow(x1: Any, x2: Any, /) -> Array:
    """Returns powers; exponents of integers are at least 0."""
    a, b = common(x1, x2)
    if b.is_number and b.data == 2:
        return square(x1)
    if a.dtype.kind == "f":
        return _float_power(x1, x2)
    return Array(power_of_integers(record, a, b, number(1, a.dtype), 8 * a.dtype.itemsize))


def reciprocal(x: Any, /) -> Array:
    """Returns 1 / x."""
    return 1.0 / x


def signbit(x: Any, /) -> Array:
    """Returns whether floats are negative, -0.0 among them."""
    return copysign(1.0, x) < 0.0


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """Returns the elements, at least ``min`` and at most ``max`` where they are given."""
    out = x if min is None else maximum(x, min)
    return positive(out) if max is None else minimum(out, max)


def where(condition: Any, x1: Any, x2: Any, /) -> Array:
    """Returns ``x1`` where the condition holds, else ``x2``."""
    parts = [logical_and(condition, condition).expression, *common(x1, x2)]
    shape = np.broadcast_shapes(*[p.shape for p in parts])
    return Array(record("where", *[broadcast(p, shape) for p in parts]))


# reductions, searches, sorts


def _reduced(op: str, x: Expression, axis: Any, keepdims: Any, **attrs: Any) -> Array:
    axes = axes_of(axis, len(x.shape))
    return Array(record(op, x, axis=axes, keepdims=keepdims, **attrs) if axes else x)


def _total(x: Any, dtype: Any) -> Expression:
    """Returns what to add up: in the data type asked for, else floats as they are, and integers in 64 bits."""
    one = operand(x)
    return cast(one, dtype or {"f": one.dtype, "u": uint64}.get(one.dtype.kind, int64))


def _sum(op: str) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Array:
        one = _total(x, dtype)
        return astype(_reduced(op, one, axis, keepdims), one.dtype)

    return _named(function, op)


sum, prod = _sum("sum"), _sum("prod")


def _over(name: str, op: str, prepare: Callable[[Any], Array], **attrs: Any) -> Callable[..., Array]:
    """Returns a reduction of what ``prepare`` makes of the array."""

    def function(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Array:
        return _reduced(op, prepare(x).expression, axis, keepdims, **attrs)

    return _named(function, name)


def _truth(name: str, op: str) -> Callable[..., Array]:
    found = _over(name, op, lambda x: astype(astype(x, bool), uint8))
    return _named(lambda x, /, *, axis=None, keepdims=False: astype(found(x, axis=axis, keepdims=keepdims), bool), name)


def _extreme(op: str, start: float) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: Any = None, keepdims: Any = False) -> Array:
        one = positive(x).expression
        if 0 in [one.shape[a] for a in axes_of(axis, len(one.shape))]:
            raise ValueError(f"{op} of no elements")
        return _reduced(op, one, axis, keepdims, initial=start if one.dtype.kind == "f" else None)

    return _named(function, op)


max, min, mean = _extreme("max", -inf), _extreme("min", inf), _over("mean", "mean", _floats)
all, any = _truth("all", "min"), _truth("any", "max")
count_nonzero = _over("count_nonzero", "sum", lambda x: astype(astype(x, bool), int64))


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Array:
    """Returns the sum of squared distances from the mean, divided by the count less ``correction``."""
    apart = square(x - mean(x, axis=axis, keepdims=True))
    count = np.prod([x.shape[a] for a in axes_of(axis, x.ndim)], initial=1.0) - correction
    return sum(apart, axis=axis, keepdims=keepdims) / float(count)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Array:
    """Returns the square root of the variance."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _place(op: str) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: int | None = None, keepdims: Any = False) -> Array:
        one = operand(x)
        if 0 in one.shape:
            raise ValueError(f"{op} of no elements")
        if not one.shape:
            return zeros((), dtype=int64)
        along = None if axis is None else axes_of(axis, len(one.shape))[0]
        return Array(record(op, one, axis=along, keepdims=keepdims, dtype="int64"))

    return _named(function, op)


argmax, argmin = _place("argmax"), _place("argmin")


def _running(name: str, op: str, start: int) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False) -> Array:
        one = _total(x, dtype)
        if axis is None and len(one.shape) != 1:
            raise ValueError(f"{name} of {len(one.shape)} dimensions needs an axis")
        (along,) = axes_of(axis or 0, len(one.shape))
        first = full([1 if d == along else n for d, n in enumerate(one.shape)], start, dtype=one.dtype)
        out = Array(record(op, one, axis=along))
        return concat([first, out], axis=along) if include_initial else out

    return _named(function, name)


cumulative_sum, cumulative_prod = _running("cumulative_sum", "cumsum", 0), _running("cumulative_prod", "cumprod", 1)


def _ordered(name: str, which: int) -> Callable[..., Array]:
    """Returns a function of the elements in order (NaN is larger than all numbers), or of their positions."""

    def function(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Array:
        (along,) = axes_of(axis, x.ndim)
        attrs = {"k": x.shape[along], "axis": along, "largest": descending, "dtype": "int64"}
        return Array(record("topk", operand(x), which=which, **attrs))

    return _named(function, name)


sort, argsort = _ordered("sort", 0), _ordered("argsort", 1)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Array:
    """Returns where the elements of ``x2`` belong in the sorted ``x1``: before equal ones, or (``right``) behind them."""
    line, wide = x1 if sorter is None else take(x1, sorter), expand_dims(x2, axis=-1)
    return count_nonzero(line < wide if side == "left" else line <= wide, axis=-1)


def isin(x1: Any, x2: Any, /, *, invert: Any = False) -> Array:
    """Returns whether the elements of ``x1`` are among those of ``x2``, or (``invert``) whether they are not."""
    found = any(expand_dims(x1, axis=-1) == reshape(x2, (-1,)), axis=-1)
    return logical_not(found) if invert else found


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    """Returns the differences of neighbours along an axis, ``n`` times."""
    out = concat([p for p in (prepend, x, append) if p is not None], axis=axis)
    before = (slice(None),) * axes_of(axis, out.ndim)[0]
    for _ in range(n):
        out = out[(*before, slice(1, None))] - out[(*before, slice(None, -1))]
    return out


# other shapes, other orders


def _reshaped(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function that keeps the elements in their order, in the shape that NumPy's ``f`` gives them."""

    def function(x: Any, /, *args: Any, copy: Any = None, **options: Any) -> Array:
        one = operand(x)
        shape = f(np.broadcast_to(0, one.shape), *args, **options).shape
        return Array(record("reshape", one, shape=shape) if shape != one.shape else one)

    return _named(function, f.__name__)


def _permuted(f: Callable[..., Any], name: str) -> Callable[..., Array]:
    """Returns a function that gives dimensions another order, that of NumPy's ``f``."""

    def function(x: Any, /, *args: Any, **options: Any) -> Array:
        one = operand(x)
        order = f(np.empty(tuple(range(len(one.shape)))), *args, **options).shape
        return Array(record("transpose", one, axes=order) if order else one)

    return _named(function, name)


def _gathered(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function that takes elements from the places to which NumPy's ``f`` moves their positions."""

    def function(x: Any, /, *args: Any, **options: Any) -> Array:
        one = operand(x)
        return Array(moved(one, f(positions(one.shape), *map(_known, args), **options)))

    return _named(function, f.__name__)


def _known(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, Array) else x


reshape, squeeze, expand_dims = _reshaped(np.reshape), _reshaped(np.squeeze), _reshaped(np.expand_dims)
permute_dims, moveaxis = _permuted(np.transpose, "permute_dims"), _permuted(np.moveaxis, "moveaxis")
matrix_transpose = _permuted(lambda a: np.swapaxes(a, -1, -2), "matrix_transpose")
flip, roll, repeat, tile = [_gathered(f) for f in (np.flip, np.roll, np.repeat, np.tile)]


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Array:
    """Returns the array repeated along new dimensions and along those of extent 1."""
    return Array(broadcast(operand(x), tuple(shape)))


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Returns the arrays, each of their common shape."""
    return tuple([broadcast_to(a, np.broadcast_shapes(*[a.shape for a in arrays])) for a in arrays])


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Returns the arrays one after the other along an axis; flat where it is None."""
    parts = common(*[reshape(a, (-1,)) if axis is None else a for a in arrays])
    return Array(record("concatenate", *parts, axis=axes_of(axis or 0, len(parts[0].shape))[0]))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """Returns the arrays, all of one shape, along a new dimension."""
    parts = common(*arrays)
    return Array(record("stack", *parts, axis=axes_of(axis, len(parts[0].shape) + 1)[0]))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Returns the parts of the array along an axis, without that axis."""
    return tuple(moveaxis(x, axis, 0))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
    """Returns the elements at ``indices`` along an axis; negative ones count from the end."""
    (along,) = axes_of(0 if axis is None and x.ndim == 1 else axis, x.ndim)
    return Array(record("take", operand(x), operand(indices), axis=along, mode="wrap"))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Array:
    """Returns for each element of ``indices`` the one of ``x`` at that place along an axis."""
    return Array(record("gather_elements", operand(x), operand(indices), axis=axes_of(axis, x.ndim)[0]))


def _triangle(name: str, upper: Any) -> Callable[..., Array]:
    def function(x: Any, /, *, k: int = 0) -> Array:
        return Array(record("triangle", operand(x), upper=upper, k=k))

    return _named(function, name)


tril, triu = _triangle("tril", False), _triangle("triu", True)

# products


def matmul(x1: Any, x2: Any, /) -> Array:
    """Returns the matrix product; vectors are rows on the left and columns on the right."""
    a, b = [Array(one) for one in common(x1, x2)]
    if not a.ndim or not b.ndim:
        raise ValueError("matmul takes no arrays without dimensions")
    left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    out = Array(record("matmul", left.expression, right.expression, out_dtype=a.dtype.name))
    return squeeze(out, axis=tuple([n for n, one in ((-2, a), (-1, b)) if one.ndim == 1]))


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Array:
    """Returns the sum of products over pairs of axes: the last of ``x1`` with the first of ``x2``, or those given."""
    a, b = common(x1, x2)
    first, second = (range(-axes, 0), range(axes)) if isinstance(axes, int) else axes
    left, right = axes_of(tuple(first), len(a.shape)), axes_of(tuple(second), len(b.shape))
    letters = [*"abcdefghijklm"[: len(a.shape)]], [*"nopqrstuvwxyz"[: len(b.shape)]]
    for m, n in zip(left, right, strict=True):
        letters[1][n] = letters[0][m]
    kept = [c for m, c in enumerate(letters[0]) if m not in left] + [
        c for n, c in enumerate(letters[1]) if n not in right
    ]
    equation = f"{''.join(letters[0])},{''.join(letters[1])}->{''.join(kept)}"
    return Array(cast(record("einsum", a, b, equation=equation), a.dtype))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Returns the sums of products along an axis."""
    product = multiply(x1, x2)
    return sum(product, axis=axis, dtype=product.dtype)


# new arrays


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
    """Returns an array of data. What its owner may change is copied, unless ``copy`` is False.

    Python numbers become bool, int64 or float32.
    """
    if isinstance(obj, Array):
        return obj if copy is not True and dtype in (None, obj.dtype) else astype(obj, dtype or obj.dtype)
    shared = hasattr(obj, "__array__") or hasattr(obj, "__dlpack__")
    data = np.asarray(obj if hasattr(obj, "__array__") or not shared else np.from_dlpack(obj))
    wanted = dtype_of(dtype or (data.dtype if shared else default_dtype(data)))
    if copy is False and (not shared or data.dtype != wanted):
        raise ValueError(f"data of {data.dtype} becomes an array of {wanted} by a copy only")
    keep = shared and (copy is False or not (copy or data.flags.writeable))
    return Array(leaf(data.astype(wanted, copy=not keep)))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Array:
    """Returns an array that shares the memory of another library's, unless ``copy`` is True."""
    return asarray(np.from_dlpack(x), copy=copy or False)


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Array:
    """Returns the array converted to a data type."""
    return Array(cast(operand(x), dtype_of(dtype)))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Returns an array of one number."""
    extents, kind = tuple(np.broadcast_to(0, shape).shape), dtype_of(dtype or default_dtype(fill_value))
    return Array(broadcast(number(fill_value, kind), extents))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Returns an array of one number, of the shape of another."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def _filled(name: str, value: int) -> tuple[Callable[..., Array], Callable[..., Array]]:
    def of_shape(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return full(shape, value, dtype=dtype or float32)

    def of_array(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return full_like(x, value, dtype=dtype)

    return _named(of_shape, name), _named(of_array, f"{name}_like")


(zeros, zeros_like), (ones, ones_like), (empty, empty_like) = (
    _filled("zeros", 0),
    _filled("ones", 1),
    _filled("empty", 0),
)


def _made(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function whose data NumPy's ``f`` makes."""

    def function(*args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Array:
        data = f(*args, **options)
        kind = default_dtype(data.dtype.type(0)) if dtype is None else dtype_of(dtype)
        return Array(leaf(data.astype(kind)))

    return _named(function, f.__name__)


arange, linspace, eye = _made(np.arange), _made(np.linspace), _made(np.eye)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """Returns the coordinates of a grid, whose first two dimensions are exchanged for ``xy``."""
    places = np.meshgrid(*[np.arange(a.size) for a in arrays], indexing=indexing)  # type: ignore[call-overload]
    return [Array(moved(operand(a), p)) for a, p in zip(arrays, places, strict=True)]


# values that decide shapes


def _of_values(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes the array, and calls NumPy's ``f`` with its values."""

    def function(x: Any, /) -> Any:
        found = f(np.asarray(x))
        if not isinstance(found, tuple):
            return Array(leaf(found))
        arrays = [Array(leaf(a)) for a in found]
        return tuple(arrays) if type(found) is tuple else type(found)(*arrays)

    return _named(function, f.__name__)


nonzero, unique_all, unique_counts = _of_values(np.nonzero), _of_values(np.unique_all), _of_values(np.unique_counts)
unique_inverse, unique_values = _of_values(np.unique_inverse), _of_values(np.unique_values)

# data types


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Returns the data type that an operation on all of these has."""
    dtypes = [dtype_of(getattr(a, "dtype", a)) for a in arrays_and_dtypes if not is_number(a)]
    found = functools.reduce(promoted, dtypes)
    for a in arrays_and_dtypes:
        if is_number(a):
            require_number(a, found)
    return found


def can_cast(from_: Any, to: Any, /) -> Any:
    """Returns whether promotion may convert the one into the other."""
    try:
        return promoted(dtype_of(getattr(from_, "dtype", from_)), dtype_of(to)) == to
    except TypeError:
        return False


class Info(type(np.__array_namespace_info__())):  # type: ignore[misc]
    """``Info`` says what the standard leaves open; what is not here is as in NumPy."""

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Returns the data types of Python's numbers, and of indices."""
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Returns data types by name, those of a kind where it is given."""
        return {name: np.dtype(name) for name in NAMES if kind is None or isdtype(np.dtype(name), kind)}


def __array_namespace_info__() -> Info:  # noqa: N807
    """Returns what the standard leaves open."""
    return Info()
