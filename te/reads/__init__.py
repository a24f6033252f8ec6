"""This package looks at what computations read: it checks that reads are inside the shapes, and simplifies their indices.

Its files register themselves with :mod:`..operation` and :mod:`..create_prim_func`.
"""

from . import decided_conditions as _decided_conditions  # noqa: F401  (registers itself)
from . import read_bounds as _read_bounds  # noqa: F401  (registers itself)
