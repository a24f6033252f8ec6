"""The LLVM back end.

:mod:`.emit` writes IR text from a lowered function; :mod:`.jit`, the only user of llvmlite, compiles it.
"""

from . import byte_divisions as _byte_divisions  # noqa: F401  (registers itself)
from . import scalarized_accesses as _scalarized_accesses  # noqa: F401  (registers itself)
from . import single_lane_stores as _single_lane_stores  # noqa: F401  (registers itself)
from . import wasm_repairs as _wasm_repairs  # noqa: F401  (registers itself)
from .emit import emit

__all__ = ["emit"]
