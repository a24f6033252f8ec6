"""This package reads ONNX models into graphs.

:func:`from_onnx` does it; :func:`register_onnx_operator` adds a converter for an operator that is missing or the
user's own.

Operators without a converter are read by the body that ONNX gives; nodes whose inputs are known are evaluated while the graph is made.
"""

from .call import OnnxCall, OnnxError, register_onnx_operator
from .importer import from_onnx
from .model_file import UnsupportedOnnxOperators

__all__ = ["OnnxCall", "OnnxError", "UnsupportedOnnxOperators", "from_onnx", "register_onnx_operator"]
