"""``tvm.runtime``: arrays and devices under their newer names."""

from __future__ import annotations

from .. import codegen
from ..exported import load_module as load_module
from . import nd
from .nd import cpu as cpu
from .nd import device as device

Module = codegen.Module
NDArray = Tensor = nd.NDArray
empty, ndarray, tensor = nd.empty, nd, nd.array


def enabled(kind: str) -> bool:
    """Returns whether code for a target's kind runs here: that of this machine's processor."""
    return kind.split()[0] in ("cpu", "llvm", "native")
