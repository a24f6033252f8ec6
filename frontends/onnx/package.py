"""This module loads the package onnx when it is needed."""

from __future__ import annotations

import importlib
from typing import Any

from .call import OnnxError


def load_onnx() -> Any:
    """Returns the package onnx; OnnxError with the pip command when it is not installed."""
    try:
        importlib.import_module("onnx.reference")
        return importlib.import_module("onnx")
    except ImportError as error:
        raise OnnxError("reading ONNX models needs the package onnx: pip install 'tilewright[onnx]'") from error
