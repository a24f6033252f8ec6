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

import numpy as np
from numpy import broadcast_shapes as broadcast_shapes
from numpy import finfo as finfo
from numpy import iinfo as iinfo
from numpy import isdtype as isdtype

from .lazy.compiled_expressions import configure as configure
from .lazy.compiled_expressions import graph_of as graph_of
from .lazy.lazy_array import Array as Array
from .lazy.lazy_types import NAMES, Info
from .lazy.lazy_types import can_cast as can_cast
from .lazy.lazy_types import result_type as result_type
from .lazy_functions.lazy_creation import *  # noqa: F403
from .lazy_functions.lazy_elements import *  # noqa: F403
from .lazy_functions.lazy_reductions import *  # noqa: F403
from .lazy_functions.lazy_shapes import *  # noqa: F403

__array_api_version__ = "2024.12"
e, inf, nan, newaxis, pi = np.e, np.inf, np.nan, None, np.pi
bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float32, float64 = [np.dtype(n) for n in NAMES]


def __array_namespace_info__() -> Info:  # noqa: N807
    """Returns what the standard leaves open."""
    return Info()
