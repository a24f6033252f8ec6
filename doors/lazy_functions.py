"""This module has the functions of the namespace. Those that are one operator or one formula stand in tables, then come
the others.

NumPy says data types and shapes, on single elements and on arrays without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..frontends.common.arithmetic import power_of_integers
from ..frontends.common.graph_call import entering
from ..te.ops.elements import ELEMENTS, ElementOperator
from .lazy_array import BY_UFUNC, NAMES, Array, asarray, broadcast_to, default_dtype, dtype_of, gathered, leaf, record

_REDUCTIONS = "sum prod mean max min all=min any=max argmax argmin"
"""The reductions, with the operator where it has another name."""

_FILLED = {"zeros": 0, "ones": 1, "empty": 0}
_PLACES = {"dtype": "int64"}
_ATTRIBUTES: Any = {"argmax": _PLACES, "argmin": _PLACES}
"""What reductions are told."""

_EXTENTS = [np.empty(tuple(range(ndim))) for ndim in range(16)]
_MOVES: list[tuple[str, Callable[[Array, Callable[[Any], Any]], Array]]] = [
    ("reshape squeeze expand_dims", lambda x, f: record("reshape", x, shape=f(np.broadcast_to(0, x.shape)).shape)),
    ("permute_dims moveaxis matrix_transpose", lambda x, f: record("transpose", x, axes=f(_EXTENTS[x.ndim]).shape)),
    ("flip roll repeat tile", gathered),
]
"""The functions that move elements as those of NumPy do: by shapes, by the order of extents 0, 1, 2, …, and by positions."""

_FORMULAS: dict[str, Callable[..., Any]] = {
    "astype": lambda x, dtype, /, *, copy=True, device=None: asarray(x, dtype=dtype, copy=copy),
    "argsort": lambda x, /, *, axis=-1, descending=False, stable=True: _ordered(x, axis, descending, 1),
    "broadcast_arrays": lambda *xs: tuple([broadcast_to(x, np.broadcast_shapes(*[y.shape for y in xs])) for x in xs]),
    "can_cast": lambda from_, to, /: np.can_cast(dtype_of(getattr(from_, "dtype", from_)), to),
    "count_nonzero": lambda x, /, **options: FUNCTIONS["sum"](asarray(x, dtype="bool"), **options),
    "from_dlpack": lambda x, /, *, device=None, copy=None: asarray(np.from_dlpack(x), copy=copy or False),
    "full_like": lambda x, /, fill_value, *, dtype=None, device=None: full(x.shape, fill_value, dtype=dtype or x.dtype),
    "isin": lambda x1, x2, /, *, invert=False: FUNCTIONS["any"](x1[..., None] == _flat(x2), axis=-1) ^ invert,
    "round": lambda x, /: record("round", x),
    "searchsorted": lambda x1, x2, /, *, side="left", sorter=None: FUNCTIONS["count_nonzero"](
        FUNCTIONS["less" if side == "left" else "less_equal"](x1 if sorter is None else x1[sorter], x2[..., None]),
        axis=-1,
    ),
    "sort": lambda x, /, *, axis=-1, descending=False, stable=True: _ordered(x, axis, descending, 0),
    "stack": lambda arrays, /, *, axis=0: record("stack", *common(*arrays), axis=axis),
    "std": lambda x, /, **options: FUNCTIONS["sqrt"](var(x, **options)),
    "take": lambda x, indices, /, *, axis=None: record("take", x, indices, axis=axis, mode="wrap"),
    "take_along_axis": lambda x, indices, /, *, axis=-1: record("gather_elements", x, indices, axis=axis),
    "tril": lambda x, /, *, k=0: record("triangle", x, upper=False, k=k),
    "triu": lambda x, /, *, k=0: record("triangle", x, upper=True, k=k),
    "unstack": lambda x, /, *, axis=0: tuple(FUNCTIONS["moveaxis"](x, axis, 0)),
    "vecdot": lambda x1, x2, /, *, axis=-1: FUNCTIONS["sum"](p := asarray(x1) * x2, axis=axis, dtype=p.dtype),
}
"""The functions that are formulas."""


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Returns the data type of an operation on all of these, by NumPy's rules."""
    return dtype_of(np.result_type(*[getattr(a, "dtype", a) for a in arrays_and_dtypes]))


def common(*given: Any) -> list[Array]:
    """Returns arrays converted to their common data type; Python numbers follow the arrays."""
    return [asarray(x, dtype=result_type(*given)) for x in given]


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Returns an array of one number."""
    return broadcast_to(asarray(fill_value, dtype=dtype), np.broadcast_to(0, shape).shape)


def _flat(x: Any) -> Array:
    """Returns the elements as a vector."""
    return record("reshape", x, shape=(x.size,))


def _of_elements(name: str, row: ElementOperator) -> Callable[..., Array]:
    """Returns a function of single elements, whose data types are those of NumPy's function of that name."""
    if row.types == "choice":
        return lambda condition, x1, x2, /: record(row.name, asarray(condition, dtype="bool"), *common(x1, x2))
    if row.types == "test":  # of any type; NumPy converts small integers to float16 for some
        return lambda x, /: record(row.name, asarray(x))
    ufunc = getattr(np, name)

    def apply(*given: Any) -> Array:
        arrays = [x if type(x) in (int, float) else asarray(x) for x in given]
        *inside, result = ufunc.resolve_dtypes((*[x.dtype if isinstance(x, Array) else type(x) for x in arrays], None))
        if inside[0] == "bool" and row.types not in ("bits", "truth"):
            inside = [np.dtype("uint8")] * len(inside)
        out = record(row.name, *[asarray(x, dtype=d) for x, d in zip(arrays, inside, strict=True)])
        return asarray(out, dtype=result)

    return (lambda x, /: apply(x)) if ufunc.nin == 1 else (lambda x1, x2, /: apply(x1, x2))


def _reduction(name: str, op: str) -> Callable[..., Array]:
    """Returns a reduction. NumPy says the data type of its result, and what is the result of no elements."""
    f = getattr(np, name)

    def function(x: Any, /, *, axis: Any = None, keepdims: Any = False, **options: Any) -> Array:
        x = asarray(x)
        if not x.size:
            return asarray(np.asarray(f(np.asarray(x), axis=axis, keepdims=keepdims, **options)))
        result = np.asarray(f(np.ones(1, x.dtype), **options)).dtype
        x = x if op.startswith("arg") else asarray(x, dtype=result)
        x = asarray(x, dtype="uint8") if x.dtype == "bool" else x
        return asarray(record(op, x, axis=axis, keepdims=keepdims, **_ATTRIBUTES.get(op, {})), dtype=result)

    return function


def _moving(name: str, move: Callable[[Array, Callable[[Any], Any]], Array]) -> Callable[..., Array]:
    """Returns the function that moves elements as NumPy's does."""

    def function(x: Any, /, *args: Any, copy: Any = None, **options: Any) -> Array:
        known = [np.asarray(a) if isinstance(a, Array) else a for a in args]
        return move(asarray(x), lambda data: getattr(np, name)(data, *known, **options))

    return function


def _running(name: str, op: str, start: int) -> Callable[..., Array]:
    """Returns sums or products of the elements up to each one, after ``start`` if they are to include it."""

    def function(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False) -> Array:
        result = getattr(np, name)(np.ones((1,) * x.ndim, x.dtype), axis=axis, dtype=dtype).dtype
        out, along = record(op, asarray(x, dtype=result), axis=axis or 0), (axis or 0) % x.ndim
        before = [int(d == along) for d in range(x.ndim)]
        return record("pad", out, pad_before=before, pad_after=[0] * x.ndim, value=start) if include_initial else out

    return function


def _made(name: str) -> Callable[..., Array]:
    """Returns a function whose data NumPy makes."""

    def function(*args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Array:
        data = getattr(np, name)(*args, **options)
        return asarray(data, dtype=dtype or default_dtype(data))

    return function


def _of_values(name: str) -> Callable[..., Any]:
    """Returns a function that computes the array, and calls NumPy's with its values."""

    def function(x: Any, /) -> Any:
        found = getattr(np, name)(np.asarray(x))
        return leaf(found) if isinstance(found, np.ndarray) else getattr(type(found), "_make", tuple)(map(leaf, found))

    return function


def _ordered(x: Any, axis: int, descending: Any, which: int) -> Array:
    """Returns the elements in order (NaN is larger than all numbers), or their positions."""
    return record("topk", x, which=which, k=x.shape[axis], axis=axis, largest=descending)


_OF_ELEMENTS = {name: _of_elements(name, row) for row in ELEMENTS.values() for name, _ in row.names("array_api")}
if _TWICE := _OF_ELEMENTS.keys() & _FORMULAS.keys():
    raise ValueError(f"{', '.join(sorted(_TWICE))}: a row of ELEMENTS and a formula; leave one of them out")

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_OF_ELEMENTS,
    **{row.partition("=")[0]: _reduction(*(row.split("=") * 2)[:2]) for row in _REDUCTIONS.split()},
    **{name: _moving(name, move) for names, move in _MOVES for name in names.split()},
    "cumulative_sum": _running("cumulative_sum", "cumsum", 0),
    "cumulative_prod": _running("cumulative_prod", "cumprod", 1),
    **{name: _made(name) for name in ("arange", "linspace", "eye")},
    **{name: _of_values(name) for name in "nonzero unique_all unique_counts unique_inverse unique_values".split()},
    **{name: partial(full, fill_value=float(value)) for name, value in _FILLED.items()},
    **{f"{name}_like": partial(_FORMULAS["full_like"], fill_value=value) for name, value in _FILLED.items()},
    **_FORMULAS,
}
"""The functions by name."""
for _name, _function in FUNCTIONS.items():
    _function.__name__, _function.__doc__ = _name, f"Returns {_name}, as the standard has it."


def pow(x1: Any, x2: Any, /) -> Array:
    """Returns powers; exponents of integers are at least 0."""
    a, b = common(x1, x2)
    if a.dtype.kind == "f":
        return record("power", a, b)
    if b.expression.is_number and b.expression.data == 2:
        return record("square", a)
    made: Array = power_of_integers(record, a, b, asarray(1, dtype=a.dtype), 8 * a.dtype.itemsize)
    return made


def clip(x: Any, /, min: Any = None, max: Any = None) -> Array:
    """Returns the elements, at least ``min`` and at most ``max`` where they are given."""
    out = FUNCTIONS["positive"](x) if min is None else FUNCTIONS["maximum"](x, min)
    return out if max is None else FUNCTIONS["minimum"](out, max)  # type: ignore[no-any-return]


def matmul(x1: Any, x2: Any, /) -> Array:
    """Returns the matrix product; vectors are rows on the left and columns on the right."""
    a, b = common(x1, x2)
    if min(a.ndim, b.ndim) == 1:
        return tensordot(a, b, axes=((-1,), (-min(b.ndim, 2),)))
    return record("matmul", a, b, out_dtype=a.dtype.name)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Array:
    """Returns the sum of products over pairs of axes. They are the last of ``x1`` with the first of ``x2``, or those
    given."""
    a, b = common(x1, x2)
    first, second = (range(-axes, 0), range(axes)) if isinstance(axes, int) else axes
    left, right = [*"abcdefghijklm"[: a.ndim]], [*"nopqrstuvwxyz"[: b.ndim]]
    for i, j in zip(first, second, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ValueError(
                f"there are no products of {a.shape[i]} and {b.shape[j]} elements: {a.shape} and {b.shape}"
            )
        right[j] = left[i]
    kept = [c for c in (*left, *right) if (c in left) != (c in right)]
    return record("einsum", a, b, equation=f"{''.join(left)},{''.join(right)}->{''.join(kept)}")


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Array:
    """Returns the sum of squared distances from the mean, divided by the count less ``correction``."""
    middle = FUNCTIONS["mean"](x, axis=axis, keepdims=True)
    total: Array = FUNCTIONS["sum"]((x - middle) ** 2, axis=axis, keepdims=keepdims)
    return total / (x.size / (middle.size or 1) - correction)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    """Returns the differences of neighbours along an axis, ``n`` times."""
    out = concat([p for p in (prepend, x, append) if p is not None], axis=axis)
    before = (slice(None),) * (axis % x.ndim)
    for _ in range(n):
        out = out[(*before, slice(1, None))] - out[(*before, slice(None, -1))]
    return out


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Returns the arrays one after the other along an axis; flat where it is None."""
    parts = common(*[_flat(a) if axis is None else a for a in arrays])
    return record("concatenate", *parts, axis=axis or 0)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """Returns the coordinates of a grid, whose first two dimensions are exchanged for ``xy``."""
    places = np.meshgrid(*[np.arange(a.size) for a in arrays], indexing=indexing)  # type: ignore[call-overload]
    return [gathered(asarray(a), partial(np.take, indices=p)) for a, p in zip(arrays, places, strict=True)]


class Info(type(np.__array_namespace_info__())):  # type: ignore[misc]
    """``Info`` says what the standard leaves open; what is not here is as in NumPy."""

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Returns the data types of Python's numbers, and of indices."""
        return {n: np.dtype(d) for n, d in (("real floating", "float32"), ("integral", "int64"), ("indexing", "int64"))}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Returns data types by name, those of a kind where it is given."""
        return {name: np.dtype(name) for name in NAMES if kind is None or np.isdtype(np.dtype(name), kind)}


for _function in (asarray, broadcast_to, full, pow, clip, matmul, tensordot, var, result_type, diff, concat, meshgrid):
    entering(FUNCTIONS, _function.__name__)(_function)
BY_UFUNC.update({getattr(np, n): f for n, f in FUNCTIONS.items() if isinstance(getattr(np, n, None), np.ufunc)})
