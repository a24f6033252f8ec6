"""This package has the names that programs written for TVM use, as thin modules over the layers.

After ``import tilewright as tvm`` they are ``tvm.nd``, ``tvm.target``, ``tvm.testing``, ``tvm.meta_schedule``,
``tvm.tir_integration``, ``tvm.lower``, ``tvm.cpu`` and ``tvm.device``.
"""

from . import meta_schedule, nd, target, testing, tir_integration
from .devices import cpu, device
from .lowering import lower

__all__ = ["cpu", "device", "lower", "meta_schedule", "nd", "target", "testing", "tir_integration"]
