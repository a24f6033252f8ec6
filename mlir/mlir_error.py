"""This module has the error of this package, and the check that xDSL is installed."""

from __future__ import annotations

import importlib.util


class MlirError(ValueError):
    """Raised for a program that MLIR's dialects cannot express here, and for a text that cannot be read."""


def require_xdsl() -> None:
    """Check that the package xdsl is there. MlirError with the pip command when it is not."""
    if importlib.util.find_spec("xdsl") is None:
        raise MlirError("MLIR needs the package xdsl: pip install 'tilewright[mlir]'")
