"""``tvm.runtime``: arrays and devices under their newer names."""

from __future__ import annotations

from .. import codegen
from . import nd
from .nd import cpu as cpu
from .nd import device as device

Module = codegen.Module
NDArray = Tensor = nd.NDArray
empty, ndarray, tensor = nd.empty, nd, nd.array


def enabled(kind: str) -> bool:
    """Returns whether code for a target's kind runs here: that of this machine's processor."""
    return kind.split()[0] in ("cpu", "llvm", "native")


def load_module(path: object, fmt: str = "") -> Module:
    """Raise NotImplementedError: an exported library has plain C functions, which ctypes calls."""
    raise NotImplementedError(
        f"load_module({str(path)!r}): an exported library has plain C functions and no description of its arguments; "
        "call them by ctypes as docs/guides/export-to-c.md shows, or keep the program and build it again"
    )
