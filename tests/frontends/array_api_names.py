"""``python -m tests.frontends.array_api_names``: the names of the array API standard, compared with array-api-strict.

``CASES`` has calls by the name that they show; each is made with ``tilewright.lazy`` and with the oracle on the same data.
``--markdown FILE`` writes the table of docs/reference/array-api.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import lazy

FLOATS, INTS, BOOL = ("float32", "float64"), ("int8", "int32", "int64", "uint8", "uint64"), ("bool",)
REAL, ALL = (*FLOATS, *INTS), (*FLOATS, *INTS, *BOOL)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 7.25, -7.0, 88.0, np.inf, -np.inf, np.nan, 2.5, -0.5, 1e6]

CASES: dict[str, list[tuple[tuple[str, ...], Callable[..., Any]]]] = {}
"""Per name: data types, and a function of the namespace, of ``a`` (17 values), and of ``b`` (17, without zeros in integers)."""


SAME_KIND: dict[str, Callable[[Any], Any]] = {
    "float": lambda xp: (xp.float32, xp.float64),
    "int": lambda xp: (xp.int8, xp.int16, xp.int64),
    "uint": lambda xp: (xp.uint8, xp.int16, xp.uint64),
    "bool": lambda xp: (xp.bool,),
}
"""Data types that one of this family may be cast to, or not; the standard leaves the others open."""


def case(name: str, dtypes: tuple[str, ...], *calls: Callable[..., Any]) -> None:
    CASES.setdefault(name, []).extend([(dtypes, call) for call in calls])


def data(dtype: str) -> tuple[Any, Any]:
    """Returns 17 values and 17 others; floats have infinities, NaN and both zeros among them."""
    if dtype == "bool":
        return np.arange(17) % 3 == 0, np.arange(17) % 2 == 0
    if dtype in FLOATS:
        return np.array(SPECIAL, dtype), np.roll(np.array(SPECIAL, dtype), 5)
    low = 0 if dtype.startswith("u") else -8
    return (np.arange(17) + low).astype(dtype), ((np.arange(17) * 5) % 7 + 1).astype(dtype)


for _name in "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh sqrt tan tanh".split():
    case(_name, FLOATS, lambda xp, a, b, n=_name: getattr(xp, n)(a))
for _name in "abs ceil floor isfinite isinf isnan negative positive round sign square trunc".split():
    case(_name, REAL, lambda xp, a, b, n=_name: getattr(xp, n)(a))
case("bitwise_invert", (*INTS, *BOOL), lambda xp, a, b: xp.bitwise_invert(a))
case("logical_not", BOOL, lambda xp, a, b: xp.logical_not(a))
for _name in "atan2 copysign hypot logaddexp nextafter".split():
    case(_name, FLOATS, lambda xp, a, b, n=_name: getattr(xp, n)(a[:, None], b))
case("divide", FLOATS, lambda xp, a, b: a[:, None] / b, lambda xp, a, b: 1 / a)
for _name in "add subtract multiply maximum minimum greater greater_equal less less_equal".split():
    case(
        _name,
        REAL,
        lambda xp, a, b, n=_name: getattr(xp, n)(a[:, None], b),
        lambda xp, a, b, n=_name: getattr(xp, n)(a, 3),
    )
case("floor_divide", INTS, lambda xp, a, b: a[:, None] // b, lambda xp, a, b: a // 3)
case("floor_divide", FLOATS, lambda xp, a, b: (a / 3)[:11] // 0.7, lambda xp, a, b: a[:11] // -2.0)
case("remainder", REAL, lambda xp, a, b: a[:, None] % b if a.dtype in (xp.int8, xp.int32, xp.uint8) else a[:11] % 3)
for _name in "equal not_equal".split():
    case(_name, ALL, lambda xp, a, b, n=_name: getattr(xp, n)(a[:, None], b))
case(
    "pow",
    FLOATS,
    lambda xp, a, b: a[:, None] ** b,
    lambda xp, a, b: a**2,
    lambda xp, a, b: xp.pow(a, 1.5),
    lambda xp, a, b: 2 ** a[:11],
)
case("pow", INTS, lambda xp, a, b: a**b, lambda xp, a, b: a**3, lambda xp, a, b: xp.pow(2, b))
for _name in "and or xor".split():
    case(f"bitwise_{_name}", (*INTS, *BOOL), lambda xp, a, b, n=_name: getattr(xp, f"bitwise_{n}")(a[:, None], b))
    case(f"logical_{_name}", BOOL, lambda xp, a, b, n=_name: getattr(xp, f"logical_{n}")(a[:, None], b))
case("bitwise_left_shift", INTS, lambda xp, a, b: a << b, lambda xp, a, b: a << 2)
case("bitwise_right_shift", INTS, lambda xp, a, b: a >> b, lambda xp, a, b: a >> 1)
case(
    "clip",
    REAL,
    lambda xp, a, b: xp.clip(a, 1, 4),
    lambda xp, a, b: xp.clip(a, min=2),
    lambda xp, a, b: xp.clip(a, max=xp.abs(b)),
)
case(
    "where",
    ALL,
    lambda xp, a, b: xp.where((a == b)[:, None], a, b[:, None]),
    lambda xp, a, b: xp.where(a == b, a[0], b),
)

_GRID = lambda xp, a: xp.reshape(xp.concat([a[:11], a[14:], a[:6], a[3:11]]), (4, 7))  # noqa: E731
for _name in "sum prod max min".split():
    case(
        _name,
        REAL,
        lambda xp, a, b, n=_name: [
            getattr(xp, n)(_GRID(xp, a)),
            getattr(xp, n)(_GRID(xp, a), axis=1, keepdims=True),
            getattr(xp, n)(_GRID(xp, a), axis=(0, -1)),
            getattr(xp, n)(a[2]),
        ],
    )
case("sum", FLOATS, lambda xp, a, b: xp.sum(a[:0]), lambda xp, a, b: xp.sum(a[:9], dtype=xp.float64))
case("max", FLOATS, lambda xp, a, b: [xp.max(a), xp.max(a[12:13])])
case("prod", INTS, lambda xp, a, b: xp.prod(xp.reshape(a[:0], (0, 3)), axis=0))
for _name in "all any".split():
    case(
        _name,
        ALL,
        lambda xp, a, b, n=_name: [
            getattr(xp, n)(a),
            getattr(xp, n)(_GRID(xp, a), axis=0, keepdims=True),
            getattr(xp, n)(a[:0]),
        ],
    )
for _name in "argmax argmin".split():
    case(
        _name,
        REAL,
        lambda xp, a, b, n=_name: [
            getattr(xp, n)(_GRID(xp, a)),
            getattr(xp, n)(_GRID(xp, a), axis=1),
            getattr(xp, n)(_GRID(xp, a), axis=0, keepdims=True),
            getattr(xp, n)(_GRID(xp, a), keepdims=True),
            getattr(xp, n)(a[3]),
        ],
    )
case(
    "count_nonzero", ALL, lambda xp, a, b: [xp.count_nonzero(a), xp.count_nonzero(_GRID(xp, a), axis=1, keepdims=True)]
)
case("mean", FLOATS, lambda xp, a, b: [xp.mean(_GRID(xp, a)), xp.mean(_GRID(xp, a), axis=(0,), keepdims=True)])
for _name in "var std".split():
    case(
        _name,
        FLOATS,
        lambda xp, a, b, n=_name: [getattr(xp, n)(_GRID(xp, a)), getattr(xp, n)(_GRID(xp, a), axis=1, correction=1)],
    )
for _name in "cumulative_sum cumulative_prod".split():
    case(
        _name,
        REAL,
        lambda xp, a, b, n=_name: [getattr(xp, n)(a[:9]), getattr(xp, n)(_GRID(xp, a), axis=1, include_initial=True)],
    )
case(
    "diff",
    (*FLOATS, "int32", "int64"),
    lambda xp, a, b: [xp.diff(a[:9]), xp.diff(_GRID(xp, a), axis=0, n=2), xp.diff(a[:5], prepend=a[:2], append=a[1:2])],
)
case("sort", REAL, lambda xp, a, b: [xp.sort(a), xp.sort(_GRID(xp, a), axis=0, descending=True)])
case(
    "argsort",
    REAL,
    lambda xp, a, b: [xp.argsort(a), xp.argsort(_GRID(xp, a), axis=0), xp.argsort(b[:9], descending=True)],
)
case(
    "searchsorted",
    REAL,
    lambda xp, a, b: [
        xp.searchsorted(xp.sort(b[8:12]), a[:11]),
        xp.searchsorted(xp.sort(b[8:12]), a[:11], side="right"),
    ],
)
case("isin", INTS, lambda xp, a, b: xp.isin(a, b[:3]))
case("nonzero", ALL, lambda xp, a, b: list(xp.nonzero(_GRID(xp, a))))
for _name in "unique_all unique_counts unique_inverse".split():
    case(_name, REAL, lambda xp, a, b, n=_name: list(getattr(xp, n)(b)))
case("unique_values", REAL, lambda xp, a, b: xp.sort(xp.unique_values(b)))

case(
    "reshape",
    ALL,
    lambda xp, a, b: [xp.reshape(a, (17, 1)), xp.reshape(_GRID(xp, a), (2, -1, 7)), xp.reshape(a[2:3], ())],
)
case(
    "permute_dims",
    ALL,
    lambda xp, a, b: [
        xp.permute_dims(_GRID(xp, a), (1, 0)),
        xp.permute_dims(xp.reshape(_GRID(xp, a), (2, 2, 7)), (2, 0, 1)),
    ],
)
case(
    "moveaxis",
    FLOATS,
    lambda xp, a, b: [
        xp.moveaxis(xp.reshape(_GRID(xp, a), (2, 2, 7)), 0, -1),
        xp.moveaxis(xp.reshape(_GRID(xp, a), (2, 2, 7)), (0, 1), (2, 0)),
    ],
)
case(
    "matrix_transpose",
    FLOATS,
    lambda xp, a, b: [xp.matrix_transpose(_GRID(xp, a)), _GRID(xp, a).T, _GRID(xp, a)[None, ...].mT],
)
case("squeeze", ALL, lambda xp, a, b: xp.squeeze(a[None, :, None], axis=(0, 2)))
case("expand_dims", ALL, lambda xp, a, b: [xp.expand_dims(a, axis=1), xp.expand_dims(a, axis=-1)])
case("flip", ALL, lambda xp, a, b: [xp.flip(a), xp.flip(_GRID(xp, a), axis=1)])
case(
    "roll",
    ALL,
    lambda xp, a, b: [xp.roll(a, 3), xp.roll(_GRID(xp, a), -2, axis=1), xp.roll(_GRID(xp, a), (1, 2), axis=(0, 1))],
)
case(
    "repeat",
    ALL,
    lambda xp, a, b: [xp.repeat(a, 2), xp.repeat(_GRID(xp, a), 3, axis=1), xp.repeat(a[:3], xp.asarray([2, 0, 1]))],
)
case("tile", ALL, lambda xp, a, b: [xp.tile(a, (2,)), xp.tile(_GRID(xp, a), (2, 1, 3))])
case(
    "concat",
    ALL,
    lambda xp, a, b: [
        xp.concat([a, b[:3], a[:0]]),
        xp.concat([_GRID(xp, a), _GRID(xp, b)], axis=-1),
        xp.concat([_GRID(xp, a), b], axis=None),
    ],
)
case("stack", ALL, lambda xp, a, b: [xp.stack([a, b]), xp.stack([a, b, a], axis=-1)])
case("unstack", ALL, lambda xp, a, b: list(xp.unstack(_GRID(xp, a), axis=1)))
case("broadcast_to", ALL, lambda xp, a, b: xp.broadcast_to(a, (3, 17)))
case("broadcast_arrays", ALL, lambda xp, a, b: list(xp.broadcast_arrays(a, b[:, None], a[0])))
case("broadcast_shapes", BOOL, lambda xp, a, b: xp.asarray(xp.broadcast_shapes((3, 1), (1, 7), ())))
case(
    "take",
    ALL,
    lambda xp, a, b: [xp.take(a, xp.asarray([3, 0, 16])), xp.take(_GRID(xp, a), xp.asarray([1, 1]), axis=1)],
)
case(
    "take_along_axis",
    ALL,
    lambda xp, a, b: xp.take_along_axis(_GRID(xp, a), xp.asarray([[1, 0], [2, 2], [0, 6], [5, 4]]), axis=1),
)
case("tril", ALL, lambda xp, a, b: [xp.tril(_GRID(xp, a)), xp.tril(_GRID(xp, a), k=-2)])
case("triu", ALL, lambda xp, a, b: [xp.triu(_GRID(xp, a)), xp.triu(_GRID(xp, a), k=1)])
case(
    "matmul",
    REAL,
    lambda xp, a, b: [
        _GRID(xp, a)[:, :4] @ _GRID(xp, b[::-1])[:, 3:],
        a[:7] @ b[:7],
        _GRID(xp, a) @ a[:7],
        a[:4] @ _GRID(xp, a),
    ],
)
case(
    "tensordot",
    REAL,
    lambda xp, a, b: [
        xp.tensordot(_GRID(xp, a), _GRID(xp, a), axes=((0,), (0,))),
        xp.tensordot(a[:7], a[:7], axes=1),
        xp.tensordot(a[:3], a[:2], axes=0),
    ],
)
case("vecdot", REAL, lambda xp, a, b: [xp.vecdot(a[:9], b[8:]), xp.vecdot(_GRID(xp, a), a[:4, None], axis=-2)])

for _name, _value in (("zeros", 0), ("ones", 1)):
    case(
        _name,
        ALL,
        lambda xp, a, b, n=_name: [
            getattr(xp, n)((2, 3), dtype=a.dtype),
            getattr(xp, n)((), dtype=a.dtype),
            getattr(xp, n)(0, dtype=a.dtype),
        ],
    )
    case(f"{_name}_like", ALL, lambda xp, a, b, n=_name: getattr(xp, f"{n}_like")(_GRID(xp, a)))
case("full", ALL, lambda xp, a, b: [xp.full((2, 3), 1, dtype=a.dtype), xp.full(3, True), xp.full((), 7)])
case("full_like", ALL, lambda xp, a, b: xp.full_like(a, 1))
case("empty", ALL, lambda xp, a, b: xp.empty((2, 3), dtype=a.dtype) * 0 == 0 if a.dtype != xp.bool else xp.zeros(1))
case("empty_like", REAL, lambda xp, a, b: xp.asarray(xp.empty_like(a).shape))
case(
    "arange", REAL, lambda xp, a, b: [xp.arange(5, dtype=a.dtype), xp.arange(2, 9, 3), xp.arange(3.0, dtype=xp.float32)]
)
case(
    "linspace",
    FLOATS,
    lambda xp, a, b: [xp.linspace(0, 1, 7, dtype=a.dtype), xp.linspace(-1, 2, 5, endpoint=False, dtype=a.dtype)],
)
case("eye", ALL, lambda xp, a, b: [xp.eye(3, dtype=a.dtype), xp.eye(2, 4, k=-1, dtype=a.dtype)])
case("meshgrid", REAL, lambda xp, a, b: [*xp.meshgrid(a, b[:3]), *xp.meshgrid(a[:2], b[:3], a[:2], indexing="ij")])
case(
    "asarray",
    ALL,
    lambda xp, a, b: [
        xp.asarray(a),
        xp.asarray([1, 2]),
        xp.asarray([True]),
        xp.asarray(a, copy=True),
        xp.asarray(3, dtype=a.dtype),
    ],
)
case("from_dlpack", ALL, lambda xp, a, b: xp.from_dlpack(a))
case(
    # NaN and what lies beyond the range have no meaning as integers in the standard
    "astype",
    ALL,
    lambda xp, a, b: [
        *[xp.astype(b[:3], d) for d in (xp.float32, xp.float64, xp.bool)],
        xp.astype(a[7:10], xp.int32),
        xp.astype(a[8:9], xp.uint8),
    ],
)
case(
    "isdtype",
    ALL,
    lambda xp, a, b: xp.asarray(
        [
            xp.isdtype(a.dtype, k)
            for k in (
                "bool",
                "integral",
                ("numeric", "bool"),
                "real floating",
                "signed integer",
                "unsigned integer",
                "complex floating",
            )
        ]
    ),
)
case("result_type", ALL, lambda xp, a, b: xp.asarray(xp.result_type(a, b, b.dtype) == a.dtype))
case(
    "can_cast",
    ALL,
    lambda xp, a, b: xp.asarray(
        [xp.can_cast(a.dtype, d) for d in SAME_KIND[str(a.dtype).rpartition(".")[2].strip("0123456789")](xp)]
    ),
)
case(
    "finfo",
    FLOATS,
    lambda xp, a, b: xp.asarray(
        [getattr(xp.finfo(a.dtype), n) for n in ("bits", "eps", "max", "min", "smallest_normal")], dtype=xp.float64
    ),
)
case("iinfo", INTS, lambda xp, a, b: xp.asarray([getattr(xp.iinfo(a.dtype), n) for n in ("bits", "min")]))
case(
    "__getitem__",
    ALL,
    lambda xp, a, b: [
        (-a if a.dtype in (xp.float32, xp.int32) else xp.flip(a))[k]
        for k in (0, -1, slice(2, 9, 3), slice(None, None, -1), slice(12, 3, -4), (None, ...), ...)
    ],
)
case(
    "__getitem__",
    FLOATS,
    lambda xp, a, b: [
        (-_GRID(xp, a))[k]
        for k in ((1, slice(None)), (..., 2), (slice(None, None, -2), None, 3), (slice(3, 1), ...), (0, -1))
    ],
)
case("__getitem__", ALL, lambda xp, a, b: [xp.flip(a)[a == b], xp.flip(a)[xp.asarray([3, -1])]])
case(
    "__setitem__",
    ALL,
    lambda xp, a, b: [
        _set(xp, a, k, v) for k, v in ((2, b[0]), (slice(1, 9, 2), b[3]), (slice(None, None, -1), b), (a == b, b[1]))
    ],
)
case("__iadd__", REAL, lambda xp, a, b: _add(a, b))


def _set(xp: Any, a: Any, key: Any, value: Any) -> Any:
    x = xp.asarray(a, copy=True)
    x[key] = value
    return x


def _add(a: Any, b: Any) -> Any:
    a = +a
    a += b
    return a


LEFT_OUT = {
    "complex64": "arrays of complex numbers are not supported",
    "complex128": "arrays of complex numbers are not supported",
    "conj": "arrays of complex numbers are not supported",
    "imag": "arrays of complex numbers are not supported",
    "real": "arrays of complex numbers are not supported",
    "fft": "an extension, of complex numbers",
    "linalg": "an extension: decompositions are not operators of the graph",
}
"""The names of the standard that are not there, with the reasons."""


def flat(result: Any) -> Iterator[Any]:
    """Yields the arrays of a result in NumPy's form."""
    for one in result if isinstance(result, (list, tuple)) else [result]:
        yield np.asarray(one) if isinstance(one, (lazy.Array, np.ndarray, np.generic)) else np.asarray(one._array)


def difference(call: Callable[..., Any], dtype: str, oracle: Any) -> str:
    """Returns how the results differ, empty where they are equal: in data type, shape, or values beyond rounding."""
    arrays = data(dtype)
    with np.errstate(all="ignore"):
        expected = list(flat(call(oracle, *[oracle.asarray(x) for x in arrays])))
    found = list(flat(call(lazy, *[lazy.asarray(x) for x in arrays])))
    if len(expected) != len(found):
        return f"{len(found)} results, not {len(expected)}"
    for n, (a, e) in enumerate(zip(found, expected, strict=True)):
        e = e.astype(np.float32) if e.dtype == "float64" and dtype != "float64" and a.dtype == "float32" else e
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"result {n}: {a.dtype}{a.shape}, not {e.dtype}{e.shape}"
        close = {"float32": 2e-6, "float64": 1e-14}.get(a.dtype.name, 0)
        with np.errstate(all="ignore"):
            same = np.isclose(a, e, close, close / 10, equal_nan=True) if close else a == e
        if not same.all():
            where = tuple([int(i[0]) for i in np.nonzero(~same)])
            return f"result {n}: {a[where]}, not {e[where]}, at {where}"
    return ""


def names(oracle: Any) -> list[str]:
    """Returns the names of the standard."""
    own = {
        "Device",
        "__version__",
        "get_array_api_strict_flags",
        "set_array_api_strict_flags",
        "reset_array_api_strict_flags",
        "ArrayAPIStrictFlags",
    }
    return sorted(set(oracle.__all__) - own)


def table(oracle: Any, only: str = "") -> tuple[str, int]:
    """Returns the rows of the page, how many cases are equal per name or why it is left out, and how many differ."""
    rows, wrong = [], 0
    for name in sorted({*names(oracle), *CASES}, key=str.lower):
        cases = [(d, call) for dtypes, call in CASES.get(name, []) for d in dtypes if only in ("", name)]
        told = {d: difference(call, d, oracle) for d, call in cases}
        wrong += sum(map(bool, told.values()))
        said = "; ".join([f"{d}: {text}" for d, text in told.items() if text]) or LEFT_OUT.get(name, "")
        rows.append(f"| `{name}` | {len(cases) or ''} | {said} |")
        if only == name or (said and not only):
            print(rows[-1], flush=True)
    return "\n".join(rows), wrong


PAGE = """# Names of the array API standard

`python -m tests.frontends.array_api_names` calls the functions of `tilewright.lazy` and those of
[array-api-strict](https://data-apis.org/array-api-strict/) {version} on the same data, of each data type that the standard allows:
infinities, NaN, both zeros, 17 elements, no elements, no dimensions. Results have to be equal in data type, shape and values, where
floats may differ by rounding. {equal} of {count} names are there.

| name | calls | left out, or different |
|---|---|---|
{rows}

Where the standard leaves a choice:

- Python numbers and new arrays are float32, int64 or bool. Floats, integers and bool promote to each other as in NumPy 2.
- Arrays that the shape of a result depends on are computed at once: masks and index arrays in keys, and what `nonzero` and the
  `unique` functions are given. NumPy computes these results.
- `sort`, `argsort` and the cumulative functions compare or add all pairs along the axis, so they are for short axes.
- An array's memory is shared with NumPy as read-only, and with other libraries through DLPack.
"""


def main() -> None:
    import array_api_strict

    parser = argparse.ArgumentParser()
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    rows, wrong = table(array_api_strict, asked.only)
    every = set(names(array_api_strict))
    if asked.markdown:
        version = array_api_strict.__version__
        text = PAGE.format(version=version, rows=rows, count=len(every), equal=len(every - set(LEFT_OUT)))
        asked.markdown.write_text(text)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
