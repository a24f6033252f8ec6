"""This module is an array namespace with the names of the array API standard. Its arrays are computed when their values
are used.

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

from typing import Any

import numpy as np

from .lazy_array import NAMES
from .lazy_array import Array as Array
from .lazy_array import configure as configure
from .lazy_array import graph_of as graph_of
from .lazy_functions import FUNCTIONS, Info

__array_api_version__ = "2024.12"
broadcast_shapes, finfo, iinfo, isdtype = np.broadcast_shapes, np.finfo, np.iinfo, np.isdtype
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi
bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 = [np.dtype(n) for n in NAMES]
globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    """Tell type checkers that there are names of rows; those are found without this function."""
    raise AttributeError(f"there is no {name!r} in tilewright.lazy")


def __array_namespace_info__() -> Info:  # noqa: N807
    """Returns what the standard leaves open."""
    return Info()
