"""``tvm.topi``: the operators of :mod:`tilewright.te.ops`; ``topi.nn`` has the same ones."""

from __future__ import annotations

import sys
from typing import Any

from ..te import ops

_RENAMED = {
    f"broadcast_{name}": name
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "greater", "less", "equal")
}

nn = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    found = getattr(ops, _RENAMED.get(name, name), None)
    if found is None or name.startswith("_"):
        raise AttributeError(f"topi has no {name!r} here; tilewright.te.ops lists the operators")
    return found
